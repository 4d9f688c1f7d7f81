"""What a query asks of each table, read off DataFusion's own optimised plan over empty tables.

The optimiser has folded constants, matched types and moved every condition as far down as it is allowed to go. A Filter
that stands directly above a TableScan restricts that scan: rows that fail it cannot matter to the answer. A table that
is named several times is asked for whatever one of its scans needs. Subqueries that stay inside an expression cannot
be walked; the plan's text shows their scans, and a table with more scans in the text than were walked is read whole.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datafusion.expr import Expr
from datafusion.plan import LogicalPlan

from lithify.core.column_types import Family, type_of
from lithify.core.names import TableRef
from lithify.core.predicates import UNKNOWN, Compare, Op, Predicate, both, either
from lithify.sql.expressions import NEVER, Part, predicate_of

NO_FILTER = "no filter on this table"
NOT_UNDERSTOOD = "the filter on this table cannot be decided by statistics"
IN_A_SUBQUERY = "read by a subquery that is not looked into"
NOT_READ = "not read by the optimised query"

_CAST = re.compile(r"CAST\(.* AS (\w+(?:\(\d+, ?\d+\))?)\)")
_DECIMAL = re.compile(r"Decimal(?:128|256)\((\d+), ?(\d+)\)")
_NUMBERS = {"Int16": pa.int16(), "Int32": pa.int32(), "Int64": pa.int64(), "Float64": pa.float64()}


@dataclass(frozen=True)
class ScanRequest:
    """What one table is asked for. `columns` None: all of them. `note` says why the predicate restricts nothing."""

    columns: tuple[str, ...] | None
    predicate: Predicate
    note: str | None = None

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The columns that it needs values of."""
        return () if self.note == NOT_READ else self.columns


@dataclass(frozen=True)
class _Scan:
    columns: tuple[str, ...] | None
    conditions: tuple[Expr, ...]


def requests(
    plan: LogicalPlan, schemas: Mapping[TableRef, pa.Schema], namespace: str = "main"
) -> dict[TableRef, ScanRequest]:
    """What an optimised plan asks of every table of `schemas`; `namespace` is that of names without one."""
    scans: dict[TableRef, list[_Scan]] = {}
    walked: Counter[str] = Counter()
    shown_as: dict[str, TableRef] = {}
    waiting: list[tuple[LogicalPlan, tuple[Expr, ...]]] = [(plan, ())]
    while waiting:
        node, above = waiting.pop()
        inputs = node.inputs()
        if inputs:
            found = node.to_variant() if node.display().startswith("Filter:") else None
            conditions = (found.predicate(),) if found is not None else ()
            waiting.extend((child, conditions) for child in inputs)
        elif (text := node.display()).startswith("TableScan:"):
            scan = node.to_variant()
            ref = _table_ref(scan.fqn(), namespace)
            name = _shown_name(text)
            walked[name] += 1
            shown_as[name] = ref
            scans.setdefault(ref, []).append(_scan(scan, text, above))
    seen, odd = _scans_in_text(plan.display_indent())
    hidden = {shown_as[name] for name in walked if odd or seen[name] != walked[name]}
    answer = {}
    for ref, schema in schemas.items():
        if ref in hidden or (ref not in scans and (odd or seen.total() != walked.total())):
            answer[ref] = ScanRequest(None, UNKNOWN, IN_A_SUBQUERY)
        elif ref not in scans:
            answer[ref] = ScanRequest(None, UNKNOWN, NOT_READ)
        else:
            answer[ref] = _request(scans[ref], schema)
    return answer


def orders_floats(plan: LogicalPlan, schemas: Mapping[TableRef, pa.Schema]) -> bool:
    """Whether an optimised plan may compare or order floating point numbers, or look for their bounds."""
    names = {f.name for schema in schemas.values() for f in schema if _holds_floats(f.type)}
    if not names:
        return False
    mentioned = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)")
    for line in map(str.strip, plan.display_indent().splitlines()):
        # Another name hides where the numbers go to; without one, they are handed on or added up.
        handed_on = line.startswith("Projection:") and " AS " not in line
        added_up = line.startswith("Aggregate:") and "min(" not in line and "max(" not in line
        if not line.startswith("TableScan:") and not handed_on and not added_up and mentioned.search(line):
            return True
    return False


def reads_floats(request: ScanRequest, schema: pa.Schema) -> bool:
    """Whether floating point numbers are among what a table is asked for."""
    return any(_holds_floats(f.type) for f in schema if request.columns is None or f.name in request.columns)


def _holds_floats(kind: pa.DataType) -> bool:
    return type_of(kind).family is Family.FLOAT or any(
        _holds_floats(kind.field(i).type) for i in range(kind.num_fields)
    )


def _table_ref(fqn: tuple[str | None, str | None, str], namespace: str) -> TableRef:
    return fqn[1] or namespace, fqn[2]


def _shown_name(text: str) -> str:
    return text.removeprefix("TableScan:").strip().split(" ", 1)[0]


def _scan(scan: Any, text: str, above: tuple[Expr, ...]) -> _Scan:
    # A plan that was not pruned shows no projection, and answers an empty one.
    columns = tuple(name for _, name in scan.projection()) if " projection=[" in text else None
    # Rows that a limit inside the scan leaves out would be other ones.
    return _Scan(columns, (*above, *scan.filters()) if scan.fetch() is None else ())


def _scans_in_text(text: str) -> tuple[Counter[str], bool]:
    """How often the text shows a scan of each table, and whether it mentions scans in any other way."""
    lines = [line.strip() for line in text.splitlines() if "TableScan" in line]
    names = [_shown_name(line) for line in lines if line.startswith("TableScan:")]
    return Counter(names), text.count("TableScan") != len(names)


def _request(scans: list[_Scan], schema: pa.Schema) -> ScanRequest:
    columns: tuple[str, ...] | None = None
    if all(scan.columns is not None for scan in scans):
        wanted = {name for scan in scans for name in scan.columns or ()}
        columns = tuple(name for name in schema.names if name in wanted)
    if not all(scan.conditions for scan in scans):
        return ScanRequest(columns, UNKNOWN, NO_FILTER)
    typed = _Typed(schema)
    predicate = either(_conjunction(scan.conditions, typed) for scan in scans)
    return ScanRequest(columns, predicate, NOT_UNDERSTOOD if predicate == UNKNOWN else None)


def _conjunction(conditions: tuple[Expr, ...], typed: _Typed) -> Predicate:
    return both(predicate_of(condition, typed) for condition in conditions)


class _Typed:
    """Constants of an analysed plan: they have the type of what they are compared with."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._numbers = {name: number for number, name in enumerate(schema.names)}

    def column(self, expr: Expr) -> pa.Field | None:
        """A column, also one that is widened: every value keeps its place among the others."""
        kind = expr.variant_name()
        if kind == "Column":
            number = self._numbers.get(expr.to_variant().name())
            return None if number is None else self._schema.field(number)
        if kind != "Cast":
            return None
        inner = expr.to_variant().expr()
        column = self.column(inner) if inner.variant_name() == "Column" else None
        target = _CAST.fullmatch(expr.canonical_name())
        return column if column is not None and target and _widens(column.type, target[1]) else None

    def value(self, column: pa.Field, expr: Expr) -> tuple[Any] | None:
        if expr.variant_name() != "Literal":
            return None
        scalar = expr.python_value()
        if not scalar.is_valid:
            return (None,)
        if not _comparable(column.type, scalar.type):
            return None
        try:
            value = scalar.as_py()
            if isinstance(value, dt.datetime) and value.tzinfo is not None:
                value = value.astimezone(dt.UTC)  # Arrow's zones are of whichever library there is
        except (ValueError, OverflowError):  # a moment beyond Python's calendar
            return None
        return (value,)

    def compare(self, column: pa.Field, op: Op, expr: Expr) -> Part:
        value = self.value(column, expr)
        if value is None:
            return UNKNOWN
        return NEVER if value[0] is None else Compare(column.name, op, value[0])


def _widens(kind: pa.DataType, target: str) -> bool:
    if found := _DECIMAL.fullmatch(target):
        precision, scale = int(found[1]), int(found[2])
        return bool(
            pa.types.is_decimal(kind) and scale >= kind.scale and precision - scale >= kind.precision - kind.scale
        )
    wider = _NUMBERS.get(target)
    if wider is None:
        return False
    if pa.types.is_floating(kind):
        return bool(pa.types.is_floating(wider))
    return bool(pa.types.is_signed_integer(kind) and pa.types.is_integer(wider) and wider.bit_width >= kind.bit_width)


def _comparable(column: pa.DataType, constant: pa.DataType) -> bool:
    family = type_of(column).family
    if family is not type_of(constant).family or family in (Family.NESTED, Family.OTHER):
        return False
    # Nanoseconds have no Python value.
    return family is not Family.TIMESTAMP or (constant.unit != "ns" and bool(constant.tz) == bool(column.tz))
