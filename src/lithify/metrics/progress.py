"""How far long work has come, and the way to end it.

Work runs `under` a `Progress`. Whoever does a part of it, however deep below, says so with `advance`, and is stopped
there if somebody asked for that: `Cancelled` rises through the same brackets as any failure, so what was staged goes.
Work may be a part of other work; what is asked of the whole holds for each part. Once a part is `settled` its commit
decides, and it cannot be cancelled any more. Where nobody watches, as on an executor of Spark, `advance` does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from lithify.errors import Cancelled

_current: ContextVar[Progress | None] = ContextVar("lithify_progress", default=None)


@dataclass(frozen=True)
class Amounts:
    files: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, more: Amounts) -> Amounts:
        return Amounts(self.files + more.files, self.rows + more.rows, self.bytes + more.bytes)


class Progress:
    def __init__(self, id: str, kind: str, table: str = "", why: str = "") -> None:
        self.id, self.kind, self.table, self.why = id, kind, table, why
        self.done, self.total = Amounts(), Amounts()
        self._within = _current.get()
        self._lock = threading.Lock()
        self._stops: list[Callable[[str], None]] = []
        self._cancelled: str | None = None
        self._settled = False

    @property
    def cancelled(self) -> str | None:
        """Why it is to end, or the work that it is a part of."""
        return self._cancelled or (self._within.cancelled if self._within is not None else None)

    def expect(self, files: int = 0, rows: int = 0, bytes: int = 0) -> None:
        """So much more is to be done."""
        self.total += Amounts(files, rows, bytes)

    def advance(self, files: int = 0, rows: int = 0, bytes: int = 0) -> None:
        self.done += Amounts(files, rows, bytes)
        self.check()

    def check(self) -> None:
        if (why := self.cancelled) is not None:
            what = f"{self.kind} of {self.table}" if self.table else self.kind
            raise Cancelled(f"{what} was cancelled {why}", cancelled=True)

    def cancel(self, why: str) -> bool:
        """It ends where it next says how far it is. False: it is settled."""
        with self._lock:
            if self._settled:
                return False
            self._cancelled = self._cancelled or why
            stops = list(self._stops)
        for stop in stops:
            stop(f"cancelled {why}")
        return True

    def settle(self) -> None:
        """From here on it goes to its end."""
        with self._lock:
            self.check()
            self._settled = True

    @contextmanager
    def stopped_by(self, stop: Callable[[str], None]) -> Iterator[None]:
        """Meanwhile `stop(why)` is called, too, when this work or what it is a part of is cancelled."""
        with self._lock:
            self._stops.append(stop)
        try:
            self.check()
            if self._within is None:
                yield
            else:
                with self._within.stopped_by(stop):
                    yield
        finally:
            with self._lock:
                self._stops.remove(stop)


def current() -> Progress | None:
    return _current.get()


def advance(files: int = 0, rows: int = 0, bytes: int = 0) -> None:
    """So much more is done of the work that runs here. Raises `Cancelled` if it is to end."""
    progress = _current.get()
    if progress is not None:
        progress.advance(files, rows, bytes)


@contextmanager
def under(progress: Progress) -> Iterator[Progress]:
    token = _current.set(progress)
    try:
        yield progress
    finally:
        _current.reset(token)


@contextmanager
def done_again() -> Iterator[None]:
    """Around an attempt that may have to begin anew: then what it did does not count."""
    progress = _current.get()
    before = progress.done if progress is not None else None
    try:
        yield
    except BaseException:
        if progress is not None and before is not None:
            progress.done = before
        raise
