"""Which files lie below a log's folder. Symbolic links are neither followed nor listed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from lithify.core.disk_files import DiskFile, is_small_write, lies_inside
from lithify.core.names import is_job_folder
from lithify.files.os_errors import translated


@dataclass(frozen=True)
class Folder:
    """A folder of a job, or one inside it. `empty`: nothing below it but folders that are empty, too."""

    path: str
    mtime_ms: int
    empty: bool


@dataclass
class Listing:
    files: list[DiskFile] = field(default_factory=list)
    folders: list[Folder] = field(default_factory=list)


def list_own(root: PurePath) -> Listing:
    """Everything whose name only Lithify gives out: small writes at the top, and folders of jobs."""
    found = Listing()
    for entry in _entries(root):
        if entry.is_file and is_small_write(entry.name):
            _add_file(found, root, entry.name)
        elif entry.is_folder and is_job_folder(entry.name):
            _add_folder(found, root, entry.name)
    return found


def files_below(root: PurePath, folder: str = "") -> Iterator[str]:
    """Every regular file, by its path from `root`."""
    for entry in _entries(root / folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            yield from files_below(root, path)
        elif entry.is_file:
            yield path


def _add_folder(found: Listing, root: PurePath, path: str) -> bool:
    """Whether it is empty."""
    with translated(root / path):
        try:
            status = os.lstat(root / path)
        except FileNotFoundError:
            return True
    empty = True
    for entry in _entries(root / path):
        inner = f"{path}/{entry.name}"
        if entry.is_folder:
            empty = _add_folder(found, root, inner) and empty
            continue
        empty = False
        if entry.is_file:
            _add_file(found, root, inner)
    found.folders.append(Folder(path, status.st_mtime_ns // 1_000_000, empty))
    return empty


def _add_file(found: Listing, root: PurePath, path: str) -> None:
    if (file := _status(str(root / path), path)) is not None:
        found.files.append(file)


def look_at(root: PurePath, path: str) -> DiskFile | None:
    """One regular file below `root`, or None if it is gone, is no file, or can only be reached through a link."""
    if not lies_inside(path):
        return None
    absolute = os.path.join(os.path.realpath(root), path)
    return _status(absolute, path) if os.path.realpath(absolute) == absolute else None


def _status(absolute: str, path: str) -> DiskFile | None:
    with translated(absolute):
        try:
            status = os.lstat(absolute)
        except (FileNotFoundError, NotADirectoryError):
            return None
    if not stat.S_ISREG(status.st_mode):
        return None
    inode = status.st_dev, status.st_ino
    return DiskFile(path, status.st_size, status.st_mtime_ns // 1_000_000, inode, status.st_nlink)


class _Entry(NamedTuple):
    name: str
    is_folder: bool
    is_file: bool


def _entries(folder: PurePath) -> list[_Entry]:
    """By name. What an entry is may take a look at it, which may fail."""
    with translated(folder):
        try:
            with os.scandir(folder) as entries:
                return sorted(
                    _Entry(entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                    for entry in entries
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
