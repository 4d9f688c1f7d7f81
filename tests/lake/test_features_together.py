"""What a table may have beside each other: deletes in order, merge rules, an expiry, and columns that change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Table
from support.faults import FaultyStore

PAST = "2020-01-01T00:00:00Z"


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


def rows(lake: Lake, table: Table) -> list[dict[str, Any]]:
    found = table.to_arrow().sort_by("id").to_pylist()
    assert lake.sql(f"select * from {table.name} order by id").to_pylist() == found
    assert [table.get(row["id"]) for row in found] == found
    return found


def test_deletes_are_remembered_through_changes_of_columns(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.int32()), ("w", pa.string())])
    table = lake.create_table("a.t", columns, key="id", order_by="at")
    table.upsert([{"id": number, "at": 1, "v": number, "w": "x"} for number in (1, 2, 3)])
    table.delete([1], at=9)
    table.replace([{"id": 2, "at": 3, "v": 5, "w": "y"}])
    table.delete([2], at=10)
    table.fold()
    table.rename_column("v", "value")
    table.alter_column("value", type="int64")
    table.drop_column("w")
    assert rows(lake, table) == [{"id": 3, "at": 1, "value": 3}]

    table.upsert([{"id": 1, "at": 5, "value": 2**40}, {"id": 2, "at": 11, "value": 2**40}])

    expected = [{"id": 2, "at": 11, "value": 2**40}, {"id": 3, "at": 1, "value": 3}]
    assert rows(lake, table) == expected
    table.fold()
    assert rows(lake, table) == expected


def test_a_delete_in_order_that_comes_while_a_column_is_renamed(folder: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.int32())])
    path = folder / "lake"

    def delete() -> None:
        with Lake(path) as another:
            another.table("a.t").delete([1], at=5)
            another.table("a.t").replace([{"id": 2, "at": 3, "v": 7}])
            another.table("a.t").delete([2], at=9)

    with Lake(path, store=FaultyStore("columns.written", delete)) as lake:
        table = lake.create_table("a.t", columns, key="id", order_by="at")
        table.upsert([{"id": number, "at": 1, "v": number} for number in (1, 2, 3)])

        table.rename_column("v", "value")

        assert rows(lake, table) == [{"id": 3, "at": 1, "value": 3}]
        table.upsert([{"id": 1, "at": 4, "value": 1}, {"id": 2, "at": 10, "value": 2}])
        expected = [{"id": 2, "at": 10, "value": 2}, {"id": 3, "at": 1, "value": 3}]
        assert rows(lake, table) == expected
        table.fold()
        assert rows(lake, table) == expected


def test_columns_beside_those_with_merge_rules_change(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("w", pa.string())])
    table = lake.create_table("a.t", columns, key="id", merge_rules={"n": "sum"})
    table.upsert([{"id": 1, "n": 2, "w": "a"}])
    for change in (lambda: table.rename_column("n", "m"), lambda: table.drop_column("n")):
        with pytest.raises(InvalidRequest, match="merge rule 'sum'"):
            change()
    table.rename_column("w", "z")
    table.upsert([{"id": 1, "n": 2, "z": "b"}])
    assert rows(lake, table) == [{"id": 1, "n": 4, "z": "b"}]
    table.drop_column("z")
    table.upsert([{"id": 1, "n": 5}])
    assert rows(lake, table) == [{"id": 1, "n": 9}]
    table.fold()
    assert rows(lake, table) == [{"id": 1, "n": 9}]


def test_columns_beside_the_one_that_tells_the_expiry_change(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("w", pa.string())])
    table = lake.create_table("a.t", columns, key="id", expires="t + interval '1 days'")
    for change in (lambda: table.rename_column("t", "u"), lambda: table.drop_column("t")):
        with pytest.raises(InvalidRequest, match=r"option expires of table a\.t names it"):
            change()
    table.rename_column("w", "q")
    table.upsert([{"id": 1, "t": PAST, "q": "x"}, {"id": 2, "t": None, "q": "y"}])
    assert rows(lake, table) == [{"id": 2, "t": None, "q": "y"}]
    assert table.fold().expired_rows == 1
    assert rows(lake, table) == [{"id": 2, "t": None, "q": "y"}]


def test_what_is_deleted_in_order_stays_so_beside_an_expiry(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    table = lake.create_table("a.t", columns, key="id", order_by="at", expires="t")
    table.upsert([{"id": 1, "at": 1, "t": None}, {"id": 2, "at": 1, "t": PAST}, {"id": 3, "at": 1, "t": None}])
    table.delete([1], at=5)
    table.fold()
    table.upsert([{"id": 1, "at": 4, "t": None}, {"id": 2, "at": 2, "t": None}])
    expected = [{"id": 2, "at": 2, "t": None}, {"id": 3, "at": 1, "t": None}]
    assert rows(lake, table) == expected
    table.fold()
    assert rows(lake, table) == expected
