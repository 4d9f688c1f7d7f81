"""Lakes whose clock a test moves. Files and commits keep the time of the machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import PurePath

from lithify import Lake, Settings
from lithify.files.storage import Storage
from lithify.lake.catalog import Catalog
from lithify.lake.open_tables import OpenTables

HOUR_MS = 3_600_000


@dataclass
class Clock:
    ahead_ms: int = 0

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self.ahead_ms

    def jump(self, hours: float) -> None:
        self.ahead_ms += int(hours * HOUR_MS)


@dataclass
class Stopped(Clock):
    """A clock that shows one time."""

    at_ms: int = 0

    def now_ms(self) -> int:
        return self.at_ms


def lake_with(
    clock: Clock, path: PurePath | str, settings: Settings | None = None, store: Storage | None = None
) -> Lake:
    lake = Lake(path, settings=settings, store=store)
    parts = lake._internals
    parts.open_tables.close()
    parts.runtime = lake._runtime = replace(parts.runtime, now_ms=clock.now_ms)
    parts.catalog = lake._catalog = Catalog(parts.runtime)
    parts.open_tables = lake._loaded = OpenTables(parts.runtime)
    return lake


def next_ms() -> int:
    """The time, once the clock shows a later millisecond than when it was asked."""
    asked = int(time.time() * 1000)
    while (now := int(time.time() * 1000)) == asked:
        pass
    return now
