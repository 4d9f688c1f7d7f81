"""Folders for temporary files, which outlive no process for long.

A folder is its owner's for as long as the owner holds the lock on a file in it, which the kernel lets go with the
process, however that ends. So nobody has to guess who is alive: who can take the lock may remove the folder. Each
process does that once, before it makes its first one, for what others have left in the same place; a folder without
such a file is left alone, and so is everything that belongs to another user.

An owner that is overtaken between making a folder and locking it makes another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path, PurePath
from types import TracebackType

from lithify.errors import Unavailable
from lithify.files.os_errors import translated

logger = logging.getLogger(__name__)

PREFIX = "lithify-"
OWNER_FILE = ".owner"
SWEEP_S_MAX = 5.0
ATTEMPTS_MAX = 10
_swept: set[str] = set()
_sweeping = threading.Lock()
# Of this process, closed and still there: without descriptors nobody can look into a folder to remove it.
_left: set[Path] = set()


class Scratch:
    """A folder of this process. Closing it, or the end of the process and the start of another, removes it."""

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        with translated("the folder for temporary files"):
            folder = str(parent or tempfile.gettempdir())
        with _sweeping:
            if folder not in _swept:
                _swept.add(folder)
                sweep(Path(folder))
        for _ in range(ATTEMPTS_MAX):
            with translated(folder):
                self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=folder))
            try:
                with translated(self.path):
                    fd = _locked(self.path / OWNER_FILE, create=True)
            except BaseException:
                _remove(self.path)
                raise
            if fd is not None and (self.path / OWNER_FILE).exists():
                self._fd: int | None = fd
                return
            if fd is not None:
                os.close(fd)
            _remove(self.path)
        raise Unavailable(f"temporary folders in {folder} are removed as soon as they are made: find out by whom")

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
            _remove(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _remove(folder: Path) -> None:
    """And those that could not be removed before."""
    with _sweeping:
        folders = {folder, *_left}
        _left.clear()
    for one in folders:
        shutil.rmtree(one, ignore_errors=True)
        if one.exists():
            with _sweeping:
                _left.add(one)


def links_to(paths: Iterable[str], folder: PurePath) -> None:
    """A new folder of links, for engines that read all of a folder."""
    with translated(folder):
        os.makedirs(folder)
        for number, path in enumerate(paths):
            os.symlink(path, folder / f"{number:06d}.parquet")


def write_out(path: PurePath, data: bytes) -> None:
    """A new file in such a folder. It need not last."""
    with translated(path):
        os.makedirs(path.parent, exist_ok=True)
        with open(path, "xb") as file:
            file.write(data)


def discard(folder: PurePath) -> None:
    """As far as it goes: what stays is swept when its process is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: PurePath) -> int:
    """Remove what processes that are gone have left there. Returns how many folders; it ends after a few seconds."""
    until, removed = time.monotonic() + SWEEP_S_MAX, 0
    try:
        with os.scandir(parent) as entries:
            found = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX) and _is_mine(entry)]
    except OSError:
        return 0
    for folder in found:
        if time.monotonic() > until:
            break
        fd = _locked(folder / OWNER_FILE, create=False)
        if fd is None:
            continue
        try:
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
        finally:
            os.close(fd)
    if removed:
        logger.info("removed %d temporary folders of processes that are gone from %s", removed, parent)
    return removed


def _is_mine(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _locked(path: PurePath, *, create: bool) -> int | None:
    """A descriptor that holds the lock, or None: there is no such file, or somebody holds it. Where a file cannot be
    created in a folder that is there, that raises.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o600)
    except OSError as error:
        if create and not isinstance(error, FileNotFoundError):
            raise
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd
