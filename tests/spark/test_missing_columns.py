"""Frames, files, streams and pipelines that lack a column of the table: refused, set aside, or null if so wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lithify import InvalidRequest, Lake, LithifyDataSource, Table
from lithify.streams.folder import FileStream

pytestmark = pytest.mark.spark
COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.int64())])
FULL = {"id": 1, "note": "gift", "price": 5}
NULLED = {"id": 1, "note": None, "price": 6}


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.create_table("s.t", COLUMNS, key="id")
    table.upsert([FULL])
    return table


def short(spark: SparkSession) -> Any:
    return spark.createDataFrame([(1, 6)], "id long, price long")


def test_a_frame(lake: Lake, table: Table) -> None:
    for write in (table.upsert, table.append):
        with pytest.raises(InvalidRequest, match="lack the column 'note'"):
            write(short(lake.spark))
    assert table.get(1) == FULL

    table.upsert(short(lake.spark), missing="null")
    assert table.get(1) == NULLED


@pytest.mark.parametrize("rows_max", [None, 0], ids=["here", "by Spark"])
def test_a_micro_batch(lake: Lake, table: Table, rows_max: int | None) -> None:
    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        table.stream_writer(name="q", rows_max=rows_max)(short(lake.spark), 0)
    assert table.get(1) == FULL

    table.stream_writer(name="q", rows_max=rows_max, missing="null")(short(lake.spark), 0)
    assert table.get(1) == NULLED
    deletes = lake.spark.createDataFrame([(1, "delete")], "id long, op string")
    table.stream_writer(name="d", rows_max=rows_max, op_column="op")(deletes, 0)
    assert table.get(1) is None


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_files(lake: Lake, table: Table, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    match kind:
        case "json":
            (folder / "a.json").write_text(json.dumps({**FULL, "id": 2}) + "\n" + json.dumps({"id": 1, "price": 6}))
        case "csv":
            (folder / "a.csv").write_text("id,price\n1,6\n")
        case _:
            pq.write_table(pa.table({"id": [2], "note": ["n"], "price": [5]}), folder / "a.parquet")
            pq.write_table(pa.table({"id": [1], "price": [6]}), folder / "b.parquet")
    with pytest.raises(InvalidRequest, match="note"):
        lake.ingest("s.t", str(folder))
    with pytest.raises(InvalidRequest, match="note"):
        FileStream(table._internals, str(folder)).run()
    assert table.get(1) == FULL

    FileStream(table._internals, str(folder), missing="null").run()
    assert table.get(1) == NULLED
    table.upsert([FULL])
    lake.ingest("s.t", str(folder), missing="null")
    assert table.get(1) == NULLED


def test_a_json_record_is_set_aside(lake: Lake, table: Table, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**FULL, "id": 2}) + "\n" + json.dumps({"id": 1, "price": 6}))

    report = lake.ingest("s.t", str(tmp_path / "a.json"), on_bad_record="quarantine")

    assert (report.rows, report.bad_records) == (1, 1)
    assert table.get(1) == FULL


def test_the_data_source(lake: Lake, table: Table) -> None:
    lake.spark.dataSource.register(LithifyDataSource)
    frame = short(lake.spark)
    writer = frame.write.format("lithify").mode("append").option("path", f"{lake.path}/s/t")
    with pytest.raises(Exception, match="lack the column 'note'"):
        writer.save()
    assert table.get(1) == FULL

    writer.option("missing", "null").save()
    assert table.get(1) == NULLED


def test_a_pipeline(lake: Lake, table: Table) -> None:
    source = lake.create_table("s.source", pa.schema([("id", pa.int64()), ("price", pa.int64())]), key="id")
    source.upsert([{"id": 1, "price": 6}])
    step = {"name": "t", "table": "s.source", "target": "s.t"}

    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        lake.pipeline("p", {"steps": [step]}).run()
    assert table.get(1) == FULL

    lake.pipeline("p", {"steps": [{**step, "missing": "null"}]}).run()
    assert table.get(1) == NULLED


def test_a_table_that_an_ingest_creates_has_nothing_to_lose(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "note": "x"}\n{"id": 2, "price": 3}\n')

    lake.ingest("s.new", str(tmp_path / "a.json"), create=True, key="id")

    assert lake.table("s.new").options["missing_columns"] == "refuse"
    assert lake.table("s.new").get(2) == {"id": 2, "note": None, "price": 3}
