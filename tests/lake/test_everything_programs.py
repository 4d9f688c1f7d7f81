"""Random programs over all that changes rows, compared with a dict: writes, SQL, rules, order, partitions, restores,
retractions, expiry, folds, merges of changes, compactions and hot tables, through two lakes on one folder. After each
step both show the dict's rows, a past version shows what it showed, and the feed since then leads to what is there.
"""

from __future__ import annotations

import datetime as dt
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Settings, Table
from support.background import merge_changes
from support.clocks import Stopped, lake_with
from support.effort import examples
from support.folders import memory_folder

NOW = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
DAY_MS = 86_400_000
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("s", pa.string()),
        ("o", pa.int64()),
        ("till", pa.timestamp("us", "UTC")),
        ("h", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)
NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS.names[1:])
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rules": {"merge_rules": {"v": "sum", "s": "max", "o": "count"}},
    "order": {"order_by": "o"},
    "parts": {"partition_by": "s"},
    "expiry": {"expires": "till"},
    "order and expiry": {"order_by": "o", "expires": "till"},
}
SETTINGS = Settings(pack_files_min=2, minor_files_min=2, cache_bytes_max=2**24, checkpoint_every=4)
KEPT = {"late_hours": 87_600, "vacuum_retain_hours": 87_600, "log_retain_hours": 87_600}
STEPS = (
    *("upsert", "upsert", "update", "update_if_changed", "if_changed", "replace", "delete", "delete_at", "retract"),
    *("sql_update", "sql_delete", "sql_merge", "sql_conflict", "sql_insert", "restore"),
    *("fold", "fold", "compact", "minor", "optimize", "pin", "wait"),
)
Row = dict[str, Any]


class Program:
    """`rows`: what is there, also what has expired and was not dropped; `graves`: by what a key is gone, in its order;
    `seen`: what every seq showed.
    """

    def __init__(self, seed: int, root: Path, stack: ExitStack) -> None:
        self.random = random.Random(seed)
        self.clock = Stopped(at_ms=int(NOW.timestamp() * 1000))
        self.lakes = [stack.enter_context(lake_with(self.clock, root, SETTINGS)) for _ in range(2)]
        self.kind = self.random.choice(list(KINDS))
        self.ruled, self.ordered = self.kind == "rules", self.kind.startswith("order")
        self.expires = self.kind.endswith("expiry")
        self.lakes[0].create_table("s.t", COLUMNS, key="id", options=KEPT, **KINDS[self.kind])
        self.rows: dict[int, Row] = {}
        self.graves: dict[int, int] = {}
        self.seen: dict[int, dict[int, Row]] = {}
        self.said: list[str] = [f"seed {seed}: {self.kind}"]
        self.check()

    @property
    def table(self) -> Table:
        return self.random.choice(self.lakes).table("s.t")

    @property
    def lake(self) -> Lake:
        return self.random.choice(self.lakes)

    # -- what should be there

    def visible(self) -> dict[int, Row]:
        now = dt.datetime.fromtimestamp(self.clock.at_ms / 1000, dt.UTC)
        hides = self.expires
        return {k: row for k, row in self.rows.items() if not hides or row["till"] is None or row["till"] > now}

    def value(self) -> Row:
        pick = self.random.choice
        days = pick([None, -2, 1, 3])
        now = dt.datetime.fromtimestamp(self.clock.at_ms / 1000, dt.UTC)
        return {
            "v": pick([None, 1, 2, 3, -5]),
            "s": pick([None, "a", "b", "c"]),
            "o": pick([None, 1, 2, 3, 4]),
            "till": None if days is None else now + dt.timedelta(days=days),
            "h": pick([None, {"x": 1, "y": None}, {"x": None, "y": "q"}]),
        }

    def late(self, key: int, order: int | None) -> bool:
        newest = self.rows[key]["o"] if key in self.rows else self.graves.get(key)
        return self.ordered and newest is not None and (order is None or order < newest)

    def put(self, key: int, row: Row) -> None:
        self.rows[key] = row
        self.graves.pop(key, None)

    def gone(self, key: int) -> None:
        self.rows.pop(key, None)
        self.graves.pop(key, None)

    def write(self, key: int, row: Row, given: tuple[str, ...] = tuple(NOTHING)) -> None:
        """A line that gives some columns, by the rules of the table."""
        there = self.rows.get(key, NOTHING)
        if self.ruled:
            self.rows[key] = _contributed(there, row, given)
        elif not self.late(key, row["o"]):
            self.put(key, {**there, **{name: row[name] for name in given}})

    # -- steps

    def step(self) -> None:
        what = self.random.choice(STEPS)
        keys = self.random.sample(range(8), self.random.randint(1, 3))
        rows = {key: self.value() for key in keys}
        self.said.append(f"{what} {rows}")
        self.clock.at_ms += 1
        getattr(self, what)(rows)
        self.check()

    def upsert(self, rows: dict[int, Row]) -> None:
        batch = self.random.choice([None, f"b{len(self.said)}"])
        for _ in range(1 if batch is None else 2):  # with an id it counts once
            self.table.upsert([{"id": key, **row} for key, row in rows.items()], batch_id=batch)
        for key, row in rows.items():
            self.write(key, row)

    def update(self, rows: dict[int, Row], *, if_changed: bool = False) -> None:
        given = tuple(self.random.sample(["v", "s", "till", "h"], self.random.randint(0, 4)))
        given = (*given, "o") if self.ordered or self.random.random() < 0.5 else given
        missing: Any = self.random.choice(["insert", "insert", "skip"])
        lines = [{"id": key, **{name: row[name] for name in given}} for key, row in rows.items()]
        self.said[-1] += f" {given} {missing}"
        self.table.update(lines, missing=missing, if_changed=if_changed)
        for key, row in rows.items():
            if missing == "insert" or key in self.rows:
                self.write(key, row, given)

    def update_if_changed(self, rows: dict[int, Row]) -> None:
        if not self.ruled:
            self.update(rows, if_changed=True)

    def if_changed(self, rows: dict[int, Row]) -> None:
        if self.ruled:
            return
        same = {key: self.rows[key] for key in rows if key in self.visible()}
        rows = {**rows, **(same if self.random.random() < 0.5 else {})}
        self.table.upsert([{"id": key, **row} for key, row in rows.items()], if_changed=True)
        for key, row in rows.items():
            self.write(key, row)

    def replace(self, rows: dict[int, Row]) -> None:
        self.table.replace([{"id": key, **row} for key, row in rows.items()])
        for key, row in rows.items():
            self.put(key, row)

    def delete(self, rows: dict[int, Row]) -> None:
        self.table.delete(list(rows))
        for key in rows:
            self.gone(key)

    def delete_at(self, rows: dict[int, Row]) -> None:
        if not self.ordered:
            return
        at = self.random.randint(1, 4)
        self.said[-1] += f" at {at}"
        self.table.delete(list(rows), at=at)
        for key in rows:
            if not self.late(key, at):
                self.gone(key)
                self.graves[key] = at

    def retract(self, rows: dict[int, Row]) -> None:
        if not self.ruled:
            return
        self.table.retract([{"id": key, "v": 2} for key in rows])
        for key in rows:
            there = self.rows.get(key, NOTHING)
            self.rows[key] = {**there, "v": (there["v"] or 0) - 2, "o": (there["o"] or 0) - 1}

    def sql_update(self, rows: dict[int, Row]) -> None:
        text, holds = self.random.choice(
            [
                ("v > 0", lambda key, row: row["v"] is not None and row["v"] > 0),
                ("s = 'a'", lambda key, row: row["s"] == "a"),
                ("o is null or id < 3", lambda key, row: row["o"] is None or key < 3),
                (f"id in ({', '.join(map(str, rows))})", lambda key, row: key in rows),
            ]
        )
        self.said[-1] += f" where {text}"
        done = self.lake.execute(
            f"update s.t set v = coalesce(v, 0) + 1, h = named_struct('x', id, 'y', s) where {text}"
        )
        hit = [key for key, row in self.visible().items() if holds(key, row)]
        assert done.updated == len(hit)
        for key in hit:
            row = self.rows[key]
            self.rows[key] = {**row, "v": (row["v"] or 0) + 1, "h": {"x": key, "y": row["s"]}}

    def sql_delete(self, rows: dict[int, Row]) -> None:
        done = self.lake.execute("delete from s.t where v < 2 or s = 'c'")
        # What has expired and is only hidden goes too.
        hit = [key for key, row in self.rows.items() if (row["v"] is not None and row["v"] < 2) or row["s"] == "c"]
        assert done.deleted == len(hit)
        for key in hit:
            self.gone(key)

    def sql_merge(self, rows: dict[int, Row]) -> None:
        values = ", ".join(f"({key}, {'null' if row['v'] is None else row['v']})" for key, row in rows.items())
        self.lake.execute(
            f"merge into s.t t using (select column1 as id, cast(column2 as bigint) as v from (values {values})) s "
            "on t.id = s.id when matched and s.v = 1 then delete when matched then update set v = s.v "
            "when not matched and s.v is not null then insert (id, v, s) values (s.id, s.v, 'n') "
            "when not matched by source and t.s = 'b' then update set s = 'bb'"
        )
        there = self.visible()
        for key, row in rows.items():
            if key in there and row["v"] == 1:
                self.gone(key)
            elif key in there:
                self.rows[key] = {**there[key], "v": row["v"]}
            elif row["v"] is not None:
                self.put(key, {**NOTHING, "v": row["v"], "s": "n"})
        for key, row in there.items():
            if key not in rows and row["s"] == "b":
                self.rows[key] = {**row, "s": "bb"}

    def sql_conflict(self, rows: dict[int, Row]) -> None:
        values = ", ".join(f"({key}, 'z', 7)" for key in rows)
        self.lake.execute(
            f"insert into s.t (id, s, v) values {values} "
            "on conflict (id) do update set s = t.s || excluded.s, o = 2 where t.v > 0"
        )
        there = self.visible()
        for key in rows:
            if key not in there:
                self.put(key, {**NOTHING, "v": 7, "s": "z"})
            elif (there[key]["v"] or 0) > 0:
                text = there[key]["s"]
                self.rows[key] = {**there[key], "s": None if text is None else text + "z", "o": 2}

    def sql_insert(self, rows: dict[int, Row]) -> None:
        seq = self.random.choice(sorted(self.seen))
        self.said[-1] += f" of {seq}"
        self.lake.execute("insert into s.t select * from s.t version as of $1 on conflict do nothing", parameters=[seq])
        there = self.visible()
        for key, row in self.seen[seq].items():
            if key not in there:
                self.put(key, row)

    def restore(self, rows: dict[int, Row]) -> None:
        if self.expires:
            return  # what has expired since is left out, and what is hidden now goes: told in tests of its own
        seq = self.random.choice(sorted(self.seen))
        self.said[-1] += f" to {seq}"
        self.table.restore(seq)
        then = self.seen[seq]
        for key in [key for key in self.rows if key not in then]:
            self.gone(key)
        for key, row in then.items():
            if self.rows.get(key) != row:
                self.put(key, row)

    def fold(self, rows: dict[int, Row]) -> None:
        self.table.fold()

    def compact(self, rows: dict[int, Row]) -> None:
        self.table.compact()

    def minor(self, rows: dict[int, Row]) -> None:
        merge_changes(self.table)

    def optimize(self, rows: dict[int, Row]) -> None:
        self.table.optimize(by="v")

    def pin(self, rows: dict[int, Row]) -> None:
        self.lake.cache.pin("s.t")

    def wait(self, rows: dict[int, Row]) -> None:
        self.clock.at_ms += self.random.choice([1, DAY_MS, 3 * DAY_MS])

    # -- looking

    def check(self) -> None:
        expected = self.visible()
        for lake in self.lakes:
            table = lake.table("s.t")
            assert _by_key(table.to_arrow()) == expected, self.said
            told = lake.sql("select count(*) n, sum(v) v from s.t").to_pylist()
            values = [row["v"] for row in expected.values() if row["v"] is not None]
            assert told == [{"n": len(expected), "v": sum(values) if values else None}], self.said
        self._settle(table)
        seq = self.random.choice(sorted(self.seen))
        assert _by_key(table.to_arrow(as_of=seq)) == self.seen[seq], (seq, self.said)
        key = self.random.randrange(8)
        found = table.get(key)
        assert (None if found is None else {n: found[n] for n in NOTHING}) == expected.get(key), self.said
        if not self.expires:  # feeds know of hiding only when a row is dropped
            self._follow(table, seq)

    def _settle(self, table: Table) -> None:
        """What folds have dropped: hidden it was, and now it is gone."""
        seq = table.snapshot().seq
        if self.expires:
            here = {row["id"] for row in table.feed(0).to_pylist()}
            assert set(self.visible()) <= here, self.said
            left = _left_by(table.feed(0).to_pylist())
            for key in [key for key in self.rows if key not in left]:
                assert key not in self.visible(), (key, self.said)
                order = self.rows.pop(key)["o"]
                if self.ordered and order is not None:
                    self.graves[key] = order
            assert left == self.rows, self.said
        self.seen.setdefault(seq, dict(self.visible()))

    def _follow(self, table: Table, seq: int) -> None:
        rows = dict(self.seen[seq])
        for line in table.feed(seq, before=self.random.random() < 0.5).to_pylist():
            kind, _, key = line.pop("_kind"), line.pop("_seq"), line.pop("id")
            if kind == "update_before":
                assert rows[key] == line, (seq, self.said)
            elif kind == "delete":
                assert rows.pop(key) == line, (seq, self.said)
            else:
                assert (key in rows) is (kind != "insert"), (seq, key, self.said)
                rows[key] = line
        assert rows == self.rows, (seq, self.said)


def _contributed(there: Row, row: Row, given: tuple[str, ...]) -> Row:
    """Sum of v, maximum of s, and o counts the lines."""
    now = {**there, **{name: row[name] for name in given if name in ("till", "h")}}
    if "v" in given and row["v"] is not None:
        now["v"] = row["v"] + (there["v"] or 0)
    if "s" in given and row["s"] is not None:
        now["s"] = row["s"] if there["s"] is None else max(there["s"], row["s"])
    now["o"] = (there["o"] or 0) + 1
    return now


def _by_key(rows: pa.Table) -> dict[int, Row]:
    return {row.pop("id"): row for row in rows.to_pylist()}


def _left_by(lines: list[Row]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for line in lines:
        kind, _, key = line.pop("_kind"), line.pop("_seq"), line.pop("id")
        if kind == "delete":
            del rows[key]
        else:
            rows[key] = line
    return rows


@pytest.mark.parametrize("seed", range(examples(4, soak=400)))
def test_a_program_over_everything_shows_what_a_dict_shows(seed: int) -> None:
    with memory_folder() as folder, ExitStack() as stack:
        program = Program(seed, folder / "lake", stack)
        for _ in range(25):
            program.step()


# -- failures that others have published


def test_a_buffer_of_small_writes_never_counts_fewer_rows_than_none() -> None:
    """Deletes of what was buffered, done twice, made the count of the buffer negative."""
    with memory_folder() as folder, Lake(folder / "lake") as lake:
        table = lake.create_table("s.t", COLUMNS, key="id")
        table.upsert([{"id": id, **NOTHING} for id in range(5)])
        table.delete(list(range(5)))
        table.delete(list(range(5)))
        for _ in range(2):
            assert (table.count(), lake.sql("select count(*) n from s.t").to_pylist()) == (0, [{"n": 0}])
            stats = table.stats()
            assert min(stats.base_rows, stats.pending_rows) >= 0
            table.fold()
        assert table.stats().base_rows == 0


def test_a_flush_takes_no_row_back_to_an_older_version() -> None:
    """What was buffered first was flushed over what had been updated since."""
    with memory_folder() as folder, Lake(folder / "lake") as lake:
        table = lake.create_table("s.t", COLUMNS, key="id")
        table.upsert([{"id": 1, **NOTHING, "v": 1}])
        table.upsert([{"id": 1, **NOTHING, "v": 2}])
        table.fold()
        table.update([{"id": 1, "v": 3}])
        lake.execute("update s.t set v = v + 1")
        merge_changes(table)
        for _ in range(2):
            assert table.get(1) == {"id": 1, **NOTHING, "v": 4}
            table.fold()
