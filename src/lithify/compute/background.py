"""Small work on threads beside others: again and again while something lasts, one thing after the other, or of each
thing only the latest.

No such thread keeps a process from ending.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from weakref import WeakMethod


def before_exit(stop: Callable[[], object]) -> None:
    """Call this method, if its object is still there, when the program has come to its end: before Python waits for
    threads, and while pools of threads still take work. `atexit` comes after both, and nothing else is told before.
    """
    method = WeakMethod(stop)

    def act() -> None:
        if (alive := method()) is not None:
            alive()

    getattr(threading, "_register_atexit", atexit.register)(act)


@contextmanager
def repeating(act: Callable[[], None], interval_s: float, name: str) -> Iterator[None]:
    """`act` is called every `interval_s` while the block lasts, and is through when it ends."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(interval_s):
            act()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


_Queue = queue.SimpleQueue[Callable[[], object] | None]


def _work(todo: _Queue) -> None:
    while (work := todo.get()) is not None:
        work()


class Later:
    """Things to be done one after the other, on a thread that starts with the first of them. None of them may raise."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._queue = _Queue()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], object]) -> None:
        with self._lock:
            # Not alive: this process was forked from the one that started it.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=_work, args=(self._queue,), name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(work)

    def wait(self, timeout_s: float | None = None) -> None:
        """Until what was to be done is."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done.set)
            done.wait(timeout_s)

    def close(self) -> None:
        """Wait for what was to be done, and end the thread; the next thing to do would start another."""
        with self._lock:
            thread, todo = self._thread, self._queue
            self._thread, self._queue = None, _Queue()
        if thread is not None:
            todo.put(None)
            if thread is not threading.current_thread():
                thread.join()


class Latest:
    """Things that may wait, and of which only the latest of its name counts: one after the other, on a thread that ends
    when there are none. What is called is told whether somebody waits for it, and answers for how many seconds it would
    rather be left alone; 0: it is done. None of them may raise.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self.forget()

    def forget(self) -> None:
        """In a process that was forked: what waits belongs to the one that it was forked from."""
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, tuple[float, Callable[[bool], float]]] = {}  # and not before when
        self._running: Callable[[bool], float] | None = None
        self._thread: threading.Thread | None = None
        self._hurried = 0

    def do(self, name: Hashable, work: Callable[[bool], float], *, anew: bool = False) -> None:
        """`anew`: ask for how long it would rather be left, whatever the one in whose place it comes has answered."""
        with self._changed:
            not_before_s = self._waiting[name][0] if name in self._waiting and not anew else 0.0
            self._waiting[name] = not_before_s, work
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif not not_before_s:
                self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Have done now what waits, and wait for it."""
        with self._changed:
            those = [work for _, work in self._waiting.values()]
            those += [] if self._running is None else [self._running]
            self._hurried += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(work in those for work in self._unfinished()), timeout_s)
            self._hurried -= 1

    def drop(self, timeout_s: float) -> None:
        """Forget what waits, and wait for what is under way."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._running is None, timeout_s)

    def _unfinished(self) -> Iterator[Callable[[bool], float]]:
        yield from (work for _, work in self._waiting.values())
        if self._running is not None:
            yield self._running

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            name, work, hurried = taken
            rest_s = 0.0
            try:
                rest_s = work(hurried)
            finally:
                with self._changed:
                    if rest_s > 0:
                        newest = self._waiting[name][1] if name in self._waiting else work
                        self._waiting[name] = self._clock() + rest_s, newest
                    self._running = None
                    self._changed.notify_all()

    def _take(self) -> tuple[Hashable, Callable[[bool], float], bool] | None:
        """The next that is due. None: nothing waits, and the thread is not counted on any more."""
        with self._changed:
            while self._waiting:
                name = min(self._waiting, key=lambda name: self._waiting[name][0])
                wait_s = self._waiting[name][0] - self._clock()
                if wait_s <= 0 or self._hurried:
                    self._running = self._waiting.pop(name)[1]
                    return name, self._running, bool(self._hurried)
                self._changed.wait(wait_s)
            self._thread = None
            return None
