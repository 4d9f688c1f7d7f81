"""Processes whose clocks are wrong: nothing is forgotten, deleted or taken over by what one of them believes."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Settings, Unavailable
from lithify.delta.actions import LogChange
from lithify.delta.commit_outcome import Intent
from lithify.delta.folder import checkpoint_name
from lithify.delta.forget import KEEP_TXNS, RETENTION, checkpoint_without, forgotten_at
from lithify.delta.forget_rules import REMEMBERED_DAYS, forgettable
from lithify.files.clock import LakeClock
from lithify.files.local import LocalStorage
from lithify.jobs import leases
from support.bucket import Bucket
from support.folders import memory_folder
from support.shifted import run_at, shim

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(checkpoint_every=3)
DAY_MS = 86_400_000

BEGIN = """
import json, sys
from lithify import Lake, Settings
from lithify.jobs import leases
lake = Lake(sys.argv[1], settings=Settings(checkpoint_every=3))
table = lake.table("a.t")
"""
WRITE = BEGIN + 'for number in range(7): table.upsert([{"id": 200 + number, "v": "x"}])\n'
RESEND = BEGIN + (
    'commit = table.upsert([{"id": 100, "v": "first"}], batch_id="B")\n'
    'print(json.dumps([commit.replayed, table.get(100)["v"]]))'
)
MAINTENANCE = BEGIN + (
    "for number in range(3): table.fold(); table.upsert([{'id': 300 + number, 'v': 'x'}])\n"
    "table._internals.handles.changes.log.trim_if_due()\n"
    "table._internals.handles.base.log.trim_if_due()\n"
    "print(json.dumps(table.vacuum(1, dry_run=False).files))"
)
TAKE_LEASE = BEGIN + 'print(json.dumps(leases.acquire(lake._runtime, "cycle", "theirs", 60)[0]))'


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "lake"


@pytest.fixture(scope="module")
def at() -> Iterator[Callable[..., Any]]:
    with memory_folder() as folder:
        library = shim(folder)
        yield lambda ahead_days, program, *arguments: run_at(library, ahead_days, program, *arguments)


def made(path: Path) -> Lake:
    lake = Lake(path, settings=SETTINGS)
    lake.create_table("a.t", SCHEMA, key="id")
    return lake


def txns_in_checkpoint(lake: Lake, which: str = "changes") -> set[str]:
    log = getattr(lake.table("a.t")._internals.handles, which).log
    newest = log._commits.listing().checkpoints[-1]
    stored = pq.read_table(log._commits.live / checkpoint_name(newest), columns=["txn"]).column("txn")
    return {txn["appId"] for txn in stored.drop_null().to_pylist()}


@pytest.mark.slow
def test_a_batch_id_is_recognised_whatever_the_clocks_of_the_writers(path: Path, at: Callable[..., Any]) -> None:
    with made(path) as lake:
        table = lake.table("a.t")
        table.upsert([{"id": 100, "v": "first"}], batch_id="B")
        table.upsert([{"id": 100, "v": "second"}])
    for days in (31, -31):
        at(days, WRITE, path)
    for days in (0, 400):
        assert at(days, RESEND, path) == [True, "second"]


@pytest.mark.slow
@pytest.mark.parametrize("days", [31, -31])
def test_maintenance_of_a_wrong_clock_deletes_nothing_that_is_retained(
    path: Path, at: Callable[..., Any], days: int
) -> None:
    """Time travel to every seq of the last hour, also where the process that removed the files is behind."""
    with made(path) as lake:
        table = lake.table("a.t")
        for number in range(4):
            table.upsert([{"id": 1, "v": f"v{number}"}])
        table.fold()
        long_ago = time.time() - 20 * 3600
        for file in (path / "a" / "t").rglob("*.parquet"):
            os.utime(file, (long_ago, long_ago))
        table.upsert([{"id": 1, "v": "v4"}])
    assert at(days, MAINTENANCE, path) == 0
    with Lake(path) as lake:
        table = lake.table("a.t")
        assert table.vacuum(1, dry_run=False).files == 0
        shown = [table.to_arrow(as_of=seq).column("v").to_pylist() for seq in range(1, 6)]
    assert shown == [["v0"], ["v1"], ["v2"], ["v3"], ["v4"]]


@pytest.mark.slow
def test_a_lease_is_held_against_a_process_of_another_clock(path: Path, at: Callable[..., Any]) -> None:
    with made(path) as lake:
        assert leases.acquire(lake._runtime, "cycle", "ours", 3600)[0]
        assert at(1, TAKE_LEASE, path) is False
        assert leases.current(lake._runtime, "cycle") is not None


@pytest.mark.slow
def test_a_time_means_the_same_seq_whoever_wrote(path: Path, at: Callable[..., Any]) -> None:
    with made(path) as lake:
        lake.table("a.t").upsert([{"id": 1, "v": "right"}])
    for days in (1, -1):
        at(days, WRITE, path)
    with Lake(path) as lake:
        table = lake.table("a.t")
        now = dt.datetime.fromtimestamp(lake._runtime.now_ms() / 1000 + 1, dt.UTC)
        assert table.snapshot(now).seq == table.snapshot().seq
        times = [entry.time for entry in table.history()]
        assert times == sorted(times, reverse=True)


def test_the_lake_goes_by_the_clock_of_its_file_system(path: Path) -> None:
    path.mkdir()
    ahead = LakeClock(LocalStorage(), path, own_ms=lambda: 10**15)
    behind = LakeClock(LocalStorage(), path, own_ms=lambda: 0)
    assert abs(ahead.now_ms() - behind.now_ms()) < 60_000
    nowhere = LakeClock(LocalStorage(), path / "not" / "there", own_ms=lambda: 7)
    assert nowhere.now_ms() == 7


def test_a_storage_that_does_not_answer_is_no_reason_to_go_by_the_own_clock(path: Path) -> None:
    """Of one whose clock is not this machine's: an earlier answer is counted on from, or none is given."""

    class Away(Bucket):
        away = True

        def touch_ms(self, path: PurePath, at_ms: int | None = None, *, empty: bool = False) -> float:
            if self.away:
                raise Unavailable("no answer")
            return super().touch_ms(path, at_ms, empty=empty)

    path.mkdir()
    store = Away(path, lambda: 5_000_000.0)
    clock = LakeClock(store, path, own_ms=lambda: 7)
    with pytest.raises(Unavailable):
        clock.now_ms()
    store.away = False
    assert 5_000_000 <= clock.now_ms() < 5_060_000
    store.away, clock._every_s = True, 0
    assert 5_000_000 <= clock.now_ms() < 5_060_000


def test_what_is_new_by_number_or_by_time_is_remembered() -> None:
    now_ms, old_ms = 100 * DAY_MS, (100 - REMEMBERED_DAYS) * DAY_MS - 1
    old = [(f"lithify.batch.{number}", old_ms + number - 9) for number in range(10)]
    assert forgettable(old, now_ms, remembered_min=10) == set()
    assert forgettable(old, now_ms, remembered_min=8) == {"lithify.batch.0", "lithify.batch.1"}
    assert forgettable(old, now_ms - DAY_MS, remembered_min=0) == set()
    young = [(f"lithify.batch.y{number}", now_ms) for number in range(9)]
    assert forgettable([*old, *young], now_ms, remembered_min=10) == {name for name, _ in old[:9]}


def test_each_kind_is_counted_by_itself_and_counters_are_never_forgotten() -> None:
    batches = [(f"lithify.batch.{number}", number) for number in range(3)]
    others = [("lithify.job.a", 0), ("lithify.lane.b", 0), ("lithify.seq", 0), ("lithify.stream.q", 0), ("spark", 0)]
    timeless = [("lithify.batch.timeless", None)]
    found = forgettable([*batches, *others, *timeless], 100 * DAY_MS, remembered_min=1)
    assert found == {"lithify.batch.0", "lithify.batch.1"}


def test_a_checkpoint_leaves_out_what_is_forgotten_and_nothing_else(path: Path) -> None:
    with made(path) as lake:
        table = lake.table("a.t")
        for number in range(6):
            table.upsert([{"id": number, "v": "x"}], batch_id=f"b{number}")
        table.delete([0])
        before, log = table.to_arrow().sort_by("id"), table._internals.handles.changes.log
        names = forgotten_at(log._commits, 10**15, lambda txns, log_ms: forgettable(txns, log_ms, remembered_min=2))
        assert names == {f"lithify.batch.b{number}" for number in range(4)}
        checkpoint_without(log._commits, log.version, names)
        assert not names & txns_in_checkpoint(lake)
        assert {"lithify.seq", "lithify.batch.b5"} <= txns_in_checkpoint(lake)
    with Lake(path, settings=SETTINGS) as lake:
        table = lake.table("a.t")
        assert table.to_arrow().sort_by("id") == before
        assert not table.upsert([{"id": 0, "v": "y"}], batch_id="b0").replayed
        assert table.upsert([{"id": 5, "v": "y"}], batch_id="b5").replayed


def test_a_table_that_was_made_to_forget_by_the_clock_is_told_not_to(path: Path) -> None:
    with made(path) as lake:
        handles = lake.table("a.t")._internals.handles
        before = LogChange({"operation": "as it was"}, properties={RETENTION: "interval 30 days"})
        handles.changes.log.try_commit(before, Intent("x"))
        for number in range(4):
            lake.table("a.t").upsert([{"id": number, "v": "x"}])
        assert handles.changes.log.properties[RETENTION] == KEEP_TXNS[RETENTION]
        assert [lake.table("a.t").to_arrow(as_of=seq).num_rows for seq in range(1, 5)] == [1, 2, 3, 4]
