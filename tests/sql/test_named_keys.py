"""Keys in a condition: taken out where that is sure, and left to the engine otherwise."""

from __future__ import annotations

import pytest

from lithify.sql.statements.named_keys import named_keys


@pytest.mark.parametrize(
    ("where", "values", "rest"),
    [
        ("id = 7", (7,), None),
        ("ID in (1, -2,3)", (1, -2, 3), None),
        ('t."id" IN (1)', (1,), None),
        ("T.id = -5", (-5,), None),
        (
            "a > 1 AND id IN (1, 2) /* AND */ AND b LIKE 'x OR y'",
            (1, 2),
            "a > 1 AND  TRUE  /* AND */ AND b LIKE 'x OR y'",
        ),
        ("id IN (1) -- all\n AND (a = 1 OR b = 2)", (1,), " TRUE  -- all\n AND (a = 1 OR b = 2)"),
        ("id = 1 AND id IN (1, 2)", (1,), " TRUE  AND id IN (1, 2)"),
        ("NOT a AND id = 1", (1,), "NOT a AND  TRUE "),
        ("id IN (1)AND b", (1,), " TRUE AND b"),
        ("exists (select 1 from u where u.x between 1 and 2) and id = 1", (1,), None),
    ],
)
def test_what_is_taken_out(where: str, values: tuple[int, ...], rest: str | None) -> None:
    found = named_keys(where, "id", "t")
    assert found is not None
    assert found.values == values
    if rest is not None:
        assert found.rest == rest


@pytest.mark.parametrize(
    "where",
    [
        "id = 1 OR a = 2",
        "a = 2 OR b AND id = 1",
        "a BETWEEN 1 AND id = 1",
        "CASE WHEN a THEN b AND id = 1 ELSE c END",
        "NOT id = 1",
        "NOT id IN (1)",
        "id NOT IN (1)",
        "id IN (1) = false",
        "id IN (1) IS NULL",
        "id = 1 + 1",
        "id + 1 = 2",
        "id IN (1, null)",
        "id IN (1, '2')",
        "id IN (1.0)",
        "id = 1e0",
        "id = '1'",
        "id IN (1,)",
        "id IN ()",
        "id IN (,1)",
        "id IN (1 2)",
        "id IN (SELECT 1)",
        "id IN (1 - 2)",
        "u.id = 1",
        "s.t.id = 1",
        '"ID" = 1',
        "id = a",
        "id == 1",
        "id <= 1",
        "1 = id",
        "(id = 1)",
        "id = 1 AND",
        "id = 1)",
        "id = ٣",
        "id = $$1$$",
        "id = " + "9" * 5_000,
    ],
)
def test_what_is_left_to_the_engine(where: str) -> None:
    assert named_keys(where, "id", "t") is None
