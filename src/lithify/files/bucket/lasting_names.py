"""Local names of objects for an engine that opens them when it pleases, as Spark does: a DataFrame is run long after
it was made, and as often as its owner likes.

An object has one name, in a folder of this process, which ends as the object's own does. It stays for `LASTS_S` after
it was last asked for, and for longer while all names together need no more disk than copies may. Asked for again, a
name that went comes back as it was, so that whatever was made with it can be read again. One that is missing when it is
opened is an error, never an empty answer.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from lithify.files.addresses import BucketPath
from lithify.files.bucket.local_copies import LocalCopies, Wanted

LASTS_S = 3600.0


class LastingNames:
    def __init__(self, copies: LocalCopies, now_s: Callable[[], float] = time.monotonic) -> None:
        self._copies, self._now_s = copies, now_s
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._asked: OrderedDict[Path, tuple[float, int]] = OrderedDict()

    def of(self, wanted: Sequence[tuple[str, int]]) -> list[str]:
        """One for each path, with its size."""
        with self._lock:
            if self._folder is None or not self._folder.is_dir():
                self._folder, self._asked = self._copies.pins_folder(), OrderedDict()
            entries = [Wanted(BucketPath(path), size_bytes) for path, size_bytes in wanted]
            names = [self._name(self._folder, entry) for entry in entries]
            missing = {name: entry for name, entry in zip(names, entries, strict=True) if not _is_whole(name, entry)}
            for folder in {name.parent for name in missing}:
                folder.mkdir(exist_ok=True)
            self._copies.pin_as([(entry, name) for name, entry in missing.items()])
            for name, entry in zip(names, entries, strict=True):
                self._asked[name] = (self._now_s(), entry.size_bytes)
                self._asked.move_to_end(name)
            self._let_go()
            return [str(name) for name in names]

    @staticmethod
    def _name(folder: Path, entry: Wanted) -> Path:
        above = hashlib.blake2b(str(entry.path.parent).encode(), digest_size=12).hexdigest()
        return folder / above / entry.path.name

    def _let_go(self) -> None:
        total_bytes, room_bytes = sum(size for _, size in self._asked.values()), self._copies.limit_bytes()
        while total_bytes > room_bytes and self._asked:
            name, (asked_s, size_bytes) = next(iter(self._asked.items()))
            if self._now_s() - asked_s < LASTS_S:
                break
            name.unlink(missing_ok=True)
            del self._asked[name]
            total_bytes -= size_bytes


def _is_whole(name: Path, entry: Wanted) -> bool:
    try:
        if os.stat(name).st_size == entry.size_bytes:
            return True
    except FileNotFoundError:
        return False
    name.unlink(missing_ok=True)
    return False
