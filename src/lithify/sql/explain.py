"""What a query would read of each table, and why, as one value per table for people and programs."""

from __future__ import annotations

from dataclasses import dataclass

from lithify.core.html import Shown
from lithify.core.read_plan import PruningReport
from lithify.sql.engine import TableUse
from lithify.sql.pushdown import NOT_READ


@dataclass(frozen=True)
class Condition:
    """A condition of the query on one table, and how many row groups it rules out by its bounds alone."""

    text: str
    groups_ruled_out: int


@dataclass(frozen=True)
class TableExplanation(Shown):
    """Files, row groups and bytes are those of base, and of pending change files that stand beside it as they are
    (`pending_beside`); bytes are of whole row groups, so a query of few columns reads less. A file that the sidecar
    does not know (`files_unknown`) counts as one row group.

    `otherwise_ruled_out`: row groups that no condition rules out by bounds, but bloom filters or partition values do,
    at least. `note`: why nothing could be ruled out, or that the optimised query does not read the table at all.
    `from_sidecar`: the answer stands in the sidecar, and no file is read. `hot`: the rows are in memory, and no file is
    read for them. `resolved`: whether pending changes are
    resolved and kept already; None: they are too many, and are merged while base is read.
    """

    table: str
    seq: int
    changes_version: int
    base_version: int
    files_total: int
    files_read: int
    groups_total: int
    groups_read: int
    bytes_total: int
    bytes_read: int
    files_unknown: int
    conditions: tuple[Condition, ...]
    otherwise_ruled_out: int
    note: str | None
    pending_files: int
    pending_rows: int
    pending_beside: int
    resolved: bool | None
    from_sidecar: bool
    hot: bool


def explanation_of(use: TableUse, *, resolved: bool) -> TableExplanation:
    """`resolved`: before anybody looked."""
    plan, snapshot = use.plan, use.plan.snapshot
    report = plan.pruning or _unpruned(len(plan.clean) + len(plan.touched), snapshot.base_bytes)
    conditions = tuple(Condition(text, count) for text, count in report.reasons)
    ruled_out = report.groups_total - report.groups_read
    unread = use.from_summary or use.hot or use.note == NOT_READ
    return TableExplanation(
        table=snapshot.table,
        seq=snapshot.seq,
        changes_version=snapshot.changes_version,
        base_version=snapshot.base_version,
        files_total=report.files_total,
        files_read=0 if unread else report.files_read,
        groups_total=report.groups_total,
        groups_read=0 if unread else report.groups_read,
        bytes_total=report.bytes_total,
        bytes_read=0 if unread else report.bytes_read,
        files_unknown=report.files_unknown,
        conditions=conditions,
        otherwise_ruled_out=max(0, ruled_out - sum(condition.groups_ruled_out for condition in conditions)),
        note=None if use.from_summary else use.note,
        pending_files=len(snapshot.changes),
        pending_rows=snapshot.pending_rows,
        pending_beside=report.files_total - len(snapshot.base),
        resolved=None if plan.overlay is None else resolved,
        from_sidecar=use.from_summary,
        hot=use.hot and not use.from_summary,
    )


def _unpruned(files: int, size_bytes: int) -> PruningReport:
    return PruningReport(files, files, files, files, size_bytes, size_bytes, files_unknown=files)
