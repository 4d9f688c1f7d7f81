"""How much of its disk a table could do without, followed commit by commit: no folder is listed for it.

A process that sees a table for the first time reads its newest commits, at most `COMMITS_MAX` of each log, and then
those that come. What lies longer than that is known after the next vacuum, which counts what it leaves.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from lithify.delta.log import CommitRecord
from lithify.errors import NotFound
from lithify.maintenance.disk_use import DiskTally, DiskUse
from lithify.maintenance.read_cost import row_bytes
from lithify.maintenance.retention_limits import RetentionLimits
from lithify.tables.handles import Handles

COMMITS_MAX = 2_000
TABLES_MAX = 1_000


class DiskWatches:
    """Of one lake's tables, by id. The least recently asked for is forgotten, and begins anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: OrderedDict[str, DiskWatch] = OrderedDict()

    def of(self, table_id: str) -> DiskWatch:
        with self._lock:
            found = self._watches.setdefault(table_id, DiskWatch())
            self._watches.move_to_end(table_id)
            while len(self._watches) > TABLES_MAX:
                self._watches.popitem(last=False)
            return found

    def last(self, table_id: str) -> DiskUse | None:
        """What was found when somebody looked last."""
        found = self._watches.get(table_id)
        return None if found is None else found.last


class DiskWatch:
    """What a process knows of a table from one cycle to the next."""

    def __init__(self) -> None:
        self.trimmed: tuple[tuple[int, int], int] | None = None  # at which versions, and when
        self.vacuumed_ms = 0.0
        self.purged_ms = 0
        self._lock = threading.Lock()
        self.tally = DiskTally()
        self.last: DiskUse | None = None
        self._seen: dict[str, int] = {}

    def look(self, handles: Handles, limits: RetentionLimits) -> DiskUse:
        snapshot = handles.snapshot()
        with self._lock:
            # Base first: what a vacuum says of both stands in the changes log.
            for label, log in (("base", handles.base.log), ("changes", handles.changes.log)):
                there, newest = log.versions(), log.version
                first = max(there.start, newest + 1 - COMMITS_MAX, self._seen.get(label, -1) + 1)
                for version in range(first, newest + 1):
                    try:
                        self._note(label, log.commit_record(version))
                    except NotFound:  # trimmed a moment ago
                        continue
                self._seen[label] = newest
            self.last = self.tally.use(
                limits,
                handles.runtime.now_ms(),
                snapshot.base_bytes + snapshot.pending_bytes,
                row_bytes(snapshot.base or snapshot.changes),
            )
            return self.last

    def measured(self, removed: Iterable[tuple[int, int]]) -> None:
        with self._lock:
            self.tally.measured(removed)

    def _note(self, label: str, record: CommitRecord) -> None:
        tally, info = self.tally, record.info
        if label == "changes" and "cutoff_ms" in info:
            tally.vacuumed(int(info["cutoff_ms"]))
        for remove in record.removes:
            tally.removed(record.timestamp_ms, int(remove.get("size") or 0))
        is_write = label == "changes" and all(add.get("dataChange", True) for add in record.adds)
        if is_write and record.adds:
            tally.wrote(record.timestamp_ms, sum(_rows(add) for add in record.adds))
        elif info and not info.get("linked"):
            tally.rewrote(sum(int(add.get("size") or 0) for add in record.adds))


def _rows(add: Mapping[str, Any]) -> int:
    stats = add.get("stats")
    return int(json.loads(stats).get("numRecords", 0)) if stats else 0
