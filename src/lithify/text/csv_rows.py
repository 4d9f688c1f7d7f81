"""CSV text as typed rows: split by `csv_records`, fields taken apart by Arrow, values read by their columns' types.

The first record names the columns. Where nothing stands a value is null; a quoted empty value is empty text. A value
that is there fits as it is or is named: nothing is rounded, cut or guessed. Around everything but text blanks do not
matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lithify.core.column_types import ColumnType, type_of
from lithify.core.missing_columns import refused
from lithify.core.names import GIVEN, given_text
from lithify.core.type_text import type_name
from lithify.errors import InvalidRequest
from lithify.text.csv_records import FINE, WHY, Records, split_records
from lithify.text.text_rows import (
    RECORD_BYTES_MAX,
    UNDECODABLE,
    BadRecord,
    Misfits,
    Target,
    TextBatch,
    cut,
    empty,
    missing,
    not_named,
    shown,
    with_last,
)

_LEAF = 32


@dataclass(frozen=True)
class Header:
    """The column names of a CSV file, how many bytes and lines of its text they take."""

    names: tuple[str, ...]
    size: int
    lines: int


def read_header(blocks: Iterator[bytes], label: str) -> Header:
    """The first record."""
    buffer = b""
    for block, last in with_last(blocks):
        buffer += block
        records = split_records(buffer, last=last)
        if len(records):
            end = int(records.starts[1]) if len(records) > 1 else records.used
            lines = int(records.lines[1]) if len(records) > 1 else records.lines_used
            return Header(_names(buffer, records, label), end, lines)
        if len(buffer) > RECORD_BYTES_MAX:
            break
    if buffer.strip(b"\r\n"):
        raise InvalidRequest(f"{label}: its first line, the column names, does not come to an end")
    raise InvalidRequest(f"{label} is empty: a CSV file starts with a line of column names")


def _names(buffer: bytes, records: Records, label: str) -> tuple[str, ...]:
    record = buffer[int(records.starts[0]) : int(records.ends[0])]
    line = int(records.lines[0]) + 1
    if records.quoting[0] != FINE:
        raise InvalidRequest(f"{label}, line {line}: {WHY[int(records.quoting[0])]}: {cut(shown(record))}")
    try:
        record.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{label}, line {line}: {UNDECODABLE}: {cut(shown(record))}") from None
    fields = int(records.fields[0])
    table = _fields(record, [str(number) for number in range(fields)], None)
    names = tuple(column[0].as_py() or "" for column in table.columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"{label} has the column {twice!r} twice: rename one")
    # A table cannot have such a column; one with | in its name it can.
    if (other := _other_separator(names)) is not None and other != "|":
        raise InvalidRequest(_no_commas(label, other))
    return names


def _other_separator(names: Sequence[str]) -> str | None:
    """What stands between the fields of a file that has no commas."""
    return next((mark for mark in ";\t|" if mark in names[0]), None) if len(names) == 1 else None


def _no_commas(label: str, separator: str) -> str:
    return (
        f"{label}: its first line is one column, with {separator!r} in it: fields of CSV are separated by commas; "
        f"write the file with commas in place of {separator!r}"
    )


def check_header(names: Sequence[str], target: Target, label: str) -> None:
    """What can be said about a file by its column names."""
    for name in names:
        if target.columns.get_field_index(name) >= 0:
            kind = target.columns.field(name).type
            if pa.types.is_nested(kind):
                raise InvalidRequest(
                    f"{label}: column {name!r} is {type_name(kind)}, which CSV cannot hold: use JSON lines or Parquet"
                )
        elif not target.others:
            if (other := _other_separator(names)) is not None:
                raise InvalidRequest(_no_commas(label, other))
            raise InvalidRequest(
                f"{label} has a column {name!r} that the table does not have: it has {', '.join(target.columns.names)}"
            )
    lacking = [name for name in target.named if name not in names]
    if lacking and target.op_column is None:
        raise InvalidRequest(f"{label}: {refused(lacking)}")
    if len(target.columns) and not any(name in target.columns.names for name in names):
        raise InvalidRequest(f"{label} has none of the columns {', '.join(target.columns.names)}: is it really CSV?")


def csv_batches(
    blocks: Iterator[bytes], label: str, target: Target, header: Sequence[str], line: int = 1
) -> Iterator[TextBatch]:
    """Rows of blocks that begin with a record, on this `line`, behind the header."""
    for block, records, before in _whole_records(blocks, label, line):
        if len(records):
            yield _batch(block, records, before, label, target, header)


def _whole_records(blocks: Iterator[bytes], label: str, line: int) -> Iterator[tuple[bytes, Records, int]]:
    buffer = b""
    for block, last in with_last(blocks):
        buffer = buffer + block if buffer else block
        records = split_records(buffer, last=last)
        yield buffer, records, line
        line += records.lines_used
        buffer = buffer[records.used :]
        if len(buffer) > RECORD_BYTES_MAX:
            raise InvalidRequest(
                f"{label}, line {line}: a record of more than {RECORD_BYTES_MAX // 2**20} MiB begins here: is a quote "
                "not closed?"
            )


def _batch(block: bytes, records: Records, line: int, label: str, target: Target, header: Sequence[str]) -> TextBatch:
    why: Misfits = {}
    wrong = np.flatnonzero((records.quoting != FINE) | (records.fields != len(header)))
    for at in wrong.tolist():
        if records.quoting[at] != FINE:
            why[at] = (None, WHY[int(records.quoting[at])], None)
        else:
            fields = int(records.fields[at])
            why[at] = (None, f"it has {fields} field{'s' if fields != 1 else ''}, the header {len(header)}", None)
    for at in _undecodable(block, records):
        why[at] = (None, UNDECODABLE, None)
    if why:
        good = np.delete(np.arange(len(records)), sorted(why))
        pieces = zip(records.starts[good].tolist(), records.ends[good].tolist(), strict=True)
        text = b"\n".join([block[start:end] for start, end in pieces])
    else:
        good, text = np.arange(len(records)), block[: records.used]
    if not len(good):
        rows = empty([name for name in header if name in target.columns.names], target)
    else:
        texts = _fields(text, header, target)
        assert texts.num_rows == len(good), "CSV was split in two different ways"
        rows, misfits = _typed(texts, target)
        why |= {int(good[at]): said for at, said in misfits.items()}
    if not why:
        return TextBatch(rows, (), frozenset(rows.column_names))
    fitting = np.isin(good, sorted(why), invert=True)
    bad = [_bad(block, records, at, label, line, *why[at]) for at in sorted(why)]
    return TextBatch(rows.filter(pa.array(fitting)), bad, frozenset(rows.column_names))


def _bad(
    block: bytes, records: Records, at: int, label: str, line: int, column: str | None, why: str, value: str | None
) -> BadRecord:
    record = shown(block[int(records.starts[at]) : int(records.ends[at])])
    return BadRecord(label, line + int(records.lines[at]), column, why, record, value)


def _undecodable(block: bytes, records: Records) -> list[int]:
    """Records with bytes that are no UTF-8."""
    if block.isascii():
        return []
    found, start, view = [], 0, memoryview(block)[: records.used]
    while start < records.used:
        try:
            str(view[start:], "utf-8")
            break
        except UnicodeDecodeError as error:
            at = int(np.searchsorted(records.starts, start + error.start, "right")) - 1
            found.append(at)
            start = int(records.starts[at + 1]) if at + 1 < len(records) else records.used
    return found


def _fields(text: bytes, header: Sequence[str], target: Target | None) -> pa.Table:
    """All values as text: null where nothing stands, empty where an empty value is quoted."""
    known = [name for name in header if target is None or name in target.columns.names]
    return csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(use_threads=False, column_names=list(header), block_size=len(text) + 2),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            check_utf8=False,
            column_types={name: pa.string() for name in known},
            include_columns=known,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _typed(texts: pa.Table, target: Target) -> tuple[pa.Table, Misfits]:
    """Typed columns, and what does not fit by its row: the first column of it that is to blame."""
    misfits: Misfits = {}
    arrays: dict[str, pa.Array] = {}
    for name in texts.column_names:
        kind = target.columns.field(name).type
        given = texts.column(name).combine_chunks()
        arrays[name], bad = parse_values(given, kind)
        for at in bad.tolist():
            why = f"does not fit {type_name(kind)}: it takes {type_of(kind).wanted}"
            misfits.setdefault(at, (name, why, repr(cut(given[at].as_py()))))
    for name, value in target.defaults.items():
        if name not in arrays:
            one = type_of(target.columns.field(name).type).from_json([value])[0]
            arrays[name] = pa.repeat(one, texts.num_rows)
    rows = pa.table(arrays)
    if GIVEN in target.columns.names and GIVEN not in arrays:  # every record gives what its header names
        text = given_text(name for name in texts.column_names if name != target.op_column)
        rows = rows.append_column(GIVEN, pa.repeat(pa.scalar(text, pa.string()), rows.num_rows))
    return rows, not_named(rows, target) | missing(rows, target) | misfits


def parse_values(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    """The values, and the positions of those that do not fit, which are null."""
    known = type_of(kind)
    found = known.parsed(texts)
    if found is None:
        texts = known.trimmed(texts)
        found = known.parsed(texts)
    if found is not None:
        return found, np.empty(0, np.int64)
    bad = np.array(list(_misfits(texts, known, 0)), np.int64)
    mask = np.zeros(len(texts), bool)
    mask[bad] = True
    values = known.parsed(pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), texts))
    assert values is not None, "what remains fits"
    return values, bad


def _misfits(texts: pa.Array, kind: ColumnType, offset: int) -> Iterator[int]:
    """By halves: they are few in many."""
    if kind.parsed(texts) is not None:
        return
    if len(texts) == 1:
        yield offset
        return
    step = max(1, len(texts) // 2) if len(texts) > _LEAF else 1
    for start in range(0, len(texts), step):
        yield from _misfits(texts.slice(start, step), kind, offset + start)
