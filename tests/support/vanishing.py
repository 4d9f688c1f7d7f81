"""Files that vanish, or become others, at a chosen moment of a read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake
from lithify.files import open_parquet, read_proof
from lithify.read.reader import Reader

Act = Callable[[], None]


class Once:
    """Does something the first time, and knows whether it has."""

    def __init__(self, act: Act) -> None:
        self._act, self.done = act, False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self._act()


def after_planning(monkeypatch: pytest.MonkeyPatch, path: Path, act: Act) -> Once:
    """When it is decided which files are read, and none was looked at."""
    once, real = Once(act), Reader._made

    def made(self: Reader, *arguments: Any) -> Any:
        found = real(self, *arguments)
        once()
        return found

    monkeypatch.setattr(Reader, "_made", made)
    return once


def before_listing(monkeypatch: pytest.MonkeyPatch, path: Path, act: Act) -> Once:
    """When the file was looked at, and the engine has not listed it yet."""
    once, real = Once(act), read_proof.check_whole

    def check(found: str, size_bytes: int) -> int:
        answer = real(found, size_bytes)
        if found == str(path):
            once()
        return answer

    monkeypatch.setattr(read_proof, "check_whole", check)
    return once


def after_opening(monkeypatch: pytest.MonkeyPatch, path: Path, act: Act) -> Once:
    """When the file is open, and nothing of it was read."""
    once, real = Once(act), open_parquet.check_size

    def check(found: str, *sizes: int) -> None:
        real(found, *sizes)
        if found == str(path):
            once()

    monkeypatch.setattr(open_parquet, "check_size", check)
    return once


MOMENTS: dict[str, Callable[[pytest.MonkeyPatch, Path, Act], Once]] = {
    "after planning": after_planning,
    "before listing": before_listing,
    "after opening": after_opening,
}


def replace(path: Path) -> None:
    """Another file of the same columns, with one row less, takes its place."""
    rows = pq.read_table(path)
    pq.write_table(rows.slice(1), path.with_suffix(".coming"))
    os.replace(path.with_suffix(".coming"), path)


HARMS: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "replaced": replace,
}


class SavedFile:
    """A copy of a file, to be put back in its place."""

    def __init__(self, path: Path) -> None:
        self._path, self._copy = path, path.with_name(f"{path.name}.kept")
        shutil.copy2(path, self._copy)

    def restore(self) -> None:
        os.replace(self._copy, self._path)


def move_on(lake: Path, name: str) -> None:
    """As other processes do: everything is folded and written anew, and vacuum keeps nothing of the past."""
    with Lake(lake) as other:
        table = other.table(name)
        table.fold()
        table.optimize(by="id")
        remove_the_past(other, name)


def remove_the_past(lake: Lake, name: str) -> None:
    """Not by vacuum, which spares the files of snapshots that readers of its own process hold."""
    table = lake.table(name)
    snapshot, folder = table.snapshot(), table._internals.handles.folder
    live = {table._internals.handles.base_folder / file.path for file in snapshot.base}
    live |= {folder / "changes" / file.path for file in snapshot.changes}
    for path in [*folder.glob("base/**/part-*.parquet"), *folder.glob("changes/**/*.parquet")]:
        if path not in live and "_delta_log" not in path.parts and "_log_archive" not in path.parts:
            path.unlink()


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: [str(value) for value in row.values()])
