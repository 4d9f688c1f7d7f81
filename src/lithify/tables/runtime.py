"""What the engine takes from outside: store, clock, randomness, identity, and Spark when it is needed."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from lithify.compute.compute import Compute
from lithify.compute.processes import process_start
from lithify.files.storage import Storage
from lithify.metrics.activity import Activity
from lithify.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lithify.cache.hot_tables import HotTables
    from lithify.index.table_index import Indexes
    from lithify.metrics.counters import Counters
    from lithify.sql.engine import ServingEngine

T = TypeVar("T")


@dataclass(frozen=True)
class Owner:
    """A process. `started` tells it from a later one with the same PID."""

    host: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
        return cls(socket.gethostname(), os.getpid(), process_start(os.getpid()) or "")

    @property
    def label(self) -> str:
        return f"{self.host}-{self.pid}"

    def may_be_alive(self) -> bool:
        """A hint only: the log decides what a job may still do."""
        if self.host != socket.gethostname():
            return True
        started = process_start(self.pid)
        return started is not None and (not self.started or started == self.started)


@dataclass(frozen=True)
class Runtime:
    root: PurePath
    settings: Settings
    store: Storage
    serving: ServingEngine
    spark: Callable[[], SparkSession]
    compute: Compute
    now_ms: Callable[[], int]  # the clock of the lake, not of this process
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    pause: Callable[[float], None] = time.sleep
    monotonic_s: Callable[[], float] = time.monotonic  # of this process: it tells how long, never when
    owner: Owner = field(default_factory=Owner.this_process)
    activity: Activity = field(default_factory=Activity)
    # How code that was sent to another process comes by a table there: a function that can be sent along. It answers
    # with a `write/access.py: TableAccess`, which is further up than this.
    reopen: Callable[[PurePath, str, SparkSession], Any] | None = None
    _shared: dict[Callable[[], Any], Any] = field(default_factory=dict, repr=False, compare=False)
    _making: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def session(self, given: SparkSession | None = None) -> SparkSession:
        """A Spark session whose executors reach this lake: the lake's own unless one is given."""
        if given is None:
            return self.spark()
        from lithify.spark.executors import prepare

        prepare(given, self.root, self.settings.spark_wait_s_max)
        return given

    @cached_property
    def counters(self) -> Counters:
        from lithify.metrics.counters import Counters

        return Counters()

    @cached_property
    def indexes(self) -> Indexes:
        """The indexes of the tables that are open."""
        from lithify.index.table_index import Indexes

        return Indexes(self)

    def shared(self, kind: Callable[[], T]) -> T:
        """The one of its kind in this process and lake, made when it is first asked for."""
        with self._making:
            if kind not in self._shared:
                self._shared[kind] = kind()
            found: T = self._shared[kind]
            return found

    @cached_property
    def hot(self) -> HotTables:
        from lithify.cache.hot_tables import HotTables

        return HotTables(self.serving.cache)

    @property
    def control(self) -> PurePath:
        return self.root / "_lithify"
