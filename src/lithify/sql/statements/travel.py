"""`FROM t VERSION AS OF 41`, `FROM t TIMESTAMP AS OF '2026-11-15 12:00:00'`: tables of a query as they were.

The engine knows tables by their names alone. So a table of another time gets a name of its own, which no table of a
lake can have, and goes by its own name in the query. A text without these words is not looked at any further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lithify.core.names import CATALOG, TableRef, quoted
from lithify.core.sql_text import Token, positioned_tokens
from lithify.errors import InvalidRequest

_SOUGHT = re.compile(r"\b(?:version|timestamp)\s+as\s+of\b", re.IGNORECASE)
SEQ_DIGITS_MAX = 18
# What may stand behind a table that has no other name.
_NO_NAMES = frozenset(
    [
        "where",
        "join",
        "inner",
        "left",
        "right",
        "full",
        "cross",
        "natural",
        "on",
        "using",
        "group",
        "order",
        "having",
        "limit",
        "offset",
        "fetch",
        "union",
        "intersect",
        "except",
        "window",
        "qualify",
        "lateral",
        "semi",
        "anti",
    ]
)


@dataclass(frozen=True)
class Traveled:
    """A query with names of tables as they were, and what these stand for: the table, and of when."""

    query: str
    tables: dict[TableRef, tuple[TableRef, int | str]] = field(default_factory=dict)


def traveled(query: str) -> Traveled:
    if _SOUGHT.search(query) is None:
        return Traveled(query)
    tokens = positioned_tokens(query)
    if tokens is None:
        return Traveled(query)
    text, end, tables = "", 0, dict[TableRef, tuple[TableRef, int | str]]()
    for at in range(1, len(tokens) - 3):
        words = [token.word for token in tokens[at : at + 3]]
        if words[0] not in ("version", "timestamp") or words[1:] != ["as", "of"]:
            continue
        first, ref = _table_before(tokens, at)
        last, moment = _moment(tokens, at + 3)
        there = ref[0], f"{ref[1]}@{moment}"
        tables[there] = ref, moment
        text += f"{query[end : tokens[first].start]}{quoted(there[0])}.{quoted(there[1])}"
        if not _is_named(tokens, last + 1):
            text += f" AS {quoted(ref[1])}"
        end = tokens[last].end
    return Traveled(text + query[end:], tables)


def _table_before(tokens: Sequence[Token], at: int) -> tuple[int, TableRef]:
    parts, first = [tokens[at - 1]], at - 1
    while first >= 2 and tokens[first - 1].text == ".":
        first -= 2
        parts.insert(0, tokens[first])
    names = [part.text[1:-1].replace('""', '"') if part.kind == "quoted" else part.word for part in parts]
    if names[0] == CATALOG and len(names) == 3:
        names.pop(0)
    if len(names) != 2 or any(part.kind not in ("word", "quoted") for part in parts):
        raise InvalidRequest(
            "VERSION AS OF and TIMESTAMP AS OF stand behind a table: FROM namespace.table VERSION AS OF 41"
        )
    return first, (names[0], names[1])


def _moment(tokens: Sequence[Token], at: int) -> tuple[int, int | str]:
    """Where it ends, and what it is: a seq, a time, or a tag."""
    if tokens[at].word == "timestamp" and at + 1 < len(tokens):
        at += 1
    token = tokens[at]
    if token.kind == "number" and token.text.isdecimal() and len(token.text) <= SEQ_DIGITS_MAX:
        return at, int(token.text)
    if token.kind == "text":
        return at, token.text[1:-1].replace("''", "'")
    raise InvalidRequest(
        f"a seq, or a time or a tag in quotes, should stand behind AS OF, where {token.text[:40]!r} is"
    )


def _is_named(tokens: Sequence[Token], at: int) -> bool:
    if at >= len(tokens):
        return False
    token = tokens[at]
    return token.kind == "quoted" or (token.kind == "word" and token.word not in _NO_NAMES)
