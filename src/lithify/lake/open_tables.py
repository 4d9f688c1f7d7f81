"""The tables that are open in this process: for one lake, the one place where logs stay open from use to use.

Of a table at most two sets of handles are open, each from its first use on: an `OpenTable` for readers and writers,
with a reader and the queue of its writer; and a `Background`, so that neither of them waits for cycles, nor for work
that somebody asks for, which runs under the table's maintenance lock one at a time.

What is open is used as it is: every read and every write looks at the logs itself, and says `NotFound` if its table was
dropped. Then all that is open under the name is forgotten, and the name is opened again. One that was created anew,
wherever that was done, is another table (another `incarnation`): whoever asked for the name is answered by it, and
whoever holds the old one is told that it was dropped.

Both sets are bounded, least recently used first out, and what nobody has used for `idle_unload_s` goes too: handles are
forgotten and nothing else, so the next use opens the table again. A table with writes waiting, or with work under
its lock, is not unloaded before that is done. Handles hold the state of two logs, which grows with the number of files,
and no descriptor. Sidecars, live files and hot rows of a table are there once for all of its handles.

One thread refreshes what readers have open on an interval and tells the listeners what has changed, wherever it was
committed. Readers do not depend on it.

Apart from this stay: the catalog, which remembers of very many names whether they are tables, and keeps none open; and
other processes, where a query gets its snapshots from here, and Spark's data source opens a lake for one call.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from lithify.core.names import TableName
from lithify.core.read_plan import PlannedTable
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.delta.checkpoints import wait_for_checkpoints
from lithify.errors import InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.read_proof import look_again
from lithify.read.reader import Reader, drop_cached
from lithify.tables.handles import Handles, dropped
from lithify.tables.processes import OpenProcess
from lithify.tables.runtime import Runtime
from lithify.write.group_commit import WriteQueue
from lithify.write.small_writes import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
T = TypeVar("T")
Kind = TypeVar("Kind", bound="Opened")
BACKGROUND_MAX = 500

AsOf = int | str | dt.datetime | Snapshot | None
Listener = Callable[[str, Snapshot], None]


class Opened:
    """One table's handles."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self.retired = False
        self.used_s = 0.0

    def retire(self) -> bool:
        """Whether nothing is under way here, and from now on nothing will be."""
        raise NotImplementedError


class Background(Opened):
    """One open table as maintenance has it. Jobs of cycles run side by side, and beside whoever has the lock."""

    def __init__(self, handles: Handles) -> None:
        super().__init__(handles)
        self.maintenance_lock = threading.Lock()

    def retire(self) -> bool:
        self.retired = self.maintenance_lock.acquire(blocking=False)
        if self.retired:
            self.maintenance_lock.release()
        return self.retired


class OpenTable(Opened):
    """One open table as readers and writers have it."""

    def __init__(self, handles: Handles, on_idle: Callable[[], None]) -> None:
        super().__init__(handles)
        settings = handles.runtime.settings
        self.reader = Reader(handles)
        self.writer = Writer(handles, partial(handles.runtime.hot.remember, str(handles.name)))
        self.writes = WriteQueue(
            str(handles.name),
            self.writer,
            keyed=handles.changes.schema.keyed,
            commands_max=settings.queue_commands_max,
            wait_s_max=settings.queue_wait_s_max,
            on_idle=on_idle,
        )
        self.seen = (handles.changes.log.version, handles.base.log.version)
        self.refresh_failed = False

    def planned(self, as_of: AsOf = None) -> PlannedTable:
        """One snapshot, ready to be asked which files a predicate leaves."""
        snapshot = self.handles.snapshot(as_of)
        if as_of is not None:
            self.handles.check_present(snapshot, to_read=True)
        return self.reader.planned(snapshot)

    def frame(
        self, session: SparkSession, as_of: AsOf, where: str | None, columns: Sequence[str] | None = None
    ) -> DataFrame:
        """Rows over native Parquet scans of Spark; files that can hold none that `where` holds for are not listed."""
        from lithify.spark.read import frame_of, only
        from lithify.sql.spark_conditions import spark_predicate

        def read() -> DataFrame:
            planned = self.planned(as_of)
            predicate = None if where is None else spark_predicate(where, planned.schema.columns)
            runtime = self.handles.runtime
            plan, index = planned.plan(predicate), self.handles.folder / "index"
            wanted = None if columns is None else _asked(planned.schema, columns, where)
            return frame_of(session, plan, index, runtime.owner.label, runtime.settings.s3a, wanted)

        frame = look_again(read)
        kept = frame if where is None else frame.where(where)
        return kept if columns is None else only(kept, columns)

    def row(self, key_of: Callable[[TableSchema], Any]) -> pa.Table | None:
        """A row by its key, which `key_of` tells, or refuses, for the table as it is now. None: there is none."""

        def find() -> pa.Table | None:
            snapshot = self.handles.snapshot()
            return self.reader.get(snapshot, key_of(snapshot.schema))

        return look_again(find)

    def retire(self) -> bool:
        self.retired = self.writes.close_if_idle()
        return self.retired


def _asked(schema: TableSchema, columns: Sequence[str], where: str | None) -> list[str]:
    """These columns, and whatever a condition may name: what it names stands in its text, or it names all (`*`). At
    least one: rows are counted by it.
    """
    if (unknown := next((name for name in columns if name not in schema.names), None)) is not None:
        raise InvalidRequest(f"the table has no column {unknown!r}: it has {', '.join(schema.names)}", column=unknown)
    text = "" if where is None else where.replace("``", "`").casefold()
    found = [name for name in schema.names if name in columns or name.casefold() in text or "*" in text]
    return found or [schema.names[0]]


class _Set(Generic[Kind]):
    """Tables that are open for one purpose, the least recently used first."""

    def __init__(self, opened: Callable[[Handles], Kind], tables_max: int) -> None:
        self.opened, self.tables_max = opened, tables_max
        self.tables: OrderedDict[TableName, Kind] = OrderedDict()
        self.opening: set[TableName] = set()


class OpenTables:
    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.monotonic) -> None:
        self.runtime, self._clock = runtime, clock
        self._changed = threading.Condition()
        tables_max = runtime.settings.loaded_tables_max
        self._tables = _Set(lambda handles: OpenTable(handles, self._idle), tables_max)
        self._background = _Set(Background, tables_max)
        self._sets: tuple[_Set[Any], ...] = (self._tables, self._background)
        self._leaving: list[OpenTable] = []
        self._listeners: list[Listener] = []
        self._closed = False
        self._stop = threading.Event()
        self._refresher: threading.Thread | None = None
        self._process = OpenProcess(runtime, self.let_go)

    # -- using

    def get(self, name: TableName) -> OpenTable:
        """As it is open; opens it if it is not, and unloads another one if there are too many."""
        return self._get(self._tables, name)

    def current(self, name: TableName) -> OpenTable:
        """As `get`, but moved to the head; a table that was dropped and created anew is opened anew."""
        return self._current(self._tables, name)

    def read(self, name: TableName, what: Callable[[OpenTable], T]) -> T:
        """What a read or a write says of the table that has this name today. It looks at the logs itself, and tells
        when the table that is open has been dropped: then it is asked of the one that was created anew.
        """
        found, new = self._obtained(self._tables, name)
        try:
            with found.handles.as_opened() if new else nullcontext():
                return what(found)
        except NotFound:
            if (current := self.current(name)) is found:
                raise
            return what(current)

    def background(self, name: TableName) -> Handles:
        """For cycles, moved to the head. They go round all tables: a bound below their number would open every one of
        them anew each time.
        """
        self._background.tables_max = max(self._tables.tables_max, BACKGROUND_MAX)
        return self._current(self._background, name).handles

    @contextmanager
    def maintaining(self, of: Handles) -> Iterator[tuple[Handles, Reader]]:
        """Maintenance on one table, one at a time in this process. Its end is told to the listeners."""
        found = self._locked_for_maintenance(of)
        try:
            handles = found.handles
            try:
                yield handles, Reader(handles)
            finally:
                # Kept until the next work, it would keep its files from vacuum.
                handles.forget_snapshot()
        finally:
            found.maintenance_lock.release()
            self._idle()
        self.notify(of.name)

    def _locked_for_maintenance(self, of: Handles) -> Background:
        while True:
            found = self._get(self._background, of.name)
            if found.handles.incarnation != of.incarnation:
                found = self._current(self._background, of.name)
            if found.handles.incarnation != of.incarnation:
                raise dropped(of.name)
            found.maintenance_lock.acquire()
            if not found.retired:
                return found
            found.maintenance_lock.release()

    def _get(self, those: _Set[Kind], name: TableName) -> Kind:
        return self._obtained(those, name)[0]

    def _obtained(self, those: _Set[Kind], name: TableName) -> tuple[Kind, bool]:
        """The open table, and whether this call has opened it."""
        deadline_s = time.monotonic() + self.runtime.settings.queue_wait_s_max
        with self._changed:
            while True:
                self.check_open()
                if (found := those.tables.get(name)) is not None:
                    those.tables.move_to_end(name)
                    found.used_s = self._clock()
                    return found, False
                if name in those.opening:
                    self._changed.wait()
                elif self._has_room(those, deadline_s):
                    those.opening.add(name)
                    break
        try:
            opened = those.opened(Handles(self.runtime, name))
            with self._changed:
                self.check_open()
                opened.used_s = self._clock()
                those.tables[name] = opened
                self._ensure_refresher()
        finally:
            with self._changed:
                those.opening.discard(name)
                self._changed.notify_all()
        return opened, True

    def _current(self, those: _Set[Kind], name: TableName) -> Kind:
        found, new = self._obtained(those, name)
        try:
            with found.handles.as_opened() if new else nullcontext():
                found.handles.schema()
            return found
        except NotFound:
            self.forget(name, found.handles.incarnation)
            return self._get(those, name)

    def _has_room(self, those: _Set[Any], deadline_s: float) -> bool:
        """Make room for one more. False: the lock was given back meanwhile, so look at everything again."""
        limit = those.tables_max
        if len(those.tables) + len(those.opening) < limit or any(self._unload(those, name) for name in [*those.tables]):
            return True
        wait_s = deadline_s - time.monotonic()
        if wait_s <= 0 or not self._changed.wait(wait_s):
            raise Unavailable(
                f"{limit} tables are open, and all of them have been busy for "
                f"{self.runtime.settings.queue_wait_s_max:g} s: try again later, or raise loaded_tables_max"
            )
        return False

    def _unload(self, those: _Set[Any], name: TableName) -> bool:
        background = self._background.tables.get(name)
        if (background is not None and background.maintenance_lock.locked()) or not those.tables[name].retire():
            return False
        self._leave(those.tables.pop(name))
        return True

    def forget(self, name: TableName, incarnation: str | None = None) -> None:
        """The table was dropped. Whoever still waits gets the answer that the log gives."""
        with self._changed:
            for those in self._sets:
                found = those.tables.get(name)
                if found is not None and incarnation in (None, found.handles.incarnation):
                    self._leave(those.tables.pop(name))

    def let_go(self, name: TableName, incarnation: str) -> None:
        """Drop what this process holds of a table's rows for its next reader. It is opened anew when it is used."""
        self.runtime.hot.evict(str(name))
        self.runtime.serving.let_go()
        self.forget(name, incarnation)
        drop_cached(incarnation)

    def _leave(self, opened: Opened) -> None:
        opened.retired = True
        if isinstance(opened, OpenTable):
            opened.writes.close()
            self._leaving.append(opened)
        self._leaving = [left for left in self._leaving if left.writes.running]

    def is_open(self, name: TableName) -> bool:
        with self._changed:
            return name in self._tables.tables

    def loaded(self) -> list[str]:
        """Names of the tables that are open now, the least recently used first."""
        with self._changed:
            return [str(name) for name in self._tables.tables]

    def last_seen(self) -> list[Snapshot]:
        """The newest snapshot that this process has of each open table, without a look at its logs."""
        with self._changed:
            cached = [opened.handles.cached_snapshot for opened in self._tables.tables.values()]
        return [snapshot for snapshot in cached if snapshot is not None]

    def check_open(self) -> None:
        if self._closed:
            raise InvalidRequest("this lake is closed: open it again with Lake(path)")

    def _idle(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- noticing

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with name and snapshot of an open table that has changed. Returns how to stop that."""
        if not callable(listener):
            raise InvalidRequest(f"a listener is a function of name and snapshot, not {type(listener).__name__}")
        with self._changed:
            self._listeners.append(listener)

        def stop() -> None:
            with self._changed:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def notify(self, name: TableName) -> None:
        """Look at once: work on this table has been completed."""
        with self._changed:
            opened = self._tables.tables.get(name)
        if opened is not None:
            self._refresh(name, opened)

    def refresh(self) -> None:
        """Unload what nobody has used for long, and move all that readers have open to the head of its logs."""
        self.look_for_erasures()
        with self._changed:
            before_s = self._clock() - self.runtime.settings.idle_unload_s
            for those in self._sets:
                for name in [name for name, opened in those.tables.items() if opened.used_s <= before_s]:
                    self._unload(those, name)
            self._leaving = [left for left in self._leaving if left.writes.running]
            tables = list(self._tables.tables.items())
        for name, opened in tables:
            if not opened.retired:
                self._refresh(name, opened)

    def look_for_erasures(self) -> None:
        """Whether one asks this process to drop what it holds."""
        try:
            self._process.look()
        except LithifyError as error:
            logger.warning("what an erasure asks of this process waits for its next look: %s", error)

    def _refresh(self, name: TableName, opened: OpenTable) -> None:
        try:
            snapshot = opened.handles.snapshot()
        except NotFound:
            self.forget(name, opened.handles.incarnation)
            return
        except Exception as error:
            if not opened.refresh_failed:
                logger.warning("table %s cannot be refreshed, further failures are not told: %s", name, error)
            opened.refresh_failed = True
            return
        if opened.refresh_failed:
            logger.info("table %s can be refreshed again", name)
        opened.refresh_failed = False
        versions = (snapshot.changes_version, snapshot.base_version)
        with self._changed:
            changed, opened.seen = opened.seen != versions, versions
            listeners = list(self._listeners) if changed else []
        for listener in listeners:
            try:
                listener(str(name), snapshot)
            except Exception:
                logger.exception("a listener to changes of table %s failed", name)

    def _ensure_refresher(self) -> None:
        # Not alive: this process was forked from the one that started it.
        if self._refresher is None or not self._refresher.is_alive():
            self._process.enter()
            settings = self.runtime.settings
            arguments = weakref.ref(self), self._stop, min(settings.refresh_s, settings.idle_unload_s)
            self._refresher = threading.Thread(
                target=_refresh_until, args=arguments, name="lithify-refresher", daemon=True
            )
            self._refresher.start()

    # -- closing

    def close(self) -> None:
        """Refuse what is new, commit and answer what waits, end the threads."""
        with self._changed:
            self._closed = True
            for those in self._sets:
                while those.tables:
                    self._leave(those.tables.popitem()[1])
            leaving, self._leaving = self._leaving, []
            self._changed.notify_all()
        self._stop.set()
        for opened in leaving:
            opened.writes.join()
        wait_for_checkpoints()
        if self._refresher is not None and self._refresher is not threading.current_thread():
            self._refresher.join()
        self._process.leave()
        self.runtime.indexes.close()


def _refresh_until(reference: weakref.ref[OpenTables], stop: threading.Event, every_s: float) -> None:
    """Holds the tables only while it refreshes them: a lake that was forgotten without a close may go."""
    while not stop.wait(every_s):
        tables = reference()
        if tables is None:
            return
        tables.refresh()
        del tables
