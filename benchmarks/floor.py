"""What the disk itself takes for a durable write: nothing that is acknowledged when it is synced can be faster."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.report import median

ROUNDS = 40
SIZE = 4_096


def floor_s(near: Path) -> float:
    """The median of writing and syncing two files and their two folders, as a small write does: rows, and a commit."""
    folder = Path(tempfile.mkdtemp(prefix="floor-", dir=near))
    try:
        folders = [folder / "rows", folder / "log"]
        for each in folders:
            each.mkdir()
        times = []
        for number in range(ROUNDS):
            started = time.perf_counter()
            for each in folders:
                _synced(each / f"{number}", os.O_WRONLY | os.O_CREAT, os.urandom(SIZE))
                _synced(each, os.O_RDONLY)
            times.append(time.perf_counter() - started)
        return median(times)
    finally:
        shutil.rmtree(folder)


def _synced(path: Path, how: int, data: bytes = b"") -> None:
    descriptor = os.open(path, how)
    try:
        if data:
            os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
