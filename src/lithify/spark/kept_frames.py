"""DataFrames that are kept for the next read, the least recently used let go first.

A DataFrame holds what Spark knows of its files, a status of each: they are bounded by their number, and by that of
their files.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Frame = TypeVar("Frame")

FRAMES_MAX = 32
FILES_MAX = 100_000


class KeptFrames(Generic[Frame]):
    def __init__(self, frames_max: int = FRAMES_MAX, files_max: int = FILES_MAX) -> None:
        self._frames_max, self._files_max = frames_max, files_max
        self._kept: OrderedDict[Hashable, tuple[Frame, int]] = OrderedDict()
        self._files = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> Frame | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: Hashable, frame: Frame, files: int) -> None:
        """The newest stays, however many files it has."""
        with self._lock:
            self._files += files - self._kept.pop(key, (frame, 0))[1]
            self._kept[key] = frame, files
            while len(self._kept) > self._frames_max or (self._files > self._files_max and len(self._kept) > 1):
                self._files -= self._kept.popitem(last=False)[1][1]
