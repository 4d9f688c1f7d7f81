"""A remote table refuses rows that lack a column as a local one does."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, NotFound
from lithify.client.lake import RemoteLake

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.int64())])
FULL = {"id": 1, "note": "gift", "price": 5}


def test_rows_that_lack_a_column_are_refused_or_become_null(remote: RemoteLake, name: str) -> None:
    table = remote.create_table(name, COLUMNS, key="id")
    table.upsert([FULL])

    for short in ([{"id": 1, "price": 6}], pa.table({"id": [1], "price": [6]})):
        with pytest.raises(InvalidRequest, match="lack the column 'note'"):
            table.upsert(short)
    assert table.get(1) == FULL

    table.replace([{"id": 1, "price": 6}], missing="null")
    assert table.get(1) == {"id": 1, "note": None, "price": 6}


def test_a_column_that_it_does_not_know_yet_is_told(remote: RemoteLake, lake: Lake, name: str) -> None:
    table = remote.create_table(name, COLUMNS, key="id")
    lake.table(name).add_column(pa.field("stock", pa.int64()))

    with pytest.raises(InvalidRequest, match="lack the column 'stock'"):
        table.upsert([FULL])
    table.upsert([FULL], missing="null")
    assert lake.table(name).get(1) == {**FULL, "stock": None}


def test_the_choice_of_the_table_counts(remote: RemoteLake, lake: Lake, name: str) -> None:
    table = remote.create_table(name, COLUMNS, key="id", options={"missing_columns": "null"})
    table.upsert([{"id": 1}])
    assert table.get(1) == {"id": 1, "note": None, "price": None}

    lake.table(name).set_options({"missing_columns": None})
    with pytest.raises(InvalidRequest, match="lack the columns 'note', 'price'"):
        remote.table(name).upsert([{"id": 1}])


def test_defaults_are_told_set_and_filled_in(remote: RemoteLake, lake: Lake, name: str) -> None:
    table = remote.create_table(name, COLUMNS, key="id", defaults={"note": "it's"})
    table.add_column(pa.field("fee", pa.decimal128(6, 2)), default="1.5")
    table.add_column(pa.field("raw", pa.binary()), default=b"\x00\xff")
    lake.table(name).alter_column("price", default=7)  # the client does not know of this one yet
    table.upsert([{"id": 1}])
    lake.table(name).alter_column("price", default=8)  # nor of this
    table.upsert([{"id": 2}])
    table.alter_column("price", default=None)
    with pytest.raises(InvalidRequest, match="lack the column 'price'"):
        table.upsert([{"id": 3}])

    first = {"id": 1, "note": "it's", "price": 7, "fee": Decimal("1.50"), "raw": b"\x00\xff"}
    assert table.to_arrow().sort_by("id").to_pylist() == [first, {**first, "id": 2, "price": 8}]
    with pytest.raises(NotFound, match="'gone' is not in the table"):
        table.alter_column("gone", default=1)


def test_fields_inside_of_structs_change(remote: RemoteLake, lake: Lake, name: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("place", pa.struct([("city", pa.string())]))])
    table = remote.create_table(name, columns, key="id")
    table.upsert([{"id": 1, "place": {"city": "ulm"}}])
    table.add_column(pa.field("place.zip", pa.int64()))
    table.rename_column("place.city", "town")
    assert table.get(1) == {"id": 1, "place": {"town": "ulm", "zip": None}}
    table.drop_column("place.zip")
    with pytest.raises(InvalidRequest, match=r"place\.zip"):
        table.upsert(pa.table({"id": [1], "place": [{"town": "rom", "zip": 1}]}))
    assert lake.table(name).get(1) == {"id": 1, "place": {"town": "ulm"}}
