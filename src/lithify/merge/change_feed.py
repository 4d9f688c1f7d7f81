"""The exact effect of each commit on a table's rows, as one SQL text for both engines.

What is written is not yet what happens: an upsert inserts or updates, a late one loses against a newer row, a delete
may meet nothing. So the events of each key are laid out in the order of their seqs, behind the row that the key had at
the beginning (`before`), and each is compared with the one before it:

- order_by: a delete or replace is a barrier and begins a new life of its key. Within a life, an upsert counts if its
  order value is at least the highest before it, nulls lowest; so does a delete that has one. What does not count is
  dropped first.
- Of the rest, a write inserts if nothing stands before it or a delete does, else it updates; a delete counts if a row
  stands before it, and shows that row. With `before`, an update is two rows: the one that stood before it, and its own.

- A change that gives some columns alone is first completed: an upsert of the row as it was with it.

Without a key, rows have no lives: each appended row is an insert, and the first later tombstone that matches it takes
it away again. Tombstones go by one set of columns at a time, but by another one after a fold: each set has a window of
its own.

`events` has the columns that the text needs (`event_columns`), with any number of others that are carried along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lithify.core.column_changes import ColumnChange
from lithify.core.names import OP, SEQ, quoted
from lithify.core.ops import Op
from lithify.core.schema import TableSchema
from lithify.merge.newer import ranked_sql
from lithify.merge.partial_sql import whole_events_sql

KIND = "_kind"
INSERT, UPDATE, DELETE = "insert", "update", "delete"
UPDATE_BEFORE, UPDATE_AFTER = "update_before", "update_after"
BEFORE = "before"
# Which set of row-key columns a tombstone of a table with no key goes by.
BY = "_lithify_by"
_PRIOR, _LIFE, _BEST, _GONE = "_lithify_prior", "_lithify_life", "_lithify_best", "_lithify_gone"
_SIDE = "_lithify_side"  # 0: the row before an update; 1: everything else


@dataclass(frozen=True)
class ChangeFile:
    """A file of an original commit. `columns`: those that its tombstones go by, as they are called now. `later`: how
    the columns of the table have changed since.
    """

    seq: int
    op: Op
    path: str
    rows: int
    size_bytes: int
    columns: tuple[str, ...] = ()
    later: tuple[ColumnChange, ...] = ()


def feed_schema(schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Schema:
    """All nullable: an added column is null in rows that are older than it."""
    user = schema.columns if columns is None else schema.select(columns)
    fields = [pa.field(f.name, f.type) for f in user]
    return pa.schema([*fields, pa.field(SEQ, pa.int64()), pa.field(KIND, pa.string())])


def is_partial(files: Sequence[ChangeFile]) -> bool:
    """Whether some of the changes give some columns alone."""
    return any(file.op is Op.UPDATE for file in files)


def row_keys_of(schema: TableSchema, files: Sequence[ChangeFile]) -> tuple[tuple[str, ...], ...]:
    """The sets of columns that tombstones go by, in a fixed order: one on a table with a key, if there is any."""
    if schema.keyed:
        return (schema.key,)
    return tuple(sorted({tuple(sorted(file.columns)) for file in files if file.op is Op.DELETE}))


def event_columns(schema: TableSchema, row_keys: Sequence[Sequence[str]]) -> list[str]:
    """User columns that decide; `_seq`, `_op` and, without a key, `_lithify_by` come on top."""
    deciding = [*schema.key, *schema.deciding_columns, *(n for by in row_keys for n in by)]
    return list(dict.fromkeys(deciding))


def feed_sql(
    schema: TableSchema,
    events: str,
    carried: Sequence[str],
    row_keys: Sequence[Sequence[str]] = (),
    quote: str = '"',
    *,
    before: bool = False,
    partial: bool = False,
) -> str:
    """Rows of `carried` columns with _seq and _kind. `events`: the changes, and under the operation `before`, with a
    lower seq than any of them, the rows that stood before. `before`: updates come with the row before them.
    `partial`: some changes give some columns alone, and the events tell which; then `carried` are columns of the table.
    """

    def one(name: str) -> str:
        return quoted(name) if quote == '"' else f"`{name}`"

    def q(names: Sequence[str]) -> list[str]:
        return [one(name) for name in names]

    if schema.keyed:
        if partial:
            events = f"({whole_events_sql(schema, events, carried, (BY,), one)}) p"
        elif schema.order_by:
            ranked, order = ranked_sql(schema, events, one)
            events = f"({_undefeated(ranked, ', '.join(q(schema.key)), order)}) e"
        return _keyed(events, q(carried), q(schema.key), before=before)
    return _keyless(events, q(carried), [q(by) for by in row_keys])


def _keyed(events: str, carried: Sequence[str], key: Sequence[str], *, before: bool) -> str:
    by = ", ".join(key)
    window = f"OVER (PARTITION BY {by} ORDER BY {SEQ})"
    moved = [name for name in carried if name not in key]
    priors = "".join(f", lag({name}) {window} AS {_PRIOR}_{n}" for n, name in enumerate(moved))
    earlier = _deletes(OP) + (f" OR {_SIDE} = 0" if before else "")
    shown = []
    for name in carried:
        if name in key:
            shown.append(name)
        else:
            prior = f"{_PRIOR}_{moved.index(name)}"
            shown.append(f"CASE WHEN {earlier} THEN {prior} ELSE {name} END AS {name}")
    update = f"CASE WHEN {_SIDE} = 0 THEN '{UPDATE_BEFORE}' ELSE '{UPDATE_AFTER}' END" if before else f"'{UPDATE}'"
    kind = (
        f"CASE WHEN {_deletes(OP)} THEN '{DELETE}' WHEN {_PRIOR} IS NULL OR {_deletes(_PRIOR)} THEN '{INSERT}' "
        f"ELSE {update} END AS {KIND}"
    )
    # Without a prior the last comparison is null, which is not true: a delete of nothing.
    sides, updated = "", ""
    if before:
        sides = f" CROSS JOIN (VALUES (0), (1)) AS s({_SIDE})"
        updated = f" AND ({_SIDE} = 1 OR NOT ({_deletes(OP)} OR {_deletes(_PRIOR)}))"
    return (
        f"SELECT {', '.join([*shown, SEQ, kind])} FROM (SELECT *, lag({OP}) {window} AS {_PRIOR}{priors} "
        f"FROM {events}) w{sides} WHERE {OP} <> '{BEFORE}' AND NOT ({_deletes(OP)} AND {_deletes(_PRIOR)}){updated}"
    )


def _undefeated(events: str, by: str, order: str) -> str:
    lives = (
        f"SELECT *, sum(CASE WHEN {OP} IN ('delete', 'replace', 'gone_at') THEN 1 ELSE 0 END) OVER (PARTITION BY "
        f"{by} ORDER BY {SEQ} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS {_LIFE} FROM {events}"
    )
    contests = (
        f"SELECT *, max({order}) OVER (PARTITION BY {by}, {_LIFE} ORDER BY {SEQ} ROWS BETWEEN UNBOUNDED PRECEDING "
        f"AND 1 PRECEDING) AS {_BEST} FROM ({lives}) l"
    )
    beaten = f"{OP} IN ('upsert', 'delete_at') AND {_BEST} IS NOT NULL AND ({order} IS NULL OR {order} < {_BEST})"
    return f"SELECT * FROM ({contests}) c WHERE NOT ({beaten})"


def _deletes(op: str) -> str:
    return f"{op} IN ('delete', 'delete_at', 'gone_at')"


def _keyless(events: str, carried: Sequence[str], row_keys: Sequence[Sequence[str]]) -> str:
    columns = ", ".join(carried)
    if not row_keys:
        return f"SELECT {columns}, {SEQ}, '{INSERT}' AS {KIND} FROM {events} WHERE {OP} = 'upsert'"
    # Seen from the newest on, the lowest tombstone so far is the first that came after the row.
    windows = [
        f"min(CASE WHEN {OP} = 'delete' AND {BY} = {n} THEN {SEQ} END) OVER (PARTITION BY {', '.join(by)} ORDER BY "
        f"{SEQ} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        for n, by in enumerate(row_keys)
    ]
    gone = windows[0] if len(windows) == 1 else f"least({', '.join(windows)})"
    marked = f"SELECT *, {gone} AS {_GONE} FROM {events}"
    return (
        f"SELECT {columns}, {SEQ}, '{INSERT}' AS {KIND} FROM {events} WHERE {OP} = 'upsert' UNION ALL "
        f"SELECT {columns}, {_GONE} AS {SEQ}, '{DELETE}' AS {KIND} FROM ({marked}) m WHERE {OP} <> 'delete' AND "
        f"{_GONE} IS NOT NULL"
    )
