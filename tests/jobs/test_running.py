"""The bracket of a job: whatever stops it, its files are there if, and only if, the log names them (invariant 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Conflict, Lake
from lithify.delta.actions import LogChange
from lithify.delta.commit import Committed
from lithify.files.local import LocalStorage
from lithify.jobs import jobs, recovery
from support.faults import FaultyStore, disk_full

SCHEMA = pa.schema([("id", pa.int64())])


class Work:
    """A job that writes one file, and commits that it did."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.handles = lake, lake.table("a.t")._internals.handles
        self.folder: Path | None = None

    def write(self, run: jobs.OpenJob) -> None:
        self.folder = run.log.path / run.job.folder
        self.lake._runtime.store.make_folder(self.folder)
        self.lake._runtime.store.create(self.folder / "part.parquet", b"rows")

    def commit(self, run: jobs.OpenJob) -> Committed | None:
        return run.commit("work on", lambda: LogChange({"operation": "work"}))

    def run(self, *acts: Callable[[jobs.OpenJob], object]) -> None:
        with jobs.running(self.handles, "pack", "base") as run:
            for act in acts:
                act(run)

    @property
    def has_files(self) -> bool:
        return self.folder is not None and self.folder.exists()

    @property
    def manifests(self) -> int:
        return len(list((self.lake.path / "_lithify" / "jobs").glob("*.json")))

    def last(self) -> dict[str, Any]:
        return jobs.job_history(self.lake._runtime, 1)[0]


def work_in(folder: Path, store: LocalStorage) -> Iterator[Work]:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Lake(folder / "lake", store=store) as lake:
        yield Work(lake)


@pytest.fixture
def work(folder: Path) -> Iterator[Work]:
    yield from work_in(folder, LocalStorage())


@pytest.fixture
def troubled_work(folder: Path) -> Iterator[Work]:
    """Its commit lands, and then something goes wrong."""
    yield from work_in(folder, FaultyStore("pack.committed", disk_full))


def fail(_: object) -> None:
    raise Conflict("no")


def stop(_: object) -> None:
    raise KeyboardInterrupt


def test_a_job_that_committed_is_done(work: Work) -> None:
    def report(run: jobs.OpenJob) -> None:
        assert work.manifests == 1
        run.tell((2, 1), (9, 4), 7)

    work.run(work.write, work.commit, report)
    assert (work.manifests, work.has_files) == (0, True)
    assert work.last().items() >= {"outcome": "done", "files_in": 2, "bytes_out": 4, "rows": 7}.items()
    assert recovery.recover(work.lake._runtime) == []


def test_a_job_that_fails_before_its_commit_leaves_nothing(work: Work) -> None:
    with pytest.raises(Conflict, match="no"):
        work.run(work.write, fail)
    assert (work.manifests, work.has_files) == (0, False)
    assert (work.last()["outcome"], work.last()["reason"]) == ("failed", "no")


def test_a_job_that_is_stopped_before_its_commit_leaves_nothing(work: Work) -> None:
    with pytest.raises(KeyboardInterrupt):
        work.run(work.write, stop)
    assert (work.manifests, work.has_files) == (0, False)
    assert work.last()["outcome"] == "cancelled"


@pytest.mark.parametrize("act", [fail, stop])
def test_a_job_that_fails_behind_its_commit_keeps_its_files_for_recovery(
    work: Work, act: Callable[[object], None]
) -> None:
    with pytest.raises((Conflict, KeyboardInterrupt)):
        work.run(work.write, work.commit, act)
    assert (work.manifests, work.has_files) == (1, True)
    assert recovery.recover(work.lake._runtime) == ["pack of a.t had committed: its manifest was removed"]
    assert (work.manifests, work.has_files) == (0, True)


def test_a_job_whose_commit_may_stand_keeps_its_files(troubled_work: Work) -> None:
    work = troubled_work
    with pytest.raises(CommitUnknown):
        work.run(work.write, work.commit)
    assert work.has_files
    recovery.recover(work.lake._runtime)
    assert (work.manifests, work.has_files) == (0, True)


def test_a_job_that_was_not_needed_is_put_away(work: Work) -> None:
    work.run(work.write, lambda run: run.commit("work on", lambda: None))
    assert (work.manifests, work.has_files) == (0, False)
    assert work.last()["outcome"] == "given up"


def test_a_job_that_cannot_clean_up_has_not_failed(work: Work) -> None:
    work.run(work.write, work.commit, lambda run: run.clean_up(fail))
    assert (work.manifests, work.has_files) == (1, True)
    assert recovery.recover(work.lake._runtime) == ["pack of a.t had committed: its manifest was removed"]


def test_a_job_that_was_taken_for_dead_cannot_commit(work: Work) -> None:
    with pytest.raises(Conflict, match="given up by another process"):
        work.run(work.write, lambda run: jobs.fence(work.lake._runtime, run.job, run.log), work.commit)
    assert (work.manifests, work.has_files) == (0, False)
