"""What users may rely on. A change here is a change of the contract."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lithify
from lithify import Commit, FoldPlan, FoldReport, HistoryEntry, Lake, PartitionStats, Snapshot, Table, TableStats


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_exported_names() -> None:
    assert sorted(lithify.__all__) == [
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
    assert all(hasattr(lithify, name) for name in lithify.__all__)
    assert lithify.__version__


def test_the_lake() -> None:
    assert parameters(Lake) == ["path", "spark", "create", "settings", "store"]
    assert parameters(Lake.create_table)[1:] == [
        "name",
        "schema",
        "key",
        "order_by",
        "time",
        "partition_by",
        "if_not_exists",
        "options",
        "sort_by",
        "expires",
        "merge_rules",
        "order_groups",
        "defaults",
    ]
    assert parameters(Lake.sql)[1:] == ["query", "as_of", "parameters"]
    assert parameters(Lake.execute)[1:] == ["statement", "parameters", "dry_run", "batch_id", "actor", "reason"]
    assert parameters(Lake.query)[1:] == ["query", "as_of", "id", "timeout_s", "rows_max", "memory_bytes_max"]
    assert parameters(Lake.explain)[1:] == ["query", "as_of"]
    assert parameters(Lake.adopt)[1:3] == ["name", "path"]
    assert parameters(Lake.pipeline)[1:] == ["name", "declaration"]
    public = {name for name in dir(Lake) if not name.startswith("_")}
    assert public >= {"create_table", "table", "tables", "drop_table", "adopt", "sql", "spark", "close"}
    assert hasattr(Lake, "__enter__")


def test_connecting() -> None:
    assert parameters(lithify.connect) == ["address", "token", "timeout_s", "verify"]


def test_the_table() -> None:
    contract = {
        "append": ["data", "batch_id", "actor", "schema_fingerprint", "evolve", "missing"],
        "upsert": ["data", "batch_id", "actor", "schema_fingerprint", "if_changed", "evolve", "missing"],
        "replace": ["data", "batch_id", "actor", "schema_fingerprint", "missing"],
        "update": ["data", "batch_id", "missing", "actor", "schema_fingerprint", "if_changed", "evolve"],
        "delete": ["keys", "batch_id", "at", "actor", "reason", "schema_fingerprint"],
        "delete_where": ["condition", "batch_id", "actor", "reason"],
        "restore": ["to", "batch_id", "actor", "reason", "dry_run"],
        "get": ["key"],
        "to_arrow": ["columns", "where", "as_of"],
        "to_spark": ["spark", "where", "as_of", "columns"],
        "changes": ["since"],
        "snapshot": ["as_of"],
        "history": ["limit"],
        "stats": [],
        "partitions": ["as_of"],
        "build_index": ["skip_corrupt", "progress"],
        "rebuild_index": ["skip_corrupt", "progress"],
        "check_index": ["progress"],
        "inspect_index": [],
        "add_column": ["column", "default"],
        "rename_column": ["column", "to"],
        "drop_column": ["column"],
        "alter_column": ["column", "type", "nullable", "after", "first", "default"],
        "set_options": ["values"],
        "fold": ["dry_run"],
        "compact": ["tier", "dry_run", "progress"],
        "optimize": ["by", "dry_run", "progress"],
        "vacuum": ["retain_hours", "dry_run"],
        "pin": ["as_of"],
    }
    for name, expected in contract.items():
        assert parameters(getattr(Table, name))[1:] == expected, name


def test_answers() -> None:
    fields = {kind.__name__: {f.name for f in dataclasses.fields(kind)} for kind in (Commit, FoldPlan, FoldReport)}
    assert fields["Commit"] >= {"table", "seq", "operation", "rows", "upserted", "deleted", "batch_id", "replayed"}
    assert fields["FoldReport"] >= {
        "base_rows",
        "change_rows",
        "inserted",
        "updated",
        "deleted",
        "final_rows",
        "files_read",
        "files_written",
        "bytes_read",
        "bytes_written",
    }
    assert fields["FoldPlan"] >= {"bytes_read", "files_rewritten", "files_linked", "engine"}
    assert {f.name for f in dataclasses.fields(PartitionStats)} == {
        "values",
        "files",
        "rows",
        "size_bytes",
        "time_min",
        "time_max",
    }
    assert {f.name for f in dataclasses.fields(HistoryEntry)} >= {"time", "operation", "seq", "rows", "actor", "reason"}
    assert {f.name for f in dataclasses.fields(TableStats)} >= {"seq", "watermark", "base_rows", "pending_rows"}
    assert {f.name for f in dataclasses.fields(Snapshot)} >= {"seq", "watermark", "changes_version", "base_version"}


def shown_by(one: object) -> list[str]:
    return [name for name in dir(one) if not name.startswith("_")]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", create=True) as lake:
        yield lake


def test_what_a_lake_shows(lake: Lake) -> None:
    assert shown_by(lake) == [
        *("adopt", "cache", "cancel", "cancel_job", "close", "create_table", "drop_table", "ended_jobs"),
        *("erase", "erasure", "erasures"),
        *("execute", "explain", "ingest", "jobs"),
        *(
            "maintain",
            "on_change",
            "past_cycles",
            "path",
            "pipeline",
            "pipeline_runner",
            "pipeline_runs",
            "pipeline_status",
            "pipelines",
            "plan_pipeline",
            "queries",
            "query",
            "running_cycle",
            "spark",
            "spark_sql",
            "sql",
        ),
        *("start_maintenance", "start_pipelines", "start_upkeep", "stats", "table", "table_maintenance"),
        *("table_upkeep", "tables", "trigger_maintenance", "trigger_pipeline", "trigger_upkeep", "upkeep"),
    ]


def test_maintenance_goes_by_its_earlier_names_too() -> None:
    assert (Lake.upkeep, Lake.trigger_upkeep) == (Lake.maintain, Lake.trigger_maintenance)
    assert (Lake.start_upkeep, Lake.table_upkeep) == (Lake.start_maintenance, Lake.table_maintenance)


def test_what_a_table_shows(lake: Lake) -> None:
    table = lake.create_table("shop.orders", pa.schema([("id", pa.int64())]), key="id")

    assert shown_by(table) == [
        *("add_column", "alter_column", "append", "attach", "base_path", "build_index", "changes", "check_index"),
        *("compact", "count", "definition", "delete", "delete_where", "detach", "drop_column", "feed", "feed_to_spark"),
        *("fold", "get", "head", "history", "inspect_index", "latest_changes", "name", "optimize"),
        *("options", "partitions", "pin", "position", "purge_quarantine", "quarantine", "quarantined"),
        *("rebuild_index", "rename_column", "replace", "restore", "retract", "retry_quarantine", "schema"),
        *("set_options", "snapshot", "stats"),
        *(
            "stream_writer",
            "tag",
            "tags",
            "to_arrow",
            "to_pandas",
            "to_polars",
            "to_spark",
            "untag",
            "update",
            "upsert",
        ),
        "vacuum",
    ]
