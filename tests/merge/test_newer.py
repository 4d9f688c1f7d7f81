"""Ties broken by a second column: the first decides, of equal ones the next, nulls lowest, then who came last.

Every form of the merge is held against an oracle that compares plain tuples.
"""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify import InvalidRequest
from lithify.core.arrow_rows import anti_join
from lithify.core.names import GIVEN, NTH, OP, SEQ, given_text
from lithify.core.ops import BARRIERS, ORDERED_DELETES, Change, Op
from lithify.core.ordered_deletes import deletes_at
from lithify.core.partial_rows import patch_columns
from lithify.core.schema import (
    FORMAT_PROPERTY,
    ORDER_PROPERTY,
    SEVERAL_ORDER_PROPERTY,
    TableSchema,
    define,
    from_properties,
)
from lithify.core.snapshot import Bounds, DataFile
from lithify.merge.apply import distributed_sql
from lithify.merge.events import resolve_events
from lithify.merge.late import may_keep_out, remembered, tombstone_columns, without_late
from lithify.merge.newer import older, older_sql, ranks
from lithify.merge.partial import line_columns
from lithify.merge.winners import compose, resolve, with_patches, without_losers
from support.effort import examples

Row = dict[str, Any]
Event = tuple[Op, Row]
COLUMNS = pa.schema([("k", pa.int64()), ("at", pa.int16()), ("v", pa.int64()), ("lsn", pa.string())])
TIES = define(COLUMNS, "k", ["at", "lsn"])
PLACES = {"at": st.none() | st.integers(0, 2), "lsn": st.sampled_from([None, "", "a", "é"])}
OPS = [Op.UPSERT, Op.UPSERT, Op.UPDATE, Op.UPDATE, Op.DELETE_AT, Op.DELETE, Op.REPLACE]


def place(row: Row) -> list[tuple[Any, ...]]:
    return [() if row[name] is None else (row[name],) for name in ("at", "lsn")]


@st.composite
def events(draw: st.DrawFn) -> Event:
    op, row = draw(st.sampled_from(OPS)), {"k": draw(st.integers(0, 1))}
    if op is Op.DELETE:
        return op, row
    row |= {name: draw(values) for name, values in PLACES.items()}
    if op is Op.DELETE_AT:
        row["at"] = row["at"] or 0  # a delete with no value of the first column is a barrier
    elif op is not Op.UPDATE or draw(st.booleans()):
        row["v"] = draw(st.none() | st.integers(0, 9))
    return op, row


def one_by_one(history: list[Event]) -> dict[int, Row]:
    """What is known of each key: its row, or when it was deleted."""
    known: dict[int, Row] = {}
    for op, event in history:
        there = known.get(event["k"])
        if op is Op.DELETE:
            known.pop(event["k"], None)
        elif op is Op.REPLACE or there is None or place(event) >= place(there):
            if op is Op.DELETE_AT:
                known[event["k"]] = {**event, "gone": True}
            elif op is Op.UPDATE and there is not None and "gone" not in there:
                known[event["k"]] = {**there, **event}
            else:
                known[event["k"]] = {**dict.fromkeys(TIES.names), **event}
    return {key: row for key, row in known.items() if "gone" not in row}


def change(seq: int, op: Op, row: Row) -> Change:
    if op is Op.UPDATE:
        said = {**row, GIVEN: given_text(name for name in row if name != "k")}
        return Change(seq, op, pa.Table.from_pylist([said], schema=patch_columns(TIES)))
    return Change(seq, op, pa.Table.from_pylist([row], schema=line_columns(TIES, op)))


def composed(changes: list[Change], cuts: list[int]) -> list[Change]:
    edges = sorted({0, *(min(cut, len(changes)) for cut in cuts), len(changes)})
    return [
        Change(changes[high - 1].seq, op, rows)
        for low, high in itertools.pairwise(edges)
        for op, rows in compose(TIES, changes[low:high]).items()
    ]


def read(base: pa.Table, changes: list[Change], tombstones: pa.Table | None) -> pa.Table:
    overlay = resolve(TIES, without_late(TIES, changes, tombstones))
    there = {row["k"]: row for row in base.to_pylist()}
    if overlay.contested is not None:
        rows = overlay.contested.to_pylist()
        lost = [{"k": row["k"]} for row in rows if row["k"] in there and place(row) < place(there[row["k"]])]
        overlay = without_losers(TIES, overlay, pa.Table.from_pylist(lost, schema=TIES.select(["k"])))
    if overlay.patches is not None:
        met = [row for key, row in there.items() if key in overlay.patches.column("k").to_pylist()]
        overlay = with_patches(TIES, overlay, pa.Table.from_pylist(met, schema=TIES.columns))
    return pa.concat_tables([anti_join(base, overlay.hidden, ["k"]), overlay.rows])


def by_key(rows: pa.Table) -> dict[int, Row]:
    found = {row["k"]: row for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found


@settings(max_examples=examples(200, 3_000), deadline=None)
@given(st.lists(events(), max_size=9), st.integers(0, 9), st.lists(st.integers(1, 8), max_size=3))
def test_whatever_is_folded_or_merged_the_rows_are_those_of_one_event_after_the_other(
    history: list[Event], folded: int, cuts: list[int]
) -> None:
    changes = [change(seq, op, row) for seq, (op, row) in enumerate(history, 1)]
    before, after = changes[:folded], changes[folded:]
    base = read(TIES.columns.empty_table(), before, None)
    memory = [each for each in before if each.op in BARRIERS | ORDERED_DELETES]
    assert by_key(read(base, composed(after, cuts), remembered(TIES, memory))) == one_by_one(history)


def lines(changes: list[Change]) -> pa.Table:
    columns = [*COLUMNS, pa.field(SEQ, pa.int64()), pa.field(OP, pa.string())]
    schema = pa.schema([*columns, pa.field(GIVEN, pa.string()), pa.field(NTH, pa.int32())])
    rows = [
        {**row, SEQ: each.seq, OP: each.op.value, NTH: nth}
        for each in changes
        for nth, row in enumerate(each.rows.to_pylist())
    ]
    return pa.Table.from_pylist(rows, schema=schema)


@settings(max_examples=examples(60, 1_000), deadline=None)
@given(st.lists(events(), min_size=1, max_size=8), st.integers(0, 8))
def test_sql_says_the_same(history: list[Event], folded: int) -> None:
    changes = [change(seq, op, row) for seq, (op, row) in enumerate(history, 1)]
    base = read(TIES.columns.empty_table(), changes[:folded], None)
    memory = remembered(TIES, [each for each in changes[:folded] if each.op in BARRIERS | ORDERED_DELETES])
    partial = any(each.op is Op.UPDATE for each in changes)
    query = distributed_sql(TIES, "base", "changes", partial=partial, remembered="tombstones")
    ctx = SessionContext()
    tables = {
        "base": base,
        "changes": lines(changes[folded:]),
        "tombstones": memory.rename_columns(tombstone_columns(TIES)),
    }
    for name, rows in tables.items():
        ctx.register_record_batches(name, [rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]])
    assert by_key(ctx.sql(query).to_arrow_table()) == one_by_one(history)


PAIRS = st.lists(st.tuples(*(st.fixed_dictionaries(PLACES) for _ in range(2))), min_size=1, max_size=8)


@settings(max_examples=examples(100, 1_000), deadline=None)
@given(PAIRS)
def test_two_places_compare_alike_in_arrow_in_sql_and_by_rank(pairs: list[tuple[Row, Row]]) -> None:
    expected = [place(left) < place(right) for left, right in pairs]
    schema = TIES.select(TIES.order_columns)
    left, right = (pa.Table.from_pylist([pair[side] for pair in pairs], schema=schema) for side in (0, 1))
    arrays = [[column.combine_chunks() for column in table.columns] for table in (left, right)]
    assert older(*arrays).tolist() == expected

    beside = pa.table([*left.columns, *right.columns], names=["la", "ll", "ra", "rl"])
    text = older_sql(["la", "ll"], ["ra", "rl"])
    with duckdb.connect() as db:
        db.register("beside", beside)
        assert [row[0] for row in db.sql(f"SELECT {text} FROM beside").fetchall()] == expected

    found = ranks(pa.concat_tables([left, right]))
    assert (found[: len(pairs)] < found[len(pairs) :]).tolist() == expected
    assert found.min() == 1
    assert np.unique(found).tolist() == list(range(1, int(found.max()) + 1))


def tombstones_and_late(high: int, low: int) -> tuple[DataFile, DataFile]:
    key = Bounds(1, 1, 0)
    return (
        DataFile("d", "d", 1, 1, {"k": key, "at": Bounds(0, high, 0)}, op=Op.DELETE_AT),
        DataFile("u", "u", 1, 1, {"k": key, "at": Bounds(low, 9, 0)}, op=Op.UPSERT),
    )


def test_a_tombstone_is_kept_for_what_is_equal_in_the_first_column_and_may_be_older_by_the_second() -> None:
    one = define(COLUMNS, "k", "at")
    assert not may_keep_out(one, *tombstones_and_late(5, 5))
    assert may_keep_out(TIES, *tombstones_and_late(5, 5))
    assert not may_keep_out(TIES, *tombstones_and_late(5, 6))


def test_a_delete_of_a_stream_has_a_place_if_it_has_the_first_of_the_columns() -> None:
    rows = pa.Table.from_pylist(
        [{"k": 1, "at": 1, "lsn": None, "op": "d"}, {"k": 2, "at": None, "lsn": "a", "op": "d"}],
        schema=pa.schema([("k", pa.int64()), ("at", pa.int16()), ("lsn", pa.string()), ("op", pa.string())]),
    )
    for partial in (False, True):
        found = resolve_events(TIES, rows, "op", partial=partial)
        assert {op: each.to_pylist() for op, each in found.items()} == {
            Op.DELETE_AT: [{"k": 1, "at": 1, "lsn": None}],
            Op.DELETE: [{"k": 2}],
        }


def test_a_delete_may_lack_a_later_column_that_rows_need() -> None:
    needed = define(
        pa.schema([("k", pa.int64()), ("at", pa.int16()), pa.field("lsn", pa.string(), False)]), "k", ["at", "lsn"]
    )
    rows = pa.table({"k": [1], "at": pa.array([1], pa.int16()), "op": ["d"]})
    found = resolve_events(needed, rows, "op")[Op.DELETE_AT]
    assert found.to_pylist() == [{"k": 1, "at": 1, "lsn": None}]
    again = compose(needed, [Change(1, Op.DELETE_AT, found)])[Op.DELETE_AT]
    assert remembered(needed, [Change(1, Op.DELETE_AT, again)]).to_pylist() == found.to_pylist()


# -- what is declared


def stored(schema: TableSchema) -> TableSchema:
    return from_properties(schema.changes_columns, schema.properties(), "table t.t")


def test_one_column_is_kept_as_ever_and_several_in_a_format_that_others_refuse() -> None:
    one = define(COLUMNS, "k", "at")
    assert one.properties()[ORDER_PROPERTY] == "at"
    assert one.properties()[FORMAT_PROPERTY] == "1"
    assert SEVERAL_ORDER_PROPERTY not in one.properties()
    assert define(COLUMNS, "k", ["at"]) == one
    assert ORDER_PROPERTY not in TIES.properties()
    assert TIES.properties()[FORMAT_PROPERTY] == "7"
    for schema in (one, TIES, define(COLUMNS, "k")):
        assert stored(schema).order_by == schema.order_by
    assert (TIES.order_by, one.order_by) == (("at", "lsn"), "at")
    assert (TIES.order_columns, one.order_columns, define(COLUMNS, "k").order_columns) == (("at", "lsn"), ("at",), ())


@pytest.mark.parametrize(
    ("order_by", "said"),
    [
        (["at", "nix"], "order_by column 'nix' is not in the schema"),
        (["at", "at"], "order_by names a column twice"),
        (["at", "k"], "order_by column 'k' is part of the key"),
        (["at", "f"], "order_by column 'f' is floating point"),
        (["at", 7], "order_by is the name of a column, or a list of names"),
        (7, "order_by is the name of a column, or a list of names"),
    ],
)
def test_columns_that_cannot_decide_are_refused(order_by: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        define(COLUMNS.append(pa.field("f", pa.float64())), "k", order_by)


KEYS = pa.table({"k": [1, 2]})


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ((1, "a"), [(1, "a"), (1, "a")]),
        ([1, "a"], [(1, "a"), (1, "a")]),
        ({"lsn": "a", "at": 1}, [(1, "a"), (1, "a")]),
        ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")]),
        ([[1, "a"], [2, "b"]], [(1, "a"), (2, "b")]),
        (((1, "a"), {"at": 2, "lsn": "b"}), [(1, "a"), (2, "b")]),
        (pa.table({"lsn": ["a", "b"], "at": [1, 2]}), [(1, "a"), (2, "b")]),
        (pl.DataFrame({"lsn": ["a", "b"], "at": [1, 2]}), [(1, "a"), (2, "b")]),
        (pd.DataFrame({"lsn": ["a", "b"], "at": [1, 2]}), [(1, "a"), (2, "b")]),
    ],
)
def test_a_place_is_a_value_for_each_column_for_all_keys_or_for_each(at: Any, expected: list[tuple[int, str]]) -> None:
    found = deletes_at("t.t", KEYS, at, TIES)
    assert found.schema.names == ["k", "at", "lsn"]
    assert [(row["at"], row["lsn"]) for row in found.to_pylist()] == expected


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (1, "`at` is a single value, and the table is ordered by 2 columns: give a value for each of at, lsn"),
        ("2026", "`at` is a single value"),
        ((1,), "`at` has 1 values"),
        ((1, "a", 2), "`at` has 3 values"),
        ([], "`at` has 0 values"),
        ({"at": 1}, "`at` has at, and"),
        ({"at": 1, "lsn": "a", "v": 2}, "`at` has at, lsn, v, and"),
        ([(1, "a")], "`at` has 1 values for 2 keys"),
        ([(1, "a"), (1,)], "`at` has 1 values, and"),
        ((1, None), "give each a value of 'lsn'"),
        ((None, "a"), "give each a value of 'at'"),
        ([(1, "a"), "b"], "`at` is a single value"),
    ],
)
def test_a_place_that_is_not_whole_is_refused(at: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        deletes_at("t.t", KEYS, at, TIES)
