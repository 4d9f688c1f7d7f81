"""States of tables that were looked at a moment ago, for those who look again and again.

What a table's state says follows from its two logs and from the time, so one that was made for the same versions is
right but for what came due since; whoever asks says how old that may be. To know that the versions are the same costs
some looks for files, a tenth of a millisecond, and the table need not be open; the state itself costs several.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lithify.files.storage import Storage
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.lake.maintenance import TableState
from lithify.tables.log_marks import LogMark

TABLES_MAX = 10_000
Identity = tuple[str, int, int]


@dataclass(frozen=True)
class _Known:
    """`marks`: of both logs, where a look costs no request."""

    identity: Identity
    marks: tuple[LogMark, ...]
    made_s: float
    found: TableState

    def holds(self, lake: Lake, name: str, store: Storage) -> bool:
        if self.marks:
            return all(mark.holds(store) for mark in self.marks)
        return lake.table(name).snapshot().identity == self.identity


@dataclass
class TableStates:
    clock: Callable[[], float] = time.monotonic
    _known: OrderedDict[str, _Known] = field(default_factory=OrderedDict, repr=False)
    _ended: tuple[float, list[dict[str, Any]]] | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ended_jobs(self, lake: Lake, age_s_max: float) -> list[dict[str, Any]]:
        """Of the whole lake, read from its journal at most so long ago."""
        known, now = self._ended, self.clock()
        if known is None or now - known[0] >= age_s_max:
            self._ended = known = now, lake.ended_jobs()
        return known[1]

    def get(self, lake: Lake, name: str, age_s_max: float, look: Callable[[], TableState]) -> TableState:
        """What `look` said of this version of the table at most so long ago, or says now."""
        if not age_s_max:
            return look()
        store, now = internals(lake).runtime.store, self.clock()
        with self._lock:
            known = self._known.get(name)
        if known is not None and now - known.made_s <= age_s_max and known.holds(lake, name, store):
            return known.found
        handles = internals(lake.table(name)).handles
        identity = handles.snapshot().identity
        # Before the look: a commit during it makes the next one look again.
        marks = () if store.remote else tuple(LogMark.of(log, store) for log in (handles.changes.log, handles.base.log))
        found = look()
        with self._lock:
            self._known[name] = _Known(identity, marks, now, found)
            self._known.move_to_end(name)
            while len(self._known) > TABLES_MAX:
                self._known.popitem(last=False)
        return found
