"""One snapshot of a table as a query sees it: which files are left by a predicate, and what is known without reading.

With an overlay, every contest between a change and a row of base is decided before any filter, so base may be pruned by
whatever the query asks. Where the engine merges changes itself and `order_by` lets a row of base beat a change, base is
pruned only by what is asked of the key: another condition could rule out the winner and bring its loser back. Changes
are never pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from lithify.cache.hot_rows import HotRows
from lithify.core.ops import Op
from lithify.core.predicates import Predicate, both, columns_of, conjuncts
from lithify.core.read_plan import PruningReport, ReadPlan, Source
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.errors import Corruption
from lithify.index.lookup import Coverage, Flags, Reasons, Selection
from lithify.index.stats import ABSENT, EXACT, NULLS_KNOWN, ColumnStats, Kind, value_of, whole_value_of

Answer = TypeVar("Answer")


def usable(plan: ReadPlan, predicate: Predicate | None) -> Predicate | None:
    """The part of a predicate that base may be pruned by. Where a base row still decides what a change comes to, it has
    to be read even if it does not fit itself.
    """
    decides = bool(plan.schema.order_by) or any(change.op is Op.UPDATE for change in plan.changes)
    if predicate is None or plan.overlay is not None or not decides:
        return predicate
    key = set(plan.schema.key)
    return both(part for part in conjuncts(predicate) if columns_of(part) <= key)


def pruned(plan: ReadPlan, selections: Iterable[Selection]) -> ReadPlan:
    """A plan of the files that are left."""
    touched_before = {source.path for source in plan.touched}
    clean: list[Source] = []
    touched: list[Source] = []
    reports = []
    for selection in selections:
        reports.append(selection.report)
        for source in selection.sources:
            (touched if source.path in touched_before else clean).append(source)
    return replace(plan, clean=tuple(clean), touched=tuple(touched), pruning=_together(reports))


def _together(reports: list[PruningReport]) -> PruningReport:
    reports = [report for report in reports if report.files_total] or reports[:1]
    if len(reports) == 1:
        return reports[0]
    return PruningReport(
        sum(report.files_total for report in reports),
        sum(report.files_read for report in reports),
        sum(report.groups_total for report in reports),
        sum(report.groups_read for report in reports),
        sum(report.bytes_total for report in reports),
        sum(report.bytes_read for report in reports),
        sum(report.files_unknown for report in reports),
        Reasons(lambda: _reasons(reports)),
    )


def _reasons(reports: list[PruningReport]) -> tuple[tuple[str, int], ...]:
    ruled_out: dict[str, int] = {}
    for report in reports:
        for text, count in report.reasons:
            ruled_out[text] = ruled_out.get(text, 0) + count
    return tuple(ruled_out.items())


@dataclass(frozen=True)
class SnapshotPlanner:
    """`PlannedTable`, made by a reader."""

    snapshot: Snapshot
    plan_of: Callable[[Snapshot, Predicate | None, Sequence[str] | None], ReadPlan]
    coverage_of: Callable[[Snapshot], Coverage]
    set_aside: Callable[[Snapshot, Corruption], None]
    hot_rows: Callable[[Snapshot, Sequence[str] | None], HotRows | None]
    want: Callable[[Snapshot, Sequence[str] | None], None]
    fetch_of: Callable[[Snapshot], None]
    folders: tuple[str, ...]

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    def fetch(self) -> None:
        self.fetch_of(self.snapshot)

    def plan(self, predicate: Predicate | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        return self.plan_of(self.snapshot, predicate, columns)

    def hot(self, columns: Sequence[str] | None) -> HotRows | None:
        return self.hot_rows(self.snapshot, columns)

    def want_hot(self, columns: Sequence[str] | None) -> None:
        self.want(self.snapshot, columns)

    def summary(self) -> IndexSummary | None:
        if self.snapshot.changes:
            return None
        try:
            coverage = self.coverage_of(self.snapshot)
            summary = IndexSummary(coverage, self._damaged) if coverage.complete else None
            return summary if summary is not None and self._shows_all(summary) else None
        except Corruption as error:
            self._damaged(error)
            return None

    def _shows_all(self, summary: IndexSummary) -> bool:
        """Whether no row has expired."""
        cutoff = self.snapshot.cutoff
        if cutoff is None:
            return True
        bounds = summary.bounds(cutoff.column)
        return bounds is not None and (bounds[0] is None or bool(bounds[0] > cutoff.scalar.as_py()))

    def _damaged(self, error: Corruption) -> None:
        self.set_aside(self.snapshot, error)


class IndexSummary:
    """`Summary` of a snapshot whose files are all known."""

    def __init__(self, coverage: Coverage, damaged: Callable[[Corruption], None]) -> None:
        self._coverage, self._damaged = coverage, damaged
        self.rows = coverage.rows()

    def nulls(self, column: str) -> int | None:
        return self._ask(self._nulls, column)

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        return self._ask(self._bounds, column)

    def _ask(self, question: Callable[[str], Answer | None], column: str) -> Answer | None:
        try:
            return question(column)
        except Corruption as error:
            self._damaged(error)
            return None

    def _nulls(self, column: str) -> int | None:
        parts = self._parts(column)
        if parts is None:
            return None
        total = 0
        for inside, stats in parts:
            if not _all_have(stats.flags[inside], NULLS_KNOWN):
                return None
            total += int(stats.nulls[inside].sum())
        return total

    def _bounds(self, column: str) -> tuple[Any, Any] | None:
        parts = self._parts(column)
        if parts is None:
            return None
        lows, highs = [], []
        for inside, stats in parts:
            if stats.kind is Kind.FLOAT:
                return None
            known = (stats.flags & NULLS_KNOWN) != 0
            filled = np.flatnonzero(inside & ~(known & (stats.nulls == stats.rows)))
            if not _all_have(stats.flags[filled], EXACT):
                return None
            if len(filled):
                try:
                    lows.append(_outermost(stats, filled, lowest=True))
                    highs.append(_outermost(stats, filled, lowest=False))
                except (OverflowError, ValueError):  # beyond Python's calendar, or no text
                    return None
        return (min(lows), max(highs)) if lows else (None, None)

    def _parts(self, column: str) -> list[tuple[Flags, ColumnStats]] | None:
        """None where a file may hold something else in this column than the index says."""
        if column in self._coverage.files.constant_names:
            return None
        found = []
        for inside, stats in self._coverage.stats_parts(column):
            if stats is None or bool((stats.flags[inside] & ABSENT).any()):
                return None
            found.append((inside, stats))
        return found


def _all_have(flags: np.ndarray, wanted: int) -> bool:
    return bool(((flags & wanted) == wanted).all())


def _outermost(stats: ColumnStats, groups: np.ndarray, *, lowest: bool) -> Any:
    keys = (stats.low if lowest else stats.high)[groups]
    found = keys.min() if lowest else keys.max()
    if not stats.kind.keyed_by_bytes:
        return value_of(stats, int(found))
    at = groups[keys == found]
    if lowest:
        return whole_value_of(stats, min(stats.full_low(int(group)) for group in at))
    return whole_value_of(stats, max(stats.full_high(int(group)) for group in at))
