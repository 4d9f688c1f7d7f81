"""How far a step of a pipeline has come: remembered by its target, in the commit that brings the rows.

Each commit of a step carries its number (a run follows the one before it, or is refused), the seq of the source up to
which the target holds everything, a fingerprint of the declaration that it was computed by, and, for a step that
reads files, the ledger: a file that lists what has been read. A ledger is durable before the commit that names it, and
one that no commit names counts for nothing. So whatever dies where, rows and what is known of them agree.

The table remembers too which step came last: after another one's commit (a step that was renamed, and back again)
what a step knows of its target no longer holds.

What the log has forgotten (30 days without a commit of the step) begins anew, from the whole source.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from lithify.delta.changes import ChangesLog
from lithify.errors import Corruption, NotFound
from lithify.files.user_files import size_and_time_ns
from lithify.pipelines.context import Seen
from lithify.pipelines.declaration import Step
from lithify.streams.exactly_once import Checkpoint, feed_txn, fingerprint, recall
from lithify.tables.runtime import Runtime

READ, DECLARED, LEDGER = "read", "declared", "ledger"
_LAST = "lithify.step"


@dataclass(frozen=True)
class StepCheckpoint(Checkpoint):
    """A commit's number, with further numbers beside it in the same commit."""

    facts: Mapping[str, int] = field(default_factory=dict)

    def txns(self, seq: int) -> dict[str, int]:
        name = feed_txn(self.feed)
        facts = {f"{name}.{fact}": value for fact, value in self.facts.items()}
        return {**super().txns(seq), **facts, _LAST: fingerprint(self.feed)}


@dataclass(frozen=True)
class StepState:
    """What a target remembers of a step; all None: nothing yet. `last`: no other step has committed since."""

    number: int | None = None
    read: int | None = None
    declared: int | None = None
    ledger: int | None = None
    last: bool = True

    def next(self, feed: str, **facts: int) -> StepCheckpoint:
        return StepCheckpoint(feed, 1 if self.number is None else self.number + 1, self.number, facts=facts)


def state_of(target: Seen | None, feed: str) -> StepState:
    """As of the version that was seen: rows of the target that are compared later must be no older than this."""
    if target is None:
        return StepState()
    with target.handles.changes.log.lock:
        log = target.handles.changes.log.at(target.snapshot.changes_version)
        known = recall(ChangesLog(log, target.snapshot.table), feed)
        if known is None:
            return StepState()
        name = feed_txn(feed)
        read, declared, ledger, last = log.txns(f"{name}.{READ}", f"{name}.{DECLARED}", f"{name}.{LEDGER}", _LAST)
        return StepState(known.after, read, declared, ledger, last in (None, fingerprint(feed)))


# -- which files have been read


@dataclass(frozen=True)
class FileSeen:
    """A file as it was: another size or time of change means other rows."""

    path: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True)
class Ledger:
    """Files that have been read, by path, and the columns they were found to have, if these were not declared."""

    files: Mapping[str, FileSeen] = field(default_factory=dict)
    columns: Any = None

    def news(self, found: Iterable[FileSeen]) -> list[FileSeen]:
        """Files that are new or have changed, the oldest first: where a key comes twice, the younger file wins."""
        new = [file for file in found if self.files.get(file.path) != file]
        return sorted(new, key=lambda file: (file.modified_ns, file.path))

    def with_files(self, files: Iterable[FileSeen], columns: Any) -> Ledger:
        return Ledger({**self.files, **{file.path: file for file in files}}, columns)


def files_behind(found: Iterable[str]) -> list[FileSeen]:
    """The files of a listing as they are now; one that has gone meanwhile, or has nothing in it yet, is left out."""
    seen = []
    for path in found:
        if PurePath(path).name.startswith((".", "_")):
            continue
        try:
            size, time_ns = size_and_time_ns(path)
        except NotFound:
            continue
        if size:
            seen.append(FileSeen(path, size, time_ns))
    return seen


class Ledgers:
    """The ledgers of one step, below `_lithify/pipelines`."""

    def __init__(self, runtime: Runtime, step: Step) -> None:
        self._runtime, self._step = runtime, step
        self._folder = runtime.control / "pipelines" / step.pipeline / step.name

    def read(self, number: int | None) -> Ledger:
        if number is None:
            return Ledger()
        path = self._path(number)
        try:
            document = json.loads(gzip.decompress(self._runtime.store.read(path)))
            files = {path: FileSeen(path, size, modified) for path, size, modified in document["files"]}
            return Ledger(files, document["columns"])
        except NotFound as error:
            raise NotFound(
                f"{path} is gone, so it is not known which files {self._step.label} has read: restore it, or run the "
                "step with --full to read all files again"
            ) from error
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            raise Corruption(
                f"{path} cannot be read ({error}): restore it, or run {self._step.label} with --full to read all files "
                "again"
            ) from error

    def names(self) -> list[str]:
        return self._runtime.store.names(self._folder)

    def write(self, ledger: Ledger) -> int:
        """Durable; the number is for the commit that makes it count."""
        number = int(self._runtime.new_id()[:15], 16)
        files = [[file.path, file.size_bytes, file.modified_ns] for file in ledger.files.values()]
        data = gzip.compress(json.dumps({"columns": ledger.columns, "files": files}).encode(), 3)
        self._runtime.store.make_folder(self._folder)
        self._runtime.store.create(self._path(number), data)
        self._runtime.store.sync_folder(self._folder)
        self._runtime.store.step("pipeline.ledger")
        return number

    def remove(self, names: Iterable[str]) -> None:
        """Those that were there before a commit that names another one count for nothing after it. Younger ones may be
        of a run that follows.
        """
        for name in names:
            self._runtime.store.delete(self._folder / name)

    def _path(self, number: int) -> PurePath:
        return self._folder / f"{number:015x}.json.gz"
