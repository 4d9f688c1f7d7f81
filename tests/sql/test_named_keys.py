"""Keys in a condition: taken out where that is sure, and left to the engine otherwise."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lithify.sql.statements.named_keys import named_keys

KEYS_MAX = 50
IDS = pa.schema([("id", pa.int64())])


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
        ("id IN (3, 1, 3, 2, 1)", (3, 1, 2), None),
        ("id IN (1, NULL, 2)", (1, 2), None),
        ("id IN (null)", (), None),
        (f"id IN ({', '.join(map(str, range(50)))}) AND b", tuple(range(50)), " TRUE  AND b"),
        ("id IN (1, /* 5, */ - 2, -- 7\n 3)", (1, -2, 3), None),
        ("id IN (9223372036854775807, 9223372036854775808)", (9223372036854775807,), None),
    ],
)
def test_what_is_taken_out(where: str, values: tuple[int, ...], rest: str | None) -> None:
    found = named_keys(where, IDS, "t", KEYS_MAX)
    assert found is not None
    assert found.keys.equals(pa.table([pa.array(values, pa.int64())], IDS))
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
        "id = null",
        "id IN (1, nulls)",
        f"id IN ({', '.join(map(str, range(51)))})",
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
    assert named_keys(where, IDS, "t", KEYS_MAX) is None


@pytest.mark.parametrize(
    ("kind", "listed", "values"),
    [
        (pa.int8(), "-128, 127, 128, -129", [-128, 127]),
        (pa.string(), "'a', '', 'it''s', 'a', null, 'ünï', '--', ')'", ["a", "", "it's", "ünï", "--", ")"]),
        (
            pa.timestamp("us"),
            "timestamp '2026-01-31 01:02:03.000004', '2026-01-31T23:59:59.5'",
            [dt.datetime(2026, 1, 31, 1, 2, 3, 4), dt.datetime(2026, 1, 31, 23, 59, 59, 500_000)],
        ),
        (pa.timestamp("us", "UTC"), "'9999-12-31 00:00:00'", [dt.datetime(9999, 12, 31, tzinfo=dt.UTC)]),
        (pa.date32(), "'2026-01-31', date'0001-01-01'", [dt.date(2026, 1, 31), dt.date(1, 1, 1)]),
        (
            pa.decimal128(6, 2),
            "1, -1.5, 01.50, 9999.99",
            [Decimal("1.00"), Decimal("-1.50"), Decimal("1.50"), Decimal("9999.99")],
        ),
    ],
)
def test_constants_of_every_type_that_is_looked_for(kind: pa.DataType, listed: str, values: list[Any]) -> None:
    key = pa.schema([("k", kind)])
    found = named_keys(f"k IN ({listed})", key, "t", KEYS_MAX)
    assert found is not None
    assert found.rest is None
    assert found.keys.equals(pa.table([pa.array(values, kind)], key))


@pytest.mark.parametrize(
    ("kind", "constant"),
    [
        (pa.string(), "1"),
        (pa.string(), "date '2026-01-01'"),
        (pa.string(), "'a' || 'b'"),
        (pa.string(), "x'00'"),
        (pa.date32(), "'2026-02-30'"),
        (pa.date32(), "'2026-1-1'"),
        (pa.date32(), "'2026-01-01 00:00:00'"),
        (pa.date32(), "timestamp '2026-01-01'"),
        (pa.date32(), "'0000-01-01'"),
        (pa.decimal128(6, 2), "1.005"),
        (pa.decimal128(6, 2), "10000"),
        (pa.decimal128(6, 2), "1e1"),
        (pa.decimal128(6, 2), "'1.5'"),
        (pa.float64(), "1.5"),
        (pa.timestamp("us"), "timestamp '2026-01-01'"),
        (pa.timestamp("us"), "date '2026-01-01'"),
        (pa.timestamp("us"), "'2026-01-01 24:00:00'"),
        (pa.timestamp("us"), "'2026-01-01 00:00:60'"),
        (pa.timestamp("us"), "'2026-01-01 00:00:00.0000005'"),
        (pa.timestamp("us"), "'2026-01-01 00:00:00+01:00'"),
        (pa.timestamp("us", "UTC"), "'2026-01-01 00:00:00Z'"),
        (pa.bool_(), "true"),
        (pa.binary(), "x'00'"),
    ],
)
def test_a_constant_that_the_column_does_not_hold_as_it_is_written_is_left_to_the_engine(
    kind: pa.DataType, constant: str
) -> None:
    key = pa.schema([("k", kind)])
    assert named_keys(f"k = {constant}", key, "t", KEYS_MAX) is None
    assert named_keys(f"k IN ({constant})", key, "t", KEYS_MAX) is None


def test_of_a_key_of_several_columns_every_one_is_named() -> None:
    key = pa.schema([("shop", pa.string()), ("n", pa.int32())])

    found = named_keys("n IN (1, 2, 1) AND x > 1 AND shop IN ('a', 'b') AND n = 1", key, "t", KEYS_MAX)

    assert found is not None
    assert found.rest == " TRUE  AND x > 1 AND  TRUE  AND n = 1"
    expected = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert [tuple(row.values()) for row in found.keys.to_pylist()] == expected
    assert found.keys.schema == key
    none = named_keys("n IN (null) AND shop = 'a'", key, "t", KEYS_MAX)
    assert none is not None
    assert none.keys.num_rows == 0
    assert named_keys("n = 1 AND x = 'a'", key, "t", KEYS_MAX) is None
    many = ", ".join(map(str, range(KEYS_MAX // 2 + 1)))
    assert named_keys(f"n IN ({many}) AND shop IN ('a', 'b')", key, "t", KEYS_MAX) is None
