"""The one definition of the merge: which version of a row wins.

`winners` decides that for lines, each with a key and an operation, grouped by key: everything is a reduction over the
lines of each group. Without order_by the last operation on a key says everything. With order_by a delete or replace is
a barrier: what came before it is forgotten, and what came after it competes by (order_by, arrival), nulls lowest. A
winner behind a barrier is a replace, because it must also win against base; one with no barrier before it stays an
upsert, and base still takes part.

`compose` makes one change of many: one row and one operation per key. Applying the result is applying the sequence one
by one, whatever base holds.

`resolve` reduces the changes that base does not hold yet to an `Overlay`: keys whose base row is hidden, and rows shown
instead. A table's rows are its base rows that no change touches, plus the winner of each changed key unless the winner
is a tombstone, so every reader then does the same simple thing (`apply`): base ANTI JOIN hidden UNION ALL rows.
Contests that a base row takes part in are returned in `contested`; `without_losers` drops the changes that lost them.

A table with no key has appended rows and tombstones by one set of row-key columns (nulls compare equal). A tombstone
hides base rows and rows with a lower seq, never newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join, lookup, order_of, take
from lithify.core.names import SEQ
from lithify.core.ops import Change, Op, Overlay
from lithify.core.schema import TableSchema

OPS = (Op.UPSERT, Op.REPLACE, Op.DELETE)
_UPSERT, _REPLACE, _DELETE = range(len(OPS))


@dataclass(frozen=True)
class Groups:
    """Each key once; the lines that have it, group after group, and where each group starts among them."""

    keys: pa.Table
    lines: np.ndarray
    starts: np.ndarray


def by_hash(keys: pa.Table, *, only_last: bool) -> Groups:
    """In no order. `only_last`: of each key the last line alone, which is cheaper."""
    lines = keys.append_column("_line", pa.array(np.arange(keys.num_rows)))
    grouped = lines.group_by(keys.column_names).aggregate([("_line", "max" if only_last else "list")])
    distinct = grouped.select(keys.column_names)
    if only_last:
        return Groups(distinct, grouped.column("_line_max").to_numpy(), np.arange(grouped.num_rows))
    members = grouped.column("_line_list").combine_chunks()
    return Groups(distinct, members.flatten().to_numpy(), members.offsets.to_numpy()[:-1])


def by_order(keys: pa.Table) -> Groups:
    """In the order of the keys."""
    order = order_of(keys, keys.column_names)
    ordered = take(keys, order)
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for column in ordered.columns:
        differs[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(order) - 1)).to_numpy()
    starts = np.flatnonzero(differs)
    return Groups(take(ordered, starts), order, starts)


def winners(ops: np.ndarray, groups: Groups, order_values: pa.ChunkedArray | None) -> tuple[np.ndarray, np.ndarray]:
    """What is done to each key (an index into OPS), and the row that says so (-1: a delete).

    Of lines in the order of arrival, at least one: `ops` has one for each; rows, and so `order_values`, are those of
    the lines that are no delete.
    """
    lines, order, starts = np.arange(len(ops)), groups.lines, groups.starts
    has_row = ops != _DELETE
    row = np.where(has_row, np.cumsum(has_row) - 1, -1)
    if order_values is None:
        winner = np.maximum.reduceat(order, starts)
        return ops[winner], row[winner]
    ranking = pc.sort_indices(
        pa.table({"order": order_values.take(pa.array(row, mask=~has_row)), "line": pa.array(lines)}),
        sort_keys=[("order", "ascending", "at_start"), ("line", "ascending")],
    ).to_numpy()
    rank = np.empty(len(ops), np.int64)
    rank[ranking] = lines
    last_barrier = np.maximum.reduceat(np.where(ops != _UPSERT, lines, -1)[order], starts)
    since = np.repeat(last_barrier, np.diff(np.append(starts, len(ops))))
    best = np.maximum.reduceat(np.where(has_row[order] & (order >= since), rank[order], -1), starts)
    shown = best >= 0
    op = np.where(shown, np.where(last_barrier < 0, _UPSERT, _REPLACE), _DELETE)
    return op, np.where(shown, row[ranking[best]], -1)


def compose(schema: TableSchema, changes: Sequence[Change]) -> dict[Op, pa.Table]:
    """One row per key, sorted by key; the operations' keys are disjoint, and one with no rows is left out.

    The order of `changes` is the order of arrival; their seqs are not looked at.
    """
    assert schema.keyed, "rows of a table with no key are not told apart"
    if not any(change.rows.num_rows for change in changes):
        return {}
    return compose_lines(schema, *lines_of(schema, changes))


def lines_of(schema: TableSchema, changes: Sequence[Change]) -> tuple[np.ndarray, pa.Table, pa.Table]:
    """Operations and keys of all lines of the changes, and the rows of those that are no delete."""
    ops = np.repeat([OPS.index(change.op) for change in changes], [change.rows.num_rows for change in changes])
    keys = _below([change.rows for change in changes], schema.select(schema.key)).combine_chunks()
    rows = _below([change.rows for change in changes if change.op is not Op.DELETE], schema.columns)
    return ops, keys, rows


def compose_lines(schema: TableSchema, ops: np.ndarray, keys: pa.Table, rows: pa.Table) -> dict[Op, pa.Table]:
    """The same of single lines and their keys, as `winners` takes them."""
    groups = by_order(keys)
    done, row = winners(ops, groups, rows.column(schema.order_by) if schema.order_by else None)
    result = {}
    for number, name in enumerate(OPS):
        chosen = np.flatnonzero(done == number)
        if len(chosen):
            result[name] = take(groups.keys, chosen) if name is Op.DELETE else take(rows, row[chosen])
    return result


def latest_per_key(schema: TableSchema, rows: pa.Table, op: Op) -> pa.Table:
    """One row per key of rows that come with one operation, sorted by key. Deletes have key columns only."""
    if not rows.num_rows:
        return rows
    keys = rows.select(list(schema.key)).combine_chunks()
    written = schema.columns.empty_table() if op is Op.DELETE else rows
    if op is not Op.DELETE:
        op = Op.UPSERT  # against each other they compete as such
    return compose_lines(schema, np.full(rows.num_rows, OPS.index(op)), keys, written)[op]


def _below(tables: Sequence[pa.Table], columns: pa.Schema) -> pa.Table:
    """The wanted columns of all tables below each other."""
    picked = (table.select(columns.names) for table in tables)
    fitting = [table if table.schema.equals(columns) else table.cast(columns) for table in picked]
    return pa.concat_tables([columns.empty_table(), *fitting])


def resolve(schema: TableSchema, changes: Sequence[Change]) -> Overlay:
    """Latest per key over `changes`, in any order of the sequence given."""
    ordered = sorted(changes, key=lambda change: change.seq)
    if not schema.keyed:
        return _resolve_keyless(schema, ordered)
    if not any(change.rows.num_rows for change in ordered):
        return Overlay(schema.select(schema.key).empty_table(), schema.columns.empty_table())
    if len(ordered) == 1 and not schema.order_by:
        # Each key stands once in a commit already.
        return Overlay(ordered[0].rows.select(list(schema.key)), _written_rows(schema, ordered))
    ops, keys, rows = lines_of(schema, ordered)
    groups = by_hash(keys, only_last=not schema.order_by)
    done, row = winners(ops, groups, rows.column(schema.order_by) if schema.order_by else None)
    shown = take(rows, np.sort(row[row >= 0]))
    if not schema.order_by:
        return Overlay(groups.keys, shown)
    open_contests = row[done == OPS.index(Op.UPSERT)]
    return Overlay(groups.keys, shown, take(rows.select([*schema.key, schema.order_by]), open_contests))


def _written_rows(schema: TableSchema, changes: Sequence[Change]) -> pa.Table:
    tables = [change.rows.select(schema.names) for change in changes if change.op is not Op.DELETE]
    return pa.concat_tables([schema.columns.empty_table(), *(table.cast(schema.columns) for table in tables)])


def without_losers(schema: TableSchema, overlay: Overlay, losers: pa.Table) -> Overlay:
    """Drop the changes that lost against base: their keys keep the base row."""
    key = list(schema.key)
    return Overlay(anti_join(overlay.hidden, losers, key), anti_join(overlay.rows, losers, key))


def _resolve_keyless(schema: TableSchema, changes: Sequence[Change]) -> Overlay:
    tombstones = [change for change in changes if change.op is Op.DELETE]
    if not tombstones:
        return Overlay(pa.table({}), _written_rows(schema, changes))
    by = tombstones[0].rows.column_names
    lines = pa.concat_tables([change.rows.select(by) for change in tombstones], promote_options="permissive")
    seqs = np.repeat([change.seq for change in tombstones], [change.rows.num_rows for change in tombstones])
    latest = lines.append_column(SEQ, pa.array(seqs)).group_by(by).aggregate([(SEQ, "max")])
    hidden_below = latest.column(f"{SEQ}_max").to_numpy()
    visible_rows = [schema.columns.empty_table()]
    for change in changes:
        if change.op is Op.DELETE:
            continue
        line = lookup(change.rows, latest, by)
        visible = (line < 0) | (hidden_below[line] < change.seq)
        visible_rows.append(change.rows.select(schema.names).filter(pa.array(visible)).cast(schema.columns))
    return Overlay(latest.select(by), pa.concat_tables(visible_rows))
