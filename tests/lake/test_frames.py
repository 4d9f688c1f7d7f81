"""Rows in the forms that people reach for: pandas, polars, a few of them, or how many there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.errors import InvalidRequest, Unavailable

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


@pytest.fixture
def table(folder: Path) -> Iterator[Table]:
    """100 rows in base; of the pending changes one is new, one hides another, one deletes."""
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", COLUMNS, key="id")
        table.upsert([{"id": n, "v": f"v{n}"} for n in range(100)])
        table.fold()
        table.upsert([{"id": 3, "v": "changed"}, {"id": 1_000, "v": "new"}])
        table.delete([{"id": 7}])
        yield table


def test_pandas_and_polars_get_the_fresh_rows(table: Table) -> None:
    rows = table.to_arrow(["id", "v"], "id < 10 or id > 500").sort_by("id")

    pandas = table.to_pandas(["id", "v"], "id < 10 or id > 500").sort_values("id")
    polars = table.to_polars(["id", "v"], "id < 10 or id > 500").sort("id")

    assert pandas.to_dict("records") == polars.to_dicts() == rows.to_pylist()
    assert table.to_pandas(as_of=1).shape == table.to_polars(as_of=1).shape == (100, 2)


def test_a_library_that_is_missing_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)

    with pytest.raises(Unavailable, match="polars is not installed here: `pip install polars`, or use to_arrow"):
        table.to_polars()


def test_head_gives_some_rows(table: Table) -> None:
    assert table.head().num_rows == 10
    assert table.head(3).schema == COLUMNS
    assert table.head(1_000).num_rows == 100
    assert table.head(2, ["v"], "id = 3").to_pylist() == [{"v": "changed"}]


@pytest.mark.parametrize("rows", [0, -1, 2.5, "10", True, None])
def test_head_takes_a_number_of_rows(table: Table, rows: object) -> None:
    with pytest.raises(InvalidRequest, match="rows is a whole number from 1 on"):
        table.head(rows)  # type: ignore[arg-type]


def test_count_counts_fresh_rows(table: Table) -> None:
    assert table.count() == 100
    assert table.count("id < 10") == 9
    assert table.count("v = 'changed'", as_of=2) == 1
    assert table.count(as_of=1) == 100
    assert table.count("id < 0") == 0


def test_count_takes_a_condition_and_nothing_else(table: Table) -> None:
    for where in ("id <", "id = 1) or (true", "id in (select 1)", ""):
        with pytest.raises(InvalidRequest):
            table.count(where)


def test_a_lake_tells_the_size_of_its_tables(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        assert lake.stats() == []
        for name in ("a.one", "b.two"):
            lake.create_table(name, COLUMNS, key="id").upsert([{"id": 1, "v": "x"}])

        assert [(found.table, found.pending_rows) for found in lake.stats()] == [("a.one", 1), ("b.two", 1)]
