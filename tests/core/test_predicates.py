"""Predicates are values: built from parts, compared, hashed, and shown to people."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from lithify.core.predicates import (
    UNKNOWN,
    And,
    Compare,
    In,
    IsNull,
    Or,
    Predicate,
    Prefix,
    both,
    columns_of,
    conjuncts,
    either,
)

A, B, C = Compare("a", "=", 1), Compare("b", "<", 2), IsNull("c")


def test_both_flattens_and_leaves_out_what_is_not_understood() -> None:
    assert both([A, UNKNOWN, And((B, And((C, UNKNOWN))))]) == And((A, B, C))


def test_either_flattens() -> None:
    assert either([A, Or((B, C))]) == Or((A, B, C))


@pytest.mark.parametrize("parts", [[A, UNKNOWN], [A, Or((B, UNKNOWN))]])
def test_either_knows_nothing_when_one_branch_is_not_understood(parts: list[Predicate]) -> None:
    assert either(parts) == UNKNOWN


def test_a_single_part_stands_alone() -> None:
    assert both([UNKNOWN, A]) == A
    assert either([A]) == A


def test_no_parts_know_nothing() -> None:
    assert both([]) == both([UNKNOWN]) == either([]) == UNKNOWN


def test_parts_of_the_other_kind_stay_whole() -> None:
    assert both([A, Or((B, C))]) == And((A, Or((B, C))))
    assert either([A, And((B, C))]) == Or((A, And((B, C))))


def test_columns_are_found_at_every_depth() -> None:
    predicate = And((A, Or((B, And((C, In("d", (1,)), UNKNOWN)))), Prefix("e", "x")))
    assert columns_of(predicate) == {"a", "b", "c", "d", "e"}
    assert columns_of(UNKNOWN) == set()


def test_conjuncts_are_the_parts_that_must_all_hold() -> None:
    assert conjuncts(And((A, And((B, Or((A, C))))))) == (A, B, Or((A, C)))
    assert conjuncts(Or((A, B))) == (Or((A, B)),)
    assert conjuncts(UNKNOWN) == ()


@pytest.mark.parametrize("other", [True, 1.0, Decimal(1)])
def test_equal_values_of_different_types_ask_different_things(other: object) -> None:
    assert Compare("a", "=", 1) != Compare("a", "=", other)
    assert In("a", (1,)) != In("a", (other,))
    assert len({Compare("a", "=", 1), Compare("a", "=", other)}) == 2


def test_predicates_are_hashable_and_survive_a_process_border() -> None:
    predicate = And((A, Or((In("b", [1, None], negated=True), UNKNOWN)), Prefix("e", b"x")))
    again = pickle.loads(pickle.dumps(predicate))
    assert again == predicate
    assert hash(again) == hash(predicate)


def test_there_are_six_comparisons() -> None:
    with pytest.raises(AssertionError, match="=="):
        Compare("a", "==", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (Compare("a", ">=", 5), "a >= 5"),
        (Compare("a", "=", "it's"), "a = 'it''s'"),
        (Compare("a", "=", None), "a = NULL"),
        (Compare("a", "=", True), "a = TRUE"),
        (Compare("a", "=", Decimal("1E+3")), "a = 1000"),
        (Compare("a", "=", b"\x01\xff"), "a = x'01ff'"),
        (Compare("a", "<", date(2024, 2, 29)), "a < DATE '2024-02-29'"),
        (Compare("a", "<", datetime(2024, 2, 29, 12)), "a < TIMESTAMP '2024-02-29 12:00:00'"),
        (Compare("a", "<", datetime(2024, 2, 29, tzinfo=UTC)), "a < TIMESTAMP '2024-02-29 00:00:00+00:00'"),
        (In("a", (1, None)), "a IN (1, NULL)"),
        (In("a", (1,), negated=True), "a NOT IN (1)"),
        (In("a", tuple(range(1008))), "a IN (0, 1, 2, 3, 4, 5, 6, 7, … 1,000 more)"),
        (IsNull("a"), "a IS NULL"),
        (IsNull("a", negated=True), "a IS NOT NULL"),
        (Prefix("a", "x"), "a STARTS WITH 'x'"),
        (And((A, Or((B, And((A, C)))))), "a = 1 AND (b < 2 OR (a = 1 AND c IS NULL))"),
        (Compare("a", "=", "x" * 100), f"a = '{'x' * 60}…'"),
        (Compare("a", "=", b"x" * 100), f"a = x'{'78' * 30}…'"),
    ],
)
def test_a_predicate_reads_like_sql(predicate: Predicate, text: str) -> None:
    assert str(predicate) == text
