"""A log in a bucket: what it costs, what lost answers do to it, and what others read of it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from pathlib import PurePath

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lithify.delta.remote_log
import lithify.files.bucket.storage
from lithify.delta.actions import LogChange
from lithify.delta.archive import HOUR_MS, LogLimits
from lithify.delta.checkpoints import wait_for_checkpoints
from lithify.delta.commit_outcome import Intent, Lost
from lithify.delta.create_log import create_log
from lithify.delta.folder import checkpoint_name, commit_name
from lithify.delta.log import DeltaLog
from lithify.errors import CommitUnknown, Corruption, NotFound, Unavailable
from lithify.files.addresses import path_of
from lithify.files.open_storage import storage_of
from lithify.files.parquet import Written
from lithify.files.storage import Storage
from support.effort import SOAK
from support.fault_proxy import FaultProxy
from support.s3_servers import S3Server

pytestmark = pytest.mark.bucket

COLUMNS = pa.schema([("i", pa.int64()), ("s", pa.string())])
FAULTS = ("drop before", "drop after", "500 after", "503", "409")


@pytest.fixture
def root(address: str) -> PurePath:
    return path_of(address)


@pytest.fixture
def store(root: PurePath) -> Storage:
    return store_at(root)


def store_at(root: PurePath) -> Storage:
    store = storage_of(root)
    store.path_guard.trust(root)
    return store


def created(root: PurePath, store: Storage, **properties: str) -> DeltaLog:
    return create_log(root / "t", store, COLUMNS, ["s"], properties, {"operation": "create"}, uuid.uuid4().hex)


def change(number: int, **txns: int) -> LogChange:
    file = Written(f"write-{number:032x}.parquet", 3, 100 + number, '{"numRecords":3}')
    return LogChange({"operation": "write"}, adds=[(file, {"s": "x"})], txns=txns, data_change=True)


def commit(log: DeltaLog, number: int, **txns: int) -> int:
    return log.try_commit(change(number, **txns), Intent(uuid.uuid4().hex))


class TestRequests:
    def test_a_commit_is_one_put_and_a_look_is_one_get(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        other = DeltaLog.open(root / "t", store_at(root))
        commit(log, 0)
        with proxy.counted() as written:
            commit(log, 1)
        with proxy.counted() as nothing_new:
            log.refresh()
        with proxy.counted() as followed:
            other.refresh()

        assert written == Counter(PUT=1)
        assert nothing_new == Counter(GET=1)
        assert followed == Counter(GET=3)
        assert other.version == log.version == 2

    def test_opening_does_not_grow_with_the_log(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        counts = []
        for _ in range(2):
            for number in range(log.version, log.version + 40):
                commit(log, number)
                log.checkpoint_if_due()
            with proxy.counted() as opened:
                assert DeltaLog.open(root / "t", store_at(root)).version == log.version
            counts.append(opened)

        assert counts[0] == counts[1]
        assert counts[0] == Counter(LIST=1, GET=4), "the hint, the checkpoint, its commit, and that none follows"

    def test_of_a_long_log_no_more_is_listed_than_is_needed(
        self, proxy: FaultProxy, root: PurePath, store: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lithify.files.bucket.storage, "PAGE", 5)  # of which a log has many
        log = created(root, store)
        for number in range(43):
            commit(log, number)
            log.checkpoint_if_due()
            wait_for_checkpoints()
        with proxy.counted() as hinted:
            assert DeltaLog.open(root / "t", store_at(root)).version == 43
        store.delete(root / "t/_delta_log/_last_checkpoint")

        assert hinted == Counter(LIST=2, GET=1 + 1 + 4 + 1)
        assert len(DeltaLog.open(root / "t", store_at(root)).files(())) == 43


class TestLostAnswers:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_commit_is_there_once(self, proxy: FaultProxy, root: PurePath, store: Storage, fault: str) -> None:
        log = created(root, store)
        for number in range(4):
            proxy.fail(fault, on="PUT", at="_delta_log", times=1 + number % 2)  # type: ignore[arg-type]
            assert commit(log, number, seq=number) == number + 1
        proxy.heal()

        again = DeltaLog.open(root / "t", store_at(root))
        assert again.version == log.version == 4
        assert sorted(file.path for file in again.files(())) == [f"write-{n:032x}.parquet" for n in range(4)]
        assert [again.commit_record(version).txns["seq"] for version in range(1, 5)] == [0, 1, 2, 3]

    def test_who_came_second_has_lost(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        log, other = created(root, store), DeltaLog.open(root / "t", store_at(root))
        commit(other, 7)
        proxy.fail("500 after", on="PUT", at="_delta_log", times=1)

        with pytest.raises(Lost):
            commit(log, 1)
        log.refresh()

        assert [file.path for file in log.files(())] == [f"write-{7:032x}.parquet"]

    def test_what_cannot_be_known_is_not_called_failed(
        self, proxy: FaultProxy, root: PurePath, store: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = created(root, store)
        commit(log, 0)
        monkeypatch.setattr(lithify.files.bucket.storage, "DOUBT_S_MAX", 0.5)
        proxy.fail("drop after", on="PUT", at="_delta_log", times=None)
        proxy.fail("503", on="GET", at="_delta_log", times=None)
        proxy.fail("503", on="HEAD", at="_delta_log", times=None)
        intent = Intent(uuid.uuid4().hex)

        with pytest.raises(CommitUnknown):
            log.try_commit(change(1), intent)
        proxy.heal()

        assert intent.may_stand
        assert DeltaLog.open(root / "t", store_at(root)).version == 2

    def test_a_refusal_is_a_failure(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        proxy.fail("403", on="PUT", at="_delta_log", times=None)
        intent = Intent(uuid.uuid4().hex)

        with pytest.raises(Unavailable, match="AWS_ACCESS_KEY_ID"):
            log.try_commit(change(1), intent)
        proxy.heal()

        assert not intent.may_stand
        assert commit(log, 1) == 1

    def test_many_writers_through_faults(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        """What was acknowledged is there once, under the version it was told."""
        created(root, store)
        for number, fault in enumerate(FAULTS):
            proxy.fail(fault, on="PUT", at="_delta_log", times=None, chance=0.05 + 0.01 * number)  # type: ignore[arg-type]
        told: dict[int, int] = {}
        each = 60 if SOAK else 12

        def write(writer: int) -> None:
            log = DeltaLog.open(root / "t", store_at(root))
            for number in range(writer * 1000, writer * 1000 + each):
                while True:
                    try:
                        told[number] = commit(log, number)
                        break
                    except Lost:
                        log.refresh()

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        proxy.heal()

        log = DeltaLog.open(root / "t", store_at(root))
        assert log.version == 4 * each == len(told)
        for number, version in told.items():
            assert [add["path"] for add in log.commit_record(version).adds] == [f"write-{number:032x}.parquet"]


class TestDeltalake:
    def test_it_reads_the_log(self, s3: S3Server, root: PurePath, store: Storage) -> None:
        log = created(root, store, **{"my.property": "1"})
        for number in range(25):
            commit(log, number, seq=number)
            log.checkpoint_if_due()
        log.try_commit(LogChange({}, column=pa.field("more", pa.float64())), Intent(uuid.uuid4().hex))

        table = DeltaTable(str(root / "t"), storage_options=s3.environment())

        assert table.version() == log.version == 26
        assert [field.name for field in table.schema().fields] == log.columns().names == ["i", "s", "more"]
        assert len(table.file_uris()) == len(log.files(())) == 25
        assert table.transaction_version("seq") == log.txn("seq") == 24
        assert table.metadata().configuration["my.property"] == log.properties["my.property"]

    @pytest.mark.parametrize("version", [19, 20, 21])
    def test_it_changes_columns_beside_a_checkpoint(self, root: PurePath, store: Storage, version: int) -> None:
        log = created(root, store)
        for number in range(version):
            commit(log, number)
            log.checkpoint_if_due()
        wait_for_checkpoints()
        log.try_commit(LogChange({}, column=pa.field("more", pa.float64())), Intent(uuid.uuid4().hex))

        assert DeltaLog.open(root / "t", store_at(root)).columns().names == ["i", "s", "more"]

    def test_what_it_commits_is_followed(self, s3: S3Server, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        commit(log, 0)
        table = DeltaTable(str(root / "t"), storage_options=s3.environment())
        table.alter.set_table_properties({"delta.appendOnly": "false"})
        table.create_checkpoint()
        log.refresh()

        assert log.version == 2
        assert log.properties["delta.appendOnly"] == "false"
        assert commit(log, 1) == 3

    def test_a_damaged_checkpoint_is_done_without(self, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        for number in range(20):
            commit(log, number)
            log.checkpoint_if_due()
        wait_for_checkpoints()
        store.put(root / "t/_delta_log/00000000000000000020.checkpoint.parquet", b"nothing of the kind")

        assert DeltaLog.open(root / "t", store_at(root)).version == 20


class TestVersions:
    def test_old_ones_are_read(self, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        for number in range(45):
            commit(log, number, seq=number)
            log.checkpoint_if_due()

        for version in (0, 1, 19, 20, 21, 39, 44):
            past = log.at(version)
            assert (past.version, len(past.files(()))) == (version, version)
            assert past.txn("seq") == (version - 1 if version else None)

    def test_a_table_at_the_same_address_goes_on(self, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        commit(log, 0)
        again = created(root, store)

        assert (again.version, again.files(())) == (2, ())
        with pytest.raises(Lost):
            commit(log, 1)

    def test_where_there_is_none(self, root: PurePath, store: Storage) -> None:
        with pytest.raises(NotFound, match="no Delta table"):
            DeltaLog.open(root / "nothing", store)


class TestTrimming:
    def limited(self, log: DeltaLog) -> DeltaLog:
        log.limits = lambda: LogLimits(retain_hours=30, commits_max=30)
        return log

    def test_what_is_old_goes_up_to_a_checkpoint(self, root: PurePath, store: Storage) -> None:
        log = self.limited(created(root, store))
        for number in range(65):
            commit(log, number)
            log.checkpoint_if_due()
            wait_for_checkpoints()
        now_ms = int(time.time() * 1000)

        assert log.trim(now_ms + 23 * HOUR_MS, 30, 30).commits == 0  # a handle may not have looked for so long
        report = log.trim(now_ms + 31 * HOUR_MS, 30, 30)

        assert (report.commits, report.oldest_version) == (40, 40)
        assert log.versions() == range(40, 66)
        assert DeltaLog.open(root / "t", store_at(root)).version == 65
        assert len(log.at(41).files(())) == 41

    def test_who_slept_finds_out(self, root: PurePath, store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        log, sleeper = self.limited(created(root, store)), DeltaLog.open(root / "t", store_at(root))
        for number in range(65):
            commit(log, number)
            log.checkpoint_if_due()
        log.trim(int(time.time() * 1000) + 31 * HOUR_MS, 30, 30)
        monkeypatch.setattr(lithify.delta.remote_log, "LOOK_S_MAX", -1.0)

        with pytest.raises(Lost):
            commit(sleeper, 1000)
        assert not store.exists(root / "t/_delta_log" / commit_name(1))
        sleeper.refresh()

        assert sleeper.version == 65
        assert commit(sleeper, 1000) == 66


class TestACommitThatIsMissing:
    """In the middle of what no trimming can have reached."""

    @pytest.mark.parametrize("checkpoints", [0, 1, 3])
    def test_it_is_named(self, root: PurePath, store: Storage, checkpoints: int) -> None:
        log = created(root, store)
        for number in range(1, 20 * checkpoints + 5):
            commit(log, number)
            log.checkpoint_if_due()
            wait_for_checkpoints()
        path = root / "t/_delta_log" / commit_name(20 * checkpoints + 2)
        store.delete(path)

        with pytest.raises(Corruption, match=f"commit {path} is missing"):
            DeltaLog.open(root / "t", store_at(root))
        with pytest.raises(Corruption, match=f"commit {path} is missing"):
            log.at(20 * checkpoints + 3)
        assert log.at(20 * checkpoints + 1).version == 20 * checkpoints + 1

    def test_what_a_trim_took_is_not_called_so(self, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        for number in range(65):
            commit(log, number)
            log.checkpoint_if_due()
            wait_for_checkpoints()
        log.trim(int(time.time() * 1000) + 31 * HOUR_MS, 30, 30)

        for version in (7, 39, 1000):
            with pytest.raises(NotFound, match=f"version {version} of .* is no longer in its log"):
                log.at(version)


class TestAListThatLags:
    def test_what_it_leaves_out_is_found(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        for number in range(1, 22):
            commit(log, number)
            log.checkpoint_if_due()
            wait_for_checkpoints()
        proxy.leave_out(f"/{commit_name(20)}$|/{checkpoint_name(20)}$")

        seen = DeltaLog.open(root / "t", store_at(root))
        assert (seen.version, len(seen.files(()))) == (21, 21)
        assert log.versions() == range(22)
        assert len(log.at(20).files(())) == 20

    def test_nobody_goes_back_behind_what_was_read(self, proxy: FaultProxy, root: PurePath, store: Storage) -> None:
        log = created(root, store)
        commit(log, 1)
        seen = DeltaLog.open(root / "t", store_at(root))
        commit(log, 2)
        proxy.leave_out(f"/{commit_name(2)}$")
        log.try_commit(LogChange({"operation": "x"}, properties={"lithify.x": "1"}), Intent(uuid.uuid4().hex))
        proxy.leave_out("/0*[23].json$")

        seen.refresh()  # deltalake opens the log anew for what the last commit says
        assert (seen.version, seen.properties["lithify.x"]) == (3, "1")
        assert DeltaLog.open(root / "t", store_at(root)).version == 3
        assert log.versions() == range(4)
        assert created(root, store).version == 4
