"""Filters that Spark pushes down become predicates that promise no more than they do."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as pushed

from lithify.core.predicates import UNKNOWN, And, Compare, In, IsNull, Or, Predicate, Prefix
from lithify.spark.datasource.filters import predicate_of
from lithify.spark.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("small", pa.int16()),
        ("f", pa.float64()),
        ("f32", pa.float32()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("st", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.int64())),
    ]
)
NUMBER, TEXT = ("i",), ("s",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pushed.EqualTo(NUMBER, 1), Compare("i", "=", 1)),
        (pushed.GreaterThan(NUMBER, 1), Compare("i", ">", 1)),
        (pushed.GreaterThanOrEqual(NUMBER, 1), Compare("i", ">=", 1)),
        (pushed.LessThan(NUMBER, 1), Compare("i", "<", 1)),
        (pushed.LessThanOrEqual(NUMBER, 1), Compare("i", "<=", 1)),
        (pushed.EqualNullSafe(NUMBER, 1), Compare("i", "=", 1)),
        (pushed.EqualNullSafe(NUMBER, None), IsNull("i")),
        (pushed.In(NUMBER, (1, None)), In("i", (1, None))),
        (pushed.IsNull(NUMBER), IsNull("i")),
        (pushed.IsNotNull(NUMBER), IsNull("i", negated=True)),
        (pushed.StringStartsWith(TEXT, "ab"), Prefix("s", "ab")),
        (pushed.Not(pushed.EqualTo(NUMBER, 1)), Compare("i", "<>", 1)),
        (pushed.Not(pushed.GreaterThan(NUMBER, 1)), Compare("i", "<=", 1)),
        (pushed.Not(pushed.GreaterThanOrEqual(NUMBER, 1)), Compare("i", "<", 1)),
        (pushed.Not(pushed.LessThan(NUMBER, 1)), Compare("i", ">=", 1)),
        (pushed.Not(pushed.LessThanOrEqual(NUMBER, 1)), Compare("i", ">", 1)),
        (pushed.Not(pushed.EqualNullSafe(NUMBER, 1)), Or((Compare("i", "<>", 1), IsNull("i")))),
        (pushed.Not(pushed.EqualNullSafe(NUMBER, None)), IsNull("i", negated=True)),
        (pushed.Not(pushed.In(NUMBER, (1, 2))), In("i", (1, 2), negated=True)),
        (pushed.Not(pushed.IsNull(NUMBER)), IsNull("i", negated=True)),
        (pushed.Not(pushed.IsNotNull(NUMBER)), IsNull("i")),
        (pushed.Not(pushed.Not(pushed.EqualTo(NUMBER, 1))), Compare("i", "=", 1)),
    ],
    ids=str,
)
def test_a_filter_is_understood(given: pushed.Filter, expected: Predicate) -> None:
    assert predicate_of([given], SCHEMA) == expected


@pytest.mark.parametrize(
    "given",
    [
        pushed.StringEndsWith(TEXT, "ab"),
        pushed.StringContains(TEXT, "ab"),
        pushed.Not(pushed.StringStartsWith(TEXT, "ab")),
        pushed.EqualTo(("st", "x"), 1),
        pushed.IsNull(("st",)),
        pushed.EqualTo(("st.x",), 1),
        pushed.EqualTo(("nowhere",), 1),
        pushed.EqualTo(("l",), [1]),
        pushed.EqualTo(NUMBER, [1]),
        pushed.EqualTo(NUMBER, None),
        pushed.Not(pushed.EqualTo(NUMBER, None)),
        pushed.In(NUMBER, ()),
        pushed.In(NUMBER, ([1],)),
        pushed.EqualTo(("wide",), Decimal("1234567890123456789012345.678")),
        pushed.In(("wide",), (Decimal(1), Decimal("1234567890123456789012345.678"))),
        pushed.EqualNullSafe(("wide",), Decimal("1234567890123456789012345.678")),
    ],
    ids=str,
)
def test_what_cannot_be_answered_by_statistics_restricts_nothing(given: pushed.Filter) -> None:
    assert predicate_of([given], SCHEMA) == UNKNOWN


def test_filters_hold_together_and_unknown_ones_drop_out() -> None:
    filters = [pushed.EqualTo(NUMBER, 1), pushed.StringContains(TEXT, "x"), pushed.IsNotNull(TEXT)]

    assert predicate_of(filters, SCHEMA) == And((Compare("i", "=", 1), IsNull("s", negated=True)))
    assert predicate_of([], SCHEMA) == UNKNOWN


@pytest.fixture
def push(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], list[pushed.Filter]]]:
    """What Spark hands to a data source for a condition."""

    class Source(pushed.DataSource):
        @classmethod
        def name(cls) -> str:
            return "lithify_filters_test"

        def reader(self, schema: Any) -> pushed.DataSourceReader:
            return Reader(self.options["to"])

    class Reader(pushed.DataSourceReader):
        def __init__(self, to: str) -> None:
            self.to = to

        def pushFilters(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:
            Path(self.to).write_bytes(pickle.dumps(filters))
            return filters

        def partitions(self) -> list[pushed.InputPartition]:
            return [pushed.InputPartition(0)]

        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            return iter(())

    def ask(condition: str) -> list[pushed.Filter]:
        to = tmp_path / "filters"
        to.unlink(missing_ok=True)
        reader = spark.read.format("lithify_filters_test").schema(spark_schema(SCHEMA)).option("to", str(to))
        reader.load().where(condition).explain()
        found: list[pushed.Filter] = pickle.loads(to.read_bytes())
        return found

    spark.dataSource.register(Source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield ask
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark
def test_literals_arrive_as_values_of_their_column(push: Callable[[str], list[pushed.Filter]]) -> None:
    conditions: dict[str, Predicate] = {
        "i = 5": Compare("i", "=", 5),
        "small > 5L": Compare("small", ">", 5),
        "f < 0.5D": Compare("f", "<", 0.5),
        "f32 >= cast(0.1 as float)": Compare("f32", ">=", 0.10000000149011612),
        "s = 'é'": Compare("s", "=", "é"),
        "s like 'ab%'": Prefix("s", "ab"),
        "b = X'00FF'": Compare("b", "=", b"\0\xff"),
        "t": Compare("t", "=", True),
        "not t": Compare("t", "<>", True),
        "d <= date '1969-12-31'": Compare("d", "<=", dt.date(1969, 12, 31)),
        "ts > timestamp '2026-01-01 00:00:00.000001+05:30'": Compare(
            "ts", ">", dt.datetime(2025, 12, 31, 18, 30, 0, 1, tzinfo=dt.UTC)
        ),
        "ntz > timestamp_ntz '2026-01-01 00:00:00.000001'": Compare("ntz", ">", dt.datetime(2026, 1, 1, 0, 0, 0, 1)),
        "dec <> 12.34": Compare("dec", "<>", Decimal("12.34")),
        "i in (1, 2, 3)": In("i", (1, 2, 3)),
        "i not in (1, 2, 3)": In("i", (1, 2, 3), negated=True),
        "i <=> 1": Compare("i", "=", 1),
        "not (i <=> 1)": Or((Compare("i", "<>", 1), IsNull("i"))),
        "i is null": IsNull("i"),
    }

    def without_not_null(predicate: Predicate) -> Predicate:
        """Spark adds to a comparison that its column is not null."""
        parts = predicate.parts if isinstance(predicate, And) else (predicate,)
        left = [part for part in parts if not (isinstance(part, IsNull) and part.negated)]
        return left[0] if len(left) == 1 else And(tuple(left))

    found = {condition: without_not_null(predicate_of(push(condition), SCHEMA)) for condition in conditions}

    assert found == conditions


@pytest.mark.spark
def test_a_decimal_that_lost_digits_on_its_way_restricts_nothing(push: Callable[[str], list[pushed.Filter]]) -> None:
    filters = push("wide = 1234567890123456789012345678.0123456789BD")

    assert any(isinstance(each, pushed.EqualTo) for each in filters)
    assert predicate_of(filters, SCHEMA) == IsNull("wide", negated=True)
