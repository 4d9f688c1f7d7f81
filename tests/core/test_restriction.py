"""Conditions that hold for every wanted row, spelled for both engines."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lithify.core.restriction import VALUES_LISTED_MAX, Restriction, restriction

NOON = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("values", "where", "exact"),
    [
        ([3, 1, 3], "(n in (3, 1))", True),
        ([1, None], "((n in (1) or n is null))", True),
        ([True], "(n in (true))", True),
        (["a", "ü"], "(n in ('a', 'ü'))", True),
        ([dt.date(2026, 1, 2)], "(n in (DATE '2026-01-02'))", True),
        (["it's"], None, False),
        (["back\\slash"], None, False),
        ([Decimal("1.5")], None, False),
        (
            [NOON, NOON + dt.timedelta(hours=1)],
            "(n >= TIMESTAMP '2026-11-15T12:00:00.000000Z' and n <= TIMESTAMP '2026-11-15T13:00:00.000000Z')",
            False,
        ),
        (list(range(VALUES_LISTED_MAX + 5)), f"(n >= 0 and n <= {VALUES_LISTED_MAX + 4})", False),
    ],
)
def test_values_of_one_column(values: list[Any], where: str | None, exact: bool) -> None:
    assert restriction(pa.table({"n": values})) == Restriction(where, exact)


def test_nulls_alone() -> None:
    assert restriction(pa.table({"n": pa.array([None], pa.int64())})) == Restriction("(n is null)", exact=True)


def test_several_columns_are_narrowed_one_by_one_which_is_not_exact() -> None:
    found = restriction(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    assert found == Restriction("(a in (1, 2)) and (b in ('x', 'y'))", exact=False)


def test_a_name_that_needs_quotes_is_left_out() -> None:
    assert restriction(pa.table({"Total": [1]})) == Restriction(None, exact=False)
