"""A lake's own maintenance: real policies, real jobs, seen at once by open tables."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, Settings
from lithify.lake.maintenance import (
    Maintenance,
    ended_jobs,
    past_cycles,
    running_cycle,
    table_maintenance,
)
from lithify.maintenance.table_maintenance import TableMaintenance
from support import children, cycles
from support.bags import bag
from support.leftovers import unsettled

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
EVENTS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
SETTINGS = Settings(fold_files_max=2, pack_files_min=2, tiers=({"name": "hourly", "files_min": 2},))


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder, settings=SETTINGS) as lake:
        yield lake


def fill(lake: Lake, name: str = "a.t", rounds: int = 3) -> list[dict[str, Any]]:
    """Some folded rows and, on top of them, as many changes as make a fold due."""
    table = lake.create_table(name, COLUMNS, key="id")
    table.upsert([{"id": n, "v": "old"} for n in range(10)])
    table.fold()
    for n in range(rounds):
        table.upsert([{"id": n, "v": "new"}])
    return [{"id": n, "v": "new" if n < rounds else "old"} for n in range(10)]


def test_a_cycle_folds_what_is_due_and_rows_stay(lake: Lake) -> None:
    rows = fill(lake)
    report = Maintenance(lake).cycle.run()
    assert [(job.table, job.kind, job.outcome) for job in report.jobs] == [("a.t", "fold", "done")]
    assert bag(lake.table("a.t").to_arrow().to_pylist()) == bag(rows)
    assert lake.table("a.t").stats().pending_rows == 0
    assert unsettled(lake.path) == []


def test_open_tables_see_it_at_once(lake: Lake) -> None:
    fill(lake)
    seen: list[tuple[str, int]] = []
    lake.on_change(lambda name, snapshot: seen.append((name, snapshot.pending_rows)))
    Maintenance(lake).cycle.run()
    assert seen[-1] == ("a.t", 0)


def test_small_files_are_packed(lake: Lake) -> None:
    table = lake.create_table("a.t", COLUMNS, key="id")
    for n in range(4):
        table.upsert([{"id": n, "v": "x"}])
        table.fold()
    assert Maintenance(lake).cycle.run().done >= 1
    assert table.stats().base_files == 1
    assert table.to_arrow().num_rows == 4


def test_a_tier_does_its_work_and_no_other(lake: Lake) -> None:
    table = lake.create_table("a.e", EVENTS, key="id", time="at")
    fill(lake)
    for n in range(4):
        table.upsert([{"id": n, "at": dt.datetime(2026, 1, 1, 5, n, tzinfo=dt.UTC)}])
        table.fold()
    report = Maintenance(lake).cycle.run("hourly")
    assert {(job.table, job.tier, job.outcome) for job in report.jobs} == {("a.e", "hourly", "done")}
    assert lake.table("a.e").stats().base_files == 1
    assert lake.table("a.t").stats().pending_rows == 3


@pytest.mark.parametrize("tier", ["yearly", "", "../x"])
def test_an_unknown_tier_changes_nothing(lake: Lake, tier: str) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no tier|the name of a tier"):
        Maintenance(lake).cycle.run(tier)
    assert past_cycles(lake) == []


def test_tiers_that_only_a_table_turns_on_have_their_times(lake: Lake) -> None:
    maintenance = Maintenance(lake)
    lake.create_table("a.e", EVENTS, key="id", time="at", options={"tiers": [{"name": "weekly", "enabled": True}]})
    assert [tier.name for tier in maintenance.tiers() if tier.enabled] == ["hourly", "daily", "weekly"]


def test_the_next_cycle_works_on_a_table_made_anew(lake: Lake) -> None:
    fill(lake)
    maintenance = Maintenance(lake)
    maintenance.cycle.run()
    lake.drop_table("a.t")
    assert maintenance.cycle.run().jobs == ()
    rows = fill(lake)
    assert maintenance.cycle.run().done == 1
    assert bag(lake.table("a.t").to_arrow().to_pylist()) == bag(rows)


def test_jobs_carry_the_lease_and_are_in_the_history(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake)
    under_way: list[Any] = []
    run = TableMaintenance._run

    def looked_at(self: TableMaintenance, plan: Any) -> Any:
        under_way.append((self._lease, running_cycle(lake)))
        return run(self, plan)

    monkeypatch.setattr(TableMaintenance, "_run", looked_at)
    report = Maintenance(lake).cycle.run()
    [(lease, cycle)] = under_way
    assert (lease, cycle["cycle"]) == (1, report.id)
    assert running_cycle(lake) is None
    assert lake.jobs() == []
    assert [entry["kind"] for entry in ended_jobs(lake, table="a.t")] == ["fold", "fold"]
    assert len(ended_jobs(lake, 1, "a.t")) == 1
    assert ended_jobs(lake, table="a.other") == []


def test_two_lakes_on_one_folder_share_one_cycle(lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake)
    refused: list[Conflict] = []
    with Lake(folder, settings=SETTINGS) as other:
        second, run = Maintenance(other), TableMaintenance._run

        def meanwhile(self: TableMaintenance, plan: Any) -> Any:
            with pytest.raises(Conflict) as conflict:
                second.cycle.run()
            refused.append(conflict.value)
            return run(self, plan)

        monkeypatch.setattr(TableMaintenance, "_run", meanwhile)
        report = Maintenance(lake).cycle.run()
    assert [error.details["cycle"] for error in refused] == [report.id]


def test_what_an_operator_sees(lake: Lake) -> None:
    fill(lake)
    before = table_maintenance(lake, "a.t")
    assert (before["pending_files"], len(before["due"]), before["last_job"]["kind"]) == (3, 1, "fold")
    assert before["read_overhead"] > 1
    Maintenance(lake).cycle.run()
    after = table_maintenance(lake, "a.t")
    assert (after["pending_files"], after["due"], after["read_overhead"], after["waiting"]) == (0, [], 1.0, [])


def test_the_scheduler_of_a_lake_keeps_it_in_shape(lake: Lake) -> None:
    rows = fill(lake)
    done = threading.Event()
    scheduler = Maintenance(lake).scheduler(every_s=0.05, on_report=lambda report: report.done and done.set())
    scheduler.start()
    try:
        assert scheduler.crons == {"hourly": "5 * * * *", "daily": "0 3 * * *"}
        assert done.wait(60)
    finally:
        scheduler.stop()
    assert lake.table("a.t").stats().pending_rows == 0
    assert bag(lake.table("a.t").to_arrow().to_pylist()) == bag(rows)


def test_a_vacuum_cycle(lake: Lake) -> None:
    fill(lake)
    report = Maintenance(lake).cycle.run(vacuum=True)
    assert [(job.table, job.kind, job.outcome) for job in report.jobs] == [("a.t", "vacuum", "done")]


@pytest.mark.parametrize("point", ["pack.manifest", "compact.written", "pack.committing", "compact.durable"])
def test_a_compaction_that_sleeps_past_its_lease_does_no_harm(
    lake: Lake, folder: Path, tmp_path: Path, point: str
) -> None:
    table = lake.create_table("a.t", COLUMNS, key="id")
    rows = [{"id": n, "v": "x"} for n in range(4)]
    for row in rows:
        table.upsert([row])
        table.fold()
    results = children.queue()
    child = children.start(cycles.maintain_stopped, str(folder), SETTINGS, point, results, scratch=tmp_path)
    assert child.pid is not None
    cycles.wait_until_stopped(child.pid)
    try:
        later = int(time.time() * 1000) + 120_000
        lake._internals.runtime = dataclasses.replace(lake._runtime, now_ms=lambda: later)
        report = Maintenance(lake).cycle.run()
        assert report.healthy
        assert len(report.recovered) == 1
        table.delete([1])
        table.fold()
    finally:
        os.kill(child.pid, signal.SIGCONT)
    done, replanned, _ = results.get(timeout=children.WAIT_S_MAX)
    assert children.finish(child) == 0
    committed = point == "compact.durable"
    assert (done, replanned) == ((1, 0) if committed else (0, 1))
    assert bag(table.to_arrow().to_pylist()) == bag(row for row in rows if row["id"] != 1)
    assert unsettled(folder) == []
    assert Maintenance(lake).cycle.run().healthy


def test_a_lake_looks_after_itself_once_it_was_told_to(folder: Path) -> None:
    settings = Settings(fold_files_max=2, policy_interval_s=0.1)
    with Lake(folder / "lake", settings=settings) as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        folded = threading.Event()
        lake.on_change(lambda name, snapshot: folded.set() if snapshot.watermark == 2 else None)
        lake.start_maintenance()
        with pytest.raises(InvalidRequest, match="started already"):
            lake.start_maintenance()
        table.upsert([{"id": 1}])
        table.upsert([{"id": 2}])

        assert folded.wait(60)
        assert table.stats().pending_files == 0


NOBODY_CLOSES_IT = """
import pyarrow as pa
from lithify import Lake

lake = Lake({path!r}, create=True)
for number in range(8):
    table = lake.create_table(f"a.t{{number}}", pa.schema([("id", pa.int64())]), key="id")
    table.upsert([{{"id": 1}}])
lake.start_maintenance()
"""


def test_a_program_that_ends_without_closing_its_lake_ends_maintenance_first(folder: Path) -> None:
    program = NOBODY_CLOSES_IT.format(path=str(folder / "lake"))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    with Lake(folder / "lake") as lake:
        assert lake.running_cycle() is None
        assert unsettled(lake.path) == []


def test_one_cycle_does_what_is_due(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(fold_files_max=2)) as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        table.upsert([{"id": 1}])
        assert lake.maintain().jobs == ()
        table.upsert([{"id": 2}])

        (job,) = lake.maintain().jobs

        assert (job.kind, job.outcome) == ("fold", "done")
        assert table.stats().pending_files == 0


def test_tiers_that_cannot_be_are_refused_when_the_lake_is_opened(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="hourly"):
        Lake(folder / "lake", settings=Settings(tiers=[{"name": "hourly", "age_min_s": -1}]))
