"""Merge rules: what becomes of a column when a row is written to a key that has one.

| rule          | the column holds                                     | columns                       |
|---------------|------------------------------------------------------|-------------------------------|
| last          | the last value, null too: what every column does     | all                           |
| last_non_null | the last value that is not null                      | all                           |
| first         | the first value that is not null                     | all                           |
| min, max      | the lowest or highest; NaN is above all numbers      | numbers, text, dates, times   |
| sum           | the sum                                              | int64, decimal(38, s)         |
| count         | how many rows were written, whatever they say in it  | int64                         |
| append(n)     | the elements of all lists, of these the newest n     | lists                         |
| or, and       | whether one was true, whether all were               | bool                          |

But for `last`, null says nothing. A column that was never given and one that is null cannot be told apart once they
stand in base, so no rule may try to. Sums are of types that are exact and wide: those of floating point depend on the
order of adding, and int32 soon has no room.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lithify.core.column_types import Family, type_of
from lithify.core.type_text import type_name
from lithify.errors import Corruption, InvalidRequest

APPEND_MAX = 100_000
RETRACTABLE = ("sum", "count")
_LAST = "last"
# Of the columns of an order group (`order_groups`); nobody spells it.
NEWEST = "newest"
_WITH_BOUND = re.compile(r"append\s*\(\s*([0-9]{1,9})\s*\)")
_ORDERED = (Family.INTEGER, Family.FLOAT, Family.DECIMAL, Family.TEXT, Family.DATE, Family.TIMESTAMP)


def _any_type(kind: pa.DataType) -> bool:
    return True


def _ordered(kind: pa.DataType) -> bool:
    return type_of(kind).family in _ORDERED


def _summable(kind: pa.DataType) -> bool:
    return bool(kind == pa.int64() or (pa.types.is_decimal128(kind) and kind.precision == 38))


# Each rule: which types it takes, and which these are in words.
_TYPES: Mapping[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "last": (_any_type, ""),
    "last_non_null": (_any_type, ""),
    "first": (_any_type, ""),
    "min": (_ordered, "a number, text, date or timestamp"),
    "max": (_ordered, "a number, text, date or timestamp"),
    "sum": (_summable, "int64 or decimal(38, s), which add exactly and have room"),
    "count": (lambda kind: kind == pa.int64(), "int64"),
    "append": (pa.types.is_list, "a list"),
    "or": (pa.types.is_boolean, "bool"),
    "and": (pa.types.is_boolean, "bool"),
}


@dataclass(frozen=True)
class Rule:
    """`bound`: how many elements a list keeps; `by`: the column that tells which line of an order group is newest."""

    kind: str
    bound: int = 0
    by: str = ""

    def __str__(self) -> str:
        if self.by:
            return f"{self.kind}({self.by})"
        return f"{self.kind}({self.bound})" if self.bound else self.kind


def parse_rule(text: Any, column: str) -> Rule:
    if not isinstance(text, str):
        raise InvalidRequest(f"the merge rule of column {column!r} is a text like 'sum', not {type(text).__name__}")
    spelled = text.strip().lower()
    if (found := _WITH_BOUND.fullmatch(spelled)) is not None:
        if not 1 <= (bound := int(found[1])) <= APPEND_MAX:
            raise InvalidRequest(
                f"the merge rule of column {column!r} keeps {bound:,} elements: append keeps 1 to {APPEND_MAX:,}"
            )
        return Rule("append", bound)
    if spelled.startswith("append"):
        raise InvalidRequest(
            f"the merge rule of column {column!r} is {text[:60]!r}: say how many elements the list keeps at most, "
            "e.g. append(100)"
        )
    if spelled not in _TYPES:
        close = difflib.get_close_matches(spelled, _TYPES, 1, 0.7)
        hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(_shown(name) for name in _TYPES)}"
        raise InvalidRequest(f"column {column!r} has no merge rule {text[:60]!r}: {hint}")
    return Rule(spelled)


def rules_in(texts: Iterable[str]) -> dict[str, str]:
    """Rules that are spelled COLUMN=RULE, one or several in a text, with commas between them."""
    found: dict[str, str] = {}
    for part in (part for text in texts for part in text.split(",")):
        column, equals, rule = part.partition("=")
        if not equals or not column.strip():
            raise InvalidRequest(f"{part.strip()[:60]!r} is no merge rule: write COLUMN=RULE, e.g. total=sum")
        if column.strip() in found:
            raise InvalidRequest(f"column {column.strip()!r} is given two merge rules: give it one")
        found[column.strip()] = rule.strip()
    return found


def _shown(name: str) -> str:
    return "append(n)" if name == "append" else name


def check_merged(name: Any, columns: pa.Schema, roles: Mapping[str, tuple[str, ...]], said: str, instead: str) -> None:
    """What rows of a key are merged in must be a column, and none that tells which row it is, or where it lies."""
    if name not in columns.names:
        close = difflib.get_close_matches(str(name), columns.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(columns.names)}"
        raise InvalidRequest(f"{said}, which is no column of the table: {hint}")
    for role, names in roles.items():
        if name in names:
            raise InvalidRequest(f"column {name!r} is in {role}, and rows of a key are not merged in it: {instead}")


def checked_rules(
    wanted: Any,
    columns: pa.Schema,
    roles: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:
    """A user's rules, spelled one way and in the order of the columns; `last`, which all have, is left out. `roles`:
    columns that tell which row it is, or where it lies.
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        raise InvalidRequest(f"merge_rules are rules by column, like {{'total': 'sum'}}, not {type(wanted).__name__}")
    rules = {name: parse_rule(text, str(name)) for name, text in wanted.items()}
    for name, rule in rules.items():
        check_merged(name, columns, roles, f"there is a merge rule for {name!r}", "leave its merge rule out")
        takes, types = _TYPES[rule.kind]
        if not takes(kind := columns.field(name).type):
            raise InvalidRequest(
                f"column {name!r} is {type_name(kind)}, and its merge rule {str(rule)!r} is for {types}: change the "
                "type or the rule"
            )
    kept = {name: str(rules[name]) for name in columns.names if name in rules and rules[name].kind != _LAST}
    if kept and not roles.get("key"):
        raise InvalidRequest(
            "merge_rules say what becomes of rows with one key: give the table a key, or leave them out"
        )
    if kept and roles.get("order_by"):
        raise InvalidRequest(
            "merge_rules and order_by do not go together yet: a late row loses as a whole by order_by, and would count "
            "by a rule; leave one of them out (a rule 'max' on the time column keeps the newest time)"
        )
    return kept


def stored_rules(rules: Mapping[str, str]) -> str:
    return json.dumps(dict(rules))


def read_rules(text: str | None, where: str) -> dict[str, str]:
    """The inverse of `stored_rules`."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
        return {str(name): str(parse_rule(rule, name)) for name, rule in found.items()}
    except (ValueError, AttributeError, InvalidRequest) as error:
        raise Corruption(f"{where} has merge rules that cannot be read: {text[:200]!r}") from error
