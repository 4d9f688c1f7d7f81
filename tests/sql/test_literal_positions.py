"""Which constants of a text may be written in several ways; what they mean is tested in test_literals.py."""

from __future__ import annotations

import pytest

from lithify.core.sql_text import positioned_tokens
from lithify.sql.literal_positions import Brackets, numbers


def first_ways(text: str) -> list[str]:
    brackets = Brackets.of(list(positioned_tokens(text)))
    return [spot.ways[0] for group in numbers(brackets) for spot in group]


@pytest.mark.parametrize(
    ("text", "divided"),
    [
        ("select 1.5", False),
        ("select 1.5 / x", True),
        ("select (1.5) / x", True),
        ("select x / (y + 1.5)", True),
        ("select avg(1.5)", True),
        ("select x / y + sum(1.5)", True),
        ("select x / y, sum(1.5)", False),
        ("select * from t where (a / b) > 1.5", False),
        ("select * from t where a in (1.5, 2.5) and b / c = 1", False),
        ("select * from (values (1.5)) as v (a) where a / b = 1", False),
        ("select [1.5][1] / x", True),
        ("select 1.5)", False),
        ("select (1.5", False),
        ("select )) / (1.5", True),
    ],
)
def test_what_goes_into_a_quotient_is_a_float_first(text: str, divided: bool) -> None:
    assert first_ways(text)[0].startswith("cast") is divided


def test_brackets_know_their_partners_also_where_some_are_missing() -> None:
    tokens = list(positioned_tokens("f(a, [b]) + c) ("))
    brackets = Brackets.of(tokens)

    pairs = {(tokens[a].text, tokens[b].text) for a, b in brackets.partner.items() if a < b}

    assert pairs == {("(", ")"), ("[", "]")}
    assert [token.text for token, around in zip(tokens, brackets.around, strict=True) if around is None] == [
        "f",
        "(",
        ")",
        "+",
        "c",
        ")",
        "(",
    ]


def test_lists_of_very_many_numbers_are_looked_through_once() -> None:
    """A look back from each of them to where the brackets open takes hours."""
    rows = ", ".join(f"({number}, {number}.5)" for number in range(50_000))

    assert len(first_ways(f"select * from (values {rows}) as v (a, b)")) == 50_000
