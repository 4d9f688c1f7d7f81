"""Folds that run as Spark tasks do what the same folds do in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lithify import Corruption, Lake, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def filled(lake: Lake, name: str) -> Any:
    table = lake.create_table(name, SCHEMA, key="id")
    table.upsert([{"id": n, "v": "base"} for n in range(0, 3000, 3)])
    table.fold()
    table.upsert([{"id": n, "v": "second"} for n in range(10_000, 10_100)])
    table.fold()
    table.upsert([{"id": n, "v": "changed"} for n in range(0, 300)])
    table.delete([600, 603, 1])
    return table


def test_spark_and_local_folds_report_and_write_the_same(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    on_spark = filled(lake, "s.t")
    with Lake(tmp_path / "local", settings=Settings()) as local:
        here = filled(local, "s.t")
        first, second = on_spark.fold(), here.fold()
        assert (first.engine, second.engine) == ("spark", "local")
        for name in (
            "base_rows",
            "change_rows",
            "inserted",
            "updated",
            "deleted",
            "final_rows",
            "files_read",
            "files_written",
        ):
            assert getattr(first, name) == getattr(second, name), name
        assert (first.inserted, first.updated, first.deleted) == (199, 100, 2)
        assert on_spark.to_arrow().sort_by("id") == here.to_arrow().sort_by("id")


def test_only_files_that_can_hold_a_changed_key_are_rewritten(lake: Lake, spark: SparkSession) -> None:
    table = filled(lake, "s.t")
    untouched = next(file.path for file in table.snapshot().base if file.bound("id").low == 10_000)

    table.fold()

    assert untouched in {file.path for file in table.snapshot().base}


def test_rewritten_files_stay_sorted_by_key(lake: Lake, spark: SparkSession) -> None:
    table = filled(lake, "s.t")
    table.fold()

    for file in table.snapshot().base:
        ids = pa.parquet.read_table(table.base_path / file.path).column("id").to_pylist()
        assert ids == sorted(ids)


def test_base_is_plain_delta(lake: Lake, spark: SparkSession) -> None:
    table = filled(lake, "s.t")
    table.fold()

    read = DeltaTable(table.base_path).to_pyarrow_table()

    assert read.column_names == ["id", "v"]
    assert sorted(read.to_pylist(), key=lambda r: r["id"]) == table.to_arrow().sort_by("id").to_pylist()


def test_an_unreadable_base_file_stops_the_fold_and_is_named(lake: Lake, spark: SparkSession) -> None:
    table = filled(lake, "s.t")
    broken = next(file for file in table.snapshot().base if file.bound("id").low == 0)
    path = table.base_path / broken.path
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF
    path.write_bytes(content)
    before = table.snapshot()

    with pytest.raises(Corruption, match=path.name):
        table.fold()

    assert table.snapshot().base_version >= before.base_version
    assert table.snapshot().watermark == before.watermark
    assert not list((lake.path / "_lithify" / "jobs").iterdir())
