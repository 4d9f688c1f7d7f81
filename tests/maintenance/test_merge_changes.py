"""Merging change files: fewer files, the same rows now, as of every seq, and in the feed of changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, Settings, Table
from lithify.maintenance.merge_changes import MinorReport
from lithify.maintenance.plans import MinorPlan
from lithify.maintenance.table_maintenance import TableMaintenance
from support.bags import bag
from support.faults import FaultyStore, Gate
from support.leftovers import unsettled

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(minor_files_min=4)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        yield lake


def merge_changes(table: Table) -> list[MinorReport]:
    """Run the minor that is due, if one is."""
    with table._internals.maintaining() as (handles, reader):
        work = TableMaintenance(handles, reader)
        plans = [plan for plan in work.plans(handles.runtime.now_ms()) if isinstance(plan, MinorPlan)]
        reports = [work.run(plan) for plan in plans]
    assert all(isinstance(report, MinorReport) for report in reports)
    return reports  # type: ignore[return-value]


def busy_table(lake: Lake, order_by: str | None) -> Table:
    """Rows in base, then upserts, deletes and (with order_by) replaces and late rows over the same keys."""
    table = lake.create_table("a.t", SCHEMA, key="id", order_by=order_by)
    table.upsert([{"id": i, "at": 5, "v": "base"} for i in range(6)])
    table.fold()
    table.upsert([{"id": 0, "at": 9, "v": "new"}, {"id": 1, "at": 1, "v": "late"}])
    table.delete([0, 2])
    table.upsert([{"id": 0, "at": 1, "v": "again"}, {"id": 7, "at": 1, "v": "seven"}])
    table.replace([{"id": 3, "at": 0, "v": "replaced"}])
    table.upsert([{"id": 3, "at": -1, "v": "older"}, {"id": 7, "at": 3, "v": "seven, newer"}])
    table.delete([7])
    return table


def states(table: Table) -> dict[int, Any]:
    return {seq: bag(table.to_arrow(as_of=seq).to_pylist()) for seq in range(1, table.stats().seq + 1)}


@pytest.mark.parametrize("order_by", [None, "at"])
def test_everything_reads_as_before(lake: Lake, order_by: str | None) -> None:
    table = busy_table(lake, order_by)
    before, feed = states(table), bag(table.changes(since=0).to_pylist())

    (report,) = merge_changes(table)

    assert (report.files_read, report.seq) == (6, 7)
    assert table.stats().pending_files == report.files_written < 6
    assert states(table) == before
    assert bag(table.changes(since=0).to_pylist()) == feed
    assert merge_changes(table) == []
    assert unsettled(lake.path) == []


@pytest.mark.parametrize("order_by", [None, "at"])
def test_folding_what_was_merged_gives_the_same_rows(lake: Lake, order_by: str | None) -> None:
    table = busy_table(lake, order_by)
    before = states(table)

    merge_changes(table)
    report = table.fold()

    assert report.seq == 7
    assert states(table) == before


def test_merged_changes_stay_as_old_as_they_are(lake: Lake) -> None:
    """Or a fold that is due by their age would never be."""
    table = busy_table(lake, None)
    oldest = min(file.time_ms for file in table.snapshot().changes)

    merge_changes(table)

    assert {file.time_ms for file in table.snapshot().changes} == {oldest}


def test_writes_go_on_with_the_next_seq(lake: Lake) -> None:
    table = busy_table(lake, None)
    merge_changes(table)

    commit = table.upsert([{"id": 3, "at": 0, "v": "after"}])

    assert commit.seq == 8
    assert table.get(3) == {"id": 3, "at": 0, "v": "after"}


def test_batch_ids_are_remembered_over_a_merge(lake: Lake) -> None:
    table = busy_table(lake, None)
    first = table.upsert([{"id": 20, "at": 0, "v": "once"}], batch_id="b")
    merge_changes(table)

    again = table.upsert([{"id": 20, "at": 0, "v": "once"}], batch_id="b")

    assert again.replayed
    assert again.seq == first.seq


def stopped_at(
    lake: Lake, point: str, during: Callable[[Table], Any], work: Callable[[Table], Any], **settings: Any
) -> Any:
    gate = Gate()
    chosen = SETTINGS.model_copy(update=settings)
    store = FaultyStore(point, gate.hold)
    with Lake(lake.path, settings=chosen, store=store) as other, ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: work(other.table("a.t")))
        gate.wait()
        try:
            during(lake.table("a.t"))
        finally:
            gate.open()
        return running.result(60)


@pytest.mark.parametrize("order_by", [None, "at"])
@pytest.mark.parametrize("point", ["minor.manifest", "minor.written", "minor.commit"])
def test_a_write_during_a_merge_stays_the_newest(lake: Lake, point: str, order_by: str | None) -> None:
    table = busy_table(lake, order_by)

    stopped_at(lake, point, lambda t: t.replace([{"id": 3, "at": 0, "v": "meanwhile"}]), merge_changes)

    assert table.get(3) == {"id": 3, "at": 0, "v": "meanwhile"}
    table.fold()
    assert table.get(3) == {"id": 3, "at": 0, "v": "meanwhile"}


@pytest.mark.parametrize("order_by", [None, "at"])
@pytest.mark.parametrize("point", ["minor.manifest", "minor.commit"])
def test_a_fold_of_everything_during_a_merge_wins(lake: Lake, point: str, order_by: str | None) -> None:
    table = busy_table(lake, order_by)
    before = states(table)

    with contextlib.suppress(Conflict):
        stopped_at(lake, point, lambda t: t.fold(), merge_changes)

    assert states(table) == before
    assert table.stats().pending_files == 0
    assert unsettled(lake.path) == []


@pytest.mark.parametrize("order_by", [None, "at"])
def test_a_fold_that_ends_inside_a_merged_run_applies_it_once(lake: Lake, order_by: str | None) -> None:
    """The fold takes a prefix of the run in; the merged file, labelled with the run's end, is applied again on top."""
    table = busy_table(lake, order_by)
    before = states(table)
    steps: list[Any] = []

    def fold_two_changes(t: Table) -> None:
        steps.append(t.fold())

    stopped_at(lake, "fold.commit", merge_changes, fold_two_changes, resolve_rows_max=3)  # type: ignore[arg-type]

    assert steps
    assert states(table) == before
    table.fold()
    assert states(table) == before


def test_two_merges_of_the_same_run_do_it_once(lake: Lake) -> None:
    table = busy_table(lake, None)
    before = states(table)

    with contextlib.suppress(Conflict):
        stopped_at(lake, "minor.commit", lambda t: _forget_manifests(lake) or merge_changes(t), merge_changes)

    assert states(table) == before
    assert table.stats().pending_files == 2


def _forget_manifests(lake: Lake) -> None:
    """Another host would not see this process's manifest in time."""
    for path in (lake.path / "_lithify" / "jobs").glob("*.json"):
        path.rename(path.with_suffix(".hidden"))
