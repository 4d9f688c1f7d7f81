"""Table definitions: one spelling of every type, and settings that live in table properties alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lithify import Corruption, InvalidRequest
from lithify.core.names import TableName, check_column_name, is_job_folder, parse_table_name, quoted
from lithify.core.schema import define, from_properties, normalise

SPELLINGS: list[tuple[pa.DataType, pa.DataType]] = [
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary(16), pa.binary()),
    (pa.uint8(), pa.int16()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")),
    (pa.decimal256(38, 2), pa.decimal128(38, 2)),
    (pa.large_list(pa.int32()), pa.list_(pa.field("element", pa.int32()))),
    (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.field("value", pa.int16()))),
    (pa.struct([("a", pa.timestamp("ns"))]), pa.struct([("a", pa.timestamp("us"))])),
]


@pytest.mark.parametrize(("given", "spelled"), SPELLINGS, ids=[str(given) for given, _ in SPELLINGS])
def test_types_have_one_spelling(given: pa.DataType, spelled: pa.DataType) -> None:
    assert normalise(given, "c") == spelled
    assert normalise(spelled, "c") == spelled


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": "id"},
        {"key": ["id", "name"], "order_by": "at"},
        {"key": "id", "time": "at", "partition_by": ["name"]},
    ],
)
def test_a_definition_survives_its_properties(options: dict[str, Any]) -> None:
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    )
    schema = define(columns, **options)
    assert from_properties(schema.changes_columns, schema.properties(), "here") == schema


def test_key_columns_are_never_null() -> None:
    schema = define(pa.schema([("id", pa.int64()), ("v", pa.int64())]), "id")
    assert [f.nullable for f in schema.columns] == [False, True]
    assert all(f.nullable for f in schema.changes_columns), "a tombstone holds key columns only"


def test_a_foreign_table_is_named() -> None:
    with pytest.raises(Corruption, match=r"table a\.t"):
        from_properties(pa.schema([("id", pa.int64())]), {}, "table a.t")


def test_names() -> None:
    assert parse_table_name("shop.orders_2") == TableName("shop", "orders_2")
    assert str(TableName("shop", "orders")) == "shop.orders"
    assert quoted('a"b') == '"a""b"'
    assert is_job_folder("fold-" + "0" * 32)
    assert not is_job_folder("fold-" + "0" * 31)
    assert not is_job_folder("../" + "0" * 32)
    check_column_name("größe")
    with pytest.raises(InvalidRequest, match=r"try 'orders'"):
        parse_table_name("shop.Orders")


def test_a_name_may_begin_with_the_lakes_only_catalog() -> None:
    assert parse_table_name("lake.shop.orders") == TableName("shop", "orders")
    assert parse_table_name("lake.orders") == TableName("lake", "orders")
    assert parse_table_name("lake.lake.lake") == TableName("lake", "lake")
    with pytest.raises(InvalidRequest, match="there is no catalog 'prod'; a lake is one catalog, 'lake'"):
        parse_table_name("prod.shop.orders")
    for text in ("lake.shop.orders.more", "lake..orders", "..", "lake.shop.", "a.b.c.d"):
        with pytest.raises(InvalidRequest, match="is no table name"):
            parse_table_name(text)


COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.decimal128(10, 2)), ("s", pa.struct([("a", pa.int32())]))])


def test_a_fingerprint_is_the_same_in_every_process_and_version() -> None:
    assert define(COLUMNS, "id").fingerprint == "6d3ff9c6c2d9090b28bd63ca5ef3c19a"


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (COLUMNS, None),
        (COLUMNS, ["id", "v"]),
        (COLUMNS.append(pa.field("more", pa.int8())), "id"),
        (COLUMNS.set(1, pa.field("v", pa.decimal128(10, 3))), "id"),
        (COLUMNS.set(1, pa.field("w", pa.decimal128(10, 2))), "id"),
        (COLUMNS.set(1, pa.field("v", pa.decimal128(10, 2), nullable=False)), "id"),
        (COLUMNS.set(2, pa.field("s", pa.struct([("b", pa.int32())]))), "id"),
        (COLUMNS.set(2, pa.field("s", pa.struct([pa.field("a", pa.int32(), nullable=False)]))), "id"),
        (pa.schema([COLUMNS.field(1), COLUMNS.field(0), COLUMNS.field(2)]), "id"),
    ],
)
def test_a_fingerprint_changes_with_columns_and_key(columns: pa.Schema, key: Any) -> None:
    assert define(columns, key).fingerprint != define(COLUMNS, "id").fingerprint


def test_a_fingerprint_survives_the_log_and_other_spellings_of_a_type() -> None:
    definition = define(COLUMNS, "id")
    stored = from_properties(definition.changes_columns, definition.properties(), "a.t")
    other = COLUMNS.set(2, pa.field("s", pa.struct([("a", pa.uint16())])))
    assert stored.fingerprint == definition.fingerprint == define(other, "id").fingerprint
