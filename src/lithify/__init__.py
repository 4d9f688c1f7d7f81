"""Lithify keeps Parquet tables fresh: row-level changes in milliseconds on plain Delta tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lithify.cache.hot_tables import CacheStats, HotTableStats
    from lithify.client.lake import connect
    from lithify.core.snapshot import Snapshot
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
    from lithify.index.partitions import PartitionStats
    from lithify.index.rebuild import IndexBuild, IndexCheck, IndexInspection
    from lithify.lake.datasource import LithifyDataSource
    from lithify.lake.lake import Lake
    from lithify.lake.table import Table
    from lithify.maintenance.compact import CompactReport
    from lithify.maintenance.fold_report import FoldPlan, FoldReport
    from lithify.maintenance.plans import CompactPlan
    from lithify.maintenance.reports import CycleReport
    from lithify.maintenance.vacuum import VacuumReport
    from lithify.pipelines.pipeline import Pipeline
    from lithify.pipelines.reports import PipelinePlan, PipelineReport
    from lithify.read.history import HistoryEntry, TableStats
    from lithify.settings import Settings
    from lithify.sql.explain import TableExplanation
    from lithify.sql.limits import Answer, RunningQuery
    from lithify.tables.tags import Tag
    from lithify.write.ingest import IngestReport
    from lithify.write.small_writes import Commit

__version__ = "0.1.0"

# Imported when first asked for: `lithify --help` should not wait for Arrow, Delta and DataFusion.
_HOMES = {
    "Answer": "sql.limits",
    "CacheStats": "cache.hot_tables",
    "Cancelled": "errors",
    "Commit": "write.small_writes",
    "CommitUnknown": "errors",
    "CompactPlan": "maintenance.plans",
    "CompactReport": "maintenance.compact",
    "ComputeFailed": "errors",
    "Conflict": "errors",
    "Corruption": "errors",
    "CycleReport": "maintenance.reports",
    "FoldPlan": "maintenance.fold_report",
    "FoldReport": "maintenance.fold_report",
    "Forbidden": "errors",
    "HistoryEntry": "read.history",
    "HotTableStats": "cache.hot_tables",
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
    "PartitionStats": "index.partitions",
    "Pipeline": "pipelines.pipeline",
    "PipelinePlan": "pipelines.reports",
    "PipelineReport": "pipelines.reports",
    "RunningQuery": "sql.limits",
    "Settings": "settings",
    "Snapshot": "core.snapshot",
    "Table": "lake.table",
    "TableExplanation": "sql.explain",
    "TableStats": "read.history",
    "Unavailable": "errors",
    "Tag": "tables.tags",
    "VacuumReport": "maintenance.vacuum",
    "connect": "client.lake",
}

__all__ = [
    "Answer",
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
    "RunningQuery",
    "Settings",
    "Snapshot",
    "Table",
    "TableExplanation",
    "TableStats",
    "Tag",
    "Unavailable",
    "VacuumReport",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lithify' has no attribute {name!r}")
    return getattr(import_module(f"lithify.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
