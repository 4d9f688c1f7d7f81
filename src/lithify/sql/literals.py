"""What the numbers and times of an SQL text mean, beside whatever they stand.

The engine gives every constant a type before it knows what it is compared with, and then converts the column if they
differ. Two of its choices lose rows or fail: a decimal beside a float is compared as a decimal of 15 places, which has
no NaN and no 1e300; and a time is one of nanoseconds, which end in 2262. So the text is rewritten before it is planned:

- A number is exact, a decimal, if it has a point or is compared. Others with an exponent are doubles, and so is one
  that is divided, or divides, or is averaged, because the engine's decimals keep four digits of a quotient.
- Times have microseconds, as in every table: `timestamp '…'` and casts to a timestamp are of that type.
- A number beside a float is a double, and a text beside a time is a time. Only the engine knows what stands beside
  what. So it is asked: of the ways to write these constants, the one is taken whose plan converts the fewest columns
  for the worse. A plan that converts none, as nearly all do, is taken as it is.

  What was chosen for a text is taken again for another one that differs in the digits of its numbers alone.

A text in which it is not sure where constants stand is left alone.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from datafusion import DataFrame

from lithify.core.sql_text import Token, positioned_tokens
from lithify.sql.distinct_from import comparisons_bracketed
from lithify.sql.literal_positions import Brackets, Spot, fixed, is_far, midnights, numbers, times

# How a text is planned; and the columns of the tables that it names, afterwards.
Plan = Callable[[str], DataFrame]
Schemas = Callable[[], Iterable[pa.Schema]]

# Beyond so many, constants are written alike.
GROUPS_MAX = 24
CHOICES_CACHED_MAX, CACHED_TOKENS_MAX = 256, 1_024

_WORTH_A_LOOK = re.compile(r"\d\.|\.\d|\d[eE]|\d{19}|\d-\d|timestamp", re.IGNORECASE)
_AS_DECIMAL = re.compile(
    r"(?:CAST\((?P<column>[\w.\"]+))? AS Decimal(?:128|256)\((?P<digits>\d+), ?(?P<places>-?\d+)\)\)"
)
_AS_NANOSECONDS = re.compile(r" AS Timestamp\(ns")
# Digits before and after the point that the engine gives floats of 64 and of 32 bits as decimals.
_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 7
_DIGITS_MAX = 38

Group = Sequence[Spot]
Choice = tuple[int, ...]


class _Choices:
    """Those that were made for texts that look alike. The engine types a number by how many digits it has, so they
    decide with the columns of the tables what is converted.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Choice] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, alike: Hashable, make: Callable[[], Choice | None]) -> Choice | None:
        """None: no way could be planned, which may be another matter the next time."""
        with self._lock:
            if (found := self._made.get(alike)) is not None:
                self._made.move_to_end(alike)
                return found
        found = make()
        if found is None:
            return None
        with self._lock:
            self._made[alike] = found
            while len(self._made) > CHOICES_CACHED_MAX:
                self._made.popitem(last=False)
        return found


_choices = _Choices()


class Constants:
    """Those of one text, which are looked for once."""

    def __init__(self, query: str) -> None:
        self._query = comparisons_bracketed(query)
        self._tokens = positioned_tokens(self._query) if _WORTH_A_LOOK.search(query) else None
        brackets = Brackets.of(self._tokens or ())
        self._fixed, self._numbers = fixed(brackets), numbers(brackets)

    def spelled(self) -> str:
        """The text as far as it does not depend on what stands beside."""
        if not self._tokens:
            return self._query
        return _written(self._query, [*_first_ways(self._fixed), *_first_ways(itertools.chain(*self._numbers))])

    def meant(self, plan: Plan, schemas: Schemas) -> str:
        """The text to plan instead."""
        tokens = self._tokens
        if not tokens:
            return self._query
        text = _Text(self._query, self._fixed, plan, schemas)
        found = [_bounded(groups) for groups in (self._numbers, list(midnights(tokens)), times(tokens))]
        groups = list(itertools.chain(*found))
        if not groups:
            choice: Choice | None = None
        elif len(tokens) > CACHED_TOKENS_MAX:
            choice = text.best(*found)
        else:
            choice = _choices.find((_shape(tokens), tuple(schemas())), lambda: text.best(*found))
        return text.with_ways(groups, (0,) * len(groups) if choice is None else choice)


def _shape(tokens: Sequence[Token]) -> Hashable:
    """The text without the digits of its numbers."""
    return tuple((token.kind, _digits(token.text) if token.kind == "number" else token.word) for token in tokens)


def _digits(number: str) -> Hashable:
    """How many there are before and after the point; what has no point, or an exponent, as it is."""
    whole, point, decimals = number.partition(".")
    return (len(whole.lstrip("0")), len(decimals)) if point and number.replace(".", "").isdigit() else number


def _bounded(groups: list[list[Spot]]) -> list[list[Spot]]:
    return [*groups[: GROUPS_MAX - 1], list(itertools.chain(*groups[GROUPS_MAX - 1 :]))][: len(groups)]


def _first_ways(spots: Iterable[Spot]) -> list[tuple[Spot, str]]:
    return [(spot, spot.ways[0]) for spot in spots]


def _last_ways(groups: Sequence[Group]) -> Choice:
    return tuple(len(group[0].ways) - 1 for group in groups)


def _written(query: str, ways: Sequence[tuple[Spot, str]]) -> str:
    """The text with its spots written so. Of two at one position, the longer counts."""
    parts, end = [], 0
    for spot, way in sorted(ways, key=lambda each: (each[0].start, -each[0].end)):
        if spot.start >= end:
            parts += [query[end : spot.start], way]
            end = spot.end
    return "".join([*parts, query[end:]])


@dataclass(frozen=True)
class _Text:
    query: str
    fixed: Sequence[Spot]
    plan: Plan
    schemas: Schemas

    def best(self, numbers: list[list[Spot]], midnights: list[list[Spot]], times: list[list[Spot]]) -> Choice | None:
        """The ways whose plan costs least; of two that cost the same, those that come first. None: there is no plan."""
        groups = [*numbers, *midnights, *times]
        costs: dict[Choice, float] = {}

        def cost(choice: Choice) -> float:
            if choice not in costs:
                costs[choice] = self._cost(self._planned(self.with_ways(groups, choice)))
            return costs[choice]

        wanted = (0,) * len(groups)
        if cost(wanted) == 0:
            return wanted
        beside = self._beside_times(groups, wanted, range(len(groups) - len(times), len(groups)))
        starts = itertools.product(
            {(0,) * len(numbers), _last_ways(numbers)},
            {(0,) * len(midnights), _last_ways(midnights)},
            {(0,) * len(times), beside, _last_ways(times)},
        )
        best = min((tuple(itertools.chain(*each)) for each in starts), key=lambda choice: (cost(choice), sum(choice)))
        for number, group in enumerate(groups):
            for way in range(len(group[0].ways)):
                changed = (*best[:number], way, *best[number + 1 :])
                if (cost(changed), way) < (cost(best), best[number]):
                    best = changed
        return best if cost(best) < math.inf else None

    def with_ways(self, groups: Sequence[Group], choice: Choice, nulls: Iterable[int] = ()) -> str:
        ways = _first_ways(self.fixed)
        absent = set(nulls)
        for number, (group, way) in enumerate(zip(groups, choice, strict=True)):
            ways += [(spot, "null" if number in absent else spot.ways[way]) for spot in group]
        return _written(self.query, ways)

    def _beside_times(self, groups: Sequence[Group], choice: Choice, numbers: range) -> Choice:
        """For each of these texts, whether it is to be written as a time: beside one, and only there, it cannot be
        planned as it is, while NULL in its place can.
        """
        found = []
        for number in numbers:
            far = any(is_far(spot.ways[0].removeprefix("date ")) for spot in groups[number])
            others = [other for other in numbers if other != number]
            found.append(int(far and self._planned(self.with_ways(groups, choice, others)) is None))
        return tuple(found)

    def _planned(self, text: str) -> str | None:
        try:
            return str(self.plan(text).optimized_logical_plan().display_indent())
        except Exception:  # another way to write it can perhaps be planned; if none can, the query itself says why
            return None

    def _cost(self, plan: str | None) -> float:
        """How many columns a plan converts to types that do not hold all of their values."""
        if plan is None:
            return math.inf
        kinds: dict[str, set[pa.DataType]] = {}
        for schema in self.schemas():
            for column in schema:
                kinds.setdefault(column.name, set()).add(column.type)
        worse = sum(_loses(found, kinds) for found in _AS_DECIMAL.finditer(plan))
        return worse + len(_AS_NANOSECONDS.findall(plan))


def _loses(cast: re.Match[str], kinds: dict[str, set[pa.DataType]]) -> bool:
    digits, scale = int(cast["digits"]), int(cast["places"])
    names = (cast["column"] or "").replace('"', "").split(".")
    known = kinds.get(names[-1], set())
    if known:
        return any(
            pa.types.is_floating(kind)
            or (pa.types.is_decimal(kind) and digits == _DIGITS_MAX and kind.precision - kind.scale > digits - scale)
            for kind in known
        )
    as_float = any(pa.types.is_float32(kind) for each in kinds.values() for kind in each)
    least = _FLOAT_DIGITS if as_float else _DOUBLE_DIGITS
    return scale >= least and digits - scale >= least
