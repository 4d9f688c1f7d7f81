"""Files of other writers mean the same to Spark and to the serving engine."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lithify import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FOREVER = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
TIMES = [FOREVER, dt.datetime(2262, 4, 12, tzinfo=dt.UTC), dt.datetime(1901, 1, 1, tzinfo=dt.UTC)]


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def int96(spark: SparkSession, tmp_path: Path) -> Path:
    """A folder of Parquet as Spark wrote it by default up to version 2.4, and Databricks for longer."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, "INT96")
    try:
        values = ", ".join(f"({i}L, timestamp'{at:%Y-%m-%d %H:%M:%S.%f}+00:00', 'old')" for i, at in enumerate(TIMES))
        spark.sql(f"select * from values {values} as t(id, at, v)").coalesce(1).write.parquet(str(tmp_path / "p"))
    finally:
        spark.conf.set(name, before)
    (written,) = (tmp_path / "p").glob("*.parquet")
    assert pq.read_metadata(written).row_group(0).column(1).physical_type == "INT96"
    return tmp_path / "p"


def test_int96_of_spark_survives_a_fold_on_spark(lake: Lake, int96: Path) -> None:
    table = lake.adopt("a.t", int96, key="id")
    expected = [{"id": i, "at": at.replace(tzinfo=None), "v": "old"} for i, at in enumerate(TIMES)]

    for step in ("adopted", "folded"):
        assert by_id(table.to_arrow().to_pylist()) == expected, step
        assert by_id(table.to_spark().toArrow().to_pylist()) == expected, step
        table.upsert([{**expected[1], "v": "new"}])
        expected[1] = {**expected[1], "v": "new"}
        table.fold()
