"""A scan proves that it read the files that it was given.

A file never changes once a commit names it, and no name is given out twice: what is gone stays gone. So a file that is
there after a scan, as it was before it, was there in between, whatever the engine did when it listed or opened it.
Engines pass over a file that is missing or empty at the wrong moment without a word; `Marks` takes note of every file
before it is handed to one, and `check` looks again when the rows are there. Where a file is read through one open
descriptor, its size is compared on that (`opening.open_file`), and nothing that happens to its name matters.

A file may be gone because the log moved on, and vacuum came by. That is no damage: `look_again` has the read planned
anew. Where the same file is missing again, the log does name it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from lithify.errors import Conflict, Corruption, Unavailable
from lithify.files.addresses import is_remote
from lithify.files.local_files import at_hand, use
from lithify.files.os_errors import os_error

T = TypeVar("T")

LOOKS_MAX = 5
# File systems whose inodes may be others after a while, or after the next mount, by the beginnings of their names.
_NUMBERED_AS_MET = ("fuse", "vfat", "msdos", "exfat", "cifs", "smb", "9p")


class Vanished(Corruption):
    """A file is gone that the log named when the read was planned. Look again whether it still does."""

    @classmethod
    def at(cls, path: str) -> Vanished:
        return cls(
            f"{path} is missing although the table's log names it: restore it from a copy, or read as of an older seq",
            path=path,
        )


class Damaged(Corruption):
    """A copy was not what it should be, and is gone: what is brought in its place may be."""


class Mark(NamedTuple):
    path: str
    size_bytes: int
    tag: int


class Marks:
    """Files as they were before they were scanned."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []

    def add(self, path: str, size_bytes: int) -> None:
        """Raises if the file is missing, or not what its log says."""
        self._marks.append(Mark(path, size_bytes, check_whole(path, size_bytes)))

    def check(self) -> None:
        """Raises unless every file is there as it was."""
        for path, size_bytes, tag in self._marks:
            if check_whole(path, size_bytes) != tag:
                raise Corruption(f"{path} was written to, or replaced, while it was read: read again", path=path)


def check_whole(path: str, size_bytes: int) -> int:
    """Name a file that is missing or has another size than its log says. Answers its tag."""
    try:
        found = use(path, size_bytes, os.stat)
    except (FileNotFoundError, NotADirectoryError):
        raise Vanished.at(path) from None
    except OSError as error:
        raise os_error(error, path) from error
    check_size(path, found.st_size, size_bytes)
    return tag_of(path, found)


def check_size(path: str, found_bytes: int, size_bytes: int) -> None:
    if found_bytes != size_bytes:
        raise Corruption(
            f"{path} has {found_bytes} bytes instead of {size_bytes}: restore it from a copy, or read as of an older "
            "seq",
            path=path,
        )


def tag_of(path: PurePath | str, found: os.stat_result) -> int:
    """What tells a file from another of its name and size, as a number that is not 0: when it was last written to, and
    its inode, because times can be equal. Copies of objects have the object's tag for a time (`local_copies`), and
    any inode.
    """
    stable = not is_remote(path) and _inodes_last(found.st_dev)
    return tag_of_time(found.st_mtime_ns, found.st_ino if stable else None)


def tag_of_time(time_ns: int, inode: int | None = None) -> int:
    text = (str(time_ns) if inode is None else f"{time_ns} {inode}").encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") or 1


def tag_at(path: str) -> int:
    """Of the file that lies there; of an object of which there is no copy here, it is not known."""
    if (local := at_hand(path)) is None:
        raise Unavailable(f"{path} is not on this machine yet")
    try:
        return tag_of(path, os.stat(local))
    except (FileNotFoundError, NotADirectoryError):
        raise Vanished.at(path) from None
    except OSError as error:
        raise os_error(error, path) from error


@lru_cache(maxsize=64)
def _inodes_last(device: int) -> bool:
    """Whether a file has the same inode whenever it is asked for: not where it is numbered as it is met. A device that
    is not known by its number is one of a file system with several of them, which keep inodes.
    """
    try:
        with open("/proc/self/mountinfo") as mounts:
            kinds = [line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == _named(device)]
    except OSError:  # no Linux
        return True
    return all(map(keeps_inodes, kinds))


def keeps_inodes(file_system: str) -> bool:
    return not file_system.startswith(_NUMBERED_AS_MET)


def _named(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def look_again(read: Callable[[], T]) -> T:
    """What `read` answers, which plans anew each time, once all its files were there."""
    missed: set[str] = set()
    looks = 0
    while looks < LOOKS_MAX:
        try:
            return read()
        except (Vanished, Damaged) as error:
            path = error.details["path"]
            if path in missed:
                raise
            missed.add(path)
            looks += isinstance(error, Vanished)  # of damaged copies, each is replaced once
    raise Conflict(
        f"files were removed {LOOKS_MAX} times while they were read, as vacuum does right after folds: read again, and "
        "let vacuum retain files for longer than reads take"
    )
