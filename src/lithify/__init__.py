"""Lithify keeps Parquet tables fresh: row-level changes in milliseconds on plain Delta tables."""

from lithify.app.lake import Lake
from lithify.engine.fold import FoldPlan, FoldReport
from lithify.engine.history import HistoryEntry, TableStats
from lithify.engine.ingest import IngestReport
from lithify.engine.table import Table
from lithify.engine.writer import Commit
from lithify.errors import (
    CommitUnknown,
    ComputeFailed,
    Conflict,
    Corruption,
    InvalidRequest,
    LithifyError,
    NotFound,
    Unavailable,
)
from lithify.model.snapshot import Snapshot
from lithify.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "Commit",
    "CommitUnknown",
    "ComputeFailed",
    "Conflict",
    "Corruption",
    "FoldPlan",
    "FoldReport",
    "HistoryEntry",
    "IngestReport",
    "InvalidRequest",
    "Lake",
    "LithifyError",
    "NotFound",
    "Settings",
    "Snapshot",
    "Table",
    "TableStats",
    "Unavailable",
]
