"""Parquet files that are encoded by threads beside the one that brings their rows.

Arrow encodes and compresses without Python's lock, one column after the other, so one file keeps one core busy. Several
files at once keep several: the rows of each are written by one thread at a time, in their order, and a thread that has
nothing left of one file goes on with another. What waits for them is bounded in bytes: who brings more waits for room.
The first error stops all of it, and is told to whoever brings or closes next.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import PurePath
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from lithify.files.parquet import PartWriter, Written

T = TypeVar("T")

THREADS_MAX = 4


class Encoders:
    """Threads that write files, or prepare rows for them, one for each core up to `THREADS_MAX`. For each of them
    `file_bytes` may wait.
    """

    def __init__(self, file_bytes: int) -> None:
        self.threads = min(os.cpu_count() or 1, THREADS_MAX)
        self._waiting_bytes_max = self.threads * file_bytes
        self._pool = ThreadPoolExecutor(self.threads, "lithify-encode")
        self._changed = threading.Condition(threading.RLock())
        self._waiting_bytes = 0
        self._error: BaseException | None = None

    def __enter__(self) -> Encoders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(work)

    def take_room(self, size_bytes: int) -> None:
        """Wait until these bytes may wait too. What is larger than all room goes alone."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._error is not None
                    or not self._waiting_bytes
                    or self._waiting_bytes + size_bytes <= self._waiting_bytes_max
                )
            )
            self.check()
            self._waiting_bytes += size_bytes

    def give_room(self, size_bytes: int) -> None:
        with self._changed:
            self._waiting_bytes -= size_bytes
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def result(self, done: Future[T]) -> T:
        """What a thread has made, or the error that stopped all of them."""
        done.add_done_callback(self._notify)
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or done.done())
            if not done.done():
                self.check()
        return done.result()

    def _notify(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def check(self) -> None:
        if self._error is not None:
            raise self._error


class QueuedWriter:
    """A file whose rows are encoded by one of the threads at a time, in the order in which they come."""

    def __init__(self, writer: PartWriter, encoders: Encoders) -> None:
        self._writer, self._encoders = writer, encoders
        self._lock = threading.Lock()
        self._steps: deque[Callable[[], None]] = deque()
        self._running = False

    def write(self, table: pa.Table) -> None:
        size = table.nbytes
        self._encoders.take_room(size)

        def step() -> None:
            try:
                self._writer.write(table)
            finally:
                self._encoders.give_room(size)

        self._put(step)

    def close(self, relative_to: PurePath) -> Future[Written]:
        done: Future[Written] = Future()
        self._put(lambda: done.set_result(self._writer.close(relative_to)))
        return done

    def abandon(self) -> None:
        """Once no thread is at work any more."""
        self._writer.abandon()

    def _put(self, step: Callable[[], None]) -> None:
        with self._lock:
            self._steps.append(step)
            if self._running:
                return
            self._running = True
        self._encoders.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._steps:
                    self._running = False
                    return
                step = self._steps.popleft()
            try:
                self._encoders.check()
                step()
            except BaseException as error:
                self._encoders.fail(error)
                return
