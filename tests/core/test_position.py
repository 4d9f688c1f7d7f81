"""Positions: what they say, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify import InvalidRequest
from lithify.core.position import Position, parse_position, seq_of

ID = "1f3a9c02-77aa-4b1c-9d55-0a1b2c3d4e5f"
OTHER = "2f3a9c02-77aa-4b1c-9d55-0a1b2c3d4e5f"


def test_a_position_names_the_table_and_its_incarnation() -> None:
    assert str(Position("shop.orders", ID, 41)) == "shop.orders@1f3a9c02:41"


@given(seq=st.integers(0, 2**63 - 1))
def test_a_position_is_read_back(seq: int) -> None:
    text = str(Position("shop.orders", ID, seq))
    assert parse_position(text) == Position("shop.orders", "1f3a9c02", seq)
    assert seq_of(text, "shop.orders", ID) == seq


@pytest.mark.parametrize("seq", [0, 41, "41"])
def test_a_number_is_a_seq_of_the_table_that_is_asked(seq: Any) -> None:
    assert seq_of(seq, "shop.orders", ID) == int(seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "shop.orders",
        "shop.orders@1f3a9c02",
        "shop.orders@1f3a9c02:",
        "shop.orders@1f3a9c02:-1",
        "shop.orders@1f3a9c02:4 1",
        "shop.orders@1F3A9C02:41",
        "shop.orders@1f3a9c:41",
        "shop.orders@1f3a9c02:9223372036854775808",
        "@1f3a9c02:41",
        "-1",
        "1e3",
        "٣",
        "latest",
        "shop.orders@1f3a9c02:41\n",
        "x" * 100_000,
    ],
)
def test_other_texts_are_no_positions(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is no position: it is a seq like 41") as refused:
        seq_of(text, "shop.orders", ID)
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("value", [None, True, 1.5, b"41", -1, 2**63])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"shop\.orders"):
        seq_of(value, "shop.orders", ID)


def test_a_position_of_another_table_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"is of table shop\.items, not of shop\.orders"):
        seq_of("shop.items@1f3a9c02:41", "shop.orders", ID)


def test_a_position_of_a_table_that_was_created_again_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"dropped and created again since: read the table anew"):
        seq_of(str(Position("shop.orders", OTHER, 41)), "shop.orders", ID)
