"""Text files as pieces that can be read apart from each other, each with the line it begins on.

A file that is not packed, in an encoding whose line breaks cannot be mistaken, is cut into ranges of equal size.
Whether a line break there ends a CSV record depends on all quotes before it, so each range is looked at under both
assumptions, that it begins outside or inside of a quoted value: where its first record would begin, and whether its
quotes would be in order. Going through the ranges one by one then shows which of the two holds for each. Where quotes
are not in order nothing is assumed, and the file is one piece. All other files are one piece too, and are read as a
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa

from lithify.core.evolve import untold
from lithify.core.names import GIVEN
from lithify.errors import InvalidRequest
from lithify.files.text_input import TextInput, look_at
from lithify.text.csv_records import LF, QUOTE, first_misplaced, line_breaks
from lithify.text.csv_rows import check_header, csv_batches, read_header
from lithify.text.inferred_types import columns_of, kinds_of
from lithify.text.json_lines import json_batches, json_types
from lithify.text.text_rows import BadRecord, Target, TextBatch

RANGE_BYTES = 32 * 2**20
EXAMPLES_MAX = 5


@dataclass(frozen=True)
class Range:
    """Bytes of a file that are looked at for where records begin in them."""

    input: TextInput
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True)
class Look:
    """What was found in a range, if it begins outside (0) or inside (1) of a quoted value: the first record's start
    and the lines before it in the range (None: no record begins), and whether the quotes are in order.
    """

    lines: int
    quotes: int
    first: tuple[tuple[int, int] | None, tuple[int, int] | None]
    in_order: tuple[bool, bool]


Looker = Callable[[Sequence[Range]], Sequence[Look]]


@dataclass(frozen=True)
class Piece:
    """A part of a file that begins with a record on `line`. `drop`: bytes of text (the header) that come before it."""

    input: TextInput
    header: tuple[str, ...] | None
    line: int
    start: int = 0
    end: int | None = None
    drop: int = 0
    modified_us: int = 0

    @property
    def size(self) -> int:
        return (self.input.size if self.end is None else self.end) - self.start


def look(part: Range) -> Look:
    """Needs the byte before and the byte behind the range too: quotes and \\r\\n may lie across its edges."""
    whole, first = part.input.size, part.start == part.input.skip
    begin, end = part.start if first else part.start - 1, min(part.end + 1, whole)
    raw = b"".join(part.input.raw_blocks(begin, end, RANGE_BYTES + 2))
    padded = b"\n" + raw if first else raw
    padded = padded if part.end < whole else padded + b"\n"
    data = np.frombuffer(padded, np.uint8)
    breaks = line_breaks(padded, data, last=True) if part.quoted else np.flatnonzero(data == LF)
    breaks = breaks[(breaks >= 1) & (breaks < len(data) - 1)]
    if not part.quoted or QUOTE not in padded:
        start = _first(breaks, part.start)
        return Look(len(breaks), 0, (start, None if part.quoted else start), (True, True))
    quotes = np.flatnonzero(data == QUOTE)
    quotes = quotes[(quotes >= 1) & (quotes < len(data) - 1)]
    odd = np.searchsorted(quotes, breaks) % 2
    starts = _first(breaks, part.start, odd == 0), _first(breaks, part.start, odd == 1)
    fine = [first_misplaced(data, quotes, opened=opened) == len(data) for opened in (False, True)]
    return Look(len(breaks), len(quotes), starts, (fine[0], fine[1]))


def _first(breaks: np.ndarray, start: int, wanted: np.ndarray | None = None) -> tuple[int, int] | None:
    """The offset behind the first break, and how many there are up to it. The data has one byte before `start`."""
    if not len(breaks) or (wanted is not None and not wanted.any()):
        return None
    at = 0 if wanted is None else int(np.argmax(wanted))
    return start + int(breaks[at]), at + 1


def plan(
    files: Sequence[str], kind: str, target: Target, encoding: str | None, looker: Looker | None = None
) -> list[Piece]:
    """Pieces of all files in order. Headers are read and checked; large files are cut where `looker` can look at many
    ranges.
    """
    pieces: list[Piece] = []
    for file in files:
        path = Path(file)
        text = look_at(path, file, encoding)
        modified = path.stat().st_mtime_ns // 1000
        if kind == "csv":
            header = read_header(text.blocks(), file)
            check_header(header.names, target, file)
            whole = Piece(text, header.names, header.lines + 1, drop=header.size, modified_us=modified)
        else:
            whole = Piece(text, None, 1, modified_us=modified)
        cut = text.cuttable and text.size > 2 * RANGE_BYTES and looker is not None and not _is_array(whole)
        pieces += _cut(whole, looker) if cut and looker is not None else [whole]
    return pieces


def _is_array(piece: Piece) -> bool:
    return piece.header is None and next(piece.input.blocks(), b"").lstrip()[:1] == b"["


def _cut(whole: Piece, looker: Looker) -> list[Piece]:
    text, quoted = whole.input, whole.header is not None
    edges = [text.skip, *range(RANGE_BYTES, text.size - RANGE_BYTES // 2, RANGE_BYTES), text.size]
    ranges = [Range(text, start, end, quoted) for start, end in pairwise(edges)]
    side, lines = 0, 1
    starts: list[tuple[int, int]] = []
    for number, found in enumerate(looker(ranges)):
        if not found.in_order[side]:
            return [whole]
        first = found.first[side]
        if number and first is not None and first[0] >= text.skip + whole.drop:
            starts.append((first[0], lines + first[1]))
        side ^= found.quotes & 1
        lines += found.lines
    ends = [begin for begin, _ in starts] + [None]
    first_piece = Piece(text, whole.header, whole.line, 0, ends[0], whole.drop, whole.modified_us)
    return [
        first_piece,
        *(
            Piece(text, whole.header, line, begin, end, 0, whole.modified_us)
            for (begin, line), end in zip(starts, ends[1:], strict=True)
        ),
    ]


def text_batches(piece: Piece, target: Target) -> Iterator[TextBatch]:
    text = piece.input
    if isinstance(text.source, Path) and text.source.stat().st_size != text.size:
        raise InvalidRequest(f"{text.label} has changed while it was read: read it again when it is complete")
    blocks = _without(text.blocks(piece.start, piece.end), piece.drop)
    if piece.header is not None:
        return csv_batches(blocks, text.label, target, piece.header, piece.line)
    return json_batches(blocks, text.label, target, piece.line)


def value_types(piece: Piece) -> pa.Schema:
    """The columns of a JSON file, by their values."""
    return json_types(piece.input.blocks(), piece.input.label)


def _without(blocks: Iterator[bytes], drop: int) -> Iterator[bytes]:
    for block in blocks:
        rest = block[drop:]
        drop = max(0, drop - len(block))
        if rest:
            yield rest


def present(pieces: Sequence[Piece], target: Target) -> pa.Schema:
    """The wanted columns that files have; JSON lines may have any of them."""
    if any(piece.header is None for piece in pieces):
        return target.columns
    found = {name for piece in pieces for name in piece.header or ()} | {*target.defaults, GIVEN}
    return pa.schema([f for f in target.columns if f.name in found])


def read_text(
    source: PurePath | bytes, label: str, kind: str, target: Target, encoding: str | None = None, *, unpack: bool = True
) -> tuple[pa.Table, list[BadRecord]]:
    """Everything at once: the rows with the columns that are named, and all that is none. `unpack`: packed data is
    unpacked, whatever size it may have then; else it is refused.
    """
    text = look_at(source, label, encoding)
    if text.packed is not None and not unpack:
        raise InvalidRequest(f"{label} is packed with {text.packed}: say so, or send it as it is")
    if kind == "csv":
        header = read_header(text.blocks(), label)
        check_header(header.names, target, label)
        piece = Piece(text, header.names, header.lines + 1, drop=header.size)
    else:
        piece = Piece(text, None, 1)
    return gathered([piece], target)


def new_columns(
    source: PurePath | bytes,
    label: str,
    kind: str,
    known: pa.Schema,
    encoding: str | None = None,
    *,
    unpack: bool = True,
) -> pa.Schema:
    """The columns that a text has besides those that are known, by their values; one without any is refused."""
    text = look_at(source, label, encoding)
    if text.packed is not None and not unpack:
        return pa.schema([])  # whoever reads the rows refuses it
    if kind == "csv":
        header = read_header(text.blocks(), label)
        names = [name for name in header.names if name not in known.names]
        target = Target(pa.schema([(name, pa.string()) for name in names]), others=True)
        piece = Piece(text, header.names, header.lines + 1, drop=header.size)
        rows, _ = gathered([piece], target)
        seen = kinds_of(rows, {})
        found, empty = columns_of(seen), [name for name, kinds in seen.items() if kinds is None]
    else:
        types = json_types(text.blocks(), label)
        found = pa.schema([f for f in types if f.name not in known.names])
        piece = Piece(text, None, 1)
        rows, _ = gathered([piece], Target(found, others=True)) if len(found) else (found.empty_table(), [])
        empty = [name for name in rows.column_names if rows.column(name).null_count == rows.num_rows]
    if empty:
        raise untold(empty[0])
    return found


def gathered(pieces: Sequence[Piece], target: Target) -> tuple[pa.Table, list[BadRecord]]:
    found: list[TextBatch] = []
    for batch in (batch for piece in pieces for batch in text_batches(piece, target)):
        found.append(batch)
        if target.first_bad and batch.bad:
            break
    bad = [record for batch in found for record in batch.bad]
    rows = [batch.rows for batch in found if batch.rows.num_rows]
    columns = pa.schema([pa.field(f.name, f.type) for f in target.columns])
    named = {name for batch in found for name in batch.names}
    table = pa.concat_tables([columns.empty_table(), *rows], promote_options="default")
    return table.select([name for name in columns.names if name in named]) if named else table, bad


def refused(bad: Sequence[BadRecord], count: int, table: str, then: str) -> InvalidRequest:
    """The error about records that do not fit, with the first of them."""
    some = f"{count:,} records do" if count > 1 else "a record does"
    examples = bad[:EXAMPLES_MAX]
    lines = "\n  ".join(map(str, examples))
    public = "; ".join(record.public for record in examples)
    said = f"{some} not fit table {table}; nothing was written"
    first = ". The first ones:" if count > len(examples) else ":"
    return InvalidRequest(f"{said}{first}\n  {lines}\n{then}", public=f"{said}: {public}")
