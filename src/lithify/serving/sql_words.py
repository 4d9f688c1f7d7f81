"""The words of an SQL text, without a grammar: enough to bound it, and to tell when two texts are the same query.

Texts with anything whose extent depends on the dialect (dollars, back-quotes, strings with a prefix, nested comments)
are `odd`: nothing is concluded from where their strings and comments seem to be. Bytes (X'00ff') are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["space", "text", "quoted", "word", "number", "symbol"]

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|--[^\n]*|/\*(?:(?!/\*).)*?\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")*")'
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<symbol>.)",
    re.DOTALL,
)
_ODD_SYMBOLS = frozenset("\\$`#{}@'\"\x00")
# Names are given there whose letter case may be kept: of fields, of windows, of columns that `*` leaves out.
_CASE_MATTERS = frozenset({"struct", "named_struct", "window", "map", "exclude", "except", "replace", "rename"})


@dataclass(frozen=True)
class Words:
    """Words in lower case; comments and white space left out."""

    tokens: tuple[tuple[Kind, str], ...]
    odd: bool


def words_of(query: str) -> Words:
    whole = _tokens(query)
    return Words(tuple((kind, _lower(text)) for kind, text in whole if kind != "space"), _is_odd(whole))


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


def _tokens(query: str) -> list[tuple[Kind, str]]:
    return [(found.lastgroup, found[0]) for found in _TOKEN.finditer(query)]  # type: ignore[misc]


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
            prefixed = before in ("word", "number") and not (before == "word" and previous in ("x", "X"))
            if quoted and (prefixed or previous == "&" or last_text):
                return True
            last_text = quoted
        before, previous = kind, text
    return False


def _lower(text: str) -> str:
    """As the engine folds names: letters of ASCII only."""
    return text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)
