"""A version that the log's own folder no longer tells, put together from the archive.

deltalake reads only folders named like a log. So it is given one of its own, in the place for temporary files: links to
one checkpoint and to the commits from there up to the version, wherever each of them lies. What is asked of a version
of the past is in memory once the table is open, but for its transactions, which are read here; then the folder goes.
Paths of data files are relative, and mean the real table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify.delta.actions import CommitRecord
from lithify.delta.checkpoint_parts import check_checkpoint_parts
from lithify.delta.commit_files import Commits, Needed, NoLog
from lithify.delta.folder import LOG_FOLDER, commit_name
from lithify.delta.open_log import translated_error
from lithify.delta.own_commits import NotWhole, seq_after
from lithify.delta.remote_log import RemoteCommits
from lithify.delta.torn_log import checkpoint_column, is_parquet
from lithify.errors import Corruption, NotFound
from lithify.files.at_once import at_once
from lithify.files.local import LocalStorage
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
    """`last`: its newest commit. `seq`: the newest one that its commits give out. `newest`: it was looked whether
    another one follows, after the log was listed, and there was none.
    """

    table: DeltaTable
    txns: Txns
    last: CommitRecord | None
    seq: int | None = None
    newest: bool = False


def rebuild(commits: Commits, version: int | None = None, listed: Callable[[], object] = lambda: None) -> Rebuilt:
    """The newest one by default. `listed` is called when it is known which files are read. Raises NotFound where
    neither place tells that version any more.
    """
    return _patiently(commits, version, lambda: _rebuild(commits, version, listed))


def read_txns(commits: Commits, version: int) -> Txns:
    """Every application transaction as of a version. Raises NotFound where it is not told any more."""

    def read() -> Txns:
        needed = commits.needed_for(version)
        return _said(commits, needed.commits).txns(commits, needed.checkpoint)

    return _patiently(commits, version, read)


def _patiently(commits: Commits, version: int | None, work: Callable[[], T]) -> T:
    for _ in range(ATTEMPTS_MAX):
        try:
            return work()
        except NoLog:
            raise
        except NotFound:
            continue
    if version is None:
        return work()
    raise commits.gone(version)


@dataclass(frozen=True)
class Aside:
    """A log in a folder of its own, and the files that it is read from."""

    folder: PurePath
    checkpoint: Sequence[PurePath] = ()
    commits: range = range(0)

    def rebuilt(self, version: int) -> Rebuilt:
        """`version`: the last of its commits, or the next, which was written there since."""
        here = Commits(self.folder, LocalStorage())
        said = _said(here, range(self.commits.start, version + 1))
        table = DeltaTable(str(self.folder), version=version)
        return Rebuilt(table, said.txns(here, self.checkpoint), said.last, said.seq)


@contextlib.contextmanager
def aside(commits: Commits, needed: Needed | None) -> Iterator[Aside]:
    """A folder with the log up to a version, as long as the block lasts. None: with nothing."""
    with Scratch("log") as folder:
        if needed is None:
            yield Aside(folder)
        else:
            yield Aside(folder, _bring(commits, needed, folder / LOG_FOLDER), needed.commits)


class WrittenAside(NamedTuple):
    """A commit that deltalake has made of a log that it had for itself, and what the log is then."""

    body: bytes
    then: Rebuilt


def written_aside(commits: Commits, before: Needed | None, write: Callable[[PurePath], None]) -> WrittenAside:
    target = 0 if before is None else before.version + 1
    with aside(commits, before) as own:
        write(own.folder)
        body = LocalStorage().read(own.folder / LOG_FOLDER / commit_name(target))
        return WrittenAside(body, own.rebuilt(target))


def _bring(commits: Commits, needed: Needed, folder: PurePath) -> list[PurePath]:
    """Give a folder what a version is rebuilt from; where the checkpoint lies then."""
    if isinstance(commits, RemoteCommits):
        brought = commits.bring(needed, folder)
        check_checkpoint_parts(folder, LocalStorage())
        return brought
    for source in needed.checkpoint:
        _fetch(commits, source, folder)
    for number in needed.commits:
        _fetch_commit(commits, number, folder)
    return [folder / source.name for source in needed.checkpoint]


def keep(commits: Commits, version: int, folder: PurePath) -> None:
    """Give a folder of its own what a version is rebuilt from, durable: it may leave the log and the archive then."""
    _patiently(commits, version, lambda: _keep(commits, version, folder))


def _keep(commits: Commits, version: int, folder: PurePath) -> None:
    store, target = commits.store, folder / LOG_FOLDER
    store.delete_folder(target)
    needed = commits.needed_for(version)
    store.make_folder(target)
    for source in (*needed.checkpoint, *map(commits.path, needed.commits)):
        store.copy(source, target / source.name)
    store.sync_folder(target)


def needed_files(commits: Commits, version: int) -> dict[str, bytes]:
    """What a version is rebuilt from, by name."""
    return _patiently(commits, version, lambda: _needed_files(commits, commits.needed_for(version)))


def _needed_files(commits: Commits, needed: Needed) -> dict[str, bytes]:
    names = [commit_name(number) for number in needed.commits]
    return {path.name: commits.store.read(path) for path in needed.checkpoint} | {n: commits.read(n) for n in names}


def _rebuild(commits: Commits, version: int | None, listed: Callable[[], object]) -> Rebuilt:
    needed = commits.needed_for(version)
    listed()
    with Scratch("log") as folder:
        newest = False
        if commits.store.remote and version is None:
            # A list may not tell of the last commits yet; whoever asks for the next one by its name finds it.
            checkpoint, following = at_once(
                lambda: _bring(commits, needed, folder / LOG_FOLDER), lambda: commits.following(needed.version)
            )
            newest = following is None
        else:
            checkpoint = _bring(commits, needed, folder / LOG_FOLDER)
        here = Commits(folder, LocalStorage())
        said = _said(here, needed.commits, commits)
        try:
            table = DeltaTable(folder, version=needed.version)
        except (DeltaError, OSError, ValueError) as error:
            if commits.does_without(needed, all(is_parquet(path, LocalStorage()) for path in checkpoint)):
                return _rebuild(commits, version, listed)
            if commits.store.remote:
                raise translated_error(error, commits.table) from error
            raise Corruption(
                f"version {needed.version} of {commits.table} cannot be read from its archive ({error}): choose a "
                f"newer one, or restore {commits.archive} from a copy"
            ) from error
        return Rebuilt(table, said.txns(here, checkpoint), said.last, said.seq, newest)


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


@dataclass
class _Said:
    """What the commits after a checkpoint say."""

    last: CommitRecord | None = None
    seq: int | None = None
    since: dict[str, int] = field(default_factory=dict)

    def txns(self, commits: Commits, checkpoint: Sequence[PurePath]) -> Txns:
        """Those of all."""
        found: dict[str, int] = {}
        for path in checkpoint:
            if not commits.store.remote:
                commits.store.path_guard.is_there(path)
            stored = checkpoint_column(path, commits.store, "txn")
            if stored is not None:
                found.update((txn["appId"], txn["version"]) for txn in stored.to_pylist())
        return Txns(found | self.since)


def _said(commits: Commits, needed: range, of: Commits | None = None) -> _Said:
    """deltalake takes a commit that was emptied for one that changes nothing: they are looked at before it does. `of`:
    where they come from.
    """
    said = _Said()
    for version in needed:
        try:
            said.last = record = commits.record(version)
            said.seq = seq_after(version, record.txns, record.info, said.seq)
        except (Corruption, NotWhole) as error:
            raise (of or commits).broken(version) from error
        said.since.update(record.txns)
    return said
