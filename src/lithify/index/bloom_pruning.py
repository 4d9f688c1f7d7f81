"""Which row groups may hold what a query asks for, by their bloom filters: `False` only with proof.

Asked are lists of values of which a row must hold one, under AND and OR (`group_pruning.equalities`). A filter that is
not there, or a value that is not sure to be spelled as in the file, answers "perhaps".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lithify.core.predicates import And, In, Or, Predicate
from lithify.errors import LithifyError
from lithify.index.block import Block
from lithify.index.bloom import bloom_bytes, may_hold
from lithify.index.stats import ABSENT, CALENDAR, HAS_MIN, ColumnStats, Kind

# Each value is a small read at a random place; beyond so many of them, row groups are read without asking.
LOOKS_MAX = 512

Flags = NDArray[np.bool_]


class Blooms:
    """The bloom filters of some row groups of one block; `path_of` gives the file of each by its place in `groups`."""

    def __init__(
        self,
        block: Block,
        stats_of: Callable[[str], ColumnStats | None],
        groups: Sequence[int],
        path_of: Callable[[int], str],
    ) -> None:
        self._block, self._stats_of, self._groups, self._path_of = block, stats_of, groups, path_of
        self._infos = {info.name: info for info in block.columns}
        self._looks_left = LOOKS_MAX

    def may_hold(self, asked: Predicate, among: Flags) -> Flags:
        """Which of these row groups may hold a row that is asked for."""
        match asked:
            case And(parts):
                # The shortest list says the most for its price.
                for part in sorted(parts, key=_values_in):
                    among = self.may_hold(part, among)
                return among
            case Or(parts):
                found = np.zeros(len(among), np.bool_)
                for part in parts:
                    found |= self.may_hold(part, among & ~found)
                return found
            case In(column, values, False):
                return self._may_hold_one(column, values, among)
            case _:
                return among

    def _may_hold_one(self, column: str, values: tuple[Any, ...], among: Flags) -> Flags:
        stats, chunks, info = self._stats_of(column), self._block.chunks(column), self._infos.get(column)
        if stats is None or chunks is None or info is None or stats.kind is Kind.FLOAT:
            return among
        spelled = [bloom_bytes(info, value) for value in values]
        wanted = [code for codes in spelled for code in codes or ()]
        places = np.flatnonzero(among).tolist()
        if None in spelled or len(places) * len(values) > self._looks_left:
            return among
        self._looks_left -= len(places) * len(values)
        # Without bounds, days and times are perhaps those of another calendar.
        needed = HAS_MIN if stats.kind in CALENDAR else 0
        keep = among.copy()
        for place in places:
            group = self._groups[place]
            offset, flags = int(chunks.bloom_offset[group]), int(stats.flags[group])
            if offset and not flags & ABSENT and flags & needed == needed:
                keep[place] = _may_hold(PurePath(self._path_of(place)), offset, wanted)
        return keep


def _values_in(asked: Predicate) -> int:
    match asked:
        case And(parts) | Or(parts):
            return sum(map(_values_in, parts))
        case In(_, values, _):
            return len(values)
        case _:
            return 0


def _may_hold(path: PurePath, offset: int, values: Sequence[bytes]) -> bool:
    try:
        return may_hold(path, offset, values)
    except LithifyError:  # whoever reads the file says what is wrong with it
        return True
