"""Turns: long work on a table that somebody asks for by name and waits for.

Each run holds a thread until it ends, so there is one per table and a bounded number in all; whoever comes beyond that
is refused at once and told what runs, and no thread waits for another's work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from lithify.core.fields import Example, OfTable
from lithify.core.html import Shown
from lithify.core.wording import plural
from lithify.errors import Conflict, LimitExceeded


@dataclass(frozen=True)
class JobSlot(Shown):
    """A fold, compact, optimize or vacuum that somebody asked this service for."""

    table: OfTable
    kind: Annotated[str, "fold, compact, optimize or vacuum.", Example("fold")]
    started_ms: Annotated[int, "When it began, in milliseconds since 1970."]


class JobSlots:
    def __init__(self, turns_max: int) -> None:
        self._turns_max = turns_max
        self._lock = threading.Lock()
        self._running: dict[str, JobSlot] = {}

    def running(self) -> list[JobSlot]:
        with self._lock:
            return list(self._running.values())

    @contextmanager
    def take(self, turn: JobSlot) -> Iterator[None]:
        with self._lock:
            self._check(turn)
            self._running[turn.table] = turn
        try:
            yield
        finally:
            with self._lock:
                del self._running[turn.table]

    def _check(self, turn: JobSlot) -> None:
        other = self._running.get(turn.table)
        if other is not None:
            raise Conflict(
                f"{other.kind} of {turn.table} is running: ask for {turn.kind} again when it has ended",
                table=turn.table,
                running=other.kind,
                started_ms=other.started_ms,
            )
        if len(self._running) >= self._turns_max:
            busy = ", ".join(f"{each.kind} of {each.table}" for each in self._running.values())
            raise LimitExceeded(
                f"{plural(self._turns_max, 'run')} at once, and no more: {busy}; ask for {turn.kind} of {turn.table} "
                "again later",
                limit="queue",
            )
