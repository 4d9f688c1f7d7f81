"""Statistics of other writers in a Delta log: widened where that makes them safe, dropped where it does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.snapshot import Bounds
from lithify.delta.foreign_bounds import believed

MS = dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("low", "high"), [(1, 5), (False, True), (0.5, 1.5), ("a", "b"), (Decimal("1.5"), Decimal("99")), ("", "z" * 31)]
)
def test_what_is_written_whole_is_kept(low: Any, high: Any) -> None:
    assert believed(low, high, 3) == Bounds(low, high, 3)


def test_times_are_cut_to_milliseconds() -> None:
    low, high = dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)

    assert believed(low, high, 0) == Bounds(low - MS, high + MS, 0)
    assert believed(low, dt.datetime.max, 0).high == dt.datetime.max


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (dt.date(1500, 1, 1), dt.date(2026, 1, 1)),
        (dt.datetime(1850, 1, 1), dt.datetime(2026, 1, 1)),
        (Decimal("1"), Decimal("12345678901234567.89")),
        (float("nan"), 1.0),
        (0.0, float("inf")),
        (5, 1),
        (None, 1),
        (1, None),
        ("a", "\U0010ffff" * 40),
    ],
    ids=repr,
)
def test_what_may_be_wrong_is_dropped(low: Any, high: Any) -> None:
    found = believed(low, high, 7)

    assert not found.known
    assert found.nulls == 7


TIES = ("\ufffd", "\x7f", "\U0010ffff", "\u7fff")


@given(st.text(min_size=1, max_size=70), st.sampled_from(TIES))
def test_no_text_that_was_cut_exceeds_its_bound(text: str, tie: str) -> None:
    """As Spark cuts: after so many UTF-16 units, perhaps within a character, with one added at the end."""
    units = text.encode("utf-16-le")
    cut = units[: 2 * 32].decode("utf-16-le", "replace") + tie if len(units) > 2 * 32 else text

    found = believed("", cut, 0)

    assert not found.known or text <= found.high
