"""Every argument of every public method, given all kinds of wrong values: the call works, or is refused in words of
Lithify, never with an error from inside of some library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, LithifyError, Settings, Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
WRONG: dict[str, Any] = {
    "none": None,
    "a number": 7,
    "a negative number": -1,
    "a huge number": 2**70,
    "a fraction": 1.5,
    "not a number": float("nan"),
    "a decimal": Decimal("1.5"),
    "true": True,
    "text": "nope",
    "empty text": "",
    "half a character": "\ud800",
    "a zero byte": "a\0b",
    "bytes": b"nope",
    "an empty list": [],
    "a list of numbers": [1, 2],
    "a list of lists": [[1], [2]],
    "a list of none": [None],
    "a list of texts": ["a.b", "nope"],
    "a set": {1},
    "an empty dict": {},
    "a dict": {"nope": 1},
    "a dict of numbers": {1: 2},
    "an object": object(),
    "a class": int,
    "a function": len,
    "an array": pa.array([1]),
    "a chunked array": pa.chunked_array([[1]]),
    "an empty array": pa.array([], pa.int64()),
    "a null array": pa.nulls(2),
    "an array of texts": pa.array(["x"]),
    "a table": pa.table({"nope": [1]}),
    "a table without columns": pa.table({}),
    "a scalar": pa.scalar(7),
    "a schema": SCHEMA,
    "a type": pa.int64(),
    "a field": pa.field("x", pa.int64()),
    "a path": Path("/nowhere/at/all"),
    "a generator": (n for n in ()),
}
# What starts threads, a JVM or a service of its own, or closes the lake under the test.
LEFT_OUT = {
    Lake: {
        "close", "maintain", "start_maintenance", "start_upkeep", "trigger_maintenance", "trigger_upkeep",
        "upkeep", "ingest", "pipeline", "pipelines", "run_pipelines", "on_change", "spark",
    },
    Table: {"to_spark", "feed_to_spark", "stream_writer"},
}  # fmt: skip


# Handed on from one part of Lithify to another.
FROM_INSIDE = ("within",)


def methods(kind: type) -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_") and name not in LEFT_OUT[kind]
    ]


def arguments(kind: type, name: str) -> list[str]:
    return [
        parameter.name
        for parameter in inspect.signature(getattr(kind, name)).parameters.values()
        if parameter.name not in ("self", *FROM_INSIDE)
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


RIGHT: dict[str, Any] = {
    "name": "a.t", "schema": SCHEMA, "data": [{"id": 1, "v": "x", "at": None}], "keys": [1], "key": 1,
    "condition": "id = 1", "query": "select 1", "sql": "select 1", "column": pa.field("w", pa.int64()), "values": {},
    "tier": "hourly", "text": "select 1", "statement": "delete from a.t where id = 99",
    "since": 0, "after": 0, "start": 0, "until": 0, "path": "/nowhere", "dry_run": True, "retain_hours": 168,
    "folder": "/nowhere", "day": "2026-11-15", "to": "/nowhere/at/all", "rows_max": 10, "operation": "upsert",
    "batch_id": None, "fingerprint": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with Lake(tmp_path_factory.mktemp("wrong") / "lake") as lake:
        yield lake


def raised(call: Callable[[], Any]) -> str | None:
    """What a call raises that no caller should see."""
    try:
        found = call()
        if isinstance(found, Iterator):
            next(found, None)
    except LithifyError as error:
        return None if str(error) else "no word about it"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


CALLS = [
    (kind, method, argument)
    for kind in (Lake, Table)
    for method in methods(kind)
    for argument in arguments(kind, method)
]


@pytest.mark.parametrize(
    ("kind", "method", "argument"),
    CALLS,
    ids=[f"{kind.__name__}.{method}({argument})" for kind, method, argument in CALLS],
)
@pytest.mark.filterwarnings("ignore:feed_until")
def test_a_wrong_argument_is_refused_in_plain_words(lake: Lake, kind: type, method: str, argument: str) -> None:
    for what, value in WRONG.items():
        table = lake.table("a.t") if "a.t" in lake.tables() else lake.create_table("a.t", SCHEMA, key="id")
        on = lake if kind is Lake else table
        required = [
            parameter.name
            for parameter in inspect.signature(getattr(kind, method)).parameters.values()
            if parameter.default is parameter.empty and parameter.name != "self"
        ]
        given = {name: RIGHT[name] for name in required if name in RIGHT} | {argument: value}
        if "dry_run" in arguments(kind, method) and argument != "dry_run":
            given["dry_run"] = True
        problem = raised(lambda on=on, given=given: getattr(on, method)(**given))
        assert problem is None, f"{kind.__name__}.{method}({argument}={what}): {problem}"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_a_wrong_setting_is_refused_in_plain_words(name: str) -> None:
    for what, value in WRONG.items():
        problem = raised(lambda value=value: Settings(**{name: value}))
        assert problem is None, f"Settings({name}={what}): {problem}"
