"""Lines that give some columns alone: however they are grouped, the rows are those of one line after the other."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core.arrow_rows import anti_join, lookup
from lithify.core.names import GIVEN, given_text, names_given
from lithify.core.ops import Change, Op, Overlay
from lithify.core.partial_rows import patch_columns
from lithify.core.schema import TableSchema, define
from lithify.merge.partial import compose
from lithify.merge.pending import can_stay_open, closed, extended, filled, keys_lacking, lacking, shown
from lithify.merge.winners import resolve, with_patches, without_losers
from support.bags import bag
from support.effort import examples

Row = dict[str, Any]
Rows = dict[Any, Row]
COLUMNS = [("v", pa.int64()), ("k", pa.int64()), ("s", pa.string())]
PLAIN = define(pa.schema(COLUMNS), "k")
PAIRS = define(pa.schema([*COLUMNS, ("k2", pa.string())]), ["k2", "k"])
ORDERED = define(pa.schema([*COLUMNS, ("o", pa.int16())]), "k", "o")
SCHEMAS = {"plain": PLAIN, "pairs": PAIRS, "ordered": ORDERED}
NUMBERS = st.none() | st.integers(0, 3)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(0, 2),
    "k2": st.sampled_from(["", "é"]),
    "o": NUMBERS,
    "v": NUMBERS,
    "s": st.sampled_from([None, "a", "b"]),
}
OPS = [Op.UPSERT, Op.UPDATE, Op.UPDATE, Op.UPDATE, Op.REPLACE, Op.DELETE]


def needed(schema: TableSchema) -> list[str]:
    return [*schema.key, *schema.order_columns]


@st.composite
def events(draw: st.DrawFn, schema: TableSchema, op: Op) -> Row:
    """What a line says: all columns, its key alone, or some of them."""
    rest = [name for name in schema.names if name not in needed(schema)]
    if op is Op.DELETE:
        return {name: draw(VALUES[name]) for name in schema.key}
    given = rest if op is not Op.UPDATE else [name for name in rest if draw(st.booleans())]
    return {name: draw(VALUES[name]) for name in [*needed(schema), *given]}


@st.composite
def histories(draw: st.DrawFn, name: str) -> list[tuple[Op, list[Row]]]:
    """Commits of one operation and a few lines each; updates may have several of one key."""
    schema, found = SCHEMAS[name], []
    for op in draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=8)):
        lines = draw(st.lists(events(schema, op), min_size=1, max_size=4))
        if op is not Op.UPDATE:
            lines = list({tuple(line[n] for n in schema.key): line for line in lines}.values())
        found.append((op, lines))
    return found


def one_by_one(schema: TableSchema, rows: Rows, history: list[tuple[Op, list[Row]]]) -> Rows:
    rows = dict(rows)
    for op, lines in history:
        for line in lines:
            key = tuple(line[name] for name in schema.key)
            there = rows.get(key)
            if op is Op.DELETE:
                rows.pop(key, None)
            elif op is Op.REPLACE or there is None or not older(schema, line, there):
                start = there if op is Op.UPDATE and there is not None else dict.fromkeys(schema.names)
                rows[key] = {**start, **line}
    return rows


def older(schema: TableSchema, line: Row, there: Row) -> bool:
    if not schema.order_by:
        return False
    mine, theirs = line[schema.order_by], there[schema.order_by]
    return theirs is not None and (mine is None or mine < theirs)


def change(schema: TableSchema, seq: int, op: Op, lines: list[Row]) -> Change:
    if op is Op.DELETE:
        return Change(seq, op, pa.Table.from_pylist(lines, schema=schema.select(schema.key)))
    if op is not Op.UPDATE:
        return Change(seq, op, pa.Table.from_pylist(lines, schema=schema.columns))
    said = [{**line, GIVEN: given_text(name for name in line if name not in schema.key)} for line in lines]
    return Change(seq, op, pa.Table.from_pylist(said, schema=patch_columns(schema)))


def applied(schema: TableSchema, base: pa.Table, changes: list[Change]) -> pa.Table:
    """As readers do it: the overlay, with what base decides asked of base."""
    return over(schema, base, decided(schema, base, resolve(schema, changes)))


def over(schema: TableSchema, base: pa.Table, overlay: Overlay) -> pa.Table:
    return pa.concat_tables([anti_join(base, overlay.hidden, list(schema.key)), overlay.rows])


def decided(schema: TableSchema, base: pa.Table, overlay: Overlay) -> Overlay:
    key = list(schema.key)
    there = {tuple(row[name] for name in key): row for row in base.to_pylist()}
    if overlay.contested is not None:
        lost = [
            {name: row[name] for name in key}
            for row in overlay.contested.to_pylist()
            if (rival := there.get(tuple(row[name] for name in key))) is not None and older(schema, row, rival)
        ]
        overlay = without_losers(schema, overlay, pa.Table.from_pylist(lost, schema=schema.select(key)))
    if overlay.patches is not None:
        wanted = {tuple(row[name] for name in key) for row in overlay.patches.to_pylist()}
        met = [row for found, row in there.items() if found in wanted]
        overlay = with_patches(schema, overlay, pa.Table.from_pylist(met, schema=schema.columns))
    return overlay


def table_of(schema: TableSchema, rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows.values()), schema=schema.columns)


def runs(schema: TableSchema, changes: list[Change], cuts: list[int]) -> list[Change]:
    edges = sorted({0, *(min(cut, len(changes)) for cut in cuts), len(changes)})
    return [
        Change(changes[high - 1].seq, op, rows)
        for low, high in itertools.pairwise(edges)
        for op, rows in compose(schema, changes[low:high]).items()
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_any_grouping_of_commits_gives_the_rows_of_one_line_after_the_other(name: str) -> None:
    schema = SCHEMAS[name]

    @settings(max_examples=examples(120, soak=5_000), deadline=None, print_blob=True)
    @given(before=histories(name), history=histories(name), cuts=st.lists(st.integers(0, 8), max_size=3))
    def agree(before: list[tuple[Op, list[Row]]], history: list[tuple[Op, list[Row]]], cuts: list[int]) -> None:
        start = one_by_one(schema, {}, before)
        expected = bag(one_by_one(schema, start, history).values())
        changes = [change(schema, seq, op, lines) for seq, (op, lines) in enumerate(history, 1)]
        base = table_of(schema, start)
        assert bag(applied(schema, base, changes).to_pylist()) == expected
        assert bag(applied(schema, base, runs(schema, changes, cuts)).to_pylist()) == expected

    agree()


@pytest.mark.parametrize("name", SCHEMAS)
def test_newer_changes_go_on_top_of_what_older_ones_came_to_whatever_columns_were_asked_for(name: str) -> None:
    schema = SCHEMAS[name]
    asked = st.lists(st.sets(st.sampled_from(schema.names)), min_size=8, max_size=8)

    @settings(max_examples=examples(40, soak=5_000), deadline=None, print_blob=True)
    @given(before=histories(name), history=histories(name), asked=asked)
    def agree(before: list[tuple[Op, list[Row]]], history: list[tuple[Op, list[Row]]], asked: list[set[str]]) -> None:
        start = one_by_one(schema, {}, before)
        base = table_of(schema, start)
        overlay = Overlay(schema.select(schema.key).empty_table(), schema.columns.empty_table())
        for seq, (op, lines) in enumerate(history, 1):
            overlay = extended(schema, overlay, [change(schema, seq, op, lines)])
            if can_stay_open(schema):
                overlay = with_columns_of_base(schema, base, overlay, asked[seq - 1])
            else:
                overlay = decided(schema, base, overlay)
            found = shown(schema, overlay)
            known = found.rows.column_names
            assert {*asked[seq - 1], *schema.key} <= set(known)
            rows = one_by_one(schema, start, history[:seq]).values()
            told = over(schema, base.select(known), found).to_pylist()
            assert bag(told) == bag([{name: row[name] for name in known} for row in rows])

    agree()


def with_columns_of_base(schema: TableSchema, base: pa.Table, overlay: Overlay, asked: set[str]) -> Overlay:
    if overlay.patches is None or not (wanted := lacking(schema, overlay.patches, asked)):
        return overlay
    keys = keys_lacking(schema, overlay.patches, wanted)
    met = base.filter(pa.array(lookup(base, keys, schema.key) >= 0)).select([*schema.key, *wanted])
    return closed(schema, replace(overlay, patches=filled(schema, overlay.patches, wanted, met)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_fold_took_in_already_may_be_applied_again(name: str) -> None:
    """A run that was merged into one file is applied as a whole, also where a fold has taken a part of it in."""
    schema = SCHEMAS[name]

    @settings(max_examples=examples(100, soak=3_000), deadline=None, print_blob=True)
    @given(history=histories(name), taken=st.integers(0, 8))
    def agree(history: list[tuple[Op, list[Row]]], taken: int) -> None:
        base = table_of(schema, one_by_one(schema, {}, history[:taken]))
        changes = [change(schema, seq, op, lines) for seq, (op, lines) in enumerate(history, 1)]
        whole = applied(schema, base, runs(schema, changes, []))
        assert bag(whole.to_pylist()) == bag(one_by_one(schema, {}, history).values())

    agree()


@pytest.mark.parametrize("name", SCHEMAS)
def test_lines_that_were_composed_are_few_sorted_and_of_the_tables_columns(name: str) -> None:
    schema = SCHEMAS[name]

    @settings(max_examples=100, deadline=None, print_blob=True)
    @given(history=histories(name))
    def holds(history: list[tuple[Op, list[Row]]]) -> None:
        changes = [change(schema, seq, op, lines) for seq, (op, lines) in enumerate(history, 1)]
        composed = compose(schema, changes)
        keys = {op: [tuple(row[n] for n in schema.key) for row in rows.to_pylist()] for op, rows in composed.items()}
        assert all(found == sorted(found) for found in keys.values())
        for one, other in itertools.combinations(keys.values(), 2):
            assert not set(one) & set(other)
        for op, rows in composed.items():
            columns = {Op.DELETE: schema.select(schema.key), Op.UPDATE: patch_columns(schema)}.get(op, schema.columns)
            assert rows.schema == columns
            if op is not Op.UPDATE or not schema.order_by:
                assert len(set(keys[op])) == len(keys[op])
        for found in keys.get(Op.UPDATE, ()):
            assert keys[Op.UPDATE].count(found) <= len(schema.names)

    holds()


def test_a_column_that_is_not_given_stays_and_null_is_a_value() -> None:
    base = table_of(PLAIN, {(1,): {"v": 1, "k": 1, "s": "a"}, (2,): {"v": 2, "k": 2, "s": "b"}})
    update = change(PLAIN, 1, Op.UPDATE, [{"k": 1, "v": None}, {"k": 2, "s": "c"}, {"k": 3, "v": 3}])

    assert bag(applied(PLAIN, base, [update]).to_pylist()) == bag(
        [{"v": None, "k": 1, "s": "a"}, {"v": 2, "k": 2, "s": "c"}, {"v": 3, "k": 3, "s": None}]
    )


def test_a_late_update_loses_against_the_row_and_not_against_what_came_before_it() -> None:
    base = table_of(ORDERED, {(1,): {"v": 1, "k": 1, "s": "a", "o": 5}})
    chain = [
        change(ORDERED, 1, Op.UPDATE, [{"k": 1, "o": 3, "v": 30}]),
        change(ORDERED, 2, Op.UPDATE, [{"k": 1, "o": 7, "s": "z"}]),
    ]
    expected = [{"v": 1, "k": 1, "s": "z", "o": 7}]

    assert applied(ORDERED, base, chain).to_pylist() == expected
    assert applied(ORDERED, base, runs(ORDERED, chain, [])).to_pylist() == expected


@pytest.mark.parametrize("names", [[], ["a"], ["a", "é", "a b"]])
def test_names_that_are_given_are_told_by_a_text(names: list[str]) -> None:
    assert names_given(given_text(names)) == names
