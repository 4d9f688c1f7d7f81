"""Whatever a caller hands over becomes rows of exactly the table's schema."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lithify import InvalidRequest
from lithify.core.rows import check_row_sizes, keys_of, rows_of
from lithify.core.schema import define

SCHEMA = define(
    pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("price", pa.decimal128(6, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    ),
    "id",
)
ROW = {
    "id": 1,
    "name": "é",
    "price": Decimal("1.50"),
    "day": dt.date(2026, 1, 2),
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
}


def generated() -> Iterator[dict[str, Any]]:
    yield ROW


CONTAINERS: dict[str, Any] = {
    "a dict": ROW,
    "a list of dicts": [ROW],
    "a tuple of dicts": (ROW,),
    "an Arrow table": pa.Table.from_pylist([ROW], schema=SCHEMA.columns),
    "a record batch": pa.RecordBatch.from_pylist([ROW], schema=SCHEMA.columns),
    "a reader": pa.Table.from_pylist([ROW], schema=SCHEMA.columns).to_reader(),
    "a list of record batches": pa.Table.from_pylist([ROW], schema=SCHEMA.columns).to_batches(),
    "a list of tables": [pa.Table.from_pylist([ROW], schema=SCHEMA.columns)],
    "a generator of record batches": iter(pa.Table.from_pylist([ROW], schema=SCHEMA.columns).to_batches()),
    "an array of structs": pa.Table.from_pylist([ROW], schema=SCHEMA.columns).to_struct_array(),
    "pandas": pa.Table.from_pylist([ROW], schema=SCHEMA.columns).to_pandas(),
    "polars": pl.from_arrow(pa.Table.from_pylist([ROW], schema=SCHEMA.columns)),
    "columns in another order": pa.Table.from_pylist([ROW], schema=SCHEMA.columns).select(
        ["at", "price", "name", "day", "id"]
    ),
    "text as JSON has it": [{**ROW, "price": "1.50", "day": "2026-01-02", "at": "2026-01-02T03:04:05.000006Z"}],
    "a smaller integer": pa.Table.from_pylist([ROW], schema=SCHEMA.columns.set(0, pa.field("id", pa.int8()))),
    "large text": pa.Table.from_pylist([ROW], schema=SCHEMA.columns.set(1, pa.field("name", pa.large_string()))),
    "a dictionary": pa.table(
        {
            **{n: [v] for n, v in ROW.items()},
            "name": pa.array(["é"]).dictionary_encode(),
            "price": pa.array([ROW["price"]]),
        }
    ),
    "another zone": [{**ROW, "at": ROW["at"].astimezone(dt.timezone(dt.timedelta(hours=5)))}],
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_are_taken_from(container: str) -> None:
    data = CONTAINERS[container]
    table = rows_of(data, SCHEMA)
    assert table.schema == SCHEMA.columns
    assert table.to_pylist() == [ROW]


def test_rows_are_taken_from_a_generator() -> None:
    assert rows_of(generated(), SCHEMA).to_pylist() == [ROW]


def test_missing_columns_are_null() -> None:
    assert rows_of([{"id": 1}, {"id": 2, "name": "b"}], SCHEMA).column("name").to_pylist() == [None, "b"]
    assert rows_of(pd.DataFrame({"id": [1]}), SCHEMA).column("name").to_pylist() == [None]


def test_whole_floats_are_integers_in_columns_only() -> None:
    assert rows_of(pd.DataFrame({"id": [1.0]}), SCHEMA).column("id").to_pylist() == [1]
    with pytest.raises(InvalidRequest, match=r"column 'id', row 0: 1.0 does not fit int64: it takes whole numbers"):
        rows_of([{"id": 1.0}], SCHEMA)


PAIRS = define(pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())]), ["a", "b"])


@pytest.mark.parametrize(
    ("schema", "keys", "expected"),
    [
        (SCHEMA, 7, [{"id": 7}]),
        (SCHEMA, [7, 8], [{"id": 7}, {"id": 8}]),
        (SCHEMA, {"id": 7}, [{"id": 7}]),
        (SCHEMA, [{"id": 7}], [{"id": 7}]),
        (SCHEMA, pa.table({"id": [7]}), [{"id": 7}]),
        (SCHEMA, pl.DataFrame({"id": [7]}), [{"id": 7}]),
        (SCHEMA, pd.DataFrame({"id": [7]}), [{"id": 7}]),
        (SCHEMA, range(7, 9), [{"id": 7}, {"id": 8}]),
        (PAIRS, [(1, "x")], [{"a": 1, "b": "x"}]),
        (PAIRS, [{"b": "x", "a": 1}], [{"a": 1, "b": "x"}]),
    ],
)
def test_keys_are_taken_from(schema: Any, keys: Any, expected: list[dict[str, Any]]) -> None:
    assert keys_of(keys, schema).to_pylist() == expected


def test_a_row_that_is_too_large_is_found_among_small_ones() -> None:
    table = pa.table({"v": ["x"] * 100 + ["y" * 5000] + ["x"] * 100})
    with pytest.raises(InvalidRequest, match="row 100 "):
        check_row_sizes(table, bytes_max=4000)


@pytest.mark.parametrize(
    ("name", "number", "kind"),
    [
        ("at", 253_402_300_800_000_000, pa.timestamp("us", "UTC")),
        ("at", -62_135_596_800_000_001, pa.timestamp("us", "UTC")),
        ("day", 2_932_897, pa.date32()),
        ("day", -719_163, pa.date32()),
    ],
)
def test_only_years_that_every_engine_knows_are_taken(name: str, number: int, kind: pa.DataType) -> None:
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    step = -1 if number > 0 else 1

    def batch(last: int) -> pa.Table:
        return pa.table({"id": [1, 2, 3], name: pa.array([0, None, last], plain).cast(kind)})

    assert rows_of(batch(number + step), SCHEMA).num_rows == 3
    with pytest.raises(InvalidRequest, match=f"column '{name}' is not between the years 1 and 9999 in row 2"):
        rows_of(batch(number), SCHEMA)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        pa.table({"id": [1, 2]}),
        pa.table({"id": [1, 2]}).to_batches(),
        pa.table({"id": [1, 2]}).to_reader(),
        iter(pa.table({"id": [1, 2]}).to_batches()),
        pa.chunked_array([pa.array([{"id": 1}, {"id": 2}])]),
        pd.Series([1, 2]),
        pd.Index([1, 2]),
        pl.Series([1, 2]),
        range(1, 3),
        {1, 2},
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_come_in_every_container(keys: Any) -> None:
    assert sorted(keys_of(keys, SCHEMA).column("id").to_pylist()) == [1, 2]


def test_one_scalar_of_arrow_is_a_key() -> None:
    assert keys_of(pa.scalar(7), SCHEMA).to_pylist() == [{"id": 7}]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pa.array([1]), "one column without a name"),
        (pa.chunked_array([[1]]), "one column without a name"),
        (pd.Series([1]), "one column without a name"),
        (pl.Series([1]), "one column without a name"),
        ([pa.record_batch({"id": [1]}), ROW], "a dict stands among record batches"),
        ([ROW, pa.record_batch({"id": [1]})], "row 1 is RecordBatch"),
        ([pa.table({"id": [1]}), pa.table({"id": ["x"]})], "do not have the same columns"),
        (7, "cannot take rows from int"),
        ("text", "cannot take rows from str"),
        (object(), "cannot take rows from object"),
        (None, "cannot take rows from NoneType"),
        ([], "the batch is empty"),
    ],
)
def test_what_holds_no_rows_is_refused(data: Any, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rows_of(data, SCHEMA)
    assert said in str(refused.value)


def test_an_array_of_keys_needs_a_key_of_one_column() -> None:
    for schema in (define(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ["a", "b"]), define(SCHEMA.columns)):
        with pytest.raises(InvalidRequest, match="says nothing about which columns to delete by"):
            keys_of(pa.chunked_array([[1]]), schema)
