"""Rows of constants that are read from a text are those that the engine makes of it, in the same types."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lithify import Lake
from lithify.sql.statements.constant_rows import ROWS_MIN, without_constant_rows
from support.effort import examples

TEXTS = ["'a'", "''", "'it''s'", "'ü'", "'1.5'", "'2024-01-01'", "'a, (b)'", "'''--'", "'values ('", "'\n'"]
FAR = "('9999-12-31')"
# And how many of the columns are asked for (None: all).
AROUND = [
    ("SELECT * FROM ({}) AS v", None),
    ("SELECT * FROM (SELECT * FROM ({}) AS v) AS s", None),
    ('select "v"."column1" from ({}) v', 1),
    ("SELECT * FROM (\n select column1 from ( {} ) as v ) s (a)", 1),
]


def integer(chance: random.Random) -> str:
    sign = chance.choice(["", "-"])
    return sign + chance.choice([str(chance.randint(0, 20)), str(chance.randint(0, 10**18 - 1)), "007", "0"])


def decimal(chance: random.Random) -> str:
    whole, behind = (str(chance.randint(0, 10 ** chance.randint(1, 9))) for _ in range(2))
    sign = chance.choice(["", "-"])
    return sign + chance.choice([f"{whole}.{behind}", "0.0", "0.05", "00.50", f"{chance.randint(0, 99)}.5"])


KINDS: list[Callable[[random.Random], str]] = [
    integer,
    decimal,
    lambda chance: chance.choice([integer, decimal])(chance),
    lambda chance: chance.choice(TEXTS),
    lambda chance: chance.choice(["true", "FALSE", "True"]),
]


def listed(rows: list[list[str]], between: str = ", ") -> str:
    return between.join(f"({', '.join(row)})" for row in rows)


def numbered(count: int = ROWS_MIN) -> str:
    return listed([[str(number)] for number in range(count)])


def test_rows_and_types_are_those_of_the_engine(folder: Path) -> None:
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    with Lake(folder / "lake") as lake:
        for _ in range(examples(40, 2_000)):
            kinds = [chance.choice(KINDS) for _ in range(chance.randint(1, 4))]
            rows = [
                [chance.choice(["NULL", "null"]) if chance.random() < 0.1 else kind(chance) for kind in kinds]
                for _ in range(chance.randint(ROWS_MIN, ROWS_MIN + 9))
            ]
            around, asked = chance.choice(AROUND)
            query = around.format(f"VALUES {listed(rows, chance.choice([', ', ',', chr(10) + ' , ']))}")

            left, found = without_constant_rows(query, "given")

            if any(all(row[place].lower() == "null" for row in rows) for place in range(len(kinds))):
                assert (left, found) == (query, None), (seed, query)
                continue
            assert found is not None, (seed, query)
            assert left == around.format("SELECT * FROM given")
            theirs, found = lake.sql(query), found.select(range(asked or found.num_columns))
            assert found.schema.types == theirs.schema.types, (seed, query)
            assert [c.to_pylist() for c in found.columns] == [c.to_pylist() for c in theirs.columns], (seed, query)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        (f"values {numbered()}", "SELECT * FROM g"),
        (f"  Values\n{numbered()}\n", "  SELECT * FROM g\n"),
        (f"select * from (values {numbered()} ) as v (a)", "select * from (SELECT * FROM g ) as v (a)"),
        (f"with s as (values{numbered()}) select 1", "with s as (SELECT * FROM g) select 1"),
        (
            f'SELECT * FROM (VALUES {numbered()}, (0.5)) AS "s"("a ""b""", "c")',
            'SELECT * FROM (SELECT * FROM g) AS "s"("a ""b""", "c")',
        ),
        (f"with s as (values{numbered()}, (null)) select 1.5", "with s as (SELECT * FROM g) select 1.5"),
        (f"select ';' from ( /* , */ VALUES {numbered()})", None),
    ],
)
def test_a_values_is_taken_out_where_it_is_a_query(query: str, left: str | None) -> None:
    assert without_constant_rows(query, "g")[0] == (left or query)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(f"VALUES {numbered(ROWS_MIN - 1)}", id="few"),
        pytest.param(f"VALUES {numbered()}, (1 + 1)", id="an expression"),
        pytest.param(f"VALUES {numbered()}, (default)", id="a default"),
        pytest.param(f"VALUES {numbered()}, (1, 2)", id="another width"),
        pytest.param(f"VALUES {numbered()}, ('a')", id="another type"),
        pytest.param(f"VALUES {numbered()}, (1e3)", id="a float"),
        pytest.param(f"VALUES {numbered()}, (9223372036854775808)", id="a large number"),
        pytest.param(f"VALUES {numbered()}, (0.1234567890123456789)", id="many digits"),
        pytest.param(f"VALUES {numbered()}, (date '2024-01-01')", id="a type"),
        pytest.param(f"VALUES {numbered()}, (x'00')", id="bytes"),
        pytest.param(f"VALUES {numbered()}, ('a' 'b')", id="two texts"),
        pytest.param(f"VALUES {numbered()}, (1 -- one\n)", id="a comment"),
        pytest.param(f"VALUES {numbered()}, (٣)", id="other digits"),
        pytest.param(f"VALUES {numbered()},", id="a comma at the end"),
        pytest.param(f"VALUES {numbered()} ORDER BY 1", id="more behind it"),
        pytest.param(f"SELECT * FROM (VALUES {numbered()}, (0.5)) AS s(a) WHERE a = 1", id="a decimal beside columns"),
        pytest.param(f"SELECT * FROM t, (VALUES {numbered()}, (-0.5)) AS s", id="a decimal beside a table"),
        pytest.param(f"SELECT a * 2 FROM (VALUES {numbered()}, (0.5)) AS s(a)", id="a decimal in a product"),
        pytest.param(f"SELECT 1.5 FROM (VALUES {numbered()}, (0.5)) AS s(a)", id="a decimal beside a decimal"),
        pytest.param(f"SELECT DISTINCT a FROM (VALUES {numbered()}, (0.5)) AS s(a)", id="decimals that are compared"),
        pytest.param(f"SELECT a FROM (VALUES {numbered()}, (0.5)) s(a) JOIN t ON a = b", id="a decimal in a join"),
        pytest.param(f"SELECT a FROM (VALUES {numbered()}, (0.5)) s(a) UNION SELECT 1", id="a decimal in a union"),
        pytest.param(f"SELECT x IN (VALUES {', '.join([FAR] * ROWS_MIN)})", id="times beside a column"),
        pytest.param(f"VALUES {listed([['null']] * ROWS_MIN)}", id="nulls alone"),
        pytest.param(f"SELECT 'values {numbered()}'", id="in a text"),
        pytest.param(f"SELECT ( -- values {numbered()}\n)", id="in a comment"),
        pytest.param(f"SELECT ( /* values {numbered()} */ 1)", id="in a comment of its own"),
        pytest.param(f'SELECT "values {numbered()}" FROM s.t', id="in a name"),
        pytest.param(f"SELECT count values {numbered()}", id="behind a word"),
        pytest.param(f"SELECT valuesvalues {numbered()}", id="in a word"),
    ],
)
def test_everything_else_is_left_to_the_engine(query: str) -> None:
    assert without_constant_rows(query, "g") == (query, None)


def test_a_long_text_that_is_no_list_takes_no_longer_than_its_length() -> None:
    """Quotes within quotes have one way to be read."""
    for inside in ("''" * 50_000, "'',''" * 20_000, "'" * 99_999, " " * 100_000):
        query = f"VALUES {numbered()}, ('{inside} x"

        assert without_constant_rows(query, "g") == (query, None)
