"""Where in a block the rows with some keys lie: by binary search, column by column.

The wanted keys are sorted once, so what lies outside of a block's bounds is cut off at both ends. A block that is
sorted by key, as those of base are, is searched as it lies; any other gets an order of two bytes a row when it is first
asked. The first column gives each wanted key a range of rows with its value, each further column narrows that range.
All keys are searched for at once: a step of the search is one comparison of arrays.

That needs an order that Arrow and numpy agree on, and values that are there: whole numbers, times, text and bytes
without nulls. For other keys `searchable` says no, and they are found by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import order_of, strictly_ascending
from lithify.core.column_types import type_of

Positions = np.ndarray
# Numbers for numpy, anything else for Arrow: for a handful of values, numpy's calls take a tenth of the time.
Values = Any
NOWHERE = np.empty(0, np.int64)


def searchable(columns: Sequence[pa.Array | pa.ChunkedArray]) -> bool:
    return all(
        not values.null_count and (type_of(kind := values.type).is_counted or kind in (pa.string(), pa.binary()))
        for values in columns
    )


class Wanted:
    """Keys to be found, each once."""

    def __init__(self, keys: pa.Table, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.keys = keys.select(list(by)).combine_chunks()
        self.lines = np.arange(keys.num_rows)
        self.nulls = any(self.keys.column(name).null_count for name in by)
        self.types = [column.type for column in self.keys.schema]
        self.is_sorted = bool(keys.num_rows) and searchable(self.keys.columns)
        if self.is_sorted:
            one = keys.num_rows == 1
            self.sorted_lines = self.lines if one else order_of(self.keys, self.by)
            ordered = self.keys if one else self.keys.take(pa.array(self.sorted_lines))
            self.values = [_values(column.combine_chunks()) for column in ordered.columns]

    def is_searchable_in(self, order: BlockKeys) -> bool:
        return self.is_sorted and order.types == self.types


@dataclass(frozen=True)
class BlockKeys:
    """How the keys of a block lie: sorted as they are (`order` is None), or in this order. Its first column lies within
    `low` and `high`. Without `types`, it cannot be searched.
    """

    order: np.ndarray | None
    types: Sequence[pa.DataType] | None = None
    values: Sequence[Values] = ()
    low: Values = None
    high: Values = None

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> BlockKeys:
        """Of at least one row."""
        if not searchable(columns):
            return cls(None)
        order, first, last = None, 0, len(columns[0]) - 1
        if not strictly_ascending(columns):
            names = [str(number) for number in range(len(columns))]
            order = order_of(pa.table(list(columns), names), names).astype(np.uint16)
            first, last = int(order[0]), int(order[-1])
        values = [_values(column) for column in columns]
        low, high = (values[0][row : row + 1] for row in (first, last))
        return cls(order, [column.type for column in columns], values, low, high)

    def find(self, wanted: Wanted) -> tuple[Positions, Positions]:
        """Pairs of a line of `wanted` and the position of a row with its key. Of equal rows, all are found."""
        first, last = self._near(wanted.values[0])
        if first == last:
            return NOWHERE, NOWHERE
        starts, ends = np.zeros(last - first, np.int64), np.full(last - first, len(self.values[0]), np.int64)
        for number, (values, sought) in enumerate(zip(self.values, wanted.values, strict=True)):
            near = sought[first:last]
            if number == 0 and self.order is None:
                starts, ends = _search(values, near, "left"), _search(values, near, "right")
            else:
                starts, ends = self._narrowed(values, near, starts, ends)
        counts = ends - starts
        lines = np.repeat(wanted.sorted_lines[first:last], counts)
        places = np.repeat(starts - np.concatenate([[0], counts.cumsum()[:-1]]), counts) + np.arange(counts.sum())
        return lines, self._rows(places)

    def _near(self, sought: Values) -> tuple[int, int]:
        """Which of the wanted keys have a first value within the bounds of this block."""
        return int(_search(sought, self.low, "left")[0]), int(_search(sought, self.high, "right")[0])

    def _rows(self, places: Positions) -> Positions:
        return places if self.order is None else self.order[places].astype(np.int64)

    def _narrowed(
        self, values: Values, sought: Values, starts: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        """Where in its range each sought value begins and ends."""

        def is_before(places: Positions, which: Positions) -> np.ndarray:
            return _compared(values, self._rows(places), sought, which, np.less, pc.less)

        def is_not_after(places: Positions, which: Positions) -> np.ndarray:
            return _compared(values, self._rows(places), sought, which, np.less_equal, pc.less_equal)

        begin = _parted(is_before, starts, ends)
        # Most values stand there once: a long run is looked for only where two in a row are found.
        soon = np.minimum(begin + 2, ends)
        end = _parted(is_not_after, begin, soon)
        run = end == soon
        return begin, _parted(is_not_after, end, np.where(run, ends, end)) if run.any() else end


def _parted(holds: Callable[[Positions, Positions], np.ndarray], starts: Positions, ends: Positions) -> Positions:
    """For each range the first place for which it does not hold, where it holds for none after such a place."""
    low, high = starts.copy(), ends.copy()
    while len(which := np.flatnonzero(low < high)):
        middle = (low[which] + high[which]) >> 1
        held = holds(middle, which)
        low[which] = np.where(held, middle + 1, low[which])
        high[which] = np.where(held, high[which], middle)
    return low


def _compared(
    values: Values,
    rows: Positions,
    sought: Values,
    which: Positions,
    of_numbers: Callable[[np.ndarray, np.ndarray], np.ndarray],
    of_others: Callable[[pa.Array, pa.Array], pa.Array],
) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return of_numbers(values[rows], sought[which])
    found = of_others(values.take(pa.array(rows)), sought.take(pa.array(which)))
    compared: np.ndarray = found.to_numpy(zero_copy_only=False)
    return compared


def _search(values: Values, sought: Values, side: str) -> Positions:
    if isinstance(values, np.ndarray):
        return values.searchsorted(sought, side=side)  # type: ignore[call-overload, no-any-return]
    return np.asarray(pc.search_sorted(values, sought, side=side).to_numpy(), np.int64)


def _values(column: pa.Array) -> Values:
    kind = type_of(column.type)
    return kind.ordered(column).to_numpy() if kind.is_counted else column
