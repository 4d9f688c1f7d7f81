"""What happened in this process a moment ago: a bounded ring of events, for those who look on.

An event has an id by which a reader goes on where it stopped. Ids are random, so that they do not tell how much else
happened. Whoever comes with one that has left the ring is told of a gap, and looks at the state itself: events are for
noticing, and nothing depends on them.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

EVENTS_MAX = 2_000
TABLES_MAX = 10_000
WRITTEN = "written"


@dataclass(frozen=True)
class RecentEvent:
    """`table`: None if it is about the lake as a whole. `secret`: facts that may name other tables."""

    id: str
    time_ms: int
    event: str
    table: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    secret: Mapping[str, Any] = field(default_factory=dict)


class RecentEvents:
    def __init__(self, events_max: int = EVENTS_MAX, now_s: Callable[[], float] = time.time) -> None:
        self._events: deque[RecentEvent] = deque(maxlen=events_max)
        self._lock = threading.Lock()
        self._now_s = now_s
        self._wrote: dict[str, RecentEvent] = {}
        self._seqs: OrderedDict[str, int] = OrderedDict()

    def tell(self, event: str, table: str | None = None, secret: Mapping[str, Any] | None = None, **facts: Any) -> None:
        known = {name: value for name, value in facts.items() if value not in (None, "")}
        new = self._event(event, table, known, dict(secret or {}))
        with self._lock:
            self._take_writes()
            self._events.append(new)

    def wrote(self, table: str, seq: int, rows: int) -> None:
        """A write of this process. Of many between two looks one event is made, of the newest: a table may be written
        to a thousand times a second.
        """
        with self._lock:
            before = self._wrote.get(table)
            rows += before.facts["rows"] if before is not None else 0
            self._wrote[table] = self._event(WRITTEN, table, {"seq": seq, "rows": rows})
            self._seqs[table] = max(seq, self._seqs.get(table, seq))
            self._seqs.move_to_end(table)
            while len(self._seqs) > TABLES_MAX:
                self._seqs.popitem(last=False)

    def told_seq(self, table: str) -> int:
        """Up to which seq writes to it were told of; -1: of none."""
        with self._lock:
            return self._seqs.get(table, -1)

    def _event(
        self, event: str, table: str | None, facts: Mapping[str, Any], secret: Mapping[str, Any] | None = None
    ) -> RecentEvent:
        return RecentEvent(uuid.uuid4().hex, int(self._now_s() * 1000), event, table, facts, secret or {})

    def _take_writes(self) -> None:
        if self._wrote:
            self._events.extend(sorted(self._wrote.values(), key=lambda event: event.time_ms))
            self._wrote.clear()

    def after(self, id: str | None) -> tuple[list[RecentEvent], bool]:
        """What came after the event of this id, oldest first; all that is kept, and True, if it is not known here."""
        with self._lock:
            self._take_writes()
            events = list(self._events)
        if id is None:
            return events, False
        place = next((number for number, event in enumerate(events) if event.id == id), None)
        return (events, True) if place is None else (events[place + 1 :], False)

    @property
    def last(self) -> str | None:
        with self._lock:
            self._take_writes()
            return self._events[-1].id if self._events else None
