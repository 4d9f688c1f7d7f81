"""Merge rules: however lines are grouped, each counts once, and the rows are those of one line after the other."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify import InvalidRequest
from lithify.core.arrow_rows import anti_join
from lithify.core.names import GIVEN, given_text
from lithify.core.ops import Change, Op, Overlay
from lithify.core.partial_rows import patch_columns
from lithify.core.schema import TableSchema, define
from lithify.merge.partial import compose
from lithify.merge.pending import extended
from lithify.merge.rules import contributions, retractions, whole_lines
from lithify.merge.winners import compose as merged
from lithify.merge.winners import resolve, with_patches
from support.effort import examples
from support.rules_oracle import Rows, contributed

NAN = float("nan")
COLUMNS = {
    "k": pa.int64(),
    "plain": pa.string(),
    "some": pa.string(),
    "first": pa.string(),
    "low": pa.float64(),
    "high": pa.string(),
    "total": pa.int64(),
    "money": pa.decimal128(38, 2),
    "n": pa.int64(),
    "tags": pa.list_(pa.int64()),
    "any": pa.bool_(),
    "all": pa.bool_(),
    "price": pa.int64(),
    "price_at": pa.int16(),
    "currency": pa.string(),
    "stock": pa.int64(),
    "stock_at": pa.string(),
}
GROUPS = {"price_at": ["price", "currency"], "stock_at": ["stock"]}
RULES = {
    "some": "last_non_null",
    "first": "first",
    "low": "min",
    "high": "max",
    "total": "sum",
    "money": "sum",
    "n": "count",
    "tags": "append(3)",
    "any": "or",
    "all": "and",
}
SCHEMA = define(pa.schema(list(COLUMNS.items())), "k", merge_rules=RULES, order_groups=GROUPS)
TEXTS = st.sampled_from([None, "", "a", "é"])
FLAGS = st.sampled_from([None, True, False])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "plain": TEXTS,
    "some": TEXTS,
    "first": TEXTS,
    "low": st.sampled_from([None, -1.5, 2.0, float("inf"), -float("inf")]),
    "high": TEXTS,
    "total": st.none() | st.sampled_from([-3, 0, 7, 2**62, -(2**62), 2**40]),
    "money": st.none() | st.sampled_from([Decimal("-0.01"), Decimal("1e35"), Decimal("-1e35"), Decimal("12.34")]),
    "n": st.none() | st.integers(-5, 5),
    "tags": st.none() | st.lists(st.none() | st.integers(0, 9), max_size=5),
    "any": FLAGS,
    "all": FLAGS,
    "price": st.none() | st.integers(0, 99),
    "price_at": st.none() | st.integers(0, 2),
    "currency": TEXTS,
    "stock": st.none() | st.integers(0, 99),
    "stock_at": TEXTS,
}
# Sums of up to three large values may leave their type, which other tests are about.
SMALL = {**VALUES, "total": st.none() | st.integers(-9, 9), "money": st.none() | st.sampled_from([Decimal("0.05")])}
OPS = [Op.UPDATE, Op.UPDATE, Op.UPDATE, Op.UPDATE, Op.UPSERT, Op.REPLACE, Op.DELETE]
History = list[tuple[Op, list[dict[str, Any]]]]


@st.composite
def given_names(draw: st.DrawFn, op: Op) -> list[str]:
    """All columns, or of an update some of them, of an order group all or none."""
    if op is not Op.UPDATE:
        return [] if op is Op.DELETE else list(SMALL)
    left_out = {name for name in SMALL if name not in SCHEMA.rules or not SCHEMA.rules[name].by if draw(st.booleans())}
    for order, names in GROUPS.items():
        left_out |= {order, *names} if draw(st.booleans()) else set()
    return [name for name in SMALL if name not in left_out]


@st.composite
def histories(draw: st.DrawFn) -> History:
    found: History = []
    for op in draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=8)):
        lines = []
        for _ in range(draw(st.integers(1, 4))):
            named = draw(given_names(op))
            lines.append({"k": draw(st.integers(0, 2)), **{name: draw(SMALL[name]) for name in named}})
        found.append((op, lines if op is Op.UPDATE else list({line["k"]: line for line in lines}.values())))
    return found


def one_by_one(rows: Rows, history: History) -> Rows:
    rows = dict(rows)
    for op, lines in history:
        for line in lines:
            key = line["k"]
            if op is Op.DELETE:
                rows.pop(key, None)
            elif op is Op.UPDATE:
                rows[key] = contributed(SCHEMA.rules, rows.get(key), line, SCHEMA.names)
            else:
                rows[key] = line
    return rows


def change(seq: int, op: Op, lines: list[dict[str, Any]], schema: TableSchema = SCHEMA) -> Change:
    if op is Op.DELETE:
        return Change(seq, op, pa.Table.from_pylist(lines, schema=schema.select(schema.key)))
    if op is not Op.UPDATE:
        return Change(seq, op, pa.Table.from_pylist(lines, schema=schema.columns))
    return Change(seq, op, contributions(said(lines, schema), schema))


def said(lines: list[dict[str, Any]], schema: TableSchema = SCHEMA) -> pa.Table:
    named = [{**line, GIVEN: given_text(name for name in line if name not in schema.key)} for line in lines]
    return pa.Table.from_pylist(named, schema=patch_columns(schema))


def applied(base: pa.Table, changes: list[Change], schema: TableSchema = SCHEMA) -> pa.Table:
    """As readers do it: the overlay, completed with the rows that base has."""
    return over(base, whole(base, resolve(schema, changes), schema))


def over(base: pa.Table, overlay: Overlay) -> pa.Table:
    return pa.concat_tables([anti_join(base, overlay.hidden, ["k"]), overlay.rows])


def whole(base: pa.Table, overlay: Overlay, schema: TableSchema = SCHEMA) -> Overlay:
    if overlay.patches is not None:
        wanted = set(overlay.patches.column("k").to_pylist())
        met = [row for row in base.to_pylist() if row["k"] in wanted]
        overlay = with_patches(schema, overlay, pa.Table.from_pylist(met, schema=schema.columns))
    return overlay


def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    found = rows.to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return sorted(found, key=lambda row: row["k"])


def base_of(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows.values()), schema=SCHEMA.columns)


@settings(max_examples=examples(150, 2_000))
@given(histories(), histories(), st.lists(st.integers(1, 8), max_size=3))
def test_any_grouping_of_lines_gives_the_rows_of_one_line_after_the_other(
    earlier: History, history: History, cuts: list[int]
) -> None:
    before = one_by_one({}, [(op, lines) for op, lines in earlier if op is not Op.UPDATE])
    after = one_by_one(before, history)
    changes = [change(seq, op, lines) for seq, (op, lines) in enumerate(history, 1)]
    assert sorted_rows(applied(base_of(before), changes)) == sorted_rows(base_of(after))

    edges = sorted({0, *(min(cut, len(changes)) for cut in cuts), len(changes)})
    pieces = [changes[begin:end] for begin, end in itertools.pairwise(edges)]
    composed = [
        Change(seq, op, rows) for seq, piece in enumerate(pieces, 1) for op, rows in merged(SCHEMA, piece).items()
    ]
    assert sorted_rows(applied(base_of(before), composed)) == sorted_rows(base_of(after)), "merged in runs"

    folded = base_of(before)
    for piece in pieces:
        folded = applied(folded, piece)
    assert sorted_rows(folded) == sorted_rows(base_of(after)), "folded in runs"


@settings(max_examples=examples(25, 2_000))
@given(histories(), histories())
def test_newer_lines_count_once_on_top_of_what_older_ones_came_to(before: History, history: History) -> None:
    start = one_by_one({}, before)
    base, overlay = base_of(start), Overlay(SCHEMA.select(SCHEMA.key).empty_table(), SCHEMA.columns.empty_table())
    for seq, (op, lines) in enumerate(history, 1):
        overlay = whole(base, extended(SCHEMA, overlay, [change(seq, op, lines)]))
    assert sorted_rows(over(base, overlay)) == sorted_rows(base_of(one_by_one(start, history)))


@settings(max_examples=examples(60, 1_000))
@given(st.lists(st.tuples(st.integers(0, 3), *(SMALL[name] for name in ("low", "total", "money", "any"))), min_size=1))
def test_duckdb_makes_the_same_of_the_lines(lines: list[tuple[Any, ...]]) -> None:
    names = ["k", "low", "total", "money", "any"]
    rows = pa.Table.from_pylist([dict(zip(names, line, strict=True)) for line in lines], schema=SCHEMA.select(names))
    written = pa.table(
        [rows.column(n) if n in names else pa.nulls(len(lines), COLUMNS[n]) for n in SCHEMA.names],
        schema=SCHEMA.columns,
    )
    ours = applied(base_of({}), [Change(1, Op.UPDATE, whole_lines(written, SCHEMA))])
    with duckdb.connect() as db:
        db.register("rows", rows)
        wanted = db.sql(
            "select k, min(low) as low, sum(total)::bigint as total, sum(money)::decimal(38, 2) as money, "
            'bool_or("any") as "any", count(*) as n from rows group by k'
        ).to_arrow_table()
    assert sorted_rows(ours.select(wanted.column_names)) == sorted_rows(wanted)


def test_nan_is_above_all_numbers() -> None:
    schema = define(
        pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.float64())]),
        "k",
        merge_rules={"a": "min", "b": "max"},
    )
    lines = [{"k": 1, "a": value, "b": value} for value in (NAN, 3.0, None, -2.0, NAN)]
    made = compose(schema, [change(1, Op.UPDATE, lines, schema), change(2, Op.UPDATE, lines[1:4], schema)])[Op.UPDATE]
    assert made.column("a").to_pylist() == [-2.0]
    assert str(made.column("b")[0]) == "nan"


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("total", [2**62, 2**62, -(2**62)], 2**62),
        ("total", [-(2**63), 2**63 - 1, -1, 1], -1),
        ("money", [Decimal("9" * 36), Decimal("9" * 36), Decimal("-" + "9" * 36)], Decimal("9" * 36)),
        ("money", [Decimal("-0.01"), Decimal("0.01")], Decimal("0.00")),
    ],
)
def test_a_sum_may_leave_its_type_on_the_way_within_one_merge(name: str, values: list[Any], wanted: Any) -> None:
    changes = [change(seq, Op.UPDATE, [{"k": 1, name: value}]) for seq, value in enumerate(values, 1)]
    assert applied(base_of({}), changes).column(name).to_pylist() == [wanted]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("total", [2**62, 2**62]),
        ("total", [-(2**63), -1]),
        ("money", [Decimal("9" * 36), Decimal("1.00")]),
        ("money", [Decimal("-" + "9" * 36), Decimal("-" + "9" * 36), Decimal("-" + "9" * 36)]),
    ],
)
def test_a_sum_that_does_not_fit_names_its_row_and_a_delete_helps(name: str, values: list[Any]) -> None:
    changes = [change(seq, Op.UPDATE, [{"k": 7, name: value}]) for seq, value in enumerate(values, 1)]
    with pytest.raises(InvalidRequest, match=rf"sum of column '{name}' does not fit .* row with k 7: delete that row"):
        applied(base_of({}), changes)
    changes.append(change(9, Op.DELETE, [{"k": 7}]))
    assert applied(base_of({}), changes).num_rows == 0


def test_taking_back_what_was_said_leaves_sums_and_counts_as_they_were() -> None:
    schema = define(
        pa.schema([("k", pa.int64()), ("total", pa.int64()), ("n", pa.int64())]),
        "k",
        merge_rules={"total": "sum", "n": "count"},
    )
    lines = [{"k": 1, "total": 5}, {"k": 1, "total": 7}, {"k": 2}]
    back = Change(0, Op.UPDATE, retractions(said(lines[:1], schema), schema))
    for changes in ([change(1, Op.UPDATE, lines, schema), back], [back, change(1, Op.UPDATE, lines, schema)]):
        made = compose(schema, changes)[Op.UPDATE]
        assert made.select(["k", "total", "n"]).to_pylist() == [
            {"k": 1, "total": 7, "n": 1},
            {"k": 2, "total": None, "n": 1},
        ]


def test_what_cannot_be_taken_back_exactly_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="column 'high' cannot be taken back: its merge rule is 'max'"):
        retractions(said([{"k": 1, "high": "a"}]), SCHEMA)
    with pytest.raises(InvalidRequest, match="column 'plain' cannot be taken back: its merge rule is 'last'"):
        retractions(said([{"k": 1, "plain": "a"}]), SCHEMA)
    with pytest.raises(InvalidRequest, match="'total' has a value that cannot be taken back"):
        retractions(said([{"k": 1, "total": -(2**63)}]), SCHEMA)


def test_lists_keep_the_newest_elements_in_their_order() -> None:
    lines = [
        {"k": 1, "tags": [1, 2]},
        {"k": 1, "tags": None},
        {"k": 1, "tags": [None, 4]},
        {"k": 2, "tags": [1, 2, 3, 4]},
    ]
    assert applied(base_of({}), [change(1, Op.UPDATE, lines)]).column("tags").to_pylist() == [[2, None, 4], [2, 3, 4]]
    long = [change(1, Op.REPLACE, [{"k": 1, "tags": [1, 2, 3, 4, 5]}])]
    assert applied(base_of({}), long).column("tags").to_pylist() == [[1, 2, 3, 4, 5]], "set as it is"
    long.append(change(2, Op.UPDATE, [{"k": 1, "tags": []}]))
    assert applied(base_of({}), long).column("tags").to_pylist() == [[3, 4, 5]]
