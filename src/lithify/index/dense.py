"""Keys that stand in a row group for sure, told by its statistics alone.

Keys are unique in base. So a row group without nulls that has as many rows as there are numbers from its least key to
its greatest holds each of these numbers once: of the orders 1,000,000 to 1,131,071 in 131,072 rows none is missing.
Whoever asks whether such a key is there need not read the file.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lithify.index.stats import ABSENT, EXACT, NULLS_KNOWN, ColumnStats, Kind

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_COUNTED = (Kind.SIGNED, Kind.DATE)


class DenseRanges:
    """`low` and `high` of row groups that hold all numbers in between, in order. They do not overlap."""

    def __init__(self, parts: Iterable[tuple[Flags, ColumnStats | None]]) -> None:
        """Of each block of an index: the row groups that count, and what is known of the key in all of them."""
        found = [_dense(inside, stats) for inside, stats in parts if stats is not None]
        self._low = np.concatenate([np.empty(0, np.int64), *(low for low, _ in found)])
        self._high = np.concatenate([np.empty(0, np.int64), *(high for _, high in found)])
        order = np.argsort(self._low)
        self._low, self._high = self._low[order], self._high[order]

    def hold(self, keys: Numbers) -> Flags:
        """Per key: whether it is in one of them."""
        if not len(self._low):
            return np.zeros(len(keys), np.bool_)
        at = np.searchsorted(self._low, keys, "right") - 1
        inside: Flags = (at >= 0) & (keys <= self._high[np.maximum(at, 0)])
        return inside


def _dense(inside: Flags, stats: ColumnStats) -> tuple[Numbers, Numbers]:
    if stats.kind not in _COUNTED:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    told = EXACT | NULLS_KNOWN
    known = inside & ((stats.flags & (told | ABSENT)) == told) & (stats.nulls == 0) & (stats.rows > 0)
    low, high = np.asarray(stats.low, np.int64), np.asarray(stats.high, np.int64)
    # Without a sign the difference of any two of them is right.
    numbers = high.view(np.uint64) - low.view(np.uint64)
    dense = known & (low <= high) & (numbers == np.asarray(stats.rows, np.uint64) - np.uint64(1))
    return low[dense], high[dense]
