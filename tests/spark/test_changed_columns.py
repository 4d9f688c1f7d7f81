"""Columns that changed, as Spark sees them: rows, rows of then, and the feed across the changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lithify import InvalidRequest, Lake, Settings, Table
from lithify.spark.datasource.read import check_wanted
from lithify.spark.schemas import spark_schema
from support.bags import bag

pytestmark = pytest.mark.spark

PLACE = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.int64()), ("lon", pa.int64())]))])
COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("gone", pa.string()), ("v", pa.string())])


@pytest.fixture
def table(folder: Path, spark: SparkSession) -> Iterator[Table]:
    """Of each kind of change file some from before every change; the feed is decided by Spark."""
    with Lake(folder / "lake", spark=spark, settings=Settings(feed_rows_max=0)) as lake:
        table = lake.create_table("s.t", COLUMNS, key="id")
        table.upsert([{"id": i, "n": i, "gone": "x", "v": "a"} for i in range(6)])
        table.fold()
        table.update([{"id": 1, "n": 11, "gone": "y"}])
        table.delete([2])
        table.rename_column("n", "amount")
        table.upsert([{"id": 3, "amount": 33, "gone": "z", "v": "b"}])
        table.drop_column("gone")
        table.update([{"id": 4, "amount": 44}])
        table.alter_column("amount", type="int64")
        table.add_column(pa.field("gone", pa.int64()))
        table.upsert([{"id": 5, "amount": 2**40, "v": "c", "gone": 7}])
        yield table


def test_rows_of_now_and_then(table: Table, spark: SparkSession) -> None:
    for as_of in (None, *range(1, table.snapshot().seq + 1)):
        found = table.to_spark(as_of=as_of)
        expected = table.to_arrow(as_of=as_of)
        assert found.columns == expected.column_names
        assert bag(found.toArrow().to_pylist()) == bag(expected.to_pylist())


def test_rows_that_spark_wrote_before_a_change(table: Table, spark: SparkSession) -> None:
    rows = [(100 + i, i, "w", i) for i in range(3)]
    table.upsert(spark.createDataFrame(rows, "id long, amount long, v string, gone long"))
    table.rename_column("v", "w")
    found = table.to_spark(where="id >= 100")
    assert sorted(map(tuple, found.select("id", "amount", "w", "gone").collect())) == rows


@pytest.mark.parametrize("before", [False, True])
def test_the_feed_across_the_changes(table: Table, spark: SparkSession, folder: Path, before: bool) -> None:
    with Lake(folder / "lake") as here:
        for since in (0, 2, 5):  # before all changes, between them, and before the last
            expected = here.table("s.t").feed(since, before=before)
            found = table.feed_to_spark(since, before=before)
            assert found.columns == expected.column_names
            assert bag(found.toArrow().to_pylist()) == bag(expected.to_pylist())


def test_fields_inside_of_structs(folder: Path, spark: SparkSession) -> None:
    with Lake(folder / "lake", spark=spark, settings=Settings(feed_rows_max=0)) as lake:
        table = lake.create_table("s.u", pa.schema([("id", pa.int64()), ("s", PLACE)]), key="id")
        table.upsert([{"id": i, "s": {"city": "kiel", "geo": {"lat": i, "lon": 0}}} for i in range(4)])
        table.fold()
        table.update([{"id": 1, "s": {"city": "ulm", "geo": None}}, {"id": 2, "s": None}])
        table.rename_column("s.city", "town")
        table.drop_column("s.geo.lon")
        table.add_column(pa.field("s.city", pa.string()))
        table.add_column(pa.field("s.geo.lon", pa.string()))
        table.upsert([{"id": 9, "s": {"town": "a", "geo": {"lat": 1, "lon": "b"}, "city": "c"}}])

        for as_of in (None, 1, 2, 3, 4):
            found, expected = table.to_spark(as_of=as_of).toArrow(), table.to_arrow(as_of=as_of)
            assert found.schema.field("s").type == expected.schema.field("s").type
            assert texts(found.to_pylist()) == texts(expected.to_pylist())
        with Lake(folder / "lake") as here:
            for since in (0, 1, 3):
                expected = here.table("s.u").feed(since, before=True)
                assert texts(table.feed_to_spark(since, before=True).toArrow().to_pylist()) == texts(
                    expected.to_pylist()
                )
        assert table.feed(0).to_pylist()[0]["s"] == {"town": "kiel", "geo": {"lat": 0, "lon": None}, "city": None}


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, rows))


def test_a_reader_that_wants_a_field_that_is_gone_is_told_which() -> None:
    more = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.int64()), ("alt", pa.int64())]))])
    with pytest.raises(InvalidRequest, match=r"no field 's\.geo\.alt'"):
        check_wanted(spark_schema(pa.schema([("s", more)])), pa.schema([("id", pa.int64()), ("s", PLACE)]))
