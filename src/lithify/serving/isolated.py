"""Queries in processes of their own, which the operating system holds to their limits and anybody may kill.

A process is taken from those that wait, or forked from the template (`query_template`), for one query at a time. It
parses, plans and runs (`query_process`); this side decides what it may see. It answers its questions with the caller's
rights, keeps the hot rows that it reads where they are, and stops it by SIGKILL when its time, memory or disk is used
up or the query is cancelled. A process that dies by itself is that query's failure and nobody else's. One that has
answered and is still small waits for the next query; in place of any other a new one is forked at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import signal
import socket
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify.errors import ComputeFailed, InvalidRequest, LithifyError, OutOfResources, Unavailable
from lithify.model.hot_rows import HotRows, RowsInMemory
from lithify.model.plans import PlannedTable, Summary
from lithify.serving.catalog import Names, TableOf
from lithify.serving.channel import Channel, Gone
from lithify.serving.execution import QueryRun
from lithify.serving.filters import Place
from lithify.serving.jobs import BEGUN, Head, HotState, Job, Memory, Task, sendable, slim
from lithify.serving.limits import out_of_disk, out_of_memory, out_of_time, too_much_of_one
from lithify.serving.query_template import template
from lithify.store.local import translated
from lithify.store.scratch import Scratch
from lithify.store.shared_memory import SharedMemory

# How often a query under way is looked at.
WATCH_S = 0.1
# What a process may take beside the memory that the engine counts: the interpreter, the libraries, what functions make.
UNCOUNTED_BYTES = 512 * 2**20
# What a process keeps from query to query, at most, to be kept itself.
IDLE_BYTES_MAX = 384 * 2**20
STDERR_READ_BYTES = 4_096
# States of hot tables that a process remembers.
STATES_KEPT_MAX = 32
END_S_MAX = 30.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class NotBegun(OutOfResources):
    """The process was dead before it could begin, whatever it was asked for: another one may be asked."""


@dataclass(frozen=True)
class Isolated:
    """What came of a task: what the process says of it, rows if there are any, and the tables that it named."""

    answer: Any
    rows: pa.Table | None
    used: tuple[Place, ...]


class QueryProcesses:
    """Those of one lake. `waiting_max` are kept at most while nobody asks."""

    def __init__(self, memory: SharedMemory, waiting_max: int) -> None:
        self._memory, self._waiting_max = memory, waiting_max
        self._states = HotStates(memory)
        self._waiting: list[QueryProcess] = []
        self._running: set[QueryProcess] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._later: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._helper: threading.Thread | None = None

    def warm(self, count: int) -> None:
        """Have so many ready, soon."""
        for _ in range(count):
            self._do_later(self._start_one)

    def run(
        self,
        task: Task,
        table_of: TableOf,
        names: Names,
        course: QueryRun,
        limits: ProcessLimits,
        likely: Sequence[Place] = (),
    ) -> Isolated:
        """`likely`: tables that it will ask for, as it seems."""
        for last in (False, True):
            process = self._take(course, new=last)
            try:
                with contextlib.ExitStack() as stack:
                    if course.run is not None:
                        stack.enter_context(course.run.stop_with(process.stop))
                    course.check()
                    told = Told(table_of, names, self._states, process.seen)
                    with self._listed(process, course.owner):
                        others = partial(self._others, process, limits)
                        return process.run(task, told, course, limits, likely, others)
            except NotBegun:
                if last:
                    raise
            finally:
                self._give_back(process)
        raise AssertionError

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

    def _take(self, course: QueryRun, *, new: bool) -> QueryProcess:
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("the lake is being closed")
                process = self._waiting.pop() if self._waiting and not new else None
            if process is None:
                return self._started(course)
            if process.is_alive:
                return process
            self._do_later(process.end)

    def _started(self, course: QueryRun) -> QueryProcess:
        """A new one. On a busy machine that may take longer than the query has, or its client waits."""
        made: Future[QueryProcess] = Future()

        def make() -> None:
            try:
                made.set_result(QueryProcess())
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
            if fit and not self._closed and len(self._waiting) < self._waiting_max:
                self._waiting.append(process)
                return
            replace = not fit and not self._closed and not self._waiting
        process.stop()
        self._do_later(process.end)
        if replace:
            self._do_later(self._start_one)

    def _start_one(self) -> None:
        with self._lock:
            if self._closed or len(self._waiting) >= self._waiting_max:
                return
        try:
            process = QueryProcess()
        except Unavailable:  # the next query tries again, and says so
            return
        with self._lock:
            kept = not self._closed
            if kept:
                self._waiting.append(process)
        if not kept:
            process.end()

    def _do_later(self, work: Callable[[], object]) -> None:
        with self._lock:
            if self._helper is None or not self._helper.is_alive():
                self._helper = threading.Thread(target=self._help, name="lithify-query-processes", daemon=True)
                self._helper.start()
        self._later.put(work)

    def _help(self) -> None:
        while (work := self._later.get()) is not None:
            work()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            running = list(self._running)
            helper = self._helper
        for process in running:
            process.stop()  # whoever waits for it hears that, and ends it
        for process in waiting:
            process.end()
        if helper is not None:
            self._later.put(None)
            helper.join()


@dataclass(frozen=True)
class ProcessLimits:
    """Of one query, and of all queries of one owner together."""

    memory_bytes_max: int
    spill_bytes_max: int
    owner_memory_bytes_max: int
    owner_spill_bytes_max: int


class QueryProcess:
    def __init__(self) -> None:
        with translated(tempfile.gettempdir()):
            # Where it puts what does not fit its memory. A killed process cannot clean up.
            self._scratch = Scratch("query")
        ours, theirs = socket.socketpair()
        try:
            self._forked = template().fork(theirs, str(self._scratch.path))
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
        return not self._ended and not select.select([self._forked.pidfd], [], [], 0)[0]

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
        likely: Sequence[Place],
        look_at_others: Callable[[], None],
    ) -> Isolated:
        def look() -> None:
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
        heads = told.heads(likely)
        memory, descriptors = told.news()
        job = Job(self._tasks, task, limits.memory_bytes_max, limits.spill_bytes_max, cpu_s_max, heads, memory)
        pieces = _Pieces(limits.memory_bytes_max)
        self._channel.watch(WATCH_S if left_s is None else max(min(WATCH_S, left_s), 0.001), look)
        try:
            self._channel.send(job, descriptors)
            while True:
                (kind, about), _ = self._channel.receive()
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
        select.select([self._forked.pidfd], [], [], END_S_MAX)
        code = template().status(self._forked)
        os.close(self._forked.pidfd)
        self._channel.close()
        self._scratch.close()
        return code

    def _death(self, memory_max: int, course: QueryRun) -> LithifyError:
        """Why it has died by itself."""
        select.select([self._forked.pidfd], [], [], END_S_MAX)
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
        return pa.ipc.open_stream(whole).read_all()


class Seen:
    """What a process knows of shared memory: what it was told, and not told to forget."""

    def __init__(self) -> None:
        self._states: OrderedDict[int, None] = OrderedDict()
        self._segments: set[int] = set()
        self._new: list[int] = []
        self._forgotten: list[int] = []

    def state(self, number: int, segments: Callable[[], set[int]]) -> bool:
        """Whether it knows these hot rows already; from now on it does. `segments`: where they lie."""
        known = number in self._states
        if not known:
            self._states[number] = None
            new = segments() - self._segments
            self._new += sorted(new)
            self._segments |= new
        self._states.move_to_end(number)
        while len(self._states) > STATES_KEPT_MAX:
            self._forgotten.append(self._states.popitem(last=False)[0])
        return known

    def news(self, memory: SharedMemory) -> tuple[Memory, list[int]]:
        """What it has to be told before it looks there, and the descriptors for that."""
        gone = self._segments - set(memory.segments)
        self._segments -= gone
        told = Memory(tuple(self._new), tuple(gone), tuple(self._forgotten))
        self._new, self._forgotten = [], []
        return told, [memory.descriptor(segment) for segment in told.new]


class HotStates:
    """Numbers for hot rows, so that a process that has seen some is not told again."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        self._numbers = itertools.count(1)
        self._known: weakref.WeakKeyDictionary[HotRows, int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def number(self, rows: HotRows) -> int:
        with self._lock:
            if rows not in self._known:
                self._known[rows] = next(self._numbers)
            return self._known[rows]


class Told:
    """What one query is told of the lake, with its caller's rights. What it was given to read stays while it runs."""

    def __init__(self, table_of: TableOf, names: Names, states: HotStates, seen: Seen) -> None:
        self._table_of, self._names, self._states, self._seen = table_of, names, states, seen
        self._opened: dict[Place, PlannedTable] = {}
        self._summaries: dict[Place, Summary | None] = {}
        self._held: list[Any] = []

    def heads(self, likely: Sequence[Place]) -> dict[Place, Head]:
        """What can be told of some tables before it is asked for. Those of which nothing can be told are left for when
        they are: that says why.
        """
        found: dict[Place, Head] = {}
        for place in likely:
            try:
                planned = self._table(place)
                if planned is not None:
                    rows = planned.hot(())
                    found[place] = Head(slim(planned.snapshot), None if rows is None else self._state(rows))
            except LithifyError:
                continue
        return found

    def news(self) -> tuple[Memory, list[int]]:
        return self._seen.news(self._states.memory)

    def reply(self, question: str, about: Any, channel: Channel) -> None:
        if question == "want":
            place, columns = about
            self._opened[place].want_hot(columns)
            return
        try:
            succeeded, answer = True, self._answer(question, about)
        except LithifyError as error:
            succeeded, answer = False, error
        memory, descriptors = self.news()
        channel.send((succeeded, answer, memory), descriptors)

    def _answer(self, question: str, about: Any) -> Any:
        match question:
            case "names":
                return {namespace: set(tables) for namespace, tables in self._names().items()}
            case "table":
                planned = self._table(about)
                return None if planned is None else Head(slim(planned.snapshot))
            case "plan":
                place, predicate = about
                return sendable(self._opened[place].plan(predicate))
            case "hot":
                place, columns = about
                rows = self._opened[place].hot(columns)
                return None if rows is None else self._state(rows)
            case "summary":
                found = self._summaries[about] = self._opened[about].summary()
                return None if found is None else found.rows
            case "nulls" | "bounds":
                place, column = about
                known = self._summaries[place]
                assert known is not None
                return known.nulls(column) if question == "nulls" else known.bounds(column)
        raise AssertionError(f"unknown question {question}")

    def _table(self, place: Place) -> PlannedTable | None:
        if place not in self._opened and (planned := self._table_of(*place)) is not None:
            self._opened[place] = planned
        return self._opened.get(place)

    def _state(self, rows: RowsInMemory) -> HotState:
        assert isinstance(rows, HotRows)
        self._held.append(rows)
        number = self._states.number(rows)
        if self._seen.state(number, lambda: {segment.block.shape.segment for segment in rows.segments}):
            return HotState(number)
        blocks = tuple((segment.block.shape, tuple(segment.dead.tolist())) for segment in rows.segments)
        return HotState(number, rows.columns, blocks)
