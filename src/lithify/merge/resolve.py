"""The one definition of the merge.

A table's rows are its base rows that no change touches, plus the winner of each changed key unless the winner is
a tombstone. `resolve` reduces the changes that base does not hold yet to an `Overlay`: keys whose base row is
hidden, and rows shown instead. Both engines then do the same simple thing: base ANTI JOIN hidden UNION ALL rows.

Without order_by the highest seq wins. With order_by the highest (order_by, seq) since the last barrier wins, nulls
lowest; a delete or replace is a barrier, and a base row takes part only where no barrier stands before it. Such open
contests are returned in `contested`; `settle` drops the changes that lost against base.

A table with no key has appended rows and tombstones by one set of row-key columns (nulls compare equal). A tombstone
hides base rows and rows with a lower seq, never newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join, lookup, take
from lithify.core.names import SEQ, quoted
from lithify.core.ops import Change, Op, Overlay
from lithify.core.schema import TableSchema


def resolve(schema: TableSchema, changes: Sequence[Change]) -> Overlay:
    """Latest per key over `changes`, in any order of the sequence given."""
    ordered = sorted(changes, key=lambda change: change.seq)
    if not schema.keyed:
        return _resolve_keyless(schema, ordered)
    if not ordered:
        return Overlay(schema.select(schema.key).empty_table(), schema.columns.empty_table())
    if len(ordered) == 1 and not schema.order_by:
        # Each key stands once in a commit already.
        return Overlay(ordered[0].rows.select(list(schema.key)), _written_rows(schema, ordered))
    keys, seqs, written = _lines(ordered, schema.key)
    rows = _written_rows(schema, ordered)
    if schema.order_by:
        return _resolve_ordered(schema, ordered, keys, seqs, written, rows)
    winners = (
        keys.append_column("_line", pa.array(np.arange(len(seqs))))
        .group_by(list(schema.key))
        .aggregate([("_line", "max")])
    )
    positions = written[winners.column("_line_max").to_numpy()]
    return Overlay(winners.select(list(schema.key)), take(rows, np.sort(positions[positions >= 0])))


def _lines(changes: Sequence[Change], key: Sequence[str]) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Keys of all changes below each other, their seqs, and the place of each line among the written rows (-1: a
    tombstone).
    """
    keys = pa.concat_tables(
        [change.rows.select(list(key)) for change in changes], promote_options="permissive"
    ).combine_chunks()
    seqs = np.repeat([change.seq for change in changes], [change.rows.num_rows for change in changes])
    places, place = [], 0
    for change in changes:
        count = change.rows.num_rows
        if change.op is Op.DELETE:
            places.append(np.full(count, -1, np.int64))
        else:
            places.append(np.arange(place, place + count, dtype=np.int64))
            place += count
    return keys, seqs, np.concatenate(places)


def _written_rows(schema: TableSchema, changes: Sequence[Change]) -> pa.Table:
    tables = [change.rows.select(schema.names) for change in changes if change.op is not Op.DELETE]
    return pa.concat_tables([schema.columns.empty_table(), *(table.cast(schema.columns) for table in tables)])


def _resolve_ordered(
    schema: TableSchema,
    changes: Sequence[Change],
    keys: pa.Table,
    seqs: np.ndarray,
    written: np.ndarray,
    rows: pa.Table,
) -> Overlay:
    assert schema.order_by
    key = list(schema.key)
    barrier = np.concatenate([np.full(c.rows.num_rows, c.op is not Op.UPSERT) for c in changes])
    lines = keys.append_column("_line", pa.array(np.arange(len(seqs))))
    lines = lines.append_column("_barrier", pa.array(np.where(barrier, seqs, -1)))
    # Rank of each line by (order_by, seq): the winner is the highest rank among the lines since the barrier.
    order_values = pa.chunked_array([*rows.column(schema.order_by).chunks], rows.schema.field(schema.order_by).type)
    has_row = written >= 0
    order_of_line = order_values.take(pa.array(np.where(has_row, written, 0), mask=~has_row))
    ranking = pc.sort_indices(
        pa.table({"order": order_of_line, "seq": pa.array(seqs)}),
        sort_keys=[("order", "ascending", "at_start"), ("seq", "ascending")],
    ).to_numpy()
    ranking = ranking.astype(np.int64)  # unsigned numbers have no -1
    rank = np.empty(len(seqs), np.int64)
    rank[ranking] = np.arange(len(seqs))
    groups = lines.group_by(key).aggregate([("_barrier", "max"), ("_line", "list")])
    group_of = np.empty(len(seqs), np.int64)
    members = groups.column("_line_list").combine_chunks()
    group_of[members.flatten().to_numpy()] = np.repeat(np.arange(len(members)), np.diff(members.offsets.to_numpy()))
    last_barrier = groups.column("_barrier_max").to_numpy()
    alive = has_row & (seqs >= last_barrier[group_of])
    best = np.full(len(members), -1, np.int64)
    np.maximum.at(best, group_of[alive], rank[alive])
    winner_line = np.where(best >= 0, ranking[best], -1)
    winner_row = np.where(winner_line >= 0, written[winner_line], -1)
    shown = winner_row >= 0
    open_contest = shown & (last_barrier < 0)
    contested = take(rows.select([*key, schema.order_by]), winner_row[open_contest])
    return Overlay(groups.select(key), take(rows, np.sort(winner_row[shown])), contested)


def settle(schema: TableSchema, overlay: Overlay, losers: pa.Table) -> Overlay:
    """Drop the changes that lost against base: their keys keep the base row."""
    key = list(schema.key)
    if not losers.num_rows:
        return Overlay(overlay.hidden, overlay.rows)
    return Overlay(
        anti_join(overlay.hidden, losers, key), anti_join(overlay.rows, losers, key).cast(overlay.rows.schema)
    )


def _resolve_keyless(schema: TableSchema, changes: Sequence[Change]) -> Overlay:
    tombstones = [change for change in changes if change.op is Op.DELETE]
    if not tombstones:
        return Overlay(pa.table({}), _written_rows(schema, changes))
    by = tombstones[0].rows.column_names
    lines, seqs, _ = _lines(tombstones, by)
    latest = lines.append_column(SEQ, pa.array(seqs)).group_by(by).aggregate([(SEQ, "max")])
    hidden_below = latest.column(f"{SEQ}_max").to_numpy()
    kept = [schema.columns.empty_table()]
    for change in changes:
        if change.op is Op.DELETE:
            continue
        line = lookup(change.rows, latest, by)
        visible = (line < 0) | (hidden_below[line] < change.seq)
        kept.append(change.rows.select(schema.names).filter(pa.array(visible)).cast(schema.columns))
    return Overlay(latest.select(by), pa.concat_tables(kept))


def distributed_sql(schema: TableSchema, base: str, changes: str, row_key: Sequence[str] = (), quote: str = '"') -> str:
    """The same merge as one SQL text for both engines, for changes too large for one machine's memory.

    `base` has the user's columns; `changes` also has _seq and _op.
    """

    def q(name: str) -> str:
        return quoted(name) if quote == '"' else f"`{name}`"

    columns = ", ".join(q(name) for name in schema.names)
    union = (
        f"SELECT {columns}, CAST(0 AS BIGINT) AS _seq, 'base' AS _op FROM {base} "
        f"UNION ALL SELECT {columns}, _seq, _op FROM {changes}"
    )
    by = ", ".join(q(name) for name in (schema.key or row_key))
    if not by:
        return f"SELECT {columns} FROM ({union}) u"
    if not schema.keyed:
        return (
            f"SELECT {columns} FROM (SELECT *, max(CASE WHEN _op = 'delete' THEN _seq ELSE -1 END) OVER "
            f"(PARTITION BY {by}) AS _gone "
            f"FROM ({union}) u) w WHERE _op <> 'delete' AND _seq > _gone"
        )
    order = f"{q(schema.order_by)} DESC NULLS LAST, " if schema.order_by else ""
    if schema.order_by:
        union = (
            "SELECT * FROM (SELECT *, max(CASE WHEN _op IN ('delete', 'replace') THEN _seq ELSE -1 END) OVER "
            f"(PARTITION BY {by}) "
            f"AS _gone FROM ({union}) u) b WHERE _op <> 'delete' AND _seq >= _gone"
        )
    return (
        f"SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {order}_seq DESC) AS _rank "
        f"FROM ({union}) u) w WHERE _rank = 1 AND _op <> 'delete'"
    )
