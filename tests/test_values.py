"""docs/values.md: the same value means the same at all four doors, comes out in one spelling, and goes back in."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import lithify
from lithify import InvalidRequest, Lake, Settings
from lithify.cli.main import app
from lithify.client.lake import RemoteLake
from lithify.core.type_text import parse_type
from lithify.http.app import create_app
from support.folders import memory_folder
from support.service import serving

UTC = dt.UTC


@dataclass(frozen=True)
class Values:
    """Of one type: `taken`, as JSON, with what they are in Python and how they are written; and `refused` ones."""

    taken: dict[str, tuple[Any, str]]
    refused: tuple[str, ...]


def same(*texts: str) -> dict[str, tuple[Any, str]]:
    return {text: (json.loads(text), text) for text in texts}


NOON = dt.datetime(2026, 11, 15, 12)
VALUES = {
    "bool": Values(same("true", "false"), ("1", "0", "1.0", '"true"', "[]")),
    "int8": Values(
        same("-128", "127") | {'"-7"': (-7, "-7"), '"+7"': (7, "7")},
        ("128", "-129", '"128"', "1.0", "1.5", "1e1", "true", '"1.0"', '" 1"', '""', '"\\u0661"', '"x"', "[1]"),
    ),
    "int64": Values(
        same("1", "9007199254740992")
        | {
            "9007199254740993": (2**53 + 1, '"9007199254740993"'),
            '"9223372036854775807"': (2**63 - 1, '"9223372036854775807"'),
            '"-9223372036854775808"': (-(2**63), '"-9223372036854775808"'),
        },
        ("1.0", "1.5", "true", "9223372036854775808", "1e18", '"0x10"', '"NaN"', '"2026-11-15"', "{}"),
    ),
    "float32": Values(
        {"1": (1.0, "1.0"), "0.5": (0.5, "0.5"), '"-Infinity"': (-math.inf, '"-Infinity"')},
        ("1e39", '"1"', '"inf"', "true"),
    ),
    "float64": Values(
        {
            "1": (1.0, "1.0"),
            "1.5": (1.5, "1.5"),
            "1e300": (1e300, "1e300"),
            "9007199254740993": (2.0**53, "9007199254740992.0"),
            '"NaN"': (math.nan, '"NaN"'),
            '"Infinity"': (math.inf, '"Infinity"'),
        },
        ('"1.5"', '"nan"', '"infinity"', "true", "[]"),
    ),
    "decimal(6,2)": Values(
        {
            "1": (Decimal("1.00"), '"1.00"'),
            "1.0": (Decimal("1.00"), '"1.00"'),
            "9.9": (Decimal("9.90"), '"9.90"'),
            '"1.500"': (Decimal("1.50"), '"1.50"'),
            '"1.5e3"': (Decimal("1500.00"), '"1500.00"'),
            "-0.01": (Decimal("-0.01"), '"-0.01"'),
        },
        ("1.999", '"1.999"', "12345", '"12345.00"', '"NaN"', "true", '"1,5"', '"\\u0661"', "1e300", '"1e999999999"'),
    ),
    "decimal(38,10)": Values(
        {
            '"0.0000000001"': (Decimal("0.0000000001"), '"0.0000000001"'),
            '"1234567890123456789012345678.0123456789"': (
                Decimal("1234567890123456789012345678.0123456789"),
                '"1234567890123456789012345678.0123456789"',
            ),
        },
        ('"0.00000000001"',),
    ),
    "string": Values(same('"1"', '""', '"Größe"', '"NaN"'), ("1", "1.5", "true", '["a"]', '{"a": 1}')),
    "binary": Values(
        {'"AP8="': (b"\x00\xff", '"AP8="'), '""': (b"", '""'), '"true"': (b"\xb6\xbb\x9e", '"true"')},
        ('"x"', '"not base64!"', "1", "true", "[1]"),
    ),
    "date": Values(
        {
            '"2026-11-15"': (NOON.date(), '"2026-11-15"'),
            '"0001-01-01"': (dt.date(1, 1, 1), '"0001-01-01"'),
            '"9999-12-31"': (dt.date(9999, 12, 31), '"9999-12-31"'),
        },
        ("20000", "1.0", '"20000"', '"2026-02-30"', '"2026-11-15T00:00:00"', '"0000-01-01"', '"10000-01-01"', '""'),
    ),
    "timestamp": Values(
        {
            '"2026-11-15T12:00:00Z"': (NOON.replace(tzinfo=UTC), '"2026-11-15T12:00:00Z"'),
            '"2026-11-15 13:00:00.5+01:00"': (
                NOON.replace(microsecond=500_000, tzinfo=UTC),
                '"2026-11-15T12:00:00.500000Z"',
            ),
            '"2026-11-15T12:00:00+00:00"': (NOON.replace(tzinfo=UTC), '"2026-11-15T12:00:00Z"'),
        },
        (
            "1700000000",
            "1.5",
            '"1700000000"',
            '"2026-11-15T12:00:00"',
            '"2026-11-15"',
            '"2026-11-15T12:00:00.1234567Z"',
            '"0000-01-01T00:00:00Z"',
            "true",
        ),
    ),
    "timestamp_ntz": Values(
        {
            '"2026-11-15T12:00:00"': (NOON, '"2026-11-15T12:00:00"'),
            '"2026-11-15 12:00:00.000001"': (NOON.replace(microsecond=1), '"2026-11-15T12:00:00.000001"'),
        },
        ("1700000000", '"2026-11-15T12:00:00Z"', '"2026-11-15T12:00:00+01:00"', '"noon"'),
    ),
    "list<int64>": Values(
        same("[]", "[1, null]") | {'["1"]': ([1], "[1]")}, ("[1.0]", "1", '"[1]"', '{"a": 1}', "[[1]]", "[true]")
    ),
    "list<date!>": Values(
        {'["2026-11-15"]': ([NOON.date()], '["2026-11-15"]')}, ("[null]", "[20000]", '["2026-13-01"]')
    ),
    "struct<a:int64,b:binary>": Values(
        {
            '{"a": "1"}': ({"a": 1, "b": None}, '{"a": 1, "b": null}'),
            '{"b": "AP8=", "a": null}': ({"a": None, "b": b"\x00\xff"}, '{"a": null, "b": "AP8="}'),
            "{}": ({"a": None, "b": None}, '{"a": null, "b": null}'),
        },
        ('{"c": 1}', '{"a": 1.0}', '{"b": "x"}', "[1]", '[["a", 1]]', '"a"'),
    ),
    "map<string,decimal(6,2)>": Values(
        {
            '{"k": 1.5}': ([("k", Decimal("1.50"))], '{"k": "1.50"}'),
            '[["k", "1"], ["l", null]]': ([("k", Decimal("1.00")), ("l", None)], '{"k": "1.00", "l": null}'),
            "{}": ([], "{}"),
        },
        ('{"k": 1.999}', '[["k"]]', "[[null, 1]]", "1", '"k"', "[1]"),
    ),
    "map<int64,timestamp>": Values(
        {
            '{"7": "2026-11-15T12:00:00Z"}': ([(7, NOON.replace(tzinfo=UTC))], '[[7, "2026-11-15T12:00:00Z"]]'),
            "[[7, null]]": ([(7, None)], "[[7, null]]"),
        },
        ('{"x": null}', '{"7": 1700000000}', "[[7.0, null]]"),
    ),
}


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


NINE = dt.timezone(dt.timedelta(hours=9))
OBJECTS: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "bool": ([(np.bool_(True), True)], [np.int64(1)]),
    "int8": (
        [(np.int64(7), 7), (Size.LARGE, 3), (pa.scalar(5), 5), (np.uint64(9), 9)],
        [np.float64(1), Decimal(1), math.nan, np.bool_(True), np.int64(128), pd.NA, b"1"],
    ),
    "float64": (
        [
            (math.nan, math.nan),
            (-math.inf, -math.inf),
            (np.float32(0.5), 0.5),
            (Decimal("1.5"), 1.5),
            (np.int8(1), 1.0),
        ],
        [np.bool_(True), Decimal("1e400"), 10**400, b"1"],
    ),
    "float32": ([(math.inf, math.inf)], [1e39]),
    "decimal(6,2)": (
        [(Decimal("1.500"), Decimal("1.50")), (9.9, Decimal("9.90")), (np.float64(9.9), Decimal("9.90"))],
        [0.1 + 0.2, Decimal("1.505"), Decimal("NaN"), math.nan, math.inf, np.bool_(True)],
    ),
    "string": ([(Colour.RED, "red"), (np.str_("x"), "x"), (pa.scalar("y"), "y")], [b"x", math.nan, "\ud800", pd.NA]),
    "binary": (
        [(b"\x00", b"\x00"), (bytearray(b"x"), b"x"), (memoryview(b"y"), b"y"), (np.bytes_(b"z"), b"z")],
        [math.nan, [1], 7],
    ),
    "date": (
        [
            (NOON.date(), NOON.date()),
            (dt.datetime(2026, 11, 15), NOON.date()),
            (pd.Timestamp("2026-11-15"), NOON.date()),
            (np.datetime64("2026-11-15"), NOON.date()),
        ],
        [NOON, dt.datetime(2026, 11, 15, tzinfo=UTC), pd.NaT, np.datetime64("NaT"), np.datetime64("2026-11-15T12")],
    ),
    "timestamp": (
        [
            (NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC)),
            (NOON.replace(hour=21, tzinfo=NINE), NOON.replace(tzinfo=UTC)),
            (pd.Timestamp(NOON, tz="UTC"), NOON.replace(tzinfo=UTC)),
        ],
        [NOON, NOON.date(), pd.NaT, pd.Timestamp("2026-01-01T00:00:00.000000001Z"), np.datetime64("2026-11-15", "us")],
    ),
    "timestamp_ntz": (
        [(NOON, NOON), (pd.Timestamp(NOON), NOON), (np.datetime64(NOON, "ns"), NOON)],
        [NOON.replace(tzinfo=UTC), NOON.date(), np.datetime64(1, "ns")],
    ),
    "list<int64>": (
        [((1, 2), [1, 2]), (np.array([1, 2]), [1, 2]), (pa.array([1, None]), [1, None]), ({3}, [3])],
        [np.array([1.0]), b"ab", {"a": 1}],
    ),
    "struct<a:int64,b:binary>": ([(MappingProxyType({"b": b"x"}), {"a": None, "b": b"x"})], [[("a", 1)], (1, b"x")]),
    "map<int64,timestamp>": (
        [({7: None}, [(7, None)]), (((np.int8(7), NOON.replace(tzinfo=UTC)),), [(7, NOON.replace(tzinfo=UTC))])],
        [{7: NOON}, {7.0: None}, {None: None}],
    ),
}

NAMES = {kind: f"c{number}" for number, kind in enumerate(VALUES)}
TABLE = "shop.values"
JSON = {"Content-Type": "application/json"}
DOORS = ("Python", "HTTP", "command line", "client")
Row = dict[str, Any]


class Refused(Exception):
    """By whichever door."""


@dataclass(frozen=True)
class House:
    """A lake with a table of all types, and the ways into and out of it."""

    lake: Lake
    http: TestClient
    remote: RemoteLake

    def write(self, door: str, rows: list[dict[str, str]]) -> None:
        """Rows of values that are written as JSON."""
        texts = ["{" + ", ".join(f'"{name}": {text}' for name, text in row.items()) + "}" for row in rows]
        match door:
            case "Python" | "client":
                self.put(self.lake if door == "Python" else self.remote, list(map(json.loads, texts)))
            case "HTTP":
                body = "[" + ", ".join(texts) + "]"
                answer = self.http.post(f"/v1/tables/{TABLE}/rows", content=body, headers=JSON)
                if answer.status_code == 400:
                    raise Refused(answer.text)
                assert answer.status_code == 200, answer.text
            case "command line":
                answer = self.run("write", TABLE, stdin="\n".join(texts))
                if answer.exit_code:
                    raise Refused(answer.stderr)

    def put(self, lake: Lake | RemoteLake, rows: list[Row]) -> None:
        try:
            lake.table(TABLE).upsert(rows)
        except InvalidRequest as error:
            raise Refused(str(error)) from error

    def refusal(self, write: Callable[[], None]) -> str:
        """What is said about a row; nothing if it is taken."""
        try:
            write()
        except Refused as refused:
            return str(refused)
        return ""

    def run(self, *arguments: str, stdin: str | None = None) -> Any:
        return CliRunner().invoke(app, ["--lake", str(self.lake.path), *arguments], input=stdin)

    def read(self, start: int, count: int) -> list[Row]:
        found = self.lake.table(TABLE).to_arrow(where=f"n >= {start} and n < {start + count}").sort_by("n")
        return [{name: _plain(value) for name, value in row.items() if name != "n"} for row in found.to_pylist()]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    settings = Settings(port=0, shutdown_s=5, cache_bytes_max=64 * 2**20)
    with memory_folder() as folder, Lake(folder / "lake", settings=settings) as lake, serving(lake, settings) as served:
        columns = [pa.field("n", pa.int64()), *(pa.field(name, parse_type(kind)) for kind, name in NAMES.items())]
        lake.create_table(TABLE, pa.schema(columns), key="n", options={"missing_columns": "null"})
        app = create_app(lake, settings, served.tokens)
        headers = {"Authorization": f"Bearer {served.token}"}
        with (
            TestClient(app, "http://127.0.0.1", headers=headers) as http,
            lithify.connect(served.url, token=served.token) as remote,
        ):
            yield House(lake, http, remote)


def in_rows(columns: dict[str, list[Any]], default: Any) -> list[Row]:
    """A row for every place in these columns; the last one has only `default`."""
    count = max(map(len, columns.values())) + 1
    return [
        {NAMES[kind]: values[number] if number < len(values) else default for kind, values in columns.items()}
        for number in range(count)
    ]


TEXTS = in_rows({kind: list(values.taken) for kind, values in VALUES.items()}, "null")
MEANT = in_rows({kind: [value for value, _ in values.taken.values()] for kind, values in VALUES.items()}, None)
SPELLED = in_rows({kind: [text for _, text in values.taken.values()] for kind, values in VALUES.items()}, "null")
REFUSED = [(kind, text) for kind, values in VALUES.items() for text in values.refused]


def differences(found: list[Row], expected: list[Row]) -> list[tuple[int, str, Any, Any]]:
    """By place and column. NaN is NaN here."""
    assert len(found) == len(expected)
    return [
        (number, name, row[name], meant)
        for number, (row, other) in enumerate(zip(found, expected, strict=True))
        for name, meant in other.items()
        if repr(row[name]) != repr(meant)
    ]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("texts", [TEXTS, SPELLED], ids=["as they come", "as they were written"])
def test_what_is_taken_means_the_same(house: House, door: str, texts: list[dict[str, str]]) -> None:
    start = 1000 * (1 + DOORS.index(door)) + (500 if texts is SPELLED else 0)
    house.write(door, [{"n": str(start + number), **row} for number, row in enumerate(texts)])
    assert differences(house.read(start, len(MEANT)), MEANT) == []


@pytest.mark.parametrize("door", ["Python", "HTTP", "client"])
def test_what_is_refused_is_refused(house: House, door: str) -> None:
    taken = [
        (kind, text)
        for kind, text in REFUSED
        if f"'{NAMES[kind]}" not in house.refusal(partial(house.write, door, [{"n": "1", NAMES[kind]: text}]))
    ]
    assert taken == []


def test_what_is_refused_is_refused_by_the_command_line(house: House) -> None:
    with pytest.raises(Refused, match=f"^error: {len(REFUSED)} records do not fit"):
        house.write("command line", [{"n": "1", NAMES[kind]: text} for kind, text in REFUSED])


def test_values_come_out_in_one_spelling(house: House) -> None:
    house.write("Python", [{"n": str(number), **row} for number, row in enumerate(TEXTS)])
    rows = [{"n": n} | {name: json.loads(text) for name, text in row.items()} for n, row in enumerate(SPELLED)]
    sql = f"select * from {TABLE} where n < {len(rows)} order by n"

    lines = house.run("sql", sql, "--format", "ndjson").stdout
    assert [json.loads(line) for line in lines.splitlines()] == rows
    assert json.loads(house.run("sql", sql, "--format", "json").stdout) == rows
    assert json.loads(house.run("sql", sql, "--json").stdout)["rows"] == rows
    assert json.loads(house.run("get", TABLE, "0", "--json").stdout)["row"] == rows[0]
    answer = house.http.post("/v1/query/sql", json={"sql": sql}, headers={"Accept": "application/x-ndjson"})
    assert answer.text == lines
    assert house.http.post("/v1/query/sql", json={"sql": sql}).json()["rows"] == [list(row.values()) for row in rows]
    assert house.http.get(f"/v1/tables/{TABLE}/row", params={"key": "0"}).json()["row"] == rows[0]
    answer = house.http.post("/v1/query/sql", json={"sql": sql}, headers={"Accept": "text/csv"})
    assert answer.text == house.run("sql", sql, "--format", "csv").stdout


@pytest.mark.parametrize("door", ["Python", "client"])
def test_objects_of_python_are_taken_here_and_by_the_client(house: House, door: str) -> None:
    lake = house.lake if door == "Python" else house.remote
    start = 6000 + 1000 * DOORS.index(door)
    given = in_rows({kind: [value for value, _ in taken] for kind, (taken, _) in OBJECTS.items()}, None)
    meant = in_rows({kind: [value for _, value in taken] for kind, (taken, _) in OBJECTS.items()}, None)
    house.put(lake, [{"n": start + number, **row} for number, row in enumerate(given)])
    assert differences(house.read(start, len(meant)), meant) == []

    taken = [
        (kind, value)
        for kind, (_, refused) in OBJECTS.items()
        for value in refused
        if f"column '{NAMES[kind]}" not in house.refusal(partial(house.put, lake, [{"n": 1, NAMES[kind]: value}]))
    ]
    assert taken == []


@pytest.mark.parametrize("kind", ["decimal(6,2)", "timestamp", "binary", "date", "int64", "bool"])
def test_keys_are_values_of_their_columns(house: House, kind: str) -> None:
    name = f"shop.by_{NAMES[kind]}"
    local = house.lake.create_table(name, pa.schema([("k", parse_type(kind)), ("v", pa.string())]), key="k")
    text, (value, spelled) = list(VALUES[kind].taken.items())[-1]
    key, row = json.loads(text), {"k": json.loads(spelled), "v": "x"}
    local.upsert([{"k": value, "v": "x"}])

    assert local.get(key) == house.remote.table(name).get(key) == {"k": value, "v": "x"}
    plain = key if isinstance(key, str) else text
    assert json.loads(house.run("get", name, "--json", "--", plain).stdout)["row"] == row
    assert house.http.get(f"/v1/tables/{name}/row", params={"key": plain}).json()["row"] == row
    for refused in VALUES[kind].refused:
        with pytest.raises(InvalidRequest):
            local.get({"k": json.loads(refused)})
        body = f'{{"keys": [{{"k": {refused}}}]}}'
        assert house.http.post(f"/v1/tables/{name}/delete", content=body, headers=JSON).status_code == 400
    assert house.http.post(f"/v1/tables/{name}/delete", json={"keys": [row["k"]]}).status_code == 200
    assert local.get(key) is None


def _plain(value: Any) -> Any:
    """Arrow has a UTC of its own."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
