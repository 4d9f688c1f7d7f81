"""Files as they lie on disk, and what their paths and names tell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lithify.core.names import is_job_folder

ADOPTED = "adopt"
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


def is_written_here(path: str) -> bool:
    """Whether Lithify gives such a path to a data file that it writes: of a small write, or in the folder of a job, or
    of a partition there. What was adopted lies in a folder of that kind too, and is another writer's.
    """
    *folders, name = path.split("/")
    folder = next((folder for folder in reversed(folders) if "=" not in folder), "")
    return is_small_write(name) or (is_job_folder(folder) and not folder.startswith(f"{ADOPTED}-"))


def lies_inside(path: str) -> bool:
    """Whether a path is one below the folder it starts from: not from the root, with no `..`, and no address."""
    parts = path.split("/")
    return path not in ("", ".") and parts[0] != "" and ".." not in parts and "\0" not in path and parts[0][-1] != ":"
