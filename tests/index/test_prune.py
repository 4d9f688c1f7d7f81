"""A row group is ruled out only with proof. Leaving out one that holds a matching row would lose the row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lithify.core.predicates import UNKNOWN, And, Compare, In, IsNull, Or, Predicate, Prefix
from lithify.index.prune import (
    CLOSE_LOOKS_MAX,
    equalities,
    may_hold_keys,
    may_match,
    may_match_constants,
    may_match_each,
)
from lithify.index.stats import (
    ABSENT,
    HAS_MAX,
    HAS_MIN,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    ColumnStats,
    Kind,
)
from support.row_groups import (
    FULL_TRUST,
    KINDS,
    NAN,
    ORDERS,
    POOLS,
    SCALE,
    STRANGERS,
    Column,
    columns,
    is_true,
    misfit,
    predicates,
    stats_of,
)

TRUSTED = FULL_TRUST | NAN_FREE
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def read(predicate: Predicate, kind: Kind, *groups: Sequence[Any], trust: int = TRUSTED) -> list[bool]:
    """Of row groups that hold these values in column x, with exact statistics as far as `trust` has them."""
    stats = stats_of(kind, groups, [trust] * len(groups))
    return may_match(predicate, len(groups), {"x": stats}.get).tolist()


# Properties


@kinds
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_row_group_with_a_matching_row_is_ruled_out(kind: Kind, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    column = data.draw(columns(kind, sizes))
    predicate = data.draw(predicates({"x": kind}))
    keep = may_match(predicate, len(sizes), {"x": column.stats}.get)
    for group, values in enumerate(column.groups):
        for value in values:
            for order in ORDERS:
                if is_true(predicate, {"x": value}, {"x": kind}, order):
                    assert keep[group], f"{predicate} holds for {value!r} ({order.__name__})"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_row_of_several_columns_is_lost(data: st.DataObject) -> None:
    types = {name: data.draw(st.sampled_from(KINDS)) for name in "abc"}
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    table: dict[str, Column] = {name: data.draw(columns(kind, sizes)) for name, kind in types.items()}
    predicate = data.draw(predicates(types, depth=3))
    known = {name: column.stats for name, column in table.items() if name != "c"}
    keep = may_match(predicate, len(sizes), known.get)
    for group, size in enumerate(sizes):
        for row in range(size):
            values = {name: column.groups[group][row] for name, column in table.items()}
            if any(is_true(predicate, values, types, order) for order in ORDERS):
                assert keep[group], f"{predicate} holds for {values}"


@kinds
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_row_groups_of_one_known_value_are_decided_exactly(kind: Kind, data: st.DataObject) -> None:
    """What can be pruned is: exact bounds around a single value leave no doubt, NaN and 0.0 apart."""
    own = [value for value in POOLS[kind] if value == value and not (kind is Kind.FLOAT and value == 0)]
    values = data.draw(st.lists(st.sampled_from(own), min_size=1, max_size=4))
    predicate = data.draw(predicates({"x": kind}, depth=1))
    assume(understood(predicate, kind))
    expected = [any(is_true(predicate, {"x": v}, {"x": kind}, order) for order in ORDERS) for v in values]
    assert read(predicate, kind, *([v, v] for v in values)) == expected


def understood(predicate: Predicate, kind: Kind) -> bool:
    """No NULL, NaN or empty list, which are left to the engine, nor a list with a member that does not fit."""
    match predicate:
        case And(parts) | Or(parts):
            return all(understood(part, kind) for part in parts)
        case Compare(_, _, value):
            return value is not None and value == value
        case In(_, values, _):
            return bool(values) and not any(value != value or misfit(kind, value) for value in values)
    return True


@kinds
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_constant_that_matches_is_ruled_out(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(st.one_of(st.none(), st.sampled_from(POOLS[kind])))
    predicate = data.draw(predicates({"x": kind}))
    may_match = may_match_constants(predicate, {"x": value})
    if any(is_true(predicate, {"x": value}, {"x": kind}, order) for order in ORDERS):
        assert may_match


ARROW_TYPES = {
    Kind.SIGNED: [pa.int64(), pa.int8(), pa.uint64()],
    Kind.UNSIGNED: [pa.uint64(), pa.int64(), pa.uint8()],
    Kind.FLOAT: [pa.float64(), pa.float32()],
    Kind.BOOLEAN: [pa.bool_()],
    Kind.DATE: [pa.date32()],
    Kind.TIMESTAMP: [pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns")],
    Kind.TIMESTAMP_UTC: [pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Kolkata")],
    Kind.TEXT: [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    Kind.BINARY: [pa.binary(), pa.large_binary()],
    Kind.DECIMAL: [pa.decimal128(18, SCALE), pa.decimal128(38, SCALE), pa.decimal128(20, 0), pa.decimal128(30, 4)],
    Kind.WIDE_DECIMAL: [pa.decimal128(38, SCALE), pa.decimal128(38, 0), pa.decimal128(38, 6)],
}


def as_keys(values: Sequence[Any], given: pa.DataType) -> pa.ChunkedArray | None:
    try:
        whole = pa.array(values, given)
    except (pa.ArrowInvalid, OverflowError):
        return None
    return pa.chunked_array([whole[:1], whole[1:]])


@kinds
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_row_group_with_one_of_the_keys_is_ruled_out(kind: Kind, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    column = data.draw(columns(kind, sizes))
    wanted = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(POOLS[kind])), max_size=5))
    keys = as_keys(wanted, data.draw(st.sampled_from(ARROW_TYPES[kind])))
    assume(keys is not None)
    keep = may_hold_keys(column.stats, keys)
    # 32 bits and milliseconds may have rounded them.
    exact = keys.to_pylist() if kind in (Kind.FLOAT, Kind.TIMESTAMP) else wanted
    for group, values in enumerate(column.groups):
        if any(value == key or (value != value and key != key) for value in values for key in exact):
            assert keep[group]


@kinds
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_keys_are_looked_for_exactly_among_row_groups_of_one_value(kind: Kind, data: st.DataObject) -> None:
    own = st.sampled_from([value for value in POOLS[kind] if value == value])
    values = data.draw(st.lists(own, min_size=1, max_size=4))
    wanted = data.draw(st.lists(own, max_size=5))
    keys = as_keys(wanted, ARROW_TYPES[kind][0])
    assert keys is not None
    keep = may_hold_keys(stats_of(kind, [[v] for v in values], [TRUSTED] * len(values)), keys)
    assert keep.tolist() == [value in wanted for value in values]


# Nulls


def test_is_null_needs_a_null() -> None:
    assert read(IsNull("x"), Kind.SIGNED, [1, 2], [1, None], [None]) == [False, True, True]


def test_is_not_null_needs_a_value() -> None:
    assert read(IsNull("x", negated=True), Kind.SIGNED, [1, 2], [1, None], [None]) == [True, True, False]


@pytest.mark.parametrize("predicate", [IsNull("x"), IsNull("x", negated=True), Compare("x", "=", 5)])
def test_nothing_follows_from_nulls_that_were_not_counted(predicate: Predicate) -> None:
    assert read(predicate, Kind.SIGNED, [None], [5], trust=TRUSTED & ~NULLS_KNOWN) == [True, True]


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("literal", [5, "no number"])
def test_no_comparison_holds_for_nulls_alone(op: Any, literal: Any) -> None:
    assert read(Compare("x", op, literal), Kind.SIGNED, [None, None]) == [False]


@pytest.mark.parametrize("predicate", [In("x", ("a", None)), In("x", ("a",), negated=True), Prefix("x", "a")])
def test_no_list_or_prefix_holds_for_nulls_alone(predicate: Predicate) -> None:
    assert read(predicate, Kind.TEXT, [None, None], ["a", "b"]) == [False, True]


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_a_null_literal_rules_nothing_out(op: Any) -> None:
    assert read(Compare("x", op, None), Kind.SIGNED, [1], [None]) == [True, True]


def test_a_null_in_a_list_leaves_the_other_values_to_prune() -> None:
    assert read(In("x", (5, None)), Kind.SIGNED, [1, None], [5]) == [False, True]


@pytest.mark.parametrize("predicate", [In("x", (None,)), In("x", (5, None), negated=True), In("x", ())])
def test_lists_that_hold_nothing_to_compare_rule_nothing_out(predicate: Predicate) -> None:
    assert read(predicate, Kind.SIGNED, [5], [None], [6]) == [True, True, True]


def test_an_empty_row_group_is_ruled_out_by_a_comparison() -> None:
    assert read(Compare("x", "=", 1), Kind.SIGNED, []) == [False]


# What is not known


@pytest.mark.parametrize(
    "predicate",
    [
        *(Compare("x", op, 5) for op in ("=", "<>", "<", "<=", ">", ">=")),  # type: ignore[arg-type]
        *(IsNull("x"), IsNull("x", negated=True), In("x", (5,)), In("x", (1,), negated=True), UNKNOWN),
    ],
    ids=str,
)
def test_a_row_group_without_the_column_is_kept(predicate: Predicate) -> None:
    assert read(predicate, Kind.SIGNED, [1], [None], trust=TRUSTED | ABSENT) == [True, True]


def test_a_prefix_keeps_a_row_group_without_the_column() -> None:
    assert read(Prefix("x", "b"), Kind.TEXT, ["a"], ["c"], trust=TRUSTED | ABSENT) == [True, True]


@pytest.mark.parametrize("predicate", [Compare("x", "=", Decimal("1.005")), In("x", (2**70,))], ids=str)
def test_a_value_that_no_row_can_hold_keeps_a_row_group_without_the_column(predicate: Predicate) -> None:
    assert read(predicate, Kind.DECIMAL, [Decimal(1)]) == [False]
    assert read(predicate, Kind.DECIMAL, [Decimal(1)], trust=TRUSTED | ABSENT) == [True]


def test_keys_keep_a_row_group_without_the_column() -> None:
    stats = stats_of(Kind.SIGNED, [[1], [None]], [TRUSTED | ABSENT] * 2)
    assert may_hold_keys(stats, pa.chunked_array([[5]])).tolist() == [True, True]


def test_a_column_of_which_nothing_is_known_keeps_all() -> None:
    assert may_match(Compare("y", "=", 1), 3, {}.get).tolist() == [True, True, True]


@pytest.mark.parametrize(
    ("op", "needed"), [("<", HAS_MIN), ("<=", HAS_MIN), (">", HAS_MAX), (">=", HAS_MAX), ("=", HAS_MIN)]
)
def test_a_bound_that_is_missing_rules_nothing_out(op: Any, needed: int) -> None:
    literal, value = (5, 9) if needed == HAS_MIN else (9, 5)
    assert read(Compare("x", op, literal), Kind.SIGNED, [value], trust=TRUSTED) == [False]
    assert read(Compare("x", op, literal), Kind.SIGNED, [value], trust=TRUSTED & ~needed) == [True]


def test_one_bound_is_enough_where_it_decides() -> None:
    assert read(Compare("x", "=", 5), Kind.SIGNED, [9], trust=HAS_MIN) == [False]
    assert read(Compare("x", "=", 9), Kind.SIGNED, [5], trust=HAS_MAX) == [False]


@pytest.mark.parametrize("predicate", [In("x", (-3, 5)), In("x", (-3, 5), negated=True)], ids=str)
@pytest.mark.parametrize("missing", [HAS_MIN, HAS_MAX])
def test_what_stands_in_place_of_a_missing_bound_is_not_looked_at(missing: int, predicate: Predicate) -> None:
    values = [-3, 0] if missing == HAS_MIN else [2, 5]
    assert read(predicate, Kind.SIGNED, values, trust=TRUSTED & ~missing) == [True]


@pytest.mark.parametrize(("op", "value", "missing"), [("<", "abb", HAS_MIN), (">", "abd", HAS_MAX)])
def test_equal_first_bytes_in_place_of_a_missing_bound_are_not_looked_at(op: Any, value: str, missing: int) -> None:
    """The support writes "abc" where there is no bound."""
    assert read(Compare("x", op, "abc"), Kind.TEXT, [value], trust=TRUSTED & ~missing) == [True]


def test_an_unknown_branch_keeps_what_the_others_rule_out() -> None:
    assert read(Or((Compare("x", "=", 5), UNKNOWN)), Kind.SIGNED, [1]) == [True]
    assert read(Or((Compare("x", "=", 5), Compare("y", "=", 5))), Kind.SIGNED, [1]) == [True]


def test_every_branch_must_rule_out() -> None:
    predicate = Or((Compare("x", "=", 5), Compare("x", ">", 7)))
    assert read(predicate, Kind.SIGNED, [1], [5], [6], [8]) == [False, True, False, True]


def test_any_part_may_rule_out() -> None:
    predicate = And((Compare("x", ">", 1), UNKNOWN, Compare("x", "<", 5)))
    assert read(predicate, Kind.SIGNED, [1], [2], [5]) == [False, True, False]


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        *((Kind.SIGNED, v) for v in (True, 5.0, Decimal(5), "5", np.int64(5))),
        *((Kind.BOOLEAN, v) for v in (1, "true")),
        *((Kind.FLOAT, v) for v in (True, 2**53 + 1, 10**400, Decimal("0.1"), Decimal("Infinity"), "5")),
        *((Kind.DECIMAL, v) for v in (True, 0.5, Decimal("Infinity"), Decimal("NaN"), "5")),
        *((Kind.DATE, v) for v in (datetime(1800, 1, 1), 5, "1800-01-01")),
        *((Kind.TIMESTAMP, v) for v in (date(1800, 1, 1), datetime(1800, 1, 1, tzinfo=UTC), 5)),
        *((Kind.TIMESTAMP_UTC, v) for v in (date(1800, 1, 1), datetime(1800, 1, 1), 5)),
        *((Kind.TEXT, v) for v in (b"zzz", 5, "\ud800")),
        *((Kind.BINARY, v) for v in ("zzz", 5)),
        *((Kind.OTHER, v) for v in (5, "zzz")),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_literal_that_does_not_fit_the_column_rules_nothing_out(kind: Kind, literal: Any) -> None:
    sample = POOLS.get(kind, [1])[-2 if kind is Kind.FLOAT else -1]
    values = [[sample], [POOLS.get(kind, [1, 1])[1]]]
    for op in ("=", "<>", "<", "<=", ">", ">="):
        assert read(Compare("x", op, literal), kind, *values) == [True, True]  # type: ignore[arg-type]
    assert read(In("x", (literal, sample), negated=True), kind, *values) == [True, True]
    assert read(In("x", (literal,)), kind, *values) == [True, True]


@pytest.mark.parametrize("literal", [2**64, 2**70, 10**30])
def test_integers_above_every_key_are_compared_without_overflow(literal: int) -> None:
    for kind in (Kind.SIGNED, Kind.UNSIGNED, Kind.DECIMAL):
        assert read(Compare("x", ">", literal), kind, [1]) == [False]
        assert read(Compare("x", "<", literal), kind, [1]) == [True]
        assert read(In("x", (literal, 5)), kind, [1]) == [False]


@pytest.mark.parametrize("literal", [-(2**64), -(2**70), -(10**30)])
def test_integers_below_every_key_are_compared_without_overflow(literal: int) -> None:
    for kind in (Kind.SIGNED, Kind.UNSIGNED, Kind.DECIMAL):
        assert read(Compare("x", ">", literal), kind, [1]) == [True]
        assert read(Compare("x", "<=", literal), kind, [1]) == [False]


# Inequality


@pytest.mark.parametrize("predicate", [Compare("x", "<>", 5), In("x", (4, 5), negated=True)])
def test_an_inequality_rules_out_a_row_group_of_that_one_value(predicate: Predicate) -> None:
    assert read(predicate, Kind.SIGNED, [5, 5], [5, None], [5, 6], [7]) == [False, False, True, True]


@pytest.mark.parametrize("missing", [HAS_MIN, HAS_MAX, MIN_EXACT, MAX_EXACT])
@pytest.mark.parametrize("kind", [Kind.SIGNED, Kind.TEXT])
def test_an_inequality_needs_exact_bounds(kind: Kind, missing: int) -> None:
    value = POOLS[kind][4]
    assert read(Compare("x", "<>", value), kind, [value], trust=TRUSTED) == [False]
    assert read(Compare("x", "<>", value), kind, [value], trust=TRUSTED & ~missing) == [True]


# Floats


@pytest.mark.parametrize("literal", [NAN, Decimal("NaN")])
@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_nan_as_a_literal_rules_nothing_out(op: Any, literal: Any) -> None:
    assert read(Compare("x", op, literal), Kind.FLOAT, [1.0], [None]) == [True, True]
    assert read(In("x", (7.0, literal)), Kind.FLOAT, [1.0]) == [True]


@pytest.mark.parametrize(("op", "literal"), [("<", 1.0), ("<=", 0.5), (">", 2.0), (">=", 3.0)])
def test_a_range_rules_out_floats_only_where_there_is_no_nan(op: Any, literal: float) -> None:
    assert read(Compare("x", op, literal), Kind.FLOAT, [1.0, 2.0]) == [False]
    assert read(Compare("x", op, literal), Kind.FLOAT, [1.0, 2.0], trust=TRUSTED & ~NAN_FREE) == [True]


def test_equality_rules_out_floats_whether_or_not_there_is_nan() -> None:
    assert read(Compare("x", "=", 5.0), Kind.FLOAT, [1.0, 2.0, NAN], [5.0]) == [False, True]


def test_an_inequality_rules_out_floats_only_where_there_is_no_nan() -> None:
    assert read(Compare("x", "<>", 5.0), Kind.FLOAT, [5.0]) == [False]
    assert read(Compare("x", "<>", 5.0), Kind.FLOAT, [5.0], trust=TRUSTED & ~NAN_FREE) == [True]


@pytest.mark.parametrize("literal", [0.0, -0.0, 0, Decimal(0)])
@pytest.mark.parametrize("value", [0.0, -0.0])
@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_the_two_zeros_may_be_less_equal_or_different(op: Any, value: float, literal: Any) -> None:
    assert read(Compare("x", op, literal), Kind.FLOAT, [value]) == [True]


@pytest.mark.parametrize(("op", "value"), [("<", 1.0), ("<=", 5e-324), (">", -1.0), (">=", -5e-324), ("=", 1.0)])
def test_zero_still_rules_out_what_lies_on_its_other_side(op: Any, value: float) -> None:
    assert read(Compare("x", op, 0.0), Kind.FLOAT, [value]) == [False]


@pytest.mark.parametrize("literal", [2**24 + 1, Decimal(2**24 + 1)])
def test_a_literal_that_32_bits_would_round_rules_nothing_out(literal: Any) -> None:
    """On a column of 32-bit floats an engine asks for the rounded one."""
    assert read(Compare("x", ">=", literal), Kind.FLOAT, [2.0**24]) == [True]
    assert read(Compare("x", "=", literal), Kind.FLOAT, [2.0**24]) == [True]
    assert read(Compare("x", "=", 2**24 + 2), Kind.FLOAT, [2.0**24]) == [False]


@pytest.mark.parametrize("bad", ["low", "high"])
def test_a_bound_that_is_nan_rules_nothing_out(bad: str) -> None:
    moved = (math.nan, 2.0) if bad == "low" else (2.0, math.nan)
    stats = stats_of(Kind.FLOAT, [[2.0]], [TRUSTED], lambda *_: moved)
    for predicate in (In("x", (1.0, 5.0)), In("x", (1.0,) if bad == "low" else (5.0,))):
        assert may_match(predicate, 1, {"x": stats}.get).tolist() == [True]
    assert may_hold_keys(stats, pa.chunked_array([[1.0, 5.0]])).tolist() == [True]


def test_nan_among_keys_keeps_all() -> None:
    stats = stats_of(Kind.FLOAT, [[1.0], [NAN]], [TRUSTED] * 2)
    assert may_hold_keys(stats, pa.chunked_array([[7.0, NAN]])).tolist() == [True, True]


# Decimals


@pytest.mark.parametrize("kind", [Kind.DECIMAL, Kind.WIDE_DECIMAL])
@pytest.mark.parametrize(
    ("op", "expected"), [("<", [1, 0]), ("<=", [1, 0]), (">", [0, 1]), (">=", [0, 1]), ("=", [0, 0]), ("<>", [1, 1])]
)
def test_a_decimal_between_two_values_is_not_rounded(kind: Kind, op: Any, expected: list[int]) -> None:
    groups = [Decimal("1.00")], [Decimal("1.01")]
    assert read(Compare("x", op, Decimal("1.005")), kind, *groups) == [bool(keep) for keep in expected]


def test_a_negative_decimal_between_two_values_is_not_rounded() -> None:
    groups = [Decimal("-1.01")], [Decimal("-1.00")]
    assert read(Compare("x", "<", Decimal("-1.005")), Kind.DECIMAL, *groups) == [True, False]


def test_wide_decimals_order_as_numbers() -> None:
    groups = [Decimal(-(2**70))], [Decimal(-1)], [Decimal(1)], [Decimal(2**70)]
    assert read(Compare("x", "<", 0), Kind.WIDE_DECIMAL, *groups) == [True, True, False, False]


@pytest.mark.parametrize("literal", [Decimal("1E+999999999"), Decimal("1E-999999999")])
def test_a_decimal_of_absurd_size_rules_nothing_out(literal: Decimal) -> None:
    assert read(Compare("x", "<", literal), Kind.DECIMAL, [Decimal(1)]) == [True]


# Text and bytes


def test_equal_first_bytes_are_decided_by_whole_values() -> None:
    groups = ["abcdefgh-1"], ["abcdefgh-2", "abcdefgh-4"], ["abcdefgh-5"]
    assert read(Compare("x", "=", "abcdefgh-3"), Kind.TEXT, *groups) == [False, True, False]
    assert read(Compare("x", "<", "abcdefgh-2"), Kind.TEXT, *groups) == [True, False, False]
    assert read(Compare("x", ">", "abcdefgh-4"), Kind.TEXT, *groups) == [False, False, True]
    assert read(In("x", ("abcdefgh-1", "abcdefgh-45")), Kind.TEXT, *groups) == [True, False, False]


def test_an_inequality_keeps_values_that_differ_after_their_first_bytes() -> None:
    groups = ["abcdefgh-1", "abcdefgh-2"], ["abcdefgh-1"]
    assert read(Compare("x", "<>", "abcdefgh-1"), Kind.TEXT, *groups) == [True, False]


def test_zero_bytes_at_the_end_count() -> None:
    assert read(Compare("x", "=", b"a"), Kind.BINARY, [b"a\0"], [b"a"]) == [False, True]
    assert read(Compare("x", "<>", b"a"), Kind.BINARY, [b"a\0"], [b"a"]) == [True, False]


def test_a_prefix_rules_out_what_lies_before_and_after_it() -> None:
    groups = ["a", "az"], ["b", "bz"], ["a", "c"], ["ba\U0010ffff"], ["bb"], ["c"]
    assert read(Prefix("x", "ba"), Kind.TEXT, *groups) == [False, True, True, True, False, False]


def test_a_prefix_of_highest_bytes_has_no_end() -> None:
    assert read(Prefix("x", b"\xff"), Kind.BINARY, [b"\xff\xff\xff"], [b"\xfe"]) == [True, False]
    assert read(Prefix("x", b"a\xff"), Kind.BINARY, [b"a\xff\xff"], [b"b"]) == [True, False]


def test_an_empty_prefix_asks_for_a_value() -> None:
    assert read(Prefix("x", ""), Kind.TEXT, ["a"], [None], ["", None]) == [True, False, True]


@pytest.mark.parametrize(("kind", "prefix"), [(Kind.TEXT, b"z"), (Kind.BINARY, "z"), (Kind.SIGNED, "1")])
def test_a_prefix_of_another_type_rules_nothing_out(kind: Kind, prefix: Any) -> None:
    assert read(Prefix("x", prefix), kind, [POOLS[kind][1]]) == [True]


def alike(groups: int) -> ColumnStats:
    """Row groups of one long value each, the same in all: "abcdefgh-1"."""
    one = stats_of(Kind.TEXT, [["abcdefgh-1"]], [TRUSTED])
    spread = {name: np.broadcast_to(getattr(one, name), groups) for name in ("rows", "nulls", "flags", "low", "high")}
    return ColumnStats(one.kind, 0, **spread, full_low=lambda _: b"abcdefgh-1", full_high=lambda _: b"abcdefgh-1")


@pytest.mark.parametrize(
    "predicate",
    [
        *(Compare("x", "=", "abcdefgh-2"), Compare("x", "<>", "abcdefgh-1"), Compare("x", "<", "abcdefgh-1")),
        *(Compare("x", ">", "abcdefgh-1"), Prefix("x", "abcdefgh-2"), In("x", ("abcdefgh-0", "abcdefgh-2"))),
    ],
    ids=str,
)
def test_many_row_groups_with_equal_first_bytes_are_kept_unseen(predicate: Predicate) -> None:
    assert not may_match(predicate, CLOSE_LOOKS_MAX, {"x": alike(CLOSE_LOOKS_MAX)}.get).any()
    assert may_match(predicate, CLOSE_LOOKS_MAX + 1, {"x": alike(CLOSE_LOOKS_MAX + 1)}.get).all()


def test_statistics_may_repeat_one_item_for_all_row_groups() -> None:
    one = stats_of(Kind.SIGNED, [[5, 9]], [TRUSTED])
    spread = {name: np.broadcast_to(getattr(one, name), 3) for name in ("rows", "nulls", "flags", "low", "high")}
    stats = ColumnStats(one.kind, 0, **spread, full_low=one.full_low, full_high=one.full_high)
    assert may_match(In("x", (1, 6)), 3, {"x": stats}.get).all()
    assert not may_match(In("x", (1, 10)), 3, {"x": stats}.get).any()


# Keys


def test_a_null_key_keeps_row_groups_that_may_hold_nulls() -> None:
    groups = [1], [1, None], [None], [7]
    keys = pa.chunked_array([pa.array([7, None])])
    stats = stats_of(Kind.SIGNED, groups, [TRUSTED] * 4)
    assert may_hold_keys(stats, keys).tolist() == [False, True, True, True]
    unsure = stats_of(Kind.SIGNED, groups, [TRUSTED & ~NULLS_KNOWN] * 4)
    assert may_hold_keys(unsure, keys).all()


def test_without_a_null_key_row_groups_of_nulls_are_ruled_out() -> None:
    stats = stats_of(Kind.SIGNED, [[None]], [TRUSTED])
    assert may_hold_keys(stats, pa.chunked_array([[7]])).tolist() == [False]


def test_no_keys_are_nowhere() -> None:
    stats = stats_of(Kind.SIGNED, [[1], [None]], [0, 0])
    assert may_hold_keys(stats, pa.chunked_array([], pa.int64())).tolist() == [False, False]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (Kind.SIGNED, pa.array(["7"])),
        (Kind.SIGNED, pa.array([7.0])),
        (Kind.TEXT, pa.array([b"zz"])),
        (Kind.BINARY, pa.array(["zz"])),
        (Kind.FLOAT, pa.array([7])),
        (Kind.BOOLEAN, pa.array([7])),
        (Kind.DATE, pa.array([datetime(1800, 1, 1)])),
        (Kind.TIMESTAMP, pa.array([datetime(1800, 1, 1, tzinfo=UTC)])),
        (Kind.TIMESTAMP_UTC, pa.array([datetime(1800, 1, 1)])),
        (Kind.TIMESTAMP, pa.array([1], pa.timestamp("ns"))),
        (Kind.DECIMAL, pa.array([Decimal("7.005")])),
        (Kind.OTHER, pa.array([7])),
    ],
    ids=str,
)
def test_keys_that_do_not_fit_the_column_keep_all(kind: Kind, keys: pa.Array) -> None:
    stats = stats_of(kind, [[POOLS.get(kind, [1, 1])[1]]], [TRUSTED])
    assert may_hold_keys(stats, pa.chunked_array([keys])).tolist() == [True]


@pytest.mark.parametrize("given", [pa.decimal128(38, SCALE), pa.decimal128(38, 0)])
def test_keys_beyond_eight_bytes_are_in_no_narrow_decimal(given: pa.DataType) -> None:
    stats = stats_of(Kind.DECIMAL, [[Decimal(0), Decimal(1)]], [TRUSTED])
    assert may_hold_keys(stats, pa.chunked_array([pa.array([Decimal(2**64)], given)])).tolist() == [False]


@pytest.mark.parametrize(("kind", "key", "given"), [(Kind.SIGNED, 2**63, pa.uint64()), (Kind.UNSIGNED, -1, pa.int64())])
def test_keys_beyond_the_range_of_the_column_are_nowhere(kind: Kind, key: int, given: pa.DataType) -> None:
    stats = stats_of(kind, [[1], [7]], [TRUSTED] * 2)
    assert may_hold_keys(stats, pa.chunked_array([pa.array([key, 7], given)])).tolist() == [False, True]


# Constants


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Compare("p", "=", 5), True),
        (Compare("p", "=", 6), False),
        (And((Compare("p", ">", 4), Compare("x", "=", 1))), True),
        (And((Compare("p", ">", 5), Compare("x", "=", 1))), False),
        (Or((Compare("p", ">", 5), Compare("x", "=", 1))), True),
        (IsNull("p"), False),
        (IsNull("q", negated=True), False),
        (Compare("q", "=", 5), False),
        (Compare("q", "=", "five"), False),
        (In("p", (5,), negated=True), False),
        (UNKNOWN, True),
    ],
    ids=str,
)
def test_constants_decide_what_they_can(predicate: Predicate, expected: bool) -> None:
    assert may_match_constants(predicate, {"p": 5, "q": None}) is expected


@kinds
def test_a_constant_of_any_kind_rules_out_the_others(kind: Kind) -> None:
    constant, other = POOLS[kind][0], POOLS[kind][1]
    assert may_match_constants(Compare("p", "=", constant), {"p": constant})
    assert not may_match_constants(Compare("p", "=", other), {"p": constant})


@pytest.mark.parametrize(
    "constant",
    [Decimal("1E+60"), Decimal("NaN"), Decimal("Infinity"), 2**64, "\ud800", NAN, [5], np.int64(5)],
    ids=repr,
)
def test_a_constant_that_has_no_place_in_an_order_keeps(constant: Any) -> None:
    for literal in (Decimal("1E+70"), 5.0, 6, "x", Decimal("-1E+70")):
        for op in ("=", "<>", "<", ">"):
            assert may_match_constants(Compare("p", op, literal), {"p": constant})  # type: ignore[arg-type]


@pytest.mark.parametrize("literal", [value for value in STRANGERS if value is not None], ids=repr)
def test_a_null_constant_matches_no_comparison(literal: Any) -> None:
    matches = may_match_constants(Compare("p", "=", literal), {"p": None})
    assert matches is (literal != literal)


# What blooms are asked, and what people are told


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Compare("x", "=", 5), In("x", (5,))),
        (And((Compare("x", "=", 5), In("y", (1, 2)), Compare("z", "<", 1))), And((In("x", (5,)), In("y", (1, 2))))),
        (In("x", (1, None)), In("x", (1,))),
        (In("x", (None,)), UNKNOWN),
        (Compare("x", "=", None), UNKNOWN),
        (In("x", (1,), negated=True), UNKNOWN),
        (Compare("x", "<>", 1), UNKNOWN),
        (Or((Compare("x", "=", 5), Compare("y", "=", 5))), Or((In("x", (5,)), In("y", (5,))))),
        (Or((Compare("x", "=", 5), In("x", (6, 7)))), In("x", (5, 6, 7))),
        (Or((Compare("x", "=", 5), Compare("x", "<", 5))), UNKNOWN),
        (
            Or((And((Compare("x", "=", 5), Compare("y", "<", 1))), Compare("y", "=", 5), Compare("y", "=", 6))),
            Or((In("x", (5,)), In("y", (5, 6)))),
        ),
        (And((Or((Compare("x", "=", 1), Compare("x", "=", 2))), Compare("z", ">", 1))), In("x", (1, 2))),
        (Compare("x", "=", 0.0), UNKNOWN),
        (In("x", (1.0, -0.0)), UNKNOWN),
        (In("x", (1.0, NAN)), UNKNOWN),
        (Compare("x", "=", False), In("x", (False,))),
        (UNKNOWN, UNKNOWN),
    ],
    ids=str,
)
def test_equalities_are_what_every_row_must_meet(predicate: Predicate, expected: Predicate) -> None:
    assert equalities(predicate) == expected


def test_each_part_tells_what_it_rules_out_alone() -> None:
    stats = stats_of(Kind.SIGNED, [[1], [5], [9]], [TRUSTED] * 3)
    predicate = And((Compare("x", ">", 1), And((Compare("x", "<", 5), Compare("y", "=", 1)))))
    assert may_match_each(predicate, 3, {"x": stats}.get) == [("x > 1", 1), ("x < 5", 2), ("y = 1", 0)]
    assert may_match_each(UNKNOWN, 3, {"x": stats}.get) == []
