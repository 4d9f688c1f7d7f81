"""Which types the parameters of a query have, as far as the words around them tell. Pure.

Drivers like JDBC ask before they send values, and convert to what they are told. A parameter that is compared with a
column has its type, one behind LIMIT is a whole number, and any other is text: the engine compares a text that spells a
number as a number. The text is only cut into words, once: whoever sends it cannot make that expensive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from lithify.core.names import plain_name
from lithify.core.sql_text import Token, all_tokens

COMPARING = frozenset("<>=!")
VALUES = frozenset({"number", "text"})
# The columns of a table by its name, or None if there is no such table to this caller.
ColumnsOf = Callable[[str], pa.Schema | None]


def parameter_types(query: str, count: int, columns_of: ColumnsOf) -> pa.Schema:
    """`query` with $1, $2, …, of which there are `count`."""
    tokens = all_tokens(query)
    types = _column_types(tokens, columns_of)
    found: dict[int, pa.DataType] = {}
    for at, number in _parameters(tokens):
        column = _beside(tokens, at)
        found[number] = pa.int64() if column == LIMIT else types.get(column, pa.string())
    return pa.schema([(f"${number}", found.get(number, pa.string())) for number in range(1, count + 1)])


LIMIT = "limit "  # no name of a column


def _parameters(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    for at, token in enumerate(tokens[:-1]):
        if token.text == "$" and tokens[at + 1].text.isdecimal():
            yield at, int(tokens[at + 1].text)


def _beside(tokens: Sequence[Token], at: int) -> str:
    """The column that the parameter whose sign stands here is compared with; "" for none."""
    before = _back(tokens, at - 1)
    word = tokens[before].word if before >= 0 else ""
    if word in ("limit", "offset"):
        return LIMIT
    if word == "(" and before and tokens[before - 1].word == "in":
        before -= 1
        return _name(tokens, before - 1 - (tokens[before - 1].word == "not"))
    if word == "between":
        return _name(tokens, before - 1 - (tokens[before - 1].word == "not"))
    compared = before
    while compared >= 0 and tokens[compared].text in COMPARING:
        compared -= 1
    if compared != before and before == at - 1:
        return _name(tokens, compared)
    after = at + 2
    while after < len(tokens) and tokens[after].text in COMPARING:
        after += 1
    if after == at + 2:
        return ""
    while after + 2 < len(tokens) and tokens[after + 1].text == ".":
        after += 2
    return _name(tokens, after)


def _back(tokens: Sequence[Token], at: int) -> int:
    """Over further values of a list, and the lower bound of a range."""
    while (at > 0 and tokens[at].text in (",", "and")) or (at > 0 and tokens[at].word == "and"):
        at -= 1
        if tokens[at].kind not in VALUES:
            return at + 1
        at -= 1 + (tokens[at - 1].text == "$")
    return at


def _name(tokens: Sequence[Token], at: int) -> str:
    token = tokens[at] if 0 <= at < len(tokens) else None
    if token is None or token.kind not in ("word", "quoted"):
        return ""
    return token.text[1:-1] if token.kind == "quoted" else token.word


def _column_types(tokens: Sequence[Token], columns_of: ColumnsOf) -> Mapping[str, pa.DataType]:
    """Of the columns of all tables that the text names, where they agree on the type."""
    types: dict[str, set[pa.DataType]] = {}
    for name in {name for at in range(len(tokens)) if (name := _table(tokens, at))}:
        for column in columns_of(name) or ():
            types.setdefault(column.name, set()).add(column.type)
    return {column: next(iter(found)) for column, found in types.items() if len(found) == 1}


def _table(tokens: Sequence[Token], at: int) -> str:
    """What stands behind FROM, JOIN or a comma: namespace.table, or with the catalog before it."""
    if tokens[at].word not in ("from", "join", ","):
        return ""
    parts = []
    for part in range(at + 1, min(at + 6, len(tokens)), 2):
        parts.append(_name(tokens, part))
        if not parts[-1] or part + 1 >= len(tokens) or tokens[part + 1].text != ".":
            break
    return plain_name(".".join(parts)) if all(parts) and len(parts) > 1 else ""
