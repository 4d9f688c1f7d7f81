"""The rows of an earlier version become the newest commit: what has changed since is undone, and nothing else.

A key can only differ between then and now if a commit in between names it. So the keys of those commits are looked up
in both states, and the commit says what leads from one to the other: rows of then where they are others now, and
deletes of what was not there. Where vacuum has taken some of the commits in between, both states are compared whole.
The commit is valid only on the state that it was worked out from; overtaken, it is worked out again. Columns stay as
they are now: one that was added since is null in a row of then, one that was renamed has its values of then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.arrow_rows import anti_join
from lithify.core.column_changes import Reshape
from lithify.core.column_changes import after as changes_after
from lithify.core.ops import Op
from lithify.core.results import Commit, RestorePlan
from lithify.core.same_rows import same_rows
from lithify.core.schema import TableSchema, nullable
from lithify.core.snapshot import Snapshot
from lithify.errors import Conflict, InvalidRequest, LimitExceeded, NotFound
from lithify.files.read_proof import look_again
from lithify.tables.pins import pinned
from lithify.write.conditions import Write
from lithify.write.decided import Decision, rows_with_keys, write_decided

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

ROWS_MAX = 5_000_000


@dataclass(frozen=True)
class Difference:
    """What leads from one state to another: rows to write over what is there, and keys to delete."""

    rows: pa.Table
    deleted: pa.Table


def restore(table: TableAccess, to: Any, write: Write) -> Commit:
    if write.remembered_as and (answer := table.before(write)) is not None:
        return answer  # the version of then may be gone by now
    with _version(table, to) as then:
        op = Op.REPLACE if then.schema.order_by else Op.UPSERT  # it wins, whatever its order value

        def decide(now: Snapshot) -> Decision:
            found = difference(table, then, now)
            return Decision({op: found.rows, Op.DELETE: found.deleted}, {"detail": f"to seq {then.seq}"})

        return write_decided(table, write, decide)


def restore_plan(table: TableAccess, to: Any) -> RestorePlan:
    with _version(table, to) as then:

        def plan() -> RestorePlan:
            now = table.handles.snapshot()
            found = difference(table, then, now)
            return RestorePlan(str(table.name), then.seq, now.seq, found.rows.num_rows, found.deleted.num_rows)

        return look_again(plan)


@contextmanager
def _version(table: TableAccess, to: Any) -> Iterator[Snapshot]:
    """No vacuum takes its files meanwhile."""
    if to is None:
        raise InvalidRequest("restore to which version? Give a seq, a time or a tag")
    handles = table.handles
    if not handles.schema().keyed:
        raise InvalidRequest(
            f"table {table.name} has no key, so one of two equal rows cannot be taken away: delete what came since "
            "with delete_where, or write the rows of to_arrow(as_of=…) into a new table"
        )
    with pinned(handles, to) as then:
        yield then


def difference(table: TableAccess, then: Snapshot, now: Snapshot) -> Difference:
    """What leads from `now` to `then`."""
    schema, key = now.schema, list(now.schema.key)
    keys = _changed_keys(table, then, now)
    before, after = (_rows(table, state, schema, keys) for state in (then, now))
    _check_required(table, before, schema)
    same = same_rows(before, after, key)
    return Difference(
        before.filter(pa.array(~same)).cast(schema.columns),
        anti_join(after.select(key), before.select(key), key).cast(schema.select(key)),
    )


def _changed_keys(table: TableAccess, then: Snapshot, now: Snapshot) -> pa.Table | None:
    """None: not all of them are known any more."""
    if then.seq == now.seq:
        return now.schema.select(now.schema.key).empty_table()
    try:
        keys, changes = table.feed.keys(then.seq, now.seq, ROWS_MAX)
    except NotFound:
        return None
    if keys is None:
        raise _too_many(table, f"{changes:,} changes were made since")
    return keys


def _rows(table: TableAccess, state: Snapshot, schema: TableSchema, keys: pa.Table | None) -> pa.Table:
    """Rows of a state, all or those with one of the keys, in the columns of `schema`."""
    later = changes_after(table.handles.changes.column_history, state.seq)
    shape = Reshape.of(nullable(schema.columns), later).among(state.schema.names)
    known = shape.stored.names
    if keys is not None:
        found = rows_with_keys(table.reader, state, keys, known)
    else:
        if (rows := state.base_rows + state.pending_rows) > ROWS_MAX:
            raise _too_many(table, f"vacuum has removed changes since, and it has up to {rows:,} rows to compare")
        found = table.runtime.serving.read(table.reader.planned(state.unhidden), known, None)
    return shape.apply(found.select(known))


def _check_required(table: TableAccess, rows: pa.Table, schema: TableSchema) -> None:
    for column in schema.columns:
        if not column.nullable and (nulls := rows.column(column.name).null_count):
            raise Conflict(
                f"table {table.name} cannot be restored to then: {nulls:,} rows of then have no value in column "
                f"{column.name!r}, which is NOT NULL by now: let it be null first (alter_column)"
            )


def _too_many(table: TableAccess, why: str) -> LimitExceeded:
    return LimitExceeded(
        f"table {table.name} cannot be restored in one step: {why}, more than {ROWS_MAX:,}. Restore to a later version "
        "first; or write to_spark(as_of=…) into a new table and use that one",
        limit="rows",
    )
