"""Rows that do not fit: refused as a whole, with the column, row and value named, and nothing changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake, NotFound, Table
from support.folders import memory_folder
from support.unchanged import nothing_changes

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("small", pa.int8()),
        pa.field("price", pa.decimal128(6, 2)),
        pa.field("name", pa.string()),
        pa.field("ratio", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("half", pa.float32()),
        pa.field("sizes", pa.list_(pa.int32())),
        pa.field("place", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        pa.field("must", pa.int32(), nullable=False),
    ]
)
GOOD: dict[str, Any] = {"id": 1, "small": 1, "price": Decimal("1.50"), "name": "ok", "ratio": 0.5, "must": 1}


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """One for all tests: each proves that it changed nothing."""
    with memory_folder() as folder, Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert([GOOD], missing="null")
        lake.create_table("a.pairs", pa.schema([("a", pa.int32()), ("b", pa.string())]), key=["a", "b"])
        lake.create_table("a.loose", pa.schema([("x", pa.int64()), ("f", pa.float64())]))
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("a.t")


def arrow(**columns: Any) -> pa.Table:
    """A batch of one good row, with some columns replaced."""
    whole = {name: pa.array([GOOD[name]], SCHEMA.field(name).type) for name in GOOD}
    return pa.table({**whole, **columns})


INVALID_TEXT = pa.array([b"\xff\xfe"]).view(pa.string())
BAD_ROWS: dict[str, tuple[Any, str]] = {
    "missing key": ([{"must": 1}], "'id'"),
    "null key": ([GOOD, {**GOOD, "id": None}], "'id' is null in row 1"),
    "missing key column in arrow": (arrow().drop_columns("id"), "'id'"),
    "null key in arrow": (arrow(id=pa.nulls(1, pa.int64())), "'id' is null in row 0"),
    "null in a required column": ([{**GOOD, "must": None}], "'must' is null in row 0"),
    "required column missing": ([{"id": 1}], "'must' is missing"),
    "a column too many": ([{**GOOD, "colour": "red"}], "'colour'"),
    "a column too many in arrow": (arrow(colour=["red"]), "'colour'"),
    "a column twice": (pa.Table.from_arrays([pa.array([1])] * 2, names=["id", "id"]), "'id' comes twice"),
    "text for a number": ([{**GOOD, "small": "many"}], "'small', row 0: 'many'"),
    "text for a number in arrow": (arrow(small=["7"]), "'small'"),
    "number for text": ([{**GOOD, "name": 7}], "'name', row 0: 7"),
    "number for text in arrow": (arrow(name=[7]), "'name'"),
    "fraction for an integer": ([{**GOOD, "small": 1.5}], "'small', row 0: 1.5"),
    "fraction for an integer in arrow": (arrow(small=[1.5]), "'small'"),
    "decimal fraction for an integer": ([{**GOOD, "small": Decimal("1.5")}], "'small', row 0"),
    "fraction inside a list": ([{**GOOD, "sizes": [1, 1.5]}], "'sizes[]', row 0"),
    "unknown field inside a struct": ([{**GOOD, "place": {"x": 1, "z": 3}}], "no other fields than x, y"),
    "time of day for a date": ([{**GOOD, "day": dt.datetime(2026, 1, 1, 5)}], "'day', row 0"),
    "time of day for a date in arrow": (arrow(day=[dt.datetime(2026, 1, 1, 5)]), "'day'"),
    "float in arrow with too many places": (arrow(price=[0.105]), "'price'"),
    "double too large for a float": ([{**GOOD, "half": 1e300}], "'half', row 0"),
    "double too large for a float in arrow": (arrow(half=[1e300]), "'half'"),
    "boolean for an integer": ([{**GOOD, "small": True}], "'small', row 0"),
    "boolean for a float": ([{**GOOD, "ratio": True}], "'ratio', row 0"),
    "boolean for an integer in arrow": (arrow(small=[True]), "'small'"),
    "overflow": ([GOOD, {**GOOD, "small": 128}], "'small', row 1: 128"),
    "overflow in arrow": (arrow(small=[300]), "'small'"),
    "overflow of int64": ([{**GOOD, "id": 2**63}], "'id', row 0: 9223372036854775808"),
    "uint64 that does not fit": (arrow(id=pa.array([2**63], pa.uint64())), "'id'"),
    "decimal with too many places": ([{**GOOD, "price": Decimal("1.005")}], "'price', row 0: Decimal"),
    "decimal with too many digits": ([{**GOOD, "price": Decimal("12345.00")}], "'price', row 0: Decimal"),
    "decimal text with too many places": ([{**GOOD, "price": "1.005"}], "'price', row 0: '1.005'"),
    "decimal in arrow with too many places": (arrow(price=[Decimal("1.005")]), "'price'"),
    "NaN for an integer": ([{**GOOD, "small": float("nan")}], "'small', row 0: nan"),
    "NaN for a decimal": ([{**GOOD, "price": float("nan")}], "'price', row 0: nan"),
    "NaN for an integer in pandas": (
        pd.DataFrame({"id": [1, 2], "small": [1.0, 1.5], "must": [1, 1]}, dtype="float64"),
        "'small'",
    ),
    "infinity for a decimal": ([{**GOOD, "price": Decimal("Infinity")}], "'price', row 0"),
    "invalid UTF-8": (arrow(name=INVALID_TEXT), "'name'"),
    "invalid UTF-8 bytes": ([{**GOOD, "name": b"\xff\xfe"}], "'name'"),
    "invalid UTF-8 in binary arrow": (arrow(name=pa.array([b"\xff\xfe"])), "'name'"),
    "lone surrogate": ([{**GOOD, "name": "\ud800"}], "'name', row 0"),
    "date that is none": ([{**GOOD, "day": "2026-02-30"}], "'day', row 0: '2026-02-30'"),
    "time without a zone": (arrow(at=pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us"))), "'at'"),
    "nanoseconds that would be cut": (arrow(at=pa.array([1], pa.timestamp("ns", "UTC"))), "'at'"),
    "empty list": ([], "empty"),
    "empty arrow": (SCHEMA.empty_table(), "empty"),
    "empty pandas": (pd.DataFrame({"id": []}), "empty"),
    "empty polars": (pl.DataFrame({"id": []}), "empty"),
    "nothing at all": (None, "NoneType"),
    "text instead of rows": ("id=1", "str"),
    "a number instead of rows": (7, "int"),
    "rows that are no dicts": ([(1, 2)], "row 0 is tuple"),
    "column names that are no text": ([{1: 2}], "column 1"),
    "a row of 100 MB": ([GOOD, {**GOOD, "id": 2, "name": "x" * 100_000_000}], "row 1 has 95 MiB"),
    "a numpy array": (np.zeros((2, 2)), "row 0 is ndarray"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_batch_is_refused_by_name(lake: Lake, table: Table, case: str) -> None:
    data, names = BAD_ROWS[case]
    with nothing_changes(lake), pytest.raises(InvalidRequest) as caught:
        table.upsert(data)
    assert names in str(caught.value)


BAD_KEYS: dict[str, tuple[str, Any, str]] = {
    "null": ("a.t", [None], "'id' is null"),
    "text for a number": ("a.t", ["seven"], "'id', key 0: 'seven'"),
    "fraction": ("a.t", [1.5], "'id', key 0: 1.5"),
    "none at all": ("a.t", [], "empty"),
    "another column": ("a.t", [{"name": "ok"}], "'name'"),
    "one column too many": ("a.t", [{"id": 1, "name": "ok"}], "'name'"),
    "half a key": ("a.pairs", [{"a": 1}], "'b'"),
    "half a tuple": ("a.pairs", [(1,)], "(1,) gives 1"),
    "a bare value without a key": ("a.loose", [1], "no key"),
    "an unknown column without a key": ("a.loose", [{"y": 1}], "'y'"),
    "floating point without a key": ("a.loose", [{"f": 1.5}], "'f' is floating point"),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_bad_keys_to_delete_are_refused_by_name(lake: Lake, case: str) -> None:
    name, keys, names = BAD_KEYS[case]
    with nothing_changes(lake), pytest.raises(InvalidRequest) as caught:
        lake.table(name).delete(keys)
    assert names in str(caught.value)


@pytest.mark.parametrize("case", ["", "x" * 257])
def test_a_bad_batch_id_is_refused(lake: Lake, table: Table, case: str) -> None:
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="batch_id"):
        table.upsert([GOOD], batch_id=case)


def test_upsert_without_a_key_is_refused(lake: Lake) -> None:
    for method in ("upsert", "replace"):
        with nothing_changes(lake), pytest.raises(InvalidRequest, match=r"a\.loose has no key"):
            getattr(lake.table("a.loose"), method)([{"x": 1}])
    with pytest.raises(InvalidRequest, match=r"a\.loose has no key"):
        lake.table("a.loose").get(1)


def test_the_last_row_of_a_key_in_a_batch_wins(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        commit = table.upsert([{**GOOD, "name": "first"}, {**GOOD, "id": 2}, {**GOOD, "name": "last"}], missing="null")
        assert commit.rows == 2
        assert table.get(1)["name"] == "last"


CONDITIONS = {
    "no SQL": "id ===",
    "an unknown column": "colour = 'red'",
    "two statements": "id = 1; drop table t",
    "not a condition": "id + 1",
    "an unknown function": "frobnicate(id)",
}


@pytest.mark.parametrize("case", CONDITIONS)
@pytest.mark.parametrize("method", ["delete_where", "to_arrow"])
def test_a_bad_condition_is_refused(lake: Lake, table: Table, case: str, method: str) -> None:
    with nothing_changes(lake), pytest.raises(InvalidRequest):
        table.delete_where(CONDITIONS[case]) if method == "delete_where" else table.to_arrow(where=CONDITIONS[case])


@pytest.mark.parametrize("as_of", [True, 1.5, "the day before", [1]])
def test_a_bad_as_of_is_refused(table: Table, as_of: Any) -> None:
    with pytest.raises(InvalidRequest, match="as_of"):
        table.to_arrow(as_of=as_of)


def test_a_word_that_is_no_tag_is_told_what_as_of_takes(table: Table) -> None:
    with pytest.raises(NotFound, match=r"no tag 'yesterday'.*as_of also takes a seq"):
        table.to_arrow(as_of="yesterday")


@pytest.mark.parametrize("since", [-1, 2, "1", None, True])
def test_a_bad_token_is_refused(table: Table, since: Any) -> None:
    with pytest.raises(InvalidRequest, match="since"):
        table.changes(since=since)


def test_an_unknown_column_to_read_is_refused(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="'colour'"):
        table.to_arrow(columns=["id", "colour"])
