"""How text becomes rows, the same for every way in: a command, a request, a load on Spark, a stream, a pipeline.

Blocks of UTF-8 come in, batches of typed rows go out (`csv_rows`, `json_lines`), each with the records that are none:
the line where a record begins, the column that is to blame, why, and the record as it was. Memory is bounded by a
block, or by the largest record. Nothing is left out: every record is a row or a bad one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.missing_columns import needed_columns
from lithify.core.ops import WORDS, Op
from lithify.core.schema import TableSchema
from lithify.text.debezium import Envelope

RECORD_BYTES_MAX = 64 * 2**20
SHOWN_MAX = 60
NOT_NAMED = (
    "it lacks this column, and would set it to null whatever is there: give it in every record, or say missing='null' "
    "(--missing null)"
)
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
    enough to know; `envelope` opens messages to rows first; `named`: columns that each record has to name, but for one
    that deletes, even if it says null; `defaults`: what stands in columns that a record does not name, as JSON spells
    it.
    """

    columns: pa.Schema
    required: tuple[str, ...] = ()
    others: bool = False
    op_column: str | None = None
    first_bad: bool = False
    envelope: Envelope | None = None
    named: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


def rows_wanted(schema: TableSchema, complete: bool) -> Target:
    """Rows of a table. `complete`: those that lack a column are bad records."""
    required = tuple(column.name for column in schema.columns if not column.nullable)
    named = needed_columns(schema) if complete else ()
    return Target(schema.columns, required, named=named, defaults=schema.column_defaults)


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
        if (deletes := _deletes(rows, target)) is not None:
            lacking = pc.and_not(lacking, deletes)
        for at in np.flatnonzero(np.asarray(lacking)).tolist():
            found.setdefault(at, (name, "null, and it needs a value", None))
    return found


def _deletes(rows: pa.Table, target: Target) -> pa.ChunkedArray | None:
    """Which rows say that they delete; None: they say nothing."""
    if target.op_column is None or target.op_column not in rows.column_names:
        return None
    word = pc.utf8_lower(pc.utf8_trim_whitespace(rows.column(target.op_column)))
    return pc.is_in(word, pa.array(_DELETES))


def not_named(rows: pa.Table, target: Target, said: Sequence[Collection[str]] | None = None) -> Misfits:
    """Rows that lack a column which they have to name. `said`: what each names; by default all columns of `rows`."""
    wanted = set(target.named)
    at: Sequence[int]
    if said is None:
        at = range(rows.num_rows) if not wanted <= set(rows.column_names) else ()
    else:
        at = [number for number, names in enumerate(said) if not wanted <= set(names)]
    deletes = _deletes(rows, target) if at else None
    gone = np.zeros(rows.num_rows, bool) if deletes is None else np.asarray(deletes.to_numpy(), bool)
    found: Misfits = {}
    for number in at:
        if not gone[number]:
            there = rows.column_names if said is None else said[number]
            found[number] = (next(name for name in target.named if name not in there), NOT_NAMED, None)
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
