"""Cold files: what the page cache holds of them is dropped, and what then comes from the disk is counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def drop_from_cache(paths: Sequence[Path]) -> None:
    """The next read of these files comes from the disk; they must have been synced."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def disk_bytes_read() -> int:
    """By this process, from the disk and not from the page cache."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise AssertionError("/proc/self/io counts no bytes read")
