"""Files of other writers mean the same to Spark and to the serving engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Corruption, Lake
from lithify.streams.folder import FileStream
from support.parquet_footers import GROUP_ROWS, I64, NUM_ROWS, ROW_GROUPS, Fields, edited

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


def fewer_rows(footer: Fields) -> None:
    """In the footer and in its row group: only the columns say that there is one more."""
    footer[NUM_ROWS] = I64, 1
    for group in footer[ROW_GROUPS][1][1]:
        group[GROUP_ROWS] = I64, 1


@pytest.mark.parametrize("door", ["stream", "pipeline"])
def test_a_file_of_which_spark_would_read_a_part_is_refused_by_its_name(lake: Lake, tmp_path: Path, door: str) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "x.parquet")
    edited(tmp_path / "in" / "x.parquet", fewer_rows)
    table = lake.create_table("s.t", pa.schema([("id", pa.int64())]), key="id")
    step = {"files": str(tmp_path / "in"), "schema": "id BIGINT", "target": "s.t", "key": "id"}

    stream = FileStream(table._internals, str(tmp_path / "in"))
    run: Callable[[], Any] = stream.run if door == "stream" else lake.pipeline("in", {"steps": [step]}).run

    with pytest.raises(Corruption, match=r"x\.parquet makes no sense: 'id' has 2 values for 1 rows"):
        run()

    assert table.snapshot().seq == 0
