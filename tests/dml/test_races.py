"""A statement that was overtaken is decided again: none of them is lost, and none works on what is no longer there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, Lake, Settings
from support.faults import FaultyStore, Gate

COUNTERS = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def test_counters_that_many_writers_increment_add_up(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", COUNTERS, key="id")
        lake.execute("insert into a.t values (1, 0), (2, 0)")
        with ThreadPoolExecutor(8) as pool:
            texts = [f"update a.t set n = n + 1 where id = {1 + number % 2}" for number in range(40)]
            done = list(pool.map(lake.execute, texts))

        assert {row["id"]: row["n"] for row in lake.table("a.t").to_arrow().to_pylist()} == {1: 20, 2: 20}
        assert len({commit.seq for commit in done}) == 40


def test_of_two_who_insert_a_key_one_is_told_that_it_is_there(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", COUNTERS, key="id")

        def insert(number: int) -> str:
            try:
                lake.execute(f"insert into a.t values (7, {number})")
            except Conflict:
                return "refused"
            return "inserted"

        with ThreadPoolExecutor(4) as pool:
            outcomes = sorted(pool.map(insert, range(4)))

        assert outcomes == ["inserted", "refused", "refused", "refused"]
        assert lake.table("a.t").count() == 1


def test_a_row_that_another_process_changes_meanwhile_is_looked_at_again(folder: Path) -> None:
    """The other one writes between the decision and the commit."""
    with Lake(folder / "lake") as other:
        other.create_table("a.t", COUNTERS, key="id").upsert([{"id": 1, "n": 10}])
        gate = Gate()
        store = FaultyStore("write.files", gate.hold)
        with Lake(folder / "lake", settings=Settings(), store=store) as lake, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lake.execute, "update a.t set n = n + 1 where n >= 10")
            gate.wait()
            other.table("a.t").upsert([{"id": 1, "n": 20}, {"id": 2, "n": 5}])
            gate.open()
            done = waiting.result(60)

        assert (done.updated, done.seq) == (1, 3)
        assert other.sql("select * from a.t order by id").to_pylist() == [{"id": 1, "n": 21}, {"id": 2, "n": 5}]


def test_a_statement_that_is_overtaken_again_and_again_gives_up(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", COUNTERS, key="id")
        table.upsert([{"id": 1, "n": 10}])
        from lithify.dml.attempt import Attempt

        class Overtaken(Attempt):
            def ask(self, query: str, **rows: pa.Table) -> pa.Table:
                found = super().ask(query, **rows)
                table.upsert([{"id": 2, "n": self.snapshot.seq}])
                return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lithify.dml.run.Attempt", Overtaken)
            patch.setattr("lithify.write.decided.ROUNDS_MAX", 3)
            with pytest.raises(Conflict, match="overtaken by other writers 3 times"):
                lake.execute("update a.t set n = 0 where id = 1")

        assert table.get(1) == {"id": 1, "n": 10}


def test_a_row_that_is_rewritten_gets_no_default_of_a_column_that_comes_meanwhile(folder: Path) -> None:
    """A default is for new rows: those that are there keep null."""
    columns = pa.schema([("id", pa.int64()), ("o", pa.int64()), ("n", pa.int64())])
    with Lake(folder / "lake") as other:
        other.create_table("a.t", columns, key="id", order_by="o").upsert([{"id": 1, "o": 1, "n": 1}])
        gate = Gate()
        store = FaultyStore("write.files", gate.hold)
        with Lake(folder / "lake", store=store) as lake, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lake.execute, "update a.t set n = 2 where id = 1")
            gate.wait()
            other.table("a.t").add_column(pa.field("c", pa.string()), default="new")
            gate.open()
            assert waiting.result(60).updated == 1
        assert other.table("a.t").get(1) == {"id": 1, "o": 1, "n": 2, "c": None}
