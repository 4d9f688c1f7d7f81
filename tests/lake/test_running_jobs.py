"""Jobs can be watched and ended: here, from another process, and as a part of a cycle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Cancelled, Conflict, Lake, Settings
from lithify.jobs.watch import Watch
from lithify.lake.internals import internals
from lithify.lake.running_jobs import cancel_job
from lithify.maintenance.reports import RunningJob
from support.faults import FaultyStore, Gate

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int64())])
ROWS = 300
LakeAt = Callable[[str], Lake]


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open()


@pytest.fixture
def lake_at(tmp_path: Path, gate: Gate) -> Iterator[LakeAt]:
    """A lake with a folded table and changes to it, whose jobs wait at a point."""
    with Lake(tmp_path / "lake", create=True) as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        table.upsert([{"id": n, "amount": 0} for n in range(ROWS)])
        table.fold()
        table.upsert([{"id": n, "amount": 1} for n in range(0, ROWS, 3)])
    lakes: list[Lake] = []

    def make(point: str) -> Lake:
        settings = Settings(fold_files_max=1, pack_files_min=2)
        lakes.append(Lake(tmp_path / "lake", settings=settings, store=FaultyStore(point, gate.hold)))
        return lakes[-1]

    yield make
    gate.open()
    for lake in lakes:
        lake.close()


def in_background(work: Callable[[], object]) -> Future[object]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def one_job(lake: Lake) -> RunningJob:
    (job,) = lake.jobs()
    return job


def left_of_jobs(lake: Lake, kind: str) -> list[Path]:
    """Folders of jobs of this kind, manifests, and what was written down for other processes."""
    root = Path(str(lake.path))
    return [*root.glob(f"shop/orders/*/{kind}-*"), *root.glob("_lithify/jobs/*"), *root.glob("_lithify/progress/*")]


def amounts(lake: Lake) -> list[int]:
    return [row["amount"] for row in lake.sql("select amount from shop.orders order by id").to_pylist()]


def test_a_job_tells_how_far_it_is(lake_at: LakeAt, gate: Gate) -> None:
    lake = lake_at("fold.written")
    fold = in_background(lake.table("shop.orders").fold)
    gate.wait()
    job = one_job(lake)
    gate.open()
    fold.result(60)

    assert (job.kind, job.table, job.alive, job.cancelled) == ("fold", "shop.orders", True, False)
    assert (job.files_done, job.files_total, job.rows_done, job.rows_total) == (1, 1, ROWS, ROWS)
    assert job.bytes_done == job.bytes_total
    assert job.bytes_total


def test_a_job_that_has_just_begun_has_done_nothing(lake_at: LakeAt, gate: Gate) -> None:
    lake = lake_at("fold.staged")
    fold = in_background(lake.table("shop.orders").fold)
    gate.wait()
    job = one_job(lake)
    gate.open()
    fold.result(60)
    assert (job.files_done, job.files_total, job.rows_done, job.rows_total) == (0, 1, 0, ROWS)


@pytest.mark.parametrize("point", ["fold.manifest", "fold.staged", "fold.written"])
def test_a_cancelled_fold_leaves_nothing_half_done(lake_at: LakeAt, gate: Gate, point: str) -> None:
    lake = lake_at(point)
    before, pending = amounts(lake), lake.table("shop.orders").stats().pending_files
    folded = left_of_jobs(lake, "fold")
    fold = in_background(lake.table("shop.orders").fold)
    gate.wait()
    job = lake.jobs()[0].id
    asked = cancel_job(lake, job, "by a test")
    gate.open()

    assert asked is True
    with pytest.raises(Cancelled, match=r"fold of shop\.orders was cancelled by a test"):
        fold.result(60)
    assert left_of_jobs(lake, "fold") == folded
    assert amounts(lake) == before
    assert lake.table("shop.orders").stats().pending_files == pending
    assert [(each["id"], each["outcome"]) for each in lake.ended_jobs(1)] == [(job, "cancelled")]
    assert lake.table("shop.orders").fold().change_rows == ROWS // 3
    assert amounts(lake) == before


def test_a_job_that_commits_goes_to_its_end(lake_at: LakeAt, gate: Gate) -> None:
    lake = lake_at("fold.commit")
    fold = in_background(lake.table("shop.orders").fold)
    gate.wait()
    job = one_job(lake)
    with pytest.raises(Conflict, match="it commits, and ends by itself"):
        lake.cancel_job(job.id)
    gate.open()
    fold.result(60)
    assert lake.table("shop.orders").stats().pending_files == 0


def test_what_is_not_under_way_cannot_be_cancelled(lake_at: LakeAt) -> None:
    assert lake_at("never").cancel_job("3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a") is False


def test_a_cancelled_optimize_leaves_nothing(lake_at: LakeAt, gate: Gate) -> None:
    lake = lake_at("compact.written")
    before, files = amounts(lake), lake.table("shop.orders").stats().base_files
    optimize = in_background(lambda: lake.table("shop.orders").optimize("amount"))
    gate.wait()
    job = one_job(lake)
    assert (job.files_done, job.files_total) == (1, 1)
    assert lake.cancel_job(job.id)
    gate.open()
    with pytest.raises(Cancelled):
        optimize.result(60)
    assert left_of_jobs(lake, "cluster") == []
    assert (amounts(lake), lake.table("shop.orders").stats().base_files) == (before, files)


def test_a_cancelled_vacuum_has_deleted_nothing_more(lake_at: LakeAt, gate: Gate, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as other:
        other.table("shop.orders").fold()
    lake = lake_at("vacuum.delete")
    now_ms = internals(lake).runtime.now_ms
    later = internals(lake).runtime
    object.__setattr__(later, "now_ms", lambda: now_ms() + 3 * 3_600_000)
    wanted = lake.table("shop.orders").vacuum(1).files
    vacuum = in_background(lambda: lake.table("shop.orders").vacuum(1, dry_run=False))
    gate.wait()
    job = one_job(lake)
    assert (job.kind, job.state, job.alive) == ("vacuum", "writing", True)
    assert lake.cancel_job(job.id)
    gate.open()
    with pytest.raises(Cancelled, match=r"vacuum of shop\.orders"):
        vacuum.result(60)
    assert wanted > 0
    assert lake.table("shop.orders").vacuum(1).files == wanted
    assert lake.table("shop.orders").vacuum(1, dry_run=False).files == wanted
    assert lake.jobs() == []


class TestFromAnotherProcess:
    """Which another lake object is, too: it shares nothing with the first one but the folder."""

    @pytest.fixture
    def other(self, lake_at: LakeAt, tmp_path: Path) -> Iterator[Lake]:
        with Lake(tmp_path / "lake") as other:
            yield other

    def test_it_sees_how_far_a_job_is(self, lake_at: LakeAt, gate: Gate, other: Lake) -> None:
        lake = lake_at("fold.written")
        fold = in_background(lake.table("shop.orders").fold)
        gate.wait()
        assert one_job(other).rows_done is None  # it has not been written down yet
        tell(lake)
        job = one_job(other)
        gate.open()
        fold.result(60)
        assert (job.rows_done, job.rows_total) == (ROWS, ROWS)
        assert left_of_jobs(lake, "none") == []

    def test_it_ends_a_job(self, lake_at: LakeAt, gate: Gate, other: Lake) -> None:
        lake = lake_at("fold.written")
        fold = in_background(lake.table("shop.orders").fold)
        gate.wait()
        assert cancel_job(other, one_job(other).id, "from elsewhere")
        tell(lake)
        assert one_job(other).cancelled is False  # as it was when that was written down
        tell(lake)
        assert one_job(other).cancelled is True
        gate.open()
        with pytest.raises(Cancelled, match="from elsewhere"):
            fold.result(60)
        assert left_of_jobs(lake, "none") == []

    def test_a_vacuum_is_seen_by_what_it_says_of_itself(self, lake_at: LakeAt, gate: Gate, other: Lake) -> None:
        lake = lake_at("vacuum.listed")
        vacuum = in_background(lambda: lake.table("shop.orders").vacuum(dry_run=False))
        gate.wait()
        assert other.jobs() == []
        tell(lake)
        job = one_job(other)
        gate.open()
        vacuum.result(60)
        assert (job.kind, job.table) == ("vacuum", "shop.orders")
        assert other.jobs() == []


def tell(lake: Lake) -> None:
    """What its thread does every few seconds."""
    runtime = internals(lake).runtime
    runtime.shared(Watch).tell(runtime)


def test_a_cancelled_cycle_starts_nothing_more_and_its_jobs_end(lake_at: LakeAt, gate: Gate, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as other:
        other.create_table("a.first", SCHEMA, key="id").upsert([{"id": 1, "amount": 1}])
    lake = lake_at("fold.manifest")
    reports = in_background(lake.maintain)
    gate.wait()
    cycle = lake.running_cycle()
    assert cycle is not None
    assert cancel_job(lake, cycle["cycle"], "by a test")
    gate.open()
    report = reports.result(60)
    assert getattr(report, "stopped", None) == "cancelled by a test"
    assert "cancelled" in {job.outcome for job in getattr(report, "jobs", ())}
    assert not {job.outcome for job in getattr(report, "jobs", ())} & {"failed"}
    assert lake.jobs() == []
    assert not lake.maintain().stopped


def test_the_thread_that_writes_down_ends_with_the_last_job(lake_at: LakeAt) -> None:
    lake_at("never").table("shop.orders").fold()
    watching = [thread for thread in threading.enumerate() if thread.name == "lithify-watch"]
    for thread in watching:
        thread.join(60)
    assert not any(thread.is_alive() for thread in watching)
