"""Checkpoints are written beside the writers: at most one of a log at a time, the newest that is due, and never instead
of an answer (invariant 10).
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lithify import Lake, Settings, Table
from lithify.compute.background import Latest
from lithify.delta import checkpoints
from lithify.delta.folder import Listing, hinted_checkpoint
from lithify.delta.log import DeltaLog
from lithify.files.local import LocalStorage
from support.checkpoints import beside
from support.faults import FaultyStore, Gate, disk_full

SCHEMA = pa.schema([("id", pa.int64())])
SETTINGS = Settings(checkpoint_every=5)


@pytest.fixture
def thread() -> Iterator[Latest]:
    with beside() as thread:
        yield thread


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[..., Table]]:
    lakes = list[Lake]()

    def open_lake(**options: Any) -> Table:
        lakes.append(Lake(folder / "lake", **{"settings": SETTINGS, **options}))
        return lakes[-1].create_table("a.t", SCHEMA, key="id", if_not_exists=True)

    yield open_lake
    for lake in lakes:
        lake.close()


def write(table: Table, *keys: int) -> None:
    for key in keys:
        table.upsert([{"id": key}])


def log_of(table: Table) -> DeltaLog:
    return table._internals.handles.changes.log


def listing(table: Table) -> Listing:
    return Listing.of(log_of(table).path / "_delta_log", LocalStorage())


def hinted(table: Table) -> int | None:
    return hinted_checkpoint(log_of(table).path / "_delta_log", LocalStorage())


def test_a_writer_does_not_wait_for_a_checkpoint(thread: Latest, opened: Callable[..., Table]) -> None:
    gate = Gate()
    table = opened(store=FaultyStore("log.checkpoint", gate.hold))
    write(table, *range(1, 6))
    gate.wait()
    write(table, *range(6, 9))
    assert listing(table).checkpoints == ()
    gate.open()
    thread.flush(60)
    assert listing(table).checkpoints == (5,), "of the version that was due, although others have come since"
    assert DeltaTable(log_of(table).path).version() == 8


def test_of_those_that_wait_only_the_newest_is_written(thread: Latest, opened: Callable[..., Table]) -> None:
    gate = Gate()
    table = opened(store=FaultyStore("log.checkpoint", gate.hold))
    write(table, *range(1, 6))
    gate.wait()
    write(table, *range(6, 23))
    gate.open()
    thread.flush(60)
    assert listing(table).checkpoints == (5, 20)
    assert hinted(table) == 20


def test_a_log_that_is_written_to_all_the_time_is_left_alone_in_between(
    thread: Latest, opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "REST", 10**6)
    table = opened()
    write(table, *range(1, 6))
    thread.flush(60)
    write(table, *range(6, 31))
    assert listing(table).checkpoints == (5,)
    thread.flush(60)
    assert listing(table).checkpoints == (5, 30), "whoever waits for it gets it at once"


def test_another_process_leaves_it_alone_too(
    thread: Latest, opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = opened(), opened()
    write(table, *range(1, 6))
    thread.flush(60)
    write(other, *range(6, 11))
    thread.flush(60)
    monkeypatch.setattr(checkpoints, "REST", 10**6)
    tried = threading.Event()
    monkeypatch.setattr(other._internals.handles.changes.log._checkpoints, "_write_now", lambda *_, **__: tried.set())
    write(table, *range(11, 15))
    write(other, 15)
    assert not tried.is_set()
    assert listing(table).checkpoints == (5, 10)
    monkeypatch.setattr(checkpoints, "REST_COMMITS_MAX", 10)
    write(other, *range(16, 21))
    assert tried.wait(60), "but not however many commits there are since"


def test_what_others_have_written_meanwhile_is_not_written_again(thread: Latest, opened: Callable[..., Table]) -> None:
    gate = Gate()
    table = opened(store=FaultyStore("log.checkpoint", gate.hold, times=None))
    write(table, *range(1, 6))
    gate.wait()
    write(table, *range(6, 11))
    DeltaTable(log_of(table).path).create_checkpoint()
    gate.open()
    before = (log_of(table).path / "_delta_log" / f"{10:020d}.checkpoint.parquet").stat()
    thread.flush(60)
    after = (log_of(table).path / "_delta_log" / f"{10:020d}.checkpoint.parquet").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_hint_at_a_checkpoint_that_is_not_there_stops_nothing(thread: Latest, opened: Callable[..., Table]) -> None:
    table = opened()
    (log_of(table).path / "_delta_log" / "_last_checkpoint").write_text('{"version":1000000,"size":1}')
    write(table, *range(1, 6))
    thread.flush(60)
    assert listing(table).checkpoints == (5,)


def test_closing_a_lake_writes_what_is_due(thread: Latest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "REST", 10**6)
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        write(table, *range(1, 23))
        log = log_of(table)
    assert log._commits.listing().checkpoints[-1] == 20


def test_one_that_fails_costs_no_answer_and_the_next_is_written(thread: Latest, opened: Callable[..., Table]) -> None:
    table = opened(store=FaultyStore("log.checkpoint", disk_full))
    write(table, *range(1, 6))
    thread.flush(60)
    assert listing(table).checkpoints == ()
    write(table, *range(6, 12))
    thread.flush(60)
    assert listing(table).checkpoints == (10,)
    assert table.to_arrow().num_rows == 11


def test_a_trim_that_was_due_is_not_lost_with_a_checkpoint_that_is(
    thread: Latest, opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was due with a version whose checkpoint gave way to a newer one."""
    monkeypatch.setattr(checkpoints, "TRIM_EVERY_CHECKPOINTS", 2)
    gate, trims = Gate(), list[int]()
    monkeypatch.setattr(checkpoints, "trim", lambda commits, *_: trims.append(hinted(table) or 0))
    table = opened(store=FaultyStore("log.checkpoint", gate.hold))
    write(table, *range(1, 6))
    gate.wait()
    write(table, *range(6, 17))
    gate.open()
    thread.flush(60)
    assert listing(table).checkpoints == (5, 15)
    assert trims == [15], "10 was the second"


def test_what_a_handle_keeps_of_commits_goes_with_each_checkpoint(thread: Latest, opened: Callable[..., Table]) -> None:
    table = opened()
    for first in range(1, 40, 4):
        write(table, *range(first, first + 4))
        thread.flush(60)
        assert log_of(table)._tail.commits_since <= 9
    assert len(log_of(table).files(["id"])) == 40


_ENDS = """
import sys, threading
from lithify import Lake, Settings
from lithify.files.local import LocalStorage

class Slow(LocalStorage):
    def step(self, name):
        if name == "log.checkpoint":
            begun.set()
            threading.Event().wait(0.5)

begun = threading.Event()
table = Lake(sys.argv[1], settings=Settings(checkpoint_every=5), store=Slow()).table("a.t")
for key in range(1, 12):
    table.upsert([{"id": key}])
begun.wait(60)
"""


def test_a_process_that_ends_waits_for_the_one_under_way(opened: Callable[..., Table], folder: Path) -> None:
    table = opened()
    ended = subprocess.run([sys.executable, "-c", _ENDS, str(folder / "lake")], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert listing(table).checkpoints == (5,), "and drops the next"
    assert table.to_arrow().num_rows == 11
