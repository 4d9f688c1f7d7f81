"""Parameters of a query: `$1`, `$2` of a list, `:name` of a mapping.

A value is put in as a constant of its own type, never as text that could mean something else. Where the words of a
query begin and end must be beyond doubt for that: with anything whose extent depends on the dialect
(`core/sql_text.py`) a text takes no parameters.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lithify.core.arguments import check_text
from lithify.core.column_types import type_of
from lithify.core.sql_text import SQL_WORDS, Token, all_tokens, positioned_tokens
from lithify.errors import InvalidRequest

_LOOKS_LIKE_ONE, _TEXT = re.compile(r"\$\d|(?<!:):[^\W\d]"), re.compile(r"'[^']*'")
_BEFORE = frozenset("(,=<>+-*/%|;[")
Parameters = Sequence[Any] | Mapping[str, Any] | None


def bound(query: str, parameters: Parameters, constant: Callable[[Any, str], str] | None = None) -> str:
    """The query with its parameters put in. `constant`: how the engine that is asked writes them."""
    if parameters is None:
        _check_none_asked(query)
        return query
    constant = constant or literal
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | Mapping):
        raise InvalidRequest(
            f"parameters are a list for $1, $2, … or names and values for :name, not {type(parameters).__name__}"
        )
    named = isinstance(parameters, Mapping)
    known = dict(parameters) if named else {str(number): value for number, value in enumerate(parameters, 1)}
    for name in known:
        check_text("the name of a parameter", name)
    tokens, sign = all_tokens(query), ":" if named else "$"
    text, end, used = "", 0, set[str]()
    for at, token in enumerate(tokens[:-1]):
        name = _name_at(tokens, at, sign)
        if name is None:
            continue
        if name not in known:
            there = ", ".join(sign + other for other in known) or "none"
            raise InvalidRequest(f"parameter {sign}{name} has no value: there are {there}")
        written = moment if _behind_as_of(tokens, at) else constant
        text += query[end : token.start] + written(known[name], sign + name)
        end = tokens[at + 1].end
        used.add(name)
    if missing := [name for name in known if name not in used]:
        raise InvalidRequest(f"parameter {sign}{missing[0]} is not in the query: leave it out, or name it there")
    text += query[end:]
    if positioned_tokens(text) is None:
        raise InvalidRequest(
            "a query with parameters writes text as '…' with '' for a quote, and names as \"…\": no back-quotes, "
            "backslashes, dollars, braces or prefixes like E'…' outside of them"
        )
    return text


def _check_none_asked(query: str) -> None:
    """Refuse a query that has parameters where no values were given."""
    if _LOOKS_LIKE_ONE.search(query) is None or _LOOKS_LIKE_ONE.search(_TEXT.sub("''", query)) is None:
        return  # to cut a long query into words takes long
    tokens = all_tokens(query)
    for at in range(len(tokens) - 1):
        for sign in "$:":
            # What stands right behind something else is a part of it: a slice, a cast, a $tag$.
            alone = not at or tokens[at - 1].end < tokens[at].start or tokens[at - 1].text in _BEFORE
            if alone and (name := _name_at(tokens, at, sign)) is not None:
                given = "a list for $1, $2, …" if sign == "$" else "names and values for :name"
                raise InvalidRequest(f"parameter {sign}{name} has no value: pass parameters, {given}")


def _behind_as_of(tokens: Sequence[Token], at: int) -> bool:
    words = [token.word for token in tokens[max(0, at - 4) : at]]
    words = words[:-1] if words[-1:] == ["timestamp"] else words
    return len(words) >= 3 and words[-3] in ("version", "timestamp") and words[-2:] == ["as", "of"]


def moment(value: Any, name: str) -> str:
    """A seq, a time or a tag, as it stands behind VERSION AS OF and TIMESTAMP AS OF."""
    if type(value) is int and value >= 0:
        return str(value)
    if isinstance(value, dt.datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        raise InvalidRequest(f"parameter {name} is {value!r:.40} behind AS OF: give a seq, a time or a tag")
    return literal(value, name)


def _name_at(tokens: Sequence[Token], at: int, sign: str) -> str | None:
    """The parameter whose sign stands here."""
    token, following = tokens[at], tokens[at + 1]
    if token.text != sign or following.start != token.end:
        return None
    if sign == "$":
        return following.text if following.kind == "number" and following.text.isdecimal() else None
    before = tokens[at - 1] if at else None
    cast = before is not None and before.text == ":" and before.end == token.start
    return following.text if following.kind == "word" and not cast else None


def literal(value: Any, name: str) -> str:
    """A constant of the value's own type."""
    match value:
        case None | bool():
            return SQL_WORDS[value]
        case int():
            return f"({int(value)})"
        case float():
            shown = (
                repr(float(value)) if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "NaN")
            )
            return f"arrow_cast('{shown}', 'Float64')"
        case Decimal() if value.is_finite():
            return f"({value:f})"
        case str():
            check_text(f"parameter {name}", value)
            return "'" + str(value).replace("'", "''") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return _of(value, pa.timestamp("us", None if value.tzinfo is None else "UTC"))
        case dt.date():
            return _of(value, pa.date32())
    raise InvalidRequest(
        f"parameter {name} is {type(value).__name__}: give None, a truth value, a number, text, bytes, a date or a time"
    )


def spark_literal(value: Any, name: str) -> str:
    """The same for Spark, where a constant of these types is written in another way."""
    match value:
        case float():
            number = float(value)
            shown = (
                repr(number) if math.isfinite(number) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number)
            )
            return f"CAST('{shown or 'NaN'}' AS DOUBLE)"
        case dt.datetime() if value.tzinfo is not None:
            return f"TIMESTAMP '{value.astimezone(dt.UTC).isoformat(' ', 'microseconds')}'"
        case dt.datetime():
            return f"CAST('{value.isoformat(' ', 'microseconds')}' AS TIMESTAMP_NTZ)"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    return literal(value, name)


def _of(value: dt.date, kind: pa.DataType) -> str:
    return type_of(kind).literal(pa.scalar(value, kind))
