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


@pytest.mark.parametrize("limit", [20_000_000, 1], ids=["overlay", "distributed"])
def test_spark_breaks_ties_by_the_next_column(spark: SparkSession, tmp_path: Path, limit: int) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("lsn", pa.string()), ("v", pa.string())])

    def tied(id: int, at: int | None, lsn: str | None, v: str) -> dict[str, Any]:
        return {"id": id, "at": at, "lsn": lsn, "v": v}

    with Lake(tmp_path / "lake", settings=Settings(resolve_rows_max=limit, feed_rows_max=0), spark=spark) as lake:
        table = lake.create_table("a.t", columns, key="id", order_by=["at", "lsn"])
        table.upsert([tied(n, 5, "b", "first") for n in range(6)])
        table.delete([4, 5], at=(5, "c"))
        table.fold()
        since = table.snapshot().seq
        table.upsert(
            [tied(0, 5, "a", "late"), tied(1, 5, "b", "same"), tied(2, 5, None, "late"), tied(3, 6, None, "new")]
        )
        table.upsert([tied(4, 5, "b", "late"), tied(5, 5, "d", "new")])
        table.delete([3], at=(6, ""))
        for partial in (False, True):
            if partial:
                table.update([{"id": n, "at": 5, "lsn": lsn, "v": "updated"} for n, lsn in ((0, "a"), (1, "b"))])
            expected = table.to_arrow().to_pylist()
            assert {row["id"]: row["v"] for row in expected} == {
                **{0: "first", 1: "updated" if partial else "same", 2: "first", 5: "new"}
            }
            found = [row.asDict() for row in table.to_spark().collect()]
            assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
            told = [row.asDict() for row in table.feed_to_spark(since=since).orderBy("_seq", "id").collect()]
            assert told == table.feed(since=since).to_pylist()
        rows = [*[tied(7, 1, "a", "x")] * 2, tied(7, 1, "b", "y"), tied(7, 0, "z", "x")]
        table.upsert(spark.createDataFrame(pa.Table.from_pylist(rows, schema=columns).to_pandas()).repartition(3))
        assert table.get(7)["v"] == "y"
