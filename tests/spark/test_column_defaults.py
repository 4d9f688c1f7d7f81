"""Rows that Spark brings without a column that has a default: frames, files, streams of events, statements and the data
source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lithify import InvalidRequest, Lake, Table

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string()), pa.field("n", pa.int32(), nullable=False)])


@pytest.fixture
def lake(folder: Path, spark: SparkSession) -> Iterator[Lake]:
    with Lake(folder / "lake", spark=spark) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("s.t", COLUMNS, key="id", defaults={"n": 7})


def found(table: Table) -> list[tuple[int, str | None, int]]:
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert sorted(map(tuple, table.to_spark().collect())) == [tuple(row.values()) for row in rows]
    return [tuple(row.values()) for row in rows]  # type: ignore[misc]


def test_frames_statements_and_the_data_source(lake: Lake, table: Table, spark: SparkSession, folder: Path) -> None:
    frame = spark.createDataFrame([(1, "a")], "id long, v string")
    table.upsert(frame)
    lake.spark_sql("INSERT INTO s.t (id, v) SELECT id + 1, v FROM df", df=frame)
    source = frame.selectExpr("id + 2 AS id", "v").write.format("lithify")
    source.option("lake", str(folder / "lake")).option("table", "s.t").mode("append").save()
    log = lake.create_table("s.log", COLUMNS, defaults={"n": 8})
    log.append(frame)

    assert found(table) == [(1, "a", 7), (2, "a", 7), (3, "a", 7)]
    assert found(log) == [(1, "a", 8)]


def test_files(lake: Lake, table: Table, folder: Path) -> None:
    inbox = folder / "inbox"
    inbox.mkdir()
    (inbox / "a.csv").write_text("id,v\n1,a\n")
    (inbox / "b.csv").write_text("id,v,n\n2,b,5\n")
    (inbox / "c.jsonl").write_text('{"id": 3, "v": "c"}\n{"id": 4, "v": "d", "n": 6}\n')
    lake.ingest("s.t", str(inbox / "*.csv"))
    lake.ingest("s.t", str(inbox / "*.jsonl"))
    pq.write_table(pa.table({"id": [5], "v": ["e"]}), inbox / "d.parquet")
    lake.ingest("s.t", str(inbox / "d.parquet"))
    assert found(table) == [(1, "a", 7), (2, "b", 5), (3, "c", 7), (4, "d", 6), (5, "e", 7)]

    pq.write_table(pa.table({"id": [6], "v": ["f"], "n": pa.array([9], pa.int32())}), inbox / "e.parquet")
    with pytest.raises(InvalidRequest, match="lacks the column 'n', which other files have"):
        lake.ingest("s.t", str(inbox / "*.parquet"))


@pytest.mark.parametrize("rows_max", [None, 0])
def test_events_of_a_stream(table: Table, spark: SparkSession, rows_max: int | None) -> None:
    table.upsert([{"id": 1, "v": "x", "n": 1}])
    events = spark.createDataFrame([(1, "a", "d"), (2, "b", "u"), (1, "c", "u")], "id long, v string, op string")
    options = {} if rows_max is None else {"rows_max": rows_max}
    table.stream_writer("upsert", op_column="op", name="q", **options)(events.coalesce(1), 0)
    assert found(table) == [(1, "c", 7), (2, "b", 7)]
