"""What has broken compaction services elsewhere, one test for each: here it works, or says why not."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from lithify import Conflict, Corruption, Lake, Settings, Table
from lithify.compute.compute import HereCompute
from lithify.core.names import parse_table_name
from lithify.delta.commit import PlannedAgain
from lithify.jobs import jobs, recovery
from lithify.jobs.manifest import COMMITTING, Job
from lithify.lake.maintenance import Maintenance
from lithify.maintenance.fold import FoldJob
from lithify.maintenance.merge_changes import ChangeMerger
from lithify.maintenance.plans import MinorPlan
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from support import children, maintained
from support.bags import bag
from support.clocks import Stopped, lake_with
from support.faults import FaultyStore, RecordingStore, os_failure
from support.leftovers import unsettled

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(
    pack_files_min=2,
    minor_files_min=2,
    checkpoint_every=5,
    tiers=({"name": "hourly", "files_min": 2}, {"name": "daily", "files_min": 2}),
)

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        yield lake


def scattered(lake: Lake, files: int = 4) -> Table:
    table = lake.create_table("a.t", SCHEMA, key="id")
    for number in range(files):
        table.upsert([{"id": 100 * number + i, "v": f"f{number}"} for i in range(5)])
        table.fold()
    return table


def contents(table: Table) -> Any:
    return bag(table.to_arrow().to_pylist())


# -- recovery


def dead_compaction(lake: Lake, output: Callable[[Path], None] = lambda path: None) -> Path:
    """The manifest, and whatever `output` puts where its file would be, of a compaction whose process is gone."""
    table = lake.table("a.t")
    gone = replace(lake._runtime, owner=replace(lake._runtime.owner, started="long ago"))
    job = jobs.begin(gone, "a.t", "pack", "base", [file.path for file in table.snapshot().base])
    folder = table.base_path / job.folder
    output(folder / "part-00000-0.parquet")
    return folder


def _nothing(path: Path) -> None:
    """The process died before its first byte."""


def _an_empty_folder(path: Path) -> None:
    path.parent.mkdir()


def _all_of_it(path: Path) -> None:
    path.parent.mkdir()
    first = next(path.parent.parent.glob("fold-*/*.parquet"))
    path.write_bytes(first.read_bytes())


def _half_of_it(path: Path) -> None:
    _all_of_it(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _more_than_it(path: Path) -> None:
    _all_of_it(path)
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize("output", [_nothing, _an_empty_folder, _all_of_it, _half_of_it, _more_than_it])
def test_recovery_with_the_output_missing_present_half_written_or_of_the_wrong_size(
    lake: Lake, output: Callable[[Path], None]
) -> None:
    """However good it looks: what was not committed is deleted, the inputs stay, and the work is done anew."""
    table = scattered(lake)
    before = contents(table)
    left = dead_compaction(lake, output)

    reports = table.compact()

    assert [report.files_written for report in reports] == [1]
    assert contents(table) == before
    assert not left.exists()
    assert unsettled(lake.path) == []


def test_recovery_under_storage_errors_works_later(lake: Lake) -> None:
    """Whichever call fails: nothing is lost, and nothing is taken for settled that is not."""
    table = scattered(lake)
    before = contents(table)
    dead_compaction(lake, _all_of_it)
    calls = RecordingStore()
    with Lake(lake.path, settings=SETTINGS) as other:
        assert len(recovery.recover(replace(other._runtime, store=calls))) == 1
    for point, nth in calls.occurrences():
        if not point.startswith("store."):
            continue
        left = dead_compaction(lake, _all_of_it)
        with Lake(lake.path, settings=SETTINGS) as other:
            runtime = replace(other._runtime, store=FaultyStore(point, os_failure(5), nth))
            assert recovery.recover(runtime) in ([], ["pack of a.t had not committed: its files were deleted"])
        assert contents(table) == before, f"an I/O error at {point} {nth}"

        recovery.recover(lake._runtime)

        assert not left.exists(), f"an I/O error at {point} {nth}"
        assert unsettled(lake.path) == [], f"an I/O error at {point} {nth}"
    assert table.compact()[0].files_written == 1
    assert contents(table) == before


@pytest.mark.parametrize("work", ["fold", "compact"])
def test_an_output_that_the_disk_kept_half_of_is_never_committed(lake: Lake, work: str) -> None:
    table = scattered(lake)
    table.delete([0])
    before = contents(table)
    known = set(table.base_path.rglob("*.parquet"))

    def lose_half() -> None:
        for path in set(table.base_path.rglob("*.parquet")) - known:
            os.truncate(path, path.stat().st_size // 2)

    with Lake(lake.path, settings=SETTINGS, store=FaultyStore(f"{work}.written", lose_half)) as other:
        with pytest.raises(Corruption, match="parquet"):
            getattr(other.table("a.t"), work)()
        assert unsettled(lake.path) == []
        assert contents(table) == before
        getattr(other.table("a.t"), work)()
    assert contents(table) == before
    table.fold()
    assert contents(table) == before


class Lossy(HereCompute):
    """A computer whose first output lacks a row."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        results = super().run(function, tasks)
        written = results[0].written
        return [replace(results[0], written=replace(written, rows=written.rows - 1)), *results[1:]]


def test_a_fold_whose_outputs_do_not_add_up_is_never_committed(lake: Lake) -> None:
    """Invariant 6."""
    table = scattered(lake)
    table.upsert([{"id": 0, "v": "new"}, {"id": 101, "v": "new"}])
    before = contents(table)
    settings = SETTINGS.model_copy(update={"local_job_bytes_max": 0})
    handles = Handles(replace(lake._runtime, settings=settings, compute=Lossy()), parse_table_name("a.t"))

    with pytest.raises(Conflict, match="nothing was committed"):
        FoldJob(handles, Reader(handles)).run()

    assert contents(table) == before
    assert table.stats().watermark == 4
    assert unsettled(lake.path) == []
    table.fold()
    assert contents(table) == before


def test_changes_with_one_between_them_are_never_merged(lake: Lake) -> None:
    """Labelled with the newest seq, an old value would win over the one between."""
    table = scattered(lake)
    for v in ("old", "between", "other"):
        table.upsert([{"id": 0 if v != "other" else 1, "v": v}])
    with table._internals.maintaining() as (handles, reader):
        first, _, last = handles.snapshot().changes
        plan = MinorPlan("a.t", (first, last), "a plan with a gap", "", 0)
        with pytest.raises(PlannedAgain):
            ChangeMerger(handles, reader).run(plan)
    assert table.get(0) == {"id": 0, "v": "between"}
    assert table.stats().pending_files == 3


# -- manifests


def test_a_manifest_is_read_whole_or_not_at_all_while_it_is_written(lake: Lake) -> None:
    scattered(lake)
    inputs = [f"fold-{number:032x}/part-{number:05d}.parquet" for number in range(400)]
    stop = threading.Event()
    found: list[Job] = []

    def look() -> None:
        while not stop.is_set():
            found.extend(jobs.unfinished(lake._runtime))

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        written = []
        for _ in range(40):
            job = jobs.begin(lake._runtime, "a.t", "pack", "base", inputs)
            for state in (COMMITTING, "cleaning"):
                job = jobs.advance(lake._runtime, job, state)
            jobs.finish(lake._runtime, job)
            written.append(job.id)
        stop.set()
        for future in looking:
            future.result(60)

    assert found
    assert {job.id for job in found} <= set(written)
    assert all(job.inputs == tuple(inputs) for job in found)
    assert list((lake.path / "_lithify" / "jobs").iterdir()) == []


# -- rows are never doubled, lost or chosen at random


@pytest.mark.parametrize("order_by", [None, "at"])
def test_dedup_at_scale(folder: Path, order_by: str | None) -> None:
    """200,000 rows over 20,000 keys, in 40 writes with everything in between: exactly the latest of each key."""
    rows, keys, writes = 200_000, 20_000, 40
    random = np.random.default_rng(7)
    ids = random.integers(0, keys, rows)
    ats = random.integers(0, 50, rows)
    numbers = np.arange(rows)
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
    lazy = {"read_overhead_max": 1000, "fold_rows_min": 60_000, "minor_files_min": 4}
    settings = SETTINGS.model_copy(update=lazy)
    with Lake(folder, settings=settings) as lake:
        table = lake.create_table("a.t", schema, key="id", order_by=order_by)
        maintenance = Maintenance(lake)
        for number in range(writes):
            part = slice(number * rows // writes, (number + 1) * rows // writes)
            table.upsert(pa.table({"id": ids[part], "at": ats[part], "n": numbers[part]}, schema=schema))
            if number % 5 == 4:
                assert maintenance.cycle.run().healthy
            if number % 10 == 9:
                table.fold()
                table.compact()
        found = table.to_arrow()
        assert {entry["kind"] for entry in jobs.job_history(lake._runtime)} >= {"fold", "minor"}

    # The last in order of (key, order value, time of writing) is the winner.
    order = np.lexsort((numbers, ats, ids)) if order_by else np.lexsort((numbers, ids))
    winners = order[np.append(ids[order][1:] != ids[order][:-1], True)]
    assert found.num_rows == len(winners)
    found = found.sort_by("id")
    assert np.array_equal(found["id"].to_numpy(), ids[winners])
    assert np.array_equal(found["n"].to_numpy(), numbers[winners])
    assert np.array_equal(found["at"].to_numpy(), ats[winners])


@pytest.mark.parametrize("point", ["compact.committed", "compact.durable", "fold.committed", "fold.durable"])
def test_a_crash_between_commit_and_cleaning_up_doubles_no_row(folder: Path, tmp_path: Path, point: str) -> None:
    path = folder / "lake"
    state = maintained.fill(path)
    child = children.start(maintained.cycle_until_killed, str(path), point, 1, scratch=tmp_path)
    assert children.finish(child) == -signal.SIGKILL
    with lake_with(maintained.LATER, path, maintained.SETTINGS) as lake:
        assert maintained.state_of(lake) == state
        for _ in range(2):
            maintained.cycle(lake)
            lake.table("a.k").fold()
            assert maintained.state_of(lake) == state
        for name in ("a.k", "a.e"):
            plain = DeltaTable(str(lake.table(name).base_path)).to_pyarrow_table(columns=["id", "v"])
            assert plain.num_rows == sum(state[name].values()), "other readers see every row once, too"
            assert pc.count_distinct(plain["id"]).as_py() == plain.num_rows


def test_many_tiny_files_of_one_millisecond_do_not_collide(folder: Path) -> None:
    """Names come from randomness, not from a clock: here it stands still."""
    parts, folds = 50, 4
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    settings = SETTINGS.model_copy(update={"jobs_max": 8, "checkpoint_every": 1000})
    with lake_with(Stopped(at_ms=1_800_000_000_000), folder / "lake", settings) as lake:
        table = lake.create_table("a.t", schema, key="id", partition_by="p")
        for number in range(folds):
            low = number * parts
            table.upsert(pa.table({"id": range(low, low + parts), "p": range(parts)}, schema=schema))
            table.fold()
        assert len(table.snapshot().base) == parts * folds

        reports = table.compact()

        files = table.snapshot().base
        assert (len(reports), len(files)) == (parts, parts)
        assert len({Path(file.path).parent for file in files}) == parts
        found = table.to_arrow().sort_by("id")
        assert found["id"].to_pylist() == list(range(parts * folds))
        assert found["p"].to_pylist() == [number % parts for number in range(parts * folds)]
        assert unsettled(lake.path) == []


# -- tiers


EVENTS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_the_daily_tier_is_not_starved_by_the_hourly_one(lake: Lake) -> None:
    """Late rows keep the hours of an old day busy, cycle after cycle."""
    table = lake.create_table("a.t", EVENTS, key="id", time="at")
    maintenance = Maintenance(lake)
    kinds: list[str | None] = []
    for number in range(6):
        for minute in range(3):
            at = NOON + dt.timedelta(hours=number, minutes=minute)
            table.upsert([{"id": 10 * number + minute, "at": at}])
            table.fold()
        report = maintenance.cycle.run()
        assert report.healthy
        kinds += [job.tier for job in report.jobs]
    assert kinds.count("hourly") >= 5
    assert kinds.count("daily") >= 2
    assert "daily" in {file.origin for file in table.snapshot().base}
    assert len(table.snapshot().base) <= 4
    assert table.to_arrow().num_rows == 18


def test_target_sizes_are_obeyed_end_to_end(folder: Path) -> None:
    """Of packing and of a tier: many small files become files of about the target's size, none far above it."""
    target = 2**20
    settings = SETTINGS.model_copy(
        update={
            "pack_target_bytes": target,
            "tiers": ({"name": "hourly", "files_min": 2, "target_bytes": target}, {"name": "daily", "enabled": False}),
        }
    )
    random = np.random.default_rng(3)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("noise", pa.binary(200))])
    with Lake(folder, settings=settings) as lake:
        tables = [
            lake.create_table("a.packed", schema, key="id"),
            lake.create_table("a.timed", schema, key="id", time="at"),
        ]
        for table in tables:
            for number in range(20):
                rows = pa.table(
                    {
                        "id": range(number * 1_000, (number + 1) * 1_000),
                        "at": [NOON + dt.timedelta(seconds=number)] * 1_000,
                        "noise": [random.bytes(200) for _ in range(1_000)],
                    },
                    schema=schema,
                )
                table.upsert(rows)
                table.fold()
            before = [file.size_bytes for file in table.snapshot().base]
            assert len(before) == 20
            assert max(before) < target / 4
            table.compact()
            sizes = sorted(file.size_bytes for file in table.snapshot().base)
            assert sizes[-1] <= 1.2 * target
            assert len(sizes) <= 1.5 * sum(before) / target + 1
            assert sizes[1] >= target / 2, "but for one remainder"
            assert table.to_arrow(columns=["id"]).num_rows == 20_000


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.timestamp("us", tz="Europe/Berlin"), pa.date32()]
)
def test_any_type_of_the_time_column_is_compacted(lake: Lake, kind: pa.DataType) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("at", kind)]), key="id", time="at")
    for number in range(4):
        at = pa.array([NOON.replace(minute=number), None], pa.timestamp("us", tz="UTC")).cast(kind, safe=False)
        table.upsert(pa.table({"id": [2 * number, 2 * number + 1], "at": at}))
        table.fold()
    before = contents(table)
    assert len(table.snapshot().base) == 8

    table.compact()

    assert len(table.snapshot().base) == 2
    assert contents(table) == before


def test_a_table_without_any_time_in_its_time_column_completes_with_no_work_for_the_tiers(lake: Lake) -> None:
    table = lake.create_table("a.t", EVENTS, key="id", time="at")
    for number in range(3):
        table.upsert([{"id": number, "at": None}])
        table.fold()
    report = Maintenance(lake).cycle.run("hourly")
    assert (report.jobs, report.healthy) == ((), True)
    assert table.to_arrow().num_rows == 3
