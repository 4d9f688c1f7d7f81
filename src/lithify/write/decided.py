"""Writes that look at the table first: their rows are chosen on one snapshot, and committed only if it is still the
newest. Who was overtaken looks again and chooses again.

`if_changed` leaves out rows that stand there already, value for value. What is left is written as ever; where nothing
is left, and nothing has to be remembered of it, there is no commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.missing_columns import check_frame
from lithify.core.ops import DELETES, Op
from lithify.core.results import Commit
from lithify.core.rows import fitted
from lithify.core.same_rows import same_rows
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.errors import Conflict, InvalidRequest
from lithify.files.read_proof import Vanished
from lithify.read.reader import Reader
from lithify.write.allow_updates import allow_updates
from lithify.write.bulk import Produce, write_files
from lithify.write.conditions import AtSeq, SeqMoved, Write
from lithify.write.small_writes import Request, one_row_per_key

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

ROUNDS_MAX = 50


@dataclass(frozen=True)
class Decision:
    """What to write, and what the commit says besides. `at_seq`: it holds only while nothing else is written.
    `produce` writes the files of a bulk write, in place of `parts`.
    """

    parts: Mapping[Op, pa.Table]
    info: Mapping[str, Any] = field(default_factory=dict)
    at_seq: bool = True
    produce: Produce | None = None


def write_decided(
    table: TableAccess,
    write: Write,
    decide: Callable[[Snapshot], Decision],
    *,
    called: str | None = None,
    done: str = "written",
) -> Commit:
    """`called`, `done`: how the error of who is overtaken too often calls it, and what it has not done."""
    for _ in range(ROUNDS_MAX):
        snapshot = table.handles.snapshot()
        # Before looking for rows: those of the first time are there by now.
        if write.conditions and (answer := table.before(write)) is not None:
            return answer
        try:
            decision = decide(snapshot)
        except Vanished:
            if table.handles.snapshot().identity == snapshot.identity:
                raise
            continue
        parts = {op: rows for op, rows in decision.parts.items() if rows.num_rows}
        said = replace(write, info={**write.info, **decision.info})
        if not parts and not decision.produce and not write.remembered_as:
            return said.commit(str(table.name), snapshot.seq, 0, 0)
        try:
            if decision.at_seq:
                said = replace(said, conditions=(*write.conditions, AtSeq(snapshot.seq)))
            if decision.produce is not None:
                return write_files(table.handles, said, decision.produce)
            if Op.UPDATE in parts:
                allow_updates(table.handles)
            return table.write(Request(said, parts))
        except SeqMoved:
            continue
    raise Conflict(
        f"{called or write.operation} on {table.name} was overtaken by other writers {ROUNDS_MAX} times; nothing was "
        f"{done}: try again"
    )


def check_compares(schema: TableSchema, table: str) -> None:
    """That a row which is there already can be left out."""
    if schema.rules:
        raise InvalidRequest(
            f"if_changed leaves out rows that are there already, and on table {table} every row counts by its "
            f"{schema.rules_name}: leave if_changed out"
        )


def write_changed(table: TableAccess, write: Write, parts: Mapping[Op, pa.Table]) -> Commit:
    """A write of a keyed table without the rows that are there already; its `skipped` tells how many."""
    schema = table.known_schema
    check_compares(schema, str(table.name))
    distinct = {op: one_row_per_key(schema, rows, op) for op, rows in parts.items()}

    def decide(snapshot: Snapshot) -> Decision:
        reader, columns = table.reader, snapshot.schema.columns
        left, skipped = {}, 0
        for op, rows in distinct.items():
            if op not in DELETES:
                given = rows.column_names
                rows = rows if rows.schema == columns else fitted(rows, snapshot.schema)
                if write.complete:
                    check_frame(given, snapshot.schema, sets=True)
                there = rows_with_keys(reader, snapshot, rows.select(list(schema.key)), columns.names)
                same = same_rows(rows, there, schema.key)
                rows, skipped = rows.filter(pa.array(~same)), skipped + int(same.sum())
            left[op] = rows
        return Decision(left, {"skipped": skipped} if skipped else {})

    return write_decided(table, write, decide)


def rows_with_keys(reader: Reader, snapshot: Snapshot, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows of a snapshot that have one of the keys. Where nothing but the key is wanted, no file is read of those
    that the index knows to be there. A single key is looked for page by page.
    """
    schema, there = snapshot.schema, None
    if set(columns) <= set(schema.key) and reader.knows_keys(schema):
        known = reader.surely_there(snapshot, keys)
        there, keys = keys.filter(pa.array(known)), keys.filter(pa.array(~known))
    elif schema.keyed and keys.num_rows == 1:
        row = reader.row(snapshot, keys)
        return schema.select(columns).empty_table() if row is None else row.select(list(columns))
    plan = reader.plan_for(snapshot, [keys], columns)
    return reader.handles.runtime.serving.key_queries.matching(plan, [keys], columns, there)
