"""Upserts of rows that lack a column of the table would set it to null: they are refused, unless that is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, Table
from lithify.core.missing_columns import needed_columns
from lithify.core.schema import define

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.int64())])
FULL = {"id": 1, "note": "gift", "price": 5}


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.create_table("a.t", COLUMNS, key="id")
    table.upsert([FULL])
    return table


def lacking(kind: str) -> Any:
    columns = {"id": [1], "price": [6]}
    match kind:
        case "dicts":
            return [{"id": 1, "price": 6}]
        case "one dict":
            return {"id": 1, "price": 6}
        case "an iterator":
            return iter([{"id": 1, "price": 6}])
        case "arrow":
            return pa.table(columns)
        case "a batch":
            return pa.RecordBatch.from_pydict(columns)
        case "a reader":
            return pa.table(columns).to_reader()
        case "pandas":
            return pd.DataFrame(columns)
        case _:
            return pl.DataFrame(columns)


KINDS = ["dicts", "one dict", "an iterator", "arrow", "a batch", "a reader", "pandas", "polars"]


@pytest.mark.parametrize("write", ["upsert", "append", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_lack_a_column_are_refused_with_the_choices(table: Table, kind: str, write: str) -> None:
    with pytest.raises(InvalidRequest, match=r"lack the column 'note'.*missing='null'.*update"):
        getattr(table, write)(lacking(kind))

    assert table.get(1) == FULL
    assert table.snapshot().seq == 1


@pytest.mark.parametrize("write", ["upsert", "append", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_says_so_writes_null(table: Table, kind: str, write: str) -> None:
    getattr(table, write)(lacking(kind), missing="null")

    assert table.get(1) == {"id": 1, "note": None, "price": 6}


def test_a_row_that_does_not_name_a_column_lacks_it_though_others_name_it(table: Table) -> None:
    rows = [FULL, {"id": 2, "price": None, "note": None}, {"id": 3, "note": "x"}, {"id": 4, "price": 1}]

    with pytest.raises(InvalidRequest, match=r"columns 'note', 'price' \(the first one is row 2\)"):
        table.upsert(rows)

    table.upsert(rows[:2])
    assert table.get(2) == {"id": 2, "note": None, "price": None}


def test_a_record_batch_that_lacks_a_column_lacks_it_though_others_have_it(table: Table) -> None:
    full, short = pa.RecordBatch.from_pylist([FULL]), pa.RecordBatch.from_pylist([{"id": 2, "price": 6}])

    with pytest.raises(InvalidRequest, match=r"'note' \(the first one is row 1\)"):
        table.upsert([full, short])
    table.upsert([full, short], missing="null")
    table.upsert([full, pa.RecordBatch.from_pylist([{"price": 7, "note": "n", "id": 2}])])
    assert table.get(2) == {"id": 2, "note": "n", "price": 7}


def test_a_misspelt_column_is_told_as_such(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="'nota' is not in the table"):
        table.upsert(pa.table({"id": [1], "nota": ["x"], "price": [1]}))
    with pytest.raises(InvalidRequest, match="'nota' is not in the table"):
        table.upsert([{"id": 1, "nota": "x", "price": 1}])


def test_a_word_that_is_none_is_refused(table: Table) -> None:
    with pytest.raises(InvalidRequest, match=r"'null' \(write null there\) or 'refuse', not 'skip'"):
        table.upsert([FULL], missing="skip")  # type: ignore[arg-type]


def test_rows_that_are_there_already_are_compared_only_if_they_are_whole(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        table.upsert([{"id": 1, "price": 5}], if_changed=True)
    assert table.upsert([FULL], if_changed=True).skipped == 1
    assert table.upsert([{"id": 1, "price": 5}], if_changed=True, missing="null").rows == 1


def test_a_table_without_a_key_fills_nulls_as_nothing_is_there_to_lose(lake: Lake) -> None:
    events = lake.create_table("a.events", COLUMNS)

    events.append([{"id": 1}, {"id": 2, "note": "x"}])

    assert events.options["missing_columns"] == "null"
    assert sorted(row["id"] for row in events.to_arrow().to_pylist()) == [1, 2]


# -- the table's own choice


def test_the_table_says_what_holds_where_nothing_is_said(table: Table) -> None:
    assert table.options["missing_columns"] == "refuse"

    table.set_options({"missing_columns": "null"})
    table.upsert([{"id": 1, "price": 6}])
    assert table.get(1) == {"id": 1, "note": None, "price": 6}
    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        table.upsert([{"id": 1, "price": 6}], missing="refuse")

    table.set_options({"missing_columns": None})
    assert table.options["missing_columns"] == "refuse"
    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        table.upsert([{"id": 1, "price": 6}])


def test_it_is_said_at_creation_too_and_checked(lake: Lake) -> None:
    table = lake.create_table("a.n", COLUMNS, key="id", options={"missing_columns": "null"})
    table.upsert([{"id": 1}])

    assert table.get(1) == {"id": 1, "note": None, "price": None}
    lake.execute("CREATE TABLE a.m (id bigint PRIMARY KEY, note text) WITH (missing_columns = 'null')")
    lake.table("a.m").upsert([{"id": 1}])
    with pytest.raises(InvalidRequest, match="it is refuse or null"):
        table.set_options({"missing_columns": "skip"})


def test_a_table_from_before_goes_on_as_it_was_made(folder: Path) -> None:
    with Lake(folder / "old") as lake:
        lake.create_table("a.t", COLUMNS, key="id").upsert([FULL])
    _forget_the_option(folder / "old" / "a" / "t" / "changes" / "_delta_log" / f"{0:020}.json")

    with Lake(folder / "old") as lake:
        table = lake.table("a.t")
        assert table.options["missing_columns"] == "null"
        table.upsert([{"id": 1, "price": 6}])
        assert table.get(1) == {"id": 1, "note": None, "price": 6}
        with pytest.raises(InvalidRequest, match="lack the column 'note'"):
            table.upsert([{"id": 1, "price": 6}], missing="refuse")
        table.set_options({"missing_columns": "refuse"})
        with pytest.raises(InvalidRequest, match="lack the column 'note'"):
            table.upsert([{"id": 1, "price": 6}])


def _forget_the_option(commit: Path) -> None:
    """As a program from before there was the option has made the table."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            del action["metaData"]["configuration"]["lithify.missing_columns"]
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


# -- columns that come later


def test_a_writer_that_does_not_know_a_new_column_is_refused_and_told(folder: Path, table: Table) -> None:
    with Lake(folder / "lake") as elsewhere:
        other = elsewhere.table("a.t")
        other.upsert([FULL])
        table.add_column(pa.field("stock", pa.int64()))
        table.update([{"id": 1, "stock": 9}])

        with pytest.raises(InvalidRequest, match="lack the column 'stock'"):
            other.upsert([{**FULL, "price": 7}])

        assert other.get(1) == {**FULL, "stock": 9}
        other.update([{**FULL, "price": 7}])
        assert other.get(1) == {**FULL, "price": 7, "stock": 9}
        other.upsert([FULL], missing="null")
        assert other.get(1) == {**FULL, "stock": None}


def test_a_batch_that_was_written_before_is_answered_as_then(table: Table) -> None:
    first = table.upsert([FULL], batch_id="b1")
    table.add_column(pa.field("stock", pa.int64()))

    again = table.upsert([FULL], batch_id="b1")

    assert (again.replayed, again.seq) == (True, first.seq)


def test_evolving_adds_columns_and_rows_still_name_all_of_them(table: Table) -> None:
    table.upsert([{**FULL, "size": "L"}], evolve=True)

    assert table.get(1) == {**FULL, "size": "L"}
    with pytest.raises(InvalidRequest, match="lack the column 'size'"):
        table.upsert([FULL], evolve=True)


# -- merge rules


def test_columns_with_a_rule_that_passes_over_null_may_be_left_out(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("top", pa.int64()), ("note", pa.string())])
    table = lake.create_table("a.r", columns, key="id", merge_rules={"n": "count", "top": "max"})

    table.upsert([{"id": 1, "note": "a"}, {"id": 1, "note": "b", "top": 3}])
    assert table.get(1) == {"id": 1, "n": 2, "top": 3, "note": "b"}
    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        table.upsert([{"id": 1, "top": 4}])
    with pytest.raises(InvalidRequest, match="lack the columns 'n', 'top'"):
        table.replace([{"id": 1, "note": "c"}])
    table.upsert([{"id": 1}], missing="null")
    assert table.get(1) == {"id": 1, "n": 3, "top": 3, "note": None}


def test_a_rule_that_takes_null_needs_its_column() -> None:
    schema = define(COLUMNS, "id", merge_rules={"note": "last", "price": "sum"})

    assert needed_columns(schema) == ("note",)
    assert needed_columns(schema, sets=True) == ("note", "price")


# -- SQL keeps to its own rule


def test_an_insert_in_sql_may_leave_columns_out(lake: Lake, table: Table) -> None:
    lake.execute("INSERT INTO a.t (id, note) VALUES (2, 'x')")

    assert table.get(2) == {"id": 2, "note": "x", "price": None}
