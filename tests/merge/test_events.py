"""Events of a change feed, settled to one operation per key: the same rows as applying them one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core.ops import WORDS, Change, Op
from lithify.core.schema import TableSchema, define
from lithify.errors import InvalidRequest
from lithify.merge.events import resolve_events, with_null_key
from lithify.merge.partial import line_columns
from lithify.merge.winners import compose

Row = dict[str, Any]
PLAIN = define(pa.schema([("k", pa.int64()), ("v", pa.int64())]), "k")
ORDERED = define(
    pa.schema([("a", pa.string()), ("b", pa.int32()), ("o", pa.int64()), ("v", pa.int64())]), ["a", "b"], "o"
)
NUMBERS = st.none() | st.integers(0, 3)
EVENTS = {
    "plain": st.fixed_dictionaries({"k": st.integers(0, 3), "v": NUMBERS}),
    "ordered": st.fixed_dictionaries({"a": st.sampled_from("xy"), "b": st.integers(0, 1), "o": NUMBERS, "v": NUMBERS}),
}
SCHEMAS = {"plain": PLAIN, "ordered": ORDERED}
OPERATIONS = st.sampled_from([*WORDS, "INSERT", "Delete", " d ", "D"])


def key_of(schema: TableSchema, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in schema.key)


def one_by_one(schema: TableSchema, there: dict[Any, Row], events: list[Row]) -> dict[Any, Row]:
    """The oracle: each event applied to the rows, in order of arrival. A delete with an order value is a row that says
    that there is none.
    """
    rows, gone = dict(there), {}
    for event in events:
        row = {name: event[name] for name in schema.names}
        key = key_of(schema, row)
        known = rows.get(key) or gone.get(key)
        if event["op"].strip().lower() not in ("delete", "d"):
            if beats(schema, row, known):
                rows[key] = row
                gone.pop(key, None)
        elif schema.order_by is None or row[schema.order_by] is None:
            rows.pop(key, None)
            gone.pop(key, None)
        elif beats(schema, row, known):
            rows.pop(key, None)
            gone[key] = row
    return rows


def beats(schema: TableSchema, row: Row, other: Row | None) -> bool:
    if other is None or schema.order_by is None:
        return True
    new, old = (-1 if each[schema.order_by] is None else each[schema.order_by] for each in (row, other))
    return bool(new >= old)


def applied(schema: TableSchema, there: dict[Any, Row], parts: dict[Op, pa.Table]) -> dict[Any, Row]:
    """What each operation means for the rows that are there."""
    rows = dict(there)
    for op, table in parts.items():
        for row in table.to_pylist():
            key = key_of(schema, row)
            if op in (Op.DELETE, Op.GONE_AT):
                rows.pop(key, None)
            elif op is Op.DELETE_AT:
                if beats(schema, row, rows.get(key)):
                    rows.pop(key, None)
            elif op is Op.REPLACE or beats(schema, row, rows.get(key)):
                rows[key] = row
    return rows


def events_table(schema: TableSchema, events: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(events, pa.schema([*[f.with_nullable(True) for f in schema.columns], ("op", "string")]))


@st.composite
def feeds(draw: st.DrawFn) -> tuple[TableSchema, list[Row], list[Row]]:
    kind = draw(st.sampled_from(sorted(SCHEMAS)))
    there = draw(st.lists(EVENTS[kind], max_size=6))
    events = draw(st.lists(st.tuples(EVENTS[kind], OPERATIONS), max_size=25))
    return SCHEMAS[kind], there, [{**row, "op": op} for row, op in events]


@settings(max_examples=400, deadline=None)
@given(feeds())
def test_settled_events_leave_the_rows_that_applying_one_by_one_leaves(
    feed: tuple[TableSchema, list[Row], list[Row]],
) -> None:
    schema, there, events = feed
    before = {key_of(schema, row): row for row in there}
    parts = resolve_events(schema, events_table(schema, events), "op")
    assert applied(schema, before, parts) == one_by_one(schema, before, events)
    keys = [key_of(schema, row) for table in parts.values() for row in table.to_pylist()]
    assert len(keys) == len(set(keys)), "a key stands in one operation only"
    assert all(table.schema == line_columns(schema, op) for op, table in parts.items())


@settings(max_examples=150, deadline=None)
@given(feeds(), st.integers(0, 25))
def test_events_settled_in_two_portions_and_composed_are_the_same_as_at_once(
    feed: tuple[TableSchema, list[Row], list[Row]], cut: int
) -> None:
    schema, _, events = feed
    halves = [resolve_events(schema, events_table(schema, half), "op") for half in (events[:cut], events[cut:])]
    together = compose(schema, [Change(0, op, rows) for parts in halves for op, rows in parts.items()])
    assert together == resolve_events(schema, events_table(schema, events), "op")


def test_a_duplicate_of_an_event_changes_nothing() -> None:
    events = [{"k": 1, "v": 1, "op": "insert"}, {"k": 2, "v": 2, "op": "u"}, {"k": 3, "v": None, "op": "d"}]
    doubled = [event for event in events for _ in range(2)]
    assert resolve_events(PLAIN, events_table(PLAIN, doubled), "op") == resolve_events(
        PLAIN, events_table(PLAIN, events), "op"
    )


def test_without_a_column_of_operations_every_row_is_an_upsert_and_the_last_of_a_key_wins() -> None:
    rows = pa.table({"k": [1, 2, 1], "v": [1, 2, 3]})
    assert resolve_events(PLAIN, rows, None) == {Op.UPSERT: pa.table({"k": [1, 2], "v": [3, 2]}, PLAIN.columns)}


def test_an_event_older_than_a_delete_without_an_order_value_brings_the_row_back() -> None:
    """It has nothing to compare with: whatever arrives after it is newer than it."""
    old = {"a": "x", "b": 0, "o": 1, "v": 7}
    parts = resolve_events(ORDERED, events_table(ORDERED, [{**old, "o": None, "op": "d"}, {**old, "op": "u"}]), "op")
    assert {op: rows.to_pylist() for op, rows in parts.items()} == {Op.REPLACE: [old]}


def test_an_event_older_than_a_delete_with_an_order_value_stays_dead() -> None:
    old = {"a": "x", "b": 0, "o": 1, "v": 7}
    parts = resolve_events(ORDERED, events_table(ORDERED, [{**old, "o": 9, "op": "d"}, {**old, "op": "u"}]), "op")
    assert {op: rows.to_pylist() for op, rows in parts.items()} == {Op.DELETE_AT: [{"a": "x", "b": 0, "o": 9}]}
    without = events_table(ORDERED, [{**old, "op": "d"}, {**old, "op": "u"}]).drop_columns(["o"])
    assert set(resolve_events(ORDERED, without, "op")) == {Op.REPLACE}, "the events have no such column"


def test_of_a_delete_only_the_key_is_looked_at() -> None:
    required = define(pa.schema([("k", pa.int64()), pa.field("v", pa.int64(), nullable=False)]), "k")
    rows = pa.table({"k": [1], "v": pa.nulls(1, pa.int64()), "op": ["d"]})
    assert resolve_events(required, rows, "op")[Op.DELETE].to_pylist() == [{"k": 1}]
    with pytest.raises(InvalidRequest, match="'v' is null"):
        resolve_events(required, rows.set_column(2, "op", pa.array(["u"])), "op")


def test_no_events_settle_to_nothing() -> None:
    assert resolve_events(PLAIN, events_table(PLAIN, []), "op") == {}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.table({"k": [1, 2], "op": ["u", "truncate"]}), "the operation of row 1 is 'truncate'"),
        (pa.table({"k": [1, 2], "op": ["u", None]}), "the operation of row 1 is null"),
        (pa.table({"k": [1], "op": [7]}), "is int64, not text"),
        (pa.table({"k": [1], "what": ["u"]}), "the events have no column 'op'.*k, what"),
        (pa.table({"v": [1], "op": ["d"]}), "lack the key column 'k'"),
        (pa.table({"k": [1], "w": [1], "op": ["u"]}), "column 'w' is not in the table"),
    ],
)
def test_events_that_cannot_be_meant_are_refused_with_their_place(rows: pa.Table, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        resolve_events(PLAIN, rows, "op")


def test_a_table_that_has_the_column_of_operations_itself_is_told_so() -> None:
    with pytest.raises(InvalidRequest, match="is a column of the table too"):
        resolve_events(PLAIN, pa.table({"k": [1], "v": ["u"]}), "v")


def test_a_table_with_no_key_has_no_events() -> None:
    with pytest.raises(InvalidRequest, match="has no key"):
        resolve_events(define(pa.schema([("v", pa.int64())])), pa.table({"v": [1]}), None)


def test_a_word_may_come_as_a_dictionary() -> None:
    words = pa.array(["u", "d"]).dictionary_encode()
    assert set(resolve_events(PLAIN, pa.table({"k": [1, 2], "op": words}), "op")) == {Op.UPSERT, Op.DELETE}


def test_rows_with_a_null_anywhere_in_their_key_are_found() -> None:
    rows = pa.table({"a": ["x", None, "y"], "b": pa.array([None, 1, 2], pa.int32())})
    assert with_null_key(rows, ORDERED.key).tolist() == [True, True, False]
