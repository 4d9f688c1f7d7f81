"""Every kind of column beside every way to write a constant, under every comparison; and which rows that finds.

A number means its exact value; beside a float, the nearest float of 64 bits. A text means a value of the column's type,
a time without a zone one of UTC. NaN equals itself and is the greatest number, zeros of both signs are equal. `answer`
follows that in plain Python, with fractions for numbers, and knows nothing of any engine.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

UTC = dt.UTC
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("d5_0", pa.decimal128(5, 0)),
        ("d12_2", pa.decimal128(12, 2)),
        ("d18_4", pa.decimal128(18, 4)),
        ("d38_10", pa.decimal128(38, 10)),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("day", pa.date32()),
        ("ntz", pa.timestamp("us")),
        ("utc", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
    ]
)
DAYS = [dt.date(1, 1, 1), dt.date(1677, 9, 20), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
TIMES = [
    dt.datetime(1, 1, 1),
    dt.datetime(1600, 2, 29, 1, 2, 3),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29),
    dt.datetime(2024, 2, 29, 12, 34, 56, 789_123),
    dt.datetime(2262, 4, 12),
    dt.datetime(9999, 12, 31),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
WHOLE = [-1, 0, 1, 2]
VALUES: dict[str, list[Any]] = {
    "i8": [*WHOLE, -128, 127],
    "i16": [*WHOLE, -(2**15), 2**15 - 1],
    "i32": [*WHOLE, -(2**31), 2**31 - 1],
    "i64": [*WHOLE, -(2**63), 2**53, 2**53 + 1, 2**63 - 1],
    "d5_0": [Decimal(n) for n in (*WHOLE, 1000, -99999, 99999)],
    "d12_2": [Decimal(n) for n in ("-1.00", "0.00", "0.05", "0.10", "1.00", "9.90", "765474.49", "9999999999.99")],
    "d18_4": [Decimal(n) for n in ("-1.0000", "0.0000", "0.1000", "1.0000", "765474.4900", "99999999999999.9999")],
    "d38_10": [
        Decimal(n)
        for n in ("-1.0000000000", "0.0000000000", "0.1000000000", "765474.4900000000", "9" * 28 + "." + "9" * 10)
    ],
    "f32": [-1.0, -0.0, 0.0, 0.5, 0.10000000149011612, 16777216.0, -math.inf, math.inf, math.nan],
    "f64": [-1.0, -0.0, 0.0, 0.1, 0.5, 765474.49, 2.0**53, 1e300, -math.inf, math.inf, math.nan],
    "day": DAYS,
    "ntz": TIMES,
    "utc": [moment.replace(tzinfo=UTC) for moment in TIMES],
    "text": ["", "0.1", "1", "2024-02-29", "9999-12-31", "a", "true"],
    "flag": [False, True],
    "raw": [b"", b"\0", b"a", b"\xff\xff"],
}
ROWS_MIN = max(map(len, VALUES.values())) + 1

INTEGERS = ["i8", "i16", "i32", "i64"]
DECIMALS = ["d5_0", "d12_2", "d18_4", "d38_10"]
FLOATS = ["f32", "f64"]
NUMBERS = [*INTEGERS, *DECIMALS, *FLOATS]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def rows() -> list[dict[str, Any]]:
    """Each value of each column, and nulls."""
    return [
        {"id": number, **{name: values[number] if number < len(values) else None for name, values in VALUES.items()}}
        for number in range(ROWS_MIN)
    ]


@dataclass(frozen=True)
class Constant:
    """How it is written, what it means, and which way of writing that is."""

    sql: str
    value: Any
    way: str


@dataclass(frozen=True)
class Case:
    column: str
    operator: str
    constants: tuple[Constant, ...]

    @property
    def sql(self) -> str:
        written = [constant.sql for constant in self.constants]
        match self.operator:
            case "between" | "not between":
                return f"{self.column} {self.operator} {written[0]} and {written[1]}"
            case "in" | "not in":
                return f"{self.column} {self.operator} ({', '.join(written)})"
            case "mirrored":
                return f"{written[0]} < {self.column}"
            case _:
                return f"{self.column} {self.operator} {written[0]}"

    @property
    def ways(self) -> set[str]:
        return {constant.way for constant in self.constants}


def numbers() -> Iterator[Constant]:
    for text in ["0", "1", "2", "-1", "1000", "99999", "9007199254740992", "9007199254740993", "9223372036854775807"]:
        yield Constant(text, Fraction(text), "integer")
    for text in ["9223372036854775808", "-9223372036854775809", "99999999999999999999", "1" + "0" * 30]:
        yield Constant(text, Fraction(text), "long integer")
    for text in [
        "0.0",
        "0.05",
        "0.1",
        "-0.1",
        "0.5",
        "1.0",
        "9.9",
        "9.90",
        "9.901",
        "765474.49",
        "-1.00",
        "16777216.0",
    ]:
        yield Constant(text, Fraction(text), "decimal")
    for text in [
        "9007199254740993.0",
        "9007199254740992.5",
        "9999999999.99",
        "0.10000000149011612",
        "0.1000000000000001",
    ]:
        yield Constant(text, Fraction(text), "long decimal")
    for text in ["1e3", "1E0", "1e-1", "5e-2", "7.6547449e5", "-1e0", "1e15"]:
        yield Constant(text, Fraction(text), "exponent")
    for text in ["1e300", "-1e300"]:
        yield Constant(text, Fraction(text), "far exponent")


def _quoted_numbers(column: str) -> Iterator[Constant]:
    texts = ["1", "-1"]
    texts += {"d12_2": ["765474.49", "9.90", "0.1"], "f64": ["765474.49", "0.1", "1e300"]}.get(column, [])
    for text in texts:
        yield Constant(f"'{text}'", Fraction(text), "quoted")


def _cast_numbers(column: str) -> Iterator[Constant]:
    yield Constant("cast(1 as bigint)", Fraction(1), "cast")
    yield Constant("cast('765474.49' as decimal(12,2))", Fraction("765474.49"), "cast")
    yield Constant("cast(765474.49 as decimal(20,4))", Fraction("765474.49"), "cast")
    if column in FLOATS:
        yield Constant("cast(0.1 as double)", Fraction(0.1), "cast")
        yield Constant("cast('1e300' as double)", Fraction(1e300), "cast")


def _times(column: str) -> Iterator[Constant]:
    for moment in [*TIMES, dt.datetime(2024, 3, 1), dt.datetime(1, 1, 1, 0, 0, 0, 1)]:
        shown = moment.isoformat(sep=" ")
        yield Constant(f"timestamp '{shown}'", moment, "typed")
        yield Constant(f"'{shown}'", moment, "quoted")
        yield Constant(f"cast('{shown}' as timestamp)", moment, "cast")
        if column == "utc":
            yield Constant(f"'{moment.isoformat()}Z'", moment, "quoted with a zone")
            later = (moment.replace(tzinfo=UTC) if moment.year > 1 else moment).isoformat(sep=" ")
            if moment.year not in (1, 9999):
                yield Constant(f"timestamp '{later.removesuffix('+00:00')}+00:00'", moment, "typed with a zone")
    for day in DAYS:
        moment = dt.datetime.combine(day, dt.time())
        yield Constant(f"date '{day}'", moment, "day beside a time")
        yield Constant(f"'{day}'", moment, "quoted day")


def _days() -> Iterator[Constant]:
    for day in [*DAYS, dt.date(2024, 3, 1), dt.date(2262, 4, 12)]:
        yield Constant(f"date '{day}'", day, "typed")
        yield Constant(f"'{day}'", day, "quoted")
        yield Constant(f"cast('{day}' as date)", day, "cast")
        yield Constant(f"timestamp '{day} 00:00:00'", day, "time beside a day")


def constants(column: str) -> list[Constant]:
    if column in NUMBERS:
        return [*numbers(), *_quoted_numbers(column), *_cast_numbers(column)]
    match column:
        case "day":
            return list(_days())
        case "ntz" | "utc":
            return list(_times(column))
        case "text":
            return [Constant(f"'{text}'", text, "quoted") for text in [*VALUES["text"], "9.90", "1677-01-01", "z"]]
        case "flag":
            return [Constant("true", True, "plain"), Constant("false", False, "plain")]
        case _:
            return [Constant(f"X'{value.hex()}'", value, "plain") for value in [*VALUES["raw"], b"b"]]


def cases() -> list[Case]:
    found = []
    for column in VALUES:
        given = constants(column)
        for number, constant in enumerate(given):
            others = [given[(number * 7 + step) % len(given)] for step in (3, 11, 5, 2)]
            found += [Case(column, operator, (constant,)) for operator in [*COMPARISONS, "mirrored"]]
            found += [Case(column, f"is {n}distinct from", (constant,)) for n in ("", "not ")]
            found += [Case(column, f"{n}between", (constant, others[0])) for n in ("", "not ")]
            found += [Case(column, f"{n}in", (constant, *others[:count])) for n in ("", "not ") for count in (1, 4)]
    return found


def answer(case: Case, table: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in table if _holds(case, row[case.column])]


def _holds(case: Case, value: Any) -> bool:
    left = None if value is None else _order(case.column, value)
    rights = [_order_of_constant(case.column, constant.value) for constant in case.constants]
    match case.operator:
        case "is distinct from":
            return left != rights[0]
        case "is not distinct from":
            return left == rights[0]
    if left is None:
        return False
    right = rights[0]
    match case.operator:
        case "=":
            return bool(left == right)
        case "<>":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">" | "mirrored":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
        case "between":
            return bool(right <= left <= rights[1])
        case "not between":
            return not right <= left <= rights[1]
        case "in":
            return left in rights
        case "not in":
            return left not in rights
        case _:
            raise AssertionError(case.operator)


def _order(column: str, value: Any) -> Any:
    """A value that compares as the column's values should."""
    if column in FLOATS:
        if math.isnan(value):
            return (2, Fraction(0))
        return (math.copysign(1, value) if math.isinf(value) else 0, Fraction(0 if math.isinf(value) else value))
    if column in NUMBERS:
        return Fraction(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return value


def _order_of_constant(column: str, value: Any) -> Any:
    return _order(column, float(value)) if column in FLOATS else _order(column, value)


def is_known_to_differ(engine: str, case: Case) -> bool:
    """Where an engine means something else, or fails. docs/sql.md tells users of what is ours."""
    ways, column = case.ways, case.column
    mixed = bool(ways & {"exponent", "far exponent"}) and len(ways) > 1
    long = bool(ways & {"long integer", "long decimal", "far exponent"})
    match engine:
        case "lithify":
            # A decimal that is told to be one, beside a float: the engine takes the float for a decimal too.
            # Its longer lists tell zeros of both signs apart.
            zero = case.operator in ("in", "not in") and any(constant.value == 0 for constant in case.constants)
            return column in FLOATS and ("cast" in ways or zero)
        case "duckdb":
            return column == "f32" or (column == "i64" and mixed) or (column == "d38_10" and long)
        case "spark":
            # An integer beside a number beyond its type is never NULL there, and so TRUE for NULL.
            return (column in INTEGERS and (long or mixed)) or (column == "d38_10" and long)
        case _:
            raise AssertionError(engine)
