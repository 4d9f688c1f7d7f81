"""Collecting a query's rows within its limits.

How DataFusion 55 can be stopped, as measured: `to_arrow_table` and `next` block inside Rust until they are through.
`__anext__` gives an asyncio future instead; when its coroutine is cancelled, the Rust future is dropped, and the tasks
of the plan end as soon as each looks up from its work, once every reference to the stream is gone. Scans, sorts,
aggregates and recursions look up within a fraction of a second. Joins look up only between two batches of a scan, and
a single call of a function not at all: what is bounded by neither (`guard`, `work`) must not run here but `apart`.

One thread of the process runs the event loop for all queries; a query's own thread waits for its future, and is back
at its time limit whatever the engine does. That way takes half a millisecond more than the direct one, which is left
to queries without limits and to those so small that they are through before anybody could want to stop them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame

from lithify.serving.limits import Limits, out_of_memory, out_of_time
from lithify.serving.look import plain_schema
from lithify.serving.queries import Run

# How often a waiting query looks at the memory of the process.
WATCH_S = 0.1
# The engine's own count misses what functions and expressions take; beyond so much in all, the query is stopped.
UNCOUNTED_SHARE, UNCOUNTED_BYTES = 1, 512 * 2**20
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4_096


class Course:
    """A query on its way: its limits, and what has been used of them. Without a run, nobody can cancel it.

    `others_bytes` tells how much memory of the process is not the query's, and may grow meanwhile: that of the caches.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        run: Run | None = None,
        others_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self.limits, self.run, self._others_bytes = limits or Limits(), run, others_bytes
        self.started_at = time.monotonic()
        self.cut = False
        self.hot = self.repeatable = False

    def left_s(self) -> float | None:
        timeout_s = self.limits.timeout_s
        return None if timeout_s is None else self.started_at + timeout_s - time.monotonic()

    def check(self) -> None:
        """Raises if the query was cancelled or its time is over."""
        if self.run is not None:
            self.run.check()
        left_s = self.left_s()
        if left_s is not None and left_s <= 0:
            assert self.limits.timeout_s is not None
            raise out_of_time(self.limits.timeout_s)

    def resident_bytes(self) -> int | None:
        """Memory of the process without that of others; None where the system does not tell."""
        resident = resident_bytes()
        return None if resident is None else resident - self._others_bytes()

    @property
    def can_be_stopped(self) -> bool:
        return self.run is not None or self.limits.timeout_s is not None


def collect(frame: DataFrame, course: Course, *, small: bool = False) -> pa.Table:
    """All rows, or as many as the limit allows, with string views as plain strings: the spelling that every Arrow
    consumer reads. Without empty batches too: PySpark takes one in the middle for the end.
    """
    course.check()
    rows_max = course.limits.rows_max
    if rows_max is not None:
        frame = frame.limit(rows_max + 1)
    if small or not course.can_be_stopped:
        table = frame.to_arrow_table()
        course.check()
    else:
        batches = _batches(frame, course)
        table = pa.Table.from_batches(batches, batches[0].schema if batches else frame.schema())
    filled = pa.Table.from_batches([batch for batch in table.to_batches() if batch.num_rows], table.schema)
    return cut(filled.cast(plain_schema(table.schema)), course)


def cut(table: pa.Table, course: Course) -> pa.Table:
    """No more rows than the limit allows."""
    rows_max = course.limits.rows_max
    if rows_max is None or table.num_rows <= rows_max:
        return table
    course.cut = True
    return table.slice(0, rows_max)


def _batches(frame: DataFrame, course: Course) -> list[pa.RecordBatch]:
    memory_max = course.limits.memory_bytes_max
    future = asyncio.run_coroutine_threadsafe(_collected(frame, memory_max), _loop())
    with _stopped_at_the_end(future), _stop_on_cancel(future, course):
        resident_max = None
        if memory_max is not None and (now := course.resident_bytes()) is not None:
            resident_max = now + memory_max * (1 + UNCOUNTED_SHARE) + UNCOUNTED_BYTES
        while True:
            left_s = course.left_s()
            try:
                return future.result(WATCH_S if left_s is None else max(min(WATCH_S, left_s), 0))
            except concurrent.futures.CancelledError:
                course.check()
                raise
            except concurrent.futures.TimeoutError:
                course.check()
            if resident_max is not None and (course.resident_bytes() or 0) > resident_max:
                assert memory_max is not None
                raise out_of_memory(memory_max)


async def _collected(frame: DataFrame, memory_max: int | None) -> list[pa.RecordBatch]:
    """What has come is the caller's, and no longer in the engine's count."""
    batches, size_bytes = [], 0
    async for found in frame.execute_stream():
        batch = found.to_pyarrow()
        batches.append(batch)
        size_bytes += batch.nbytes
        if memory_max is not None and size_bytes > memory_max:
            raise out_of_memory(memory_max)
    return batches


@contextmanager
def _stopped_at_the_end(future: concurrent.futures.Future[list[pa.RecordBatch]]) -> Iterator[None]:
    try:
        yield
    finally:
        future.cancel()


@contextmanager
def _stop_on_cancel(future: concurrent.futures.Future[list[pa.RecordBatch]], course: Course) -> Iterator[None]:
    if course.run is None:
        yield
        return
    with course.run.stop_with(future.cancel):
        yield


def resident_bytes(statm: Path | None = None) -> int | None:
    """Memory of this process, or of the one that the file tells of; None where the system does not tell."""
    try:
        told = os.pread(_own_statm(os.getpid()), 128, 0) if statm is None else statm.read_bytes()
        return int(told.split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


@functools.cache
def _own_statm(pid: int) -> int:
    """Kept open: it is looked at before every query."""
    return os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lithify-queries", daemon=True).start()
    return loop
