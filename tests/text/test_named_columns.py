"""Records that have to name columns: those that do not are bad ones, with their line."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lithify.errors import InvalidRequest
from lithify.files.text_files import read_text
from lithify.text.text_rows import Target

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("op", pa.string())])


def target(op_column: str | None = None) -> Target:
    return Target(COLUMNS, named=("note",), op_column=op_column)


def test_a_json_record_that_does_not_name_a_column_is_bad() -> None:
    lines = b'{"id": 1, "note": null}\n{"id": 2}\n{"id": 3, "note": "x"}\n'

    rows, bad = read_text(lines, "in", "json", target())

    assert rows.column("id").to_pylist() == [1, 3]
    assert [(record.line, record.column) for record in bad] == [(2, "note")]
    assert "missing='null'" in bad[0].reason


def test_a_record_that_deletes_needs_no_more_than_it_says() -> None:
    lines = b'{"id": 1, "op": "delete"}\n{"id": 2, "op": "insert"}\n'

    rows, bad = read_text(lines, "in", "json", target("op"))

    assert rows.column("id").to_pylist() == [1]
    assert [record.line for record in bad] == [2]


def test_csv_is_told_by_its_header_or_record_by_record_where_some_delete() -> None:
    with pytest.raises(InvalidRequest, match="in: the rows lack the column 'note'"):
        read_text(b"id\n1\n", "in", "csv", target())

    rows, bad = read_text(b"id,op\n1,d\n2,u\n", "in", "csv", target("op"))

    assert rows.column("id").to_pylist() == [1]
    assert [(record.line, record.column) for record in bad] == [(3, "note")]
    rows, bad = read_text(b"id,note\n1,\n", "in", "csv", target())
    assert (rows.num_rows, bad) == (1, [])
