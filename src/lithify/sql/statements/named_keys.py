"""Keys that a condition names: `id IN (1, 2, 3) AND …`, or `shop = 'a' AND day = date '2026-11-19'`.

Who knows them looks the rows up, instead of asking the engine which rows of the table a text with a thousand constants
holds for. So of a condition that is joined by AND alone, for each column of the key one part is taken out where it is
nothing but that column, by its name or by the target's and its own, beside constants of its type. What the parts said
is in the keys; in the text TRUE stands in their place. Anything else stays where it is: a constant of another type, or
one that the column cannot hold as it is written, may have to be converted first, and then the engine says how.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lithify.core.column_types import Family, type_of
from lithify.core.sql_text import Token, positioned_tokens, without_comments
from lithify.sql.statements.long_lists import Shortened, shortened

# Where one of these stands outside of brackets, what follows AND need not be a part of its own.
_OTHERWISE = frozenset({"or", "xor", "between", "case", "lambda"})
_OPENING, _CLOSING = "([{", ")]}"
_GAP = r"[ \t\r\n]*+"
_BLANKS = str.maketrans("", "", " \t\r\n")
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TEXT = r"'(?:[^']|'')*+'"


@dataclass(frozen=True)
class _Kind:
    """How constants of a type are written, and what they are. `value` raises ValueError or ArithmeticError."""

    one: re.Pattern[str]
    all: re.Pattern[str]
    value: Callable[[str], Any]


def _kind(constant: str, value: Callable[[str], Any]) -> _Kind:
    one = rf"(?:{constant}|(?i:null)(?!\w))"
    return _Kind(re.compile(one), re.compile(rf"{_GAP}{one}{_GAP}(?:,{_GAP}{one}{_GAP})*+"), value)


# No key has more digits, and Python refuses to read thousands of them.
_KINDS = {
    Family.INTEGER: _kind(rf"(?:-{_GAP})?+[0-9]{{1,100}}+", int),
    Family.DECIMAL: _kind(rf"(?:-{_GAP})?+[0-9]{{1,100}}+(?:\.[0-9]{{0,100}}+)?+", Decimal),
    Family.TEXT: _kind(_TEXT, lambda text: text[1:-1].replace("''", "'")),
    Family.DATE: _kind(
        rf"(?:(?i:date){_GAP})?+'{_DAY}'",
        lambda text: dt.date.fromisoformat(text[-11:-1]),
    ),
    Family.TIMESTAMP: _kind(
        rf"(?:(?i:timestamp){_GAP})?+'{_DAY}[ T][0-2][0-9](?::[0-5][0-9]){{2}}(?:\.[0-9]{{1,6}})?+'",
        lambda text: dt.datetime.fromisoformat(text[text.index("'") + 1 : -1]),
    ),
}
_BOUNDS = {width: (-(2 ** (width - 1)), 2 ** (width - 1) - 1) for width in (8, 16, 32, 64)}


@dataclass(frozen=True)
class NamedKeys:
    """`keys`: each once. `rest`: what else must hold, None if nothing does."""

    keys: pa.Table
    rest: str | None


def named_keys(where: str, key: pa.Schema, target: str, keys_max: int) -> NamedKeys | None:
    """`key`: the columns of the key. `target`: what the statement calls its table. None where it names no keys, or more
    than `keys_max`.
    """
    short = shortened(where)
    tokens = positioned_tokens(short.text)
    parts = None if tokens is None else _parts(tokens)
    if parts is None:
        return None
    taken, columns = list[Sequence[Token]](), list[list[Any]]()
    for column in key:
        for part in parts:
            if (values := _values(part, column, target, short)) is not None:
                taken.append(part)
                columns.append(values)
                break
        else:
            return None
    if math.prod(map(len, columns)) > keys_max:
        return None
    rows = zip(*itertools.product(*columns), strict=True) if all(columns) else ([] for _ in key)
    keys = pa.table([pa.array(list(values), f.type) for values, f in zip(rows, key, strict=True)], schema=key)
    return NamedKeys(keys, None if len(taken) == len(parts) else _without(short, taken))


def _without(text: Shortened, parts: Sequence[Sequence[Token]]) -> str:
    """With blanks: `id IN (1)AND b` needs none."""
    left, end = "", 0
    for part in sorted(parts, key=lambda part: part[0].start):
        left += f"{text.whole[end : text.place(part[0].start)]} TRUE "
        end = text.place(part[-1].end - 1) + 1
    return left + text.whole[end:]


def _parts(tokens: Sequence[Token]) -> list[Sequence[Token]] | None:
    """What AND joins; None where that is not sure."""
    parts, start, depth = [], 0, 0
    for at, token in enumerate(tokens):
        if token.kind == "symbol":
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
        elif depth == 0 and token.kind == "word":
            if token.word in _OTHERWISE:
                return None
            if token.word == "and":
                parts.append(tokens[start:at])
                start = at + 1
    parts.append(tokens[start:])
    return parts if depth == 0 and all(parts) else None


def _values(part: Sequence[Token], column: pa.Field, target: str, text: Shortened) -> list[Any] | None:
    """The values that a part has the column be, each once; None where it does not do that alone."""
    at = 0
    if len(part) > 2 and part[1].text == ".":
        if _name(part[0]) != target:
            return None
        at = 2
    if at + 2 >= len(part) or _name(part[at]) != column.name:
        return None
    beside, constants = part[at + 1], part[at + 2 :]
    if beside.word == "in" and beside.kind == "word" and len(constants) > 2:
        if (constants[0].text, constants[-1].text) != ("(", ")"):
            return None
        begin, end, listed = text.place(constants[0].start) + 1, text.place(constants[-1].start), True
    elif beside.kind == "symbol" and beside.text == "=":
        begin, end, listed = text.place(constants[0].start), text.place(constants[-1].end - 1) + 1, False
    else:
        return None
    return _constants(text.whole[begin:end], column.type, listed=listed)


def _name(token: Token) -> str | None:
    if token.kind == "quoted":
        return token.text[1:-1].replace('""', '"')
    return token.word if token.kind == "word" else None


def _constants(text: str, column: pa.DataType, *, listed: bool) -> list[Any] | None:
    """Constants between commas as values of a column, each once; None: there is something else. NULL equals nothing."""
    known = type_of(column)
    kind = _KINDS.get(known.family)
    text = without_comments(text)
    if kind is None or kind.all.fullmatch(text) is None:
        return None
    if known.is_number:
        text = text.translate(_BLANKS)
    found = [written for written in kind.one.findall(text) if written[0] not in "nN"]
    if not listed and len(found) != 1:
        return None
    try:
        values = list(dict.fromkeys(map(kind.value, found)))
        if pa.types.is_integer(column):
            least, most = _BOUNDS[column.bit_width]
            return [value for value in values if least <= value <= most]
        if known.family is Family.TIMESTAMP and column.tz is not None:
            values = [value.replace(tzinfo=dt.UTC) for value in values]
        pa.array(values, column)
    except (ValueError, ArithmeticError):  # of Arrow, too: it has no such value
        return None
    return values
