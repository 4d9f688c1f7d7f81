"""The hot cache: tables, or their columns in use, in memory and at the head of their logs.

A query is given rows of exactly its own snapshot (`refresh` brings them there), or none, and then reads files: the
cache never changes an answer. A table is loaded when it is pinned, or in the background once queries have read most of
it twice; one load per table runs at a time. The least recently used table goes first when room is needed; a pinned one
stays. Whatever goes wrong with a hot table, it is let go of.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.cache.hot_rows import HotRows
from lithify.cache.load import expected_bytes, load
from lithify.cache.memory_account import MemoryAccount
from lithify.cache.refresh import HotSnapshot, advance, is_older
from lithify.compute.background import Later
from lithify.core.read_plan import ReadPlan
from lithify.core.results import HotTableStats
from lithify.core.snapshot import Snapshot
from lithify.errors import Cancelled, Conflict, InvalidRequest, LimitExceeded, LithifyError
from lithify.files.read_proof import look_again

if TYPE_CHECKING:
    from lithify.cache.table_reader import TableReader

logger = logging.getLogger(__name__)

ASKED_MIN = 2
ASKED_WITHIN_S = 600.0
ASKED_TABLES_MAX = 1_000
# A table that takes less than this share of the budget is loaded with all its columns.
WHOLE_SHARE_MAX = 0.25
PIN_ROUNDS_MAX = 8
# Beside the budget, and next to nothing.
RECENT_BYTES_MAX, RECENT_FILES_MAX = 64 * 2**10, 64
# After a load that failed.
AGAIN_S = 60.0


@dataclass
class _Hot:
    table: str
    cached: HotSnapshot
    loaded_s: float
    pinned: bool = False
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class _Asked:
    times: int = 0
    last_s: float = 0.0
    columns: set[str] = field(default_factory=set)


class HotTables:
    def __init__(self, budget: MemoryAccount, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget, self._clock = budget, clock
        budget.on_pressure(self._make_room)
        self._lock = threading.RLock()
        self._tables: OrderedDict[str, _Hot] = OrderedDict()
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._loading: dict[str, Future[_Hot]] = {}
        self._queued: set[str] = set()
        self._recent: OrderedDict[str, pa.Table] = OrderedDict()
        # What is pinned and cannot be held just now is tried again, like all that could not be loaded, after a while.
        self._pins: dict[str, tuple[str, ...]] = {}
        self._not_before_s: dict[str, float] = {}
        self._loader = Later("lithify-hot-loader")
        self._closed = False
        self.hits = self.misses = self.loads = self.refreshes = self.evictions = 0

    @property
    def enabled(self) -> bool:
        return self.budget.bytes_max > 0 and not self._closed

    # -- serving

    def rows(self, reader: TableReader, snapshot: Snapshot, columns: Sequence[str] | None) -> HotRows | None:
        """The rows of this snapshot, if they are there or can be made from what is there. `columns` None: all."""
        if not self.enabled:
            return None
        wanted = snapshot.schema.names if columns is None else columns
        with self._lock:
            hot = self._tables.get(snapshot.table)
            covered = hot is not None and set(wanted) <= set(hot.cached.rows.columns.names)
            self.misses += not covered
            pinned = self._pins.get(snapshot.table) if hot is None else None
            if covered:
                self._tables.move_to_end(snapshot.table)
        if pinned is not None:
            self._load_soon(reader, [name for name in pinned if name in snapshot.schema.names], pinned=True)
        if hot is None or not covered:
            return None
        with hot.lock:
            cached = self._fresh(hot, snapshot, reader)
        with self._lock:
            self.hits += cached is not None
            self.misses += cached is None
            hot.hits += cached is not None
        return cached.rows if cached is not None else None

    def _fresh(self, hot: _Hot, snapshot: Snapshot, reader: TableReader) -> HotSnapshot | None:
        cached = hot.cached
        if is_older(cached, snapshot):
            return None
        if cached.is_of(snapshot):
            return cached
        try:
            fresh = advance(cached, snapshot, reader, self._recent.get)
        except LithifyError as error:
            logger.debug("hot rows of %s are let go of: %s", snapshot.table, error)
            fresh = None
        except Exception:
            # Files answer the query; whoever looks into this needs to know.
            logger.exception("hot rows of %s could not be brought to seq %s", snapshot.table, snapshot.seq)
            fresh = None
        if fresh is None:
            self._let_go(hot)
            return None
        self.refreshes += 1
        hot.cached = fresh
        return fresh

    def remember(self, table: str, path: str, rows: pa.Table) -> None:
        """A change that was just written, for the next refresh: if the table is hot, one will come soon."""
        if rows.nbytes > RECENT_BYTES_MAX:
            return
        with self._lock:
            if table in self._tables:
                self._recent[path] = rows
                while len(self._recent) > RECENT_FILES_MAX:
                    self._recent.popitem(last=False)

    def want(self, reader: TableReader, snapshot: Snapshot, columns: Sequence[str] | None) -> None:
        """A query has just read most of this table from files. Twice, and it is loaded."""
        if not self.enabled:
            return
        now_s = self._clock()
        with self._lock:
            wanted = set(snapshot.schema.names if columns is None else columns)
            hot = self._tables.get(snapshot.table)
            if hot is not None and wanted <= set(hot.cached.rows.columns.names):
                return  # the query is of an earlier state, which loading it again does not bring back
            asked = self._asked.pop(snapshot.table, None)
            if asked is None or now_s - asked.last_s > ASKED_WITHIN_S:
                asked = _Asked()
            asked.times, asked.last_s = asked.times + 1, now_s
            asked.columns.update(wanted)
            self._asked[snapshot.table] = asked
            while len(self._asked) > ASKED_TABLES_MAX:
                self._asked.popitem(last=False)
            if asked.times < ASKED_MIN:
                return
            names = [name for name in snapshot.schema.names if name in asked.columns]
        self._load_soon(reader, names)

    # -- loading

    def pin(self, reader: TableReader, columns: Sequence[str] | None = None) -> HotTableStats:
        """Load now, and keep."""
        if not self.enabled:
            raise InvalidRequest("there is no cache: cache_bytes_max is 0")
        snapshot = reader.handles.snapshot()
        for name in columns or ():
            if name not in snapshot.schema.names:
                raise InvalidRequest(
                    f"column {name!r} is not in table {snapshot.table}: it has {', '.join(snapshot.schema.names)}"
                )
        wanted = set(snapshot.schema.names if columns is None else columns)
        for _ in range(PIN_ROUNDS_MAX):
            with self._lock:
                hot = self._tables.get(snapshot.table)
            if hot is not None:
                have = set(hot.cached.rows.columns.names)
                with hot.lock:
                    if wanted <= have and self._fresh(hot, reader.handles.snapshot(), reader) is not None:
                        hot.pinned = True
                        with self._lock:
                            if self._tables.get(snapshot.table) is hot:
                                self._pins[snapshot.table] = tuple(hot.cached.rows.columns.names)
                                return self._stats_of(hot)
                wanted |= have & set(snapshot.schema.names)
            names = [name for name in snapshot.schema.names if name in wanted]
            self._load(reader, names, exactly=True, pinned=True).result()
        raise Conflict(f"table {snapshot.table} was changed by others again and again while it was loaded: try again")

    def unpin(self, table: str) -> bool:
        with self._lock:
            if (hot := self._tables.get(table)) is not None:
                hot.pinned = False
            return self._pins.pop(table, None) is not None

    def _load_soon(self, reader: TableReader, names: Sequence[str], *, pinned: bool = False) -> None:
        table = str(reader.handles.name)

        def run() -> None:
            with self._lock:
                self._queued.discard(table)
                if pinned and table not in self._pins:
                    return
            try:
                self._load(reader, names, exactly=pinned, pinned=pinned).result()
                return
            except Cancelled:
                return
            except LithifyError as error:
                logger.info("table %s stays out of the cache: %s", table, error)
            except Exception:
                logger.exception("table %s could not be loaded into the cache", table)
            with self._lock:
                self._not_before_s[table] = self._clock() + AGAIN_S

        with self._lock:
            if self._closed or table in self._loading or table in self._queued:
                return
            if self._clock() < self._not_before_s.get(table, 0.0):
                return
            self._not_before_s.pop(table, None)
            self._queued.add(table)
            self._loader.do(run)

    def _load(self, reader: TableReader, names: Sequence[str], *, exactly: bool, pinned: bool = False) -> Future[_Hot]:
        """One load per table at a time: whoever comes second waits for the first."""
        table = str(reader.handles.name)
        with self._lock:
            if (running := self._loading.get(table)) is not None:
                return running
            future: Future[_Hot] = Future()
            self._loading[table] = future
        try:
            future.set_result(look_again(lambda: self._loaded(reader, names, exactly=exactly, pinned=pinned)))
        except BaseException as error:
            _let_go_of_rows(error)
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._lock:
                self._loading.pop(table, None)
        return future

    def _loaded(self, reader: TableReader, names: Sequence[str], *, exactly: bool, pinned: bool) -> _Hot:
        snapshot = reader.handles.snapshot()
        plan = reader.plan(snapshot)
        with self._lock:
            room = self.budget.bytes_max - sum(hot.cached.rows.bytes for hot in self._tables.values() if hot.pinned)
            before = self._tables.get(snapshot.table)
        wanted = self._columns_to_load(plan, names, exactly=exactly)
        if before is not None and before.cached.table_id == snapshot.table_id:
            # What was pinned stays so; what others read goes only where both are too much.
            more = self._columns_to_load(plan, [*wanted, *before.cached.rows.columns.names], exactly=exactly)
            wanted = more if before.pinned or expected_bytes(plan, more) <= room else wanted
        size_bytes = expected_bytes(plan, wanted)
        if size_bytes > room:
            raise _too_large(snapshot, f"about {size_bytes:,} bytes", room)
        try:
            rows = load(plan, wanted, self.budget, self._check_open)
        except LimitExceeded as error:
            raise _too_large(snapshot, "more", room) from error
        hot = _Hot(snapshot.table, HotSnapshot.of(rows, snapshot), self._clock(), pinned)
        with self._lock:
            self._check_open()
            before = self._tables.pop(snapshot.table, None)
            hot.pinned = hot.pinned or (before is not None and before.pinned)
            hot.hits = before.hits if before is not None else 0
            self._tables[snapshot.table] = hot
            self._asked.pop(snapshot.table, None)
            self.loads += 1
        return hot

    def _columns_to_load(self, plan: ReadPlan, names: Sequence[str], *, exactly: bool) -> list[str]:
        """Those that are asked for, and those that changes are told by; all of them where that is little."""
        schema = plan.schema
        if not exactly and expected_bytes(plan, schema.names) <= self.budget.bytes_max * WHOLE_SHARE_MAX:
            return list(schema.names)
        needed = {*names, *plan.by, *schema.deciding_columns}
        return [name for name in schema.names if name in needed] or schema.names[:1]

    def _check_open(self) -> None:
        if self._closed:
            raise Cancelled("the lake is being closed")

    # -- letting go

    def evict(self, table: str | None = None) -> int:
        """Bytes that are given back as soon as no query reads them. Of one table, or of all; pins end too."""
        with self._lock:
            names = list(self._tables) if table is None else [table]
            self._recent.clear()
            gone = [self._tables.pop(name) for name in names if name in self._tables]
            self.evictions += len(gone)
            for name in [*self._pins, *self._asked] if table is None else [table]:
                self._pins.pop(name, None)
                self._asked.pop(name, None)
                self._not_before_s.pop(name, None)
            return sum(hot.cached.rows.bytes for hot in gone)

    def _let_go(self, hot: _Hot) -> None:
        with self._lock:
            if self._tables.get(hot.table) is hot:
                del self._tables[hot.table]
                self.evictions += 1

    def _make_room(self, wanted_bytes: int) -> None:
        with self._lock:
            for name in [name for name, hot in self._tables.items() if not hot.pinned]:
                if self.budget.free_bytes >= wanted_bytes:
                    return
                del self._tables[name]
                self.evictions += 1

    def wait_loaded(self, timeout_s: float = 60.0) -> None:
        """Wait until what was to be loaded in the background is."""
        self._loader.wait(timeout_s)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._loader.close()
        self.evict()

    # -- looking at it

    def stats(self) -> tuple[HotTableStats, ...]:
        with self._lock:
            return tuple(self._stats_of(hot) for hot in self._tables.values())

    def _stats_of(self, hot: _Hot) -> HotTableStats:
        cached, age_s = hot.cached, max(self._clock() - hot.loaded_s, 0.0)
        columns = tuple(cached.rows.columns.names)
        return HotTableStats(
            hot.table, cached.rows.rows, cached.rows.bytes, age_s, hot.pinned, cached.seq, columns, hot.hits
        )


def _let_go_of_rows(error: BaseException | None) -> None:
    """A failure keeps the frames it passed through, and those keep blocks that nobody will use. They also keep the
    future that keeps the failure, so it would all stay until the garbage collector comes by.
    """
    while error is not None:
        clear_frames(error.__traceback__)
        if isinstance(error, LithifyError):  # of any other, somebody will want to know where it came from
            error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _too_large(snapshot: Snapshot, takes: str, room: int) -> LimitExceeded:
    return LimitExceeded(
        f"table {snapshot.table} takes {takes} in memory, and the cache has {room:,} bytes that are not pinned: choose "
        "fewer columns, evict another table, or raise cache_bytes_max",
        limit="size",
    )
