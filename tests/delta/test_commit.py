"""The one way to commit: what is staged goes only if the log was read and says no, and the answer says which
(invariant 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Conflict, Lake, LithifyError, Settings
from lithify.delta.actions import LogChange
from lithify.delta.commit import Committed, commit
from lithify.delta.log import DeltaLog
from lithify.files.local import LocalStorage
from support.faults import FaultyStore, disk_full

SCHEMA = pa.schema([("id", pa.int64())])
CHANGE = LogChange({"operation": "test"}, txns={"n": 1})


class Attempt:
    """One commit with something staged, and what became of it."""

    def __init__(self, lake: Lake, log: DeltaLog) -> None:
        self.lake, self.log = lake, log
        self.built = self.discarded = 0

    def run(self, build: Callable[[], LogChange | None]) -> Committed | None:
        def counted() -> LogChange | None:
            self.built += 1
            return build()

        return commit(self.lake._runtime, self.log, "testing", counted, discard=self.discard, point="test")

    def discard(self) -> None:
        self.discarded += 1

    @property
    def stands(self) -> bool:
        return DeltaLog.open(self.log.path, LocalStorage()).txn("n") == 1


@pytest.fixture
def at(folder: Path) -> Iterator[Callable[..., Attempt]]:
    """A log in a lake whose store fails where it is told to."""
    lakes: list[Lake] = []

    def made(store: LocalStorage | None = None, **settings: int) -> Attempt:
        with Lake(folder / "lake") as lake:
            lake.create_table("a.t", SCHEMA, key="id")
        lakes.append(Lake(folder / "lake", settings=Settings(**settings), store=store or LocalStorage()))
        return Attempt(lakes[0], lakes[0].table("a.t")._internals.handles.changes.log)

    yield made
    for lake in lakes:
        lake.close()


def test_what_was_committed_stays(at: Callable[..., Attempt]) -> None:
    attempt = at()
    done = attempt.run(lambda: CHANGE)
    assert done is not None
    assert done.version == attempt.log.version
    assert (attempt.built, attempt.discarded, attempt.stands) == (1, 0, True)


def test_what_fails_behind_the_commit_is_told_as_unknown(at: Callable[..., Attempt]) -> None:
    """Told as anything else, writes that share a commit would be tried again one by one."""
    attempt = at()

    def broken(*_: object) -> None:
        raise ValueError("the index")

    attempt.log.after_commit = broken
    with pytest.raises(CommitUnknown, match="what follows failed"):
        attempt.run(lambda: CHANGE)
    assert (attempt.discarded, attempt.stands) == (0, True)


def test_what_turns_out_not_to_be_needed_is_discarded(at: Callable[..., Attempt]) -> None:
    attempt = at()
    assert attempt.run(lambda: None) is None
    assert (attempt.discarded, attempt.stands) == (1, False)


def test_what_is_refused_is_discarded(at: Callable[..., Attempt]) -> None:
    def refuse() -> LogChange:
        raise Conflict("refused")

    attempt = at()
    with pytest.raises(Conflict, match="refused"):
        attempt.run(refuse)
    assert (attempt.discarded, attempt.stands) == (1, False)


def test_what_could_not_be_tried_is_discarded(at: Callable[..., Attempt]) -> None:
    attempt = at(FaultyStore("log.swap", disk_full))
    with pytest.raises(OSError, match="No space"):
        attempt.run(lambda: CHANGE)
    assert (attempt.discarded, attempt.stands) == (1, False)


def test_a_loser_builds_anew_and_is_discarded_once_when_it_gives_up(at: Callable[..., Attempt]) -> None:
    attempt = at(commit_attempts_max=3)

    def overtaken() -> LogChange:
        with Lake(attempt.lake.path) as other:
            other.table("a.t").upsert([{"id": 1}])
        return CHANGE

    with pytest.raises(Conflict, match="lost the race against other writers 3 times"):
        attempt.run(overtaken)
    assert (attempt.built, attempt.discarded, attempt.stands) == (3, 1, False)


@pytest.mark.parametrize("point", ["test.committed", "store.sync", "test.durable"])
def test_what_fails_behind_the_swap_leaves_everything_and_says_so(at: Callable[..., Attempt], point: str) -> None:
    store = FaultyStore(point, disk_full, nth=1_000)
    attempt = at(store)
    attempt.log.make_durable()
    store.nth = store.reached + 1
    with pytest.raises(CommitUnknown, match="is committed, but"):
        attempt.run(lambda: CHANGE)
    assert (attempt.built, attempt.discarded, attempt.stands) == (1, 0, True)


def test_whoever_is_stopped_behind_the_swap_leaves_everything(at: Callable[..., Attempt]) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    attempt = at(FaultyStore("test.committed", stop))
    with pytest.raises(KeyboardInterrupt):
        attempt.run(lambda: CHANGE)
    assert (attempt.discarded, attempt.stands) == (0, True)


def test_an_answer_by_what_the_log_says_is_durable_too(at: Callable[..., Attempt]) -> None:
    """Whoever committed it may have died before its fsync."""
    attempt = at(FaultyStore("store.sync", disk_full))
    with Lake(attempt.lake.path) as other:
        other.table("a.t").upsert([{"id": 1}])
    with pytest.raises(LithifyError, match="could not be made durable"):
        attempt.run(lambda: None)
