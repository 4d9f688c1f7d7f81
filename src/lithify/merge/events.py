"""Events of a change feed, in the order they arrived, reduced to one row and one operation per key.

A column of the events says what each of them does: insert, update or delete. Insert and update are the same thing, an
upsert of the whole row: a feed that says one where the other holds does no harm. Per key, in order of arrival, a delete
is a barrier that forgets everything before it. Of the upserts after the last delete the highest (order_by, arrival)
wins, the last one where the table has no order_by. So:

- no delete: an upsert, which on a table with order_by still has to win against the row that is there;
- a delete, then at least one upsert: a replace, which wins against whatever is there (without order_by an upsert does);
- a delete last: a delete.

On a table with order_by, a delete that carries a value of that column, of several of the first, is no barrier: it wins
or loses by (order_by, arrival) as an upsert does (`delete_at`). One without is the barrier that it always was.

On a table with merge rules an event is a contribution, and all after the last delete count (`merge/rules.py`);
otherwise duplicates of an event change nothing. Events may be resolved in portions: the outcomes are composed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import type_of
from lithify.core.missing_columns import check_frame
from lithify.core.ops import WORDS, Change, Op
from lithify.core.partial_rows import insertable_rows_of
from lithify.core.rows import check_rows, conform, fitted
from lithify.core.schema import TableSchema, nullable
from lithify.errors import InvalidRequest
from lithify.merge.partial import compose_events, has_place
from lithify.merge.rules import contributions, whole_lines
from lithify.merge.winners import OPS, compose_lines, lines_of


def resolve_events(
    schema: TableSchema, rows: pa.Table, op_column: str | None, *, partial: bool = False, complete: bool = False
) -> dict[Op, pa.Table]:
    """At most one table per operation, sorted by key and with no key in two of them. Deletes have key columns only, and
    the order value if they carry one.

    `rows` in order of arrival; without `op_column` all are upserts. Of a delete nothing else is looked at. `partial`:
    they give the columns that they have and leave the others as they are (`merge/partial.py`). `complete`: upserts
    without a column of the table are refused.
    """
    check_events(schema, rows.schema, op_column)
    if not rows.num_rows:
        return {}
    deleted = np.zeros(rows.num_rows, np.bool_) if op_column is None else _deletes(rows.column(op_column))
    if op_column is not None:
        rows = rows.drop_columns([op_column])
    written = rows if not deleted.any() else rows.filter(pa.array(~deleted))
    at = _deleted_at(schema, rows) if schema.order_by and deleted.any() else None
    if partial:
        keys = conform(rows.select(list(schema.key)), schema.select(schema.key))
        lines = insertable_rows_of(written, schema, () if op_column is None else (op_column,))
        return compose_events(schema, deleted, keys, contributions(lines, schema), at)
    whole = fitted(written, schema) if written.num_rows else schema.columns.empty_table()
    check_rows(whole, schema)
    if complete and written.num_rows:
        check_frame(written.column_names, schema)
    if not deleted.any() and not schema.rules:
        return compose_lines(schema, *lines_of(schema, [Change(0, Op.UPSERT, whole)]))
    keys = conform(rows.select(list(schema.key)), schema.select(schema.key))
    if schema.rules:
        return compose_events(schema, deleted, keys, whole_lines(whole, schema))
    ops = np.where(deleted, OPS.index(Op.DELETE), OPS.index(Op.UPSERT))
    if at is not None:
        ops[deleted & has_place(at)] = OPS.index(Op.DELETE_AT)
    return compose_lines(schema, ops, keys.combine_chunks(), whole, at)


def _deleted_at(schema: TableSchema, rows: pa.Table) -> pa.Table:
    """The order columns of each event, null where it has none."""
    wanted = nullable(schema.select(schema.order_columns))
    there = [name for name in wanted.names if name in rows.column_names]
    if not there:
        return pa.table([pa.nulls(rows.num_rows, f.type) for f in wanted], schema=wanted)
    return conform(rows.select(there), wanted)


def check_events(schema: TableSchema, given: pa.Schema, op_column: str | None) -> None:
    """What can be said by names alone."""
    if not schema.keyed:
        raise InvalidRequest("the table has no key, so events cannot be told apart: append them, without op_column")
    if op_column is None:
        return
    if op_column not in given.names:
        raise InvalidRequest(
            f"the events have no column {op_column!r}, which should say what each does: they have "
            f"{', '.join(given.names)}"
        )
    if op_column in schema.names:
        raise InvalidRequest(
            f"op_column {op_column!r} is a column of the table too, but says what to do and is not stored: rename it "
            "in the events"
        )
    kind = given.field(op_column).type
    if not type_of(kind).is_text:
        raise InvalidRequest(f"op_column {op_column!r} is {kind}, not text: {_known_words()}")
    missing = [name for name in schema.key if name not in given.names]
    if missing:
        raise InvalidRequest(f"the events lack the key column {', '.join(map(repr, missing))}")


def with_null_key(rows: pa.Table, key: Sequence[str]) -> np.ndarray:
    """Which rows have a null in their key; none where a key column is missing altogether."""
    found = np.zeros(rows.num_rows, np.bool_)
    for name in key:
        if name in rows.column_names and rows.column(name).null_count:
            found |= pc.is_null(rows.column(name)).to_numpy()
    return found


def _deletes(words: pa.ChunkedArray) -> np.ndarray:
    """Which events are deletes. Each distinct word is looked at once."""
    if isinstance(words.type, pa.DictionaryType):
        words = words.cast(words.type.value_type)
    coded = words.cast(pa.string()).combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    if coded.null_count:
        row = pc.index(pc.is_null(coded), True).as_py()
        raise InvalidRequest(f"the operation of row {row} is null: {_known_words()}")
    known = [WORDS.get(word.strip().lower()) for word in coded.dictionary.to_pylist()]
    if None in known:
        code = known.index(None)
        row = pc.index(coded.indices, pa.scalar(code, coded.indices.type)).as_py()
        raise InvalidRequest(
            f"the operation of row {row} is {coded.dictionary[code].as_py()[:60]!r}, which is not known: "
            f"{_known_words()}",
            public=f"the operation of row {row} is not known: {_known_words()}",
        )
    deletes = np.array([op is Op.DELETE for op in known], np.bool_)
    return np.asarray(deletes[coded.indices.to_numpy()])


def _known_words() -> str:
    return "use insert, update, upsert or delete (or i, c, r, u, d)"
