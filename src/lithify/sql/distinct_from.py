"""`a IS DISTINCT FROM b AND c` as SQL means it: `(a IS DISTINCT FROM b) AND c`.

The engine's parser takes all that follows FROM for the second operand, and finds, and deletes, other rows. So where AND
or OR stands behind the comparison, it is put into brackets. Of any other text nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lithify.core.sql_text import Token, positioned_tokens

_SOUGHT = re.compile(r"\bdistinct\b", re.IGNORECASE)
_JOINING = frozenset({"and", "or", "xor"})
# Behind one of these it begins; and where one of those stands, it has ended before AND, or its end is not sure.
_BEGINNING = frozenset({"not", "where", "on", "when", "then", "else", "case", "having", "qualify", "by"}) | _JOINING
_SELECTING = frozenset({"select", "distinct", "all"})
_ENDING = frozenset(
    {
        "between",
        "when",
        "then",
        "else",
        "end",
        "as",
        "asc",
        "desc",
        "nulls",
        "from",
        "select",
        "where",
        "group",
        "order",
    }
    | {"having", "qualify", "window", "limit", "offset", "fetch", "union", "intersect", "except", "minus", "values"}
    | {"join", "left", "right", "full", "inner", "cross", "natural", "lateral", "semi", "anti", "on", "using"}
)
_FUNCTIONS = frozenset({"left", "right"})


class _Way(NamedTuple):
    """What opens and closes, for who goes through a text one way."""

    opening: str
    closing: str
    case: str
    end: str


_FORWARD, _BACKWARD = _Way("([", ")]", "case", "end"), _Way(")]", "([", "end", "case")


def comparisons_bracketed(query: str) -> str:
    tokens = positioned_tokens(query) if _SOUGHT.search(query) else None
    marks = list[tuple[int, str]]()
    for at, token in enumerate(tokens or ()):
        if tokens is None or token.word != "from" or (said := _words_before(tokens, at)) is None:
            continue
        end = _end(tokens, at + 1)
        start = None if end is None else _start(tokens, at - said)
        if start is not None and end is not None:
            marks += [(tokens[start].start, "("), (tokens[end].end, ")")]
    parts, last = list[str](), 0
    for place, mark in sorted(marks):
        parts += [query[last:place], mark]
        last = place
    return "".join([*parts, query[last:]])


def _words_before(tokens: Sequence[Token], at: int) -> int | None:
    """How many words of the comparison stand before its FROM; None: it is another FROM."""
    before = [token.word for token in tokens[max(0, at - 3) : at]]
    if before[-2:] == ["is", "distinct"]:
        return 2
    return 3 if before == ["is", "not", "distinct"] else None


def _walk(tokens: Sequence[Token], places: Iterable[int], way: _Way) -> Iterator[tuple[int, int, bool]]:
    """Symbols, with how many brackets are open behind them, and words outside of brackets; whether in a CASE."""
    depth = cases = 0
    for at in places:
        token = tokens[at]
        if token.kind == "symbol":
            depth += (token.text in way.opening) - (token.text in way.closing)
            yield at, depth, cases > 0
        elif token.kind == "word" and not depth:
            begins, ends = token.word == way.case, cases > 0 and token.word == way.end
            yield at, depth, begins or cases > 0
            cases += begins - ends


def _end(tokens: Sequence[Token], first: int) -> int | None:
    """The last word before AND or OR; None: it ends otherwise."""
    for at, depth, in_case in _walk(tokens, range(first, len(tokens)), _FORWARD):
        token = tokens[at]
        if token.kind == "symbol":
            if depth < 0 or (not depth and token.text in ",;"):
                return None
        elif in_case:
            continue
        elif token.word in _JOINING:
            return at - 1 if at > first else None
        elif token.word in _ENDING and not _is_function(tokens, at) and _words_before(tokens, at) is None:
            return None
    return None


def _start(tokens: Sequence[Token], end: int) -> int | None:
    """The first word of what is compared, which ends before this one; None: that is not sure."""
    for at, depth, in_case in _walk(tokens, range(end - 1, -1, -1), _BACKWARD):
        token = tokens[at]
        if token.kind == "symbol":
            if depth < 0 or (not depth and not in_case and token.text in ",;"):
                return at + 1
        elif in_case:
            continue
        elif token.word in _SELECTING:
            return at + 1
        elif token.word in _BEGINNING:
            return None if token.word == "and" and _is_of_between(tokens, at) else at + 1
        elif token.word in _ENDING and not _is_function(tokens, at):
            return None
    return 0


def _is_of_between(tokens: Sequence[Token], end: int) -> bool:
    for at, depth, _ in _walk(tokens, range(end - 1, -1, -1), _BACKWARD):
        if depth < 0:
            return False
        if tokens[at].word in _JOINING or tokens[at].word == "between":
            return tokens[at].word == "between"
    return False


def _is_function(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at].word in _FUNCTIONS and at + 1 < len(tokens) and tokens[at + 1].text == "("
