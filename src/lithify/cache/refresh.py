"""Bringing hot rows from one seq to a later one.

A table's rows are a function of its seq, because base is the exact state after a prefix of the writes. So rows of seq
40 become those of seq 50 by the changes between, whatever was folded or compacted meanwhile, with the hot rows in the
place of base in the one definition of the merge. A minor compaction may have put changes from both sides of 40 into
one file; the latest change per key says the same again, so applying it twice changes nothing.

Other columns, a commit to base that is not Lithify's, or changes that are no longer to be had call for a reload, which
`None` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lithify.cache.hot_rows import HotRows
from lithify.core.names import OP, SEQ
from lithify.core.ops import Change, Op
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot
from lithify.errors import NotFound
from lithify.merge.late import without_late
from lithify.merge.partial import has_patches, line_columns
from lithify.merge.winners import resolve, with_patches, without_losers

if TYPE_CHECKING:
    from lithify.cache.table_reader import TableReader

# More changes than this, and than there are rows, are not applied: loading the table anew is no slower.
APPLIED_ROWS_MAX = 200_000


@dataclass(frozen=True)
class HotSnapshot:
    """Hot rows, and the snapshot they are the rows of: as much of it as tells another one apart."""

    rows: HotRows
    table_id: str
    schema: TableSchema
    seq: int
    base_version: int

    @classmethod
    def of(cls, rows: HotRows, snapshot: Snapshot) -> HotSnapshot:
        return cls(rows, snapshot.table_id, snapshot.schema, snapshot.seq, snapshot.base_version)

    def is_of(self, snapshot: Snapshot) -> bool:
        return (
            (self.table_id, self.seq, self.base_version) == (snapshot.table_id, snapshot.seq, snapshot.base_version)
            # A new column comes with no seq of its own.
            and self.schema.has_columns_of(snapshot.schema)
        )


def is_older(cached: HotSnapshot, snapshot: Snapshot) -> bool:
    """Whether the snapshot is of the past of what is held: nothing is wrong, it only cannot be served."""
    if cached.table_id != snapshot.table_id:
        return False
    now, then = cached.schema, snapshot.schema
    # Within a generation columns are only ever added.
    older_columns = (then.generation, len(then.columns)) < (now.generation, len(now.columns))
    return older_columns or snapshot.seq < cached.seq or snapshot.base_version < cached.base_version


def advance(
    cached: HotSnapshot,
    snapshot: Snapshot,
    reader: TableReader,
    recent: Callable[[str], pa.Table | None] = lambda path: None,
) -> HotSnapshot | None:
    """The rows of a snapshot that is not older; None: they cannot be made from these. `recent`: the rows of a change
    file by its path, where they are still at hand.
    """
    if cached.table_id != snapshot.table_id or not cached.schema.has_columns_of(snapshot.schema):
        return None
    if not _only_ours(reader, cached.base_version, snapshot.base_version):
        return None
    if cached.seq == snapshot.seq:
        return HotSnapshot.of(cached.rows, snapshot)
    changes: Sequence[Change] | None = _changes_after(cached, snapshot, reader, recent)
    if changes is None:
        return None
    schema, held = snapshot.schema, cached.rows.columns.names
    if has_patches(changes):
        # What they leave as it is comes from the hot rows, so that other columns do not matter.
        if not {*schema.key, *schema.deciding_columns} <= set(held):
            return None
        schema = replace(schema, columns=schema.select([name for name in schema.names if name in held]))
    if schema.order_by:
        changes = without_late(schema, changes, reader.remembered(snapshot, cached.seq))
    overlay = resolve(schema, changes)
    by = schema.key or tuple(overlay.hidden.column_names)
    if not set(by) <= set(held):
        return None
    if overlay.contested is not None:
        lost = cached.rows.losers(overlay.contested, schema.key, schema.order_columns)
        overlay = without_losers(schema, overlay, lost)
    if overlay.patches is not None:
        met = cached.rows.matching(overlay.patches.select(list(by)), by).select(schema.names)
        overlay = with_patches(schema, overlay, met.cast(schema.columns))
    return HotSnapshot.of(cached.rows.applied(overlay, by), snapshot)


def _only_ours(reader: TableReader, first: int, last: int) -> bool:
    """Whether Lithify made every commit to base after `first`: none of those changes what a seq means."""
    log = reader.handles.base.log
    there = log.versions()
    return all(
        version in there and log.commit_record(version).info.get("write_id") is not None
        for version in range(first + 1, last + 1)
    )


def _changes_after(
    cached: HotSnapshot, snapshot: Snapshot, reader: TableReader, recent: Callable[[str], pa.Table | None]
) -> list[Change] | None:
    rows_max = max(APPLIED_ROWS_MAX, cached.rows.rows)
    if cached.seq >= snapshot.watermark:
        files = [file for file in snapshot.changes if file.seq > cached.seq]
        if sum(file.rows for file in files) > rows_max:
            return None
        return [_at_hand(file, snapshot, recent) or reader.change(file, snapshot) for file in files]
    if not snapshot.schema.keyed:
        return None
    return _folded_after(cached.seq, snapshot, reader, rows_max)


def _at_hand(file: DataFile, snapshot: Snapshot, recent: Callable[[str], pa.Table | None]) -> Change | None:
    rows, schema = recent(file.path), snapshot.schema
    if rows is None:
        return None
    columns = line_columns(schema, file.op, file.columns)
    return Change(file.seq, file.op, rows) if rows.schema.equals(columns) else None


def _folded_after(seq: int, snapshot: Snapshot, reader: TableReader, rows_max: int) -> list[Change] | None:
    """Changes that a fold has taken out of the snapshot stand in the log until vacuum removes their files."""
    try:
        if snapshot.schema.order_by and reader.forgets_after(seq):
            return None  # what deletes kept out until then, they do not keep out any more
        found = reader.written_after(seq, rows_max)
        if reader.erased_after(seq):  # asked afterwards: the delete was told until then, or is not
            return None
    except NotFound:
        return None
    if found is None:
        return None
    found = found.filter(pc.less_equal(found.column(SEQ), snapshot.seq))
    changes = []
    for group in found.select([SEQ, OP]).group_by([SEQ, OP]).aggregate([]).to_pylist():
        here = pc.and_(pc.equal(found.column(SEQ), group[SEQ]), pc.equal(found.column(OP), group[OP]))
        op = Op(group[OP])
        columns = line_columns(snapshot.schema, op)
        rows = found.filter(here).select(columns.names)
        changes.append(Change(group[SEQ], op, rows.cast(columns)))
    return changes
