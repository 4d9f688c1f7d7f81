"""A cycle that is killed, falls asleep, meets its like, runs out of disk or loses its sense of time: rows stay, the
next cycle completes the work, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lithify import CommitUnknown, Conflict, Lake, Table, Unavailable
from lithify.jobs import recovery
from lithify.lake.maintenance import Maintenance
from support import children, maintained
from support.background import merge_changes
from support.bags import bag
from support.clocks import HOUR_MS, Clock, lake_with
from support.cycles import wait_until_stopped
from support.effort import of_this_run, staged, thinned
from support.faults import FaultyStore, Gate, RecordingStore, disk_full
from support.folders import copied, memory_folder
from support.leftovers import not_needed, unsettled
from support.maintained import LATER, SETTINGS, State, cycle, state_of, work_to_the_end
from support.moments import Moment, moments

Point = tuple[str, int]
PARTS = 2  # of the long sweeps, so that several processes share them

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prepared() -> Iterator[tuple[Path, State, list[Point]]]:
    """A lake with something of everything to do, its rows, and the points that a cycle over it passes."""
    with memory_folder() as folder:
        path = folder / "lake"
        state = maintained.fill(path)
        store = RecordingStore()
        with lake_with(LATER, copied(path, folder / "rehearsal"), SETTINGS, store) as lake:
            store.points.clear()
            done = {job.kind if job.tier is None else job.tier for report in cycle(lake) for job in report.jobs}
        assert done == {"fold", "minor", "pack", "hourly", "vacuum"}
        yield path, state, store.occurrences()


MUCH_LATER = Clock(LATER.ahead_ms + 3 * HOUR_MS)  # what failed is tried again after an hour


def assert_everything_is_well(path: Path, state: State, what: str) -> None:
    with lake_with(MUCH_LATER, path, SETTINGS) as lake:
        assert state_of(lake) == state, what
    assert_work_comes_to_an_end(path, state, what)


def assert_work_comes_to_an_end(path: Path, state: State, what: str) -> None:
    gc.collect()  # open logs keep a snapshot, and a snapshot its files
    with lake_with(MUCH_LATER, path, SETTINGS) as lake:
        assert work_to_the_end(lake) == state, what
        assert unsettled(path) == [], what
        assert not_needed(lake) == [], what
        assert Maintenance(lake).cycle.run().jobs == (), what


# -- killed


@pytest.mark.parametrize("point", ["cycle.started", "fold.commit", "compact.written", "vacuum.delete"])
def test_a_cycle_that_is_killed_is_completed_by_the_next(
    prepared: tuple[Path, State, list[Point]], folder: Path, point: str
) -> None:
    """By a real signal; what it leaves at all the other steps is looked at below."""
    path = copied(prepared[0], folder / "lake")
    child = children.start(maintained.cycle_until_killed, str(path), point, 1, scratch=folder)
    assert children.finish(child) == -signal.SIGKILL, f"never came to {point}"
    assert_everything_is_well(path, prepared[1], f"killed at {point}")


@pytest.fixture(scope="module")
def left(prepared: tuple[Path, State, list[Point]]) -> Iterator[list[Moment]]:
    """What a kill leaves at each step and kind of storage call of a cycle."""
    with memory_folder() as folder:
        path = copied(prepared[0], folder / "child" / "lake")
        found = moments(maintained.run_cycle, str(path), folder=folder / "child", copies=folder / "left")
        points = {point for moment in found for point in moment.points}
        assert points >= {point for point, _ in prepared[2]}
        yield [*of_this_run(thinned(found, Moment.classes))]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_cycle_killed_at_every_step_is_completed_by_the_next(
    prepared: tuple[Path, State, list[Point]], left: list[Moment], part: int
) -> None:
    for moment in left[part::PARTS]:
        assert_everything_is_well(moment.path / "lake", prepared[1], str(moment))
        shutil.rmtree(moment.path)


# -- asleep


@pytest.mark.parametrize("point", ["fold.commit", "minor.commit", "compact.commit", "vacuum.delete"])
def test_a_process_that_sleeps_past_its_lease_while_others_work_does_no_harm(
    prepared: tuple[Path, State, list[Point]], folder: Path, tmp_path: Path, point: str
) -> None:
    path = copied(prepared[0], folder / "lake")
    results = children.queue()
    child = children.start(maintained.cycle_that_sleeps, str(path), point, results, scratch=tmp_path)
    assert child.pid is not None
    wait_until_stopped(child.pid)
    try:
        state = work_meanwhile(path)
    finally:
        os.kill(child.pid, signal.SIGCONT)
    outcomes = results.get(timeout=children.WAIT_S_MAX)
    assert children.finish(child) == 0
    assert all(healthy for _, _, healthy in outcomes)
    assert_everything_is_well(path, state, f"slept at {point}")


def work_meanwhile(path: Path) -> State:
    with lake_with(Clock(LATER.ahead_ms + 2 * HOUR_MS), path, SETTINGS) as lake:
        lake.table("a.k").upsert(maintained.rows(0, 100, 700, v="meanwhile"))
        lake.table("a.k").delete([200, 1])
        maintenance = Maintenance(lake)
        assert maintenance.cycle.run().healthy
        lake.table("a.k").upsert(maintained.rows(200, v="again"))
        lake.table("a.e").upsert([maintained.event(0, "meanwhile")])
        lake.table("a.e").delete([1])
        lake.table("a.k").fold()
        assert maintenance.cycle.run().healthy
        return state_of(lake)


@pytest.mark.parametrize(
    ("work", "point"),
    [
        (Table.fold, "fold.commit"),
        (Table.compact, "compact.commit"),
        (Table.optimize, "compact.commit"),
        (merge_changes, "minor.commit"),
    ],
)
def test_a_job_that_was_given_up_finds_the_fence_even_if_nothing_else_has_happened(
    prepared: tuple[Path, State, list[Point]], folder: Path, work: Callable[[Table], Any], point: str
) -> None:
    """Invariant 8. All that it planned on still holds; only the fence tells that its files are gone."""
    gate = Gate()
    path = copied(prepared[0], folder / "lake")
    with (
        Lake(path, settings=SETTINGS) as lake,
        Lake(path, settings=SETTINGS, store=FaultyStore(point, gate.hold)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        working = pool.submit(lambda: work(other.table("a.k")))
        gate.wait()
        for manifest in (path / "_lithify" / "jobs").glob("*.json"):
            manifest.write_text(manifest.read_text().replace('"started": "', '"started": "long before '))
        assert len(recovery.recover(lake._runtime)) == 1
        assert unsettled(path) == []
        gate.open()
        with pytest.raises(Conflict, match="given up by another process"):
            working.result(60)
        assert state_of(lake) == prepared[1]
        assert unsettled(path) == []
        work(other.table("a.k"))
        assert state_of(lake) == prepared[1]


def test_a_fold_that_slept_until_its_base_files_were_vacuumed_plans_again(folder: Path) -> None:
    """Retention is over since others replaced them: what is missing is no damage."""
    gate = Gate()
    with (
        Lake(folder / "lake", settings=SETTINGS) as lake,
        Lake(folder / "lake", settings=SETTINGS, store=FaultyStore("fold.staged", gate.hold)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        table = lake.create_table("a.k", maintained.KEYED, key="id")
        for number in range(3):
            table.upsert(maintained.rows(*range(100 * number, 100 * number + 5)))
            table.fold()
        table.upsert(maintained.rows(0, 100, 200, v="changed"))
        folding = pool.submit(lambda: other.table("a.k").fold())
        gate.wait()
        table.compact()
        state = state_of(lake)
        with lake_with(LATER, folder / "lake", SETTINGS) as later:
            assert later.table("a.k").vacuum(24, dry_run=False).files >= 3
        gate.open()

        report = folding.result(60)

        assert (report.updated, report.problem) == (3, "")
        assert state_of(lake) == state
        assert unsettled(lake.path) == []


def test_a_fold_that_slept_while_its_rows_were_deleted_resurrects_none(folder: Path) -> None:
    """Invariant 5. The other fold left base's files as they are: only the watermark tells that it was there."""
    gate = Gate()
    with (
        Lake(folder / "lake", settings=SETTINGS) as lake,
        Lake(folder / "lake", settings=SETTINGS, store=FaultyStore("fold.committing", gate.hold)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        table = lake.create_table("a.k", maintained.KEYED, key="id")
        table.upsert(maintained.rows(1))
        table.fold()
        base = table.snapshot().base
        table.upsert(maintained.rows(7))
        folding = pool.submit(lambda: other.table("a.k").fold())
        gate.wait()
        table.delete([7])
        assert table.fold().seq == 3
        assert table.snapshot().base == base
        gate.open()
        folding.result(60)

        assert table.to_arrow().to_pylist() == maintained.rows(1)
        assert table.stats().watermark == 3


# -- side by side


def test_two_schedulers_a_writer_and_a_deleter(
    prepared: tuple[Path, State, list[Point]], folder: Path, tmp_path: Path
) -> None:
    source, state, _ = prepared
    path = copied(source, folder / "lake")
    stop, written, deleted = children.event(), children.queue(), children.queue()
    outcomes = [children.queue() for _ in range(2)]
    writers = [
        children.start(maintained.write_for, str(path), 2.0, written, scratch=tmp_path),
        children.start(maintained.delete_for, str(path), 2.0, deleted, scratch=tmp_path),
    ]
    schedulers = [children.start(maintained.schedule, str(path), stop, queue, scratch=tmp_path) for queue in outcomes]
    _, last = written.get(timeout=children.WAIT_S_MAX)
    deleted.get(timeout=children.WAIT_S_MAX)
    stop.set()
    found = [queue.get(timeout=children.WAIT_S_MAX) for queue in outcomes]
    assert [children.finish(child) for child in (*writers, *schedulers)] == [0, 0, 0, 0]

    assert sum(done for _, done, _, _ in found) > 0
    assert [bad for _, _, bad, _ in found] == [[], []]
    refused = {why.partition(":")[0] for _, _, _, all_refused in found for why in all_refused}
    assert refused <= {"a cycle is already running", "maintenance is being stopped here"}
    left = [{"id": number, "v": v} for number, v in last.items() if v is not None]
    expected = {"a.k": state["a.k"] + bag(left), "a.e": state["a.e"] + bag([maintained.event(2000, "end")])}
    assert_everything_is_well(path, expected, "two schedulers")


# -- a full disk


def run_out_of_disk(path: Path, state: State, point: str, nth: int) -> None:
    what = f"no space at {point} {nth}"
    store, clock = FaultyStore(point, disk_full, 10**9), Clock(LATER.ahead_ms)
    with lake_with(clock, path, SETTINGS, store) as lake:
        maintenance = Maintenance(lake)
        store.reached, store.nth = 0, nth
        told = []
        for vacuum in (False, True):
            try:
                report = maintenance.cycle.run(vacuum=vacuum)
                told += [*(job.reason for job in report.jobs if job.reason), *report.problems]
                told += [skipped.why for skipped in report.skipped]
            except Unavailable as error:
                told.append(str(error))
            clock.jump(0.1)  # a lease that could not be given back has run out by then
        assert all("o space left" in text for text in told), what
        assert state_of(lake) == state, what
        # The same process goes on, now that there is space again.
        assert maintenance.cycle.run().healthy, what
        assert unsettled(path) == [], what


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_full_disk_at_every_kind_of_storage_call_of_a_cycle_loses_nothing(
    prepared: tuple[Path, State, list[Point]], folder: Path, caplog: pytest.LogCaptureFixture, part: int
) -> None:
    source, state, points = prepared
    # A logged error that is kept keeps its frames, and these the snapshots that a vacuum then spares.
    caplog.set_level(logging.CRITICAL, "lithify")
    chosen = thinned(staged(points), lambda call: [call[:2]])
    assert len(chosen) > 40
    for _, point, nth in of_this_run(chosen)[part::PARTS]:
        path = copied(source, folder / "lake")
        run_out_of_disk(path, state, point, nth)
        assert_work_comes_to_an_end(path, state, f"no space at {point} {nth}")
        shutil.rmtree(path)


@pytest.mark.parametrize(("name", "work"), [("a.e", Table.fold), ("a.k", Table.compact)])
def test_a_full_disk_at_any_storage_call_leaves_no_job_that_only_a_restart_would_settle(
    prepared: tuple[Path, State, list[Point]], folder: Path, name: str, work: Callable[[Table], Any]
) -> None:
    """Without a cycle there is no newer lease that tells a job which was left behind from one under way."""
    store = FaultyStore("store.delete", disk_full, 10**9)
    with Lake(copied(prepared[0], folder / "lake"), settings=SETTINGS, store=store) as lake:
        table = lake.table(name)
        table.fold()
        for nth in range(1, 20):
            for point in ("store.delete", "store.sync"):
                table.upsert([{**maintained.rows(nth)[0], **({"at": None} if name == "a.e" else {})}])
                if work is Table.compact:
                    table.fold()
                store.at, store.reached, store.nth = point, 0, nth
                with contextlib.suppress(Unavailable, CommitUnknown):
                    work(table)
                store.nth = 10**9
                work(table)
                assert unsettled(lake.path) == [], f"no space at {point} {nth}"


# -- time


@pytest.mark.parametrize("hours", [24, -24])
def test_a_clock_that_jumps_a_day_between_two_cycles(
    prepared: tuple[Path, State, list[Point]], folder: Path, hours: int
) -> None:
    path, state = copied(prepared[0], folder / "lake"), prepared[1]
    clock = Clock(LATER.ahead_ms)
    with lake_with(clock, path, SETTINGS) as lake:
        maintenance = Maintenance(lake)
        for vacuum in (False, True, False, True):
            assert maintenance.cycle.run(vacuum=vacuum).healthy
            clock.jump(hours)
            assert state_of(lake) == state
    assert_everything_is_well(path, state, f"{hours} h between two cycles")


@pytest.mark.parametrize("hours", [24, -24])
@pytest.mark.parametrize("point", ["cycle.started", "fold.commit", "minor.commit", "compact.commit", "vacuum.epoch"])
def test_a_clock_that_jumps_a_day_inside_a_cycle(
    prepared: tuple[Path, State, list[Point]], folder: Path, point: str, hours: int
) -> None:
    path, state = copied(prepared[0], folder / "lake"), prepared[1]
    clock = Clock(LATER.ahead_ms)
    with lake_with(clock, path, SETTINGS, FaultyStore(point, lambda: clock.jump(hours))) as lake:
        assert all(report.healthy and report.stopped is None for report in cycle(lake))
        assert clock.ahead_ms != LATER.ahead_ms
        assert state_of(lake) == state
    assert_everything_is_well(path, state, f"{hours} h at {point}")
