"""Stores that record, fail, wait or die on purpose, so that the real engine can be tested against all of it.

A point is either a named step of the engine (`write.committed`) or a storage call (`store.sync`). First record a run to
learn its points, then repeat the run with a fault at one of them:

    points = RecordingStore()
    Lake(path, store=points)...
    Lake(copy, store=FaultyStore("write.committed", kill_process))...
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable

from lithify.files.local import LocalStorage

ANY = "*"


class RecordingStore(LocalStorage):
    """Notes every point it passes, in order."""

    def __init__(self) -> None:
        self.points: list[str] = []

    def step(self, name: str) -> None:
        self.points.append(name)

    def occurrences(self) -> list[tuple[str, int]]:
        """Every point as (name, how many times it has come by then), ready for `FaultyStore(name, ..., nth=n)`."""
        seen: Counter[str] = Counter()
        found = []
        for name in self.points:
            seen[name] += 1
            found.append((name, seen[name]))
        return found


class FaultyStore(LocalStorage):
    """Runs `action` from the `nth` time that the point `at` is reached, `times` times in a row (None: always)."""

    def __init__(self, at: str, action: Callable[[], None], nth: int = 1, times: int | None = 1) -> None:
        self.at, self.action, self.nth, self.times = at, action, nth, times
        self.reached = 0
        self._lock = threading.Lock()

    def step(self, name: str) -> None:
        if self.at not in (name, ANY):
            return
        with self._lock:
            self.reached += 1
            reached = self.reached
        if reached >= self.nth and (self.times is None or reached < self.nth + self.times):
            self.action()


def kill_process() -> None:
    """End this process as a power switch would: nothing is flushed, no handler runs."""
    os.kill(os.getpid(), signal.SIGKILL)


class Stopped(BaseException):
    """Ends what is under way as a death would, within this process: nothing may catch it."""


def stop() -> None:
    raise Stopped


def os_failure(number: int) -> Callable[[], None]:
    """Fail as the operating system does, e.g. `os_failure(errno.ENOSPC)` for a full disk."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


disk_full = os_failure(errno.ENOSPC)
no_permission = os_failure(errno.EACCES)


class Gate:
    """Holds whoever comes to it until it is opened: a process asleep at the worst moment.

    `FaultyStore("fold.commit", gate.hold)`, then `gate.wait()` until somebody is there, act, `gate.open()`.
    """

    def __init__(self, wait_s_max: float = 60) -> None:
        self._wait_s_max = wait_s_max
        self._arrived, self._opened = threading.Event(), threading.Event()

    def hold(self) -> None:
        self._arrived.set()
        if not self._opened.wait(self._wait_s_max):
            raise TimeoutError("nobody opened the gate")

    def wait(self) -> None:
        if not self._arrived.wait(self._wait_s_max):
            raise TimeoutError("nobody came to the gate")

    def open(self) -> None:
        self._opened.set()
