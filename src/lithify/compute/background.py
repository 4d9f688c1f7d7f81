"""Small work on threads beside others: again and again while something lasts, or one thing after the other.

No such thread keeps a process from ending.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
