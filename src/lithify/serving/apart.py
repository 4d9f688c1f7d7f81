"""Queries that cannot be stopped, or could take the process down, run in a process of their own that can be killed.

The child plans and runs the query; whatever it needs to know of the lake it asks for over a pipe, table by table, so
that it sees the same snapshots and no table that the caller may not read. It never writes. When time or memory is
over, or the query is cancelled, it is killed; when it dies by itself, that is the query's failure and nobody else's.
A child that has answered is kept for the next query, for a while; in place of one that was killed, another is started.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify.errors import ComputeFailed, InvalidRequest, LithifyError, Unavailable
from lithify.model.plans import PlannedTable
from lithify.model.schema import TableSchema
from lithify.model.snapshot import Snapshot
from lithify.serving.catalog import Names, TableOf
from lithify.serving.execution import UNCOUNTED_BYTES, WATCH_S, Course, resident_bytes
from lithify.serving.filters import Place
from lithify.serving.limits import out_of_memory
from lithify.store.scratch import Scratch

IDLE_CHILDREN_MAX = 2
# What a child keeps from query to query, at most, to be kept itself.
IDLE_BYTES_MAX = 512 * 2**20
STDERR_READ_BYTES = 4_096
READY = ("ready",)


@dataclass(frozen=True)
class Job:
    query: str
    memory_bytes_max: int
    rows_max: int | None


@dataclass(frozen=True)
class Head:
    """What a child is told of a table that exists."""

    snapshot: Snapshot
    schema: TableSchema


class Apart:
    def __init__(self, memory_bytes_max: int) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(self, query: str, table_of: TableOf, names: Names, course: Course) -> pa.Table:
        """The rows, one more than the limit allows if there are more."""
        memory_max = course.limits.memory_bytes_max or self._memory_bytes_max
        child = self._take()
        try:
            with contextlib.ExitStack() as stack:
                if course.run is not None:
                    stack.enter_context(course.run.stop_with(child.stop))
                course.check()
                with _death_explained(child, memory_max, course):
                    course.started_at += child.wait_until_ready()
                return _served(child, Job(query, memory_max, course.limits.rows_max), table_of, names, course)
        finally:
            self._give_back(child)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    def _take(self) -> _Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return _Child()
            if child.alive:
                return child
            child.kill()

    def _give_back(self, child: _Child) -> None:
        fit = child.idle and child.alive and (child.resident_bytes() or 0) <= IDLE_BYTES_MAX
        with self._lock:
            if fit and not self._closed and len(self._idle) < IDLE_CHILDREN_MAX:
                self._idle.append(child)
                return
        child.kill()
        with self._lock, contextlib.suppress(Unavailable):
            if not self._closed and not self._idle:
                self._idle.append(_Child())  # so that the next query need not wait for it


class _Child:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # Where it puts what does not fit its memory. A killed child cannot clean up.
        self._scratch = Scratch("query")
        self._stderr = (self._scratch.path / "stderr").open("w+b")
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "lithify.serving.apart_main",
                    str(theirs.fileno()),
                    str(self._scratch.path),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._clean_up()
            raise Unavailable(f"no process could be started for the query: {error}") from error
        finally:
            theirs.close()
        self.connection = Connection(ours.detach())
        self.idle = True
        self._ready = False

    def wait_until_ready(self) -> float:
        """Answers for how long, in seconds: a query's time begins then."""
        began = time.monotonic()
        if not self._ready:
            assert self.connection.recv() == READY
            self._ready = True
        return time.monotonic() - began

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int | None:
        return resident_bytes(Path(f"/proc/{self._process.pid}/statm"))

    def stop(self) -> None:
        """End it, from whichever thread; whoever talks to it then hears that."""
        self._process.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()
        self._clean_up()

    def _clean_up(self) -> None:
        self._stderr.close()
        self._scratch.close()

    def death(self, memory_max: int) -> LithifyError:
        """Why it has died by itself."""
        code = self._process.wait()
        self._stderr.seek(0)
        last_words = self._stderr.read(STDERR_READ_BYTES).decode(errors="replace")
        if code == -signal.SIGKILL or "memory allocation" in last_words or "MemoryError" in last_words:
            return out_of_memory(memory_max)
        if code == -signal.SIGSEGV or "overflowed its stack" in last_words:
            return InvalidRequest("the query has too many parts within each other or in a row: write a simpler one")
        return ComputeFailed(f"the query took its process down (exit status {code})")


def _served(child: _Child, job: Job, table_of: TableOf, names: Names, course: Course) -> pa.Table:
    """Answer a child's questions until it has the rows."""
    opened: dict[Place, PlannedTable] = {}

    def reply(question: tuple[Any, ...]) -> Any:
        match question:
            case "names", None:
                return dict(names())
            case "table", place:
                if place not in opened and (planned := table_of(*place)) is not None:
                    opened[place] = planned
                return Head(opened[place].snapshot, opened[place].schema) if place in opened else None
            case "plan", (place, predicate):
                # The report on what was spared is for people, and tells lazily.
                return replace(opened[place].plan(predicate), pruning=None)
        raise AssertionError(f"unknown question {question[0]}")

    with _death_explained(child, job.memory_bytes_max, course):
        child.idle = False
        child.connection.send(job)
        while True:
            message = _next(child, job.memory_bytes_max, course)
            if message[0] == "rows":
                rows = pa.ipc.open_stream(child.connection.recv_bytes()).read_all()
                child.idle = True
                return rows
            if message[0] == "failed":
                child.idle = True
                raise message[1]
            try:
                answer: tuple[bool, Any] = True, reply(message)
            except LithifyError as error:
                answer = False, error
            child.connection.send(answer)


def _next(child: _Child, memory_max: int, course: Course) -> tuple[Any, ...]:
    while True:
        left_s = course.left_s()
        if child.connection.poll(WATCH_S if left_s is None else max(min(WATCH_S, left_s), 0)):
            message: tuple[Any, ...] = child.connection.recv()
            return message
        course.check()
        if (child.resident_bytes() or 0) > memory_max + UNCOUNTED_BYTES:
            raise out_of_memory(memory_max)


@contextlib.contextmanager
def _death_explained(child: _Child, memory_max: int, course: Course) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        course.check()
        raise child.death(memory_max) from error
