"""Deletes that say when, on Spark: the same merge and the same feed as on the serving engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lithify import Lake, Settings

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])


def line(id: int, at: int | None, v: str = "") -> dict[str, Any]:
    return {"id": id, "at": at, "v": v}


@pytest.mark.parametrize("limit", [20_000_000, 1], ids=["overlay", "distributed"])
def test_spark_keeps_late_events_out(spark: SparkSession, tmp_path: Path, limit: int) -> None:
    with Lake(tmp_path / "lake", settings=Settings(resolve_rows_max=limit, feed_rows_max=0), spark=spark) as lake:
        table = lake.create_table("a.t", COLUMNS, key="id", order_by="at")
        table.upsert([line(1, 3), line(2, 3), line(3, 9)])
        table.delete([1, 2, 3], at=5)
        table.fold()
        since = table.snapshot().seq
        table.upsert([line(1, 4, "late"), line(2, 5, "same time, later"), line(4, None, "new")])
        table.delete([4, 3], at=6)
        table.update([{"id": 2, "at": 4, "v": "late"}])
        expected = table.to_arrow().to_pylist()
        assert sorted(row["id"] for row in expected) == [2, 3]
        found = [row.asDict() for row in table.to_spark().collect()]
        assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
        told = [row.asDict() for row in table.feed_to_spark(since=since).orderBy("_seq", "id").collect()]
        assert told == table.feed(since=since).to_pylist()
        assert [(row["id"], row["_kind"]) for row in told] == [(2, "insert"), (4, "insert"), (4, "delete")]
