"""How much a query can have to do at most, read off its optimised plan: decides where it may run.

The engine looks up from its work between two batches of a scan, but not while a join goes through the pairs of one:
a join of two million rows with one key has 10^12 of them and cannot be stopped. So the pairs of all joins are bounded
from above. A join on all columns of a key (a table's, or of a GROUP BY) finds one row at most on that side; any other
join may pair everything with everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from datafusion.expr import Expr
from datafusion.plan import LogicalPlan

from lithify.serving.filters import Place

# Pairs that a join goes through in a second or so.
PAIRS_HERE_MAX = 50_000_000
# With a further condition, each pair is looked at, by whatever functions that has.
FILTERED_PAIRS_HERE_MAX = 5_000_000
# Elements of a list that becomes rows; how many there are is not known before.
LIST_LENGTH_MAX = 1_000
# Rows that a query can list in its own text.
LISTED_ROWS_MAX = 65_536

_FETCH = re.compile(r"\bfetch=(\d+)")


@dataclass(frozen=True)
class Scanned:
    """What is known of one that a plan scans."""

    rows: int
    key: tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """`can_be_stopped`: soon, wherever it stands. `is_bounded`: it ends by itself, as far as its tables tell."""

    can_be_stopped: bool
    is_bounded: bool


@dataclass(frozen=True)
class _Part:
    """`unique`: columns that together are different in every row."""

    rows: float
    unique: frozenset[str] | None = None


class _Bounds:
    def __init__(self, table_of: Callable[[Place], Scanned | None], namespace: str) -> None:
        self._table_of, self._namespace = table_of, namespace
        self.joins = self.scans = 0
        self.fits = self.bounded = True

    def part(self, node: LogicalPlan) -> _Part:
        text = node.display()
        kind = text.split(":", 1)[0].strip()
        parts = [self.part(child) for child in node.inputs()]
        if kind.endswith("Join"):
            return self._join(node, kind, parts[0], parts[1])
        if kind == "TableScan":
            return self._scan(node, text)
        if not parts:
            # A list of rows shows its first ones; all of them stand in the query's text.
            return _Part(LISTED_ROWS_MAX if text.endswith("...") else max(text.count("("), 1))
        first = parts[0]
        if kind == "Union":
            return _Part(sum(part.rows for part in parts))
        if kind == "RecursiveQuery":
            return _Part(math.inf)
        if kind == "Unnest":
            return _Part(first.rows * LIST_LENGTH_MAX)
        if kind == "Aggregate":
            groups = node.to_variant().group_by_exprs()
            names = [_column(expr) for expr in groups]
            unique = frozenset(name for name in names if name is not None) if None not in names else None
            return _Part(first.rows if groups else 1, unique)
        if kind == "Projection":
            return _Part(first.rows, _kept(node, first.unique))
        if kind in ("Limit", "Sort") and (found := _FETCH.search(text)):
            return _Part(min(first.rows, int(found[1])), first.unique)
        return first

    def _scan(self, node: LogicalPlan, text: str) -> _Part:
        self.scans += 1
        fqn = node.to_variant().fqn()
        table = self._table_of((fqn[1] or self._namespace, fqn[2]))
        if table is None:
            self.bounded = False
            return _Part(math.inf)
        found = _FETCH.search(text)
        rows = min(table.rows, int(found[1])) if found else table.rows
        return _Part(rows, frozenset(table.key) if table.key else None)

    def _join(self, node: LogicalPlan, kind: str, left: _Part, right: _Part) -> _Part:
        self.joins += 1
        join = node.to_variant()
        pairs_on = [(_column(a), _column(b)) for a, b in join.on()]
        left_on, right_on = ({name for name in side if name is not None} for side in _sides(pairs_on))
        rows_left, rows_right = max(left.rows, 1), max(right.rows, 1)
        one_left = left.unique is not None and left.unique <= left_on
        one_right = right.unique is not None and right.unique <= right_on
        pairs = min(
            rows_right if one_left else math.inf,
            rows_left if one_right else math.inf,
            rows_left * rows_right,
        )
        if not one_left and not one_right:
            plain = bool(pairs_on) and join.filter() is None
            self.fits &= pairs <= (PAIRS_HERE_MAX if plain else FILTERED_PAIRS_HERE_MAX)
        unique = left.unique if one_right else right.unique if one_left else None
        if kind.startswith(("LeftSemi", "LeftAnti", "LeftMark")):
            return left
        if kind.startswith(("RightSemi", "RightAnti", "RightMark")):
            return right
        outer = "Left" in kind or "Right" in kind or "Full" in kind
        return _Part(pairs + rows_left + rows_right if outer else pairs, None if outer else unique)


def work_of(plan: LogicalPlan, text: str, table_of: Callable[[Place], Scanned | None], namespace: str) -> Work:
    bounds = _Bounds(table_of, namespace)
    bounds.part(plan)
    # Subqueries that stay inside an expression are not among a node's inputs, but in the plan's text.
    joins_seen, scans_seen = text.count("Join:") == bounds.joins, text.count("TableScan:") == bounds.scans
    return Work(can_be_stopped=bounds.fits and joins_seen, is_bounded=bounds.bounded and joins_seen and scans_seen)


def _column(expr: Expr) -> str | None:
    return str(expr.to_variant().name()) if expr.variant_name() == "Column" else None


def _sides(pairs: list[tuple[str | None, str | None]]) -> tuple[list[str | None], list[str | None]]:
    return [left for left, _ in pairs], [right for _, right in pairs]


def _kept(node: LogicalPlan, unique: frozenset[str] | None) -> frozenset[str] | None:
    if unique is None:
        return None
    names = {_column(expr) for expr in node.to_variant().projections()}
    return unique if unique <= names else None
