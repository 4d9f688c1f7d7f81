"""The tables that are open in this process: a bounded set, least recently used first out.

A loaded table has its logs, a reader, the queue of its writer, and a lane where background work runs one at a time on
its own handles, so that neither readers nor writers wait for it. Unloading forgets all that and nothing else: the next
use loads the table again. One with writes waiting or work on its lane is not unloaded before that is done.

One thread refreshes what is loaded on an interval and tells the listeners what has changed, wherever it was committed.
Readers do not depend on it: every snapshot looks at the head of the logs itself.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lithify.core.names import TableName
from lithify.core.read_plan import PlannedTable
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.errors import InvalidRequest, NotFound, Unavailable
from lithify.files.read_proof import look_again
from lithify.read.reader import Reader
from lithify.tables.handles import Handles, dropped
from lithify.tables.runtime import Runtime
from lithify.write.queue import WriteQueue
from lithify.write.small_writes import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
T = TypeVar("T")

AsOf = int | str | dt.datetime | Snapshot | None
Listener = Callable[[str, Snapshot], None]


class OpenTable:
    """One open table."""

    def __init__(self, handles: Handles, on_idle: Callable[[], None]) -> None:
        settings = handles.runtime.settings
        self.handles = handles
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
        self.lane = threading.Lock()
        self.retired = False
        self.used_s = 0.0
        self.seen = (handles.changes.log.version, handles.base.log.version)
        self.refresh_failed = False
        self._lane_handles: Handles | None = None

    def lane_handles(self) -> Handles:
        """Handles for work on the lane, which whoever calls holds."""
        if self._lane_handles is None:
            opened = Handles(self.handles.runtime, self.handles.name)
            if opened.incarnation != self.handles.incarnation:
                raise dropped(self.handles.name)
            self._lane_handles = opened
        return self._lane_handles

    def planned(self, as_of: AsOf = None) -> PlannedTable:
        """One snapshot, ready to be asked which files a predicate leaves."""
        snapshot = self.handles.snapshot(as_of)
        if as_of is not None:
            self.handles.check_present(snapshot)
        return self.reader.planned(snapshot)

    def frame(self, session: SparkSession, as_of: AsOf, where: str | None) -> DataFrame:
        """Rows over native Parquet scans of Spark; files that can hold none that `where` holds for are not listed."""
        from lithify.spark.read import frame_of
        from lithify.sql.spark_conditions import spark_predicate

        def read() -> DataFrame:
            planned = self.planned(as_of)
            predicate = None if where is None else spark_predicate(where, planned.schema.columns)
            return frame_of(
                session, planned.plan(predicate), self.handles.folder / "index", self.handles.runtime.owner_label
            )

        frame = look_again(read)
        return frame if where is None else frame.where(where)

    def row(self, key_of: Callable[[TableSchema], Any]) -> pa.Table | None:
        """A row by its key, which `key_of` tells, or refuses, for the table as it is now. None: there is none."""

        def find() -> pa.Table | None:
            snapshot = self.handles.snapshot()
            return self.reader.get(snapshot, key_of(snapshot.schema))

        return look_again(find)

    def retire(self) -> bool:
        """Whether nothing is under way here, and from now on nothing will be."""
        if not self.lane.acquire(blocking=False):
            return False
        try:
            self.retired = self.writes.close_if_idle()
            return self.retired
        finally:
            self.lane.release()


class OpenTables:
    def __init__(
        self, runtime: Runtime, open_table: Callable[[TableName], Handles], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runtime = runtime
        self._open_table, self._clock = open_table, clock
        self._changed = threading.Condition()
        self._tables: OrderedDict[TableName, OpenTable] = OrderedDict()
        self._opening: set[TableName] = set()
        self._leaving: list[OpenTable] = []
        self._listeners: list[Listener] = []
        self._closed = False
        self._stop = threading.Event()
        self._refresher: threading.Thread | None = None

    # -- using

    def get(self, name: TableName) -> OpenTable:
        """The open table; opens it if it is not, and unloads another one if there are too many."""
        deadline_s = time.monotonic() + self.runtime.settings.queue_wait_s_max
        with self._changed:
            while True:
                self.check_open()
                if (found := self._tables.get(name)) is not None:
                    self._tables.move_to_end(name)
                    found.used_s = self._clock()
                    return found
                if name in self._opening:
                    self._changed.wait()
                elif self._has_room(deadline_s):
                    self._opening.add(name)
                    break
        try:
            loaded = OpenTable(self._open_table(name), self._idle)
            with self._changed:
                self.check_open()
                loaded.used_s = self._clock()
                self._tables[name] = loaded
                self._ensure_refresher()
        finally:
            with self._changed:
                self._opening.discard(name)
                self._changed.notify_all()
        return loaded

    def _has_room(self, deadline_s: float) -> bool:
        """Make room for one more. False: the lock was given back meanwhile, so look at everything again."""
        limit = self.runtime.settings.loaded_tables_max
        if len(self._tables) + len(self._opening) < limit or any(self._unload(name) for name in list(self._tables)):
            return True
        wait_s = deadline_s - time.monotonic()
        if wait_s <= 0 or not self._changed.wait(wait_s):
            raise Unavailable(
                f"{limit} tables are open, and all of them have been busy for "
                f"{self.runtime.settings.queue_wait_s_max:g} s: try again later, or raise loaded_tables_max"
            )
        return False

    def _unload(self, name: TableName) -> bool:
        loaded = self._tables[name]
        if not loaded.retire():
            return False
        del self._tables[name]
        self._leave(loaded)
        return True

    def _leave(self, loaded: OpenTable) -> None:
        self._leaving = [other for other in self._leaving if other.writes.running]
        self._leaving.append(loaded)

    def current(self, name: TableName) -> OpenTable:
        """As `get`, but moved to the head; a table that was dropped and created anew is opened anew."""
        loaded = self.get(name)
        try:
            loaded.handles.schema()
            return loaded
        except NotFound:
            self.forget(name, loaded)
            return self.get(name)

    def read(self, name: TableName, what: Callable[[OpenTable], T]) -> T:
        """What a read says of the table that has this name today. The read itself looks at the logs, and tells when the
        table that is open has been dropped: then it is asked of the one that was created anew.
        """
        loaded = self.get(name)
        try:
            return what(loaded)
        except NotFound:
            if (current := self.current(name)) is loaded:
                raise
            return what(current)

    def forget(self, name: TableName, loaded: OpenTable | None = None) -> None:
        """The table was dropped. Whoever still waits gets the answer that the log gives."""
        with self._changed:
            found = self._tables.get(name)
            if found is None or (loaded is not None and found is not loaded):
                return
            del self._tables[name]
            found.retired = True
            found.writes.close()
            self._leave(found)

    @contextmanager
    def lane(self, name: TableName) -> Iterator[tuple[Handles, Reader]]:
        """Background work on one table, one at a time in this process. Its end is told to the listeners."""
        loaded = self.get(name)
        loaded.lane.acquire()
        while loaded.retired:
            loaded.lane.release()
            loaded = self.get(name)
            loaded.lane.acquire()
        try:
            handles = loaded.lane_handles()
            try:
                yield handles, Reader(handles)
            finally:
                # Kept until the next work, it would keep its files from vacuum.
                handles.forget_snapshot()
        finally:
            loaded.lane.release()
            self._idle()
        self._refresh(name, loaded)

    def is_open(self, name: TableName) -> bool:
        with self._changed:
            return name in self._tables

    def loaded(self) -> list[str]:
        """Names of the tables that are open now, the least recently used first."""
        with self._changed:
            return [str(name) for name in self._tables]

    def last_seen(self) -> list[Snapshot]:
        """The newest snapshot that this process has of each open table, without a look at its logs."""
        with self._changed:
            kept = [loaded.handles.kept_snapshot for loaded in self._tables.values()]
        return [snapshot for snapshot in kept if snapshot is not None]

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
            loaded = self._tables.get(name)
        if loaded is not None:
            self._refresh(name, loaded)

    def refresh(self) -> None:
        """Move every open table to the head of its logs, and unload those that nobody has used for long."""
        with self._changed:
            tables = list(self._tables.items())
        for name, loaded in tables:
            with self._changed:
                idle_s = self._clock() - loaded.used_s
                if self._tables.get(name) is not loaded or (
                    idle_s >= self.runtime.settings.idle_unload_s and self._unload(name)
                ):
                    continue
            self._refresh(name, loaded)

    def _refresh(self, name: TableName, loaded: OpenTable) -> None:
        try:
            snapshot = loaded.handles.snapshot()
        except NotFound:
            self.forget(name, loaded)
            return
        except Exception as error:
            if not loaded.refresh_failed:
                logger.warning("table %s cannot be refreshed, further failures are not told: %s", name, error)
            loaded.refresh_failed = True
            return
        if loaded.refresh_failed:
            logger.info("table %s can be refreshed again", name)
        loaded.refresh_failed = False
        versions = (snapshot.changes_version, snapshot.base_version)
        with self._changed:
            changed, loaded.seen = loaded.seen != versions, versions
            listeners = list(self._listeners) if changed else []
        for listener in listeners:
            try:
                listener(str(name), snapshot)
            except Exception:
                logger.exception("a listener to changes of table %s failed", name)

    def _ensure_refresher(self) -> None:
        # Not alive: this process was forked from the one that started it.
        if self._refresher is None or not self._refresher.is_alive():
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
            leaving = [*self._leaving, *self._tables.values()]
            self._tables.clear()
            self._leaving.clear()
            self._changed.notify_all()
        self._stop.set()
        for loaded in leaving:
            loaded.retired = True
            loaded.writes.close()
        for loaded in leaving:
            loaded.writes.join()
        if self._refresher is not None and self._refresher is not threading.current_thread():
            self._refresher.join()
        self.runtime.indexes.close()


def _refresh_until(reference: weakref.ref[OpenTables], stop: threading.Event, every_s: float) -> None:
    """Holds the tables only while it refreshes them: a lake that was forgotten without a close may go."""
    while not stop.wait(every_s):
        tables = reference()
        if tables is None:
            return
        tables.refresh()
        del tables
