"""The one definition of the merge.

A table's rows are its base rows that no change touches, plus the winner of each changed key unless the winner is
a tombstone. `resolve` reduces the changes that base does not hold yet to an `Overlay`: keys whose base row is
hidden, and rows shown instead. Every reader then does the same simple thing (`apply`): base ANTI JOIN hidden UNION ALL
rows.

`compose` says which change of a key wins. With order_by a base row takes part where no barrier (a delete or replace)
stands before the winner. Such open contests are returned in `contested`; `settle` drops the changes that lost against
base.

A table with no key has appended rows and tombstones by one set of row-key columns (nulls compare equal). A tombstone
hides base rows and rows with a lower seq, never newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import anti_join, lookup, take
from lithify.core.names import SEQ
from lithify.core.ops import Change, Op, Overlay
from lithify.core.schema import TableSchema
from lithify.merge.compose import OPS, by_hash, lines_of, winners


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


def settle(schema: TableSchema, overlay: Overlay, losers: pa.Table) -> Overlay:
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
    kept = [schema.columns.empty_table()]
    for change in changes:
        if change.op is Op.DELETE:
            continue
        line = lookup(change.rows, latest, by)
        visible = (line < 0) | (hidden_below[line] < change.seq)
        kept.append(change.rows.select(schema.names).filter(pa.array(visible)).cast(schema.columns))
    return Overlay(latest.select(by), pa.concat_tables(kept))
