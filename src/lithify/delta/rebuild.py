"""A version that the log's own folder no longer tells, put together from the archive.

deltalake reads only folders named like a log. So it is given one of its own, in the place for temporary files: links to
one checkpoint and to the commits from there up to the version, wherever each of them lies. What is asked of a version
of the past is in memory once the table is open, but for its transactions, which are read here; then the folder goes.
Paths of data files are relative, and mean the real table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify.delta.commit_files import Commits
from lithify.delta.folder import LOG_FOLDER, commit_name
from lithify.errors import Corruption, NotFound
from lithify.files.open_parquet import open_file
from lithify.files.scratch import Scratch

T = TypeVar("T")

ATTEMPTS_MAX = 5  # each time a file was moved, or thinned out, between finding and reading it


class Txns:
    """Application transactions by name. There may be very many, of which few are ever asked for."""

    def __init__(self, found: Mapping[str, int]) -> None:
        self._names, self._versions = pa.array(found.keys(), pa.string()), pa.array(found.values(), pa.int64())

    def get(self, name: str) -> int | None:
        row = self._names.index(name).as_py()
        return None if row < 0 else int(self._versions[row].as_py())


@dataclass(frozen=True)
class Rebuilt:
    table: DeltaTable
    txns: Txns


def rebuild(commits: Commits, version: int) -> Rebuilt:
    """Raises NotFound where neither place tells that version any more."""
    return _patiently(commits, version, lambda: _rebuild(commits, version))


def read_txns(commits: Commits, version: int) -> Txns:
    """Every application transaction as of a version. Raises NotFound where it is not told any more."""
    return _patiently(commits, version, lambda: _txns(commits, *commits.needed_for(version)))


def _patiently(commits: Commits, version: int, work: Callable[[], T]) -> T:
    for _ in range(ATTEMPTS_MAX):
        with contextlib.suppress(NotFound):
            return work()
    raise commits.gone(version)


@contextlib.contextmanager
def aside(commits: Commits, version: int) -> Iterator[PurePath]:
    """A folder with the log up to a version, as long as the block lasts."""
    checkpoint, needed = commits.needed_for(version)
    with Scratch("log") as folder:
        target = folder / LOG_FOLDER
        if checkpoint is not None:
            _fetch(commits, checkpoint, target)
        for number in needed:
            _fetch_commit(commits, number, target)
        yield folder


def keep(commits: Commits, version: int, folder: PurePath) -> None:
    """Give a folder of its own what a version is rebuilt from, durable: it may leave the log and the archive then."""
    _patiently(commits, version, lambda: _keep(commits, version, folder))


def _keep(commits: Commits, version: int, folder: PurePath) -> None:
    store, target = commits.store, folder / LOG_FOLDER
    store.delete_folder(target)
    checkpoint, needed = commits.needed_for(version)
    store.make_folder(target)
    for source in ([] if checkpoint is None else [checkpoint]) + [commits.path(number) for number in needed]:
        store.copy(source, target / source.name)
    store.sync_folder(target)


def _rebuild(commits: Commits, version: int) -> Rebuilt:
    checkpoint, needed = commits.needed_for(version)
    with aside(commits, version) as folder:
        try:
            table = DeltaTable(folder, version=version)
        except (DeltaError, OSError, ValueError) as error:
            raise Corruption(
                f"version {version} of {commits.table} cannot be read from its archive ({error}): choose a newer one, "
                f"or restore {commits.archive} from a copy"
            ) from error
        return Rebuilt(table, _txns(commits, checkpoint, needed))


def _fetch_commit(commits: Commits, version: int, folder: PurePath) -> None:
    name = commit_name(version)
    for source in (commits.archive, commits.live):
        try:
            return _fetch(commits, source / name, folder)
        except NotFound:
            continue
    _fetch(commits, commits.archive / name, folder)


def _fetch(commits: Commits, source: PurePath, folder: PurePath) -> None:
    commits.store.path_guard.is_there(source)
    commits.store.download(source, folder / source.name)


def _txns(commits: Commits, checkpoint: PurePath | None, needed: range) -> Txns:
    found: dict[str, int] = {}
    if checkpoint is not None:
        commits.store.path_guard.is_there(checkpoint)
        try:
            stored = open_file(checkpoint).read(columns=["txn"]).column("txn")
        except (Corruption, pa.ArrowException) as error:
            raise Corruption(f"checkpoint {checkpoint} is not readable: restore it from a copy") from error
        found = {txn["appId"]: txn["version"] for txn in stored.drop_null().to_pylist()}
    for version in needed:
        found.update(commits.record(version).txns)
    return Txns(found)
