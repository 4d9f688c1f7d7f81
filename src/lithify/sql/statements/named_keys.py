"""Keys that a condition names: `id IN (1, 2, 3) AND …`, or `id = 7`.

Who knows them looks the rows up, instead of asking the engine which rows of the table a text with a thousand constants
holds for. So of a condition that is joined by AND alone, one part is taken out where it is nothing but the key, by its
name or by the target's and its own, beside whole numbers. What the part said is in the keys; in the text TRUE stands in
its place. Anything else stays where it is: a text may have to be converted first, and then the engine says how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lithify.core.sql_text import Token, positioned_tokens

# Where one of these stands outside of brackets, what follows AND need not be a part of its own.
_OTHERWISE = frozenset({"or", "xor", "between", "case", "lambda"})
_OPENING, _CLOSING = "([{", ")]}"
# No key has more, and Python refuses to read thousands of them.
_DIGITS_MAX = 100


@dataclass(frozen=True)
class NamedKeys:
    """`rest`: what else must hold, None if nothing does."""

    values: tuple[int, ...]
    rest: str | None


def named_keys(where: str, key: str, target: str) -> NamedKeys | None:
    """`key`: the name of the one key column. `target`: what the statement calls its table."""
    tokens = positioned_tokens(where)
    parts = None if tokens is None else _parts(tokens)
    if parts is None:
        return None
    for part in parts:
        values = _values(part, key, target)
        if values is not None:
            # With blanks: `id IN (1)AND b` needs none.
            rest = None if len(parts) == 1 else f"{where[: part[0].start]} TRUE {where[part[-1].end :]}"
            return NamedKeys(values, rest)
    return None


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


def _values(part: Sequence[Token], key: str, target: str) -> tuple[int, ...] | None:
    at = 0
    if len(part) > 2 and part[1].text == ".":
        if _name(part[0]) != target:
            return None
        at = 2
    if at + 2 >= len(part) or _name(part[at]) != key:
        return None
    beside, constants = part[at + 1], part[at + 2 :]
    if beside.word == "in" and beside.kind == "word" and len(constants) > 2:
        if (constants[0].text, constants[-1].text) != ("(", ")"):
            return None
        return _listed(constants[1:-1])
    if beside.kind == "symbol" and beside.text == "=":
        found = _listed(constants)
        return found if found is not None and len(found) == 1 else None
    return None


def _name(token: Token) -> str | None:
    if token.kind == "quoted":
        return token.text[1:-1].replace('""', '"')
    return token.word if token.kind == "word" else None


def _listed(tokens: Sequence[Token]) -> tuple[int, ...] | None:
    found = tuple(_constants(tokens))
    return None if None in found else found  # type: ignore[return-value]


def _constants(tokens: Sequence[Token]) -> Iterator[int | None]:
    """Constants between commas; None among them: there is something else."""
    at = 0
    while True:
        negative = at < len(tokens) and tokens[at].text == "-"
        at += negative
        if at >= len(tokens):
            yield None
            return
        token = tokens[at]
        if (
            token.kind != "number"
            or not (token.text.isascii() and token.text.isdecimal())
            or len(token.text) > _DIGITS_MAX
        ):
            yield None
            return
        yield -int(token.text) if negative else int(token.text)
        at += 1
        if at == len(tokens):
            return
        if tokens[at].text != ",":
            yield None
            return
        at += 1
