"""After a fold, base is a plain Delta table: deltalake, polars, DuckDB and its delta extension read exactly the rows
that were written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lithify import Lake, Table
from support.delta_scan import delta_scan, installed
from support.fetched import NotHere

pytestmark = pytest.mark.slow

UTC = dt.UTC
ALL_TYPES = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("tiny", pa.int8()),
        pa.field("small", pa.int16()),
        pa.field("normal", pa.int32()),
        pa.field("single", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("wide", pa.decimal128(38, 10)),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("sizes", pa.list_(pa.int32())),
        pa.field("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
        pa.field("places", pa.list_(pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))]))),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def full_row(number: int) -> dict[str, Any]:
    moment = dt.datetime(2026, 3, 1, 23, 59, 59, 123456) + dt.timedelta(hours=number)
    return {
        "id": number,
        "flag": number % 2 == 0,
        "tiny": -128 + number,
        "small": 32767 - number,
        "normal": -(2**31) + number,
        "single": 0.5 * number,
        "double": 1e300 / (number + 1),
        "price": Decimal("12345678.90") + number,
        "wide": Decimal("1234567890123456789012345678.0123456789"),
        "text": f"é𝄞 '{number}' \\ \" \n",
        "raw": bytes([0, 255, number]),
        "day": moment.date(),
        "at": moment.replace(tzinfo=UTC),
        "local": moment,
        "sizes": [number, None, 2**31 - 1],
        "place": {"x": 1.5, "name": None},
        "places": [{"x": number, "tags": ["a", None]}, {"x": None, "tags": []}],
        "counts": [("a", number), ("b", None)],
    }


def null_row(number: int) -> dict[str, Any]:
    return {**dict.fromkeys(ALL_TYPES.names), "id": number}


# -- the readers


def by_deltalake(table: Table) -> list[dict[str, Any]]:
    return DeltaTable(table.base_path).to_pyarrow_table().select(table.schema.names).cast(table.schema).to_pylist()


def by_polars(table: Table) -> list[dict[str, Any]]:
    return pl.read_delta(str(table.base_path)).select(table.schema.names).to_arrow().cast(table.schema).to_pylist()


def by_polars_lazily(table: Table) -> list[dict[str, Any]]:
    found = pl.scan_delta(str(table.base_path)).filter(pl.col("id") >= 0).collect()
    return found.select(table.schema.names).to_arrow().cast(table.schema).to_pylist()


def by_duckdb(table: Table) -> list[dict[str, Any]]:
    files = DeltaTable(table.base_path).file_uris()
    with duckdb.connect() as connection:
        names = ", ".join(f'"{name}"' for name in table.schema.names)
        found = connection.execute(
            f"SELECT {names} FROM read_parquet(?, union_by_name => true, hive_partitioning => false)", [files]
        )
        return found.to_arrow_table().cast(table.schema).to_pylist()


def by_delta_scan(table: Table) -> list[dict[str, Any]]:
    try:
        installed()
    except NotHere as error:
        pytest.skip(str(error))
    found = delta_scan(table.base_path)
    return found.select(table.schema.names).cast(table.schema).to_pylist()


READERS: dict[str, Callable[[Table], list[dict[str, Any]]]] = {
    "deltalake": by_deltalake,
    "polars": by_polars,
    "polars, lazily": by_polars_lazily,
    "duckdb": by_duckdb,
    "duckdb's delta_scan": by_delta_scan,
}


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


@pytest.mark.parametrize("reader", READERS)
def test_every_type_is_read_back(lake: Lake, reader: str) -> None:
    table = lake.create_table("a.t", ALL_TYPES, key="id")
    table.upsert([full_row(i) for i in range(5)] + [null_row(5)])
    table.fold()  # linked
    assert by_id(READERS[reader](table)) == [full_row(i) for i in range(5)] + [null_row(5)]

    table.upsert([full_row(7), {**full_row(2), "text": "changed"}, null_row(3)])
    table.delete([0, 5])
    table.fold()  # rewritten

    expected = [full_row(1), {**full_row(2), "text": "changed"}, null_row(3), full_row(4), full_row(7)]
    assert by_id(READERS[reader](table)) == expected
    assert by_id(table.to_arrow().to_pylist()) == expected


@pytest.mark.parametrize("reader", READERS)
def test_a_table_with_a_time_is_partitioned_by_day(lake: Lake, reader: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    table = lake.create_table("a.t", schema, key="id", time="at")
    late = dt.datetime(2026, 3, 1, 23, 59, 59, 999999, UTC)
    rows = [{"id": i, "at": late + dt.timedelta(microseconds=i), "v": i} for i in range(4)]
    rows.append({"id": 9, "at": None, "v": 9})
    table.upsert(rows)
    table.fold()
    table.upsert([{"id": 3, "at": late - dt.timedelta(days=40), "v": 33}, {"id": 4, "at": late, "v": 4}])
    table.fold()

    expected = [
        *rows[:3],
        {"id": 3, "at": late - dt.timedelta(days=40), "v": 33},
        {"id": 4, "at": late, "v": 4},
        rows[4],
    ]
    assert by_id(READERS[reader](table)) == expected
    base = DeltaTable(table.base_path)
    assert base.metadata().partition_columns == ["_day"]
    found = base.to_pyarrow_table()
    for row in found.to_pylist():
        assert row["_day"] == (row["at"].date() if row["at"] else None)
    one_day = base.to_pyarrow_table(partitions=[("_day", "=", "2026-03-01")])
    assert sorted(one_day.column("id").to_pylist()) == [0, 4]
    for uri in base.file_uris(partition_filters=[("_day", "=", "2026-03-02")]):
        assert "/_day=2026-03-02/" in uri


@pytest.mark.parametrize("reader", READERS)
def test_partition_columns_of_every_type(lake: Lake, reader: str) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("region", pa.string()),
            ("year", pa.int32()),
            ("day", pa.date32()),
            ("flag", pa.bool_()),
            ("amount", pa.decimal128(8, 2)),
            ("hour", pa.timestamp("us", "UTC")),
        ]
    )
    table = lake.create_table("a.t", schema, key="id", partition_by=["region", "year", "day", "flag", "amount", "hour"])
    rows = [
        {
            "id": i,
            "region": region,
            "year": 2026 if i % 2 else None,
            "day": dt.date(2026, 1, 1),
            "flag": i % 2 == 0,
            "amount": Decimal("1.50"),
            "hour": dt.datetime(2026, 1, 1, 5, 0, 0, 7, UTC),
        }
        for i, region in enumerate(["eu", "a b/c=d%", "é𝄞", None, "eu", "null", "it's"])
    ]
    table.upsert(rows[:4])
    table.fold()
    table.upsert([{**rows[0], "region": "moved"}, *rows[4:]])
    table.fold()

    expected = [{**rows[0], "region": "moved"}, *rows[1:]]
    assert by_id(table.to_arrow().to_pylist()) == expected
    assert by_id(READERS[reader](table)) == expected


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("folded_before", [True, False])
def test_an_added_column_is_null_in_older_rows(lake: Lake, reader: str, folded_before: bool) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    if folded_before:
        table.fold()
    table.add_column(pa.field("w", pa.list_(pa.int64())))
    table.upsert([{"id": 2, "v": "c", "w": [1]}, {"id": 3, "v": "d", "w": None}])
    table.fold()

    expected = [{"id": 1, "v": "a", "w": None}, {"id": 2, "v": "c", "w": [1]}, {"id": 3, "v": "d", "w": None}]
    assert by_id(READERS[reader](table)) == expected
    assert by_id(table.to_arrow().to_pylist()) == expected


@pytest.mark.parametrize("reader", READERS)
def test_a_table_without_a_key(lake: Lake, reader: str) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append([{"id": 1, "v": "a"}, {"id": 1, "v": "a"}, {"id": 2, "v": None}])
    table.fold()
    table.append([{"id": 3, "v": None}])
    table.delete([{"v": None}])
    table.append([{"id": 4, "v": None}])
    table.fold()

    assert by_id(READERS[reader](table)) == [{"id": 1, "v": "a"}, {"id": 1, "v": "a"}, {"id": 4, "v": None}]


def test_base_shows_the_last_fold_and_nothing_newer(lake: Lake) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    table.upsert([{"id": 1, "v": "a"}])
    table.fold()
    table.upsert([{"id": 1, "v": "b"}, {"id": 2, "v": "b"}])
    for read in READERS.values():
        assert read(table) == [{"id": 1, "v": "a"}]


def test_statistics_let_other_readers_skip_files_and_never_rows(lake: Lake) -> None:
    """Filters pushed down by other engines use the statistics that the log carries."""
    table = lake.create_table("a.t", ALL_TYPES, key="id")
    long = "é" * 80
    table.upsert([{**full_row(i), "text": long + str(i)} for i in range(4)])
    table.fold()
    lazy = pl.scan_delta(str(table.base_path))
    for condition in (
        pl.col("text") == long + "3",
        pl.col("text") > long,
        pl.col("price") == Decimal("12345681.90"),
        pl.col("wide") == Decimal("1234567890123456789012345678.0123456789"),
        pl.col("at") >= dt.datetime(2026, 3, 2, 2, 59, 59, 123456, UTC),
        pl.col("double") > 1e299,
        pl.col("raw") == bytes([0, 255, 3]),
        pl.col("normal") < -(2**31) + 4,
    ):
        assert (
            3 in lazy.filter(condition).collect()["id"].to_list()
            or 0 in lazy.filter(condition).collect()["id"].to_list()
        )
    dataset = DeltaTable(table.base_path).to_pyarrow_dataset()
    import pyarrow.dataset as ds

    assert dataset.to_table(filter=ds.field("text") == long + "3").num_rows == 1
    assert dataset.to_table(filter=ds.field("id") == 3).num_rows == 1
