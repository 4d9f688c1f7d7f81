"""The live files of one version of a log, made from those of the version before.

A log says much of every file, and turning that into Python takes long for many of them. So the files of a version are
made once, when they are asked for, and each commit after it adds and removes those that it names. The bounds of every
column that was ever asked for are kept, so that who asks for less does not make the others pay again. All handles of
this process on a log share what one of them has made of a file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from weakref import WeakValueDictionary

import pyarrow as pa

from lithify.core.snapshot import DataFile
from lithify.delta.actions import CommitRecord
from lithify.delta.collector import collector_paused
from lithify.delta.entries import added_file, data_files
from lithify.delta.stated_values import Unfamiliar

Check = Callable[[Iterable[str]], None]


class LiveFiles:
    """Of the log of a table with these columns. `check` is told the paths of files that are new here."""

    def __init__(
        self, version: int, columns: pa.Schema, partitions: Sequence[str], bounds_of: tuple[str, ...], check: Check
    ) -> None:
        self.version, self.bounds_of = version, bounds_of
        self._columns, self._partitions, self._check = columns, partitions, check
        self._by_path: dict[str, DataFile] = {}
        self._files: tuple[DataFile, ...] | None = None

    @classmethod
    def of(
        cls,
        version: int,
        columns: pa.Schema,
        partitions: Sequence[str],
        actions: pa.Table,
        bounds_of: Sequence[str],
        known: LiveFiles | None,
        check: Check,
    ) -> LiveFiles:
        """As deltalake lists them. `known`: of any version of the same log."""
        wider = tuple(dict.fromkeys((*(known.bounds_of if known else ()), *bounds_of)))
        live = cls(version, columns, partitions, wider, check)
        before = known._by_path if known is not None and known.bounds_of == wider else {}
        found = [_same(before.get(told[0]), told) for told in _told(actions)] if before else [None] * actions.num_rows
        with collector_paused():
            fresh = list(data_files(actions.filter(pa.array([file is None for file in found], pa.bool_())), wider))
        check(file.path for file in fresh)
        new = iter(fresh)
        files = tuple(file or next(new) for file in found)
        live._by_path = {file.log_path: file for file in reversed(files)}
        # Another handle's may change meanwhile: what it has made is looked at, and nothing made of it.
        made = known._files if known is not None and not fresh else None
        unmoved = made is not None and len(made) == len(files) and all(map(operator.is_, made, files))
        live._files = made if unmoved else files
        return live

    @property
    def files(self) -> tuple[DataFile, ...]:
        """Newest first; the same tuple while none comes or goes."""
        if self._files is None:
            self._files = tuple(reversed(self._by_path.values()))
        return self._files

    def advance(self, commit: CommitRecord) -> None:
        """To the next version. Whatever it raises, Unfamiliar above all, leaves it where it was."""
        added = [added_file(add, self._columns, self._partitions, self.bounds_of) for add in commit.adds]
        removed = {str(remove.get("path")) for remove in commit.removes}
        if len({file.log_path for file in added} | removed) < len(added) + len(commit.removes):
            raise Unfamiliar(f"version {commit.version} names a file twice")
        if not removed <= self._by_path.keys():
            raise Unfamiliar(f"{min(removed - self._by_path.keys())!r} is removed, and not known")
        self._check(file.path for file in added)
        for path in removed:
            del self._by_path[path]
        for file in added:
            self._by_path.pop(file.log_path, None)
            self._by_path[file.log_path] = file
        if added or removed:
            self._files = None
        self.version = commit.version


def _told(actions: pa.Table) -> Iterable[tuple[str, int, int, int | None]]:
    names = ("path", "size_bytes", "modification_time", "num_records")
    return zip(*(actions[name].to_pylist() for name in names), strict=True)


def _same(file: DataFile | None, told: tuple[str, int, int, int | None]) -> DataFile | None:
    _, size_bytes, time_ms, rows = told
    stated = size_bytes, time_ms, -1 if rows is None else rows
    return file if file is not None and (file.size_bytes, file.time_ms, file.rows) == stated else None


# By the log's path and its table's id: while a handle on it is open.
newest_known: WeakValueDictionary[tuple[PurePath, str], LiveFiles] = WeakValueDictionary()
