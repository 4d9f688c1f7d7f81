"""What a query would read of each table, and why, as one value per table for people and programs."""

from __future__ import annotations

from lithify.core.read_plan import PruningReport
from lithify.core.results import Condition, TableExplanation
from lithify.sql.engine import TableUse
from lithify.sql.pushdown import NOT_READ


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
