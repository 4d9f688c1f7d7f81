"""Old commits move out of the log, and whatever reads the past finds them; nothing is lost or taken for another."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify import Lake, NotFound, Table
from lithify.delta import open_log
from lithify.delta.actions import LogChange
from lithify.delta.archive import LogLimits
from lithify.delta.commit_outcome import Intent, Lost
from lithify.delta.folder import Listing
from lithify.delta.log import DeltaLog
from lithify.files.local import LocalStorage
from support import archives, children
from support.archives import LIMITS, SCHEMA, SETTINGS, build, log_of, opened, trim
from support.clocks import Clock, lake_with
from support.effort import SOAK, thinned
from support.faults import FaultyStore, Gate, RecordingStore
from support.folders import contents, copied, memory_folder, repeat
from support.leftovers import unsettled
from support.moments import Moment, moments
from support.powercut import Disk

pytestmark = pytest.mark.slow

WRITES = 23
# The first, the last, and on both sides of where a checkpoint of the log or the archive stands.
SOME = (0, 1, 2, 7, 8, 14, 19, 20, 22, WRITES)
HOUR_MS = 3_600_000


def live(path: Path) -> Listing:
    return Listing.of(path / "a" / "t" / "changes" / "_delta_log", LocalStorage())


def archive(path: Path) -> Listing:
    return Listing.of(path / "a" / "t" / "changes" / "_log_archive", LocalStorage())


def ids(table: Table, as_of: int | None = None) -> list[int]:
    return sorted(table.to_arrow(as_of=as_of).column("id").to_pylist())


def assert_whole(table: Table, seqs: int, oldest: int = 0, asked: Iterable[int] | None = None) -> None:
    """Every seq from `oldest` on can be read (or those that are `asked` for), and nothing is missing in between."""
    assert ids(table) == list(range(1, seqs + 1))
    for seq in range(oldest, seqs + 1) if asked is None else asked:
        assert ids(table, as_of=seq) == list(range(1, seq + 1))
    since = max(oldest - 1, 0)
    assert table.changes(since=since).column("id").to_pylist() == list(range(since + 1, seqs + 1))
    assert list(log_of(table).versions()) == list(range(oldest, log_of(table).version + 1))


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Path]]:
    """The table as written, then archived, and the first one after others wrote on; each test gets a copy."""
    with memory_folder() as folder:
        build(folder / "written", WRITES)
        assert trim(copied(folder / "written", folder / "archived")).archived == 20
        write_here(copied(folder / "written", folder / "later"))
        yield {name: folder / name for name in ("written", "archived", "later")}


@pytest.fixture
def path(made: dict[str, Path], folder: Path) -> Path:
    return copied(made["written"], folder / "lake")


@pytest.fixture
def archived(made: dict[str, Path], folder: Path) -> Path:
    """Versions 0 to 19 are in the archive, 20 to 23 in the log."""
    return copied(made["archived"], folder / "lake")


def write_here(path: Path) -> None:
    """Write on, until all that was there before is in the archive."""
    with opened(path) as table:
        for number in range(100, 120):
            table.upsert([{"id": number}], missing="null")
        log_of(table).trim_if_due()
    assert live(path).commits[0] > WRITES + 1


@pytest.fixture
def write_on(made: dict[str, Path]) -> Callable[[Path], None]:
    """Others do the same to a table as it was written."""
    return lambda path: repeat(made["written"], made["later"], path)


# -- what moves


def test_old_commits_move_and_the_log_begins_with_a_checkpoint_that_is_not_the_newest(archived: Path) -> None:
    assert live(archived).commits == (20, 21, 22, 23)
    assert live(archived).checkpoints == (20, 22)
    assert archive(archived).commits == tuple(range(20))
    assert archive(archived).checkpoints == (2, 8, 14)


def test_a_short_log_stays_where_it_is(folder: Path) -> None:
    build(folder / "lake", LIMITS.live_commits_max or 0)
    with opened(folder / "lake", limits=replace(LIMITS, live_commits_max=9)) as table:
        assert log_of(table).trim_if_due().archived == 0
    assert not (folder / "lake" / "a" / "t" / "changes" / "_log_archive").exists()


def test_work_is_bounded_and_taken_up_again(path: Path) -> None:
    with opened(path) as table:
        moved = [log_of(table).trim_if_due(files_max=7).archived for _ in range(6)]
        assert moved[0] in range(4, 8)
        assert sum(moved) == 20
        assert_whole(table, WRITES, asked=SOME)
    assert live(path).commits[0] == 20


def test_base_keeps_its_log(folder: Path) -> None:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        assert table._internals.handles.base.log.limits().live_commits_max is None
        assert table._internals.handles.changes.log.limits().live_commits_max is not None


def test_writing_alone_keeps_the_log_short(folder: Path) -> None:
    build(folder / "lake", 1)
    with opened(folder / "lake", limits=replace(LIMITS, commits_max=1_000)) as table:
        for number in range(2, 80):
            table.upsert([{"id": number}], missing="null")
            assert len(live(folder / "lake").commits) <= 8 + 2 * 16
        assert_whole(table, 79, asked=range(0, 80, 6))


def test_other_readers_of_the_changes_see_the_head(archived: Path) -> None:
    assert DeltaTable(archived / "a" / "t" / "changes").version() == WRITES


# -- what is read


def test_everything_is_read_as_before(archived: Path) -> None:
    with opened(archived) as table:
        assert_whole(table, WRITES)
        assert [entry.seq for entry in table.history()] == list(range(WRITES, -1, -1))
        assert table.history(limit=3)[0].seq == WRITES
        assert table.upsert([{"id": WRITES + 1}], missing="null").seq == WRITES + 1
        table.fold()
        assert ids(table, as_of=3) == [1, 2, 3]
        assert table.snapshot(as_of=table.history()[-3].time).seq >= 2


def test_a_handle_on_an_archived_version_says_all_that_a_version_says(path: Path) -> None:
    with opened(path) as table:
        before = log_of(table).at(11)
        expected = [f.path for f in before.files(["id"])], before.txn("lithify.seq"), before.properties, before.id
        log_of(table).trim_if_due()
        after = log_of(table).at(11)
        assert ([f.path for f in after.files(["id"])], after.txn("lithify.seq"), after.properties, after.id) == expected
        assert after.columns() == before.columns()
        assert (after.version, after.txn("nobody's"), after.path) == (11, None, before.path)
        with pytest.raises(NotFound, match=r"version 99 of .* is no longer in its log"):
            log_of(table).at(99)


@pytest.mark.parametrize("links", [True, False])
def test_reading_the_past_leaves_nothing_behind(
    archived: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    (folder / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    files = sorted(archived.rglob("*"))
    with opened(archived) as table:
        assert ids(table, as_of=12) == list(range(1, 13))
    assert list((folder / "temporary").iterdir()) == []
    assert [file for file in sorted(archived.rglob("*")) if file.name != ".lithify-recovery"] == [
        file for file in files if file.name != ".lithify-recovery"
    ]


def test_a_file_system_without_links_is_archived_by_renaming(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert trim(path).archived == 20
    with opened(path) as table:
        assert_whole(table, WRITES, asked=SOME)


def test_vacuum_reads_the_archive_and_leaves_it_alone(path: Path) -> None:
    with opened(path) as table:
        table.fold()
        log_of(table).trim_if_due()
    before = archive(path).names
    with lake_with(Clock(200 * HOUR_MS), path, SETTINGS) as lake:
        report = lake.table("a.t").vacuum(dry_run=False)
        assert (report.files, report.orphans) == (WRITES, 0), "every change was folded, and named by a commit"
        assert ids(lake.table("a.t")) == list(range(1, WRITES + 1))
    assert archive(path).names == before
    assert unsettled(path) == []


# -- what goes


def expire(path: Path, limits: LogLimits, hours: float) -> None:
    with opened(path, limits=limits) as table:
        log_of(table).now_ms = lambda: int(time.time() * 1000 + hours * HOUR_MS)
        log_of(table).trim_if_due()


@pytest.mark.parametrize(
    ("commits_max", "hours", "oldest"), [(10, 0.5, 0), (10, 2, 8), (24, 23, 0), (1_000, 25, 20), (8, 2, 14), (3, 2, 20)]
)
def test_the_archive_goes_by_the_rules_of_the_log(archived: Path, commits_max: int, hours: float, oldest: int) -> None:
    expire(archived, replace(LIMITS, commits_max=commits_max), hours)
    with opened(archived) as table:
        assert log_of(table).versions()[0] == oldest
        assert_whole(table, WRITES, oldest, {oldest, *(seq for seq in SOME if seq >= oldest)})
        if oldest:
            assert oldest in {*archive(archived).checkpoints, *live(archived).checkpoints}
            with pytest.raises(NotFound, match="choose a newer one"):
                ids(table, as_of=oldest - 1)
    assert (archive(archived).commits == ()) == (oldest >= 20)


def test_a_checkpoint_that_cannot_be_read_is_nothing_to_begin_with(archived: Path) -> None:
    (archived / "a" / "t" / "changes" / "_log_archive" / f"{8:020d}.checkpoint.parquet").write_bytes(b"torn")
    expire(archived, replace(LIMITS, commits_max=10), 2)
    with opened(archived) as table:
        assert log_of(table).versions()[0] == 2
        assert_whole(table, WRITES, 2, SOME[2:])


# -- handles that were asleep


LATER = [*range(1, WRITES + 1), *range(100, 120)]


def put(path: Path, version: int, write_id: str) -> None:
    """What deltalake does last: create the commit's file, if there is none."""
    content = {"commitInfo": {"timestamp": 1, "lithify": {"operation": "late", "write_id": write_id}}}
    with (path / "a" / "t" / "changes" / "_delta_log" / f"{version:020d}.json").open("x") as file:
        file.write(json.dumps(content))


@pytest.mark.parametrize("write", ["upsert", "set_options", "add_column"])
def test_a_writer_that_slept_while_its_version_was_archived_lands_at_the_head(
    path: Path, write: str, write_on: Callable[[Path], None]
) -> None:
    writes: dict[str, Callable[[Table], object]] = {
        "upsert": lambda table: table.upsert([{"id": 200}], missing="null"),
        "set_options": lambda table: table.set_options({"compression_level": 9}),
        "add_column": lambda table: table.add_column(pa.field("w", pa.int64())),
    }
    gate, failed = Gate(), []
    # add_column commits to base first: what sleeps is its commit to changes.
    sleeper = FaultyStore("log.swap", gate.hold, nth=2 if write == "add_column" else 1)
    with opened(path, sleeper) as table:

        def run() -> None:
            try:
                writes[write](table)
            except Exception as error:
                failed.append(error)

        writing = threading.Thread(target=run)
        writing.start()
        gate.wait()
        # Of a column in the making its base knows already.
        (write_here if write == "add_column" else write_on)(path)
        first = live(path).commits[0]
        gate.open()
        writing.join()
        assert failed == []
        assert live(path).commits[0] == first, "its commit in the past was taken back"
        assert ids(table) == [*LATER, 200] if write == "upsert" else LATER
    with opened(path) as table:
        assert len(ids(table)) == len(LATER) + (write == "upsert")
        assert ("w" in table.schema.names) == (write == "add_column")
        assert list(log_of(table).versions()) == list(range(log_of(table).version + 1))
        assert not [r for r in log_of(table).commit_records() if r.info.get("operation") == "late"]


def test_a_commit_put_where_one_was_archived_is_taken_back_and_counts_as_lost(
    path: Path, write_on: Callable[[Path], None]
) -> None:
    with opened(path) as table:
        late = log_of(table)
        late.refresh()
        write_on(path)
        with pytest.raises(Lost):
            late._swap(Intent("mine"), lambda: put(path, WRITES + 1, "mine"))
        assert WRITES + 1 not in live(path).commits
        assert late.commit_record(WRITES + 1).info["seq"] == WRITES + 1
        assert late.txn("lithify.seq") == len(LATER)


def test_a_commit_that_stands_where_one_was_archived_is_never_read_and_goes_after_an_hour(
    path: Path, write_on: Callable[[Path], None]
) -> None:
    write_on(path)
    for version in (5, live(path).commits[0] - 1):
        put(path, version, "late")
    with opened(path, limits=replace(LIMITS, commits_max=1_000)) as table:
        log = log_of(table)
        assert ids(table) == LATER
        assert not [r for r in log.commit_records() if r.info.get("operation") == "late"]
        for number in range(120, 132):
            table.upsert([{"id": number}], missing="null")
        log.trim_if_due()
        assert 5 in live(path).commits
        log.now_ms = lambda: int(time.time() * 1000) + 2 * HOUR_MS
        for number in range(132, 144):
            table.upsert([{"id": number}], missing="null")
        log.trim_if_due()
        assert live(path).commits[0] == live(path).checkpoints[0]
        assert ids(table) == [*LATER, *range(120, 144)]
        assert list(log.versions()) == list(range(log.version + 1))


@pytest.mark.parametrize("answer", ["lost", "late"])
def test_a_writer_finds_its_own_commit_in_the_archive(path: Path, answer: str) -> None:
    """It slept after its commit, not before."""
    log = DeltaLog.open(path / "a" / "t" / "changes", LocalStorage())

    def land() -> None:
        with opened(path) as table:
            other = log_of(table)
            other.try_commit(LogChange({"seq": WRITES}), Intent("mine"))
        write_here(path)
        if answer == "lost":
            raise DeltaError("no answer")

    assert log._swap(Intent("mine"), land) == WRITES + 1
    assert log.version > WRITES + 1
    assert log.commit_record(WRITES + 1).info["write_id"] == "mine"


def test_an_idle_handle_finds_the_head_again(path: Path, write_on: Callable[[Path], None]) -> None:
    with opened(path) as idle, opened(path) as writer:
        assert len(ids(idle)) == WRITES
        write_on(path)
        assert ids(idle) == LATER
        assert writer.upsert([{"id": 200}], missing="null").seq == len(LATER) + 1


def test_what_a_handle_asks_of_its_version_late_is_read_from_the_archive(
    path: Path, write_on: Callable[[Path], None]
) -> None:
    log = DeltaLog.open(path / "a" / "t" / "changes", LocalStorage())
    pinned = log.at(12)
    write_on(path)
    assert log.txn("lithify.seq") == WRITES
    assert pinned.txn("lithify.seq") == 12
    assert len(pinned.files(())) == 12
    log.make_durable()


def test_an_open_that_lists_a_file_before_it_moves_tries_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def asleep_after_listing(folder: str, version: int | None = None) -> DeltaTable:
        nonlocal tries
        tries += 1
        if tries > 2:
            return DeltaTable(folder, version=version)
        if tries == 2:
            patched.undo()
            trim(path)
            patched.setattr(open_log, "DeltaTable", asleep_after_listing)
        raise DeltaError("File not found: 00000000000000000018.json")

    with monkeypatch.context() as patched:
        patched.setattr(open_log, "DeltaTable", asleep_after_listing)
        assert open_log.open_table(path / "a" / "t" / "changes", LocalStorage()).version() == WRITES
    assert tries == 3
    assert "_last_checkpoint" in live(path).names, "not taken for a damaged log"


# -- a name that is used again


def test_a_table_created_anew_has_no_part_of_the_dropped_ones_past(archived: Path) -> None:
    with opened(archived) as table:
        last = table.snapshot().seq
    with Lake(archived, settings=SETTINGS) as lake:
        lake.drop_table("a.t")
        assert archive(archived).names == ()
        with pytest.raises(NotFound):
            lake.drop_table("a.t")
        fresh = lake.create_table("a.t", SCHEMA, key="id")
        fresh.upsert([{"id": 500}], missing="null")
        assert fresh.changes(since=0).column("id").to_pylist() == [500]
        assert [entry.seq for entry in fresh.history()] == [last + 1, last]


def test_the_archive_of_a_drop_that_was_cut_off_is_not_the_new_tables(archived: Path) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    with Lake(archived, settings=SETTINGS, store=FaultyStore("drop.emptied", die)) as lake, pytest.raises(Died):
        lake.drop_table("a.t")
    with Lake(archived, settings=SETTINGS) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    assert archive(archived).commits == tuple(range(20))
    with opened(archived) as table:
        for number in range(1, 20):
            table.upsert([{"id": number}], missing="null")
        log_of(table).trim_if_due()
        first = table._internals.handles.changes.created_at_seq
        assert ids(table, as_of=first) == []
        assert ids(table, as_of=first + 1) == [1]
        assert table.changes(since=0).column("id").to_pylist() == list(range(1, 20))
        assert [entry.operation for entry in table.history()] == ["upsert"] * 19 + ["create table"]
        with pytest.raises(NotFound):
            ids(table, as_of=first - 1)
        assert table.vacuum(dry_run=False).orphans == 0


# -- after a power cut


def test_a_torn_checkpoint_or_commit_after_archiving_is_only_a_loss_of_time(archived: Path) -> None:
    folder = archived / "a" / "t" / "changes" / "_delta_log"
    (folder / f"{22:020d}.checkpoint.parquet").write_bytes(b"torn")
    (folder / f"{23:020d}.json").write_bytes(b"")
    with opened(archived) as table:
        assert_whole(table, WRITES - 1, asked=SOME[:-1])
        assert table.upsert([{"id": WRITES}], missing="null").seq == WRITES
        assert_whole(table, WRITES, asked=SOME)


def test_commits_that_came_back_into_the_log_move_again(archived: Path) -> None:
    folder = archived / "a" / "t" / "changes"
    for name in archive(archived).names:
        shutil.copy2(folder / "_log_archive" / name, folder / "_delta_log" / name)
    with opened(archived) as table:
        assert_whole(table, WRITES, asked=SOME)
        log_of(table).trim_if_due()
        assert_whole(table, WRITES, asked=SOME)
    assert live(archived).commits == (20, 21, 22, 23)
    assert archive(archived).commits == tuple(range(20))


def test_a_power_cut_while_archiving_loses_nothing(folder: Path) -> None:
    """Before each storage call the power goes: what was not fsynced is lost, or at every third torn at random."""
    (folder / "disk").mkdir()
    build(folder / "disk" / "lake", WRITES)
    cuts = 0
    known: set[Any] = set()  # many cuts leave the same

    class Cutting(LocalStorage):
        def step(self, name: str) -> None:
            nonlocal cuts
            for seed in (None, cuts) if SOAK or cuts % 3 == 0 else (None,):
                cuts += 1
                target = folder / "cut"
                left = disk.strict(target) if seed is None else disk.torn(target, seed)
                what = frozenset(contents(left).items())
                if what in known:
                    shutil.rmtree(target)
                    continue
                known.add(what)
                with opened(left / "lake") as table:
                    assert_readable(table)
                    log_of(table).trim_if_due()
                    assert_readable(table)
                # Removals that the cut took back leave single commits below the run: remains, which nobody reads.
                assert len(live(left / "lake").run()) <= 8
                shutil.rmtree(target)

    def assert_readable(table: Table) -> None:
        assert ids(table) == list(range(1, WRITES + 1))
        assert ids(table, as_of=9) == list(range(1, 10))
        assert table.changes(since=0).num_rows == WRITES

    with opened(folder / "disk" / "lake") as table, Disk(folder / "disk") as disk:
        log_of(table)._commits.store = Cutting()
        log_of(table).trim_if_due()
    assert cuts > 50


# -- killed, and all at once


def test_a_kill_at_some_storage_calls_of_archiving_loses_nothing(path: Path, folder: Path) -> None:
    with opened(copied(path, folder / "rehearsal")) as table:
        store = log_of(table)._commits.store = RecordingStore()
        log_of(table).trim_if_due()
    points = store.occurrences()
    assert len(points) > 40
    for number, (point, nth) in enumerate(points[::12]):
        left = copied(path, folder / "left")
        child = children.start(archives.trim_until_killed, str(left), point, nth, scratch=folder)
        assert children.finish(child) == -signal.SIGKILL, f"never came to {point} {nth}"
        assert_the_next_trim_ends_it(left, number, f"killed at {point} {nth}")
        shutil.rmtree(left)


def test_a_kill_at_any_storage_call_of_archiving_loses_nothing(made: dict[str, Path], folder: Path) -> None:
    path = copied(made["written"], folder / "child" / "lake")
    left = moments(archives.trim_with, str(path), folder=folder / "child", copies=folder / "left")
    assert sum(len(moment.points) for moment in left) > 40
    for number, moment in enumerate(thinned(left, Moment.classes)):
        assert_the_next_trim_ends_it(moment.path / "lake", number, str(moment))
        shutil.rmtree(moment.path)


def assert_the_next_trim_ends_it(path: Path, number: int, what: str) -> None:
    """Each time other versions are read: over all kills every one is, before and after the next trim."""
    with opened(path) as table:
        assert_whole(table, WRITES, asked=range(number % 5, WRITES + 1, 5))
        log_of(table).trim_if_due()
        assert table.upsert([{"id": WRITES + 1}], missing="null").seq == WRITES + 1, what
        assert_whole(table, WRITES + 1, asked=range((number + 2) % 5, WRITES + 2, 5))
    assert live(path).commits[0] == 20, f"the next trim finishes what was cut off: {what}"
    assert archive(path).commits == tuple(range(20)), what


def test_writing_reading_and_trimming_at_once(folder: Path) -> None:
    path = folder / "lake"
    build(path, 1)
    done = children.event()
    writer = children.start(archives.write_rows, str(path), 2, 80, done, scratch=folder)
    trimmer = children.start(archives.trim_until, str(path), done, scratch=folder)
    chance, looks = random.Random(7), 0
    with opened(path) as table:
        while not done.is_set() or looks < 5:
            looks += 1
            seq = table.snapshot().seq
            asked = chance.randint(0, seq)
            assert ids(table, as_of=asked) == list(range(1, asked + 1))
            found = table.changes(since=asked).column("id").to_pylist()
            assert found == list(range(asked + 1, asked + 1 + len(found)))
            assert len(found) >= seq - asked
            with opened(path) as anew:
                assert ids(anew)[:seq] == list(range(1, seq + 1))
            if writer.exitcode:
                break
        assert (children.finish(writer), children.finish(trimmer)) == (0, 0)
        for number in range(82, 86):
            table.upsert([{"id": number}], missing="null")
        trim(path)
        assert_whole(table, 85, asked=range(0, 86, 4))
    assert len(live(path).commits) <= 8


@pytest.mark.parametrize("seed", range(3))
def test_any_mixture_of_writes_and_trims_keeps_every_version(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = folder / "lake"
    build(path, 1)
    seqs = 1
    with opened(path) as table:
        log = log_of(table)
        for _ in range(12):
            low = chance.randint(2, 6)
            limits = LogLimits(chance.randint(2, 4), 24, chance.choice([8, 24, 1_000]), low, low + chance.randint(0, 5))
            log.limits = lambda limits=limits: limits  # type: ignore[misc]
            for _ in range(chance.randint(0, 7)):
                seqs += 1
                table.upsert([{"id": seqs}], missing="null")
            for _ in range(chance.randint(0, 2)):
                log.trim_if_due(chance.choice([None, 1, 3, 10]))
            assert list(log.versions()) == list(range(seqs + 1))
            assert [r.version for r in log.commit_records()] == list(range(seqs + 1))
            asked = chance.randint(0, seqs)
            assert ids(table, as_of=asked) == list(range(1, asked + 1))
        assert_whole(table, seqs, asked=range(0, seqs + 1, 3))
