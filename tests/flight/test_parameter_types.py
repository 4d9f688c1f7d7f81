"""What drivers are told of parameters before they send values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lithify.flight.parameter_types import parameter_types

INT, TEXT, DAY, AMOUNT = pa.int64(), pa.string(), pa.date32(), pa.decimal128(10, 2)
TABLES = {
    "shop.orders": pa.schema([("id", INT), ("day", DAY), ("amount", AMOUNT), ("note", TEXT)]),
    "shop.people": pa.schema([("id", TEXT), ("born", DAY)]),
}


@pytest.mark.parametrize(
    ("condition", "types"),
    [
        ("id = $1", [INT]),
        ("id=$1 AND day>=$2", [INT, DAY]),
        ("$1 < o.amount", [AMOUNT]),
        ('$1 <> "o"."note"', [TEXT]),
        ('o."day" != $1', [DAY]),
        ("id IN ($1, $2, 7, $3)", [INT, INT, INT]),
        ("day NOT IN ($1)", [DAY]),
        ("id BETWEEN $1 AND $2", [INT, INT]),
        ("day NOT BETWEEN $1 AND $2 AND id = $3", [DAY, DAY, INT]),
        ("id = 1 AND $1 = day", [DAY]),
        ("id = $2 OR amount = $1", [AMOUNT, INT]),
        ("note LIKE $1 LIMIT $2 OFFSET $3", [TEXT, INT, INT]),
        ("upper(note) = $1", [TEXT]),
        ("nothing = $1", [TEXT]),
        ("id + $1 = 3", [TEXT]),
        ("$1", [TEXT]),
        ("note = '$2' AND id = $1", [INT]),
    ],
)
def test_a_parameter_has_the_type_of_what_it_is_compared_with(condition: str, types: list[pa.DataType]) -> None:
    query = f"SELECT * FROM shop.orders o WHERE {condition}"
    assert parameter_types(query, len(types), TABLES.get).types == types


@pytest.mark.parametrize("tables", ["shop.orders", "lake.shop.orders", '"lake"."shop"."orders"', "x.y, shop.orders"])
def test_tables_by_all_their_names(tables: str) -> None:
    assert parameter_types(f"SELECT * FROM {tables} WHERE id = $1", 1, TABLES.get).types == [INT]


def test_where_two_tables_disagree_it_is_text() -> None:
    query = "SELECT * FROM shop.orders JOIN shop.people p ON true WHERE p.id = $1 AND amount > $2 AND born = $3"
    assert parameter_types(query, 3, TABLES.get).types == [TEXT, AMOUNT, DAY]


@pytest.mark.parametrize(
    "query", ["$1", "= $1", "in ($1", ", $1", "and $1", "between $1", "$1 =", "$1 = a.", "", ", and $1"]
)
def test_odd_texts_are_no_error(query: str) -> None:
    assert parameter_types(query, 1, TABLES.get).types == [TEXT]
