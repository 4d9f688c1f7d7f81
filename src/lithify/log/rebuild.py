"""A version that the log's own folder no longer tells, put together from the archive.

deltalake reads only folders named like a log. So it is given one of its own, in the place for temporary files: links to
one checkpoint and to the commits from there up to the version, wherever each of them lies. What is asked of a version of
the past is in memory once the table is open, but for its transactions, which are read here; then the folder goes. Paths
of data files are relative, and mean the real table.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify.errors import Corruption, NotFound
from lithify.log.commits import Commits
from lithify.log.listing import LOG_FOLDER, commit_name

ATTEMPTS_MAX = 5  # each time a file was moved, or thinned out, between finding and reading it


@dataclass(frozen=True)
class Rebuilt:
    table: DeltaTable
    txns: dict[str, int]


def rebuild(commits: Commits, version: int) -> Rebuilt:
    """Raises NotFound where neither place tells that version any more."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            return _rebuild(commits, version)
        except (FileNotFoundError, NotFound):
            if attempt + 1 == ATTEMPTS_MAX:
                raise commits.gone(version) from None
    raise AssertionError


def read_txns(commits: Commits, version: int) -> dict[str, int]:
    """Every application transaction as of a version. Raises NotFound where it is not told any more."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            return _txns(commits, *_parts(commits, version))
        except (FileNotFoundError, NotFound):
            if attempt + 1 == ATTEMPTS_MAX:
                raise commits.gone(version) from None
    raise AssertionError


def _parts(commits: Commits, version: int) -> tuple[Path | None, range]:
    """A checkpoint, if the log does not begin with its first version, and the commits that go with it."""
    there = commits.versions()
    if version not in there:
        raise commits.gone(version)
    checkpoint = commits.checkpoint_up_to(version, there.start)
    if checkpoint is None and there.start > 0:
        raise commits.gone(version)
    return (checkpoint[1], range(checkpoint[0], version + 1)) if checkpoint else (None, range(version + 1))


def _rebuild(commits: Commits, version: int) -> Rebuilt:
    checkpoint, needed = _parts(commits, version)
    with tempfile.TemporaryDirectory(prefix="lithify-log-") as folder:
        target = Path(folder) / LOG_FOLDER
        target.mkdir()
        if checkpoint is not None:
            _link(checkpoint, target / checkpoint.name)
        for number in needed:
            _link_commit(commits, number, target / commit_name(number))
        try:
            table = DeltaTable(folder, version=version)
        except (DeltaError, OSError, ValueError) as error:
            raise Corruption(
                f"version {version} of {commits.table} cannot be read from its archive: {error}; choose a newer one, or "
                f"restore {commits.archive} from a copy"
            ) from error
        return Rebuilt(table, _txns(commits, checkpoint, needed))


def _link_commit(commits: Commits, version: int, target: Path) -> None:
    name = commit_name(version)
    for folder in (commits.archive, commits.live):
        try:
            return _link(folder / name, target)
        except FileNotFoundError:
            continue
    _link(commits.archive / name, target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links, or files of another user
        shutil.copyfile(source, target)


def _txns(commits: Commits, checkpoint: Path | None, needed: range) -> dict[str, int]:
    found: dict[str, int] = {}
    if checkpoint is not None:
        try:
            stored = pq.read_table(checkpoint, columns=["txn"]).column("txn")
        except pa.ArrowException as error:
            raise Corruption(f"checkpoint {checkpoint} is not readable: restore it from a copy") from error
        found = {txn["appId"]: txn["version"] for txn in stored.drop_null().to_pylist()}
    for version in needed:
        found.update(commits.record(version).txns)
    return found
