"""Rows that have expired are dropped by folds: one commit that deletes them, as the feed and the history tell."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.core.expiry import expiry_of
from lithify.core.snapshot import Bounds
from lithify.lake.internals import internals
from lithify.maintenance import expire
from lithify.maintenance.triggers import fold_due
from lithify.options.policy import policy_of
from support.clocks import Stopped, lake_with
from support.effort import examples
from support.folders import memory_folder

NOW = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
SCHEMA = pa.schema([("id", pa.int64()), ("placed", pa.timestamp("us", "UTC")), ("v", pa.int64())])
Row = dict[str, Any]


def ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture
def clock() -> Stopped:
    return Stopped(at_ms=ms(NOW))


@pytest.fixture
def lake(folder: Path, clock: Stopped) -> Iterator[Lake]:
    with lake_with(clock, folder / "lake") as lake:
        yield lake


def orders(lake: Lake, expires: str = "placed + interval '90 days'", **more: Any) -> Table:
    return lake.create_table("shop.orders", SCHEMA, **{"key": "id", **more}, expires=expires)


def row(id: int, placed: dt.datetime | None, v: int = 0) -> Row:
    return {"id": id, "placed": placed, "v": v}


def in_base(table: Table) -> list[int]:
    """What another engine sees."""
    files = [str(table.base_path / file.path) for file in table.snapshot().base]
    return (
        []
        if not files
        else [id for (id,) in duckdb.sql(f"select id from read_parquet({files}) order by id").fetchall()]
    )


def fed(table: Table, since: int = 0) -> list[tuple[str, int]]:
    return [(line["_kind"], line["id"]) for line in table.feed(since).to_pylist()]


def test_a_fold_drops_what_has_expired_in_the_files_that_it_rewrites(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(id, NOW - (88 + id % 2) * DAY) for id in range(10)])
    table.upsert([row(20, NOW + 1000 * DAY)])
    table.fold()
    assert in_base(table) == [*range(10), 20]
    clock.at_ms = ms(NOW + DAY)
    before = table.upsert([row(2, NOW)]).seq
    report = table.fold()
    assert (report.expired_rows, report.deleted) == (5, 5)
    assert in_base(table) == [0, 2, 4, 6, 8, 20]
    assert fed(table, before) == [("delete", id) for id in (1, 3, 5, 7, 9)]
    assert "expire" in {entry.operation for entry in table.history(2)}
    assert b"lithify_expired_rows_total 5.0" in internals(table).runtime.counters.text()
    assert table.fold().expired_rows == 0


def test_files_that_nobody_rewrites_go_when_all_of_their_rows_have_expired(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    for start in (0, 100):
        table.upsert([row(start + n, NOW - start / 100 * 20 * DAY + n * DAY / 10) for n in range(10)])
        table.fold()
    assert len(table.snapshot().base) == 2
    clock.at_ms = ms(NOW + 70 * DAY + DAY / 2)  # half of the second file: the rest soon follows
    policy, snapshot = policy_of(internals(table).runtime.settings), table.snapshot()
    assert fold_due(snapshot, policy, clock.at_ms) is None
    assert table.fold().expired_rows == 0
    assert len(in_base(table)) == 20
    assert table.count() == 14
    clock.at_ms = ms(NOW + 71 * DAY)
    due = fold_due(snapshot, policy, clock.at_ms)
    assert due is not None
    assert "1 file with rows that have expired" in due.why
    lake.maintain()
    assert in_base(table) == list(range(10))
    assert fold_due(table.snapshot(), policy, clock.at_ms) is None


def test_a_file_of_which_half_has_long_expired_is_worth_rewriting() -> None:
    expiry = expiry_of("placed + interval '90 days'", SCHEMA)
    cutoff = expiry.at(ms(NOW))
    edge = NOW - 90 * DAY

    def worth(low: dt.datetime, high: dt.datetime) -> bool:
        return expiry.worth_dropping(Bounds(low, high, 0), cutoff)

    assert worth(edge - DAY, edge)
    assert not worth(edge + DAY, edge + 2 * DAY)
    assert worth(edge - 100 * DAY, edge + 100 * DAY)
    assert not worth(edge - 90 * DAY, edge + 100 * DAY)  # not half yet
    assert not worth(edge - 100 * DAY, edge + 20 * DAY)  # the rest follows soon
    assert not expiry.worth_dropping(Bounds(None, None, None), cutoff)


def test_pending_rows_that_have_expired_never_reach_base(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(1, NOW - 100 * DAY), row(2, NOW), row(3, None)])
    assert table.fold().expired_rows == 1
    assert in_base(table) == [2, 3]
    assert fed(table) == [("insert", 1), ("insert", 2), ("insert", 3), ("delete", 1)]


def test_what_was_dropped_does_not_come_back_and_what_was_hidden_may(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(1, NOW - 100 * DAY), row(2, NOW)])
    table.fold()
    table.upsert([row(3, NOW - 95 * DAY)])
    table.set_options({"expires": "placed + interval '200 days'"})
    assert sorted(table.to_arrow().column("id").to_pylist()) == [2, 3]
    table.set_options({"expires": None})
    assert sorted(table.to_arrow().column("id").to_pylist()) == [2, 3]


@pytest.mark.parametrize("options", [{}, {"order_by": "v"}, {"key": None}])
def test_nothing_is_dropped_that_was_written_or_kept_meanwhile(
    lake: Lake, clock: Stopped, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders(lake, **options)
    write = table.upsert if table.definition.keyed else table.append
    write([row(1, NOW - 100 * DAY, 1), row(2, NOW - 101 * DAY, 1), row(3, NOW, 1)])
    found = expire._expired

    def overtaken(*args: Any, **how: Any) -> Any:
        answer = found(*args, **how)
        monkeypatch.setattr(expire, "_expired", found)
        write([row(1, NOW, 2)])
        return answer

    monkeypatch.setattr(expire, "_expired", overtaken)
    assert table.fold().expired_rows == (1 if table.definition.keyed else 2)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 3]
    assert in_base(table) == [1, 3]

    def changed(*args: Any, **how: Any) -> Any:
        answer = found(*args, **how)
        table.set_options({"expires": None})
        return answer

    write([row(4, NOW - 100 * DAY, 1)])
    monkeypatch.setattr(expire, "_expired", changed)
    assert table.fold().expired_rows == 0
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 3, 4]


def test_an_older_version_does_not_come_back_once_a_newer_one_was_dropped(lake: Lake, clock: Stopped) -> None:
    columns = pa.schema([("id", pa.int64()), ("o", pa.int64()), ("till", pa.timestamp("us", "UTC"))])
    table = lake.create_table("shop.t", columns, key="id", order_by="o", expires="till")
    alive = {"id": 1, "o": 5, "till": NOW + DAY}
    table.upsert([alive])
    table.fold()
    table.upsert([{"id": 1, "o": 6, "till": NOW - DAY}])
    assert table.fold().expired_rows == 1
    table.upsert([alive])
    assert table.get(1) is None
    table.fold()
    assert (table.get(1), in_base(table)) == (None, [])
    table.update([{"id": 1, "o": 5, "till": NOW + DAY}])
    assert table.get(1) is None
    table.upsert([{**alive, "o": 7}])
    table.fold()
    assert table.get(1) == {**alive, "o": 7}
    assert fed(table, 2) == [("delete", 1), ("insert", 1)]


def test_of_several_order_columns_all_are_remembered(lake: Lake, clock: Stopped) -> None:
    columns = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("till", pa.timestamp("us", "UTC"))])
    table = lake.create_table("shop.t", columns, key="id", order_by=["a", "b"], expires="till")
    table.upsert([{"id": 1, "a": 5, "b": 5, "till": NOW - DAY}, {"id": 2, "a": 5, "b": None, "till": NOW - DAY}])
    assert table.fold().expired_rows == 2
    table.upsert([{"id": id, "a": 5, "b": 4, "till": None} for id in (1, 2)])
    assert table.to_arrow().column("id").to_pylist() == [2]


def test_a_row_without_an_order_value_beat_nothing_that_could_come_back(lake: Lake, clock: Stopped) -> None:
    table = orders(lake, order_by="v")
    table.upsert([row(1, NOW - 100 * DAY, None), row(2, NOW - 100 * DAY, 3)])  # type: ignore[arg-type]
    assert table.fold().expired_rows == 2
    table.upsert([row(1, NOW, None), row(2, NOW, None)])  # type: ignore[arg-type]
    assert in_base(table) == []
    assert table.to_arrow().to_pylist() == [row(1, NOW, None)]  # type: ignore[arg-type]


def test_optimize_drops_all_that_has_expired(lake: Lake, clock: Stopped) -> None:
    table = orders(lake)
    table.upsert([row(n, NOW - n * DAY) for n in range(100)])
    clock.at_ms = ms(NOW - 200 * DAY)
    table.fold()
    clock.at_ms = ms(NOW)
    table.optimize(by="v")
    assert in_base(table) == list(range(90))


def test_a_day_is_detached_without_what_has_expired(lake: Lake, clock: Stopped, folder: Path) -> None:
    table = orders(lake, time="placed")
    clock.at_ms = ms(NOW - 200 * DAY)
    midnight = (NOW - 90 * DAY).replace(hour=0)
    table.upsert([row(hour, midnight + dt.timedelta(hours=hour)) for hour in range(24)])
    table.fold()
    clock.at_ms = ms(NOW)
    assert table.detach(midnight.date(), folder / "out").rows == 11
    [(rows,)] = duckdb.sql(f"select count(*) from read_parquet('{folder}/out/*.parquet')").fetchall()
    assert rows == 11


def test_a_table_without_expiry_is_folded_as_ever(lake: Lake, clock: Stopped) -> None:
    table = lake.create_table("shop.orders", SCHEMA, key="id")
    table.upsert([row(1, NOW - 1000 * DAY)])
    seq = table.fold().seq
    assert (seq, in_base(table)) == (1, [1])
    assert table.snapshot().moment_ms is None


class Model:
    """A table beside a dict of all rows that were not dropped, and what every commit left to be seen."""

    def __init__(self, seed: int, root: Path, stack: ExitStack) -> None:
        self.random = random.Random(seed)
        self.clock = Stopped(at_ms=ms(NOW))
        self.lake = stack.enter_context(lake_with(self.clock, root))
        self.order_by = self.random.choice([None, "v"])
        always = 24 * 365 * 10  # nothing is forgotten, and no vacuum takes what was seen
        kept = {"late_hours": always, "vacuum_retain_hours": always, "log_retain_hours": always}
        self.table = orders(self.lake, "placed + interval '10 days'", order_by=self.order_by, options=kept)
        if self.random.random() < 0.3:
            self.lake.cache.pin("shop.orders")
        self.rows: dict[int, Row] = {}
        self.graves: dict[int, int] = {}
        self.seen: dict[int, list[Row]] = {}
        self.seq = 0

    def visible(self) -> list[Row]:
        cutoff = dt.datetime.fromtimestamp(self.clock.at_ms / 1000, dt.UTC) - 10 * DAY
        there = [r for r in self.rows.values() if r["placed"] is None or r["placed"] > cutoff]
        return sorted(there, key=lambda r: r["id"])

    def moment(self) -> dt.datetime | None:
        days = self.random.choice([None, -30, -11, -9, -8, 0, 1, 20, 3000])
        return None if days is None else dt.datetime.fromtimestamp(self.clock.at_ms / 1000, dt.UTC) + days * DAY

    def step(self) -> None:
        what = self.random.choice(["upsert", "upsert", "upsert", "update", "delete", "fold", "fold", "wait", "minor"])
        keys = self.random.sample(range(12), self.random.randint(1, 5))
        match what:
            case "upsert":
                values = [None, *range(10)]
                rows = [row(key, self.moment(), self.random.choice(values)) for key in keys]  # type: ignore[arg-type]
                self.committed(self.table.upsert(rows).seq)
                for each in rows:
                    if not self.late(each):
                        self.rows[each["id"]] = each
                        self.graves.pop(each["id"], None)
            case "update" if self.order_by is None:
                moment = self.moment()
                self.committed(self.table.update([{"id": key, "placed": moment} for key in keys]).seq)
                for key in keys:
                    self.rows[key] = {**self.rows.get(key, row(key, None, None)), "placed": moment}  # type: ignore[arg-type]
            case "delete":
                self.committed(self.table.delete(keys).seq)
                for key in keys:
                    self.rows.pop(key, None)
                    self.graves.pop(key, None)
            case "fold":
                expired_rows = self.table.fold().expired_rows
                assert self.dropped() == expired_rows
                assert set(in_base(self.table)) == set(self.rows)
            case "minor":
                self.lake.maintain()
                self.dropped()
            case "wait":
                self.clock.at_ms += self.random.choice([1, 3_600_000, 86_400_000, 5 * 86_400_000])
        self.seen.setdefault(self.seq, self.visible())
        self.check()

    def late(self, given: Row) -> bool:
        """Whether something newer is or was there."""
        there = self.rows.get(given["id"])
        newest = self.graves.get(given["id"]) if there is None else there["v"]
        return self.order_by is not None and newest is not None and (given["v"] is None or given["v"] < newest)

    def dropped(self) -> int:
        """What maintenance has deleted must have been hidden."""
        shown, lines = {r["id"] for r in self.visible()}, fed(self.table, self.seq)
        for kind, id in lines:
            assert (kind, id in shown) == ("delete", False)
            gone = self.rows.pop(id)
            if gone["v"] is not None:
                self.graves[id] = gone["v"]
        self.seq = self.table.snapshot().seq
        return len(lines)

    def committed(self, seq: int) -> None:
        self.clock.at_ms += 1
        self.seq = seq

    def check(self) -> None:
        expected = self.visible()
        assert sorted(self.table.to_arrow().to_pylist(), key=lambda r: r["id"]) == expected
        assert self.table.count() == len(expected)
        told = self.lake.sql("select count(*) c, count(v) v from shop.orders where id < 10").to_pylist()
        low = [r for r in expected if r["id"] < 10]
        assert told == [{"c": len(low), "v": sum(r["v"] is not None for r in low)}]
        seq = self.random.choice(list(self.seen))
        assert sorted(self.table.to_arrow(as_of=seq).to_pylist(), key=lambda r: r["id"]) == self.seen[seq]
        key = self.random.randrange(12)
        assert self.table.get(key) == next((r for r in expected if r["id"] == key), None)
        replayed: dict[int, Row] = {}
        for line in self.table.feed(0).to_pylist():
            kind, _ = line.pop("_kind"), line.pop("_seq")
            if kind == "delete":
                del replayed[line["id"]]
            else:
                replayed[line["id"]] = line
        assert replayed == self.rows


@pytest.mark.parametrize("seed", range(examples(4, soak=300)))
def test_random_programs_show_what_a_dict_shows(seed: int) -> None:
    with memory_folder() as folder, ExitStack() as stack:
        model = Model(seed, folder / "lake", stack)
        for _ in range(30):
            model.step()
