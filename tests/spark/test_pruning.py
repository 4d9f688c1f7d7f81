"""A condition given to `to_spark` keeps Spark from files that hold no such row, and never from one that does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lithify import Lake, Settings, Table
from lithify.lake.internals import internals
from support.bags import bag
from support.folders import memory_folder
from support.spark_conditions import COLUMNS, Row, conditions, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIRS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", spark=spark) as opened:
        yield opened


def hundreds(lake: Lake, **options: Any) -> Table:
    """Ids 0 to 499, a hundred in each of five files."""
    table = lake.create_table("s.t", PAIRS, key="id", **options)
    for start in range(0, 500, 100):
        table.upsert([{"id": n, "v": f"v{n:03d}"} for n in range(start, start + 100)])
        table.fold()
    assert len(table.snapshot().base) == 5
    return table


def base_files(table: Table, frame: DataFrame) -> set[str]:
    return {name for name in frame.inputFiles() if str(table.base_path) in name}


def ids(frame: DataFrame) -> list[int]:
    return sorted(frame.select("id").toArrow().column("id").to_pylist())


def test_only_files_that_can_hold_a_row_are_listed(lake: Lake, spark: SparkSession) -> None:
    table = hundreds(lake)

    frame = table.to_spark(spark, where="id BETWEEN 150 AND 250 AND v <> 'v200'")

    assert len(base_files(table, frame)) == 2
    assert ids(frame) == [n for n in range(150, 251) if n != 200]


def test_a_condition_that_is_not_understood_lists_every_file(lake: Lake, spark: SparkSession) -> None:
    table = hundreds(lake)

    frame = table.to_spark(spark, where="id % 100 = 7")

    assert len(base_files(table, frame)) == 5
    assert ids(frame) == [7, 107, 207, 307, 407]


def test_where_no_file_is_left_the_frame_is_empty_and_has_the_columns(lake: Lake, spark: SparkSession) -> None:
    table = hundreds(lake)

    frame = table.to_spark(spark, where="id > 1000")

    assert frame.inputFiles() == []
    assert frame.schema == table.to_spark(spark).schema
    assert frame.collect() == []


def test_pending_rows_are_found_where_no_file_is_left(lake: Lake, spark: SparkSession) -> None:
    table = hundreds(lake)
    table.upsert([{"id": 2000, "v": "new"}, {"id": 3000, "v": "other"}])

    assert ids(table.to_spark(spark, where="id > 1000 AND v = 'new'")) == [2000]


def test_pruned_reads_and_whole_reads_of_a_snapshot_do_not_disturb_each_other(lake: Lake, spark: SparkSession) -> None:
    """Text keys: a snapshot that is read often gets the places of its hidden rows, which must be those in all files."""
    table = lake.create_table("s.t", pa.schema([("id", pa.string()), ("v", pa.int64())]), key="id")
    for start in (0, 100, 200):
        table.upsert([{"id": f"k{n:05d}", "v": n} for n in range(start, start + 100)])
        table.fold()
    table.upsert([{"id": f"k{n:05d}", "v": -n} for n in range(0, 300, 7)])
    table.delete([f"k{n:05d}" for n in range(1, 300, 7)])
    whole = bag(table.to_arrow().to_pylist())
    wheres = ("id < 'k00100'", "id >= 'k00250'", "v < 50")
    parts = {where: bag(table.to_arrow(where=where).to_pylist()) for where in wheres}

    for _ in range(4):
        for where, expected in parts.items():
            assert bag(table.to_spark(spark, where=where).toArrow().to_pylist()) == expected
    for _ in range(4):
        assert bag(table.to_spark(spark).toArrow().to_pylist()) == whole
        for where, expected in parts.items():
            assert bag(table.to_spark(spark, where=where).toArrow().to_pylist()) == expected


@pytest.mark.parametrize("resolve_rows_max", [20_000_000, 1])
def test_with_order_by_pruning_brings_no_old_version_back(
    lake: Lake, spark: SparkSession, resolve_rows_max: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
    made = lake.create_table("s.t", schema, key="id", order_by="at")
    for number, v in enumerate(("a", "b", "c")):
        made.upsert([{"id": 10 * number + n, "at": 10, "v": v} for n in range(3)])
        made.fold()
    made.upsert([{"id": 0, "at": 5, "v": "late"}, {"id": 10, "at": 11, "v": "newer"}])
    with Lake(lake.path, spark=spark, settings=Settings(resolve_rows_max=resolve_rows_max)) as other:
        table = other.table("s.t")
        assert (internals(table).reader.plan(table.snapshot()).overlay is None) is (resolve_rows_max == 1)

        assert ids(table.to_spark(spark, where="v = 'late'")) == []
        assert ids(table.to_spark(spark, where="v = 'newer'")) == [10]
        assert ids(table.to_spark(spark, where="v = 'a'")) == [0, 1, 2]
        assert ids(table.to_spark(spark, where="v = 'b'")) == [11, 12]
        frame = table.to_spark(spark, where="id = 0")
        assert [row["v"] for row in frame.toArrow().to_pylist()] == ["a"]
        assert len(base_files(table, frame)) == 1


def test_a_snapshot_of_the_past_is_pruned_by_its_own_files(lake: Lake, spark: SparkSession) -> None:
    table = hundreds(lake)
    table.upsert([{"id": n, "v": "moved"} for n in range(100)])
    table.fold()

    assert ids(table.to_spark(spark, where="v = 'v042'", as_of=5)) == [42]
    assert ids(table.to_spark(spark, where="v = 'v042'")) == []


# Each row lies in a file of its own, and each condition means something else to Spark than to other readers of SQL, or
# reaches further than its text.
TRAPS: list[tuple[pa.DataType, list[Any], str, set[int]]] = [
    (pa.string(), ["AB", "ab", "b"], "v ILIKE 'ab%'", {0, 1}),
    (pa.string(), ["AB", "ab", "b"], "v LIKE 'A_'", {0}),
    (pa.string(), ["ab", "a", "b"], "v = 'a' 'b'", {0}),
    (pa.string(), ["ab", "a'b", "b"], r"v = 'a\'b'", {1}),
    (pa.string(), ["ab", "a", "b"], 'v = "ab"', {0}),
    (pa.string(), ["ab", "AB", "b"], "V = 'ab' COLLATE UTF8_LCASE", {0, 1}),
    (pa.decimal128(38, 10), [Decimal("0.1"), Decimal("0.1234567890"), Decimal(7)], "v = 0.12345678904", {1}),
    (pa.decimal128(38, 10), [Decimal(4), Decimal(5), Decimal(7)], "v <= 4.99999999999", {0, 1}),
    (pa.decimal128(38, 0), [10**20 - 1, 10**20, 7], "v = 99999999999999999999", {0}),
    (pa.decimal128(38, 30), [Decimal("99999999." + 30 * "9"), Decimal(1), Decimal(2)], "v >= 100000000", {0}),
    (pa.float32(), [0.1, 0.25, 7.0], "v > 0.1", {0, 1, 2}),
    (pa.float64(), [-0.0, 0.0, 7.0], "v = 0", {0, 1}),
    (pa.float32(), [-0.0, 0.0, 7.0], "v >= 0", {0, 1, 2}),
    (pa.int64(), [3, 4, 7], "v > 7 / 2", {1, 2}),
    (pa.int64(), [3, 4, 7], "v = '4'", {1}),
    (pa.int64(), [3, None, 7], "v <=> NULL", {1}),
    (pa.int64(), [3, None, 7], "NOT (v <=> 3)", {1, 2}),
    (pa.int64(), [3, 4, 7], "v = 3 OR /* v = 4 OR */ v = 7 -- OR v = 4", {0, 2}),
    (pa.date32(), [dt.date(2024, 1, 31), dt.date(2024, 2, 1), None], "v = '2024-1-31'", {0}),
    (pa.bool_(), [True, False, None], "v IS NOT TRUE", {1, 2}),
]


@pytest.mark.parametrize(("kind", "values", "where", "expected"), TRAPS, ids=[f"{t[0]} {t[2]}" for t in TRAPS])
def test_conditions_mean_what_spark_means(
    lake: Lake, spark: SparkSession, kind: pa.DataType, values: list[Any], where: str, expected: set[int]
) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", kind)]), key="id")
    for number, value in enumerate(values):
        table.upsert([{"id": number, "v": value}])
        table.fold()

    assert ids(table.to_spark(spark).where(where)) == sorted(expected)
    assert ids(table.to_spark(spark, where=where)) == sorted(expected)


def test_nan_is_found_beside_numbers_as_the_greatest_of_them(lake: Lake, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32())])
    table = lake.create_table("s.t", schema, key="id")
    table.upsert([{"id": 1, "x": 3.0, "y": 3.0}, {"id": 2, "x": float("nan"), "y": float("nan")}])
    table.fold()
    table.upsert([{"id": 3, "x": 3.0, "y": 3.0}, {"id": 4, "x": float("nan"), "y": float("nan")}])

    for name in ("x", "y"):
        for condition in (f"{name} > 5", f"{name} >= 5", f"{name} <> 3", f"{name} = DOUBLE('NaN')"):
            assert ids(table.to_spark(spark, where=condition)) == [2, 4]
            assert ids(table.to_spark(spark).where(condition)) == [2, 4]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"])
def test_times_are_read_in_the_time_zone_of_the_session(lake: Lake, spark: SparkSession, zone: str) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), key="id")
    for number in range(40):
        moment = dt.datetime(2026, 5, 1, tzinfo=dt.UTC) + dt.timedelta(hours=6 * number)
        table.upsert([{"id": number, "at": moment}])
        table.fold()
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for where in ("at = '2026-05-05 00:00:00'", "at < TIMESTAMP '2026-05-02 12:00:00'", "at >= '2026-05-08'"):
            frame = table.to_spark(spark, where=where)
            assert ids(frame) == ids(table.to_spark(spark).where(where))
            assert len(base_files(table, frame)) < 40
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@settings(max_examples=6, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.timeout(1200)
def test_pruned_answers_are_whole_answers(spark: SparkSession, data: st.DataObject) -> None:
    """Random rows of every type in several files, random pending changes, random conditions."""
    with memory_folder() as folder:
        program = data.draw(tables())
        few = Settings(resolve_rows_max=program.resolve_rows_max)
        with Lake(folder / "lake", spark=spark, settings=few) as lake:
            table = lake.create_table("s.t", COLUMNS, **program.options)
            for rows in program.files:
                table.append(rows)
                table.fold()
            for rows in program.pending:
                table.append(rows)
            if program.deleted:
                table.delete([{"id": n} for n in program.deleted])
            asked = data.draw(st.lists(conditions(), min_size=12, max_size=12, unique=True))

            assert _pruned(table, spark, asked) == _whole(table, spark, asked)


def _pruned(table: Table, spark: SparkSession, asked: list[str]) -> Any:
    """The rows of every condition, in one query."""
    from pyspark.sql import functions as F

    frames = [
        table.to_spark(spark, where=text).select(F.lit(number).alias("asked"), "id", F.xxhash64("*").alias("row"))
        for number, text in enumerate(asked)
    ]
    return bag(reduce(lambda a, b: a.unionAll(b), frames).toArrow().to_pylist())


def _whole(table: Table, spark: SparkSession, asked: list[str]) -> Any:
    from pyspark.sql import functions as F

    answers = [F.expr(text).alias(f"asked_{number}") for number, text in enumerate(asked)]
    rows: list[Row] = table.to_spark(spark).select("id", F.xxhash64("*").alias("row"), *answers).toArrow().to_pylist()
    return bag(
        {"asked": number, "id": row["id"], "row": row["row"]}
        for number in range(len(asked))
        for row in rows
        if row[f"asked_{number}"] is True
    )
