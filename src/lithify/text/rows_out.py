"""Rows on their way out: JSON, NDJSON, CSV and Arrow IPC, each as pieces that are made one after the other.

A piece holds at most PIECE_ROWS rows and about PIECE_BYTES, whatever the answer's size, so that a large answer is never
in memory a second time as text.

CSV: null is nothing at all, empty text is two quotes, so that a reader can tell them apart. Lines end with a newline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core import strict_json
from lithify.core.column_types import type_of
from lithify.core.json_rows import records
from lithify.errors import InvalidRequest

PIECE_ROWS = 10_000
PIECE_BYTES = 8 * 2**20


def json_document(head: dict[str, Any], rows: pa.Table) -> Iterator[bytes]:
    """One object: the fields of `head`, then `rows` as arrays."""
    start = strict_json.dumps(head)[:-1]
    yield start + (b',"rows":[' if head else b'"rows":[')
    separator = b""
    for batch in pieces(rows):
        if not batch.num_columns:
            values: list[Any] = [[]] * batch.num_rows
        else:
            values = list(zip(*(type_of(c.type).to_json(c) for c in batch.columns), strict=True))
        yield separator + strict_json.dumps(values)[1:-1]
        separator = b","
    yield b"]}"


def ndjson(rows: pa.Table) -> Iterator[bytes]:
    """One object per line."""
    for batch in pieces(rows):
        yield b"".join(strict_json.dumps(record) + b"\n" for record in records(batch))


def json_array(rows: pa.Table) -> Iterator[bytes]:
    """One array of objects, each on a line."""
    separator = b"[\n  "
    for batch in pieces(rows):
        yield separator + b",\n  ".join(map(strict_json.dumps, records(batch)))
        separator = b",\n  "
    yield b"\n]\n" if rows.num_rows else b"[]\n"


def csv(rows: pa.Table) -> Iterator[bytes]:
    yield _lines([pa.array([name], pa.string()) for name in rows.column_names])
    for batch in pieces(rows):
        yield _lines([type_of(column.type).to_text(column) for column in batch.columns])


def arrow_stream(rows: pa.Table) -> Iterator[bytes]:
    sink = _Sink()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        yield sink.taken()
        for batch in pieces(rows):
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def pieces(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    row_bytes = max(1, rows.nbytes // rows.num_rows)
    length = max(1, min(PIECE_ROWS, PIECE_BYTES // row_bytes))
    for start in range(0, rows.num_rows, length):
        yield from rows.slice(start, length).combine_chunks().to_batches()


def check_names(rows: pa.Table, otherwise: str = "") -> None:
    """Objects cannot hold two values of one name."""
    names = rows.column_names
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise InvalidRequest(
            f"two columns of the answer are called {twice[:60]!r}: give one another name (… AS other_name){otherwise}"
        )


def _lines(columns: list[pa.Array]) -> bytes:
    if not columns:
        return b""
    cells = [_cells(column) for column in columns]
    joined = pc.binary_join_element_wise(*cells, ",") if len(cells) > 1 else cells[0]
    return ("\n".join(joined.to_pylist()) + "\n").encode()


def _cells(text: pa.Array) -> pa.Array:
    needed = pc.or_(pc.match_substring_regex(text, '[,"\r\n]'), pc.equal(text, ""))
    if pc.any(needed).as_py():
        doubled = pc.replace_substring(text, '"', '""')
        text = pc.if_else(needed, pc.binary_join_element_wise('"', doubled, '"', ""), text)
    return pc.fill_null(text, "")


class _Sink:
    """A file that Arrow writes to and that is emptied after each batch."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: Any) -> int:
        self._written.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        taken, self._written = b"".join(self._written), []
        return taken

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
