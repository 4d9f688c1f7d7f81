"""The queue of writes to one table, and the one thread that commits them.

Whatever waits when the thread is free goes into one commit: the more writers, the fewer commits per write, and one
fsync serves them all. A caller waits for its own answer, which comes after the commit is durable. The queue is bounded;
a caller that finds it full waits for room, then is told so.

A caller that is interrupted while it waits takes its request back if it is still in the queue. One that is being
committed goes on: nothing is half written.

The thread starts with the first write and ends when there has been nothing to do for a while, so that an open table
costs none. After a group it waits a moment for the callers it has just answered, or half of them would always miss
the next commit.

Where files travel to their storage (`Writer.stages_ahead`) there are two such threads. While one commits a group the
other takes what waits and stages its files; it begins to commit when the first is done, so that groups are committed
in the order in which they were taken. Nobody is waited for while a commit is under way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from lithify.core.results import Commit
from lithify.errors import Unavailable
from lithify.write.small_writes import Request, Writer

GROUP_ROWS_MAX = 500_000
GROUP_BYTES_MAX = 64 * 2**20
IDLE_THREAD_S = 5.0
GATHER_S_MAX = 0.02


class QueueClosed(Exception):
    """The table was unloaded under the caller. Internal: load it again and retry."""


class _Waiting:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.answered = threading.Event()
        self.outcome: Commit | BaseException | None = None

    def answer(self, outcome: Commit | BaseException) -> None:
        self.outcome = outcome
        self.answered.set()


class WriteQueue:
    def __init__(
        self,
        table: str,
        writer: Writer,
        *,
        keyed: bool,
        commands_max: int,
        wait_s_max: float,
        on_idle: Callable[[], None],
    ) -> None:
        self._table, self._writer, self._keyed = table, writer, keyed
        self._commands_max, self._wait_s_max, self._on_idle = commands_max, wait_s_max, on_idle
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._committing = 0
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._taking, self._committed = threading.Lock(), threading.Lock()
        self._gather_until = 0.0
        self._gather_count = 0
        self._wake_at = 1

    # -- callers

    def write(self, request: Request) -> Commit:
        """Put the request into the next commit and wait for its answer."""
        waiting = _Waiting(self._writer.prepare(request))
        self._put(waiting)
        try:
            waiting.answered.wait()
        except BaseException:
            self._take_back(waiting)
            raise
        assert waiting.outcome is not None
        if isinstance(waiting.outcome, BaseException):
            raise waiting.outcome
        return waiting.outcome

    def _put(self, waiting: _Waiting) -> None:
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or len(self._waiting) < self._commands_max, self._wait_s_max
            )
            if self._closed:
                raise QueueClosed
            if not room:
                raise Unavailable(
                    f"table {self._table} has {self._commands_max} writes waiting already, and none was done within "
                    f"{self._wait_s_max:g} s; nothing was written: write fewer and larger batches, or raise "
                    "queue_commands_max or queue_wait_s_max"
                )
            self._ensure_threads()
            self._waiting.append(waiting)
            # A writer that gathers a group is not woken for each of it: every wake costs all of them a turn.
            if len(self._waiting) >= self._wake_at:
                self._changed.notify_all()

    def _take_back(self, waiting: _Waiting) -> None:
        with self._changed:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._changed.notify_all()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._committing)

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    # -- closing

    def close_if_idle(self) -> bool:
        with self._changed:
            if self.busy:
                return False
            self.close()
            return True

    def close(self) -> None:
        """Take no more; what waits is still committed and answered."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until a closed queue has answered everybody."""
        with self._changed:
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    # -- the threads

    def _ensure_threads(self) -> None:
        if not all(thread.is_alive() for thread in self._threads):
            # This process was forked from the one that started them, whichever locks they had.
            self._threads, self._taking, self._committed = [], threading.Lock(), threading.Lock()
            self._committing = 0
        while len(self._threads) < (2 if self._writer.stages_ahead else 1):
            thread = threading.Thread(target=self._run, name=f"lithify-writer {self._table}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self) -> None:
        while True:
            with self._taking:
                if not (group := self._next_group()):
                    return
                requests, ahead = [waiting.request for waiting in group], None
                if not self._committed.acquire(blocking=False):
                    if not group[0].request.alone(self._keyed):
                        ahead = self._writer.stage(requests)
                    self._committed.acquire()
            started = time.monotonic()
            try:
                outcomes = self._writer.write_all(requests, ahead)
            except BaseException as error:
                outcomes = [error] * len(group)
            finally:
                self._committed.release()
            self._answer(group, outcomes, started)

    def _answer(self, group: list[_Waiting], outcomes: list[Commit | BaseException], started: float) -> None:
        with self._changed:
            ended = time.monotonic()
            self._committing -= len(group)
            self._gather_until = ended + min(GATHER_S_MAX, ended - started)
            self._gather_count = len(group) + len(self._waiting)
            idle = not self.busy
        for waiting, outcome in zip(group, outcomes, strict=True):
            waiting.answer(outcome)
        if idle:
            self._on_idle()

    def _next_group(self) -> list[_Waiting]:
        """Wait for work. An empty group ends the thread."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting or self._closed, IDLE_THREAD_S) or not self._waiting:
                self._threads.remove(threading.current_thread())
                return []
            gather_s = self._gather_until - time.monotonic()
            if gather_s > 0 and not self._closed and not self._committed.locked():
                self._wake_at = self._gather_count
                self._changed.wait_for(lambda: self._closed or len(self._waiting) >= self._gather_count, gather_s)
                self._wake_at = 1
            if not self._waiting:
                return self._next_group()
            group = self._take()
            self._committing += len(group)
            self._changed.notify_all()
            return group

    def _take(self) -> list[_Waiting]:
        """From the front, in order, what may share a commit. A write that is to be remembered as an earlier one of the
        group, say the same batch once more, comes after it: then the log tells what became of that.
        """
        group = [self._waiting.popleft()]
        rows, size = group[0].request.rows, group[0].request.bytes
        names = set(group[0].request.write.remembered_as)
        if group[0].request.alone(self._keyed):
            return group
        while self._waiting and not (request := self._waiting[0].request).alone(self._keyed):
            rows, size = rows + request.rows, size + request.bytes
            if rows > GROUP_ROWS_MAX or size > GROUP_BYTES_MAX or names & request.write.remembered_as:
                break
            names |= request.write.remembered_as
            group.append(self._waiting.popleft())
        return group
