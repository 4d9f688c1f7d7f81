"""Lithify keeps Parquet tables fresh: row-level changes in milliseconds on plain Delta tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lithify.backup.create import BackupReport, create_backup
    from lithify.backup.restore import RestoreReport, remove_backups, restore_backup, verify_backup
    from lithify.client.lake import connect
    from lithify.core.results import (
        CacheStats,
        Commit,
        CompactReport,
        ErasurePlan,
        Executed,
        FoldPlan,
        FoldReport,
        HistoryEntry,
        HotTableStats,
        PartitionStats,
        RecordSetAside,
        RestorePlan,
        Retried,
        SetAside,
        TableExplanation,
        TableStats,
        Tag,
        VacuumReport,
        Verified,
    )
    from lithify.core.snapshot import Snapshot
    from lithify.erasure.erasure import Erasure
    from lithify.erasure.receipt import verify_receipt
    from lithify.errors import (
        Cancelled,
        CommitUnknown,
        ComputeFailed,
        Conflict,
        Corruption,
        Forbidden,
        InvalidRequest,
        LimitExceeded,
        LithifyError,
        NotFound,
        OutOfResources,
        Unavailable,
    )
    from lithify.index.rebuild import IndexBuild, IndexCheck, IndexInspection
    from lithify.lake.datasource import LithifyDataSource
    from lithify.lake.lake import Lake
    from lithify.lake.table import Table
    from lithify.maintenance.plans import CompactPlan
    from lithify.maintenance.reports import CycleReport
    from lithify.pipelines.pipeline import Pipeline
    from lithify.pipelines.reports import PipelinePlan, PipelineReport
    from lithify.settings import Settings
    from lithify.sql.limits import Answer, RunningQuery
    from lithify.write.ingest import IngestReport

__version__ = "0.1.0"

# Imported when first asked for: `lithify --help` should not wait for Arrow, Delta and DataFusion.
_HOMES = {
    "Answer": "sql.limits",
    "BackupReport": "backup.create",
    "CacheStats": "core.results",
    "Cancelled": "errors",
    "Commit": "core.results",
    "CommitUnknown": "errors",
    "CompactPlan": "maintenance.plans",
    "CompactReport": "core.results",
    "ComputeFailed": "errors",
    "Conflict": "errors",
    "Corruption": "errors",
    "CycleReport": "maintenance.reports",
    "Erasure": "erasure.erasure",
    "ErasurePlan": "core.results",
    "Executed": "core.results",
    "FoldPlan": "core.results",
    "FoldReport": "core.results",
    "Forbidden": "errors",
    "HistoryEntry": "core.results",
    "HotTableStats": "core.results",
    "IndexBuild": "index.rebuild",
    "IndexCheck": "index.rebuild",
    "IndexInspection": "index.rebuild",
    "IngestReport": "write.ingest",
    "InvalidRequest": "errors",
    "Lake": "lake.lake",
    "LimitExceeded": "errors",
    "LithifyDataSource": "lake.datasource",
    "LithifyError": "errors",
    "NotFound": "errors",
    "OutOfResources": "errors",
    "PartitionStats": "core.results",
    "Pipeline": "pipelines.pipeline",
    "PipelinePlan": "pipelines.reports",
    "PipelineReport": "pipelines.reports",
    "RunningQuery": "sql.limits",
    "Settings": "settings",
    "RecordSetAside": "core.results",
    "RestorePlan": "core.results",
    "RestoreReport": "backup.restore",
    "Retried": "core.results",
    "SetAside": "core.results",
    "Snapshot": "core.snapshot",
    "Table": "lake.table",
    "TableExplanation": "core.results",
    "TableStats": "core.results",
    "Unavailable": "errors",
    "Tag": "core.results",
    "VacuumReport": "core.results",
    "Verified": "core.results",
    "connect": "client.lake",
    "create_backup": "backup.create",
    "remove_backups": "backup.restore",
    "restore_backup": "backup.restore",
    "verify_backup": "backup.restore",
    "verify_receipt": "erasure.receipt",
}

__all__ = [
    "Answer",
    "BackupReport",
    "CacheStats",
    "Cancelled",
    "Commit",
    "CommitUnknown",
    "CompactPlan",
    "CompactReport",
    "ComputeFailed",
    "Conflict",
    "Corruption",
    "CycleReport",
    "Erasure",
    "ErasurePlan",
    "Executed",
    "FoldPlan",
    "FoldReport",
    "Forbidden",
    "HistoryEntry",
    "HotTableStats",
    "IndexBuild",
    "IndexCheck",
    "IndexInspection",
    "IngestReport",
    "InvalidRequest",
    "Lake",
    "LimitExceeded",
    "LithifyDataSource",
    "LithifyError",
    "NotFound",
    "OutOfResources",
    "PartitionStats",
    "Pipeline",
    "PipelinePlan",
    "PipelineReport",
    "RecordSetAside",
    "RestorePlan",
    "RestoreReport",
    "Retried",
    "RunningQuery",
    "SetAside",
    "Settings",
    "Snapshot",
    "Table",
    "TableExplanation",
    "TableStats",
    "Tag",
    "Unavailable",
    "VacuumReport",
    "Verified",
    "connect",
    "create_backup",
    "remove_backups",
    "restore_backup",
    "verify_backup",
    "verify_receipt",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lithify' has no attribute {name!r}")
    try:
        return getattr(import_module(f"lithify.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from lithify.core.optional import missing

        raise missing((error.name or "").partition(".")[0]) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
