"""Opening a Delta table, and what deltalake's errors mean to us."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lithify.errors import Corruption, LithifyError, NotFound, Unavailable
from lithify.log.torn import set_torn_checkpoint_aside
from lithify.store.local import Store, os_error


def open_table(path: Path, store: Store, version: int | None = None) -> DeltaTable:
    """At its newest version, or pinned to an older one."""
    try:
        return DeltaTable(str(path), version=version)
    except (DeltaError, OSError, ValueError) as error:
        if version is not None:
            raise NotFound(f"version {version} of {path} is no longer in its log: choose a newer one") from error
        if isinstance(error, TableNotFoundError):
            raise NotFound(f"{path} holds no Delta table") from error
        if set_torn_checkpoint_aside(path / "_delta_log", store):
            return open_table(path, store)
        raise translated_error(error, path) from error


def translated_error(error: BaseException, path: Path) -> LithifyError:
    text = str(error)
    if isinstance(error, OSError) and error.errno:
        return os_error(error, path)
    for sign, number in (
        ("No space left", 28),
        ("os error 28", 28),
        ("Permission denied", 13),
        ("os error 13", 13),
        ("Read-only", 30),
    ):
        if sign in text:
            return os_error(OSError(number, sign), path)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return (
        Corruption(f"the log of {path} cannot be used: {first}")
        if isinstance(error, DeltaError)
        else Unavailable(f"{path}: {first}")
    )
