"""Rows in memory: changes are applied in place, found by key, and paid for."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.cache.extents import PAGE_BYTES
from lithify.cache.hot_rows import ALIVE, BLOCK_ROWS_MAX, DEAD_SHARE, Block, HotRows, Segment, conformed
from lithify.cache.key_search import Wanted
from lithify.cache.memory_account import MemoryAccount
from lithify.cache.strings import DICTIONARY, VIEW
from lithify.core.ops import Overlay
from lithify.errors import LimitExceeded

COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.float64())])
AMPLE = 2**30


def table(keys: Any, label: str = "old") -> pa.Table:
    keys = list(keys)
    return pa.table([keys, [f"{label} {k % 7}" for k in keys], [k / 2 for k in keys]], schema=COLUMNS)


def hot(*tables: pa.Table, budget: MemoryAccount | None = None, columns: pa.Schema = COLUMNS) -> HotRows:
    budget = budget or MemoryAccount(AMPLE)
    segments = []
    for rows in tables:
        with budget.room(rows.nbytes * 3) as room:
            segments.append(Segment(Block(conformed(rows, columns), room)))
    return HotRows(columns, tuple(segments), budget)


def overlay(hidden: Any, shown: pa.Table) -> Overlay:
    return Overlay(pa.table([list(hidden)], schema=pa.schema([("k", pa.int64())])), shown)


def contents(rows: HotRows) -> dict[int, tuple[Any, ...]]:
    found = [tuple(row.values()) for row in rows.to_arrow().to_pylist()]
    assert len(found) == rows.rows
    by_key = {row[0]: row for row in found}
    assert len(by_key) == len(found), "a key stands twice"
    return by_key


def test_a_change_replaces_hides_and_adds() -> None:
    changed = hot(table(range(10)), table(range(10, 20))).applied(overlay([3, 12, 99], table([3, 99], "new")), ["k"])

    found = contents(changed)
    assert sorted(found) == [*(k for k in range(20) if k != 12), 99]
    assert found[3][1] == "new 3"
    assert found[4][1] == "old 4"


def test_the_rows_before_a_change_stay_as_they_were() -> None:
    before = hot(table(range(100)))
    before.applied(overlay(range(50), table(range(25), "new")), ["k"])

    assert contents(before) == contents(hot(table(range(100))))


def test_few_dead_rows_cost_no_copy() -> None:
    before = hot(table(range(1_000)))
    after = before.applied(overlay([5, 500], table([5], "new")), ["k"])

    assert after.segments[0].block is before.segments[0].block
    told = after.batches()[0].column(ALIVE).to_pylist()
    assert [row for row, alive in enumerate(told) if not alive] == [5, 500]


def test_many_dead_rows_are_copied_out() -> None:
    before = hot(table(range(1_000)))
    dead = range(0, 1_000, DEAD_SHARE)
    at_most = before.applied(overlay(dead, COLUMNS.empty_table()), ["k"])
    after = at_most.applied(overlay([1], COLUMNS.empty_table()), ["k"])

    assert at_most.segments[0].block is before.segments[0].block
    assert (after.rows, after.segments[0].block.batch.num_rows, after.has_dead) == (874, 874, False)


def test_a_block_whose_rows_are_all_dead_is_no_more() -> None:
    after = hot(table(range(100)), table(range(100, 200))).applied(overlay(range(100), COLUMNS.empty_table()), ["k"])

    assert [segment.rows for segment in after.segments] == [100]


def test_only_living_rows_are_found_and_given() -> None:
    rows = hot(table(range(100)), columns=COLUMNS).applied(overlay([7], COLUMNS.empty_table()), ["k"])
    keys = pa.table({"k": pa.array([7, 8], pa.int64())})

    assert rows.matching(keys, ["k"]).column("k").to_pylist() == [8]
    assert rows.row(keys.slice(0, 1), ["k"]).num_rows == 0
    assert rows.to_arrow().column_names == COLUMNS.names
    assert rows.to_arrow(["v"]).num_rows == 99


def test_many_small_changes_leave_few_batches() -> None:
    rows = hot(table(range(10_000)))
    for number in range(300):
        rows = rows.applied(overlay([number * 31], table([number * 31], "new")), ["k"])

    assert rows.rows == 10_000
    assert len(rows.batches()) < 40


def test_a_table_that_is_rewritten_again_and_again_keeps_its_size() -> None:
    budget = MemoryAccount(AMPLE)
    rows = hot(table(range(5_000)), budget=budget)
    first = rows.bytes
    for number in range(60):
        keys = range(number * 83 % 4_000, number * 83 % 4_000 + 1_000)
        rows = rows.applied(overlay(keys, table(keys, f"{number}")), ["k"])

    assert rows.rows == 5_000
    assert rows.bytes < 2 * first
    assert budget.bytes == rows.bytes


def test_dictionaries_lose_what_only_dead_rows_had() -> None:
    columns = pa.schema([("k", pa.int64()), ("s", DICTIONARY), ("v", pa.float64())])
    rows = hot(table(range(1_000)), columns=columns)
    for number in range(50):
        keys = range(1_000)
        new = pa.table([list(keys), [f"{number}-{k}" for k in keys], [0.0] * 1_000], schema=COLUMNS)
        rows = rows.applied(overlay(keys, new), ["k"])

    assert rows.bytes < 200_000
    assert sorted(rows.to_arrow(["s"]).column("s").to_pylist()) == sorted(f"49-{k}" for k in range(1_000))


KEY_COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "int64": (pa.int64(), lambda n: n - 3),
    "int32": (pa.int32(), lambda n: -n),
    "uint8": (pa.uint8(), lambda n: n),
    "uint64": (pa.uint64(), lambda n: 2**64 - 1 - n),
    "string": (pa.string(), lambda n: f"é{n}"),
    "binary": (pa.binary(), lambda n: bytes([255 - n])),
    "date": (pa.date32(), lambda n: dt.date(2026, 1, 1) - dt.timedelta(days=40 * n)),
    "time": (pa.timestamp("us", tz="UTC"), lambda n: dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(hours=n)),
    "decimal": (pa.decimal128(20, 2), lambda n: Decimal(n) / 4),
    "bool": (pa.bool_(), lambda n: n % 2 == 0),
}


@pytest.mark.parametrize("kind", KEY_COLUMNS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rows_are_found_by_keys_of_every_type(kind: str, data: st.DataObject) -> None:
    dtype, value = KEY_COLUMNS[kind]
    here = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=30))
    asked = data.draw(st.lists(st.integers(0, 40), max_size=10, unique=True))
    if kind == "bool":
        asked = asked[:1]
    keys = pa.table({"k": pa.array([value(n) for n in asked], dtype)})
    batch = pa.record_batch({"k": pa.array([value(n) for n in here], dtype)})
    budget = MemoryAccount(AMPLE)
    with budget.room(0) as room:
        block = Block(batch, room)

    lines, positions = block.find(Wanted(keys, ["k"]))

    wanted, rows = keys.column("k").to_pylist(), batch.column("k").to_pylist()
    expected = sorted((i, j) for i, want in enumerate(wanted) for j, have in enumerate(rows) if want == have)
    assert sorted(zip(lines.tolist(), positions.tolist(), strict=True)) == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_are_found_by_keys_of_several_columns(data: st.DataObject) -> None:
    """However a block is sorted, with equal rows and without."""
    kinds = data.draw(st.lists(st.sampled_from(["int64", "uint8", "string", "binary", "date"]), min_size=2, max_size=3))
    keys_drawn = st.tuples(*(st.integers(0, 4) for _ in kinds))
    here = data.draw(st.lists(keys_drawn, min_size=1, max_size=60))
    here = sorted(here) if data.draw(st.booleans()) else here
    asked = data.draw(st.lists(keys_drawn, max_size=20, unique=True))

    def columns(rows: list[tuple[int, ...]]) -> dict[str, pa.Array]:
        made = [KEY_COLUMNS[kind] for kind in kinds]
        return {str(i): pa.array([value(row[i]) for row in rows], dtype) for i, (dtype, value) in enumerate(made)}

    with MemoryAccount(AMPLE).room(0) as room:
        block = Block(pa.record_batch(columns(here)), room)
    lines, positions = block.find(Wanted(pa.table(columns(asked)), [str(i) for i in range(len(kinds))]))

    expected = sorted((i, j) for i, want in enumerate(asked) for j, have in enumerate(here) if want == have)
    assert sorted(zip(lines.tolist(), positions.tolist(), strict=True)) == expected


def test_keys_of_text_are_found_without_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what makes a change of a large table cheap."""
    monkeypatch.setattr(Block, "_find_by_hash", None)
    rows = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"]})
    with MemoryAccount(AMPLE).room(0) as room:
        block = Block(rows.to_batches()[0], room)

    assert block.find(Wanted(rows.slice(1), ["a", "b"]))[1].tolist() == [1, 2]
    assert block.find(Wanted(rows.slice(1, 1), ["b"]))[1].tolist() == [1]


def test_nulls_meet_nulls_and_nothing_else() -> None:
    rows = pa.table({"x": pa.array([1, None, 2, None], pa.int64())})
    cached = hot(rows, columns=rows.schema)

    without_null = cached.applied(Overlay(pa.table({"x": pa.array([None], pa.int64())}), rows.slice(0, 0)), ["x"])
    without_one = cached.applied(Overlay(pa.table({"x": pa.array([1], pa.int64())}), rows.slice(0, 0)), ["x"])

    assert sorted(without_null.to_arrow().column("x").to_pylist()) == [1, 2]
    assert sorted(without_one.to_arrow().column("x").to_pylist(), key=repr) == [2, None, None]


def test_all_equal_rows_of_a_table_without_a_key_are_hidden() -> None:
    rows = pa.table({"x": pa.array([3, 1, 3, 2, 3], pa.int64())})
    cached = hot(rows, columns=rows.schema)

    left = cached.applied(Overlay(pa.table({"x": pa.array([3], pa.int64())}), rows.slice(0, 0)), ["x"])

    assert sorted(left.to_arrow().column("x").to_pylist()) == [1, 2]


def test_losers_are_changes_with_a_lower_order_than_the_row_here() -> None:
    schema = pa.schema([("k", pa.int64()), ("o", pa.int64())])
    cached = hot(pa.table([[1, 2, 3, 4], [5, 5, None, 5]], schema=schema), columns=schema)
    contested = pa.table([[9, 4, 3, 2, 1], [0, 6, None, None, 4]], schema=schema)

    assert cached.losers(contested, ["k"], "o").column("k").to_pylist() == [2, 1]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 200), max_size=40), st.sets(st.integers(0, 200), max_size=40)), max_size=12
    ),
    st.sampled_from([pa.string(), DICTIONARY, VIEW]),
)
def test_any_sequence_of_changes_does_what_it_does_to_a_dict(
    steps: list[tuple[set[int], set[int]]], text: pa.DataType
) -> None:
    columns = pa.schema([("k", pa.int64()), ("s", text), ("v", pa.float64())])
    budget = MemoryAccount(AMPLE)
    rows = hot(table(range(60)), table(reversed(range(60, 120))), budget=budget, columns=columns)
    expected = contents(rows)
    for number, (hidden, shown) in enumerate(steps):
        new = table(sorted(shown), f"{number}")
        rows = rows.applied(overlay(hidden | shown, new), ["k"])
        expected = {k: row for k, row in expected.items() if k not in hidden | shown}
        expected.update({row[0]: row for row in (tuple(r.values()) for r in new.to_pylist())})

    assert contents(rows) == expected
    for k in (0, 61, 119, 200):
        found = rows.row(pa.table({"k": pa.array([k], pa.int64())}), ["k"]).to_pylist()
        assert [tuple(row.values()) for row in found] == ([expected[k]] if k in expected else [])


# -- the budget


def test_what_is_let_go_of_is_given_back() -> None:
    budget = MemoryAccount(AMPLE)
    rows = hot(table(range(1_000)), budget=budget)
    newer = rows.applied(overlay([1], table([1], "new")), ["k"])
    assert budget.bytes == newer.bytes

    del rows, newer
    gc.collect()
    assert budget.bytes == 0


def test_rows_that_somebody_still_reads_count() -> None:
    budget = MemoryAccount(AMPLE)
    rows = hot(table(range(1_000)), budget=budget)
    newer = rows.applied(overlay(range(200), COLUMNS.empty_table()), ["k"])

    assert budget.bytes == rows.bytes + newer.bytes


def test_a_change_that_has_no_room_is_refused_and_leaves_the_rows_alone() -> None:
    budget = MemoryAccount(AMPLE)
    rows = hot(table(range(1_000)), budget=budget)
    budget.bytes_max = budget.bytes + 100

    with pytest.raises(LimitExceeded, match="no room") as caught:
        rows.applied(overlay([1], table(range(1_000, 3_000))), ["k"])

    assert caught.value.details["limit"] == "size"
    del caught
    gc.collect()
    assert budget.bytes == rows.bytes
    assert rows.rows == 1_000


def test_room_is_made_before_it_is_refused() -> None:
    budget = MemoryAccount(1_000)
    taken = [budget.take(900)]
    budget.on_pressure(lambda wanted_bytes: budget.give_back(900) if taken.pop() is None else None)

    budget.take(800)

    assert budget.bytes == 800


def test_blocks_own_their_memory() -> None:
    large = table(range(BLOCK_ROWS_MAX))
    rows = hot(large.slice(10, 5))

    assert rows.bytes < 2 * PAGE_BYTES
    assert np.array_equal(rows.to_arrow().column("k").to_numpy(), np.arange(10, 15))
