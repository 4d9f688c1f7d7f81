"""The rows of an earlier version become the newest commit, and rows that are there already are not written.

Random programs are compared with plain dicts: after a restore the table holds what it held then, the commit says no
more than what differs, and every version in between is what it was.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lithify import Commit, Conflict, InvalidRequest, Lake, LimitExceeded, NotFound, RestorePlan, Table
from lithify.write import decided, restore
from support.background import merge_changes
from support.clocks import Clock, lake_with, next_ms
from support.faults import FaultyStore, Gate
from support.folders import memory_folder

NAN = float("nan")
SCHEMA = pa.schema([("id", pa.int64()), ("o", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.string()))])
Row = dict[str, Any]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 5),
            "o": st.sampled_from([None, 1, 2]),
            "f": st.sampled_from([None, NAN, 0.0, -0.0]),
            "l": st.sampled_from([None, [], [None], ["a"]]),
        }
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row["id"],
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "replace", "if_changed", "if_changed"]), ROWS),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("restore"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["fold", "compact", "merge"]), st.none()),
    ),
    max_size=14,
)


def told(row: Row) -> str:
    return repr(sorted(row.items()))  # tells -0.0 from 0.0, and NaN is itself


class Model:
    def __init__(self, table: Table, ordered: bool) -> None:
        self.table, self.ordered = table, ordered
        self.rows: dict[int, Row] = {}
        self.states: list[dict[int, Row]] = [{}]

    def step(self, kind: str, what: Any) -> None:
        getattr(self, f"_{kind}")(what)
        assert self.table.snapshot().seq == len(self.states) - 1
        self.check(None)

    def check(self, seq: int | None) -> None:
        wanted = self.rows if seq is None else self.states[seq]
        found = self.table.to_arrow(as_of=seq).to_pylist()
        assert sorted(map(told, found)) == sorted(map(told, wanted.values()))

    def _put(self, rows: list[Row], *, beats: bool = False) -> None:
        for row in rows:
            known = self.rows.get(row["id"])
            loses = known is not None and known["o"] is not None and (row["o"] is None or row["o"] < known["o"])
            if beats or not self.ordered or not loses:
                self.rows = {**self.rows, row["id"]: row}
        self.states.append(self.rows)

    def _upsert(self, rows: list[Row]) -> None:
        self.table.upsert(rows)
        self._put(rows)

    def _replace(self, rows: list[Row]) -> None:
        self.table.replace(rows)
        self._put(rows, beats=True)

    def _if_changed(self, rows: list[Row]) -> None:
        before = self.table.snapshot().seq
        commit = self.table.upsert(rows, if_changed=True)
        new = [row for row in rows if row["id"] not in self.rows or told(self.rows[row["id"]]) != told(row)]
        assert (commit.upserted, commit.skipped) == (len(new), len(rows) - len(new))
        if new:
            self._put(new)
        written = self.table.feed(before).column("id").to_pylist()
        assert set(written) <= {row["id"] for row in new}

    def _delete(self, keys: list[int]) -> None:
        self.table.delete(keys)
        self.rows = {key: row for key, row in self.rows.items() if key not in keys}
        self.states.append(self.rows)

    def _restore(self, number: int) -> None:
        to = number % len(self.states)
        then = self.states[to]
        written = [key for key, row in then.items() if key not in self.rows or told(self.rows[key]) != told(row)]
        deleted = [key for key in self.rows if key not in then]
        plan = self.table.restore(to, dry_run=True)
        assert plan == RestorePlan(self.table.name, to, len(self.states) - 1, len(written), len(deleted))
        commit = self.table.restore(to)
        assert (commit.upserted, commit.deleted) == (len(written), len(deleted))
        if written or deleted:
            self.rows = then
            self.states.append(then)
            kinds = self.table.feed(commit.seq - 1).column("_kind").to_pylist()
            assert len(kinds) == len(written) + len(deleted)

    def _fold(self, _: None) -> None:
        self.table.fold()

    def _compact(self, _: None) -> None:
        self.table.optimize(by="id")

    def _merge(self, _: None) -> None:
        merge_changes(self.table)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, ordered=st.booleans())
def test_programs(steps: list[tuple[str, Any]], ordered: bool) -> None:
    with memory_folder() as folder, Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", order_by="o" if ordered else None)
        model = Model(table, ordered)
        for kind, what in steps:
            model.step(kind, what)
        for seq in range(len(model.states)):
            model.check(seq)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(folder: Path, clock: Clock) -> Iterator[Lake]:
    with lake_with(clock, folder / "lake") as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    table.upsert([{"id": 1, "v": "one"}, {"id": 2, "v": "two"}])
    return table


def overtaken(lake: Lake, write: Callable[[Table], Commit], theirs: list[Row]) -> Commit:
    """A write of another process's, with `theirs` committed just before its own commit."""
    gate = Gate()
    with (
        Lake(lake.path, create=False, store=FaultyStore("write.commit", gate.hold)) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        writing = thread.submit(lambda: write(other.table("a.t")))
        gate.wait()
        lake.table("a.t").upsert(theirs)
        gate.open()
        return writing.result(60)


def rows(table: Table, as_of: Any = None) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.to_arrow(as_of=as_of).to_pylist()}


# -- restore


def test_a_restore_is_one_commit_that_undoes_what_changed(table: Table) -> None:
    table.tag("before-import")
    moment = dt.datetime.fromtimestamp(next_ms() / 1000, dt.UTC)
    next_ms()
    table.upsert([{"id": 2, "v": "wrong"}, {"id": 3, "v": "new"}])
    table.delete([1])
    table.fold()
    commit = table.restore("before-import", actor="me", reason="a bad import")
    assert (commit.operation, commit.seq, commit.upserted, commit.deleted) == ("restore", 4, 2, 1)
    assert rows(table) == {1: "one", 2: "two"}
    assert rows(table, 3) == {2: "wrong", 3: "new"}
    entry = table.history()[0]
    assert (entry.operation, entry.reason, entry.actor, entry.detail) == ("restore", "a bad import", "me", "to seq 1")
    table.restore(3)
    assert rows(table) == {2: "wrong", 3: "new"}
    table.restore(moment)
    assert rows(table) == {1: "one", 2: "two"}


def test_a_restore_beats_higher_order_values(lake: Lake) -> None:
    table = lake.create_table("a.o", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id", order_by="v")
    table.upsert([{"id": 1, "v": "a"}])
    table.upsert([{"id": 1, "v": "b"}])
    table.restore(1)
    assert rows(table) == {1: "a"}
    table.fold()
    assert rows(table) == {1: "a"}


def test_a_column_that_came_since_is_null_in_rows_that_come_back(table: Table) -> None:
    table.add_column(pa.field("more", pa.int64()))
    table.upsert([{"id": 1, "v": "one", "more": 1}])
    assert table.restore(1).upserted == 1
    assert table.get(1) == {"id": 1, "v": "one", "more": None}


def test_nothing_to_restore_is_no_commit(table: Table) -> None:
    assert table.restore(1) == Commit("a.t", 1, "restore", 0)
    table.upsert([{"id": 1, "v": "x"}])
    table.upsert([{"id": 1, "v": "one"}])
    assert (table.restore(1).seq, table.restore(1).rows) == (3, 0)


def test_a_restore_with_a_batch_id_is_done_once(table: Table) -> None:
    table.upsert([{"id": 3, "v": "new"}])
    first = table.restore(1, batch_id="r1")
    table.upsert([{"id": 4, "v": "newer"}])
    again = table.restore(1, batch_id="r1")
    assert (again.replayed, again.seq, again.deleted) == (True, first.seq, 1)
    assert set(rows(table)) == {1, 2, 4}


def test_a_version_of_which_vacuum_has_taken_the_changes_since_is_compared_whole(table: Table, clock: Clock) -> None:
    table.fold()
    table.tag("kept")
    table.upsert([{"id": 2, "v": "wrong"}, {"id": 3, "v": "new"}])
    table.fold()
    table.optimize(by="v")
    clock.jump(hours=200)
    table.vacuum(dry_run=False)
    with pytest.raises(NotFound):
        table.feed(1)
    assert table.restore("kept", dry_run=True) == RestorePlan("a.t", 1, 2, 1, 1)
    table.restore("kept")
    assert rows(table) == {1: "one", 2: "two"}


def test_a_version_that_is_gone_is_refused(table: Table, clock: Clock) -> None:
    table.fold()
    table.upsert([{"id": 2, "v": "wrong"}])
    table.fold()
    clock.jump(hours=200)
    table.vacuum(dry_run=False)
    with pytest.raises(NotFound, match="no longer"):
        table.restore(1)
    assert rows(table) == {1: "one", 2: "wrong"}


def test_what_cannot_be_restored_is_refused(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    keyless = lake.create_table("a.k", pa.schema([("x", pa.int64())]))
    keyless.append([{"x": 1}])
    with pytest.raises(InvalidRequest, match="has no key"):
        keyless.restore(0)
    with pytest.raises(InvalidRequest, match="which version"):
        table.restore(None)
    with pytest.raises((InvalidRequest, NotFound)):
        table.restore(99)
    with pytest.raises((InvalidRequest, NotFound)):
        table.restore("no-such-tag")
    table.upsert([{"id": n, "v": "x"} for n in range(9)])
    monkeypatch.setattr(restore, "ROWS_MAX", 8)
    for dry_run in (True, False):
        with pytest.raises(LimitExceeded, match="9 changes were made since, more than 8"):
            table.restore(1, dry_run=dry_run)  # type: ignore[call-overload]
    assert table.snapshot().seq == 2


def test_a_restore_is_worked_out_again_when_it_lost_the_race(lake: Lake, table: Table) -> None:
    table.upsert([{"id": 1, "v": "wrong"}])
    commit = overtaken(lake, lambda there: there.restore(1), [{"id": 2, "v": "wrong too"}, {"id": 3, "v": "new"}])
    assert (commit.seq, commit.upserted, commit.deleted) == (4, 2, 1)
    assert rows(table) == {1: "one", 2: "two"}


# -- if_changed


def test_rows_that_are_there_already_are_not_written(table: Table) -> None:
    commit = table.upsert([{"id": 1, "v": "one"}, {"id": 2, "v": "TWO"}, {"id": 3, "v": None}], if_changed=True)
    assert (commit.seq, commit.rows, commit.upserted, commit.skipped) == (2, 2, 2, 1)
    assert table.feed(1).column("id").to_pylist() == [2, 3]
    again = table.upsert([{"id": 1, "v": "one"}, {"id": 3, "v": None}], if_changed=True)
    assert again == Commit("a.t", 2, "upsert", 0, skipped=2)
    assert table.snapshot().seq == 2


def test_of_several_rows_of_a_key_the_last_one_is_compared(table: Table) -> None:
    commit = table.upsert([{"id": 1, "v": "x"}, {"id": 1, "v": "one"}], if_changed=True)
    assert (commit.upserted, commit.skipped) == (0, 1)


def test_with_a_batch_id_nothing_new_is_remembered_too(table: Table) -> None:
    first = table.upsert([{"id": 1, "v": "one"}], "b1", if_changed=True)
    table.upsert([{"id": 1, "v": "newer"}])
    again = table.upsert([{"id": 1, "v": "one"}], "b1", if_changed=True)
    assert (first.skipped, again.skipped, again.replayed) == (1, 1, True)
    assert rows(table)[1] == "newer"


def test_what_is_there_is_looked_at_again_when_the_write_lost_the_race(lake: Lake, table: Table) -> None:
    mine, theirs = [{"id": 1, "v": "one"}, {"id": 2, "v": "2"}], [{"id": 1, "v": "meanwhile"}, {"id": 2, "v": "2"}]
    commit = overtaken(lake, lambda there: there.upsert(mine, if_changed=True), theirs)
    assert (commit.upserted, commit.skipped) == (1, 1)
    assert rows(table) == {1: "one", 2: "2"}


def test_who_is_overtaken_each_time_gives_up_with_nothing_written(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decided, "ROUNDS_MAX", 3)
    looked, looks = decided.same_rows, []

    def overtaken(*arguments: Any) -> Any:
        looks.append(table.upsert([{"id": 9, "v": str(len(looks))}]))
        return looked(*arguments)

    monkeypatch.setattr(decided, "same_rows", overtaken)
    with pytest.raises(Conflict, match="overtaken by other writers 3 times"):
        table.upsert([{"id": 1, "v": "x"}], if_changed=True)
    assert (len(looks), rows(table)[1]) == (3, "one")


def test_if_changed_on_a_table_with_no_key_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="has no key"):
        lake.create_table("a.k", pa.schema([("x", pa.int64())])).upsert([{"x": 1}], if_changed=True)
