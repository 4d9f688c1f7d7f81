"""What a lake keeps in memory, as its users see it: hot tables, and answers to queries that come again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lithify.core.names import parse_table_name
from lithify.core.results import CacheStats, HotTableStats
from lithify.read.reader import Reader
from lithify.sql.engine import ServingEngine
from lithify.tables.runtime import Runtime


class Cache:
    """Tables and results that are kept in memory, so that SQL stays interactive; they never change an answer."""

    def __init__(self, runtime: Runtime, serving: ServingEngine, reader_of: Callable[[str], Reader]) -> None:
        self._runtime, self._serving, self._reader_of = runtime, serving, reader_of

    def pin(self, name: str, columns: Sequence[str] | None = None) -> HotTableStats:
        """Load a table now, or some of its columns, and keep it until `unpin` or `evict`, fresh as changes arrive."""
        return self._runtime.hot.pin(self._reader_of(name), columns)

    def unpin(self, name: str) -> bool:
        """Let a table go when room is needed. Whether it was pinned."""
        return self._runtime.hot.unpin(str(parse_table_name(name)))

    def evict(self, name: str | None = None) -> int:
        """Let go of a table now, pinned or not, or of all tables and answers. Answers the bytes given back."""
        if name is None:
            return self._runtime.hot.evict() + self._serving.answers.clear()
        return self._runtime.hot.evict(str(parse_table_name(name)))

    def settle(self, timeout_s: float = 60.0) -> None:
        """Wait until tables that are being loaded in the background are there."""
        self._runtime.hot.wait_loaded(timeout_s)

    def stats(self) -> CacheStats:
        """What is kept, how much room it takes, and how often it was of use."""
        hot = self._runtime.hot
        return CacheStats(
            hot.budget.bytes_max,
            hot.budget.bytes,
            hot.hits,
            hot.misses,
            hot.loads,
            hot.refreshes,
            hot.evictions,
            self._serving.answers.stats(),
            hot.stats(),
        )
