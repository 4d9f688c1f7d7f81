"""Work that failed is left alone for a while: one turn after the first failure, then 2, 4, 8 … up to an hour.

Turns count only when the work would have run. The same reason again doubles the wait; another reason starts anew, and
a success forgets it. What is waiting travels in the report of a cycle, so that the next process knows it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from lithify.core.fields import Count, OfTable
from lithify.core.html import Shown

WAIT_MS_MAX = 3_600_000
FORGET_MS = 24 * WAIT_MS_MAX
WAITING_MAX = 200
TURNS_MAX = 1 << 20


@dataclass(frozen=True)
class Work:
    """What is tried again: `place` tells batches of one table and kind apart."""

    table: str
    kind: str
    place: str = ""


@dataclass(frozen=True)
class Waiting(Shown):
    """Work that failed and is tried less and less often."""

    table: OfTable
    kind: Annotated[str, "fold, minor, vacuum, or the tier of a compaction."]
    place: Annotated[str, "Which of several batches."]
    reason: Annotated[str, "Why it failed the last time."]
    failures: Annotated[Count, "How often it failed for that reason."]
    turns_left: Annotated[Count, "How many turns it sits out."]
    failed_ms: Annotated[int, "When it failed last, in milliseconds since 1970."]

    @property
    def work(self) -> Work:
        return Work(self.table, self.kind, self.place)


class BackOff:
    def __init__(self, waiting: Iterable[Waiting] = ()) -> None:
        self._waiting = {entry.work: entry for entry in waiting}

    @classmethod
    def of_documents(cls, documents: Iterable[Mapping[str, Any]], now_ms: int) -> BackOff:
        """What `documents` said. Whatever is old, from the future or not understood is simply tried again."""
        found = []
        for fields in documents:
            try:
                table, kind, place = (str(fields[name]) for name in ("table", "kind", "place"))
                failures, turns_left, failed_ms = (
                    int(fields[name]) for name in ("failures", "turns_left", "failed_ms")
                )
            except (KeyError, TypeError, ValueError):
                continue
            if 0 <= now_ms - failed_ms < FORGET_MS:
                reason = str(fields.get("reason", ""))
                found.append(Waiting(table, kind, place, reason, failures, turns_left, failed_ms))
        return cls(found)

    def hold_back(self, work: Work, now_ms: int) -> Waiting | None:
        """One turn goes by. None: run it now."""
        entry = self._waiting.get(work)
        if entry is None or entry.turns_left <= 0 or not 0 <= now_ms - entry.failed_ms < WAIT_MS_MAX:
            return None
        entry = self._waiting[work] = replace(entry, turns_left=entry.turns_left - 1)
        return entry

    def failed(self, work: Work, reason: str, now_ms: int) -> Waiting:
        before = self._waiting.get(work)
        failures = before.failures + 1 if before is not None and before.reason == reason else 1
        turns = min(1 << min(failures - 1, 20), TURNS_MAX)
        entry = self._waiting[work] = Waiting(work.table, work.kind, work.place, reason, failures, turns, now_ms)
        return entry

    def succeeded(self, work: Work) -> None:
        self._waiting.pop(work, None)

    def waiting(self) -> tuple[Waiting, ...]:
        """The newest failures first, no more than a report should carry."""
        newest = sorted(self._waiting.values(), key=lambda entry: -entry.failed_ms)
        return tuple(newest[:WAITING_MAX])
