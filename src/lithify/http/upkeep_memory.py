"""States of tables that were looked at a moment ago, for those who look again and again.

What a table's state says follows from its two logs and from the time, so one that was made for the same versions is
right but for what came due since; whoever asks says how old that may be. To know that the versions are the same costs a
fraction of a millisecond, the state itself several.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from lithify.lake.lake import Lake
from lithify.lake.maintenance import TableUpkeep

TABLES_MAX = 10_000
Identity = tuple[str, int, int]


@dataclass
class UpkeepMemory:
    clock: Callable[[], float] = time.monotonic
    _known: OrderedDict[str, tuple[Identity, float, TableUpkeep]] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, lake: Lake, name: str, age_s_max: float, look: Callable[[], TableUpkeep]) -> TableUpkeep:
        """What `look` said of this version of the table at most so long ago, or says now."""
        if not age_s_max:
            return look()
        identity, now = lake.table(name).snapshot().identity, self.clock()
        with self._lock:
            known = self._known.get(name)
        if known is not None and known[0] == identity and now - known[1] <= age_s_max:
            return known[2]
        found = look()
        with self._lock:
            self._known[name] = identity, now, found
            self._known.move_to_end(name)
            while len(self._known) > TABLES_MAX:
                self._known.popitem(last=False)
        return found
