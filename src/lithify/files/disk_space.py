"""How large a disk is, and how much of it is free."""

from __future__ import annotations

import shutil
from pathlib import PurePath
from typing import NamedTuple


class DiskSpace(NamedTuple):
    bytes: int
    free_bytes: int


def disk_space(folder: PurePath) -> DiskSpace | None:
    """Of the disk that a folder lies on; None if it cannot be asked, because the folder is gone for one."""
    try:
        found = shutil.disk_usage(str(folder))
    except OSError:
        return None
    return DiskSpace(found.total, found.free)
