"""How text becomes rows, the same for every way in: a command, a request, a load on Spark, a stream, a pipeline.

Blocks of UTF-8 come in, batches of typed rows go out (`csv_rows`, `json_lines`), each with the records that are none:
the line where a record begins, the column that is to blame, why, and the record as it was. Memory is bounded by a
block, or by the largest record. Nothing is left out: every record is a row or a bad one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.ops import WORDS, Op
from lithify.text.debezium import Envelope

RECORD_BYTES_MAX = 64 * 2**20
SHOWN_MAX = 60
UNDECODABLE = "bytes that are no text in its encoding: declare the right one, e.g. cp1252"
# Why rows are none, by their position: column, reason, value.
Misfits = dict[int, tuple[str | None, str, str | None]]
_DELETES = tuple(word for word, op in WORDS.items() if op is Op.DELETE)


@dataclass(frozen=True)
class BadRecord:
    """A record that is no row. `value` is what did not fit, as it was written, and is not for everybody's eyes."""

    file: str
    line: int | None
    column: str | None
    why: str
    record: str
    value: str | None = None

    @property
    def reason(self) -> str:
        return self.why if self.value is None else f"{cut(self.value)} {self.why}"

    def __str__(self) -> str:
        said = f"{self.location}: {self.reason}"
        return said if self.value is not None else f"{said}: {cut(self.record, 2 * SHOWN_MAX)}"

    @property
    def public(self) -> str:
        return f"{self.location}: {'the value ' if self.value is not None else ''}{self.why}"

    @property
    def location(self) -> str:
        parts = [self.file, f"line {self.line}" if self.line is not None else ""]
        return ", ".join(filter(None, [*parts, f"column {self.column!r}" if self.column is not None else ""]))


def bad_line(record: BadRecord) -> dict[str, object]:
    """As it is set aside."""
    return {
        "file": record.file,
        "line": record.line,
        "column": record.column,
        "why": record.reason,
        "record": record.record,
    }


@dataclass(frozen=True)
class TextBatch:
    """`names`: the columns that the records name, in whichever of them."""

    rows: pa.Table
    bad: Sequence[BadRecord]
    names: frozenset[str]


@dataclass(frozen=True)
class Target:
    """What rows are wanted: `required` columns need a value, but not in a row whose `op_column` says that it deletes;
    `others`: columns that are not wanted are passed over instead of refused; `first_bad`: the first bad record is
    enough to know; `envelope` opens messages to rows first.
    """

    columns: pa.Schema
    required: tuple[str, ...] = ()
    others: bool = False
    op_column: str | None = None
    first_bad: bool = False
    envelope: Envelope | None = None


def shown(record: bytes) -> str:
    """A record as text, with bytes that could not be decoded as \\xNN."""
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        text = record.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return record.decode("utf-8", "backslashreplace")
    return (
        "".join(f"\\x{ord(c) - 0xDC00:02x}" if 0xDC00 <= ord(c) < 0xDD00 else c for c in text)
        .encode("utf-8", "backslashreplace")
        .decode()
    )


def cut(text: str, most: int = SHOWN_MAX) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def missing(rows: pa.Table, target: Target) -> Misfits:
    """Rows without a value that they need."""
    found: Misfits = {}
    for name in target.required:
        if name in rows.column_names:
            lacking = pc.is_null(rows.column(name))
            if not rows.column(name).null_count:
                continue
        else:
            lacking = pa.array(np.ones(rows.num_rows, bool))
        if target.op_column is not None and target.op_column in rows.column_names:
            word = pc.utf8_lower(pc.utf8_trim_whitespace(rows.column(target.op_column)))
            lacking = pc.and_not(lacking, pc.is_in(word, pa.array(_DELETES)))
        for at in np.flatnonzero(np.asarray(lacking)).tolist():
            found.setdefault(at, (name, "null, and it needs a value", None))
    return found


def empty(names: Sequence[str], target: Target) -> pa.Table:
    return pa.schema([pa.field(name, target.columns.field(name).type) for name in names]).empty_table()


def with_last(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each block with whether it is the last one; at least one."""
    before = b""
    for block in blocks:
        if before:
            yield before, False
        before = block
    yield before, True
