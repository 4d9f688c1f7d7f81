"""How much room a folder of copies may take: when it is full, those go that were not used for the longest time.

Any number of processes add to the folder, and each knows only what it added itself. So a process counts what is there
before it adds for the first time, again when it has added a twentieth of the limit, and whenever the limit may be
reached. One process counts and removes at a time; others leave it to that one. Threads of a process wait for each
other: what one has added after another has counted must not go uncounted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

BYTES_MAX, FREE_SHARE_MAX = 10 * 10**9, 0.2
FILLED_SHARE = 0.9  # so full is the folder left when some had to go
UNSEEN_SHARE = 0.05


class DiskRoom:
    """`bytes_max`: by default 10 GB, and at most a fifth of what the disk has for the folder."""

    def __init__(self, folder: Path, lock: Path, bytes_max: int | None = None) -> None:
        self._folder, self._lock_file, self._bytes_max = folder, lock, bytes_max
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._seen_bytes: int | None = None  # what was there when it was last counted
        self._unseen_bytes = 0  # what was added since by this process

    def bytes_max(self) -> float:
        if self._bytes_max is not None:
            return self._bytes_max
        return min(BYTES_MAX, FREE_SHARE_MAX * (self.free_bytes() + (self._seen_bytes or 0)))

    def free_bytes(self) -> int:
        existing = next((parent for parent in (self._folder, *self._folder.parents) if parent.exists()), Path("/"))
        try:
            return shutil.disk_usage(existing).free
        except OSError:
            return 0

    def used_bytes(self) -> int:
        return sum(size for _, size, _ in _files_in(self._folder))

    def added(self, size_bytes: int) -> None:
        with self._lock:
            self._unseen_bytes += size_bytes
            seen, unseen = self._seen_bytes, self._unseen_bytes
        limit = self.bytes_max()
        if seen is None or seen + unseen > limit or unseen > limit * UNSEEN_SHARE:
            self.make(0)

    def make(self, wanted_bytes: int) -> None:
        """Remove what is too much, and so many bytes besides, which the disk lacks."""
        with self._making:
            self._make_alone(wanted_bytes)

    def _make_alone(self, wanted_bytes: int) -> None:
        try:
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # the folder is gone, or not ours: so is what lay in it
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._make(wanted_bytes)
        except BlockingIOError:
            return
        finally:
            os.close(lock)

    def _make(self, wanted_bytes: int) -> None:
        with self._lock:
            counted = self._unseen_bytes
        files = sorted(_files_in(self._folder))
        total, limit = sum(size for _, size, _ in files), self.bytes_max()
        target = total - wanted_bytes if total <= limit else limit * FILLED_SHARE - wanted_bytes
        for _, size, file in files:
            if total <= target:
                break
            with contextlib.suppress(OSError):
                os.unlink(file)
            total -= size
        with self._lock:
            self._seen_bytes, self._unseen_bytes = total, self._unseen_bytes - counted


def _files_in(folder: Path) -> Iterator[tuple[float, int, str]]:
    """When each was last used, its size, and its path."""
    with contextlib.suppress(FileNotFoundError):
        for part in list(os.scandir(folder)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(part.path):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_atime, found.st_size, entry.path
