"""Times from year 1 to 9999 beside days, and in functions, mean the same at every door; DuckDB is the other opinion."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lithify import Lake
from lithify.errors import ComputeFailed, InvalidRequest
from lithify.sql.far_times import check_bins
from lithify.sql.time_functions import binned
from support.folders import memory_folder
from support.literal_matrix import COMPARISONS, DAYS, TIMES

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("utc", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("day", pa.date32()),
        ("text", pa.string()),
    ]
)
SENTINEL = dt.date(9999, 12, 31)


def rows() -> list[dict[str, Any]]:
    """Each time with another day, and nulls."""
    found = []
    for number, time in enumerate([*TIMES, None]):
        day = [*DAYS, None][number % (len(DAYS) + 1)]
        utc = None if time is None else time.replace(tzinfo=dt.UTC)
        found.append({"id": number, "utc": utc, "ntz": time, "day": day, "text": None if day is None else str(day)})
    return found


ROWS = rows()


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with memory_folder() as path, Lake(path / "lake") as lake:
        table = lake.create_table("v.t", COLUMNS, key="id")
        table.upsert(ROWS[:5])
        table.fold()
        table.upsert(ROWS[5:])
        yield lake


@pytest.fixture(scope="module")
def other() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("given", pa.Table.from_pylist(ROWS, schema=COLUMNS))
        connection.execute("CREATE SCHEMA v; CREATE TABLE v.t AS SELECT * FROM given")
        yield connection


def both(lake: Lake, other: duckdb.DuckDBPyConnection, query: str, there: str | None = None) -> tuple[Any, Any]:
    ours = [tuple(row.values()) for row in lake.sql(query).to_pylist()]
    return ours, other.execute(there or query).fetchall()


@pytest.mark.parametrize(
    ("left", "right"),
    [pair for pair in itertools.permutations(("utc", "ntz", "day", "text"), 2) if set(pair) != {"day", "text"}],
)
def test_columns_are_compared_with_columns(lake: Lake, other: duckdb.DuckDBPyConnection, left: str, right: str) -> None:
    for operator in [*COMPARISONS, "is distinct from", "is not distinct from"]:
        query = f"SELECT a.id, b.id AS other FROM v.t a JOIN v.t b ON a.{left} {operator} b.{right} ORDER BY 1, 2"
        there = query.replace("a.text", "a.text::timestamp").replace("b.text", "b.text::timestamp")
        ours, theirs = both(lake, other, query, there)
        assert ours == theirs, query


@pytest.mark.parametrize(
    "condition",
    [
        "a.day >= b.ntz AND b.utc > a.day - interval '99 years'",
        "a.day BETWEEN b.ntz AND b.utc",
        "a.day IN (b.ntz, b.utc)",
        "a.day > now()",
        "coalesce(a.day, b.day) <= b.ntz",
        "coalesce(a.day, b.ntz) <= b.ntz",
        "a.ntz > greatest(a.day, b.ntz)",
        "a.utc - interval '1 day' >= b.day",
        "a.day IN (SELECT ntz FROM v.t)",
        "EXISTS (SELECT 1 FROM v.t c WHERE c.ntz = a.day AND c.id = b.id)",
        "CASE WHEN a.id < b.id THEN a.day ELSE b.ntz END = b.ntz",
        "current_date < b.utc AND a.id = b.id",
        "date_trunc('month', a.utc) = date_trunc('month', b.ntz)",
    ],
)
def test_conditions_hold_for_the_same_rows(lake: Lake, other: duckdb.DuckDBPyConnection, condition: str) -> None:
    query = f"SELECT a.id, b.id AS other FROM v.t a CROSS JOIN v.t b WHERE {condition} ORDER BY 1, 2"
    ours, theirs = both(lake, other, query)
    assert ours == theirs
    assert ours


UNITS = ["second", "hour", "day", "week", "month", "quarter", "year"]
EPOCH = "timestamp '1970-01-01'"


@pytest.mark.parametrize("column", ["utc", "ntz", "day"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        *((f"date_trunc('{unit}', {{c}})", f"date_trunc('{unit}', {{c}})") for unit in UNITS),
        *(
            (f"date_bin(interval '{width}', {{c}})", f"time_bucket(interval '{width}', {{c}}, {EPOCH})")
            for width in ("1 day", "15 minutes", "1 month", "3 months", "1 year")
        ),
        ("date_bin(interval '8 hours', {c}, timestamp '2020-01-01')",) * 2,
        ("to_char({c}, '%Y-%m-%d')", "strftime({c}, '%Y-%m-%d')"),
        ("{c} - day", "date_diff('microsecond', day, {c})"),
        ("day - {c}", "date_diff('microsecond', {c}, day)"),
    ],
)
def test_functions_answer_the_same(
    lake: Lake, other: duckdb.DuckDBPyConnection, column: str, ours: str, theirs: str
) -> None:
    theirs = theirs.replace("date_bin(", "time_bucket(").replace("{c}", f"({column}::timestamp)")
    if column == "day" and " - " in ours:
        theirs = "date_diff('day', day, day)"

    found = lake.sql(f"SELECT {ours.format(c=column)} AS x FROM v.t ORDER BY id").column("x")
    expected = [row[0] for row in other.execute(f"SELECT {theirs} FROM v.t ORDER BY id").fetchall()]

    values = [value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value for value in found.to_pylist()]
    if pa.types.is_duration(found.type):
        values = found.cast(pa.int64()).to_pylist()
    assert values == [_midnight(value) for value in expected]


def _midnight(value: Any) -> Any:
    plain_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return dt.datetime.combine(value, dt.time()) if plain_day else value


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT day AS x FROM v.t UNION ALL SELECT ntz FROM v.t", 2 * len(ROWS)),
        ("SELECT date_trunc('month', utc) AS x FROM v.t GROUP BY 1", 7),
        ("SELECT date_trunc('month', utc) AS x FROM v.t t GROUP BY date_trunc('month', t.utc)", 7),
        ("SELECT day FROM v.t GROUP BY day HAVING day <= max(ntz)", 4),
        ("SELECT a.id FROM (SELECT id, ntz AS k FROM v.t) a JOIN (SELECT id, day AS k FROM v.t) b USING (id, k)", 3),
    ],
)
def test_what_is_put_together_has_microseconds(lake: Lake, query: str, count: int) -> None:
    found = lake.sql(query)
    assert found.num_rows == count
    assert all(kind.unit == "us" for kind in found.schema.types if pa.types.is_timestamp(kind))


# -- every door


@pytest.fixture
def two(folder: Any) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("v.t", COLUMNS, key="id")
        for number, day in enumerate([dt.date(2024, 1, 1), SENTINEL]):
            time = dt.datetime.combine(day, dt.time(12))
            table.upsert([{"id": number, "utc": time.replace(tzinfo=dt.UTC), "ntz": time, "day": day, "text": "x"}])
            table.fold()
        yield lake


CONDITIONS = [
    ("date_bin(interval '1 day', ntz) IS NULL", []),
    ("date_bin(interval '1 month', utc) = timestamp '9999-12-01 00:00:00'", [1]),
    ("day < ntz", [0, 1]),
    ("day >= utc", []),
    ("day > now()", [1]),
    ("to_char(utc, '%Y') = '9999'", [1]),
    ("date_trunc('year', utc) < date_trunc('month', ntz)", [1]),
    ("utc AT TIME ZONE 'Europe/Berlin' > now()", [1]),
]


@pytest.mark.parametrize(("condition", "found"), CONDITIONS, ids=[condition for condition, _ in CONDITIONS])
def test_every_door_finds_the_same(two: Lake, condition: str, found: list[int]) -> None:
    table = two.table("v.t")

    def ids(query: str) -> list[int]:
        return sorted(row["id"] for row in two.sql(query).to_pylist())

    assert ids(f"SELECT id FROM v.t WHERE {condition}") == found
    assert ids(f"SELECT id, repeat('x', 2) AS own_process FROM v.t WHERE {condition}") == found
    assert sorted(table.to_arrow(where=condition).column("id").to_pylist()) == found
    assert table.count(where=condition) == len(found)
    assert two.execute(f"UPDATE v.t SET text = 'y' WHERE {condition}").updated == len(found)
    assert ids("SELECT id FROM v.t WHERE text = 'y'") == found
    two.cache.pin("v.t")
    assert ids(f"SELECT id FROM v.t WHERE {condition}") == found
    assert table.delete_where(condition).rows == len(found)
    assert ids("SELECT id FROM v.t") == sorted({0, 1} - set(found))


# -- what cannot be done is refused


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT to_char(utc, '%Y %z') FROM v.t", "utc"),
        ("SELECT day FROM v.t INTERSECT SELECT ntz FROM v.t", "day"),
        ("SELECT date_trunc('month', utc AT TIME ZONE 'Europe/Berlin') FROM v.t", "cast"),
        ("SELECT to_timestamp(text) FROM v.t", "cast"),
        ("SELECT id FROM v.t WHERE utc - now() > interval '100 days'", ""),
    ],
)
def test_what_is_out_of_reach_is_told_with_what_to_write(lake: Lake, query: str, said: str) -> None:
    with pytest.raises(ComputeFailed, match=f"(1677|292 years).*{said}"):
        lake.sql(query)


def test_a_bin_that_could_be_null_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="date_bin"):
        lake.sql("SELECT date_bin($$1 day$$::interval, ntz) FROM v.t")
    with pytest.raises(InvalidRequest, match="date_bin"):
        check_bins("Filter: date_bin(IntervalMonthDayNano, t.ntz) IS NULL")
    check_bins('Filter: date_bin(IntervalMonthDayNano, CAST(t.utc AS Timestamp(ns, "UTC"))) IS NULL')
    check_bins("Filter: lithify_date_bin(IntervalMonthDayNano, t.ntz) IS NULL")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT date_trunc('fortnight', ntz) FROM v.t",
        "SELECT date_bin(interval '0 days', ntz) FROM v.t",
        "SELECT date_bin(interval '1 month 1 day', ntz) FROM v.t",
    ],
)
def test_wrong_units_are_refused(lake: Lake, query: str) -> None:
    with pytest.raises((ComputeFailed, InvalidRequest), match=r"date_(trunc|bin)|fortnight"):
        lake.sql(query)


def test_one_interval_for_all_rows() -> None:
    times = pa.array([dt.datetime(9999, 12, 31)] * 4, pa.timestamp("us"))
    days = [pa.MonthDayNano([0, number, 0]) for number in (1, 2, 1, 1)]
    with pytest.raises(ValueError, match="one interval"):
        binned(pa.array(days, pa.month_day_nano_interval()), times)
    assert binned(pa.array(days[1:], pa.month_day_nano_interval()).slice(1), times[:2]) == times[:2]


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("date_trunc('day', utc AT TIME ZONE 'Europe/Berlin')", ["2024-02-29 00:00:00+01:00"]),
        ("date_trunc(unit, ntz)", ["2024-01-01 00:00:00", "2024-02-01 00:00:00", "None"]),
        ("to_char(utc, '%Y %z')", ["2024 +0000"]),
        ("date_bin(interval '1 day', utc AT TIME ZONE 'Europe/Berlin') IS NULL", ["False"]),
    ],
)
def test_what_is_in_reach_is_as_it_was(lake: Lake, said: str, values: list[str]) -> None:
    units = "(VALUES ('month'), ('year'), (null)) q(unit)"
    query = f"SELECT DISTINCT {said} AS x FROM v.t CROSS JOIN {units} WHERE id = 4 ORDER BY 1 NULLS LAST"
    assert [str(value) for value in lake.sql(query).column("x").to_pylist()] == values
