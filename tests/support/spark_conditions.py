"""Random tables, and random conditions on them in Spark's SQL.

A file draws each column from a few neighbours in a list of values, so that files differ in their ranges and many
conditions rule some of them out. Literals come from the same lists, in every way that Spark reads them.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.int64()),
        ("i", pa.int64()),
        ("n", pa.int16()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(38, 10)),
    ]
)
_MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29, 12, 0, 0, 1),
    dt.datetime(2024, 3, 1),
    dt.datetime(2024, 3, 4, 5, 6, 7, 890_000),
    dt.datetime(9999, 12, 31, 23, 59, 59),
]
_LONG = "long " * 60
VALUES: dict[str, list[Any]] = {
    "i": [-(2**63), -(2**63) + 1, -2, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1],
    "n": [-(2**15), -1, 0, 1, 255, 2**15 - 1],
    "f": [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.0**53, math.inf, math.nan],
    "g": [-math.inf, -1.5, -0.0, 0.0, 0.10000000149011612, 1.0, 16777216.0, math.inf, math.nan],
    "s": ["", "A", "AB", "a", "ab", "ab'c", "abcdefgh", "abcdefghi", _LONG + "a", _LONG + "b", "é", "𝄞"],
    "b": [b"", b"\0", b"a", b"abcdefgh", b"abcdefghi", b"\xff", b"\xff" * 9],
    "t": [False, True],
    "d": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "ts": [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
    "ntz": _MOMENTS,
    "dec": [Decimal(n).scaleb(-2) for n in (-(10**12) + 1, -101, -1, 0, 1, 99, 100, 101, 10**12 - 1)],
    "wide": [Decimal(n).scaleb(-10) for n in (-(10**27), -(2**64), -1, 0, 1, 2**63, 2**64, 2**64 + 1, 10**27)],
}
# More digits than a column has, and numbers beyond it.
NUMERIC = {"i", "n", "f", "g", "dec", "wide"}
NUMBERS = ["1.005", "0.99999999999", "0.000000000049", "99999999999999999999", "40000", "1e3", "2.5", "-0.0"]


@dataclass(frozen=True)
class Program:
    options: dict[str, Any]
    files: list[list[Row]]
    pending: list[list[Row]]
    deleted: list[int]
    resolve_rows_max: int


@st.composite
def tables(draw: st.DrawFn) -> Program:
    options = draw(st.sampled_from([{"key": "id"}, {"key": "id", "order_by": "at"}, {}]))
    ranges = [range(start, start + 6) for start in range(0, 30, 6)]
    files = [[draw(_rows(st.just(n), columns)) for n in ids] for ids in ranges for columns in [draw(_neighbours())]]
    somewhere = st.lists(st.integers(0, 35), unique=True, max_size=6)
    several = draw(st.lists(_neighbours(), max_size=2))
    pending = [[draw(_rows(st.just(n), columns)) for n in draw(somewhere)] for columns in several]
    return Program(
        options, files, [rows for rows in pending if rows], draw(somewhere), draw(st.sampled_from([20_000_000, 3]))
    )


@st.composite
def _neighbours(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Per column, the values that one file may hold."""
    found = {}
    for name, values in VALUES.items():
        first = draw(st.integers(0, len(values) - 1))
        found[name] = [*values[first : first + draw(st.integers(1, 3))], *([None] if draw(st.booleans()) else [])]
        if draw(st.integers(0, 9)) == 0:
            found[name] = [None]
    return found


@st.composite
def _rows(draw: st.DrawFn, number: st.SearchStrategy[int], columns: dict[str, list[Any]]) -> Row:
    row: Row = {name: draw(st.sampled_from(values)) for name, values in columns.items()}
    return {"id": draw(number), "at": draw(st.integers(0, 3)), **row}


def conditions(depth: int = 2) -> st.SearchStrategy[str]:
    return _conditions(depth)


@st.composite
def _conditions(draw: st.DrawFn, depth: int) -> str:
    if depth and draw(st.integers(0, 2)) == 0:
        parts = draw(st.lists(_conditions(depth - 1), min_size=2, max_size=3))
        joined = draw(st.sampled_from([" AND ", " OR "])).join(f"({part})" for part in parts)
        return draw(st.sampled_from([joined, joined, f"NOT ({joined})"]))
    name = draw(st.sampled_from(sorted(VALUES)))
    literal = _literals(name)
    op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "=="]))
    forms = {
        "compare": f"{name} {op} {draw(literal)}",
        "mirrored": f"{draw(literal)} {op} {name}",
        "between": f"{name} BETWEEN {draw(literal)} AND {draw(literal)}",
        "not between": f"{name} NOT BETWEEN {draw(literal)} AND {draw(literal)}",
        "in": f"{name} IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})",
        "in with null": f"{name} IN (NULL, {draw(literal)})",
        "not in": f"{name} NOT IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})",
        "null": f"{name} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}",
        "key": f"id {op} {draw(st.integers(-1, 36))}",
    }
    if name == "s":
        stem = draw(st.sampled_from(["", "a", "A", "ab", "abcdefgh", "long long", "z"]))
        forms["like"] = f"s {draw(st.sampled_from(['LIKE', 'NOT LIKE', 'ILIKE']))} '{stem}%'"
    text = forms[draw(st.sampled_from(sorted(forms)))]
    return draw(st.sampled_from([text, text, text, f"NOT ({text})", f"({text}) IS TRUE"]))


def _literals(name: str) -> st.SearchStrategy[str]:
    found = st.sampled_from([text for value in VALUES[name] for text in _spelled(name, value)])
    return st.one_of(found, found, found, st.sampled_from(NUMBERS)) if name in NUMERIC else found


def _spelled(name: str, value: Any) -> list[str]:
    """A value in the ways that Spark reads it."""
    match value:
        case bool():
            return [str(value).upper()]
        case int() if abs(value) < 2**63:
            return [str(value), f"{value}L"]
        case float() if not math.isfinite(value):
            return [f"DOUBLE('{value}')"]
        case float():
            return [repr(value), f"{value!r}D"]
        case str():
            return ["'" + value.replace("'", r"\'") + "'"]
        case bytes():
            return [f"X'{value.hex()}'"]
        case dt.datetime():
            shown = value.replace(tzinfo=None).isoformat(sep=" ")
            typed = "TIMESTAMP_NTZ" if name == "ntz" else "TIMESTAMP"
            return [f"'{shown}'", f"{typed} '{shown}'", f"TIMESTAMP '{shown}+02:30'"]
        case dt.date():
            return [f"'{value.isoformat()}'", f"DATE '{value.isoformat()}'"]
        case _:
            return [str(value) if not isinstance(value, Decimal) else f"{value:f}"]
