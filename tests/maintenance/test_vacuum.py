"""Vacuum deletes what nobody can ask for any more, and nothing else (invariant 9)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lithify import InvalidRequest, Lake, NotFound, Settings, Unavailable
from lithify.core.results import VacuumReport
from lithify.files.os_errors import translated
from lithify.maintenance.merge_changes import ChangeMerger
from lithify.maintenance.plans import MinorPlan
from support import children, vacuums
from support.clocks import HOUR_MS, Clock, Stopped, lake_with, next_ms
from support.effort import examples, thinned
from support.faults import FaultyStore, Gate, disk_full, no_permission
from support.folders import copied, memory_folder
from support.moments import Moment, moments
from support.program import TABLES, Driver, programs
from support.unchanged import nothing_changes
from support.vacuums import SCHEMA, data_files, ids, live_files, rows

pytestmark = pytest.mark.slow

DAY_H = 24


def make_old(path: Path, hours: float = 1000) -> None:
    """As if the file had lain there for long."""
    then_s = path.stat().st_mtime - hours * 3600
    os.utime(path, (then_s, then_s))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def filled() -> Iterator[Path]:
    with memory_folder() as folder:
        with lake_with(Clock(), folder / "lake") as lake:
            vacuums.fill(lake)
        yield folder / "lake"


@pytest.fixture
def lake(filled: Path, folder: Path, clock: Clock) -> Iterator[Lake]:
    """A copy of what `vacuums.fill` makes."""
    with lake_with(clock, copied(filled, folder / "lake")) as lake:
        yield lake


# -- a full disk


def test_a_full_disk_is_freed_of_what_the_log_no_longer_names(lake: Lake, clock: Clock) -> None:
    """Its own commit needs room: what a commit has removed goes before it, what nobody has named waits for it."""
    clock.jump(1000)
    folder = lake.path / "a" / "t"
    stray = folder / "changes" / f"write-{'0' * 32}.parquet"
    shutil.copy(next(folder.rglob("*.parquet")), stray)
    make_old(stray, 2000)
    foreseen = lake.table("a.t").vacuum(1)
    assert foreseen.files > foreseen.orphans == 1
    before, read = data_files(lake), ids(lake)

    def full_while_nothing_went() -> None:
        assert stray.exists(), "it goes only after the commit"
        if data_files(lake) == before:
            with translated(folder):
                disk_full()

    with lake_with(clock, lake.path, store=FaultyStore("log.swap", full_while_nothing_went, times=None)) as broken:
        done = broken.table("a.t").vacuum(1, dry_run=False)

    assert (done.files, done.bytes_freed, done.orphans) == (foreseen.files, foreseen.bytes_freed, 1)
    assert not stray.exists()
    assert ids(lake) == read
    assert lake.table("a.t").vacuum(1).files == 0


def test_one_with_nothing_that_may_go_says_that_it_is_full(lake: Lake, clock: Clock) -> None:
    clock.jump(1000)
    lake.table("a.t").vacuum(1, dry_run=False)
    stray = lake.path / "a" / "t" / "changes" / f"write-{'0' * 32}.parquet"
    shutil.copy(next((lake.path / "a" / "t").rglob("*.parquet")), stray)
    make_old(stray, 2000)

    def full() -> None:
        with translated(stray):
            disk_full()

    with (
        lake_with(clock, lake.path, store=FaultyStore("log.swap", full, times=None)) as broken,
        pytest.raises(Unavailable, match="no space left"),
    ):
        broken.table("a.t").vacuum(1, dry_run=False)
    assert stray.exists()


# -- what goes and what stays


def test_a_dry_run_is_the_default_and_changes_nothing(lake: Lake, clock: Clock) -> None:
    clock.jump(hours=200)
    with nothing_changes(lake):
        foreseen = lake.table("a.t").vacuum()

    done = lake.table("a.t").vacuum(dry_run=False)

    assert foreseen.dry_run
    assert not done.dry_run
    assert done.files == 3
    assert _facts(done) == _facts(foreseen)


def _facts(report: VacuumReport) -> dict[str, object]:
    return {name: value for name, value in vars(report).items() if name not in ("dry_run", "seconds")}


def test_only_live_files_are_left_after_the_retention(lake: Lake, clock: Clock) -> None:
    before = data_files(lake)
    gone = before - live_files(lake)
    freed = sum(size for size in _sizes_by_inode(lake, gone).values())
    clock.jump(hours=200)

    report = lake.table("a.t").vacuum(dry_run=False)

    assert data_files(lake) == live_files(lake)
    assert set(report.paths) == gone
    assert (report.files, report.bytes_freed) == (len(gone), freed)
    assert (report.orphans, report.kept_by_jobs, report.kept_by_pins) == (0, 0, 0)
    assert ids(lake) == [2, 3, 4]
    assert lake.table("a.t").get(2) == {"id": 2, "v": "y"}
    assert [p.name for p in (lake.path / "a" / "t" / "base").iterdir() if not any(p.iterdir())] == []


def test_a_commit_from_the_future_stops_nothing(lake: Lake, clock: Clock) -> None:
    """Of a machine whose clock was wrong for once."""
    for log in ("changes", "base"):
        commit = lake.path / "a" / "t" / log / "_delta_log" / f"{1:020d}.json"
        text = commit.read_text()
        commit.write_text(re.sub(r'"timestamp":\d+', '"timestamp":9999999999999', text))
        assert commit.read_text() != text
    gone = data_files(lake) - live_files(lake)
    clock.jump(hours=200)
    assert set(lake.table("a.t").vacuum(dry_run=False).paths) == gone


def _sizes_by_inode(lake: Lake, paths: set[str]) -> dict[int, int]:
    folder = lake.path / "a" / "t"
    return {(folder / path).stat().st_ino: (folder / path).stat().st_size for path in paths}


def test_what_vacuum_removed_can_no_longer_be_read_and_says_so(lake: Lake, clock: Clock) -> None:
    assert ids(lake, as_of=1) == [1, 2, 3]
    clock.jump(hours=200)
    lake.table("a.t").vacuum(dry_run=False)

    with pytest.raises(NotFound, match=r"as of 1 can no longer be read: vacuum has removed .*choose a newer seq"):
        lake.table("a.t").to_arrow(as_of=1)
    with pytest.raises(NotFound, match=r"no longer complete: vacuum has removed .*start again from a full read"):
        lake.table("a.t").changes(since=0)
    assert ids(lake, as_of=2) == [1, 2, 3]
    assert ids(lake, as_of=3) == [1, 2, 3, 4]
    assert lake.table("a.t").changes(since=2).column("_seq").to_pylist() == [3, 4]


def test_an_ordered_table_says_so_too(folder: Path, clock: Clock) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64())])
    with lake_with(clock, folder / "lake") as lake:
        table = lake.create_table("a.t", schema, key="id", order_by="at")
        for at in (1, 2, 3):
            table.upsert([{"id": 1, "at": at}])
            if at != 2:
                table.fold()
        clock.jump(hours=2)
        table.vacuum(1, dry_run=False)

        with pytest.raises(NotFound, match="vacuum has removed"):
            table.to_arrow(as_of=2)
        assert table.to_arrow().to_pylist() == [{"id": 1, "at": 3}]


def test_files_stay_for_the_retention(lake: Lake, clock: Clock) -> None:
    before = data_files(lake)
    clock.jump(hours=167)

    report = lake.table("a.t").vacuum(dry_run=False)

    assert (report.files, data_files(lake)) == (0, before)
    assert ids(lake, as_of=1) == [1, 2, 3]
    assert lake.table("a.t").history()[0].operation == "delete", "nothing to delete needs no commit"


def test_an_old_file_that_was_removed_lately_stays(lake: Lake) -> None:
    before = data_files(lake)
    for path in before:
        make_old(lake.path / "a" / "t" / path)
    assert lake.table("a.t").vacuum(1, dry_run=False).files == 0
    assert ids(lake, as_of=1) == [1, 2, 3]
    assert data_files(lake) == before


def test_what_is_live_when_a_vacuum_begins_stays_whatever_its_clock_says(lake: Lake) -> None:
    """The fold's clock is far behind that of the vacuum, so its removals look old at once."""
    gate, later = Gate(), Clock(200 * HOUR_MS)
    live = live_files(lake)
    with (
        ThreadPoolExecutor(1) as pool,
        lake_with(later, lake.path, store=FaultyStore("vacuum.listed", gate.hold)) as other,
    ):
        vacuuming = pool.submit(lambda: other.table("a.t").vacuum(dry_run=False))
        gate.wait()
        lake.table("a.t").fold()
        gate.open()
        vacuuming.result(60)
    assert live <= data_files(lake)


def test_a_version_whose_changes_were_merged_stays_readable(folder: Path, clock: Clock) -> None:
    with lake_with(clock, folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for number in range(3):
            table.upsert(rows(number))
        snapshot = table.snapshot()
        ChangeMerger(table._internals.handles, table._internals.reader).run(
            MinorPlan("a.t", snapshot.changes, "", "", 0)
        )
        del snapshot
        clock.jump(hours=2)

        assert table.vacuum(1, dry_run=False).files == 3
        assert ids(lake) == ids(lake, as_of=3) == [0, 1, 2]
        with pytest.raises(NotFound, match="vacuum has removed"):
            ids(lake, as_of=2)


def test_a_removal_that_has_left_the_log_is_long_past(folder: Path, clock: Clock) -> None:
    with lake_with(clock, folder / "lake", Settings(checkpoint_every=2)) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for number in range(6):
            table.upsert(rows(number % 3, v=str(number)))
            table.fold()
        clock.jump(hours=200)
        for log in (table._internals.handles.changes.log, table._internals.handles.base.log):
            log.refresh()
            log.trim(clock.now_ms(), 1, 1)
        assert table._internals.handles.changes.log.versions()[0] > 0

        report = table.vacuum(dry_run=False)

        assert (report.files > 0, report.orphans) == (True, 0)
        assert data_files(lake) == live_files(lake)
        assert ids(lake) == [0, 1, 2]


def test_vacuum_stands_in_the_history(lake: Lake, clock: Clock) -> None:
    clock.jump(hours=200)
    lake.table("a.t").vacuum(dry_run=False)
    assert lake.table("a.t").history()[0].operation == "vacuum"


@pytest.mark.parametrize("hours", [0, 0.99, -1, float("nan"), float("inf"), True, "168", None])
def test_a_retention_below_an_hour_is_refused(lake: Lake, clock: Clock, hours: Any) -> None:
    clock.jump(hours=200)
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="retain_hours"):
        lake.table("a.t").vacuum(hours, dry_run=False)


def test_a_second_vacuum_finds_nothing(lake: Lake, clock: Clock) -> None:
    clock.jump(hours=200)
    lake.table("a.t").vacuum(dry_run=False)
    assert lake.table("a.t").vacuum(dry_run=False).files == 0


def test_a_clock_a_day_behind_deletes_nothing(lake: Lake, clock: Clock) -> None:
    before = data_files(lake)
    clock.jump(hours=-DAY_H)
    assert lake.table("a.t").vacuum(1, dry_run=False).files == 0
    assert data_files(lake) == before


def test_a_clock_a_day_ahead_costs_the_past_but_no_row(lake: Lake, clock: Clock) -> None:
    clock.jump(hours=DAY_H)
    assert lake.table("a.t").vacuum(1, dry_run=False).files == 3
    clock.jump(hours=-DAY_H)
    assert ids(lake) == [2, 3, 4]
    lake.table("a.t").fold()
    assert ids(lake) == [2, 3, 4]


# -- bytes with two names


def test_a_linked_file_frees_its_bytes_with_its_last_name(folder: Path, clock: Clock) -> None:
    with lake_with(clock, folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert(rows(1, 2))
        assert table.fold().files_linked == 1
        clock.jump(hours=2)
        size = table.stats().base_bytes

        for dry_run in (True, False):
            linked = table.vacuum(1, dry_run=dry_run)
            assert (linked.files, linked.bytes_freed) == (1, 0)

        table.upsert(rows(1, v="new"))
        table.fold()
        clock.jump(hours=2)
        change = sum(p.stat().st_size for p in (lake.path / "a" / "t" / "changes").glob("write-*.parquet"))
        for dry_run in (True, False):
            last = table.vacuum(1, dry_run=dry_run)
            assert (last.files, last.bytes_freed) == (2, size + change)


def test_both_names_in_one_vacuum_count_once(folder: Path, clock: Clock) -> None:
    with lake_with(clock, folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert(rows(1, 2))
        table.fold()
        size = table.stats().base_bytes
        table.delete([1, 2])
        table.fold()
        clock.jump(hours=2)
        tombstone = next(p for p in data_files(lake) if p.startswith("changes/") and _links(lake, p) == 1)
        expected = size + (lake.path / "a" / "t" / tombstone).stat().st_size

        for dry_run in (True, False):
            report = table.vacuum(1, dry_run=dry_run)
            assert (report.files, report.bytes_freed) == (3, expected)
        assert data_files(lake) == set()


def _links(lake: Lake, path: str) -> int:
    return (lake.path / "a" / "t" / path).stat().st_nlink


# -- what no commit names


def test_what_a_dead_writer_left_goes_after_the_retention(lake: Lake, clock: Clock) -> None:
    changes, base = lake.path / "a" / "t" / "changes", lake.path / "a" / "t" / "base"
    left = [changes / f"write-{'a' * 32}.parquet", base / f"fold-{'b' * 32}" / "_day=2026-11-15" / "part-0.parquet"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    (base / f"hourly-{'c' * 32}").mkdir()

    assert lake.table("a.t").vacuum(1, dry_run=False).orphans == 0
    clock.jump(hours=2)
    foreseen = lake.table("a.t").vacuum(1)
    report = lake.table("a.t").vacuum(1, dry_run=False)

    assert (report.orphans, report.orphan_bytes) == (foreseen.orphans, foreseen.orphan_bytes) == (2, 10)
    assert not any(path.exists() for path in left)
    assert {p.name for p in base.iterdir()} == {"_delta_log", *{f.path.split("/")[0] for f in _base(lake)}}
    assert ids(lake) == [2, 3, 4]


def _base(lake: Lake) -> Any:
    return lake.table("a.t").snapshot().base


def test_names_that_lithify_does_not_give_out_are_left_alone(lake: Lake, clock: Clock) -> None:
    base = lake.path / "a" / "t" / "base"
    (base / "notes").mkdir()
    mine = [base / "README.txt", base / "part-0.parquet", base / "write-1.parquet", base / "notes" / "old.parquet"]
    for path in mine:
        path.write_bytes(b"mine")
    clock.jump(hours=200)
    lake.table("a.t").vacuum(dry_run=False)
    assert all(path.exists() for path in mine)


def test_links_are_neither_followed_nor_deleted(lake: Lake, clock: Clock, folder: Path) -> None:
    base = lake.path / "a" / "t" / "base"
    outside = folder / "outside"
    outside.mkdir()
    (outside / "precious.parquet").write_bytes(b"precious")
    (base / f"fold-{'d' * 32}").symlink_to(outside)
    (base / f"fold-{'e' * 32}").mkdir()
    (base / f"fold-{'e' * 32}" / "part.parquet").symlink_to(outside / "precious.parquet")
    (base / f"fold-{'e' * 32}" / "inner").symlink_to(outside)
    clock.jump(hours=200)

    lake.table("a.t").vacuum(dry_run=False)

    assert (outside / "precious.parquet").read_bytes() == b"precious"
    assert (base / f"fold-{'d' * 32}").is_symlink()
    assert (base / f"fold-{'e' * 32}" / "part.parquet").is_symlink()
    assert ids(lake) == [2, 3, 4]


# -- jobs


@pytest.mark.parametrize("suffix", ["json", "unreadable"])
def test_the_folder_of_a_job_stays_even_if_its_manifest_cannot_be_read(lake: Lake, clock: Clock, suffix: str) -> None:
    job_id = "f" * 32
    output = lake.path / "a" / "t" / "base" / f"daily-{job_id}" / "part-0.parquet"
    output.parent.mkdir()
    output.write_bytes(b"half a file")
    empty = lake.path / "a" / "t" / "base" / f"daily-{job_id}" / "_scratch"
    empty.mkdir()
    (lake.path / "_lithify" / "jobs" / f"{job_id}.{suffix}").write_text("{")
    clock.jump(hours=200)

    report = lake.table("a.t").vacuum(dry_run=False)

    assert report.kept_by_jobs == 1
    assert output.exists()
    assert empty.exists()
    assert ids(lake) == [2, 3, 4]


@pytest.mark.parametrize("at", ["fold.manifest", "fold.staged", "fold.written", "fold.commit", "fold.committed"])
def test_a_fold_under_way_keeps_its_files(lake: Lake, clock: Clock, at: str) -> None:
    gate = Gate()
    with ThreadPoolExecutor(1) as pool, Lake(lake.path, store=FaultyStore(at, gate.hold)) as other:
        folding = pool.submit(lambda: other.table("a.t").fold())
        gate.wait()
        for path in (lake.path / "a" / "t").rglob("*.parquet"):
            make_old(path)
        clock.jump(hours=200)
        lake.table("a.t").vacuum(1, dry_run=False)
        gate.open()
        folding.result(60)

    assert ids(lake) == [2, 3, 4]
    assert lake.table("a.t").stats().pending_files == 0


@pytest.mark.parametrize("at", ["vacuum.listed", "vacuum.epoch", "vacuum.delete"])
@pytest.mark.parametrize("action", ["fold", "upsert", "delete"])
def test_what_happens_during_a_vacuum_is_safe(folder: Path, lake: Lake, clock: Clock, at: str, action: str) -> None:
    gate = Gate()
    later = Clock(200 * HOUR_MS)
    doing: dict[str, Callable[[], Any]] = {
        "fold": lambda: lake.table("a.t").fold(),
        "upsert": lambda: lake.table("a.t").upsert(rows(5, 6)),
        "delete": lambda: lake.table("a.t").delete([2]),
    }
    with ThreadPoolExecutor(1) as pool, lake_with(later, lake.path, store=FaultyStore(at, gate.hold)) as other:
        vacuuming = pool.submit(lambda: other.table("a.t").vacuum(dry_run=False))
        gate.wait()
        doing[action]()
        expected = lake.table("a.t").to_arrow().sort_by("id").to_pylist()
        seq = lake.table("a.t").snapshot().seq
        gate.open()
        assert vacuuming.result(60).files == 3

    assert lake.table("a.t").to_arrow().sort_by("id").to_pylist() == expected
    assert lake.table("a.t").to_arrow(as_of=seq).sort_by("id").to_pylist() == expected
    with Lake(lake.path) as fresh:
        assert fresh.table("a.t").to_arrow().sort_by("id").to_pylist() == expected


# -- writers


@pytest.mark.parametrize("at", ["write.files", "write.commit"])
def test_a_writer_that_slept_through_a_vacuum_writes_its_file_again(lake: Lake, clock: Clock, at: str) -> None:
    gate = Gate()
    known = data_files(lake)
    with ThreadPoolExecutor(1) as pool, Lake(lake.path, store=FaultyStore(at, gate.hold)) as other:
        writing = pool.submit(lambda: other.table("a.t").upsert(rows(7, 8)))
        gate.wait()
        (staged,) = data_files(lake) - known
        make_old(lake.path / "a" / "t" / staged)
        clock.jump(hours=2)
        report = lake.table("a.t").vacuum(1, dry_run=False)
        assert (report.orphans, staged in report.paths) == (1, True)
        gate.open()
        commit = writing.result(60)

    assert commit.seq == 5
    assert ids(lake) == [2, 3, 4, 7, 8]
    assert staged not in data_files(lake)
    lake.table("a.t").fold()
    assert ids(lake) == [2, 3, 4, 7, 8]


def test_a_writer_that_commits_between_the_listing_and_the_epoch_keeps_its_file(lake: Lake, clock: Clock) -> None:
    """The listing took its file for an orphan."""
    writer, vacuum = Gate(), Gate()
    known = data_files(lake)
    later = Clock(2 * HOUR_MS)
    with (
        ThreadPoolExecutor(2) as pool,
        Lake(lake.path, store=FaultyStore("write.files", writer.hold)) as writing_lake,
        lake_with(later, lake.path, store=FaultyStore("vacuum.listed", vacuum.hold)) as vacuuming_lake,
    ):
        writing = pool.submit(lambda: writing_lake.table("a.t").upsert(rows(7, 8)))
        writer.wait()
        (staged,) = data_files(lake) - known
        make_old(lake.path / "a" / "t" / staged)
        vacuuming = pool.submit(lambda: vacuuming_lake.table("a.t").vacuum(1, dry_run=False))
        vacuum.wait()
        writer.open()
        writing.result(60)
        vacuum.open()
        report = vacuuming.result(60)

    assert staged not in report.paths
    assert staged in data_files(lake)
    assert ids(lake) == [2, 3, 4, 7, 8]


# -- an adopted base


def test_an_adopted_base_loses_only_what_our_commits_removed(folder: Path, clock: Clock) -> None:
    adopted = folder / "theirs"
    for number in range(2):
        batch = pa.table({"id": [2 * number, 2 * number + 1], "v": ["x", "x"]}, SCHEMA)
        write_deltalake(str(adopted), batch, mode="append")
    with lake_with(clock, folder / "lake") as lake:
        table = lake.adopt("a.t", adopted, key="id")
        (adopted / "staged-by-another-writer.parquet").write_bytes(b"in flight")
        live = {path.removeprefix("file://") for path in DeltaTable(str(adopted)).file_uris()}
        ours = next(p for p in live if pq.read_table(p, columns=["id"]).column("id")[0].as_py() == 0)
        table.upsert(rows(0, v="ours"))
        table.fold()
        (theirs,) = live - {ours}
        DeltaTable(str(adopted)).delete("id >= 2")
        clock.jump(hours=200)

        report = table.vacuum(dry_run=False)

        assert not Path(ours).exists()
        assert Path(theirs).exists(), "what another writer removed is for that writer to clean up"
        assert (adopted / "staged-by-another-writer.parquet").exists()
        assert report.files == 2, "their file that our fold replaced, and the change"
        assert table.to_arrow().sort_by("id").to_pylist() == [{"id": 0, "v": "ours"}, {"id": 1, "v": "x"}]
        assert DeltaTable(str(adopted)).to_pyarrow_table().num_rows == 2


def test_linked_parquet_files_stay_where_they_were(folder: Path, clock: Clock) -> None:
    source = folder / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "v": ["x", "x"]}, SCHEMA), source / "one.parquet")
    with lake_with(clock, folder / "lake") as lake:
        table = lake.adopt("a.t", source, key="id")
        table.upsert(rows(1, v="new"))
        table.fold()
        clock.jump(hours=200)
        report = table.vacuum(dry_run=False)
        assert report.files == 2
        assert (source / "one.parquet").exists()
        assert table.to_arrow().num_rows == 2


# -- trouble


@pytest.mark.parametrize("point", ["vacuum.epoch", "vacuum.delete"])
def test_a_kill_by_a_real_signal_leaves_a_table_that_works(folder: Path, point: str) -> None:
    path = folder / "lake"
    vacuums.prepare(path)
    expected = vacuums.run(str(copied(path, folder / "rehearsal")))
    child = children.start(vacuums.run_until_killed, str(path), point, 1, scratch=folder)
    assert children.finish(child) == -signal.SIGKILL, f"never came to {point}"
    assert_the_next_vacuum_ends_it(path, expected, f"killed at {point}")


def test_a_kill_at_every_step_leaves_a_table_that_works(folder: Path) -> None:
    path = folder / "child" / "lake"
    path.parent.mkdir()
    vacuums.prepare(path)
    expected = vacuums.run(str(copied(path, folder / "rehearsal")))
    left = moments(vacuums.run_with, str(path), folder=folder / "child", copies=folder / "left")
    assert sum(moment.points.count("store.delete") for moment in left) > 5
    for moment in thinned(left, Moment.classes):
        assert_the_next_vacuum_ends_it(moment.path / "lake", expected, str(moment))
        shutil.rmtree(moment.path)


def assert_the_next_vacuum_ends_it(path: Path, expected: Counter[Any], what: str) -> None:
    assert vacuums.state_of(path) == expected, what
    assert vacuums.run(str(path)) == expected, f"{what}, then finished"
    assert vacuums.leftovers(path) == [], f"{what}, then finished"


def test_a_delete_that_fails_is_named_and_the_next_vacuum_goes_on(lake: Lake) -> None:
    later = Clock(200 * HOUR_MS)
    with (
        lake_with(later, lake.path, store=FaultyStore("store.delete", no_permission, nth=2)) as other,
        pytest.raises(Unavailable, match=r"no permission for .*parquet"),
    ):
        other.table("a.t").vacuum(dry_run=False)
    assert ids(lake) == [2, 3, 4]

    with lake_with(later, lake.path) as other:
        assert other.table("a.t").vacuum(dry_run=False).files == 2
    assert data_files(lake) == live_files(lake)


def test_a_table_that_was_dropped_meanwhile_is_not_vacuumed(lake: Lake) -> None:
    gate, later = Gate(), Clock(200 * HOUR_MS)
    with (
        ThreadPoolExecutor(1) as pool,
        lake_with(later, lake.path, store=FaultyStore("vacuum.listed", gate.hold)) as other,
    ):
        vacuuming = pool.submit(lambda: other.table("a.t").vacuum(dry_run=False))
        gate.wait()
        lake.drop_table("a.t")
        lake.create_table("a.t", SCHEMA, key="id").upsert(rows(1))
        gate.open()
        with pytest.raises(NotFound, match="was dropped"):
            vacuuming.result(60)
    assert ids(lake) == [1]


# -- programs


@pytest.mark.timeout(1200)
@settings(max_examples=examples(15, soak=400), deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_version_since_the_cutoff_reads_as_before(data: st.DataObject) -> None:
    """Writes, deletes, folds and new columns, vacuums in between that look back to any moment of the program."""
    name = data.draw(st.sampled_from(TABLES))
    with memory_folder() as folder:
        driver = Driver(
            folder / "lake", lambda table, where, as_of: table.to_arrow(where=where, as_of=as_of).to_pylist(), [name]
        )
        oracle = driver.oracles[name]
        moments = [(next_ms(), oracle.seq)]
        oldest = oracle.seq
        try:
            for method, _, lake, *arguments in data.draw(programs(length=14, names=(name,))):
                getattr(driver, method)(name, lake, *arguments)
                moments.append((next_ms(), oracle.seq))
                if data.draw(st.sampled_from([False, False, True])):
                    cutoff_ms, seq = data.draw(st.sampled_from(moments))
                    oldest = max(oldest, seq)
                    for number in range(2):
                        driver.reopen(number)
                    with lake_with(Stopped(at_ms=cutoff_ms + HOUR_MS), folder / "lake") as vacuuming:
                        vacuuming.table(name).vacuum(1, dry_run=False)
            for seq in range(oldest, oracle.seq + 1):
                driver.check_as_of(name, 0, oracle.seq - seq)
            for seq in range(oldest):
                assert_right_or_gone(driver, name, oracle.seq - seq)
            driver.check_changes(name, 1, oracle.seq - oldest)
            driver.fold(name, 1)
            driver.check(name, 0)
        finally:
            driver.close()


def assert_right_or_gone(driver: Driver, name: str, back: int) -> None:
    with contextlib.suppress(NotFound):
        driver.check_as_of(name, 0, back)
