"""The one definition of the merge: which version of a row wins.

`winners` decides that for lines, each with a key and an operation, grouped by key: everything is a reduction over the
lines of each group. Without order_by the last operation on a key says everything. With order_by a delete or replace is
a barrier: what came before it is forgotten, and what came after it competes by (order_by, arrival), nulls lowest. A
winner behind a barrier is a replace, because it must also win against base; one with no barrier before it stays an
upsert, and base still takes part. A delete that has an order value itself is no barrier, but a row that says there is
none: where it wins the key is gone, where it loses nothing happens. Behind a barrier it is `gone_at`.

`compose` makes one change of many: one row and one operation per key. Applying the result is applying the sequence one
by one, whatever base holds.

`resolve` reduces the changes that base does not hold yet to an `Overlay`: keys whose base row is hidden, and rows shown
instead. A table's rows are its base rows that no change touches, plus the winner of each changed key unless the winner
is a tombstone, so every reader then does the same simple thing (`apply`): base ANTI JOIN hidden UNION ALL rows.
Contests that a base row takes part in are returned in `contested`; `without_losers` drops the changes that lost them.
Lines that give some columns alone (`partial`) are returned in `patches`; `with_patches` completes them from base.

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
from lithify.core.ops import ORDERED_DELETES, WHOLE, Change, Op, Overlay
from lithify.core.schema import TableSchema, nullable
from lithify.merge import partial
from lithify.merge.newer import ascending

OPS = (Op.UPSERT, Op.REPLACE, Op.DELETE, Op.DELETE_AT, Op.GONE_AT)
_UPSERT, _REPLACE, _DELETE, _DELETE_AT, _GONE_AT = range(len(OPS))


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


def winners(ops: np.ndarray, groups: Groups, places: pa.Table | None) -> tuple[np.ndarray, np.ndarray]:
    """What is done to each key (an index into OPS), and the line that says so (-1: a delete).

    Of lines in the order of arrival, at least one. With order_by there is a place for each (`order`), which of a delete
    is not looked at.
    """
    lines, order, starts = np.arange(len(ops)), groups.lines, groups.starts
    if places is None:
        winner = np.maximum.reduceat(order, starts)
        return ops[winner], np.where(ops[winner] == _DELETE, -1, winner)
    ranking = ascending(places)
    rank = np.empty(len(ops), np.int64)
    rank[ranking] = lines
    barrier = (ops == _REPLACE) | (ops == _DELETE) | (ops == _GONE_AT)
    last_barrier = np.maximum.reduceat(np.where(barrier, lines, -1)[order], starts)
    since = np.repeat(last_barrier, np.diff(np.append(starts, len(ops))))
    best = np.maximum.reduceat(np.where((ops != _DELETE)[order] & (order >= since), rank[order], -1), starts)
    found = best >= 0
    winner = np.where(found, ranking[best], -1)
    gone = (ops[winner] == _DELETE_AT) | (ops[winner] == _GONE_AT)
    open_contest, behind = np.where(gone, _DELETE_AT, _UPSERT), np.where(gone, _GONE_AT, _REPLACE)
    return np.where(found, np.where(last_barrier < 0, open_contest, behind), _DELETE), winner


def compose(schema: TableSchema, changes: Sequence[Change]) -> dict[Op, pa.Table]:
    """One row per key, sorted by key; the operations' keys are disjoint, and one with no rows is left out.

    The order of `changes` is the order of arrival; their seqs are not looked at.
    """
    assert schema.keyed, "rows of a table with no key are not told apart"
    if not any(change.rows.num_rows for change in changes):
        return {}
    if partial.has_patches(changes):
        return partial.compose(schema, changes)
    return compose_lines(schema, *lines_of(schema, changes))


def lines_of(schema: TableSchema, changes: Sequence[Change]) -> tuple[np.ndarray, pa.Table, pa.Table, pa.Table | None]:
    """Operations, keys and places of all lines of the changes, and the rows of those that have one."""
    ops = np.repeat([OPS.index(change.op) for change in changes], [change.rows.num_rows for change in changes])
    keys = _below([change.rows for change in changes], schema.select(schema.key)).combine_chunks()
    rows = _below([change.rows for change in changes if change.op in WHOLE], schema.columns)
    return ops, keys, rows, places_of(schema, changes)


def places_of(schema: TableSchema, changes: Sequence[Change]) -> pa.Table | None:
    """The order columns of each line, null where it has none; None where the table has no order_by."""
    if not schema.order_by:
        return None
    columns = nullable(schema.select(schema.order_columns))
    parts = [
        _nulls(columns, change.rows.num_rows)
        if change.op is Op.DELETE
        else change.rows.select(columns.names).cast(columns)
        for change in changes
    ]
    return pa.concat_tables([columns.empty_table(), *parts])


def _nulls(columns: pa.Schema, count: int) -> pa.Table:
    return pa.table([pa.nulls(count, f.type) for f in columns], schema=columns)


def compose_lines(
    schema: TableSchema, ops: np.ndarray, keys: pa.Table, rows: pa.Table, places: pa.Table | None
) -> dict[Op, pa.Table]:
    """The same of single lines: operation, key and place of each, and the rows of those that have one."""
    groups = by_order(keys)
    done, line = winners(ops, groups, places)
    row = _row_of_line(ops)
    result = {}
    for number, op in enumerate(OPS):
        chosen = np.flatnonzero(done == number)
        if not len(chosen):
            continue
        if op in WHOLE:
            result[op] = take(rows, row[line[chosen]])
        else:
            result[op] = take(groups.keys, chosen)
            if op in ORDERED_DELETES:
                assert places is not None
                result[op] = placed(schema, result[op], take(places, line[chosen]))
    return result


def placed(schema: TableSchema, keys: pa.Table, places: pa.Table) -> pa.Table:
    """Keys with their places beside them."""
    columns = schema.place_columns
    return pa.table([*keys.select(list(schema.key)).columns, *places.columns], names=columns.names).cast(columns)


def _row_of_line(ops: np.ndarray) -> np.ndarray:
    row: np.ndarray = np.cumsum((ops == _UPSERT) | (ops == _REPLACE)) - 1
    return row


def latest_per_key(schema: TableSchema, rows: pa.Table, op: Op) -> pa.Table:
    """One row per key of rows that come with one operation, sorted by key. Deletes have key columns only, and the order
    value if they have one. Updates of a table with order_by may need several lines for a key.
    """
    if not rows.num_rows:
        return rows
    if op is Op.UPDATE:
        return partial.compose(schema, [Change(0, op, rows)])[op]
    if op is Op.REPLACE:
        op = Op.UPSERT  # against each other they compete as such
    elif op is Op.GONE_AT:
        op = Op.DELETE_AT
    return compose_lines(schema, *lines_of(schema, [Change(0, op, rows)]))[op]


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
    if partial.has_patches(ordered):
        return _resolve_partial(schema, ordered)
    if len(ordered) == 1 and not schema.order_by:
        # Each key stands once in a commit already.
        return Overlay(ordered[0].rows.select(list(schema.key)), _written_rows(schema, ordered))
    ops, keys, rows, places = lines_of(schema, ordered)
    groups = by_hash(keys, only_last=not schema.order_by)
    done, line = winners(ops, groups, places)
    brought = line[(done == _UPSERT) | (done == _REPLACE)]
    shown = take(rows, np.sort(_row_of_line(ops)[brought]))
    if places is None:
        return Overlay(groups.keys, shown)
    open_contests = line[(done == _UPSERT) | (done == _DELETE_AT)]
    contested = pa.table([*keys.columns, *places.columns], names=[*schema.key, *schema.order_columns])
    return Overlay(groups.keys, shown, take(contested, open_contests))


def _resolve_partial(schema: TableSchema, ordered: Sequence[Change]) -> Overlay:
    parts, key = partial.compose(schema, ordered), list(schema.key)
    hidden = [rows.select(key).cast(schema.select(key)) for rows in parts.values()]
    keys = pa.concat_tables(hidden)
    if schema.order_by:  # a key may have several lines
        keys = keys.group_by(key).aggregate([]).select(key).cast(schema.select(key))
    rows = [rows for op, rows in parts.items() if op in WHOLE]
    contested = None
    if schema.order_by and (lines := [parts[op] for op in (Op.UPSERT, Op.DELETE_AT) if op in parts]):
        columns = nullable(schema.place_columns)
        contested = pa.concat_tables([part.select(columns.names).cast(columns) for part in lines])
    return Overlay(keys, pa.concat_tables([schema.columns.empty_table(), *rows]), contested, parts.get(Op.UPDATE))


def with_patches(schema: TableSchema, overlay: Overlay, base: pa.Table) -> Overlay:
    """Complete the lines that give some columns alone. `base`: the rows that their keys have, where they have one."""
    assert overlay.patches is not None
    whole = partial.completed(schema, overlay.patches, base)
    return Overlay(overlay.hidden, pa.concat_tables([overlay.rows, whole]), overlay.contested)


def _written_rows(schema: TableSchema, changes: Sequence[Change]) -> pa.Table:
    tables = [change.rows.select(schema.names) for change in changes if change.op is not Op.DELETE]
    return pa.concat_tables([schema.columns.empty_table(), *(table.cast(schema.columns) for table in tables)])


def without_losers(schema: TableSchema, overlay: Overlay, losers: pa.Table) -> Overlay:
    """Drop the changes that lost against base: their keys keep the base row."""
    key = list(schema.key)
    hidden, rows = anti_join(overlay.hidden, losers, key), anti_join(overlay.rows, losers, key)
    return Overlay(hidden, rows, patches=overlay.patches)


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
