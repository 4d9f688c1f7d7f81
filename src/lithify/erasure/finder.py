"""Finding any of many byte strings in large data.

A few are searched for one after the other, which runs at the speed of memory. Of many, the first three bytes are looked
up at every place at once in a table of 2^24 bits, and only where that says yes the rest is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from lithify.erasure.needles import BYTES_MIN, Spelling

FEW = 24


class Finder:
    def __init__(self, spellings: Iterable[Spelling]) -> None:
        self._all = sorted(set(spellings), key=lambda spelling: (spelling.data, spelling.bounded))
        assert all(len(spelling.data) >= BYTES_MIN for spelling in self._all), "too short to be found as bytes"
        self.longest = max((len(spelling.data) for spelling in self._all), default=0)
        self._table: np.ndarray | None = None
        self._by_start: dict[bytes, list[Spelling]] = defaultdict(list)
        if len(self._all) > FEW:
            self._table = np.zeros(1 << 24, np.bool_)
            for spelling in self._all:
                self._by_start[spelling.data[:BYTES_MIN]].append(spelling)
                first, second, third = spelling.data[:3]
                self._table[first << 16 | second << 8 | third] = True

    def __bool__(self) -> bool:
        return bool(self._all)

    def found(self, data: bytes) -> set[Spelling]:
        if self._table is None:
            return {spelling for spelling in self._all if _stands_in(spelling, data)}
        if len(data) < BYTES_MIN:
            return set()
        values = np.frombuffer(data, np.uint8).astype(np.uint32)
        places = np.flatnonzero(self._table[values[:-2] << 16 | values[1:-1] << 8 | values[2:]])
        candidates = {data[place : place + BYTES_MIN] for place in places.tolist()} & self._by_start.keys()
        return {spelling for start in candidates for spelling in self._by_start[start] if _stands_in(spelling, data)}


def _stands_in(spelling: Spelling, data: bytes) -> bool:
    place, size = data.find(spelling.data), len(spelling.data)
    while place >= 0:
        if not spelling.bounded or not _touched(data, place, size):
            return True
        place = data.find(spelling.data, place + 1)
    return False


def _touched(data: bytes, place: int, size: int) -> bool:
    before, after = data[place - 1 : place] if place else b"", data[place + size : place + size + 1]
    return before.isalnum() or after.isalnum()
