"""How many bytes the caches hold, told by what is alive and not by what somebody meant to keep.

A block of rows lies in shared memory (`cache/shared_memory`). It is charged when it is made and released when the last
reader of its memory lets go of it, so a table that was replaced while a query reads it still counts. Whoever wants to
make one asks for room first; the owner of the caches then gives up what it can. Nothing is made without room.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from lithify.cache.extents import in_pages
from lithify.cache.hot_rows import StoredBatch
from lithify.cache.shared_memory import Layout, SharedMemory
from lithify.errors import LimitExceeded


class MemoryAccount:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._bytes = 0
        # A block may be released while another is charged, in the same thread: by the garbage collector.
        self._lock = threading.RLock()
        self._make_room: Callable[[int], None] = lambda wanted_bytes: None
        self.memory = SharedMemory()

    def on_pressure(self, make_room: Callable[[int], None]) -> None:
        """`make_room(bytes)` is called without a lock when so many more are needed than are free."""
        self._make_room = make_room

    @property
    def bytes(self) -> int:
        return self._bytes

    def take(self, size_bytes: int) -> None:
        """Raises LimitExceeded where there is no room for so many bytes, whatever is given up for them."""
        if self._taken(size_bytes):
            return
        self._make_room(size_bytes)
        if not self._taken(size_bytes):
            raise LimitExceeded(
                f"the cache has no room for {size_bytes:,} more bytes: it holds {self._bytes:,} of "
                f"{self.bytes_max:,}; evict another table, choose fewer columns, or raise cache_bytes_max",
                limit="size",
            )

    def _taken(self, size_bytes: int) -> bool:
        with self._lock:
            if self._bytes + size_bytes > self.bytes_max:
                return False
            self._bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes -= size_bytes

    @property
    def free_bytes(self) -> int:
        return max(self.bytes_max - self._bytes, 0)

    @contextmanager
    def room(self, size_bytes: int) -> Iterator[Reservation]:
        """Kept free while something is made, which then takes the place of it."""
        self.take(size_bytes)
        room = Reservation(self, size_bytes)
        try:
            yield room
        finally:
            self.give_back(room.bytes)


class Reservation:
    def __init__(self, budget: MemoryAccount, size_bytes: int) -> None:
        self._budget, self.bytes = budget, size_bytes

    def keep(self, batch: pa.RecordBatch, beside_bytes: int) -> StoredBatch:
        layout = Layout(batch)
        size_bytes = in_pages(layout.size_bytes) + beside_bytes
        self._become(size_bytes)
        budget = self._budget
        try:
            shared = budget.memory.put(layout, lambda: budget.give_back(size_bytes))
        except BaseException:
            budget.give_back(size_bytes)
            raise
        return StoredBatch(shared.batch, size_bytes, shared.shape, shared.extent)

    def _become(self, size_bytes: int) -> None:
        """What was made has this size. Raises LimitExceeded if that is more than there is room for."""
        if size_bytes > self.bytes:
            self._budget.take(size_bytes - self.bytes)
            self.bytes = 0
        else:
            self.bytes -= size_bytes
