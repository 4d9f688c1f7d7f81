"""Files as they lie on disk, and what their paths and names tell."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SMALL_WRITE = re.compile(r"write-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class DiskFile:
    """A file as it lies on disk, `path` relative to its log's folder. Several names may share an inode's bytes."""

    path: str
    size_bytes: int
    mtime_ms: int
    inode: tuple[int, int]
    links: int = 1


def is_small_write(name: str) -> bool:
    return _SMALL_WRITE.fullmatch(name) is not None


def lies_inside(path: str) -> bool:
    """Whether a path is one below the folder it starts from: not from the root, with no `..`, and no address."""
    parts = path.split("/")
    return path not in ("", ".") and parts[0] != "" and ".." not in parts and "\0" not in path and parts[0][-1] != ":"
