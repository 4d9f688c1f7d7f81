"""What is done with pieces of text files, in this process or by tasks elsewhere: looked through, read as rows, and what
is no row written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lithify.core import strict_json
from lithify.errors import InvalidRequest
from lithify.files.addresses import path_of
from lithify.files.staging import write_lines
from lithify.files.text_files import EXAMPLES_MAX, Piece, text_batches, value_types
from lithify.text.inferred_types import Seen, columns_of, json_columns, kinds_of, merged
from lithify.text.text_rows import BadRecord, Target, bad_line

Task = tuple[Sequence[Piece], Target]


@dataclass(frozen=True)
class Checked:
    """How many records there are, how many of them do not fit, and the first few of these."""

    records: int
    bad: int
    examples: tuple[BadRecord, ...]


def check(task: Task) -> Checked:
    pieces, target = task
    records = bad = 0
    examples: list[BadRecord] = []
    for piece in pieces:
        for batch in text_batches(piece, target):
            records += batch.rows.num_rows + len(batch.bad)
            bad += len(batch.bad)
            examples += batch.bad[: EXAMPLES_MAX - len(examples)]
    return Checked(records, bad, tuple(examples))


def write_bad(task: tuple[int, str, Sequence[Piece], Target]) -> str | None:
    """Records that do not fit as JSON lines in a folder; None where there are none."""
    number, folder, pieces, target = task
    bad = (record for piece in pieces for batch in text_batches(piece, target) for record in batch.bad)
    path = f"{folder}/part-{number:05}.json"
    return path if write_lines(path_of(path), (strict_json.dumps(bad_line(record)) for record in bad)) else None


# -- columns


def names_in(pieces: Sequence[Piece]) -> Target:
    """All columns that CSV files name, as text."""
    names = dict.fromkeys(name for piece in pieces for name in piece.header or ())
    return Target(pa.schema([(name, pa.string()) for name in names]))


def kinds(task: Task) -> Seen:
    """What the values of CSV files could be."""
    pieces, target = task
    found: Seen = {}
    for piece in pieces:
        found = kinds_of(pa.schema([(name, pa.string()) for name in piece.header or ()]).empty_table(), found)
        for batch in text_batches(piece, target):
            found = kinds_of(batch.rows, found)
    return found


def types(task: Task) -> pa.Schema:
    """The columns of JSON files, by their values."""
    return json_columns([value_types(piece) for piece in task[0]])


def found_columns(kind: str, parts: Sequence[Seen] | Sequence[pa.Schema], file: str) -> pa.Schema:
    """Of what all tasks have found (`kinds` or `types`)."""
    columns = columns_of(merged(parts)) if kind == "csv" else json_columns(parts)
    if not len(columns):
        raise InvalidRequest(f"no columns could be found in {file}: is it really {kind}?")
    return columns
