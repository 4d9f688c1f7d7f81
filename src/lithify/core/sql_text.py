"""The words of an SQL text, without a grammar: enough to bound it, and to tell when two texts are the same query.

This is the one place that cuts SQL into words, by what the engine (DataFusion) or Spark quotes with. For the engine,
texts with anything whose extent depends on the dialect (dollars, back-quotes, strings with a prefix, nested comments)
are `odd`: nothing is concluded from where their strings and comments seem to be. Bytes (X'00ff') and texts with a type
(date'2024-01-31') are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["space", "text", "quoted", "word", "number", "symbol"]

ENGINE = re.compile(
    r"(?P<space>[ \t\r\n]+|--[^\n]*|/\*(?:(?!/\*).)*?\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")*")'
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>(?:\d+\.?\d*|(?<![\w)\]\".])\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|\d[\w.]*)"
    r"|(?P<symbol>.)",
    re.DOTALL,
)
SPARK = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<symbol>.)",
    re.DOTALL,
)
# How constants that have a word of their own are written.
SQL_WORDS = {None: "NULL", True: "TRUE", False: "FALSE"}
TABLES_GUESSED_MAX = 8
_ODD_SYMBOLS = frozenset("\\$`#{}@'\"\x00")
_BEFORE_TEXTS = frozenset({"x", "date", "timestamp", "timestamptz", "time", "interval"})
# Names are given there whose letter case may be kept: of fields, of windows, of columns that `*` leaves out.
_CASE_MATTERS = frozenset({"struct", "named_struct", "window", "map", "exclude", "except", "replace", "rename"})


@dataclass(frozen=True)
class Words:
    """Words in lower case; comments and white space left out."""

    tokens: tuple[tuple[Kind, str], ...]
    odd: bool


def words_of(query: str) -> Words:
    whole = _tokens(query)
    words = tuple((kind, text if kind == "symbol" else _lower(text)) for kind, text in whole if kind != "space")
    return Words(words, _is_odd(whole))


def cut(query: str) -> list[tuple[Kind, str]] | None:
    """All of a text, comments and white space too, as it stands there; None if where it is cut is not sure."""
    found = _tokens(query)
    return None if _is_odd(found) else found


class Token(NamedTuple):
    """What stands in the text between `start` and `end`. `word`: in lower case; of what is no word, the text."""

    kind: Kind
    text: str
    start: int
    end: int
    word: str


def positioned_tokens(query: str) -> list[Token] | None:
    """The words and where they stand, or None if that is not sure."""
    found = _tokens(query)
    return None if _is_odd(found) else _positioned(found)


def without_comments(query: str) -> str:
    """A text of the same length with blanks for its comments, and as it is where it is not sure what they are."""
    found = cut(query) if "--" in query or "/*" in query else None
    return query if found is None else "".join(" " * len(text) if kind == "space" else text for kind, text in found)


def all_tokens(query: str) -> list[Token]:
    """The words and where they seem to stand."""
    return _positioned(_tokens(query))


def spark_tokens(query: str) -> list[Token]:
    return _positioned(_tokens(query, SPARK))


def _positioned(tokens: Sequence[tuple[Kind, str]]) -> list[Token]:
    """Without comments and white space. Tokens leave nothing of a text out, so their lengths tell where they stand."""
    found, start = [], 0
    for kind, text in tokens:
        end = start + len(text)
        if kind != "space":
            found.append(Token(kind, text, start, end, _lower(text) if kind == "word" else text))
        start = end
    return found


def normalised(query: str) -> str:
    """The same for texts that differ only in white space, comments, a last semicolon and letter case outside quotes.
    Never the same for two different queries: a text in which that cannot be told for sure is left as it is.
    """
    tokens = _tokens(query)
    if _is_odd(tokens):
        return query
    parts: list[str] = []
    for kind, text in tokens:
        if kind != "space":
            part = _lower(text) if kind == "word" else text
            if part in _CASE_MATTERS:
                return query
            parts.append(part)
        elif parts and parts[-1] != " ":
            parts.append(" ")
    while parts and parts[-1] in (" ", ";"):
        parts.pop()
    return "".join(parts)


def tables_named(query: str) -> tuple[tuple[str, str], ...]:
    """Namespace and name of what stands behind FROM and JOIN: a guess, which only saves time."""
    tokens = [(kind, text) for kind, text in _tokens(query) if kind != "space"]
    found: dict[tuple[str, str], None] = {}
    for position in range(len(tokens) - 3):
        if tokens[position][1].lower() in ("from", "join"):
            parts, at = [], position + 1
            while at < len(tokens) and tokens[at][0] in ("word", "quoted"):
                parts.append(_name(*tokens[at]))
                at += 1
                if at >= len(tokens) or tokens[at][1] != ".":
                    break
                at += 1
            if len(parts) in (2, 3) and (at >= len(tokens) or tokens[at][1] != "("):
                found[parts[-2], parts[-1]] = None
    return tuple(found)[:TABLES_GUESSED_MAX]


def _name(kind: Kind, text: str) -> str:
    return text[1:-1].replace('""', '"') if kind == "quoted" else _lower(text)


def _tokens(query: str, dialect: re.Pattern[str] = ENGINE) -> list[tuple[Kind, str]]:
    return [(found.lastgroup, found[0]) for found in dialect.finditer(query)]  # type: ignore[misc]


def _is_odd(tokens: list[tuple[Kind, str]]) -> bool:
    before: Kind = "space"
    previous = ""
    last_text = False
    for kind, text in tokens:
        if kind == "space":
            if text.startswith("--") and "\r" in text.removesuffix("\r"):
                return True
        elif kind == "symbol":
            if text in _ODD_SYMBOLS or previous + text in ("/*", "=>"):
                return True
            last_text = False
        else:
            quoted = kind in ("text", "quoted")
            prefixed = before in ("word", "number") and not (before == "word" and _lower(previous) in _BEFORE_TEXTS)
            if quoted and (prefixed or previous == "&" or last_text):
                return True
            last_text = quoted
        before, previous = kind, text
    return False


def _lower(text: str) -> str:
    """As the engine folds names: letters of ASCII only."""
    return text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)
