"""Lithify keeps Parquet tables fresh: row-level changes in milliseconds on plain Delta tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lithify.app.explain import TableExplanation
    from lithify.app.lake import Lake
    from lithify.app.pipelines import Pipeline
    from lithify.app.source import LithifyDataSource
    from lithify.client.lake import connect
    from lithify.engine.compact import CompactReport
    from lithify.engine.fold_report import FoldPlan, FoldReport
    from lithify.engine.history import HistoryEntry, TableStats
    from lithify.engine.hot import CacheStats, HotTableStats
    from lithify.engine.index_build import IndexBuild, IndexCheck, IndexInspection
    from lithify.engine.ingest import IngestReport
    from lithify.engine.partitions import PartitionStats
    from lithify.engine.table import Table
    from lithify.engine.tags import Tag
    from lithify.engine.vacuum import VacuumReport
    from lithify.engine.writer import Commit
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
    from lithify.model.cycles import CycleReport
    from lithify.model.pipeline_reports import PipelinePlan, PipelineReport
    from lithify.model.snapshot import Snapshot
    from lithify.model.upkeep import CompactPlan
    from lithify.serving.limits import Answer, RunningQuery
    from lithify.settings import Settings

__version__ = "0.1.0"

# Imported when first asked for: `lithify --help` should not wait for Arrow, Delta and DataFusion.
_HOMES = {
    "Answer": "serving.limits",
    "CacheStats": "engine.hot",
    "Cancelled": "errors",
    "Commit": "engine.writer",
    "CommitUnknown": "errors",
    "CompactPlan": "model.upkeep",
    "CompactReport": "engine.compact",
    "ComputeFailed": "errors",
    "Conflict": "errors",
    "Corruption": "errors",
    "CycleReport": "model.cycles",
    "FoldPlan": "engine.fold_report",
    "FoldReport": "engine.fold_report",
    "Forbidden": "errors",
    "HistoryEntry": "engine.history",
    "HotTableStats": "engine.hot",
    "IndexBuild": "engine.index_build",
    "IndexCheck": "engine.index_build",
    "IndexInspection": "engine.index_build",
    "IngestReport": "engine.ingest",
    "InvalidRequest": "errors",
    "Lake": "app.lake",
    "LimitExceeded": "errors",
    "LithifyDataSource": "app.source",
    "LithifyError": "errors",
    "NotFound": "errors",
    "OutOfResources": "errors",
    "PartitionStats": "engine.partitions",
    "Pipeline": "app.pipelines",
    "PipelinePlan": "model.pipeline_reports",
    "PipelineReport": "model.pipeline_reports",
    "RunningQuery": "serving.limits",
    "Settings": "settings",
    "Snapshot": "model.snapshot",
    "Table": "engine.table",
    "TableExplanation": "app.explain",
    "TableStats": "engine.history",
    "Unavailable": "errors",
    "Tag": "engine.tags",
    "VacuumReport": "engine.vacuum",
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
