"""Batch ids in lanes: many writes, one memory, and still each is written once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, NotFound, Table
from lithify.delta.actions import CommitRecord
from lithify.delta.changes import ChangesLog

LANE, OTHER = f"lane-{'a' * 32}", f"lane-{'b' * 32}"


@pytest.fixture
def table(folder: Path) -> Iterator[Table]:
    with Lake(folder / "lake") as lake:
        yield lake.create_table("a.t", pa.schema([("x", pa.int64())]))


def remembered(table: Table) -> int:
    seqs = (table._internals.handles.changes.log.txn(f"lithify.batch.{name}") for name in (LANE, OTHER))
    each = (table._internals.handles.changes.log.txn(f"lithify.batch.{LANE}.{number}") for number in range(10))
    return sum(seq is not None for seq in (*seqs, *each))


def test_a_repeated_write_is_answered_as_the_first_time(table: Table) -> None:
    first = table.append([{"x": 1}], batch_id=f"{LANE}.1")
    again = table.append([{"x": 1}], batch_id=f"{LANE}.1")

    assert (again.seq, again.rows, again.replayed) == (first.seq, 1, True)
    assert table.to_arrow().num_rows == 1


def test_a_higher_number_is_a_new_write_and_takes_the_memory_of_the_last(table: Table) -> None:
    for number in range(1, 6):
        assert not table.append([{"x": number}], batch_id=f"{LANE}.{number}").replayed
    assert table.append([{"x": 5}], batch_id=f"{LANE}.5").replayed

    assert table.to_arrow().num_rows == 5
    assert remembered(table) == 1


def test_lanes_do_not_meet(table: Table) -> None:
    table.append([{"x": 1}], batch_id=f"{LANE}.7")
    assert not table.append([{"x": 2}], batch_id=f"{OTHER}.1").replayed
    assert table.append([{"x": 1}], batch_id=f"{LANE}.7").replayed
    assert remembered(table) == 2


def test_a_number_below_the_last_is_refused(table: Table) -> None:
    table.append([{"x": 1}], batch_id=f"{LANE}.2")
    with pytest.raises(Conflict, match="only go up"):
        table.append([{"x": 1}], batch_id=f"{LANE}.1")
    assert table.to_arrow().num_rows == 1


def test_a_write_is_known_by_its_number_when_its_commit_has_left_the_log(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(log: ChangesLog, seq: int) -> CommitRecord:
        raise NotFound(f"seq {seq} is no longer in the log")

    first = table.append([{"x": 1}], batch_id=f"{LANE}.2")
    monkeypatch.setattr(ChangesLog, "record_of_seq", gone)

    again = table.append([{"x": 1}], batch_id=f"{LANE}.2")
    assert (again.seq, again.replayed) == (first.seq, True)
    with pytest.raises(Conflict, match="only go up"):
        table.append([{"x": 1}], batch_id=f"{LANE}.1")
    assert not table.append([{"x": 3}], batch_id=f"{LANE}.3").replayed
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize("ordinary", ["lane-1.2", f"{LANE}.", f"{LANE}.1.2", f"x{LANE}.1", f"{LANE}.-1"])
def test_what_only_looks_like_a_lane_is_an_ordinary_id(table: Table, ordinary: str) -> None:
    table.append([{"x": 1}], batch_id=ordinary)
    assert table.append([{"x": 1}], batch_id=ordinary).replayed
    assert table.to_arrow().num_rows == 1
