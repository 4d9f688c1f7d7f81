"""Deletes with an order value: whatever is folded, merged or pending, the rows are those of one event after the other.

The oracle keeps for each key its row, or when it was deleted, and knows nothing of barriers, seqs and files.
"""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core.arrow_rows import anti_join
from lithify.core.names import GIVEN, given_text
from lithify.core.ops import BARRIERS, ORDERED_DELETES, Change, Op
from lithify.core.partial_rows import patch_columns
from lithify.core.schema import define
from lithify.core.snapshot import UNKNOWN, Bounds, DataFile
from lithify.merge.apply import distributed_sql
from lithify.merge.late import kept, remembered, remembering, tombstone_columns, without_late, without_late_sql
from lithify.merge.partial import line_columns
from lithify.merge.winners import compose, latest_per_key, resolve, with_patches, without_losers
from support.effort import examples

Row = dict[str, Any]
Event = tuple[Op, Row]
ORDERED = define(
    pa.schema([("k", pa.int64()), ("k2", pa.string()), ("o", pa.int16()), ("v", pa.int64()), ("s", pa.string())]),
    ["k", "k2"],
    "o",
)
NUMBERS = st.none() | st.integers(0, 4)
OPS = [Op.UPSERT, Op.UPSERT, Op.DELETE_AT, Op.DELETE_AT, Op.DELETE, Op.REPLACE]


@st.composite
def events(draw: st.DrawFn, ops: list[Op]) -> Event:
    op = draw(st.sampled_from(ops))
    row: Row = {"k": draw(st.integers(0, 1)), "k2": draw(st.sampled_from(["", "x"]))}
    if op is Op.DELETE:
        return op, row
    row["o"] = draw(st.integers(0, 4) if op is Op.DELETE_AT else NUMBERS)
    if op is not Op.DELETE_AT:
        row |= {name: draw(NUMBERS if name == "v" else st.sampled_from([None, "a"])) for name in ("v", "s")}
    if op is Op.UPDATE:
        row = {name: row[name] for name in row if name not in ("v", "s") or draw(st.booleans())}
    return op, row


def one_by_one(history: list[Event]) -> dict[Any, Row]:
    """What is known of each key: its row, or when it was deleted."""
    known: dict[Any, Row] = {}
    for op, event in history:
        key = event["k"], event["k2"]
        there = known.get(key)
        if op is Op.DELETE:
            known.pop(key, None)
            continue
        mine, theirs = (-1 if row is None or row["o"] is None else row["o"] for row in (event, there))
        if op is not Op.REPLACE and there is not None and mine < theirs:
            continue
        if op is Op.DELETE_AT:
            known[key] = {"o": event["o"], "gone": True}
        elif op is Op.UPDATE and there is not None and "gone" not in there:
            known[key] = {**there, **event}
        else:
            known[key] = {**dict.fromkeys(ORDERED.names), **event}
    return {key: row for key, row in known.items() if "gone" not in row}


def change(seq: int, op: Op, row: Row) -> Change:
    if op is Op.UPDATE:
        said = {**row, GIVEN: given_text(name for name in row if name not in ORDERED.key)}
        return Change(seq, op, pa.Table.from_pylist([said], schema=patch_columns(ORDERED)))
    return Change(seq, op, pa.Table.from_pylist([row], schema=line_columns(ORDERED, op)))


def grouped(changes: list[Change], cuts: list[int]) -> list[Change]:
    """Each run between two cuts composed, as a merge of change files does it."""
    edges = sorted({0, *(min(cut, len(changes)) for cut in cuts), len(changes)})
    return [
        Change(changes[high - 1].seq, op, rows)
        for low, high in itertools.pairwise(edges)
        for op, rows in compose(ORDERED, changes[low:high]).items()
    ]


def read(base: pa.Table, changes: list[Change], tombstones: pa.Table | None) -> pa.Table:
    """As readers and folds do it, with what base decides asked of base."""
    overlay = resolve(ORDERED, without_late(ORDERED, changes, tombstones))
    key = list(ORDERED.key)
    there = {tuple(row[name] for name in key): row for row in base.to_pylist()}
    if overlay.contested is not None:
        lost = []
        for row in overlay.contested.to_pylist():
            rival = there.get((row["k"], row["k2"]))
            if rival is not None and rival["o"] is not None and (row["o"] is None or row["o"] < rival["o"]):
                lost.append({name: row[name] for name in key})
        overlay = without_losers(ORDERED, overlay, pa.Table.from_pylist(lost, schema=ORDERED.select(key)))
    if overlay.patches is not None:
        wanted = {(row["k"], row["k2"]) for row in overlay.patches.to_pylist()}
        met = [row for found, row in there.items() if found in wanted]
        overlay = with_patches(ORDERED, overlay, pa.Table.from_pylist(met, schema=ORDERED.columns))
    return pa.concat_tables([anti_join(base, overlay.hidden, key), overlay.rows])


def rows_of(table: pa.Table) -> dict[Any, Row]:
    found = {(row["k"], row["k2"]): row for row in table.to_pylist()}
    assert len(found) == table.num_rows, "each key stands once"
    return found


@pytest.mark.parametrize("ops", [OPS, [*OPS, Op.UPDATE, Op.UPDATE]], ids=["whole", "partial"])
def test_any_grouping_and_any_folds_give_the_rows_of_one_event_after_the_other(ops: list[Op]) -> None:
    @settings(max_examples=examples(150, 3_000), deadline=None, print_blob=True)
    @given(st.lists(events(ops), max_size=12), st.lists(st.integers(0, 12), max_size=3), st.lists(st.integers(0, 12)))
    def agree(history: list[Event], folds: list[int], cuts: list[int]) -> None:
        changes = [change(seq, op, row) for seq, (op, row) in enumerate(history, 1)]
        base, memory, folded = ORDERED.columns.empty_table(), [], 0
        for upto in sorted({min(fold, len(changes)) for fold in folds}):
            step = grouped(changes[folded:upto], [cut - folded for cut in cuts if cut > folded])
            base = read(base, step, remembered(ORDERED, memory))
            assert rows_of(base) == one_by_one(history[:upto])
            memory += [each for each in step if each.op in ORDERED_DELETES | BARRIERS]
            folded = upto
        rest = grouped(changes[folded:], [cut - folded for cut in cuts if cut > folded])
        assert rows_of(read(base, rest, remembered(ORDERED, memory))) == one_by_one(history)

    agree()


@settings(max_examples=examples(40, 1_000), deadline=None)
@given(st.lists(events([*OPS, Op.UPDATE]), max_size=10), st.lists(events([Op.DELETE_AT, Op.DELETE]), max_size=4))
def test_what_the_engines_keep_out_is_what_arrow_keeps_out(history: list[Event], before: list[Event]) -> None:
    """DuckDB is asked, who knows the text alone."""
    memory = remembered(ORDERED, [change(seq, op, row) for seq, (op, row) in enumerate(before, 1)])
    changes = [change(seq, op, row) for seq, (op, row) in enumerate(history, 10)]
    expected = [each.seq for each in without_late(ORDERED, changes, memory) if each.rows.num_rows]
    lines = [
        {**dict.fromkeys(ORDERED.names), **row, "_seq": seq, "_op": op.value}
        for seq, (op, row) in enumerate(history, 10)
    ]
    columns = pa.schema([*(f.with_nullable(True) for f in ORDERED.columns), ("_seq", "int64"), ("_op", "string")])
    with duckdb.connect() as db:
        db.register("lines", pa.Table.from_pylist(lines, schema=columns))
        db.register("memory", memory.rename_columns(tombstone_columns(ORDERED)))
        found = db.sql(without_late_sql(ORDERED, "lines", "memory")).fetchall()
    assert sorted(row[5] for row in found) == expected


@settings(max_examples=examples(40, 1_000), deadline=None)
@given(st.lists(events(OPS), max_size=10))
def test_the_text_for_both_engines_merges_as_the_oracle(history: list[Event]) -> None:
    columns = pa.schema([*(f.with_nullable(True) for f in ORDERED.columns), ("_seq", "int64"), ("_op", "string")])
    lines = [{**dict.fromkeys(ORDERED.names), **row, "_seq": n, "_op": op.value} for n, (op, row) in enumerate(history)]
    with duckdb.connect() as db:
        db.register("base", ORDERED.columns.empty_table())
        db.register("lines", pa.Table.from_pylist(lines, schema=columns))
        found = db.sql(distributed_sql(ORDERED, "base", "lines")).fetchall()
    assert {row[:2]: dict(zip(ORDERED.names, row, strict=True)) for row in found} == one_by_one(history)


def test_of_several_deletes_of_a_key_in_one_batch_the_highest_counts() -> None:
    columns = line_columns(ORDERED, Op.DELETE_AT)
    rows = pa.Table.from_pylist([{"k": 1, "k2": "", "o": at} for at in (3, 4, 2)], schema=columns)
    assert latest_per_key(ORDERED, rows, Op.DELETE_AT).to_pylist() == [{"k": 1, "k2": "", "o": 4}]


@pytest.mark.parametrize(
    ("steps", "op", "at"),
    [
        ([(Op.DELETE_AT, 3), (Op.UPSERT, 2)], Op.DELETE_AT, 3),
        ([(Op.DELETE_AT, 3), (Op.UPSERT, 3)], Op.UPSERT, 3),
        ([(Op.UPSERT, 3), (Op.DELETE_AT, 3)], Op.DELETE_AT, 3),
        ([(Op.UPSERT, 4), (Op.DELETE_AT, 3)], Op.UPSERT, 4),
        ([(Op.UPSERT, None), (Op.DELETE_AT, 0)], Op.DELETE_AT, 0),
        ([(Op.DELETE, None), (Op.DELETE_AT, 3)], Op.GONE_AT, 3),
        ([(Op.REPLACE, 2), (Op.DELETE_AT, 3), (Op.UPSERT, 2)], Op.GONE_AT, 3),
        ([(Op.REPLACE, 4), (Op.DELETE_AT, 3)], Op.REPLACE, 4),
        ([(Op.DELETE_AT, 3), (Op.DELETE, None), (Op.UPSERT, 1)], Op.REPLACE, 1),
    ],
)
def test_a_delete_with_an_order_value_wins_or_loses_like_a_row(
    steps: list[tuple[Op, int | None]], op: Op, at: int
) -> None:
    row = {"k": 1, "k2": "", "v": None, "s": None}
    changes = []
    for seq, (each, o) in enumerate(steps, 1):
        inside = line_columns(ORDERED, each)
        changes.append(
            change(seq, each, {name: value for name, value in {**row, "o": o}.items() if name in inside.names})
        )
    ((found, rows),) = compose(ORDERED, changes).items()
    assert (found, rows.column("o").to_pylist()) == (op, [at])


ORDER = Bounds(3, 5, 0)


def file(seq: int, op: Op, time_ms: int = 0, keys: tuple[int, int] = (0, 9), order: Bounds = ORDER) -> DataFile:
    bounds = {"k": Bounds(*keys, 0), "o": order}
    return DataFile(f"{seq}", f"{seq}", 1, 1, bounds, seq=seq, op=op, time_ms=time_ms)


def test_a_fold_keeps_young_tombstones_and_the_barriers_behind_them() -> None:
    files = [
        file(1, Op.DELETE),
        file(2, Op.DELETE_AT, 10),
        file(3, Op.UPSERT),
        file(4, Op.DELETE),
        file(5, Op.GONE_AT, 20),
        file(6, Op.REPLACE),
        file(7, Op.UPDATE),
    ]
    assert [each.seq for each in remembering(files)] == [2, 4, 5, 6]
    assert [each.seq for each in kept(ORDERED, files, [], lambda each: each.time_ms > 15)] == [5, 6]
    assert kept(ORDERED, files, [], lambda each: False) == ()
    assert remembering([file(1, Op.DELETE), file(2, Op.REPLACE)]) == (), "who has no such deletes keeps nothing"


@pytest.mark.parametrize(
    ("pending", "stays"),
    [
        (file(9, Op.UPSERT, order=Bounds(5, 7, 0)), False),
        (file(9, Op.UPSERT, order=Bounds(4, 7, 0)), True),
        (file(9, Op.UPDATE, order=Bounds(5, 7, 1)), True),
        (file(9, Op.UPDATE, order=UNKNOWN), True),
        (file(9, Op.UPSERT, keys=(10, 20), order=UNKNOWN), False),
        (file(9, Op.DELETE, order=UNKNOWN), False),
        (file(9, Op.REPLACE, order=Bounds(0, 1, 0)), False),
    ],
)
def test_an_old_tombstone_stays_while_something_is_pending_that_it_may_keep_out(pending: DataFile, stays: bool) -> None:
    old = [file(1, Op.DELETE_AT), file(2, Op.DELETE), file(3, Op.DELETE_AT)]
    assert kept(ORDERED, old, [pending], lambda each: False) == (tuple(old) if stays else ())
