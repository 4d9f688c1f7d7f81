"""Compaction and clustering: fewer files, the same rows, whatever happens meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lithify import (
    ComputeFailed,
    Conflict,
    Corruption,
    InvalidRequest,
    Lake,
    NotFound,
    OutOfResources,
    Settings,
    Table,
    Unavailable,
)
from lithify.core.names import parse_table_name
from lithify.files.local import LocalStorage
from lithify.jobs import jobs, recovery
from lithify.maintenance.compact import Compactor
from lithify.maintenance.table_maintenance import TableMaintenance
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from support.bags import bag
from support.faults import FaultyStore, Gate, disk_full
from support.leftovers import unsettled

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(pack_files_min=3)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        yield lake


def rows(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


def scattered(lake: Lake, name: str = "a.t", files: int = 6, **options: Any) -> Table:
    """A folded table of many small files with disjoint ranges: each fold of new keys adds one."""
    table = lake.create_table(name, SCHEMA, key="id", **options)
    for number in range(files):
        table.upsert(rows(*range(number * 10, number * 10 + 5), v=f"f{number}"))
        table.fold()
    assert len(table.snapshot().base) == files
    return table


def contents(table: Table) -> Any:
    return bag(table.to_arrow().to_pylist())


def base_files(table: Table) -> list[Path]:
    return [table.base_path / file.path for file in table.snapshot().base]


def handles_of(lake: Lake, name: str = "a.t") -> Handles:
    return Handles(lake._runtime, parse_table_name(name))


def test_small_files_become_one_with_the_same_rows(lake: Lake) -> None:
    table = scattered(lake)
    before = contents(table)

    (report,) = table.compact()

    assert (report.files_read, report.files_written, report.rows) == (6, 1, 30)
    assert contents(table) == before
    (path,) = base_files(table)
    assert path.parent.name.startswith("pack-")
    assert pq.read_table(path).column("id").to_pylist() == sorted(row["id"] for row in table.to_arrow().to_pylist())
    assert table.compact() == []
    assert unsettled(lake.path) == []


def test_a_dry_run_says_what_and_why_and_does_nothing(lake: Lake) -> None:
    table = scattered(lake)
    version = table.snapshot().base_version

    (plan,) = table.compact(dry_run=True)

    assert len(plan.files) == 6
    assert plan.bytes_in == sum(path.stat().st_size for path in base_files(table))
    assert plan.why
    assert plan.gain
    assert table.snapshot().base_version == version


def test_other_delta_readers_see_the_same_rows_and_no_new_data(lake: Lake) -> None:
    table = scattered(lake)

    table.compact()

    delta = DeltaTable(table.base_path)
    assert sum(pq.read_metadata(path).num_rows for path in map(Path, delta.file_uris())) == 30
    commit = table.base_path / "_delta_log" / f"{delta.version():020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    changed = [a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a]
    assert changed == [False] * 7
    assert table.changes(since=0).num_rows == 30, "a rewrite is no change"


def test_pending_changes_stay_pending_and_visible(lake: Lake) -> None:
    table = scattered(lake)
    table.upsert(rows(3, 1000, v="new"))
    table.delete([10])
    before = contents(table)

    table.compact()

    assert contents(table) == before
    assert table.stats().pending_files == 2
    table.fold()
    assert contents(table) == before


def test_reads_as_of_before_the_compaction_still_work(lake: Lake) -> None:
    table = scattered(lake)
    states = {seq: bag(table.to_arrow(as_of=seq).to_pylist()) for seq in range(1, 7)}

    table.compact()

    assert {seq: bag(table.to_arrow(as_of=seq).to_pylist()) for seq in states} == states


def test_partitions_are_never_mixed(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
    table = lake.create_table("a.p", schema, key="id", partition_by="country")
    for number in range(4):
        table.upsert([{"id": number * 10 + i, "country": c} for i, c in enumerate(["DE", "FR", None])])
        table.fold()
    before = contents(table)

    reports = table.compact()

    assert sorted((r.partition["country"] or "", r.files_read) for r in reports) == [("", 4), ("DE", 4), ("FR", 4)]
    assert contents(table) == before
    for file in table.snapshot().base:
        assert set(pq.read_table(table.base_path / file.path).column("country").to_pylist()) == {
            file.partition["country"]
        }


def test_hours_are_compacted_apart_and_late_rows_join_their_own(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    day = dt.datetime(2020, 5, 1, tzinfo=dt.UTC)
    settings = Settings(tiers=[{"name": "hourly", "files_min": 4}, {"name": "daily", "files_min": 2}])
    with Lake(folder / "lake", settings=settings) as lake:
        table = lake.create_table("a.e", schema, key="id", time="at")
        for number in range(4):
            late = day + dt.timedelta(hours=4, minutes=number)
            on_time = day + dt.timedelta(hours=5, minutes=number)
            table.upsert([{"id": number * 2, "at": late}, {"id": number * 2 + 1, "at": on_time}])
            table.fold()
        before = contents(table)

        table.compact("hourly")

        hours = [{t.hour for t in pq.read_table(path).column("at").to_pylist()} for path in base_files(table)]
        assert sorted(map(sorted, hours)) == [[4], [5]]
        assert {file.origin for file in table.snapshot().base} == {"hourly"}
        assert contents(table) == before

        table.compact("daily")

        assert [file.origin for file in table.snapshot().base] == ["daily"]
        assert contents(table) == before


def test_an_unknown_tier_is_refused_with_the_known_ones(lake: Lake) -> None:
    table = scattered(lake)

    with pytest.raises(InvalidRequest, match=r"yearly.*hourly"):
        table.compact("yearly")


# -- meanwhile


def stopped_at(
    folder: Path, lake: Lake, point: str, during: Callable[[Table], None], work: Callable[[Table], Any]
) -> Any:
    """Run `work` in another process's stead, held at `point` while `during` happens."""
    gate = Gate()
    with (
        Lake(lake.path, settings=SETTINGS, store=FaultyStore(point, gate.hold)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(lambda: work(other.table("a.t")))
        gate.wait()
        try:
            during(lake.table("a.t"))
        finally:
            gate.open()
        return running.result(60)


@pytest.mark.parametrize("point", ["pack.manifest", "compact.written", "compact.commit"])
def test_deletes_and_upserts_during_a_compaction_survive(folder: Path, lake: Lake, point: str) -> None:
    table = scattered(lake)

    def change(table: Table) -> None:
        table.delete([0, 11])
        table.upsert(rows(21, 99, v="meanwhile"))

    reports = stopped_at(folder, lake, point, change, lambda table: table.compact())

    assert [report.files_written for report in reports] == [1]
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert 0 not in found
    assert 11 not in found
    assert (found[21], found[99], len(found)) == ("meanwhile", "meanwhile", 29)
    table.fold()
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == found


@pytest.mark.parametrize("point", ["pack.manifest", "compact.written", "compact.commit"])
def test_a_compaction_whose_inputs_were_folded_away_plans_again(folder: Path, lake: Lake, point: str) -> None:
    table = scattered(lake)

    def change(table: Table) -> None:
        table.delete([0])
        table.fold()

    reports = stopped_at(folder, lake, point, change, lambda table: table.compact())

    assert [report.files_written for report in reports] == [1]
    assert sorted(row["id"] for row in table.to_arrow().to_pylist()) == [
        i for n in range(6) for i in range(n * 10, n * 10 + 5) if i
    ]
    assert len(table.snapshot().base) == 1
    assert unsettled(lake.path) == []


def test_a_fold_overtaken_by_a_compaction_plans_again(folder: Path, lake: Lake) -> None:
    table = scattered(lake)
    table.upsert(rows(0, 500, v="new"))
    before = contents(table)

    stopped_at(folder, lake, "fold.commit", lambda table: table.compact(), lambda table: table.fold())

    assert contents(table) == before
    assert table.stats().pending_files == 0


def test_files_of_a_running_job_are_no_candidates(folder: Path, lake: Lake) -> None:
    table = scattered(lake)

    def look(table: Table) -> None:
        assert table.compact(dry_run=True) == []
        with pytest.raises(Conflict, match="rewritten by another job"):
            table.optimize(dry_run=True)

    stopped_at(folder, lake, "compact.written", look, lambda table: table.compact())

    assert len(table.snapshot().base) == 1


def test_a_table_dropped_under_a_compaction_stays_dropped(folder: Path, lake: Lake) -> None:
    scattered(lake)

    with pytest.raises(NotFound, match="dropped"):
        stopped_at(folder, lake, "compact.written", lambda table: lake.drop_table("a.t"), lambda table: table.compact())

    assert lake.tables() == []


# -- trouble


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(data)


def test_a_damaged_file_is_left_out_reported_and_left_in_place(lake: Lake) -> None:
    table = scattered(lake)
    damaged = base_files(table)[2]
    flip_a_byte(damaged)
    content = damaged.read_bytes()

    (report,) = [report for report in table.compact() if report.files_written]

    assert report.files_read == 5
    assert str(damaged) in report.problems[0]
    assert damaged.read_bytes() == content
    assert damaged in base_files(table)
    assert unsettled(lake.path) == []


def test_a_missing_file_is_left_out_and_reported(lake: Lake) -> None:
    table = scattered(lake)
    base_files(table)[0].unlink()

    (report,) = [report for report in table.compact() if report.files_written]

    assert "missing" in report.problems[0]


class Forgetful:
    """A computer with room for a few files at a time."""

    def __init__(self, files_max: int) -> None:
        self.files_max, self.asked = files_max, []  # type: ignore[var-annotated]

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        self.asked.append(sum(len(task.sources) for task in tasks))
        if self.asked[-1] > self.files_max:
            raise OutOfResources("no memory left")
        return [function(task) for task in tasks]

    def run_on_driver(self, function: Callable[[Any, Any], Any], task: Any) -> Any:
        raise AssertionError

    def close(self) -> None: ...


def compactor_with(lake: Lake, compute: Any) -> Compactor:
    settings = SETTINGS.model_copy(update={"local_job_bytes_max": 0})
    runtime = replace(lake._runtime, compute=compute, settings=settings)
    return Compactor(Handles(runtime, parse_table_name("a.t")))


def test_where_memory_runs_out_the_files_are_halved(lake: Lake) -> None:
    table = scattered(lake, files=8)
    before = contents(table)
    compute = Forgetful(files_max=2)

    report = compactor_with(lake, compute).run(table.compact(dry_run=True)[0])

    assert compute.asked == [8, 4, 2, 2, 4, 2, 2]
    assert (report.files_read, report.files_written, report.halvings) == (8, 4, 2)
    assert contents(table) == before
    assert unsettled(lake.path) == []


def test_two_files_that_do_not_fit_fail_with_the_reason_and_change_nothing(lake: Lake) -> None:
    table = scattered(lake)
    version = table.snapshot().base_version

    with pytest.raises(OutOfResources, match="no memory left"):
        compactor_with(lake, Forgetful(files_max=1)).run(table.compact(dry_run=True)[0])

    assert [file.path for file in table.snapshot().base] == [file.path for file in lake.table("a.t").snapshot().base]
    assert table.snapshot().base_version >= version
    assert unsettled(lake.path) == []


class Stuck(Forgetful):
    """Works until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.started, self.told = threading.Event(), threading.Event()

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        self.started.set()
        assert self.told.wait(60)
        raise ComputeFailed("cancelled", cancelled=True)

    def cancel_all(self, reason: str = "") -> None:
        self.told.set()


def test_ctrl_c_ends_a_compaction_and_its_tasks(lake: Lake) -> None:
    table = scattered(lake)
    files = base_files(table)
    compute = Stuck()
    settings = SETTINGS.model_copy(update={"local_job_bytes_max": 0})
    handles = Handles(replace(lake._runtime, compute=compute, settings=settings), parse_table_name("a.t"))

    def interrupt() -> None:
        assert compute.started.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell may have started this process with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    user = threading.Thread(target=interrupt)
    user.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            TableMaintenance(handles, Reader(handles)).compact(None)
    finally:
        signal.signal(signal.SIGINT, before)
    user.join()

    assert base_files(table) == files
    assert unsettled(lake.path) == []
    assert jobs.job_history(lake._runtime, 1)[0]["outcome"] == "cancelled"


class Lossy(Forgetful):
    """Loses what it is told to lose after the rows were read."""

    def __init__(self, spoil: Callable[[Any], Any]) -> None:
        super().__init__(1000)
        self.spoil = spoil

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        return [self.spoil(result) for result in super().run(function, tasks)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: replace(r, written=tuple(replace(w, rows=w.rows - 1) for w in r.written)),
        lambda r: replace(r, fingerprint_written=r.fingerprint_written ^ 1),
        lambda r: replace(r, rows_read=r.rows_read - 1, written=tuple(replace(w, rows=w.rows - 1) for w in r.written)),
    ],
    ids=["a row lost in writing", "a key changed", "a row lost in reading"],
)
def test_outputs_that_do_not_add_up_are_never_committed(lake: Lake, spoil: Callable[[Any], Any]) -> None:
    """Invariant 6."""
    table = scattered(lake)
    before, files = contents(table), base_files(table)

    with pytest.raises(Corruption, match="nothing was committed"):
        compactor_with(lake, Lossy(spoil)).run(table.compact(dry_run=True)[0])

    assert (contents(table), base_files(table)) == (before, files)
    assert unsettled(lake.path) == []


@pytest.mark.parametrize("at", ["store.write", "compact.written", "store.sync"])
def test_a_full_disk_changes_nothing_and_the_next_compaction_works(folder: Path, lake: Lake, at: str) -> None:
    table = scattered(lake)
    before = contents(table)
    with Lake(lake.path, settings=SETTINGS) as other:
        plan = other.table("a.t").compact(dry_run=True)[0]
        runtime = replace(other._runtime, store=FaultyStore(at, disk_full, nth=2 if at == "store.sync" else 1))
        handles = Handles(runtime, parse_table_name("a.t"))
        with pytest.raises(Exception, match=r"[Nn]o space left"):
            Compactor(handles).run(plan)

    assert contents(table) == before
    table.compact()
    assert contents(table) == before
    assert len(table.snapshot().base) == 1


# -- clustering


def test_clustering_keeps_the_rows_and_narrows_the_files(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("y", pa.string())])
    table = lake.create_table("a.z", schema, key="id", options={"cluster_target_bytes": 1 << 20})
    count = 60_000
    table.append(
        pa.table(
            {
                "id": range(count),
                "x": [i * 7919 % count for i in range(count)],
                "y": [f"{i * 104729 % count:08d}" for i in range(count)],
            },
            schema=schema,
        )
    )
    table.fold()
    before = contents(table)

    (report,) = table.optimize(by=["x", "y"])

    assert report.rows == count
    assert contents(table) == before
    assert {file.origin for file in table.snapshot().base} == {"cluster"}


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (["country"], "partitioned by 'country'"),
        (["_day"], "partitioned by '_day'"),
        (["nope"], "'nope' is not in table"),
        (["id", "id"], "twice"),
        ([], "1 to 8 columns"),
        (["tags"], "only plain values"),
    ],
)
def test_columns_that_cannot_be_clustered_by_are_refused(lake: Lake, by: list[str], message: str) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("country", pa.string()), ("at", pa.date32()), ("tags", pa.list_(pa.string()))]
    )
    table = lake.create_table("a.z", schema, key="id", time="at", partition_by="country")
    table.append([{"id": 1, "country": "DE", "at": dt.date(2026, 1, 1), "tags": []}])
    table.fold()
    version = table.snapshot().base_version

    with pytest.raises(InvalidRequest, match=message):
        table.optimize(by=by)

    assert table.snapshot().base_version == version


def test_the_default_order_is_the_key_then_the_time(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = lake.create_table("a.z", schema, key="id", time="at")
    table.append([{"id": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}])
    table.fold()

    assert [plan.by for plan in table.optimize(dry_run=True)] == [("id", "at")]


# -- manifests


def test_files_of_a_job_whose_process_is_gone_are_planned_again(lake: Lake) -> None:
    """A dry run shows what a run, which clears up first, would do."""
    table = scattered(lake)
    job = jobs.begin(lake._runtime, "a.t", "pack", "base", [file.path for file in table.snapshot().base])
    assert table.compact(dry_run=True) == []
    manifest = lake.path / "_lithify" / "jobs" / f"{job.id}.json"
    described = json.loads(manifest.read_text())
    described["owner"]["started"] = "long ago"
    manifest.write_text(json.dumps(described))

    assert [len(plan.files) for plan in table.compact(dry_run=True)] == [6]


def test_a_manifest_that_leaves_the_table_is_set_aside_and_obeyed_by_nobody(folder: Path, lake: Lake) -> None:
    table = scattered(lake)
    precious = lake.path / "precious"
    precious.mkdir()
    store = LocalStorage()
    job = jobs.begin(lake._runtime, "a.t", "pack", "base", [file.path for file in table.snapshot().base])
    manifest = lake.path / "_lithify" / "jobs" / f"{job.id}.json"
    described = json.loads(manifest.read_text())
    dead = {**described["owner"], "started": "long ago"}
    for number, bad in enumerate(
        [
            {"folder": "../../precious"},
            {"inputs": ["../../x"]},
            {"inputs": ["/etc/passwd"]},
            {"log": ".."},
            {"table": "../x"},
        ]
    ):
        path = manifest.with_name(f"{number:032x}.json")
        store.put(path, json.dumps({**described, "owner": dead, **bad}).encode())
    manifest.unlink()

    assert len(table.compact()) == 1

    assert precious.exists()
    assert len(list(manifest.parent.glob("*.unreadable"))) == 5


def test_a_job_of_a_host_that_nobody_can_look_at_is_given_up_after_a_day(lake: Lake) -> None:
    table = scattered(lake)
    job = jobs.begin(lake._runtime, "a.t", "pack", "base", [file.path for file in table.snapshot().base])
    manifest = lake.path / "_lithify" / "jobs" / f"{job.id}.json"
    described = json.loads(manifest.read_text())
    described["owner"]["host"] = "gone"
    manifest.write_text(json.dumps(described))
    assert recovery.recover(lake._runtime) == []
    tomorrow = replace(lake._runtime, now_ms=lambda: described["created_ms"] + 25 * 3_600_000)

    assert len(recovery.recover(tomorrow)) == 1
    assert len(table.compact()) == 1


def test_a_manifest_that_cannot_be_read_just_now_stays_where_it_is(lake: Lake) -> None:
    table = scattered(lake)
    job = jobs.begin(lake._runtime, "a.t", "pack", "base", [file.path for file in table.snapshot().base])
    manifest = lake.path / "_lithify" / "jobs" / f"{job.id}.json"

    class Failing(LocalStorage):
        def read(self, path: Path) -> bytes:
            raise Unavailable("too many open files")

    with pytest.raises(Unavailable, match="too many open files"):
        jobs.unfinished(replace(lake._runtime, store=Failing()))

    assert manifest.exists()


def test_many_missing_files_are_left_out_together(lake: Lake) -> None:
    table = scattered(lake, files=12)
    version = table.snapshot().base_version
    for path in base_files(table)[:8]:
        path.unlink()

    reports = table.compact()

    assert [(report.files_read, report.files_written) for report in reports if report.files_written] == [(4, 1)]
    assert len(reports[0].problems) == 8
    assert table.snapshot().base_version == version + 1


def test_a_partition_that_changed_is_clustered_beside_the_others(folder: Path, lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = lake.create_table("a.t", schema, key="id", partition_by="p")
    table.upsert([{"id": i, "p": "xy"[i % 2]} for i in range(10)])
    table.fold()

    def change(table: Table) -> None:
        table.delete([0, 1])
        table.fold()

    reports = stopped_at(folder, lake, "compact.written", change, lambda table: table.optimize(by="id"))

    assert [report.files_written for report in reports] == [1, 1], "one lane was held, and planned again"
    assert 4 in {report.rows for report in reports}
    assert sorted(row["id"] for row in table.to_arrow().to_pylist()) == list(range(2, 10))


def test_optimize_folds_first_where_all_rows_are_pending(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id")
        assert table.optimize() == []
        table.upsert([{"id": n, "v": -n} for n in range(100)])
        assert table.optimize(by="v", dry_run=True) == []
        with pytest.raises(InvalidRequest):
            table.optimize(by="nope")
        assert table.stats().pending_rows == 100

        (report,) = table.optimize(by="v")

        stats = table.stats()
        assert (report.rows, stats.pending_rows, stats.base_rows) == (100, 0, 100)
        assert table.to_arrow().num_rows == 100
