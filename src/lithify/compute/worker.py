"""The parent's side of the Spark worker: it starts the child, hands it orders, and outlives whatever happens to it.

    no child ──first order──▶ running ──idle_s without an order──▶ asked to end ──▶ no child
                                 │
                                 └──died, silent for silence_s_max, cancelled──▶ killed ──▶ no child

One child at a time, in a session of its own, so that Ctrl-C in a terminal reaches this process alone. One thread
reads what it says, routes answers to whoever waits for them, and notices when it goes silent, idle or away. A child
that is gone takes its JVM and its tasks with it: all processes of its session are killed before anybody is told.

What a caller of `run` gets when it fails:
- an error of Lithify as itself, also `Unavailable` for a missing Java;
- `OutOfResources` when memory ran out or the worker died: smaller pieces may succeed, on a new worker;
- `ComputeFailed` with `details["unknown"]` for what nobody has a rule for: the caller decides;
- `ComputeFailed` with `details["cancelled"]` after `cancel_all` or `close`.

A worker that dies `DEATHS_MAX` times without an answer in between is not started again for `REST_S`.
PySpark is never imported here.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from lithify.compute import wire
from lithify.compute.worker_process import End, WorkerProcess
from lithify.core.compute_errors import classify_exit
from lithify.core.optional import need
from lithify.core.wording import plural
from lithify.errors import ComputeFailed, InvalidRequest, LithifyError, OutOfResources
from lithify.files.addresses import is_remote
from lithify.settings import Settings, memory_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# More than the halvings of a job that is too large, each of which may cost a worker.
DEATHS_MAX = 6
REST_S = 60.0
_TAIL_LINES = 5

T = TypeVar("T")
R = TypeVar("R")
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class WorkerOptions(wire.SparkChoice):
    """`modules`: prefixes of the modules whose functions may run; `python_path`: where else to import from; `root`: the
    lake that executors elsewhere must reach.
    """

    conf: tuple[tuple[str, str], ...] = ()
    memory_bytes: int | None = None
    jobs_max: int = 2
    idle_s: float = 300
    silence_s_max: float = 60
    modules: tuple[str, ...] = ("lithify.",)
    python_path: tuple[str, ...] = ()
    root: str | None = None
    wait_s_max: float = 120
    copies_folder: str | None = None
    copies_bytes_max: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, root: PurePath | None = None) -> WorkerOptions:
        return cls(
            **wire.spark_choice(settings, "spark_"),
            conf=tuple(settings.spark_conf.items()),
            memory_bytes=memory_bytes(settings.worker_memory) if settings.worker_memory else None,
            jobs_max=settings.jobs_max,
            idle_s=settings.worker_idle_s,
            silence_s_max=settings.worker_silence_s_max,
            root=None if root is None else str(root),
            wait_s_max=settings.spark_wait_s_max,
            copies_folder=str(settings.copies_folder) if root is not None and is_remote(root) else None,
            copies_bytes_max=settings.copies_bytes_max,
        )

    def config(self, parent: int, scratch: str) -> wire.Config:
        return wire.Config(
            **wire.spark_choice(self),
            parent=parent,
            scratch=scratch,
            conf=dict(self.conf),
            memory_bytes=self.memory_bytes,
            jobs_max=self.jobs_max,
            modules=self.modules,
            python_path=self.python_path,
            root=self.root,
            wait_s_max=self.wait_s_max,
            copies_folder=self.copies_folder,
            copies_bytes_max=self.copies_bytes_max,
        )


@dataclass(frozen=True)
class OrderStatus:
    function: str
    done: int | None
    of: int


@dataclass(frozen=True)
class WorkerStatus:
    """`pid` is None while there is no child; `rss_bytes` is of all its processes, as of the last heartbeat. `starts`
    and `deaths` count since the lake was opened.
    """

    pid: int | None
    rss_bytes: int
    deaths_in_a_row: int
    orders: tuple[OrderStatus, ...]
    starts: int = 0
    deaths: int = 0


class _Order:
    """One call of `run` that waits. What it is told comes through `inbox`, in order."""

    def __init__(self, function: str, of: int) -> None:
        self.id, self.function, self.of = uuid.uuid4().hex, function, of
        self.done: int | None = None
        self.inbox: queue.SimpleQueue[dict[str, Any] | LithifyError] = queue.SimpleQueue()

    def wait(self, on_progress: OnProgress | None) -> dict[str, Any] | LithifyError:
        """The answer, or why there is none."""
        told = -1
        while True:
            message = self.inbox.get()
            if isinstance(message, LithifyError) or "heartbeat" not in message:
                return message
            done = message["done"]
            if on_progress is not None and done is not None and done != told:
                told = done
                on_progress(done, self.of)


class WorkerCompute:
    """`Compute` on Spark in a supervised child process. Any number of threads may call it; up to `jobs_max` orders
    run at a time, the others wait.
    """

    def __init__(self, options: WorkerOptions | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._clock = options or WorkerOptions(), clock
        self._slots = threading.BoundedSemaphore(self._options.jobs_max)
        self._lock = threading.Lock()
        self._child: WorkerProcess | None = None
        self._orders: dict[str, _Order] = {}
        self._idle_since = clock()
        self._deaths, self._died_at, self._last_words = 0, 0.0, ""
        self._starts_ever = self._deaths_ever = 0
        self._closed = False

    @classmethod
    def from_settings(cls, settings: Settings, root: PurePath) -> WorkerCompute:
        return cls(WorkerOptions.from_settings(settings, root))

    # -- Compute

    def run(self, function: Callable[[T], R], tasks: Sequence[T], on_progress: OnProgress | None = None) -> list[R]:
        """As in `Compute`. `on_progress(done, of)` is called from here while tasks end, where they can be counted
        (Spark on this machine); what it raises cancels the order.
        """
        return self._order(function, "executors", tasks, on_progress) if tasks else []

    def run_on_driver(self, function: Callable[[SparkSession, T], R], task: T) -> R:
        (result,) = self._order(function, "driver", [task], None)
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the worker: orders that still run are cancelled. Nothing of it is left when this returns."""
        with self._lock:
            self._closed = True
            child = self._child
            if child is not None:
                child.end(End.CANCELLED if self._orders else End.ASKED, "the lake was closed")
        if child is not None:
            child.join()

    # -- beyond it

    def cancel_all(self, reason: str = "maintenance was stopped") -> None:
        """Kill the worker: what runs on it fails as cancelled. The next order starts a new one."""
        with self._lock:
            child = self._child
            if child is not None:
                child.end(End.CANCELLED, reason)
        if child is not None:
            child.join()

    def status(self) -> WorkerStatus:
        with self._lock:
            pid, rss_bytes = (self._child.pid, self._child.rss_bytes) if self._child is not None else (None, 0)
            orders = tuple(OrderStatus(order.function, order.done, order.of) for order in self._orders.values())
            return WorkerStatus(pid, rss_bytes, self._deaths, orders, self._starts_ever, self._deaths_ever)

    # -- orders

    def _order(
        self, function: Callable[..., Any], where: str, tasks: Sequence[Any], on_progress: OnProgress | None
    ) -> list[Any]:
        need("spark")
        order = _Order(wire.name_of(function), len(tasks))
        packed = [wire.pack(task) for task in tasks]
        line = wire.line({"id": order.id, "function": order.function, "where": where, "tasks": packed})
        with self._slots:
            try:
                self._child_for(order).send(line)
                answer = order.wait(on_progress)
            except BaseException as error:
                # Nobody waits for this order any more, most likely because of Ctrl-C.
                if order.id in self._orders:
                    self.cancel_all(f"interrupted by {type(error).__name__}")
                raise
            finally:
                with self._lock:
                    self._orders.pop(order.id, None)
                    self._idle_since = self._clock()
        if isinstance(answer, LithifyError):
            raise answer
        if "error" in answer:
            raise wire.unpack(answer["error"])
        return [wire.unpack(result) for result in answer["results"]]

    def _child_for(self, order: _Order) -> WorkerProcess:
        while True:
            with self._lock:
                if self._closed:
                    raise InvalidRequest("this lake is closed: open it again with Lake(path)")
                if self._child is None:
                    self._check_health()
                    self._child = WorkerProcess(self._options.config, self)
                    self._starts_ever += 1
                if not self._child.ending:
                    self._orders[order.id] = order
                    return self._child
                ending = self._child
            ending.join()

    def _check_health(self) -> None:
        if self._deaths < DEATHS_MAX:
            return
        rest_s = REST_S - (self._clock() - self._died_at)
        if rest_s > 0:
            raise ComputeFailed(
                f"the Spark worker died {self._deaths} times in a row and rests for {rest_s:.0f} s before it is tried "
                f"again; repair what ends it. {self._last_words}",
                deaths=self._deaths,
            )

    # -- what the child's reader tells

    def heard(self, message: dict[str, Any]) -> None:
        with self._lock:
            order = self._orders.get(message.get("id") or "")
            if order is None:
                return
            if "heartbeat" in message:
                order.done = message.get("done")
            else:
                self._deaths = 0
        order.inbox.put(message)

    def nothing_heard(self, child: WorkerProcess, silence_s: float) -> None:
        """The child had nothing to say for a while: is it stuck, or has it nothing to do?"""
        with self._lock:
            if child.ending:
                return
            if silence_s > self._options.silence_s_max:
                child.end(End.KILLED, f"it was silent for {silence_s:.0f} s")

    def check_idle(self, child: WorkerProcess) -> None:
        with self._lock:
            if not child.ending and not self._orders and self._clock() - self._idle_since > self._options.idle_s:
                log.debug("Spark worker %d given back after %.0f s without work", child.pid, self._options.idle_s)
                child.end(End.ASKED, "idle")

    def ended(self, child: WorkerProcess, how: End, why: str, code: int, stderr: list[str]) -> None:
        """All processes of the child are gone."""
        tail = stderr[-_TAIL_LINES:]
        with self._lock:
            self._child = None
            orders = list(self._orders.values())
            if how in (End.DIED, End.KILLED):
                self._deaths += 1
                self._deaths_ever += 1
                self._died_at = self._clock()
                self._last_words = f"Its last words: {' | '.join(tail)}" if tail else "It said nothing."
                log.warning("the Spark worker died: %s. %s", _cause(how, why, code), self._last_words)
            last_words = self._last_words
        for order in orders:
            order.inbox.put(_death(order, how, why, code, last_words))


def _cause(how: End, why: str, code: int) -> str:
    return why if how is End.KILLED else classify_exit(code).reason


def _death(order: _Order, how: End, why: str, code: int, last_words: str) -> LithifyError:
    if how is End.CANCELLED:
        return ComputeFailed(f"cancelled: {why}", cancelled=True)
    cause = _cause(how, why, code)
    said = f"the Spark worker died ({cause}) while it ran {order.function} on {plural(order.of, 'task')}. {last_words}"
    if how is End.KILLED or classify_exit(code).kind == "recoverable":
        return OutOfResources(said, reason=cause, exit=code)
    return ComputeFailed(said, unknown=True, exit=code)
