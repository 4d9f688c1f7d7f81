"""Merge rules where Spark writes, merges and reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Settings, Table
from support.rules_oracle import contributed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = pa.schema(
    [
        ("k", pa.int64()),
        ("plain", pa.string()),
        ("first", pa.string()),
        ("some", pa.string()),
        ("low", pa.float64()),
        ("high", pa.string()),
        ("total", pa.int64()),
        ("money", pa.decimal128(38, 2)),
        ("n", pa.int64()),
        ("tags", pa.list_(pa.int64())),
        ("any", pa.bool_()),
        ("all", pa.bool_()),
        ("price", pa.int64()),
        ("price_at", pa.int64()),
        ("stock", pa.string()),
        ("stock_at", pa.string()),
    ]
)
GROUPS = {"price_at": ["price"], "stock_at": ["stock"]}
RULES = {
    "first": "first",
    "some": "last_non_null",
    "low": "min",
    "high": "max",
    "total": "sum",
    "money": "sum",
    "n": "count",
    "tags": "append(4)",
    "any": "or",
    "all": "and",
}


def row(k: int, number: int) -> dict[str, Any]:
    """One of many rows of a key, with nulls here and there."""
    text = None if number % 3 == 0 else f"t{number * 7 % 11}"
    return {
        "k": k,
        "plain": text,
        "first": text,
        "some": text,
        "low": float("nan") if number % 5 == 0 else None if number % 4 == 0 else -float(number),
        "high": text,
        "total": None if number % 6 == 0 else number,
        "money": None,
        "n": None,
        "tags": None if number % 4 == 1 else [number, -number][: number % 3],
        "any": [None, False, True][number % 3],
        "all": [None, True, False][number % 3],
        **{"price": number, "price_at": None if number % 5 == 0 else number * 7 % 13},
        **{"stock": text, "stock_at": text},
    }


def expected(table: Table, there: dict[int, Any], rows: list[dict[str, Any]]) -> dict[int, Any]:
    for each in rows:
        there[each["k"]] = contributed(table.definition.rules, there.get(each["k"]), each, COLUMNS.names)
    return there


def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    found = sorted(rows.to_pylist(), key=lambda each: each["k"])
    return [{name: str(value) if name == "low" else value for name, value in each.items()} for each in found]


def table_of(rows: dict[int, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows.values()), schema=COLUMNS)


def test_what_spark_writes_reads_and_merges_counts_by_the_rules(spark: SparkSession, folder: Path) -> None:
    settings = Settings(resolve_rows_max=1, stream_rows_max=10, feed_rows_max=1)
    with Lake(folder / "lake", spark, settings=settings) as lake:
        table = lake.create_table("a.t", COLUMNS, key="k", merge_rules=RULES, order_groups=GROUPS)
        written = [row(number % 3, number) for number in range(1, 40)]
        frame = spark.createDataFrame(pa.Table.from_pylist(written, schema=COLUMNS)).coalesce(1)
        first = table.upsert(frame, batch_id="one")
        assert table.upsert(frame, batch_id="one").seq == first.seq
        there = expected(table, {}, written)
        more = [row(number % 3, number) for number in range(41, 46)]
        table.upsert(more[:2])
        table.update(more[2:])
        there = expected(table, there, more)
        wanted = sorted_rows(table_of(there))

        assert sorted_rows(table.to_arrow()) == wanted
        assert sorted_rows(table.to_spark(spark).toArrow()) == wanted
        here = Settings(feed_rows_max=1_000_000)
        with Lake(folder / "lake", spark, settings=here) as other:
            feed = other.table("a.t").feed(0, columns=["k", "tags", "n", "total", "money", "all", "price", "stock"])
        far = table.feed_to_spark(0, spark=spark).select(*feed.column_names).toArrow()
        assert far.to_pylist() == feed.to_pylist()
        table.fold()
        assert sorted_rows(table.to_arrow()) == wanted


def test_the_data_source_does_not_write_where_the_order_of_rows_counts(spark: SparkSession, folder: Path) -> None:
    with Lake(folder / "lake", spark) as lake:
        lake.create_table("a.t", COLUMNS, key="k", merge_rules=RULES)
        frame = spark.createDataFrame(pa.Table.from_pylist([row(1, 1)], schema=COLUMNS))
        writer = frame.write.format("lithify").option("lake", str(folder / "lake")).option("table", "a.t")
        with pytest.raises(Exception, match="has merge rules, by which the order of rows counts"):
            writer.mode("append").save()
        assert lake.table("a.t").snapshot().seq == 0


def test_a_sum_that_spark_adds_up_and_does_not_fit_is_told(spark: SparkSession, folder: Path) -> None:
    with Lake(folder / "lake", spark, settings=Settings(resolve_rows_max=1)) as lake:
        table = lake.create_table("a.t", COLUMNS, key="k", merge_rules=RULES)
        for _ in range(2):
            table.upsert([{**row(1, 1), "total": 2**62}])
        with pytest.raises(Exception, match=r"(?i)overflow|out of range|cannot be represented|does not fit"):
            table.to_spark(spark).toArrow()
        table.delete([1])
        assert table.to_spark(spark).count() == 0
        with pytest.raises(InvalidRequest):
            table.retract(spark.createDataFrame([(1,)], ["k"]))


@pytest.mark.parametrize("limit", [20_000_000, 1], ids=["overlay", "distributed"])
def test_spark_reads_rows_that_two_sources_feed(spark: SparkSession, folder: Path, limit: int) -> None:
    columns = pa.schema([(name, pa.int64()) for name in ("k", "price", "price_at", "stock", "stock_at", "v")])
    with Lake(folder / "lake", spark, settings=Settings(resolve_rows_max=limit, feed_rows_max=0)) as lake:
        table = lake.create_table("a.t", columns, key="k", order_groups=GROUPS, options={"missing_columns": "null"})
        table.upsert([{"k": k, "price": 1, "price_at": 5} for k in (1, 2, 3)])
        table.fold()
        since = table.snapshot().seq
        table.upsert([{"k": 1, "stock": 1, "stock_at": 5, "v": 1}, {"k": 2, "price": 2, "price_at": 4, "v": 2}])
        table.update([{"k": 3, "v": 3}, {"k": 4, "stock": 4, "stock_at": 4}])
        table.delete([3])
        table.upsert([{"k": 3, "price": 9, "price_at": 1}, {"k": 1, "stock": 2, "stock_at": 5}])
        expected = sorted_rows(table.to_arrow())
        assert [(row["price"], row["stock"]) for row in expected] == [(1, 2), (1, None), (9, None), (None, 4)]
        assert sorted_rows(table.to_spark(spark).toArrow()) == expected
        some = table.to_spark(spark, columns=["k", "stock"]).toArrow()
        assert sorted_rows(some) == [{"k": row["k"], "stock": row["stock"]} for row in expected]
        told = [row.asDict() for row in table.feed_to_spark(since=since).orderBy("_seq", "k").collect()]
        assert told == table.feed(since=since).to_pylist()
        with pytest.raises(InvalidRequest, match="gives 'price' and lacks 'price_at'"):
            table.update(spark.createDataFrame([(1, 5)], ["k", "price"]))
