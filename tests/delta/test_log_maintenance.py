"""Logs stay short: old commits and checkpoints go, every version that stays can be read, and nobody is left behind."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import CommitUnknown, Lake, NotFound, Settings, Table
from lithify.delta.actions import LogChange
from lithify.delta.commit_files import Commits
from lithify.delta.commit_outcome import Intent, Lost
from lithify.delta.create_log import create_log
from lithify.delta.folder import Listing
from lithify.delta.log import DeltaLog
from lithify.delta.trim import TrimReport, lost_to_trim
from lithify.files.local import LocalStorage
from support.faults import FaultyStore, Gate, RecordingStore
from support.folders import copied, memory_folder, repeat

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(checkpoint_every=5)
HOUR_MS = 3_600_000
RETAIN_HOURS = 24
COMMITS_MAX = 1_000_000


class Died(BaseException):
    """Nothing catches this, as nothing catches a kill."""


def now_ms() -> int:
    return int(time.time() * 1000)


def later(hours: float) -> int:
    return now_ms() + int(hours * HOUR_MS)


def log_folder(path: Path, which: str = "changes") -> Path:
    return path / "a" / "t" / which / "_delta_log"


def listing(path: Path, which: str = "changes") -> Listing:
    return Listing.of(log_folder(path, which), LocalStorage())


def log_of(path: Path, which: str = "changes", store: LocalStorage | None = None) -> DeltaLog:
    return DeltaLog.open(path / "a" / "t" / which, store or LocalStorage())


def trim(path: Path, hours: float, which: str = "changes", store: LocalStorage | None = None) -> TrimReport:
    return log_of(path, which, store).trim(later(hours), RETAIN_HOURS, COMMITS_MAX)


def age(path: Path, hours: float, versions: range) -> None:
    """Make the files of these versions as old as if they had been written `hours` ago."""
    then = time.time() - hours * 3600
    for file in log_folder(path).iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) in versions:
            os.utime(file, (then, then))


def ids(table: Table, as_of: int | None = None) -> list[int]:
    return sorted(table.to_arrow(as_of=as_of).column("id").to_pylist())


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Path]]:
    """The table of `path`, the same after others wrote on and trimmed, and that of `folded`: each test gets a copy."""
    with memory_folder() as folder:
        with Lake(folder / "written", settings=SETTINGS) as lake:
            table = lake.create_table("a.t", SCHEMA, key="id")
            for number in range(1, 24):
                table.upsert([{"id": number}], missing="null")
        assert listing(folder / "written").commits == tuple(range(24))
        assert listing(folder / "written").checkpoints == (5, 10, 15, 20)
        trim_far_ahead(copied(folder / "written", folder / "later"))
        with Lake(folder / "folded", settings=SETTINGS) as lake:
            table = lake.create_table("a.t", SCHEMA, key="id")
            for number in range(1, 13):
                table.upsert([{"id": number}], missing="null")
                table.fold()
        yield {name: folder / name for name in ("written", "later", "folded")}


@pytest.fixture
def path(made: dict[str, Path], folder: Path) -> Path:
    """A table with one row for each of its seqs 1 to 23, and checkpoints at versions 5, 10, 15 and 20."""
    return copied(made["written"], folder / "lake")


@pytest.fixture
def folded(made: dict[str, Path], folder: Path) -> Path:
    """A table with one row for each of its seqs 1 to 12, each folded at once."""
    return copied(made["folded"], folder / "lake")


def trim_far_ahead(path: Path) -> None:
    """Write on, and trim the log past everything that was there before."""
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        for number in range(100, 115):
            table.upsert([{"id": number}], missing="null")
    before = listing(path).commits[-1]
    trim(path, hours=RETAIN_HOURS + 1)
    assert 23 < listing(path).commits[0] < before


@pytest.fixture
def trimmed_far_ahead(made: dict[str, Path]) -> Callable[[Path], None]:
    """Others do the same."""
    return lambda path: repeat(made["written"], made["later"], path)


# -- what goes


def test_nothing_goes_while_it_is_young(path: Path) -> None:
    report = trim(path, hours=0)
    assert (report.commits, report.checkpoints, report.leftovers) == (0, 0, 0)
    assert listing(path).commits == tuple(range(24))


def test_a_clock_that_went_backward_takes_nothing_away(path: Path) -> None:
    trim(path, hours=-1000)
    assert listing(path).commits == tuple(range(24))


def test_old_commits_go_up_to_a_checkpoint_that_is_not_the_newest(path: Path) -> None:
    report = trim(path, hours=RETAIN_HOURS + 1)
    assert (report.commits, report.checkpoints, report.oldest_version) == (15, 2, 15)
    assert listing(path).commits == tuple(range(15, 24))
    assert listing(path).checkpoints == (15, 20)


def test_commits_within_the_retention_stay_with_the_checkpoint_below_them(path: Path) -> None:
    age(path, 48, range(12))
    trim(path, hours=0)
    assert listing(path).commits == tuple(range(10, 24))


@pytest.mark.parametrize(("hours", "oldest"), [(0.5, 0), (2, 10)])
def test_beyond_the_number_of_commits_an_hour_is_enough(path: Path, hours: float, oldest: int) -> None:
    log_of(path).trim(later(hours), RETAIN_HOURS, commits_max=10)
    assert listing(path).commits[0] == oldest


def test_checkpoints_are_thinned_out(folder: Path) -> None:
    log = create_log(folder / "t", LocalStorage(), SCHEMA, [], {}, {"operation": "create"}, "0", checkpoint_every=2)
    for number in range(20):
        log.try_commit(LogChange({}, txns={"n": number}), Intent(str(number)))
        log.checkpoint_if_due()
    log.trim(later(0.5), RETAIN_HOURS, COMMITS_MAX)
    found = Listing.of(folder / "t" / "_delta_log", LocalStorage())
    assert found.commits == tuple(range(21))
    assert found.checkpoints == (2, 18, 20)
    assert DeltaLog.open(folder / "t", LocalStorage(), 11).txn("n") == 10


def test_leftovers_go_when_they_are_old(path: Path) -> None:
    names = [".torn-00000000000000000007.json-1", "_commit_ab.json.tmp", "00000000000000000009.json#1"]
    for name in names:
        (log_folder(path) / name).write_bytes(b"")
    trim(path, hours=0)
    assert set(names) <= set(listing(path).names)
    assert trim(path, hours=RETAIN_HOURS + 1).leftovers == 3
    assert not set(names) & set(listing(path).names)


def test_a_checkpoint_that_cannot_be_read_is_nothing_to_begin_with(path: Path) -> None:
    (log_folder(path) / f"{15:020d}.checkpoint.parquet").write_bytes(b"torn")
    trim(path, hours=RETAIN_HOURS + 1)
    assert listing(path).commits == tuple(range(10, 24))


def test_the_checkpoint_is_durable_before_anything_goes(path: Path) -> None:
    store = RecordingStore()
    log = log_of(path, store=store)
    store.points.clear()
    log.trim(later(RETAIN_HOURS + 1), RETAIN_HOURS, COMMITS_MAX)
    assert store.points[:3] == ["store.sync", "store.sync", "store.delete"]


def test_a_hint_at_a_checkpoint_that_goes_is_taken_away_first(path: Path) -> None:
    hint = log_folder(path) / "_last_checkpoint"
    hint.write_text('{"version":5,"size":1}')
    trim(path, hours=RETAIN_HOURS + 1)
    assert not hint.exists()
    assert DeltaTable(path / "a" / "t" / "changes").version() == 23


# -- what stays


def test_after_trimming_everything_kept_can_be_read_and_the_rest_is_refused(path: Path) -> None:
    trim(path, hours=RETAIN_HOURS + 1)
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        assert ids(table) == list(range(1, 24))
        for seq in range(15, 24):
            assert ids(table, as_of=seq) == list(range(1, seq + 1))
        for seq in (0, 1, 14):
            with pytest.raises(NotFound, match=f"seq {seq} of table a.t is no longer in its log: choose a newer one"):
                ids(table, as_of=seq)
        with pytest.raises(NotFound, match="it is older than its log"):
            table.snapshot(as_of="2020-01-01")
        assert table.changes(since=14).column("id").to_pylist() == list(range(15, 24))
        with pytest.raises(NotFound, match="no longer in its log: choose a newer one"):
            table.changes(since=13)
        assert [entry.seq for entry in table.history()] == list(range(23, 14, -1))
        assert table.upsert([{"id": 24}], missing="null").seq == 24


def test_changes_are_not_cut_short_where_the_log_begins_with_a_commit_that_repeats_a_seq(folder: Path) -> None:
    path = folder / "lake"
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for number in range(1, 5):
            table.upsert([{"id": number}], missing="null")
        for level in range(1, 8):  # versions 5 to 11 repeat seq 4
            table.set_options({"compression_level": level})
        trim(path, hours=RETAIN_HOURS + 1)
        assert listing(path).commits[0] == 5
        with pytest.raises(NotFound, match=r"seq 4 of table a.t is no longer in its log"):
            table.changes(since=3)
        assert table.changes(since=4).num_rows == 0


def test_a_batch_id_is_remembered_beyond_its_commit(folder: Path) -> None:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert([{"id": 0}], missing="null", batch_id="once")
        for number in range(1, 12):
            table.upsert([{"id": number}], missing="null")
        trim(folder / "lake", hours=RETAIN_HOURS + 1)
        again = table.upsert([{"id": 0}], missing="null", batch_id="once")
        assert (again.seq, again.replayed) == (1, True)


def test_base_is_trimmed_too_and_fold_goes_on(folded: Path) -> None:
    path = folded
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        assert ids(table) == list(range(1, 13))
        for which in ("base", "changes"):
            trim(path, RETAIN_HOURS + 1, which)
            assert listing(path, which).commits[0] > 0
        table.upsert([{"id": 13}], missing="null")
        table.fold()
        assert ids(table) == list(range(1, 14))
        with pytest.raises(NotFound, match=r"choose a newer"):
            ids(table, as_of=1)
    assert DeltaTable(path / "a" / "t" / "base").to_pyarrow_table().num_rows == 13


def test_an_adopted_base_is_left_alone(folder: Path) -> None:
    write_deltalake(folder / "theirs", pa.table({"id": pa.array([0], pa.int64())}))
    settings = Settings(checkpoint_every=2, log_retain_hours=1)
    with Lake(folder / "lake", settings=settings) as lake:
        table = lake.adopt("a.t", folder / "theirs", key="id")
        for number in range(1, 7):
            table.upsert([{"id": number}], missing="null")
            table.fold()
        base, changes = table._internals.handles.base.log, table._internals.handles.changes.log
        for log in (base, changes):
            log.now_ms = lambda: later(1000)
            log.trim_if_due()
        assert base.versions()[0] == 0
        assert changes.versions()[0] > 0
        assert ids(table) == list(range(7))


@pytest.mark.parametrize("which", ["base", "changes"])
def test_a_torn_checkpoint_falls_back_to_an_older_one(folded: Path, which: str) -> None:
    path = folded
    trim(path, RETAIN_HOURS + 1, which)
    found = listing(path, which)
    assert len(found.checkpoints) == 2
    newest = log_folder(path, which) / f"{found.checkpoints[-1]:020d}.checkpoint.parquet"
    newest.write_bytes(newest.read_bytes()[:100])

    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        assert ids(table) == list(range(1, 13))
        table.upsert([{"id": 13}], missing="null")
        table.fold()
        assert ids(table) == list(range(1, 14))


def test_a_torn_newest_commit_is_still_set_aside(path: Path) -> None:
    trim(path, hours=RETAIN_HOURS + 1)
    (log_folder(path) / f"{23:020d}.json").write_bytes(b"")
    with Lake(path, settings=SETTINGS) as lake:
        assert ids(lake.table("a.t")) == list(range(1, 23))
        assert lake.table("a.t").upsert([{"id": 23}], missing="null").seq == 23


def test_a_clean_up_that_dies_at_any_file_leaves_a_valid_log(path: Path) -> None:
    def die() -> None:
        raise Died

    for nth in range(17):  # 15 commits and 2 checkpoints go
        with pytest.raises(Died):
            trim(path, RETAIN_HOURS + 1, store=FaultyStore("store.delete", die, nth=2 if nth else 1))
        with Lake(path, settings=SETTINGS) as lake:
            table = lake.table("a.t")
            assert ids(table) == list(range(1, 24)), f"after {nth} files"
            assert ids(table, as_of=15) == list(range(1, 16))
    assert trim(path, RETAIN_HOURS + 1).commits == 1
    assert listing(path).commits == tuple(range(15, 24))


def test_two_that_trim_at_once_do_not_get_into_each_others_way(path: Path) -> None:
    gate = Gate()
    first = threading.Thread(target=lambda: trim(path, RETAIN_HOURS + 1, store=FaultyStore("store.delete", gate.hold)))
    first.start()
    gate.wait()
    assert trim(path, RETAIN_HOURS + 1) == TrimReport()
    gate.open()
    first.join()
    assert listing(path).commits == tuple(range(15, 24))


# -- handles that were asleep


def test_an_idle_handle_finds_the_head_again(path: Path, trimmed_far_ahead: Callable[[Path], None]) -> None:
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        assert len(ids(table)) == 23
        trimmed_far_ahead(path)
        assert ids(table) == [*range(1, 24), *range(100, 115)]
        assert table.upsert([{"id": 200}], missing="null").seq == 39


def test_an_idle_handle_writes_first(path: Path, trimmed_far_ahead: Callable[[Path], None]) -> None:
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        trimmed_far_ahead(path)
        assert table.upsert([{"id": 200}], missing="null", batch_id="b").seq == 39
        assert ids(table) == [*range(1, 24), *range(100, 115), 200]


def test_a_version_that_lost_its_files_reads_them_from_others_or_gives_way(
    path: Path, trimmed_far_ahead: Callable[[Path], None]
) -> None:
    idle, behind = log_of(path), log_of(path)
    pinned = DeltaLog.open(path / "a" / "t" / "changes", LocalStorage(), 12)
    (log_folder(path) / f"{20:020d}.checkpoint.parquet").unlink()
    (log_folder(path) / "_last_checkpoint").unlink()
    assert idle.txn("lithify.seq") == 23
    trimmed_far_ahead(path)
    with pytest.raises(Lost):
        behind.txn("lithify.seq")
    with pytest.raises(NotFound, match=r"version 12 of .* is no longer in its log"):
        pinned.txn("lithify.seq")
    behind.refresh()
    assert behind.txn("lithify.seq") == 38


@pytest.mark.parametrize("write", ["upsert", "set_options", "add_column"])
def test_a_writer_that_slept_through_a_trim_lands_at_the_head(
    path: Path, write: str, trimmed_far_ahead: Callable[[Path], None]
) -> None:
    writes: dict[str, Callable[[Table], object]] = {
        "upsert": lambda table: table.upsert([{"id": 200}], missing="null"),
        "set_options": lambda table: table.set_options({"compression_level": 9}),
        "add_column": lambda table: table.add_column(pa.field("w", pa.int64())),
    }
    gate, failed = Gate(), []
    # add_column commits to base first: what sleeps is its commit to changes.
    sleeper = FaultyStore("log.swap", gate.hold, nth=2 if write == "add_column" else 1)
    with Lake(path, settings=SETTINGS, store=sleeper) as lake:
        table = lake.table("a.t")

        def run() -> None:
            try:
                writes[write](table)
            except Exception as error:
                failed.append(error)

        writing = threading.Thread(target=run)
        writing.start()
        gate.wait()
        # Of a column in the making its base knows already.
        (trim_far_ahead if write == "add_column" else trimmed_far_ahead)(path)
        oldest = listing(path).commits[0]
        gate.open()
        writing.join()
        assert failed == []
        assert listing(path).commits[0] == oldest, "its commit in the past was taken back"
        expected = [*range(1, 24), *range(100, 115)]
        if write == "upsert":
            assert ids(table) == [*expected, 200]
            assert table.history(limit=1)[0].seq == 39
        else:
            assert ids(table) == expected
            assert table.history(limit=1)[0].operation == write.replace("_", " ")
    with Lake(path) as lake:
        table = lake.table("a.t")
        assert len(ids(table)) == (39 if write == "upsert" else 38)
        assert (table.options["compression_level"] == 9) == (write == "set_options")
        assert ("w" in table.schema.names) == (write == "add_column")


def put(folder: Path, version: int, write_id: str) -> None:
    """What deltalake does last: create the commit's file, if there is none."""
    content = {"commitInfo": {"timestamp": now_ms(), "lithify": {"operation": "late", "write_id": write_id}}}
    with (folder / f"{version:020d}.json").open("x") as file:
        file.write(json.dumps(content))


def test_a_commit_put_where_the_log_was_trimmed_is_taken_back_and_counts_as_lost(
    path: Path, trimmed_far_ahead: Callable[[Path], None]
) -> None:
    """Asleep in the last moment of all: after every check that deltalake makes."""
    late = log_of(path)
    trimmed_far_ahead(path)
    with pytest.raises(Lost):
        late._swap(Intent("mine"), lambda: put(log_folder(path), 24, "mine"))
    assert not (log_folder(path) / f"{24:020d}.json").exists()
    assert (late.version, late.txn("lithify.seq")) == (38, 38)


def test_two_commits_put_where_the_log_was_trimmed_do_not_vouch_for_each_other(
    path: Path, trimmed_far_ahead: Callable[[Path], None]
) -> None:
    late = log_of(path)
    trimmed_far_ahead(path)
    put(log_folder(path), 23, "another's")
    with pytest.raises(Lost):
        late._swap(Intent("mine"), lambda: put(log_folder(path), 24, "mine"))
    assert (log_folder(path) / f"{23:020d}.json").exists(), "not ours to remove"
    assert late.versions()[0] == 30, "nobody takes it for a part of the log"
    trim(path, hours=RETAIN_HOURS + 1)
    assert listing(path).commits[0] == 30


def test_a_late_commit_that_cannot_be_told_from_one_that_counted_is_said_to_be_unknown(
    path: Path, trimmed_far_ahead: Callable[[Path], None]
) -> None:
    """The clock went backward: its file looks older than the checkpoints that stand above it."""
    late = log_of(path)
    trimmed_far_ahead(path)

    def put_with_an_old_clock() -> None:
        put(log_folder(path), 24, "mine")
        os.utime(log_folder(path) / f"{24:020d}.json", (1, 1))

    with pytest.raises(CommitUnknown, match="read the table before you retry"):
        late._swap(Intent("mine"), put_with_an_old_clock)


def test_a_commit_that_others_built_on_is_never_taken_for_late(path: Path) -> None:
    """Asleep after its commit, not before: the newer checkpoints hold what it wrote."""
    commits = Commits(path / "a" / "t" / "changes", LocalStorage())
    assert not lost_to_trim(commits, 12, "mine")
    assert not lost_to_trim(commits, 23, "mine")


# -- size


def test_checkpoints_stay_small_over_many_writes_and_folds(folder: Path) -> None:
    path = folder / "lake"
    sizes, tombstones = [], []
    with Lake(path, settings=Settings(checkpoint_every=5)) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        assert "delta.deletedFileRetentionDuration" not in table._internals.handles.base.log.properties
        for number in range(44):
            table.upsert([{"id": number}], missing="null")
            if number % 4 == 3:
                table.fold()
        assert len(ids(table)) == 44
    for checkpoint in sorted(log_folder(path).glob("*.checkpoint.parquet")):
        removed = pq.read_table(checkpoint, columns=["remove"]).column("remove")
        tombstones.append(len(removed) - removed.null_count)
        sizes.append(checkpoint.stat().st_size)
    assert len(sizes) >= 8
    # What a fold removed within the clock's last tick may still stand there.
    assert max(tombstones) <= 4
    assert sizes[-1] < 1.5 * sizes[0]


def test_writing_alone_keeps_the_log_short(folder: Path) -> None:
    path = folder / "lake"
    options = {"checkpoint_every": 2, "log_commits_max": 100}
    with Lake(path) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options=options)
        table._internals.handles.changes.log.now_ms = lambda: later(2)
        for number in range(300):
            table.upsert([{"id": number % 7}], missing="null")
        found = listing(path)
        assert len(found.commits) <= 100 + 100 // 4 + 2 * 16
        assert len(found.checkpoints) <= 2 * 16
        assert len(ids(table)) == 7
