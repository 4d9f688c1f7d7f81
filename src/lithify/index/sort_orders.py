"""In which order the rows of each file are, as its footer states it.

A footer has the order of each row group: columns, and of each whether it descends and where its nulls are. The index
keeps it with the columns, as a number that is 0 for a column that is none of them (docs/format.md, array 48). What a
footer does not state, and what an older index does not know, look alike: then nothing is known of the order.

Other writers state orders too, and nobody has looked at their rows. So this is for people and for choices of cost; no
answer may rest on it. Nor is it told to DataFusion, which would gain and lose by it: over 4 million rows in 8 files and
on 2 busy cores, GROUP BY and a join on the column took twice as long, ORDER BY of all rows no less, and only LIMIT and
a window over the column were faster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lithify.index.block import Block
from lithify.index.format import Array

_DESCENDING, _NULLS_FIRST, _RANK = 1, 2, 4


def sort_number(rank: int, *, descending: bool, nulls_first: bool) -> int:
    """`rank`: from 0, among the columns of the order."""
    return (rank + 1) * _RANK | descending * _DESCENDING | nulls_first * _NULLS_FIRST


@dataclass(frozen=True)
class SortColumn:
    name: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return f"{self.name}{' desc' * self.descending}{' nulls first' * self.nulls_first}"


Order = tuple[SortColumn, ...]


def orders_of(block: Block, live: npt.NDArray[np.bool_]) -> Counter[Order]:
    """How many of the live files are in which order. The empty one: none that all of their row groups state."""
    files = np.flatnonzero(live)
    stated = [number for number in range(len(block.columns)) if block.states(number, Array.SORT)]
    if not stated:
        return Counter({(): len(files)})
    sorts = np.stack([block.chunk_array(number, Array.SORT).astype(np.uint64) for number in stated], axis=1)
    first = block.first_group.astype(np.int64)
    has_groups = first[:-1] < first[1:]
    of_file = np.zeros((block.files, len(stated)), np.uint64)
    of_file[has_groups] = sorts[first[:-1][has_groups]]
    differing = block.file_of_group[(sorts != of_file[block.file_of_group]).any(axis=1)]
    of_file[differing] = 0
    found: Counter[Order] = Counter()
    for numbers, count in zip(*np.unique(of_file[files], axis=0, return_counts=True), strict=True):
        columns = zip(stated, numbers.tolist(), strict=True)
        found[_order({sort: block.columns[number].name for number, sort in columns if sort})] += int(count)
    return found


def _order(named: dict[int, str]) -> Order:
    """By the numbers of its columns; up to the first that the index does not have."""
    columns = {sort // _RANK: (name, sort) for sort, name in named.items()}
    order: list[SortColumn] = []
    while (found := columns.get(len(order) + 1)) is not None:
        name, sort = found
        order.append(SortColumn(name, bool(sort & _DESCENDING), bool(sort & _NULLS_FIRST)))
    return tuple(order)
