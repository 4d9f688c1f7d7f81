"""Late events: what is remembered of a delete that has a place in the order of its rows, after it was folded.

A row in base says itself how new it is. A row that was deleted says nothing any more, so a fold leaves the tombstones
that have an order value in the changes log for a while (`kept`). They hide nothing: base is already without what they
deleted, and what base has beats them. They only keep late events out: an upsert, update or ordered delete of such a key
that is older than its tombstone does not count (`without_late`); an equally old one came later, and counts. A barrier
ends that, among what is remembered as well as among what is pending: whatever comes behind it meets nothing before it.

A tombstone is forgotten `late_hours` after its fold, but not while anything is pending that it may keep out. Where one
was forgotten a new life of its key begins, so a feed that goes past such a moment is told in two parts.

So what is remembered is a table of keys and their places (`order`), one for each key, and events are filtered by it
before they are merged. It does not matter whether some of what is merged is remembered too, because a tombstone keeps
out exactly what would lose against it anyway.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import lookup, take
from lithify.core.names import OP, SEQ
from lithify.core.ops import BARRIERS, ORDERED_DELETES, Change, Op
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile
from lithify.merge.newer import older, older_sql
from lithify.merge.winners import OPS, by_order, placed, places_of, winners

# So many files say what is remembered before they are merged, and of so many ages are those that then stay apart.
FILES_MAX, SPANS = 16, 8
REMEMBERED_OPS = BARRIERS | ORDERED_DELETES
# Competing by their order value, and so what a remembered tombstone can keep out.
_COMPETING = frozenset({Op.UPSERT, Op.UPDATE, Op.DELETE_AT})


def remembering(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Of files, in the order of their seqs, those that say what is remembered: none where no delete has an order value,
    and no barrier that has none before it.
    """
    chosen: list[DataFile] = []
    for file in files:
        if file.op in ORDERED_DELETES or (chosen and file.op in BARRIERS):
            chosen.append(file)
    return tuple(chosen)


def kept(
    schema: TableSchema, folded: Sequence[DataFile], pending: Sequence[DataFile], young: Callable[[DataFile], bool]
) -> tuple[DataFile, ...]:
    """Which of the folded files stay in the log: tombstones with an order value from the first on that is `young` or
    may keep something out that is pending, and the barriers behind them, without which they would keep out what came
    behind those. What was kept out once must not come back because time went by.
    """
    ordered = sorted(folded, key=lambda file: (file.seq, file.op, file.path))
    for number, file in enumerate(ordered):
        if file.op in ORDERED_DELETES and (young(file) or any(may_keep_out(schema, file, each) for each in pending)):
            return remembering(ordered[number:])
    return ()


def may_keep_out(schema: TableSchema, tombstones: DataFile, late: DataFile) -> bool:
    """Whether a line of a file can be older than a tombstone of its key, by the statistics of both."""
    first, *others = schema.order_columns
    if late.op not in _COMPETING:
        return False
    (key, mine), (other, its) = ((file.bound(schema.key[0]), file.bound(first)) for file in (tombstones, late))
    if key.known and other.known and (key.high < other.low or other.high < key.low):
        return False
    if not (mine.known and its.known and its.nulls == 0):
        return True
    # What is equal in the first column may be older by the next.
    return bool(its.low <= mine.high if others else its.low < mine.high)


def worth_merging(files: Sequence[DataFile], late_ms: int, rows_max: int) -> tuple[DataFile, ...]:
    """Of what is remembered, in the order of seqs, commits in a row that become one: none while there are few files.
    Only those of about the same age, so that no tombstone is kept much longer than it has to be.
    """
    if len(files) <= FILES_MAX:
        return ()
    span_ms = max(1, late_ms // SPANS)
    runs: list[list[DataFile]] = []
    for _, found in itertools.groupby(files, key=lambda file: file.seq):
        commit, last = list(found), runs[-1] if runs else []
        near = bool(last) and last[0].time_ms // span_ms == commit[0].time_ms // span_ms
        if near and sum(file.rows for file in (*last, *commit)) <= rows_max:
            last += commit
        else:
            runs.append(commit)
    best = max(runs, key=len)
    return tuple(best) if len({file.seq for file in best}) > 1 else ()


def ends_of(schema: TableSchema, changes: Sequence[Change]) -> list[Change]:
    """What ends something: tombstones, and barriers as plain deletes, whose rows do not matter here."""
    key = schema.select(schema.key)
    return [
        Change(change.seq, Op.DELETE, change.rows.select(key.names)) if change.op is Op.REPLACE else change
        for change in changes
        if change.op in REMEMBERED_OPS and change.rows.num_rows
    ]


def remembered(schema: TableSchema, changes: Sequence[Change]) -> pa.Table:
    """Key and place of each tombstone that still keeps something out, of changes in the order of arrival."""
    key = schema.select(schema.key)
    columns = schema.place_columns
    ends = ends_of(schema, changes)
    if not any(change.op in ORDERED_DELETES for change in ends):
        return columns.empty_table()
    ops = np.repeat([OPS.index(change.op) for change in ends], [change.rows.num_rows for change in ends])
    keys = pa.concat_tables([change.rows.select(key.names).cast(key) for change in ends]).combine_chunks()
    places = places_of(schema, ends)
    assert places is not None
    groups = by_order(keys)
    done, line = winners(ops, groups, places)
    chosen = np.flatnonzero(done != OPS.index(Op.DELETE))
    return placed(schema, take(groups.keys, chosen), take(places, line[chosen]))


def without_late(schema: TableSchema, changes: Sequence[Change], tombstones: pa.Table | None) -> Sequence[Change]:
    """The changes, in order of their seqs, without the lines that a remembered tombstone keeps out."""
    if tombstones is None or not tombstones.num_rows or not changes:
        return changes
    key, order = list(schema.key), schema.order_columns
    columns = schema.select(key)
    lines = pa.concat_tables([change.rows.select(key).cast(columns) for change in changes])
    met = take(tombstones, np.flatnonzero(lookup(tombstones, lines.group_by(key).aggregate([]), key) >= 0))
    if not met.num_rows:
        return changes
    at, over = [met.column(name).combine_chunks() for name in order], np.zeros(met.num_rows, np.bool_)
    result = []
    for change in sorted(changes, key=lambda change: change.seq):
        found = lookup(change.rows, met, key)
        if change.op in _COMPETING:
            lines = pa.array(found, mask=(found < 0) | over[found])
            places = [
                change.rows.column(name).combine_chunks().cast(each.type) for name, each in zip(order, at, strict=True)
            ]
            limits = [each.take(lines) for each in at]
            # The first of a tombstone is never null: where it is there is none.
            late = older(places, limits) & pc.is_valid(limits[0]).to_numpy(zero_copy_only=False)
            if late.any():
                change = replace(change, rows=change.rows.filter(pa.array(~late)))
        else:
            over[found[found >= 0]] = True
        result.append(change)
    return result


def without_late_sql(schema: TableSchema, changes: str, tombstones: str, quote: str = '"') -> str:
    """The same as one SQL text for both engines. `changes` has `SEQ` and `OP`; `tombstones` the columns of
    `tombstone_columns`.
    """

    def q(name: str) -> str:
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    by = ", ".join(q(name) for name in schema.key)
    barriers = ", ".join(f"'{op.value}'" for op in sorted(BARRIERS))
    competing = ", ".join(f"'{op.value}'" for op in sorted(_COMPETING))
    names = tombstone_columns(schema)
    same = " AND ".join(f"c.{q(name)} = t.{renamed}" for name, renamed in zip(schema.key, names, strict=False))
    limits, order = (
        [f"t.{name}" for name in names[len(schema.key) :]],
        [f"c.{q(name)}" for name in schema.order_columns],
    )
    first = f"min(CASE WHEN {OP} IN ({barriers}) THEN {SEQ} END) OVER (PARTITION BY {by}) AS _lithify_first"
    return (
        f"SELECT c.* FROM (SELECT *, {first} FROM {changes} x) c LEFT JOIN {tombstones} t ON {same} "
        f"WHERE {limits[0]} IS NULL OR c.{OP} NOT IN ({competing}) OR c.{SEQ} > c._lithify_first "
        f"OR NOT {older_sql(order, limits)}"
    )


def tombstone_columns(schema: TableSchema) -> list[str]:
    """Names for the key and the place of tombstones that no column of a table has."""
    key = [f"_lithify_late_{number}" for number in range(len(schema.key))]
    return [*key, *(f"_lithify_late_at_{number}" for number in range(len(schema.order_columns)))]
