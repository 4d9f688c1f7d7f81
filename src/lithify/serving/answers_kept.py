"""Answers that are kept, so that a query that comes again over unchanged tables is answered at once.

An answer is kept under the query's normalised text and what was asked of it (a row limit). It holds while every table
it was made from still has the snapshot that it was made from; a query is parsed and planned only when that fails.
Queries that ask for the time or for chance are never kept. Their bytes come from the budget of the hot tables, up to a
share of it; the least recently used answer goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lithify.errors import LimitExceeded
from lithify.serving.hot_budget import Budget

SHARE_OF_BUDGET, BYTES_MAX = 16, 256 * 2**20
# One answer takes at most this share of all of them.
SHARE_OF_ANSWERS = 8
# What an entry takes besides its rows.
ENTRY_BYTES = 1_024

Identity = tuple[str, int, int]
Place = tuple[str, str]


@dataclass(frozen=True)
class Kept:
    rows: pa.Table
    cut: bool
    tables: Mapping[Place, Identity]
    seqs: Mapping[str, int]
    bytes: int


@dataclass(frozen=True)
class AnswersStats:
    count: int
    bytes: int
    hits: int
    misses: int


class KeptAnswers:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes_max = min(budget.bytes_max // SHARE_OF_BUDGET, BYTES_MAX)
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = self._hits = self._misses = 0

    def find(self, key: Hashable, identity_of: Callable[[Place], Identity | None]) -> Kept | None:
        """The answer, if each of its tables still has the identity that it had. `identity_of` may raise: a table that
        the caller may not see has no answer either.
        """
        with self._lock:
            kept = self._kept.get(key)
        found = kept is not None and all(identity_of(place) == was for place, was in kept.tables.items())
        with self._lock:
            if found:
                self._hits += 1
                if key in self._kept:
                    self._kept.move_to_end(key)
                return kept
            self._misses += 1
            if kept is not None and self._kept.get(key) is kept:
                self._drop(key)
            return None

    def keep(
        self, key: Hashable, rows: pa.Table, cut: bool, tables: Mapping[Place, Identity], seqs: Mapping[str, int]
    ) -> None:
        size_bytes = rows.get_total_buffer_size() + ENTRY_BYTES
        if size_bytes > self._bytes_max // SHARE_OF_ANSWERS:
            return
        with self._lock:
            if key in self._kept:
                self._drop(key)
            while self._bytes + size_bytes > self._bytes_max:
                self._drop(next(iter(self._kept)))
            if self._budget.free_bytes < size_bytes:
                return  # tables are worth more than answers
            try:
                self._budget.take(size_bytes)
            except LimitExceeded:
                return
            self._kept[key] = Kept(rows, cut, dict(tables), dict(seqs), size_bytes)
            self._bytes += size_bytes

    def _drop(self, key: Hashable) -> None:
        gone = self._kept.pop(key)
        self._bytes -= gone.bytes
        self._budget.give_back(gone.bytes)

    def clear(self) -> int:
        with self._lock:
            freed = self._bytes
            for key in list(self._kept):
                self._drop(key)
            return freed

    def stats(self) -> AnswersStats:
        with self._lock:
            return AnswersStats(len(self._kept), self._bytes, self._hits, self._misses)
