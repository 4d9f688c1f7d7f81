"""Table options: one row each; a value is checked before it is stored, and a stored one is read back the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Settings
from lithify.core.schema import BOOKKEEPING, define
from lithify.options.table_options import (
    DEFAULTS,
    OPTIONS,
    PREFIX,
    chosen,
    defaults_of,
    effective,
    is_option,
    parse,
    parse_all,
    stored,
)

GOOD: list[tuple[str, Any, Any]] = [
    ("row_group_rows", 65_536, 65_536),
    ("row_group_rows", "65_536", 65_536),
    ("row_group_rows", "65,536", 65_536),
    ("row_group_rows", 4096.0, 4096),
    ("compression_level", "19", 19),
    ("bloom_fpp", "0.05", 0.05),
    ("log_retain_hours", 1.5, 1.5),
    ("log_retain_hours", "24", 24),
    ("bloom_columns", "a, b,a", ("a", "b")),
    ("bloom_columns", ["a", "b"], ("a", "b")),
    ("bloom_columns", '["a,b"]', ("a,b",)),
    ("bloom_columns", "none", ()),
    ("bloom_columns", [], ()),
]
BAD: list[tuple[str, Any, str]] = [
    ("compression_level", 0, "from 1 to 19"),
    ("compression_level", "20", "from 1 to 19"),
    ("compression_level", 2.5, "a whole number"),
    ("compression_level", True, "a whole number"),
    ("compression_level", "high", "a whole number"),
    ("compression_level", "", "a whole number"),
    ("compression_level", [3], "a whole number"),
    ("row_group_rows", float("inf"), "a whole number"),
    ("bloom_fpp", "nan", "a number from 0.0001 to 0.5"),
    ("bloom_fpp", 1, "from 0.0001 to 0.5"),
    ("log_retain_hours", 0.5, "from 1 to 87,600"),
    ("log_commits_max", 99, "from 100 to 10,000,000"),
    ("bloom_columns", 7, "column names"),
    ("bloom_columns", [7], "column names"),
    ("bloom_columns", "a,,b", "column names"),
    ("bloom_columns", '["a"', "column names"),
]


@pytest.mark.parametrize(("name", "given", "value"), GOOD)
def test_a_good_value_is_kept_and_read_back(name: str, given: Any, value: Any) -> None:
    parsed = parse(name, given)
    assert (parsed, type(parsed)) == (value, type(value))
    assert chosen(stored({name: parsed})) == {name: value}


@pytest.mark.parametrize(("name", "given", "allowed"), BAD)
def test_a_bad_value_is_refused_with_its_name_and_what_is_allowed(name: str, given: Any, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(name, given)
    assert f"option {name} cannot be {given!r}" in str(caught.value)
    assert allowed in str(caught.value)


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"no table option 'colour'.*compression_level.*row_group_rows"):
        parse_all({"colour": "red"})


@pytest.mark.parametrize("value", [None, "default", " default "])
def test_going_back_to_the_default(value: Any) -> None:
    properties = stored({"compression_level": 9}) | stored(parse_all({"compression_level": value}))
    assert chosen(properties) == {}
    assert effective(properties, {"compression_level": 5})["compression_level"] == 5


def test_the_table_wins_over_the_lake_and_the_lake_over_the_option() -> None:
    lake = defaults_of(Settings(compression_level=5, log_commits_max=500))
    found = effective(stored({"compression_level": 9}), lake)
    assert (found["compression_level"], found["log_commits_max"], found["bloom_fpp"]) == (9, 500, 0.01)
    assert set(found) == set(OPTIONS)


def test_a_stored_value_that_cannot_be_read_counts_as_not_set() -> None:
    properties = {"lithify.compression_level": "99", "lithify.from_the_future": "x", "lithify.bloom_fpp": "0.1"}
    assert chosen(properties) == {"bloom_fpp": 0.1}


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_has_a_help_text(option: Any) -> None:
    assert option.help.endswith(".")


@pytest.mark.parametrize(("name", "value"), [("compression_level", 20), ("row_group_rows", 1_023), ("bloom_fpp", 0)])
def test_the_bounds_of_an_option_are_those_of_the_setting(name: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=f"setting '{name}'"):
        Settings(**{name: value})
    with pytest.raises(InvalidRequest, match=f"option {name}"):
        parse(name, value)


def test_options_do_not_collide_with_what_else_a_table_keeps() -> None:
    schema = define(pa.schema([("k", pa.int64()), ("o", pa.int64()), ("t", pa.timestamp("us"))]), "k", "o", "t")
    others = set(schema.properties()) | BOOKKEEPING | {"lithify.base_path", "lithify.owner"}
    assert not others & {PREFIX + name for name in OPTIONS}
    assert not any(is_option(name) for name in others)


def test_a_schema_knows_its_options() -> None:
    schema = define(pa.schema([("k", pa.int64())]), "k")
    assert schema.options == {**DEFAULTS, "missing_columns": "null"}


@pytest.mark.parametrize(
    ("properties", "value"),
    [
        ({}, "null"),  # a table from before there was the option
        ({"lithify.missing_columns": ""}, "refuse"),  # set to its default
        ({"lithify.missing_columns": "refuse"}, "refuse"),
        ({"lithify.missing_columns": "null"}, "null"),
        ({"lithify.missing_columns": "of a later version"}, "refuse"),
    ],
)
def test_a_table_that_says_nothing_of_missing_columns_is_from_before(properties: dict[str, str], value: str) -> None:
    schema = replace(define(pa.schema([("k", pa.int64())]), "k"), settings=properties)
    assert (schema.missing_columns, schema.options["missing_columns"]) == (value, value)
