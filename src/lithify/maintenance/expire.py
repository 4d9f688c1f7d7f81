"""Dropping rows that have expired: one commit to the changes log deletes them, and the fold that asked for it takes
that to base.

So a drop is a write as any other: it has a seq, the feed shows what it deletes, hot tables and older versions follow
from it, and nothing but a fold ever takes a row from base. Readers notice nothing, because they hid these rows already.

A fold drops what lies in files that it rewrites anyway, what is pending, and files of which so much has expired that
rewriting them pays (`Expiry.worth_dropping`), most of all those with nothing else in them. Rows in other files wait,
hidden.

Which rows have expired is told by the clock of the lake, and only while the table still says so: the commit is refused
if the expiry was changed since. A key that was written meanwhile is left out. On a table with no key, rows are deleted
by their time, which tells exactly those that have expired.

With order_by a row is dropped at its own place in the order, as by a delete that says when (`merge/late.py`): what is
older than it and comes later was beaten by it, and does not come back because it is gone. A row without a value beat
nothing but others without, so its drop says no place either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join
from lithify.core.column_types import type_of
from lithify.core.expiry import Cutoff, Expiry
from lithify.core.names import quoted
from lithify.core.ops import Op
from lithify.core.predicates import Compare
from lithify.core.read_plan import ReadPlan, Source
from lithify.core.results import Commit
from lithify.core.schema import TableSchema
from lithify.core.snapshot import UNKNOWN, Bounds, DataFile, Snapshot
from lithify.delta.changes import ChangesLog
from lithify.files.read_proof import look_again
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from lithify.write.allow_updates import allow_ordered_deletes
from lithify.write.conditions import AtSeq, Condition, SeqMoved, Write
from lithify.write.small_writes import Request, Writer

logger = logging.getLogger(__name__)

ROUNDS_MAX = 20


@dataclass(frozen=True)
class SameExpiry(Condition):
    """If rows still expire as they did when it was looked for them."""

    expiry: Expiry

    def check(self, changes: ChangesLog) -> None:
        if changes.schema.expiry != self.expiry:
            raise ExpiryMoved


class ExpiryMoved(Exception):
    """The table's expiry was changed meanwhile. Internal: nothing is dropped this time."""


def drop_expired(handles: Handles, reader: Reader, *, everywhere: bool = False) -> int:
    """Delete rows that have expired with one commit; how many. `everywhere`: whatever file they lie in."""
    snapshot, keys = look_again(lambda: _expired(handles, reader, everywhere=everywhere))
    if not keys.num_rows:
        return 0
    try:
        done = _committed(handles, reader, snapshot, keys)
    except ExpiryMoved:
        return 0
    if done is None:
        logger.info("rows of %s that have expired are left to the next fold: it is written to too fast", handles.name)
        return 0
    handles.runtime.counters.rows_expired.inc(done.deleted)
    return done.deleted


def _expired(handles: Handles, reader: Reader, *, everywhere: bool) -> tuple[Snapshot, pa.Table]:
    """What a drop deletes: keys, with their places in the order if there is one, or without a key, times."""
    snapshot = handles.snapshot()
    schema, cutoff = snapshot.schema, snapshot.cutoff
    expiry, by = schema.expiry, [*schema.key, *schema.order_columns] if schema.keyed else []
    if expiry is None or cutoff is None:  # changed a moment ago
        return snapshot, schema.columns.empty_table()
    if not by:
        by = [expiry.column]
        if snapshot.row_key not in ((), tuple(by)):  # tombstones by other columns are pending: after the fold
            return snapshot, schema.select(by).empty_table()
    plan = reader.planned(snapshot.unhidden).plan(Compare(cutoff.column, "<=", cutoff.scalar.as_py()))
    if plan.overlay is None:  # too many changes for this process: they are folded first
        return snapshot, schema.select(by).empty_table()
    if not everywhere:
        plan = _worthwhile(handles, plan, expiry, cutoff)
    condition = f"{quoted(cutoff.column)} <= {type_of(cutoff.kind).literal(cutoff.scalar)}"
    settings, serving = handles.runtime.settings, handles.runtime.serving
    return snapshot, serving.read(plan, by, condition, limit=settings.resolve_rows_max)


def _worthwhile(handles: Handles, plan: ReadPlan, expiry: Expiry, cutoff: Cutoff) -> ReadPlan:
    """Only of files that the fold rewrites anyway, or that it is worth to rewrite."""
    snapshot = plan.snapshot
    bounds = _bounds(str(handles.base_folder), snapshot.base, cutoff.column)
    bounds |= _bounds(str(handles.changes.log.path), snapshot.changes, cutoff.column)

    def kept(sources: Sequence[Source], worth: Callable[[Bounds], bool]) -> tuple[Source, ...]:
        return tuple(source for source in sources if worth(bounds.get(source.path, UNKNOWN)))

    clean = kept(plan.clean, lambda found: expiry.worth_dropping(found, cutoff))
    return replace(plan, clean=clean)


def _bounds(folder: str, files: Sequence[DataFile], column: str) -> dict[str, Bounds]:
    return {f"{folder}/{file.path}": file.bound(column) for file in files}


def _committed(handles: Handles, reader: Reader, snapshot: Snapshot, keys: pa.Table) -> Commit | None:
    """None if others kept writing."""
    schema, seq, writer = snapshot.schema, snapshot.seq, Writer(handles)
    assert schema.expiry is not None
    same: tuple[Condition, ...] = (SameExpiry(schema.expiry),)
    for _ in range(ROUNDS_MAX):
        # A time that has expired has expired for rows that come later, too.
        conditions = (*same, AtSeq(seq)) if schema.keyed else same
        write = Write("expire", {"detail": f"{schema.expiry}"}, conditions)
        parts = _deletes(schema, keys)
        allow_ordered_deletes(handles, parts)
        [answer] = writer.write_all([writer.prepare(Request(write, parts))])
        if isinstance(answer, Commit):
            return answer
        if not isinstance(answer, SeqMoved):
            raise answer
        newest = handles.snapshot().seq
        written = reader.written_after(seq, handles.runtime.settings.resolve_rows_max)
        if written is None:
            return None
        known = written.select(list(schema.key)).cast(schema.select(schema.key))
        keys, seq = anti_join(keys, known, schema.key), newest
        if not keys.num_rows:
            return None
    return None


def _deletes(schema: TableSchema, keys: pa.Table) -> dict[Op, pa.Table]:
    """Each at the place of its row, if it has one."""
    if not schema.order_by:
        return {Op.DELETE: keys}
    placed = pc.is_valid(keys.column(schema.order_columns[0]))
    parts = {
        Op.DELETE_AT: keys.filter(placed).select(schema.place_columns.names).cast(schema.place_columns),
        Op.DELETE: keys.filter(pc.invert(placed)).select(list(schema.key)),
    }
    return {op: rows for op, rows in parts.items() if rows.num_rows}
