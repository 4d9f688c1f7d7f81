"""Spark DataFrames as writes."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from lithify import InvalidRequest, Lake, LimitExceeded, Settings
from lithify.spark import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.decimal128(10, 2))])


def numbered(spark: SparkSession, rows: int, start: int = 0) -> DataFrame:
    return spark.range(start, start + rows, 1, 4).select(
        "id",
        F.concat(F.lit("n"), F.col("id").cast("string")).alias("name"),
        (F.col("id") / 4).cast("decimal(10,2)").alias("amount"),
    )


def nothing_left_behind(lake: Lake, table: str) -> bool:
    namespace, name = table.split(".")
    folder = lake.path / namespace / name / "changes"
    return not list((lake.path / "_lithify" / "jobs").iterdir()) and not list(folder.glob("bulk-*"))


def test_a_frame_is_one_commit_with_one_seq(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")

    commit = table.upsert(numbered(spark, 10_000))

    assert (commit.seq, commit.rows) == (1, 10_000)
    assert lake.sql("select count(*) n, count(distinct id) d, max(name) m from s.t").to_pylist() == [
        {"n": 10_000, "d": 10_000, "m": "n9999"}
    ]


def test_a_first_load_folds_without_writing_a_byte(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 5_000))

    report = table.fold()

    assert report.bytes_written == 0
    assert report.files_linked > 0
    assert (report.inserted, report.final_rows) == (5_000, 5_000)
    assert table.to_arrow().num_rows == 5_000


def test_a_second_frame_replaces_rows_with_the_same_key(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 1_000))
    table.upsert(numbered(spark, 1_000, start=500).withColumn("name", F.lit("new")))

    counted = lake.sql("select name = 'new' is_new, count(*) n from s.t group by 1 order by 1").to_pylist()

    assert counted == [{"is_new": False, "n": 500}, {"is_new": True, "n": 1_000}]


def test_duplicate_keys_are_refused_with_examples(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    frame = numbered(spark, 100)

    with pytest.raises(InvalidRequest, match=r"more than one row for the same key, e\.g\. 40.*order_by"):
        table.upsert(frame.union(frame.where("id in (40, 41)")))

    assert table.snapshot().seq == 0
    assert nothing_left_behind(lake, "s.t")


def test_with_order_by_the_highest_of_duplicates_wins(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id", order_by="v")
    rows = [(i % 50, (i * 7) % 100) for i in range(200)] + [(0, None)]

    table.upsert(spark.createDataFrame(rows, "id long, v long").repartition(5))

    expected: dict[int, int] = {}
    for key, value in rows:
        expected[key] = max(expected.get(key, -1), value if value is not None else -1)
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == expected


def test_the_first_and_last_moments_are_keys_wherever_the_driver_is(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("s.t", pa.schema([("at", pa.timestamp("us", "UTC"))]), key="at")
    moments = [moment.replace(tzinfo=dt.UTC) for moment in (dt.datetime.min, dt.datetime.max)]
    frame = spark.createDataFrame(pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))}))
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()

        assert table.upsert(frame).rows == 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_text_is_compared_as_what_it_stands_for(lake: Lake, spark: SparkSession) -> None:
    """Two spellings of a key are one key, and 10 is above 9."""
    number = pa.decimal128(10, 2)
    table = lake.create_table(
        "s.t", pa.schema([("k", number), ("at", number), ("v", pa.int64())]), key="k", order_by="at"
    )
    rows = [(str(k), "10", k) for k in range(200)] + [(f"{k}.00", "9", -1) for k in range(200)]

    table.upsert(spark.createDataFrame(rows, "k string, at string, v long").repartition(4))

    assert sorted(table.to_arrow().column("v").to_pylist()) == list(range(200))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.withColumn("extra", F.lit(1)), "column 'extra' is not in the table"),
        (lambda f: f.withColumn("amount", F.lit("x")), "column 'amount': string does not fit"),
        (lambda f: f.withColumn("amount", F.lit(1.239).cast("decimal(10,3)")), "column 'amount'"),
        (lambda f: f.withColumn("id", F.when(F.col("id") != 3, F.col("id"))), "'id' is null"),
        (lambda f: f.drop("id"), "column 'id' is missing"),
        (lambda f: f.limit(0), "empty"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_changes(
    lake: Lake, spark: SparkSession, change: Any, message: str
) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert([{"id": 1, "name": "before"}], missing="null")

    with pytest.raises(InvalidRequest, match=message):
        table.upsert(change(numbered(spark, 10)))

    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "before", "amount": None}]
    assert nothing_left_behind(lake, "s.t")


def test_an_overflowing_integer_is_refused(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int32())]), key="id")

    with pytest.raises(InvalidRequest, match="column 'id'"):
        table.upsert(spark.createDataFrame([(2**40,)], "id long"))


def test_the_same_batch_id_writes_once(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", SCHEMA)

    first = table.append(numbered(spark, 10), batch_id="load-1")
    again = table.append(numbered(spark, 10), batch_id="load-1")

    assert (again.seq, again.rows, again.replayed) == (first.seq, 10, True)
    assert table.to_arrow().num_rows == 10


def test_a_time_table_is_laid_out_by_day_and_links(lake: Lake, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = lake.create_table("s.t", schema, key="id", time="at")
    start = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp())
    table.upsert(spark.range(96).select("id", F.timestamp_seconds(F.lit(start) + F.col("id") * 3600).alias("at")))

    report = table.fold()

    assert report.bytes_written == 0
    days = {str(file.partition["_day"]) for file in table.snapshot().base}
    assert days == {"2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"}
    assert all(f"_day={file.partition['_day']}" in file.path for file in table.snapshot().base)


def test_a_spark_schema_creates_the_same_table(lake: Lake, spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, "a", dt.datetime(2026, 1, 1), [1, 2])], "id int, s string, at timestamp, l array<int>"
    )

    table = lake.create_table("s.t", frame.schema, key="id")
    table.upsert(frame)

    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.to_arrow().to_pylist()[0]["l"] == [1, 2]


def test_files_of_doubled_task_attempts_are_removed(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    table.upsert(numbered(spark, 100))

    folder = lake.path / "s" / "t" / "changes"
    on_disk = {f"{path.parent.name}/{path.name}" for path in folder.glob("bulk-*/*")}

    assert on_disk == {file.path for file in table.snapshot().changes}


def spans(lake: Lake, name: str) -> list[tuple[int, int]]:
    """The first and last key of each change file."""
    namespace, table = name.split(".")
    files = (lake.path / namespace / table / "changes").glob("bulk-*/*.parquet")
    ids = [pq.read_table(file, columns=["id"]).column(0).to_pylist() for file in files]
    assert all(found == sorted(set(found)) for found in ids)
    return sorted((found[0], found[-1]) for found in ids)


def test_partitions_that_lie_in_order_become_files_as_they_are(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "DIRECT_ROWS_MIN", 1)
    table = lake.create_table("s.t", SCHEMA, key="id")

    table.upsert(numbered(spark, 4_000))

    assert spans(lake, "s.t") == [(0, 999), (1_000, 1_999), (2_000, 2_999), (3_000, 3_999)]
    assert lake.sql("select count(*) n from s.t").to_pylist() == [{"n": 4_000}]


@pytest.mark.parametrize(
    ("what", "key"),
    [
        ("disjoint ranges, each in no order", "id DIV 1000 * 1000 + (id % 1000) * 7 % 1000"),
        ("each in order, ranges that overlap", "id % 1000 * 4 + id DIV 1000"),
        ("in order but for two rows", "CASE id WHEN 999 THEN 3000 WHEN 3000 THEN 999 ELSE id END"),
    ],
)
def test_rows_in_another_order_are_sorted_first(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, what: str, key: str
) -> None:
    monkeypatch.setattr(write, "DIRECT_ROWS_MIN", 1)
    table = lake.create_table("s.t", SCHEMA, key="id")

    table.upsert(numbered(spark, 4_000).withColumn("id", F.expr(key)))

    found = spans(lake, "s.t")
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    assert sorted(table.to_arrow(columns=["id"]).column(0).to_pylist()) == list(range(4_000))


def test_a_look_that_turns_out_wrong_costs_time_and_no_row(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_lies_in_order", lambda frame, key: True)
    table = lake.create_table("s.t", SCHEMA, key="id")

    table.upsert(numbered(spark, 4_000).withColumn("id", F.expr("id % 1000 * 4 + id DIV 1000")))
    table.upsert(numbered(spark, 4_000).withColumn("id", 4_000 - F.col("id")))
    with pytest.raises(InvalidRequest, match="more than one row for the same key"):
        table.upsert(numbered(spark, 4_000).withColumn("id", F.expr("id DIV 2")))

    assert sorted(table.to_arrow(columns=["id"]).column(0).to_pylist()) == list(range(4_001))
    folder = lake.path / "s" / "t" / "changes"
    named = {file.path for file in table.snapshot().changes}
    assert {str(file.relative_to(folder)) for file in folder.glob("bulk-*/*.parquet")} == named


@pytest.mark.parametrize("order_by", [None, "at"])
@pytest.mark.parametrize("rows_max", [1_000_000, 1], ids=["fetched", "written by Spark"])
def test_a_frame_updates_its_columns_and_leaves_the_others(
    tmp_path: Path, spark: SparkSession, rows_max: int, order_by: str | None
) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string()), ("w", pa.int64())])
    with Lake(tmp_path / "lake", spark, settings=Settings(stream_rows_max=rows_max)) as lake:
        table = lake.create_table("a.u", columns, key="id", order_by=order_by)
        table.upsert([{"id": id, "at": 5, "v": "old", "w": id} for id in range(300)])
        table.fold()
        frame = spark.range(0, 400, 1, 3).selectExpr("id", "id % 11 AS at", "concat('new ', id) AS v")
        commit = table.update(frame)
        assert commit.rows == 400

        late = {id for id in range(300) if order_by and id % 11 < 5}
        expected = {
            id: (5, "old", id) if id in late else (id % 11, f"new {id}", id if id < 300 else None) for id in range(400)
        }
        for _ in range(2):
            found = table.to_spark(spark).toArrow().to_pylist()
            assert {row["id"]: (row["at"], row["v"], row["w"]) for row in found} == expected
            assert len(found) == 400
            table.fold()
        if rows_max == 1:
            with pytest.raises(LimitExceeded, match="missing='skip' looks each key up here"):
                table.update(frame, missing="skip")
