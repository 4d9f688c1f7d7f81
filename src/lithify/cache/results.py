"""Answers that are kept, so that a query that comes again over unchanged tables is answered at once.

An answer is kept under the query's normalised text and what was asked of it (a row limit). It holds while every table
it was made from still has the snapshot that it was made from; a query is parsed and planned only when that fails.
Queries that ask for the time or for chance are never kept. Their bytes come from the budget of the hot tables, up to a
share of it; the least recently used answer goes first.

An answer is kept as a copy. The few rows that a query answers with are often a view of the engine's whole batches, and
Arrow cannot tell how large those are; of the copy it is known, and it keeps nothing else alive.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lithify.cache.memory_account import MemoryAccount
from lithify.core.names import TableRef
from lithify.core.results import ResultCacheStats
from lithify.errors import LimitExceeded

SHARE_OF_BUDGET, BYTES_MAX = 16, 256 * 2**20
# One answer takes at most this share of all of them.
SHARE_OF_ANSWERS = 8
# What an entry takes besides its rows and its text, and what Arrow takes to know of one array.
ENTRY_BYTES, ARRAY_BYTES = 1_024, 512

Key = tuple[Hashable, ...]
Identity = tuple[str, int, int]


@dataclass(frozen=True)
class CachedResult:
    rows: pa.Table
    cut: bool
    tables: Mapping[TableRef, Identity]
    seqs: Mapping[str, int]
    bytes: int


class ResultCache:
    def __init__(self, budget: MemoryAccount) -> None:
        self._budget = budget
        self._bytes_max = min(budget.bytes_max // SHARE_OF_BUDGET, BYTES_MAX)
        self._entries: OrderedDict[Key, CachedResult] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = self._hits = self._misses = 0

    def find(self, key: Key, identity_of: Callable[[TableRef], Identity | None]) -> CachedResult | None:
        """The answer, if each of its tables still has the identity that it had. `identity_of` may raise: a table that
        the caller may not see has no answer either.
        """
        with self._lock:
            cached = self._entries.get(key)
        found = cached is not None and all(identity_of(ref) == was for ref, was in cached.tables.items())
        with self._lock:
            if found:
                self._hits += 1
                if key in self._entries:
                    self._entries.move_to_end(key)
                return cached
            self._misses += 1
            if cached is not None and self._entries.get(key) is cached:
                self._drop(key)
            return None

    def keep(
        self, key: Key, rows: pa.Table, cut: bool, tables: Mapping[TableRef, Identity], seqs: Mapping[str, int]
    ) -> None:
        most_bytes = self._bytes_max // SHARE_OF_ANSWERS
        if rows.nbytes > most_bytes:
            return
        rows, size_bytes = copied(rows)
        size_bytes += ENTRY_BYTES + sum(map(sys.getsizeof, key))
        if size_bytes > most_bytes:
            return
        with self._lock:
            if key in self._entries:
                self._drop(key)
            while self._bytes + size_bytes > self._bytes_max:
                self._drop(next(iter(self._entries)))
            if self._budget.free_bytes < size_bytes:
                return  # tables are worth more than answers
            try:
                self._budget.take(size_bytes)
            except LimitExceeded:
                return
            self._entries[key] = CachedResult(rows, cut, dict(tables), dict(seqs), size_bytes)
            self._bytes += size_bytes

    def _drop(self, key: Key) -> None:
        gone = self._entries.pop(key)
        self._bytes -= gone.bytes
        self._budget.give_back(gone.bytes)

    def clear(self) -> int:
        with self._lock:
            freed = self._bytes
            for key in list(self._entries):
                self._drop(key)
            return freed

    def stats(self) -> ResultCacheStats:
        with self._lock:
            return ResultCacheStats(len(self._entries), self._bytes, self._hits, self._misses)


def copied(rows: pa.Table) -> tuple[pa.Table, int]:
    """The same rows in buffers of their own, and how many bytes those and what belongs to them take."""
    arrays = sum(_arrays(field.type) for field in rows.schema)
    buffers: list[pa.Buffer]
    if any(_has_dictionary(field.type) for field in rows.schema):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        buffers = [pa.py_buffer(sink.getvalue().to_pybytes())]  # a stream's own buffer has room for more
        copy = pa.ipc.open_stream(buffers[0]).read_all()
    else:
        buffers = [batch.serialize() for batch in rows.to_batches()]
        copy = pa.Table.from_batches([pa.ipc.read_record_batch(buffer, rows.schema) for buffer in buffers], rows.schema)
    return copy, sum(buffer.size for buffer in buffers) + arrays * (1 + len(buffers)) * ARRAY_BYTES


def _arrays(kind: pa.DataType) -> int:
    """How many arrays hold the values of a column: its own, and those inside of it."""
    return 1 + sum(_arrays(field.type) for field in _fields(kind))


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(_has_dictionary(field.type) for field in _fields(kind))


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]
