"""Queries in processes of their own, which the operating system holds to their limits and anybody may kill.

A process is taken from those that wait, or forked from the template (`template`), for one query at a time. It parses,
plans and runs (`process`); this side decides what it may see: of the disk, the folders of tables that the caller may
read (`cage`), and whatever it asks is answered with the caller's rights (`answers`). It keeps the hot rows that the
process reads where they are, and stops it by SIGKILL when its time, memory or disk is used up or the query is
cancelled. A process that dies by itself is that query's failure and nobody else's. One that has answered and is still
small waits for the next query; in place of any other a new one is forked at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify.cache.shared_memory import SharedMemory
from lithify.compute.background import Later
from lithify.core.names import TableRef
from lithify.errors import ComputeFailed, InvalidRequest, LithifyError, OutOfResources, Unavailable
from lithify.files.os_errors import translated
from lithify.files.scratch import Scratch
from lithify.sql.empty_catalog import Names, TableOf
from lithify.sql.isolated import cage
from lithify.sql.isolated.answers import HotStates, OutOfView, Seen, Told
from lithify.sql.isolated.cage import View, Views, fits, folders_at
from lithify.sql.isolated.channel import Channel, Gone, Untrusted, readable
from lithify.sql.isolated.messages import BEGUN, Job, Task
from lithify.sql.isolated.template import template
from lithify.sql.limits import out_of_disk, out_of_memory, out_of_time, too_much_of_one
from lithify.sql.query_run import QueryRun

logger = logging.getLogger(__name__)

# How often a query under way is looked at.
WATCH_S = 0.1
# What a process may take beside the memory that the engine counts: the interpreter, the libraries, what functions make.
UNCOUNTED_BYTES = 512 * 2**20
# What a process keeps from query to query, at most, to be kept itself.
IDLE_BYTES_MAX = 384 * 2**20
STDERR_READ_BYTES = 4_096
END_S_MAX = 30.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class NotBegun(OutOfResources):
    """The process was dead before it could begin, whatever it was asked for: another one may be asked."""


@dataclass(frozen=True)
class Isolated:
    """What came of a task: what the process says of it, rows if there are any, and the tables that it named."""

    answer: Any
    rows: pa.Table | None
    used: tuple[TableRef, ...]


class QueryProcesses:
    """Those of one lake. `waiting_max` are kept at most while nobody asks."""

    def __init__(self, memory: SharedMemory, waiting_max: int) -> None:
        self._memory, self._waiting_max = memory, waiting_max
        self._states = HotStates(memory)
        self._views = Views()
        self._waiting: list[QueryProcess] = []
        self._running: set[QueryProcess] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._later = Later("lithify-query-processes")

    def warm(self, count: int, tables: Callable[[], Mapping[str, Sequence[str]]] = dict) -> None:
        """Have so many ready, soon, which can see these tables: their folders by their names."""
        if not cage.is_possible():
            logger.warning(cage.NONE)

        def start() -> None:
            with contextlib.suppress(LithifyError):  # whoever asks for a table says what is wrong with it
                self._views.note({table: folders_at(paths) for table, paths in tables().items()})
            for _ in range(count):
                self._start_one(self._views.of_new({}, None))

        self._later.do(start)

    def run(
        self,
        task: Task,
        table_of: TableOf,
        names: Names,
        course: QueryRun,
        limits: ProcessLimits,
        likely: Sequence[TableRef] = (),
    ) -> Isolated:
        """`likely`: tables that it will ask for, as it seems."""
        with contextlib.closing(Told(table_of, names, self._states)) as told:
            told.open(likely)
            return self._told(told, task, course, limits)

    def _told(self, told: Told, task: Task, course: QueryRun, limits: ProcessLimits) -> Isolated:
        killed = False
        while True:
            process = self._take(course, told.needed, new=killed)
            try:
                with contextlib.ExitStack() as stack:
                    if course.run is not None:
                        stack.enter_context(course.run.stop_with(process.stop))
                    course.check()
                    told.begin(process.seen, process.view)
                    with self._listed(process, course.owner):
                        return process.run(task, told, course, limits, partial(self._others, process, limits))
            except NotBegun:
                if killed:
                    raise
                killed = True
            except OutOfView:  # each time there is one more table that the next process is made for
                continue
            finally:
                self._give_back(process)

    def pids(self) -> list[int]:
        """Of all that there are now."""
        with self._lock:
            return [process.pid for process in (*self._running, *self._waiting)]

    def _others(self, process: QueryProcess, limits: ProcessLimits) -> None:
        """Raises for the largest query of an owner whose queries together take too much."""
        if process.owner is None:
            return
        with self._lock:
            theirs = [one for one in self._running if one.owner == process.owner]
        if len(theirs) < 2:
            return
        for measure, bytes_max, what, setting in (
            (QueryProcess.own_bytes, limits.owner_memory_bytes_max, "memory", "token_memory_bytes_max"),
            (QueryProcess.spilled_bytes, limits.owner_spill_bytes_max, "disk", "token_spill_bytes_max"),
        ):
            sizes = {one: measure(one) for one in theirs}
            if sum(sizes.values()) > bytes_max and sizes[process] == max(sizes.values()):
                raise too_much_of_one(what, bytes_max, setting)

    @contextlib.contextmanager
    def _listed(self, process: QueryProcess, owner: str | None) -> Iterator[None]:
        with self._lock:
            process.owner = owner
            self._running.add(process)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)

    def _take(self, course: QueryRun, needed: View, *, new: bool) -> QueryProcess:
        self._views.note(needed)
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("the lake is being closed")
                # The one that waited least: it is the warmest, and knows the newest tables.
                waiting = () if new else reversed(self._waiting)
                process = next((one for one in waiting if fits(one.view, needed, course.may_read)), None)
                if process is not None:
                    self._waiting.remove(process)
            if process is None:
                return self._started(course, self._views.of_new(needed, course.may_read))
            if process.is_alive:
                return process
            self._later.do(process.end)

    def _started(self, course: QueryRun, view: View) -> QueryProcess:
        """A new one. On a busy machine that may take longer than the query has, or its client waits."""
        made: Future[QueryProcess] = Future()

        def make() -> None:
            try:
                made.set_result(QueryProcess(view))
            except BaseException as error:
                made.set_exception(error)

        threading.Thread(target=make, name="lithify-query-start", daemon=True).start()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    return made.result(WATCH_S)
                course.check()
        except BaseException:
            made.add_done_callback(self._not_needed)
            raise

    def _not_needed(self, made: Future[QueryProcess]) -> None:
        if made.exception() is None:
            self._give_back(made.result())

    def _give_back(self, process: QueryProcess) -> None:
        fit = process.is_free and process.is_alive and process.own_bytes() <= IDLE_BYTES_MAX
        with self._lock:
            unneeded = process
            if fit and not self._closed and self._waiting_max:
                self._waiting.append(process)
                if len(self._waiting) <= self._waiting_max:
                    return
                unneeded = self._waiting.pop(0)  # nobody has wanted its view for the longest time
            replace = not fit and not self._closed and not self._waiting
        unneeded.stop()
        self._later.do(unneeded.end)
        if replace:
            self._later.do(partial(self._start_one, process.view))

    def _start_one(self, view: View) -> None:
        with self._lock:
            if self._closed or len(self._waiting) >= self._waiting_max:
                return
        try:
            process = QueryProcess(view)
        except Unavailable:  # the next query tries again, and says so
            return
        with self._lock:
            stays = not self._closed
            if stays:
                self._waiting.append(process)
        if not stays:
            process.end()

    def let_go(self) -> None:
        """End those that wait, and what they remember with them."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for process in waiting:
            process.end()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            running = list(self._running)
        for process in running:
            process.stop()  # whoever waits for it hears that, and ends it
        for process in waiting:
            process.end()
        self._later.close()


@dataclass(frozen=True)
class ProcessLimits:
    """Of one query, and of all queries of one owner together."""

    memory_bytes_max: int
    spill_bytes_max: int
    owner_memory_bytes_max: int
    owner_spill_bytes_max: int


class QueryProcess:
    """`view`: the tables whose files it can read."""

    def __init__(self, view: View) -> None:
        self.view = view
        folders = sorted({folder.path for folders in view.values() for folder in folders})
        caged = folders if cage.is_possible() else None
        # Where it puts what does not fit its memory. A killed process cannot clean up.
        self._scratch = Scratch("query")
        try:
            with translated("a process for the query"):
                ours, theirs = socket.socketpair()
        except BaseException:
            self._scratch.close()
            raise
        try:
            self._forked = template().fork(theirs, str(self._scratch.path), caged)
        except BaseException:
            ours.close()
            self._scratch.close()
            raise
        finally:
            theirs.close()
        self._channel = Channel(ours, trusting=False)
        self._lock = threading.Lock()
        self._ended = False
        self.seen = Seen()
        self._tasks = 0
        # Whose query it is at, and whether it waits for one.
        self.owner: str | None = None
        self.is_free = True

    @property
    def pid(self) -> int:
        return self._forked.pid

    @property
    def is_alive(self) -> bool:
        return not self._ended and not readable(self._forked.pidfd, 0)

    def own_bytes(self) -> int:
        """Memory that is its alone, without what it maps; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.pid}/statm").read_bytes().split()
            return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0

    def spilled_bytes(self) -> int:
        total = 0
        for folder, _, names in os.walk(self._scratch.path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return total

    def run(
        self,
        task: Task,
        told: Told,
        course: QueryRun,
        limits: ProcessLimits,
        look_at_others: Callable[[], None],
    ) -> Isolated:
        looked_at = time.monotonic()

        def look() -> None:
            nonlocal looked_at
            looked_at = time.monotonic()
            course.check()
            look_at_others()
            if self.own_bytes() > limits.memory_bytes_max + UNCOUNTED_BYTES:
                raise out_of_memory(limits.memory_bytes_max)
            if self.spilled_bytes() > limits.spill_bytes_max:
                raise out_of_disk(limits.spill_bytes_max)

        left_s = course.left_s()
        cpu_s_max = None if left_s is None else left_s * (os.cpu_count() or 1) + END_S_MAX
        self.is_free = False
        self._tasks += 1
        heads = told.heads()
        memory, descriptors = told.news()
        job = Job(self._tasks, task, limits.memory_bytes_max, limits.spill_bytes_max, cpu_s_max, heads, memory)
        pieces = _Pieces(limits.memory_bytes_max)
        self._channel.watch(WATCH_S if left_s is None else max(min(WATCH_S, left_s), 0.001), look)
        try:
            self._channel.send(job, descriptors)
            while True:
                (kind, about), _ = self._channel.receive()
                if time.monotonic() - looked_at > WATCH_S:  # one that talks all the time is looked at too
                    look()
                match kind:
                    case "piece":
                        pieces.add(about)
                    case "answer":
                        answer, used, piece = about
                        pieces.add(piece)
                        self.is_free = True
                        return Isolated(answer, pieces.rows() if task.answers_rows else None, used)
                    case "failed":
                        self.is_free = True
                        raise about
                    case _:
                        told.reply(kind, about, self._channel)
        except Untrusted as error:
            self.stop()
            raise ComputeFailed(f"the query was stopped: {error}, which none has to; it is a bug in Lithify") from error
        except Gone as error:
            course.check()
            raise self._death(limits.memory_bytes_max, course) from error

    def stop(self) -> None:
        """End it, from whichever thread; whoever talks to it then hears that."""
        with self._lock:
            if not self._ended:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self._forked.pidfd, signal.SIGKILL)

    def end(self) -> int | None:
        """Stop it, and clean up behind it. How it ended; None if that was asked before, or nobody knows."""
        self.stop()
        with self._lock:
            if self._ended:
                return None
            self._ended = True
        readable(self._forked.pidfd, END_S_MAX)
        code = template().status(self._forked)
        os.close(self._forked.pidfd)
        self._channel.close()
        self._scratch.close()
        return code

    def _death(self, memory_max: int, course: QueryRun) -> LithifyError:
        """Why it has died by itself."""
        readable(self._forked.pidfd, END_S_MAX)
        begun, last_words = self._left(BEGUN) == str(self._tasks), self._left("stderr")
        code = self.end()
        if code == -signal.SIGXCPU and course.limits.timeout_s is not None:
            return out_of_time(course.limits.timeout_s)
        if "memory allocation" in last_words or "MemoryError" in last_words:
            return out_of_memory(memory_max)
        if code in (-signal.SIGSEGV, -signal.SIGBUS) or "overflowed its stack" in last_words:
            return InvalidRequest("the query has too many parts within each other or in a row: write a simpler one")
        if code in (None, -signal.SIGKILL):
            return (OutOfResources if begun else NotBegun)(
                "the query's process was killed, perhaps because the machine has no memory left: try again, or ask for "
                "less",
                public="the query's process was killed: try again, or ask for less",
            )
        return ComputeFailed(
            f"the query took its process down (exit status {code})", public="the query took its process down"
        )

    def _left(self, name: str) -> str:
        try:
            with (self._scratch.path / name).open("rb") as file:
                return file.read(STDERR_READ_BYTES).decode(errors="replace")
        except OSError:
            return ""


class _Pieces:
    """An Arrow stream that comes in pieces."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._left = bytes_max, bytes_max
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise out_of_memory(self._bytes_max)
        self._pieces.append(piece)

    def rows(self) -> pa.Table:
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        try:
            return _sound(pa.ipc.open_stream(whole).read_all())
        except pa.ArrowInvalid as error:
            raise ComputeFailed(
                f"the query's process answered with rows that are none: {error}",
                public="the query's answer was damaged",
            ) from error


def _sound(rows: pa.Table) -> pa.Table:
    """Rows of which no value lies outside of what came: Arrow itself does not look, neither here nor later."""
    rows.validate()
    for column in rows.columns:
        if not (pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type)):
            column.validate(full=True)
    return rows
