"""What a row must satisfy, as far as pruning understands it. A predicate holds where SQL makes it TRUE.

There is no negation of a whole predicate: whoever builds one pushes NOT down to the comparisons. So every part only
ever asks "can this be TRUE for some row?", and what is not understood is `UNKNOWN`, which may be TRUE for any row.
Values are Python values: bool, int, float, Decimal, str, bytes, date, and datetime, with an offset where the column's
times are instants and without one elsewhere. None stands for NULL. Two predicates are equal only if their values are
also of equal types, because 1 and True do not ask the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from lithify.core.sql_text import SQL_WORDS

Op = Literal["=", "<>", "<", "<=", ">", ">="]
OPS: frozenset[str] = frozenset(get_args(Op))
# Longer texts and lists are shortened for people.
SHOWN_CHARACTERS = 60
SHOWN_VALUES = 8


@dataclass(frozen=True)
class Compare:
    column: str
    op: Op
    value: Any
    _type: type = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert self.op in OPS, f"no comparison {self.op!r}"
        object.__setattr__(self, "_type", type(self.value))

    def __str__(self) -> str:
        return f"{self.column} {self.op} {_literal(self.value)}"


@dataclass(frozen=True)
class In:
    column: str
    values: tuple[Any, ...]
    negated: bool = False
    _types: tuple[type, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "_types", tuple(type(value) for value in self.values))

    def __str__(self) -> str:
        shown = [_literal(value) for value in self.values[:SHOWN_VALUES]]
        if len(self.values) > SHOWN_VALUES:
            shown.append(f"… {len(self.values) - SHOWN_VALUES:,} more")
        return f"{self.column} {'NOT IN' if self.negated else 'IN'} ({', '.join(shown)})"


@dataclass(frozen=True)
class IsNull:
    column: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.column} IS {'NOT NULL' if self.negated else 'NULL'}"


@dataclass(frozen=True)
class Prefix:
    """The value starts with these characters or bytes."""

    column: str
    prefix: str | bytes

    def __str__(self) -> str:
        return f"{self.column} STARTS WITH {_literal(self.prefix)}"


@dataclass(frozen=True)
class _Joined:
    parts: tuple[Predicate, ...]
    word: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))

    def __str__(self) -> str:
        other = [isinstance(part, _Joined) and part.word != self.word for part in self.parts]
        return f" {self.word} ".join(f"({part})" if o else str(part) for o, part in zip(other, self.parts, strict=True))


@dataclass(frozen=True)
class And(_Joined):
    word = "AND"


@dataclass(frozen=True)
class Or(_Joined):
    word = "OR"


@dataclass(frozen=True)
class Unknown:
    def __str__(self) -> str:
        return "(not understood)"


UNKNOWN = Unknown()
Predicate: TypeAlias = Compare | In | IsNull | Prefix | And | Or | Unknown


def both(parts: Iterable[Predicate]) -> Predicate:
    """All of them. What is not understood is left out: the rest still restricts."""
    known = [part for part in _flat(parts, And) if part != UNKNOWN]
    if not known:
        return UNKNOWN
    return known[0] if len(known) == 1 else And(tuple(known))


def either(parts: Iterable[Predicate]) -> Predicate:
    """At least one of them. One that is not understood may be TRUE anywhere, so then nothing is known."""
    known = list(_flat(parts, Or))
    if not known or UNKNOWN in known:
        return UNKNOWN
    return known[0] if len(known) == 1 else Or(tuple(known))


def columns_of(predicate: Predicate) -> set[str]:
    match predicate:
        case And(parts) | Or(parts):
            return set().union(*(columns_of(part) for part in parts))
        case Unknown():
            return set()
        case _:
            return {predicate.column}


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The parts of which every one must hold."""
    if isinstance(predicate, And):
        return tuple(_flat(predicate.parts, And))
    return () if predicate == UNKNOWN else (predicate,)


def _flat(parts: Iterable[Predicate], kind: type[And] | type[Or]) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, kind):
            yield from _flat(part.parts, kind)
        else:
            yield part


def _literal(value: Any) -> str:
    match value:
        case None | bool():
            return SQL_WORDS[value]
        case str():
            text = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "…"
            return "'" + text.replace("'", "''") + "'"
        case bytes():
            text = value[: SHOWN_CHARACTERS // 2].hex()
            return f"x'{text}{'…' if len(value) > SHOWN_CHARACTERS // 2 else ''}'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)
