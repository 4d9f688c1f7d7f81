"""Compaction and z-order as Spark work: the same rows, the same layout, fewer and narrower files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Table
from support.bags import bag
from support.leftovers import unsettled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.int32()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
    ]
)


def line(number: int) -> dict[str, Any]:
    mixed = number * 7919 % 1000
    return {
        "id": number,
        "x": mixed,
        "name": f"name-{number * 104729 % 1000:05d}" if number % 17 else None,
        "price": Decimal(mixed) / 100,
        "at": dt.datetime(2026, 11, 15, tzinfo=dt.UTC) + dt.timedelta(seconds=mixed, microseconds=number),
        "local": dt.datetime(1969, 12, 31, 23, 59, 59, number),
        "tags": [str(number)] * (number % 3),
    }


def filled(lake: Lake, **options: Any) -> Table:
    table = lake.create_table("s.t", SCHEMA, key="id", options={"pack_files_min": 2, **options})
    for number in range(5):
        table.upsert([line(n) for n in range(number * 200, number * 200 + 200)])
        table.fold()
    assert len(table.snapshot().base) == 5
    return table


def contents(table: Table) -> Any:
    return bag({name: str(value) for name, value in row.items()} for row in table.to_arrow().to_pylist())


def test_compaction_runs_as_spark_tasks(lake: Lake) -> None:
    table = filled(lake)
    before = contents(table)

    (report,) = table.compact()

    assert (report.engine, report.files_read, report.files_written, report.rows) == ("spark", 5, 1, 1000)
    assert contents(table) == before
    assert unsettled(lake.path) == []


def test_z_order_keeps_every_row_and_value(lake: Lake, spark: SparkSession) -> None:
    table = filled(lake)
    table.upsert([line(3) | {"name": "pending"}])
    before = contents(table)

    (report,) = table.optimize(by=["x", "name", "at"])

    assert (report.engine, report.rows) == ("spark", 1000)
    assert {file.origin for file in table.snapshot().base} == {"cluster"}
    assert contents(table) == before
    assert bag(row.asDict() for row in table.to_spark(spark).select("id", "x", "name").collect()) == bag(
        {name: row[name] for name in ("id", "x", "name")} for row in table.to_arrow().to_pylist()
    )
    assert unsettled(lake.path) == []


def test_z_order_makes_files_narrow_in_every_column(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("y", pa.string())])
    table = lake.create_table("s.z", schema, key="id", options={"cluster_target_bytes": 1 << 20})
    count = 600_000
    rng = np.random.default_rng(3)
    y = pa.array([f"user-{n:07d}" for n in rng.permutation(count)])
    table.append(pa.table({"id": pa.array(range(count)), "x": rng.permutation(count), "y": y}))
    table.fold()

    (report,) = table.optimize(by=["x", "y"])

    assert report.files_written >= 4
    files = [pq.read_table(table.base_path / file.path) for file in table.snapshot().base]
    for name in ("x", "y"):
        widths = []
        for rows in files:
            numbers = [int(str(value).removeprefix("user-")) for value in rows.column(name).to_pylist()]
            widths.append((max(numbers) - min(numbers)) / count)
        assert sum(widths) / len(widths) < 0.75, f"files span {widths} of {name}"


def test_z_order_goes_on_without_a_damaged_file(lake: Lake) -> None:
    table = filled(lake)
    damaged = table.snapshot().base[1]
    path = table.base_path / damaged.path
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF
    path.write_bytes(content)

    (report,) = table.optimize(by=["x"])

    assert (report.files_read, report.rows) == (4, 800)
    assert str(path) in report.problems[0]
    assert damaged.path in {file.path for file in table.snapshot().base}
    assert unsettled(lake.path) == []
