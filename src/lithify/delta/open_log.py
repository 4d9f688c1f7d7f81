"""Opening a Delta table, and what deltalake's errors mean to us."""

from __future__ import annotations

import errno
import re
from pathlib import PurePath

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lithify.delta.checkpoint_parts import check_checkpoint_parts
from lithify.delta.folder import ARCHIVE_FOLDER, LOG_FOLDER
from lithify.delta.torn_log import set_torn_checkpoint_aside
from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.os_errors import os_error, translated
from lithify.files.storage import Storage

ATTEMPTS_MAX = 10
_SIGNS = {
    "No space left": errno.ENOSPC,
    "Permission denied": errno.EACCES,
    "Read-only": errno.EROFS,
    "Too many open files": errno.EMFILE,
}
_NUMBERED = re.compile(r"([^:\n]*)\(os error (\d+)\)")


def open_table(path: PurePath, store: Storage, version: int | None = None) -> DeltaTable:
    """At its newest version, or pinned to an older one."""
    check_plain(path, store)
    try:
        return _opened(path, store, version)
    except (DeltaError, OSError, ValueError) as error:
        if version is not None:
            raise NotFound(f"version {version} of {path} is no longer in its log: choose a newer one") from error
        if isinstance(error, TableNotFoundError):
            raise NotFound(f"{path} holds no Delta table") from error
        if not _is_passing(error) and set_torn_checkpoint_aside(path / LOG_FOLDER, store):
            return open_table(path, store)
        raise translated_error(error, path) from error


def check_plain(path: PurePath, store: Storage) -> None:
    """deltalake follows links, so none may lie in a log; what is in the archive is looked at when it is read."""
    with translated(path):
        store.path_guard.check_entries(path / LOG_FOLDER)
        store.path_guard.check_folder(path / ARCHIVE_FOLDER)
        check_checkpoint_parts(path / LOG_FOLDER, store)


def _opened(path: PurePath, store: Storage, version: int | None) -> DeltaTable:
    """deltalake first lists the log, then reads it. Files may be moved to the archive in between, or be written anew by
    an erasure: try again while the folder changes.
    """
    seen: list[tuple[str, str | None]] | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            return DeltaTable(str(path), version=version)
        except (DeltaError, OSError, ValueError):
            log = path / LOG_FOLDER
            there = [(name, store.tag(log / name)) for name in store.names(log)]
            if there == seen:
                raise
            seen = there
    return DeltaTable(str(path), version=version)


def _is_passing(error: BaseException) -> bool:
    """Whether it says nothing about the log: this process is short of something."""
    refused = _refused(str(error))
    return refused is not None and refused.errno in (errno.EMFILE, errno.ENFILE)


def _refused(text: str) -> OSError | None:
    """What the operating system said below deltalake. That a file is not there means something else for each file."""
    if (found := _NUMBERED.search(text)) and int(found[2]) != errno.ENOENT:
        return OSError(int(found[2]), found[1].strip())
    return next((OSError(number, sign) for sign, number in _SIGNS.items() if sign in text), None)


def translated_error(error: BaseException, path: PurePath) -> LithifyError:
    text = str(error)
    if isinstance(error, LithifyError):
        return error
    if isinstance(error, OSError) and error.errno:
        return os_error(error, path)
    if (refused := _refused(text)) is not None:
        return os_error(refused, path)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    if "Unsupported" in first:
        what = first.rpartition("Unsupported")[2].strip(": ")
        return InvalidRequest(
            f"{path} needs features of Delta Lake that Lithify does not know ({what}): write it anew without them"
        )
    return (
        Corruption(f"the log of {path} cannot be used: {first}")
        if isinstance(error, DeltaError)
        else Unavailable(f"{path}: {first}")
    )
