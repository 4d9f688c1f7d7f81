"""DataFrames of few rows are fetched and written as any small write, without the jobs of a write by Spark."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lithify import InvalidRequest, Lake, Settings, Table
from lithify.spark import small_frames
from lithify.spark.small_frames import _Heard, read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", spark=spark) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("s.t", SCHEMA, key="id")


def ranged(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 3).select("id", F.concat(F.lit("v"), F.col("id").cast("string")).alias("v"))


def written_by(table: Table) -> str:
    newest = max(table.snapshot().changes, key=lambda file: file.seq)
    return {"write": "us", "bulk": "Spark"}[newest.path.split("-")[0]]


@pytest.mark.parametrize("kind", ["range", "arrow", "rows", "filtered rows", "file", "aggregate", "union"])
def test_few_rows_are_written_here(table: Table, spark: SparkSession, kind: str, tmp_path: Path) -> None:
    wanted = [{"id": number, "v": f"v{number}"} for number in range(1_000)]
    frame = ranged(spark, 1_000)
    if kind == "arrow":
        frame = spark.createDataFrame(pa.Table.from_pylist(wanted))
    elif kind == "rows":
        frame = spark.createDataFrame([tuple(row.values()) for row in wanted], "id long, v string")
    elif kind == "filtered rows":
        more = [*wanted, {"id": 5_000, "v": "gone"}]
        frame = spark.createDataFrame([tuple(row.values()) for row in more], "id long, v string").where("id < 5000")
    elif kind == "file":
        frame.write.parquet(str(tmp_path / "file"))
        frame = spark.read.parquet(str(tmp_path / "file"))
    elif kind == "aggregate":
        frame = frame.groupBy("id").agg(F.max("v").alias("v"))
    elif kind == "union":
        frame = frame.where("id < 400").unionAll(frame.where("id >= 400"))

    commit = table.upsert(frame)

    assert (commit.rows, written_by(table)) == (1_000, "us")
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == wanted


@pytest.mark.parametrize("kind", ["large", "explode", "python", "many rows"])
def test_what_is_large_or_not_known_is_written_by_spark(
    table: Table, spark: SparkSession, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_frames, "FETCHED_ROWS_MAX", 50)
    frame = ranged(spark, 2_000_000) if kind == "large" else ranged(spark, 10)
    if kind == "explode":
        numbers = F.explode(F.sequence(F.lit(0), F.lit(99))).alias("n")
        frame = spark.range(1).select(numbers).select(F.col("n").cast("long").alias("id"), F.lit("v").alias("v"))
        frame = frame.where(F.rand(1) < 2)
    elif kind == "python":
        frame = frame.mapInArrow(lambda batches: batches, frame.schema)
    elif kind == "many rows":
        frame = spark.createDataFrame([(number, "x") for number in range(51)], "id long, v string")

    commit = table.upsert(frame)

    assert written_by(table) == "Spark"
    assert commit.rows == table.count() == {"large": 2_000_000, "explode": 100, "python": 10, "many rows": 51}[kind]


def test_a_setting_leaves_all_of_them_to_spark(table: Table, lake: Lake, spark: SparkSession) -> None:
    with Lake(lake.path, spark=spark, settings=Settings(local_frame_bytes_max=0)) as other:
        other.table("s.t").upsert(ranged(spark, 10))
    assert written_by(table) == "Spark"


def test_what_spark_would_refuse_is_refused(table: Table, lake: Lake, spark: SparkSession) -> None:
    twice = spark.createDataFrame(pa.table({"id": [2, 1, 2], "v": ["a", "b", "c"]}))
    with pytest.raises(InvalidRequest, match=r"more than one row for the same key, e\.g\. 2"):
        table.upsert(twice)
    with pytest.raises(InvalidRequest, match="'id' is null in row 1"):
        table.upsert(spark.createDataFrame(pa.table({"id": [1, None], "v": ["a", "b"]})))
    with pytest.raises(InvalidRequest, match="lack the column 'v'"):
        table.upsert(spark.range(3))
    with pytest.raises(InvalidRequest, match="column 'id': string does not fit int64"):
        table.upsert(spark.createDataFrame(pa.table({"id": ["x"], "v": ["a"]})))
    with pytest.raises(InvalidRequest, match="empty"):
        table.upsert(ranged(spark, 3).where("id > 5"))
    assert table.snapshot().seq == 0

    keyless = lake.create_table("s.log", SCHEMA)
    assert keyless.append(twice).rows == 3


def test_of_rows_with_an_order_the_newest_counts(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.o", SCHEMA.append(pa.field("at", pa.int64())), key="id", order_by="at")
    table.upsert(spark.createDataFrame(pa.table({"id": [1, 1], "v": ["new", "old"], "at": [2, 1]})))
    assert table.get(1) == {"id": 1, "v": "new", "at": 2}


def test_a_batch_id_is_answered_as_the_first_time(table: Table, spark: SparkSession) -> None:
    first = table.upsert(ranged(spark, 10), batch_id="b")
    again = table.upsert(ranged(spark, 20), batch_id="b")
    assert (again.seq, again.rows, again.replayed) == (first.seq, 10, True)


def test_plans_are_read_as_spark_prints_them() -> None:
    text = (
        "== Optimized Logical Plan ==\n"
        "Project [id#49L], Statistics(sizeInBytes=480.5 MiB)\n"
        "+- Join Inner, (id#49L = id#8L), Statistics(sizeInBytes=518.7 MiB)\n"
        "   :- Filter isnotnull(id#49L), Statistics(sizeInBytes=33.2 KiB)\n"
        "   :  +- Relation [id#49L] parquet, Statistics(sizeInBytes=33.2 KiB)\n"
        "   +- LogicalRDD [id#8L], false, Statistics(sizeInBytes=8.0 EiB)\n"
        "\n== Physical Plan ==\nGenerate x\n"
    )
    assert read_plan(text) == ({"Project", "Join", "Filter", "Relation", "LogicalRDD"}, 480.5 * 2**20)
    assert read_plan("something else") == (set(), None)


def test_what_other_threads_print_is_not_swallowed() -> None:
    usual = io.StringIO()
    heard = _Heard(usual)
    with contextlib.redirect_stdout(heard):
        print("the plan")
        other = threading.Thread(target=print, args=("of another thread",))
        other.start()
        other.join()
        heard.done = True
        print("later")
    assert heard.heard.getvalue() == "the plan\n"
    assert usual.getvalue() == "of another thread\nlater\n"
