"""A lake with something of everything that a cycle does, and cycles that child processes run: to be killed in, to
fall asleep in, or beside writers.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify import Conflict, Lake, Settings
from lithify.files.addresses import path_of
from lithify.files.storage import Storage
from lithify.lake.maintenance import Maintenance
from lithify.maintenance.reports import CycleReport, JobOutcome
from support.bags import bag
from support.clocks import HOUR_MS, Clock, lake_with
from support.cycles import fall_asleep
from support.faults import FaultyStore, kill_process

KEYED = pa.schema([("id", pa.int64()), ("v", pa.string())])
EVENTS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.string())])
LATER = Clock(48 * HOUR_MS)
CYCLES_MAX = 8
SETTINGS = Settings(
    actor="cycle",
    checkpoint_every=4,
    fold_files_max=3,
    pack_files_min=2,
    minor_files_min=2,
    read_overhead_max=1000,
    tiers=({"name": "hourly", "files_min": 2}, {"name": "daily", "files_min": 2}),
    vacuum_retain_hours=24,
    jobs_max=1,
)
# Only merges of changes: folds neither by number nor by age.
MERGING = {"fold_files_max": 100, "fold_age_s_max": 31_536_000}
State = dict[str, Counter[Any]]


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def event(number: int, v: str = "x") -> dict[str, Any]:
    return {"id": number, "at": dt.datetime(2026, 1, 1, 5, number % 60, tzinfo=dt.UTC), "v": v}


def fill(path: Path | str, settings: Settings = SETTINGS) -> State:
    """Changes to merge and files to pack in a.k, changes to fold and an hour of files in a.e, and old files of both."""
    with Lake(path, settings=settings) as lake:
        keyed = lake.create_table("a.k", KEYED, key="id", options=MERGING)
        for number in range(4):
            keyed.upsert(rows(*range(100 * number, 100 * number + 5)))
            keyed.fold()
        keyed.upsert(rows(0, 1, v="changed"))
        keyed.delete([100, 101])
        keyed.upsert(rows(100, 500, v="again"))
        keyed.upsert(rows(1, v="last"))
        events = lake.create_table("a.e", EVENTS, key="id", time="at")
        for number in range(4):
            events.upsert([event(10 * number), event(10 * number + 1)])
            events.fold()
        events.upsert([event(0, "changed"), event(45)])
        events.delete([11])
        events.upsert([event(21, "changed")])
        return state_of(lake)


def state_of(lake: Lake) -> State:
    return {name: bag(lake.table(name).to_arrow().to_pylist()) for name in lake.tables()}


def cycle(lake: Lake) -> tuple[CycleReport, CycleReport]:
    """What is due, then a vacuum."""
    maintenance = Maintenance(lake)
    return maintenance.cycle.run(), maintenance.cycle.run(vacuum=True)


def done_by(lake: Lake, report: CycleReport) -> list[JobOutcome]:
    """The jobs of a cycle. In a bucket the server's clock says when the last vacuum was, and not that of a test: one is
    due in each cycle.
    """
    return [job for job in report.jobs if job.kind != "vacuum" or not lake._runtime.store.remote]


def work_to_the_end(lake: Lake) -> State:
    """Cycles until nothing is due, then a vacuum; all of them healthy."""
    maintenance = Maintenance(lake)
    for _ in range(CYCLES_MAX):
        report = maintenance.cycle.run()
        assert report.healthy, report
        if not done_by(lake, report):
            break
    else:
        raise AssertionError("there is always something left to do")
    report = maintenance.cycle.run(vacuum=True)
    assert report.healthy, report
    return state_of(lake)


# -- in child processes


def cycle_until_killed(path: str, point: str, nth: int) -> None:
    run_cycle(FaultyStore(point, kill_process, nth), path)


def run_cycle(store: Storage, path: str, settings: Settings = SETTINGS) -> None:
    with lake_with(LATER, path_of(path), settings, store) as lake:
        cycle(lake)


def cycle_that_sleeps(path: str, point: str, results: Queue[Any]) -> None:
    with lake_with(LATER, Path(path), SETTINGS, FaultyStore(point, fall_asleep)) as lake:
        reports = cycle(lake)
        results.put([(report.done, report.replanned, report.healthy) for report in reports])


def schedule(path: str, stop: Event, results: Queue[Any]) -> None:
    """A scheduler in a process of its own; what its cycles came to, and what was refused. Its clock is less than an
    hour ahead: what writers are about to name would be taken for left behind.
    """
    reports: list[CycleReport] = []
    refused: list[str] = []
    with lake_with(Clock(HOUR_MS * 5 // 6), Path(path), SETTINGS) as lake:
        maintenance = Maintenance(lake)
        run: Callable[..., CycleReport] = maintenance.cycle.run

        def noted(*arguments: Any, **options: Any) -> CycleReport:
            try:
                return run(*arguments, **options)
            except Conflict as error:
                refused.append(str(error))
                raise

        maintenance.cycle.run = noted  # type: ignore[method-assign]
        scheduler = maintenance.scheduler(every_s=0.05, on_report=reports.append)
        scheduler.start()
        stop.wait()
        scheduler.stop()
        bad = [str(report) for report in reports if not report.healthy]
        results.put((len(reports), sum(report.done for report in reports), bad, refused))


def write_for(path: str, seconds: float, results: Queue[Any]) -> None:
    """Upserts and deletes in turn; the last word on each id."""
    last: dict[int, str | None] = {}
    deadline_s = time.monotonic() + seconds
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.k")
        number = 0
        while time.monotonic() < deadline_s or number < 20:
            ids = [1000 + number % 37, 1000 + number % 11]
            if number % 3:
                table.upsert(rows(*ids, v=str(number)))
                last.update(dict.fromkeys(ids, str(number)))
            else:
                table.delete(ids)
                last.update(dict.fromkeys(ids))
            number += 1
    results.put((number, last))


def delete_for(path: str, seconds: float, results: Queue[Any]) -> None:
    """Writes an event and deletes it again, over and over; at the end one is there."""
    deadline_s = time.monotonic() + seconds
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.e")
        number = 0
        while time.monotonic() < deadline_s or number < 10:
            table.upsert([event(1000 + number % 7, str(number))])
            table.delete_where(f"v = '{number}'")
            number += 1
        table.upsert([event(2000, "end")])
    results.put(number)
