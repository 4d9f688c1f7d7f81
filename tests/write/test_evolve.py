"""Columns that rows bring and a table does not have are added first, if the rows fit then; else nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, Table

COLUMNS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("m", pa.int64())])
ROW = {"id": 1, "part": "a", "m": 1}


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.create_table("a.t", COLUMNS, key="id", partition_by="part")
    table.upsert([ROW])
    return table


def upsert(table: Table, rows: Any, **wishes: Any) -> object:
    return table.upsert(rows, evolve=True, **wishes)


def append(table: Table, rows: Any, **wishes: Any) -> object:
    return table.append(rows, evolve=True, **wishes)


def update(table: Table, rows: Any, **wishes: Any) -> object:
    return table.update(rows, evolve=True, **wishes)


REFUSED = [
    ({"id": 2, "part": "b", "m": "x", "zz": 1}, "does not fit"),
    ({"id": None, "part": "b", "m": 1, "zz": 1}, "id"),
    ({"id": 2, "part": "", "m": 1, "zz": 1}, "empty text"),
    ({"id": 2, "part": "b", "m": 1, "zz": 1, "ZZ": 1}, "differ only in case"),
    ({"id": 2, "part": "b", "m": 1, "zz": 1, "_seq": 1}, "reserved"),
    ({"id": 2, "part": "b", "m": 1, "zz": 1, "M": 1}, "differ only in case"),
    ({"id": 2, "part": "b", "m": 1, "zz": 1, "n": None}, "null in all rows"),
]


@pytest.mark.parametrize("write", [upsert, append, update])
@pytest.mark.parametrize(("row", "said"), REFUSED)
def test_a_write_that_is_refused_adds_no_column(
    table: Table, write: Callable[..., object], row: dict[str, Any], said: str
) -> None:
    seq = table.snapshot().seq
    with pytest.raises(InvalidRequest, match=said):
        write(table, [row])
    assert (table.schema.names, table.snapshot().seq) == (COLUMNS.names, seq)


def test_rows_that_lack_a_column_add_none(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="lack the column 'm'"):
        upsert(table, [{"id": 2, "part": "b", "zz": 1}])
    assert table.schema.names == COLUMNS.names
    upsert(table, [{"id": 2, "part": "b", "zz": 1}], missing="null")
    assert table.get(2) == {"id": 2, "part": "b", "m": None, "zz": 1}


def test_batches_that_are_read_once_are_told_by_their_types(table: Table) -> None:
    def batches(m: Any) -> pa.RecordBatchReader:
        rows = pa.table({"id": [2], "part": ["b"], "m": [m], "zz": [1]})
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())

    with pytest.raises(InvalidRequest, match="does not fit int64"):
        upsert(table, batches(True))
    assert table.schema.names == COLUMNS.names
    upsert(table, batches(2))
    assert table.get(2) == {"id": 2, "part": "b", "m": 2, "zz": 1}


def test_an_update_adds_what_is_new_and_leaves_the_rest(table: Table) -> None:
    update(table, [{"id": 1, "zz": 7}])
    assert table.get(1) == {**ROW, "zz": 7}


def test_a_table_without_a_key_is_not_changed_by_what_it_refuses(lake: Lake) -> None:
    keyless = lake.create_table("a.k", COLUMNS)
    for write in (upsert, update):
        with pytest.raises(InvalidRequest, match="no key"):
            write(keyless, [{**ROW, "zz": 1}])
    assert keyless.schema.names == COLUMNS.names
    append(keyless, [{**ROW, "zz": 1}])
    assert keyless.to_arrow().to_pylist() == [{**ROW, "zz": 1}]


def test_a_fingerprint_is_of_the_table_before(table: Table) -> None:
    before = table.definition.fingerprint
    with pytest.raises(Conflict, match="made for"):
        upsert(table, [{**ROW, "zz": 1}], schema_fingerprint="0" * 32)
    assert table.schema.names == COLUMNS.names
    upsert(table, [{**ROW, "zz": 1}], schema_fingerprint=before)
    assert table.get(1) == {**ROW, "zz": 1}
    with pytest.raises(Conflict, match="made for"):
        upsert(table, [{**ROW, "zz": 1, "y": 1}], schema_fingerprint=before)
    assert table.schema.names == [*COLUMNS.names, "zz"]
