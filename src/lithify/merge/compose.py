"""Many changes as one: a sequence of changes to a keyed table reduced to one row and one operation per key.

Applying the result is applying the sequence one by one, whatever base holds. Without order_by the last operation on a
key says everything. With order_by a delete or replace is a barrier: what came before it is forgotten, and what came
after it competes by (order_by, arrival), nulls lowest. A winner behind a barrier is a replace, because it must also
win against base; one with no barrier before it stays an upsert, and base still takes part.

Lines are sorted by key once; everything after that is a reduction over runs of equal keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import order_of, take
from lithify.core.ops import Change, Op
from lithify.core.schema import TableSchema

OPS = (Op.UPSERT, Op.REPLACE, Op.DELETE)


def compose(schema: TableSchema, changes: Sequence[Change]) -> dict[Op, pa.Table]:
    """One row per key, sorted by key; the operations' keys are disjoint, and one with no rows is left out.

    The order of `changes` is the order of arrival; their seqs are not looked at.
    """
    assert schema.keyed, "rows of a table with no key are not told apart"
    if not any(change.rows.num_rows for change in changes):
        return {}
    ops = np.repeat([OPS.index(change.op) for change in changes], [change.rows.num_rows for change in changes])
    keys = _below([change.rows for change in changes], schema.select(schema.key)).combine_chunks()
    rows = _below([change.rows for change in changes if change.op is not Op.DELETE], schema.columns)
    return compose_lines(schema, ops, keys, rows)


def compose_lines(schema: TableSchema, ops: np.ndarray, keys: pa.Table, rows: pa.Table) -> dict[Op, pa.Table]:
    """The same of single lines, at least one. `ops` (places in OPS) and `keys` have one for each; `rows` are those of
    the lines that are no delete, in the same order.
    """
    lines = len(ops)
    order, starts = _runs(keys)
    has_row = ops != OPS.index(Op.DELETE)
    place = np.cumsum(has_row) - 1
    if schema.order_by:
        winner, op = _ordered(rows.column(schema.order_by), ops, has_row, place, order, starts)
    else:
        winner = order[np.append(starts[1:], lines) - 1]
        op = ops[winner]
    result = {}
    for number, name in enumerate(OPS):
        chosen = winner[op == number]
        if len(chosen):
            result[name] = take(keys, chosen) if name is Op.DELETE else take(rows, place[chosen])
    return result


def _below(tables: Sequence[pa.Table], columns: pa.Schema) -> pa.Table:
    """The wanted columns of all tables below each other."""
    picked = (table.select(columns.names) for table in tables)
    fitting = [table if table.schema.equals(columns) else table.cast(columns) for table in picked]
    return pa.concat_tables([columns.empty_table(), *fitting])


def _runs(keys: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Lines in order of key, then of arrival, and where each key's run starts among them."""
    order = order_of(keys, keys.column_names)
    ordered = take(keys, order)
    differs = np.zeros(len(order), np.bool_)
    differs[0] = True
    for column in ordered.columns:
        differs[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(order) - 1)).to_numpy()
    return order, np.flatnonzero(differs)


def _ordered(
    order_values: pa.ChunkedArray,
    ops: np.ndarray,
    has_row: np.ndarray,
    place: np.ndarray,
    order: np.ndarray,
    starts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The winning line of each key since its last barrier, and its operation."""
    lines = np.arange(len(ops))
    ranking = pc.sort_indices(
        pa.table({"order": order_values.take(pa.array(place, mask=~has_row)), "line": pa.array(lines)}),
        sort_keys=[("order", "ascending", "at_start"), ("line", "ascending")],
    ).to_numpy()
    rank = np.empty(len(ops), np.int64)
    rank[ranking] = lines
    last_barrier = np.maximum.reduceat(np.where(ops != OPS.index(Op.UPSERT), lines, -1)[order], starts)
    since = np.repeat(last_barrier, np.diff(np.append(starts, len(ops))))
    competes = has_row[order] & (order >= since)
    best = np.maximum.reduceat(np.where(competes, rank[order], -1), starts)
    winner = np.where(best >= 0, ranking[best].astype(np.int64), last_barrier)
    barred = np.where(last_barrier >= 0, OPS.index(Op.REPLACE), OPS.index(Op.UPSERT))
    return winner, np.where(best >= 0, barred, OPS.index(Op.DELETE))
