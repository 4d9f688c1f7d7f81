"""Changes reduced to one row and one operation per key: applied to any base, the same as one by one."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core.arrow_rows import anti_join
from lithify.core.ops import Change, Op
from lithify.core.schema import TableSchema, define
from lithify.merge.winners import compose, latest_per_key, resolve, without_losers

Row = dict[str, Any]
KEYED = define(pa.schema([("v", pa.int64()), ("k", pa.int64())]), "k")
PAIRS = define(pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())]), ["b", "a"])
ORDERED = define(pa.schema([("k", pa.string()), ("o", pa.int16()), ("v", pa.int64())]), "k", "o")
NUMBERS = st.none() | st.integers(0, 3)
SCHEMAS = {"keyed": KEYED, "pairs": PAIRS, "ordered": ORDERED}
ROWS = {
    "keyed": st.fixed_dictionaries({"k": st.integers(0, 4), "v": NUMBERS}),
    "pairs": st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.sampled_from(["", "x", "é"]), "v": NUMBERS}),
    "ordered": st.fixed_dictionaries({"k": st.sampled_from("abc"), "o": NUMBERS, "v": NUMBERS}),
}


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in table.to_pylist())


def change(schema: TableSchema, seq: int, op: Op, rows: list[Row]) -> Change:
    unique = {tuple(row[name] for name in schema.key): row for row in rows}
    columns = schema.select(schema.key) if op is Op.DELETE else schema.columns
    picked = [{name: row[name] for name in columns.names} for row in unique.values()]
    return Change(seq, op, pa.Table.from_pylist(picked, schema=columns))


def applied(schema: TableSchema, base: pa.Table, changes: list[Change]) -> pa.Table:
    """The rows after the changes, by the one definition of the merge."""
    overlay = resolve(schema, changes)
    if overlay.contested is not None:
        losers = []
        for row in overlay.contested.to_pylist():
            for rival in base.to_pylist():
                late = rival["o"] is not None and (row["o"] is None or row["o"] < rival["o"])
                losers += [{"k": row["k"]}] if rival["k"] == row["k"] and late else []
        overlay = without_losers(schema, overlay, pa.Table.from_pylist(losers, schema=schema.select(schema.key)))
    return pa.concat_tables([anti_join(base, overlay.hidden, schema.key), overlay.rows])


def runs(schema: TableSchema, changes: list[Change], cuts: list[int]) -> list[Change]:
    """The changes with each run between two cuts composed, labelled with the run's highest seq."""
    edges = sorted({0, *(min(cut, len(changes)) for cut in cuts), len(changes)})
    return [
        Change(changes[high - 1].seq, op, rows)
        for low, high in itertools.pairwise(edges)
        for op, rows in compose(schema, changes[low:high]).items()
    ]


@st.composite
def histories(draw: st.DrawFn, name: str) -> tuple[pa.Table, list[Change]]:
    schema = SCHEMAS[name]
    ops = [Op.UPSERT, Op.UPSERT, Op.DELETE] + ([Op.REPLACE] if schema.order_by else [])
    base = change(schema, 0, Op.UPSERT, draw(st.lists(ROWS[name], max_size=5))).rows
    drawn = draw(st.lists(st.tuples(st.sampled_from(ops), st.lists(ROWS[name], min_size=1, max_size=4)), max_size=7))
    return base, [change(schema, seq, op, rows) for seq, (op, rows) in enumerate(drawn, 1)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_any_runs_composed_give_the_rows_of_one_by_one(name: str) -> None:
    schema = SCHEMAS[name]

    @settings(max_examples=150, deadline=None, print_blob=True)
    @given(history=histories(name), cuts=st.lists(st.integers(0, 7), max_size=3))
    def agree(history: tuple[pa.Table, list[Change]], cuts: list[int]) -> None:
        base, changes = history
        one_by_one = base
        for entry in changes:
            one_by_one = applied(schema, one_by_one, [entry])
        assert bag(applied(schema, base, runs(schema, changes, cuts))) == bag(one_by_one)

    agree()


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_key_has_one_row_and_each_operation_is_sorted_by_key(name: str) -> None:
    schema = SCHEMAS[name]

    @settings(max_examples=60, deadline=None, print_blob=True)
    @given(history=histories(name))
    def holds(history: tuple[pa.Table, list[Change]]) -> None:
        composed = compose(schema, history[1])
        keys = {op: [tuple(row[n] for n in schema.key) for row in rows.to_pylist()] for op, rows in composed.items()}
        written = {tuple(row[n] for n in schema.key) for entry in history[1] for row in entry.rows.to_pylist()}
        assert all(found and found == sorted(found) for found in keys.values())
        assert sorted(itertools.chain.from_iterable(keys.values())) == sorted(written)
        for op, rows in composed.items():
            assert rows.schema == (schema.select(schema.key) if op is Op.DELETE else schema.columns)

    holds()


def test_nothing_composes_to_nothing() -> None:
    assert compose(KEYED, []) == {}
    assert compose(KEYED, [change(KEYED, 1, Op.UPSERT, [])]) == {}


def test_the_last_operation_on_a_key_wins() -> None:
    write = change(KEYED, 1, Op.UPSERT, [{"k": 1, "v": 1}, {"k": 2, "v": 1}])
    delete = change(KEYED, 2, Op.DELETE, [{"k": 1}])
    assert {op: rows.to_pylist() for op, rows in compose(KEYED, [write, delete]).items()} == {
        Op.UPSERT: [{"v": 1, "k": 2}],
        Op.DELETE: [{"k": 1}],
    }
    assert {op: rows.to_pylist() for op, rows in compose(KEYED, [delete, write]).items()} == {
        Op.UPSERT: [{"v": 1, "k": 1}, {"v": 1, "k": 2}],
    }


@pytest.mark.parametrize(
    ("steps", "op", "winner"),
    [
        ([(Op.UPSERT, 5, 1), (Op.UPSERT, 3, 2)], Op.UPSERT, 1),
        ([(Op.UPSERT, 5, 1), (Op.UPSERT, 5, 2)], Op.UPSERT, 2),
        ([(Op.UPSERT, None, 1), (Op.UPSERT, None, 2)], Op.UPSERT, 2),
        ([(Op.UPSERT, 5, 1), (Op.UPSERT, None, 2)], Op.UPSERT, 1),
        ([(Op.UPSERT, 5, 1), (Op.DELETE, None, 0), (Op.UPSERT, 3, 2)], Op.REPLACE, 2),
        ([(Op.UPSERT, 5, 1), (Op.REPLACE, 3, 2)], Op.REPLACE, 2),
        ([(Op.REPLACE, 5, 1), (Op.UPSERT, 3, 2)], Op.REPLACE, 1),
        ([(Op.REPLACE, 3, 1), (Op.UPSERT, 5, 2)], Op.REPLACE, 2),
        ([(Op.REPLACE, 5, 1), (Op.DELETE, None, 0)], Op.DELETE, None),
    ],
)
def test_with_order_by_a_barrier_starts_anew(steps: list[tuple[Op, int | None, int]], op: Op, winner: int) -> None:
    changes = [change(ORDERED, seq, step, [{"k": "a", "o": at, "v": v}]) for seq, (step, at, v) in enumerate(steps, 1)]
    ((found, rows),) = compose(ORDERED, changes).items()
    assert found is op
    assert winner is None or rows.column("v").to_pylist() == [winner]


@given(batch=st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 3)), min_size=1, max_size=12))
def test_one_row_per_key_is_left_and_it_is_the_last(batch: list[tuple[int, int | None]]) -> None:
    table = pa.table(
        {"k": [k for k, _ in batch], "o": pa.array([o for _, o in batch], pa.int64()), "n": range(len(batch))}
    )
    plain, ordered = define(table.schema, "k"), define(table.schema, "k", "o")
    table = table.cast(plain.columns)
    last = {k: n for n, (k, _) in enumerate(batch)}
    found = latest_per_key(plain, table, Op.UPSERT)
    assert dict(zip(found.column("k").to_pylist(), found.column("n").to_pylist(), strict=True)) == last
    assert found.column("k").to_pylist() == sorted(last)
    assert latest_per_key(ordered, table.select(["k"]), Op.DELETE).column("k").to_pylist() == sorted(last)

    best: dict[int, int] = {}
    for n, (k, order) in enumerate(batch):
        rival = batch[best[k]][1] if k in best else None
        if k not in best or rival is None or (order is not None and order >= rival):
            best[k] = n
    for op in (Op.UPSERT, Op.REPLACE):
        found = latest_per_key(ordered, table, op)
        assert dict(zip(found.column("k").to_pylist(), found.column("n").to_pylist(), strict=True)) == best
