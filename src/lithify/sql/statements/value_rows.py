"""The rows of an INSERT … VALUES, where one of their values is no expression that the engine takes there.

DEFAULT becomes NULL, and each row then says at its end in which places it stood (`,2,4,`; counted from 0): what a
column has for a default is known to whoever makes rows of the answer (`dml/assign.py`). A row with a subquery, which
the engine cannot evaluate within VALUES, becomes a SELECT of its own, and the rows are put in their order again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from lithify.core.sql_text import Token, positioned_tokens

_SOUGHT = re.compile(r"\b(?:default|select)\b", re.IGNORECASE)
_OPENING, _CLOSING = frozenset("(["), frozenset(")]")
_PLACE = '"_lithify_place"'


@dataclass(frozen=True)
class _Row:
    values: tuple[str, ...]
    asks: bool

    def without_defaults(self) -> _Row:
        """With the places of its defaults behind its values."""
        places = "".join(f",{place}" for place, value in enumerate(self.values) if _is_default(value))
        values = tuple("NULL" if _is_default(value) else value for value in self.values)
        return _Row((*values, f"'{places},'"), self.asks)


def places_of(mark: str) -> frozenset[int]:
    """Where DEFAULT stood in a row."""
    return frozenset(int(place) for place in mark.split(",") if place)


def without_defaults(source: str) -> tuple[str, bool]:
    """The source of an INSERT as the engine takes it, and whether its rows say at their end where DEFAULT stood. What
    is no VALUES alone stays as it is.
    """
    tokens = positioned_tokens(source) if _SOUGHT.search(source) else None
    rows = _rows(source, tokens) if tokens else None
    if rows is None:
        return source, False
    marked = any(_is_default(value) for row in rows for value in row.values)
    if marked:
        rows = [row.without_defaults() for row in rows]
    if any(row.asks for row in rows):
        return _selected(rows), marked
    return (f"VALUES {_listed(rows)}", True) if marked else (source, False)


def _is_default(value: str) -> bool:
    return value.lower() == "default"


def _listed(rows: Sequence[_Row]) -> str:
    return ", ".join(f"({', '.join(row.values)})" for row in rows)


def _selected(rows: Sequence[_Row]) -> str:
    names = [f'"_lithify_{number}"' for number in range(len(rows[0].values))]
    placed = [_Row((*row.values, str(place)), row.asks) for place, row in enumerate(rows)]
    parts = list[str]()
    for asks, group in groupby(placed, lambda row: row.asks):
        some = list(group)
        parts += [_select(row) for row in some] if asks else [f"VALUES {_listed(some)}"]
    union = "\nUNION ALL ".join(parts)
    return f"SELECT {', '.join(names)} FROM ({union}\n) AS v ({', '.join([*names, _PLACE])}) ORDER BY {_PLACE}"


def _select(row: _Row) -> str:
    """Each value under a name of its own: two that are written alike have the same otherwise."""
    return "SELECT " + ", ".join(f'{value} AS "_lithify_{number}"' for number, value in enumerate(row.values))


def _rows(source: str, tokens: Sequence[Token]) -> list[_Row] | None:
    """None: it is more than rows behind VALUES."""
    if tokens[0].word != "values" or tokens[0].kind != "word":
        return None
    rows, at = list[_Row](), 1
    while at < len(tokens) and tokens[at].text == "(":
        end = _closing(tokens, at)
        if end is None:
            return None
        inside = tokens[at + 1 : end]
        asks = any(token.kind == "word" and token.word == "select" for token in inside)
        rows.append(_Row(tuple(_values(source, inside)), asks))
        if end + 1 == len(tokens):
            return rows
        if tokens[end + 1].text != ",":
            return None
        at = end + 2
    return None


def _closing(tokens: Sequence[Token], at: int) -> int | None:
    depth = 0
    for position in range(at, len(tokens)):
        if tokens[position].kind == "symbol":
            depth += (tokens[position].text in _OPENING) - (tokens[position].text in _CLOSING)
            if depth == 0:
                return position
    return None


def _values(source: str, tokens: Sequence[Token]) -> Iterator[str]:
    depth, start = 0, 0
    for position, token in enumerate(tokens):
        if token.kind == "symbol":
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if depth == 0 and token.text == ",":
                yield source[tokens[start].start : tokens[position - 1].end]
                start = position + 1
    if tokens:
        yield source[tokens[start].start : tokens[-1].end]
