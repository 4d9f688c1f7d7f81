"""The last few snapshots of the past that a table was read at, so that the next read need not take them from the log.

What a time or a seq means is known for the versions that both logs have: whatever comes, a rewrite of change files or a
vacuum, is a commit, and then it is found out again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from lithify.core.snapshot import Snapshot

SNAPSHOTS_MAX = 4


class PastSnapshots:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, Snapshot] = OrderedDict()

    def find(self, key: Hashable) -> Snapshot | None:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def keep(self, key: Hashable, snapshot: Snapshot) -> Snapshot:
        with self._lock:
            self._found[key] = snapshot
            while len(self._found) > SNAPSHOTS_MAX:
                self._found.popitem(last=False)
        return snapshot

    def forget(self) -> None:
        with self._lock:
            self._found.clear()
