"""Of many who write to one log, every one comes to it; and nobody waits for one that keeps its turn (invariant 2)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.delta import turns
from lithify.delta.folder import TURN
from lithify.delta.log import DeltaLog
from lithify.files.local import LocalStorage

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def two(folder: Path) -> Iterator[tuple[Table, Table]]:
    """One table, as two processes have it open."""
    with Lake(folder / "lake") as one, Lake(folder / "lake") as other:
        one.create_table("a.t", SCHEMA, key="id")
        yield one.table("a.t"), other.table("a.t")


def log_of(table: Table) -> DeltaLog:
    return table._internals.handles.changes.log


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def test_a_log_with_one_writer_is_not_asked_for_a_turn(two: tuple[Table, Table]) -> None:
    for number in range(5):
        two[0].upsert([{"id": number}])
    assert not log_of(two[0]).turns.are_taken
    assert TURN not in log_of(two[0])._commits.listing().names


def test_who_has_lost_takes_turns_and_reads_what_has_come_before_it_commits(folder: Path) -> None:
    reached = list[str]()

    class Raced(LocalStorage):
        """Somebody else commits just before the first swap, and just before the next turn begins."""

        def step(self, name: str) -> None:
            if name == "log.swap":
                reached.append("swap")
            if name == "log.swap" and len(reached) == 1:
                rival.upsert([{"id": 101}])

        @contextlib.contextmanager
        def lock(self, path: PurePath, *args: Any, **options: Any) -> Iterator[None]:
            if path.name == TURN:
                rival.upsert([{"id": 102}])
            with super().lock(path, *args, **options):
                yield

    with Lake(folder / "lake") as other:
        rival = other.create_table("a.t", SCHEMA, key="id")
        with Lake(folder / "lake", store=Raced()) as lake:
            table = lake.table("a.t")
            table.upsert([{"id": 1}])
            assert log_of(table).turns.are_taken
            assert ids(table) == [1, 101, 102]
    assert reached == ["swap", "swap"], "the first is lost, what came before the turn is read there"


def test_nobody_waits_for_long_for_one_that_keeps_its_turn(
    two: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S_MAX", 0.01)
    log = log_of(two[0])
    log.turns.lost()
    with LocalStorage().lock(log._commits.live / TURN, 0, "a process that was stopped"):
        two[0].upsert([{"id": 1}])
        assert not log.turns.are_taken, "nor asks again soon"
        log.turns.lost()
        two[0].upsert([{"id": 2}])
    assert ids(two[1]) == [1, 2]


def test_turns_end_some_time_after_the_last_loss(two: tuple[Table, Table]) -> None:
    now_s = [100.0]
    taken = turns.LockedTurns(log_of(two[0])._commits, clock=lambda: now_s[0])
    taken.lost()
    assert taken.are_taken
    now_s[0] += turns.TAKEN_S
    assert not taken.are_taken
