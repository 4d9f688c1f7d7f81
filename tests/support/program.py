"""Programs over several kinds of tables, and the plain dicts that say what must come out.

`Driver` runs each operation on a real lake and on an oracle, and compares. A test hands it the way to read (the serving
engine or Spark), so that the same programs run on both.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from lithify import InvalidRequest, Lake, NotFound, Settings, Table
from lithify.core.merge_rules import Rule, parse_rule
from lithify.core.order_groups import group_rules
from support.bags import bag
from support.effort import some_back
from support.leftovers import unsettled
from support.rules_oracle import contributed

Row = dict[str, Any]
Read = Callable[[Table, str | None, int | None], list[Row]]

LONG = "z" * 70  # longer than the text that statistics keep
NUMBERS = st.none() | st.integers(-2, 5)
DAY_ONE = dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC)
# Hours of two days, and one that no tier finds old enough.
TIMES = st.none() | st.sampled_from(
    [DAY_ONE + dt.timedelta(minutes=m) for m in (0, 1, 59, 60, 61, 1440, 1445, 40_000_000)]
)
TEXTS = st.none() | st.sampled_from(["", "a", "é", "𝄞", LONG + "a", LONG + "b"])

SCHEMAS: dict[str, dict[str, Any]] = {
    "m.keyed": {
        "schema": pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64()), ("s", pa.string())]),
        "key": ["a", "b"],
    },
    "m.ordered": {
        "schema": pa.schema([("k", pa.int64()), ("o", pa.int64()), ("v", pa.int64()), ("s", pa.string())]),
        "key": "k",
        "order_by": "o",
    },
    "m.ties": {
        "schema": pa.schema(
            [("k", pa.int64()), ("o", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("p", pa.string())]
        ),
        "key": "k",
        "order_by": ["o", "p"],
    },
    "m.keyless": {"schema": pa.schema([("x", pa.int64()), ("s", pa.string()), ("v", pa.int64())])},
    "m.timed": {
        "schema": pa.schema(
            [("k", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.int64()), ("s", pa.string())]
        ),
        "key": "k",
        "time": "at",
    },
    "m.parts": {
        "schema": pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("s", pa.string())]),
        "key": "k",
        "partition_by": "p",
    },
    "m.ruled": {
        "schema": pa.schema(
            [("k", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("n", pa.int64()), ("f", pa.string())]
        ),
        "key": "k",
        "merge_rules": {"v": "sum", "s": "max", "n": "count", "f": "first"},
    },
    "m.groups": {
        "schema": pa.schema(
            [
                *(("k", pa.int64()), ("v", pa.int64()), ("v_at", pa.int64()), ("s", pa.string())),
                *(("t", pa.int64()), ("s_at", pa.timestamp("us", "UTC")), ("n", pa.int64())),
            ]
        ),
        "key": "k",
        "order_groups": {"v_at": ["v"], "s_at": ["s", "t"]},
    },
}
TABLES = ("m.keyed", "m.ordered", "m.ties", "m.keyless", "m.ruled", "m.groups")
ALL_TABLES = tuple(SCHEMAS)
KEYS: dict[str, tuple[str, ...]] = {
    "m.keyed": ("a", "b"),
    "m.ordered": ("k",),
    "m.ties": ("k",),
    "m.keyless": (),
    "m.timed": ("k",),
    "m.parts": ("k",),
    "m.ruled": ("k",),
    "m.groups": ("k",),
}
ORDERS: dict[str, tuple[str, ...]] = {"m.ordered": ("o",), "m.ties": ("o", "p")}
ROWS = {
    "m.keyed": st.fixed_dictionaries(
        {"a": st.integers(0, 3), "b": TEXTS.filter(lambda text: text is not None), "v": NUMBERS}, optional={"s": TEXTS}
    ),
    "m.ordered": st.fixed_dictionaries({"k": st.integers(0, 5), "o": NUMBERS, "v": NUMBERS}, optional={"s": TEXTS}),
    "m.ties": st.fixed_dictionaries(
        {"k": st.integers(0, 3), "o": st.none() | st.integers(0, 2), "p": TEXTS, "v": NUMBERS}, optional={"s": TEXTS}
    ),
    "m.keyless": st.fixed_dictionaries({"x": NUMBERS, "s": TEXTS, "v": NUMBERS}),
    "m.timed": st.fixed_dictionaries({"k": st.integers(0, 7), "at": TIMES, "v": NUMBERS}, optional={"s": TEXTS}),
    "m.parts": st.fixed_dictionaries(
        {"k": st.integers(0, 7), "p": st.sampled_from([None, "a", "b/c"]), "v": NUMBERS}, optional={"s": TEXTS}
    ),
    "m.groups": st.fixed_dictionaries(
        {
            "k": st.integers(0, 3),
            **{"v": NUMBERS, "v_at": st.none() | st.integers(0, 3)},
            **{"s": TEXTS, "t": NUMBERS, "s_at": TIMES},
        },
        optional={"n": NUMBERS},
    ),
    "m.ruled": st.fixed_dictionaries({"k": st.integers(0, 3), "v": NUMBERS}, optional={"s": TEXTS, "f": TEXTS}),
}
ROW_KEYS = (("x",), ("s",), ("s", "x"))
ADDED = st.sampled_from(["added_1", "added_2"])
# Conditions in the words that DataFusion and Spark share, each with its meaning.
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "v > 2": lambda row: row["v"] is not None and row["v"] > 2,
    "v IS NULL": lambda row: row["v"] is None,
    "v <= 0 AND s = 'a'": lambda row: row["v"] is not None and row["v"] <= 0 and row["s"] == "a",
    "s <> 'a'": lambda row: row["s"] is not None and row["s"] != "a",
}
CONDITION_COLUMNS = {"v > 2": ("v",), "v IS NULL": ("v",), "v <= 0 AND s = 'a'": ("s", "v"), "s <> 'a'": ("s",)}


@dataclass
class Oracle:
    """One table as a plain dict (with a key) or a plain list (without), and everything it ever was."""

    name: str
    columns: list[str]
    rows: dict[Any, Row] = field(default_factory=dict)
    seq: int = 0
    created_at: int = 0
    states: dict[int, Counter[Any]] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    tombstones_by: frozenset[str] | None = None
    inserted: int = 0
    gone: dict[Any, Row] = field(default_factory=dict)  # deleted, and when by the order of the table

    @property
    def key(self) -> tuple[str, ...]:
        return KEYS[self.name]

    @property
    def rules(self) -> dict[str, Rule]:
        declared = SCHEMAS[self.name]
        rules = {name: parse_rule(text, name) for name, text in declared.get("merge_rules", {}).items()}
        return {**rules, **group_rules(declared.get("order_groups", {}))}

    @property
    def order(self) -> tuple[str, ...]:
        return ORDERS.get(self.name, ())

    def whole(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.columns}

    def key_of(self, row: Row) -> Any:
        return tuple(row[name] for name in self.key)

    def bag(self) -> Counter[Any]:
        return bag(self.whole(row) for row in self.rows.values())

    def remember(self) -> None:
        self.states[self.seq] = self.bag()

    def write(self, rows: list[Row], op: str) -> None:
        if self.rules and op != "replace":
            return self.update([self.whole(row) for row in rows])
        self.seq += 1
        winners = self._one_per_key(rows) if self.key else rows
        for row in winners:
            if not self.key:
                self.inserted += 1
                self.rows[self.inserted] = row
            elif op == "replace" or not self._beaten(row):
                self.rows[self.key_of(row)] = row
                self.gone.pop(self.key_of(row), None)
            shown = "replace" if op == "replace" and self.order else "upsert"
            self.log.append({**self.whole(row), "_seq": self.seq, "_op": shown})
        self.remember()

    def update(self, rows: list[Row]) -> None:
        """One line after the other; what a line does not name stays."""
        self.seq += 1
        for row in rows:
            there = self.rows.get(self.key_of(row))
            if self.rules:
                self.rows[self.key_of(row)] = contributed(self.rules, there, row, self.columns)
            elif not self._beaten(row):
                self.rows[self.key_of(row)] = {**(there or {}), **row}
                self.gone.pop(self.key_of(row), None)
        self.remember()

    def _one_per_key(self, rows: list[Row]) -> list[Row]:
        winners: dict[Any, Row] = {}
        for row in rows:
            rival = winners.get(self.key_of(row))
            if rival is None or not _older(row, rival, self.order):
                winners[self.key_of(row)] = row
        return list(winners.values())

    def _beaten(self, row: Row) -> bool:
        rival = self.rows.get(self.key_of(row)) or self.gone.get(self.key_of(row))
        return rival is not None and _older(row, rival, self.order)

    def delete_at(self, keys: list[Row]) -> None:
        """Each key with the order value of its delete."""
        self.seq += 1
        for row in self._one_per_key(keys):
            if not self._beaten(row):
                self.rows.pop(self.key_of(row), None)
                self.gone[self.key_of(row)] = row
            self.log.append({**self.whole(row), "_seq": self.seq, "_op": "delete_at"})
        self.remember()

    def delete(self, keys: list[Row]) -> None:
        self.seq += 1
        by = self.key or tuple(keys[0])
        distinct = {tuple(key[name] for name in by) for key in keys}
        self.rows = {k: row for k, row in self.rows.items() if tuple(row.get(name) for name in by) not in distinct}
        self.gone = {k: row for k, row in self.gone.items() if k not in distinct}
        for values in distinct:
            self.log.append(
                {**dict.fromkeys(self.columns), **dict(zip(by, values, strict=True)), "_seq": self.seq, "_op": "delete"}
            )
        if not self.key:
            self.tombstones_by = frozenset(by)
        self.remember()

    def matching(self, condition: str) -> list[Row]:
        return [row for row in map(self.whole, self.rows.values()) if CONDITIONS[condition](row)]


def _older(row: Row, rival: Row, order: Sequence[str]) -> bool:
    """Whether `row`, written later, loses against `rival`: only where it has a lower place, nulls lowest."""

    def place(of: Row) -> list[tuple[Any, ...]]:
        return [() if of[name] is None else (_bytes_of(of[name]),) for name in order]

    return place(row) < place(rival)


def _bytes_of(value: Any) -> Any:
    """Texts compare by their bytes."""
    return value.encode() if isinstance(value, str) else value


class Driver:
    """Two open lakes on one folder and an oracle per table. Every method is one operation of a program."""

    def __init__(
        self, path: Path | str, read: Read, names: Iterable[str] = TABLES, resolve_rows_max: int = 20_000_000
    ) -> None:
        self._path, self._read = path, read
        self._settings = Settings(checkpoint_every=4, resolve_rows_max=resolve_rows_max, actor="program")
        self._lakes = [self._open(), self._open()]
        self.oracles: dict[str, Oracle] = {}
        for name in names:
            self._create(name)

    def _open(self) -> Lake:
        return Lake(self._path, create=True, settings=self._settings)

    def _create(self, name: str, created_at: int = 0) -> None:
        self._lakes[0].create_table(name, **SCHEMAS[name], options={"missing_columns": "null"})
        self.oracles[name] = Oracle(name, list(SCHEMAS[name]["schema"].names), seq=created_at, created_at=created_at)
        self.oracles[name].remember()

    def close(self) -> None:
        for lake in self._lakes:
            lake.close()

    def table(self, name: str, lake: int = 0) -> Table:
        return self._lakes[lake].table(name)

    # -- operations

    def write(self, name: str, lake: int, rows: list[Row], op: str) -> None:
        oracle = self.oracles[name]
        method = "append" if not oracle.key else op
        commit = getattr(self.table(name, lake), method)(rows)
        oracle.write(rows, op)
        assert commit.seq == oracle.seq

    def update(self, name: str, lake: int, rows: list[Row]) -> None:
        oracle = self.oracles[name]
        if not oracle.key:
            return
        commit = self.table(name, lake).update(rows)
        oracle.update(rows)
        assert commit.seq == oracle.seq

    def delete(self, name: str, lake: int, keys: list[Row]) -> None:
        oracle = self.oracles[name]
        if not oracle.key and oracle.tombstones_by not in (None, frozenset(keys[0])):
            with pytest.raises(InvalidRequest, match="pending deletes"):
                self.table(name, lake).delete(keys)
            return
        commit = self.table(name, lake).delete(keys)
        oracle.delete(keys)
        assert commit.seq == oracle.seq

    def delete_at(self, name: str, lake: int, keys: list[Row]) -> None:
        oracle = self.oracles[name]
        if name not in ORDERS:
            with pytest.raises(InvalidRequest, match="has no order_by"):
                self.table(name, lake).delete(keys, at=1)
            return
        at: list[Any] = [key["o"] for key in keys]
        if len(oracle.order) > 1:
            at = [tuple(key[column] for column in oracle.order) for key in keys]
        commit = self.table(name, lake).delete([key["k"] for key in keys], at=at if len(set(at)) > 1 else at[0])
        oracle.delete_at(keys)
        assert (commit.seq, commit.upserted) == (oracle.seq, 0)

    def delete_where(self, name: str, lake: int, condition: str) -> None:
        oracle = self.oracles[name]
        by = oracle.key or CONDITION_COLUMNS[condition]
        found = [{column: row[column] for column in by} for row in oracle.matching(condition)]
        if found and not oracle.key and oracle.tombstones_by not in (None, frozenset(by)):
            with pytest.raises(InvalidRequest, match="pending deletes"):
                self.table(name, lake).delete_where(condition)
            return
        commit = self.table(name, lake).delete_where(condition)
        if found:
            oracle.delete(found)
        assert (commit.seq, commit.deleted) == (oracle.seq, len({tuple(key.items()) for key in found}))

    def add_column(self, name: str, lake: int, column: str) -> None:
        oracle = self.oracles[name]
        if column in oracle.columns:
            return
        self.table(name, lake).add_column(pa.field(column, pa.int64()))
        oracle.columns.append(column)
        for entry in oracle.log:
            entry[column] = None

    def fold(self, name: str, lake: int) -> None:
        oracle = self.oracles[name]
        report = self.table(name, lake).fold()
        oracle.tombstones_by = None
        assert (report.seq, report.final_rows) == (max(oracle.seq, oracle.created_at), len(oracle.rows))
        assert report.base_rows + report.inserted - report.deleted == report.final_rows

    def look_for_tombstones(self, name: str) -> None:
        """Maintenance may have folded, or merged away, what made deletes by other columns wait."""
        oracle = self.oracles[name]
        if not oracle.key:
            pending = [file for file in self.table(name).snapshot().changes if file.op.value == "delete"]
            oracle.tombstones_by = frozenset(pending[0].columns) if pending else None

    def recreate(self, name: str, lake: int) -> None:
        self._lakes[lake].drop_table(name)
        self._create(name, created_at=self.oracles[name].seq)

    def reopen(self, lake: int) -> None:
        self._lakes[lake].close()
        self._lakes[lake] = self._open()

    # -- comparisons

    def check(self, name: str, lake: int) -> None:
        assert bag(self._read(self.table(name, lake), None, None)) == self.oracles[name].bag()

    def check_where(self, name: str, lake: int, condition: str) -> None:
        assert bag(self._read(self.table(name, lake), condition, None)) == bag(self.oracles[name].matching(condition))

    def check_as_of(self, name: str, lake: int, back: int) -> None:
        oracle = self.oracles[name]
        seq = oracle.seq - back
        if seq < oracle.created_at:
            with pytest.raises(NotFound, match=f"no seq {seq}"):
                self._read(self.table(name, lake), None, seq)
            return
        assert bag(self._read(self.table(name, lake), None, seq)) == oracle.states[seq], f"as of {seq}"

    def check_changes(self, name: str, lake: int, back: int) -> None:
        oracle = self.oracles[name]
        since = max(oracle.seq - back, 0)
        found = [
            {column: value for column, value in row.items() if column != "_given"}
            for row in self.table(name, lake).changes(since=since).to_pylist()
            if row["_op"] != "update"
        ]
        assert bag(found) == bag(entry for entry in oracle.log if entry["_seq"] > since)
        assert [row["_seq"] for row in found] == sorted(row["_seq"] for row in found)

    def check_get(self, name: str, lake: int, key: Row) -> None:
        oracle = self.oracles[name]
        if not oracle.key:
            return
        values = oracle.key_of(key)
        expected = oracle.rows.get(values)
        found = self.table(name, lake).get(values if len(values) > 1 else values[0])
        assert found == (oracle.whole(expected) if expected is not None else None)

    def check_everything(self) -> None:
        for name in self.oracles:
            self.check(name, 1)
            oracle = self.oracles[name]
            for back in some_back(oracle.seq - oracle.created_at, 0):
                self.check_as_of(name, 1, back)
        assert unsettled(self._path) == []


lakes = st.integers(0, 1)
backs = st.integers(0, 8)


@st.composite
def batches(draw: st.DrawFn, name: str, columns: Iterable[str]) -> list[Row]:
    rows = draw(st.lists(ROWS[name], min_size=1, max_size=5))
    for column in columns:
        if column.startswith("added") and draw(st.booleans()):
            rows = [{**row, column: draw(NUMBERS)} for row in rows]
    return rows


@st.composite
def updates(draw: st.DrawFn, name: str) -> list[Row]:
    """Rows that name some of their columns."""
    needed = {*KEYS[name], *ORDERS.get(name, ())}
    rows = draw(st.lists(ROWS[name], min_size=1, max_size=5))
    groups = SCHEMAS[name].get("order_groups", {})
    order = {member: at for at, members in groups.items() for member in (at, *members)}

    def some(row: Row) -> Row:
        told = {at for at in groups if draw(st.booleans())}
        return {
            column: row[column]
            for column in row
            if column in needed or (order[column] in told if column in order else draw(st.booleans()))
        }

    return [some(row) for row in rows]


@st.composite
def key_batches(draw: st.DrawFn, name: str) -> list[Row]:
    by = KEYS[name] or draw(st.sampled_from(ROW_KEYS))
    return [{column: row[column] for column in by} for row in draw(st.lists(ROWS[name], min_size=1, max_size=3))]


@st.composite
def keys_with_order(draw: st.DrawFn, name: str) -> list[Row]:
    """Keys to delete, of the table with order_by each with when."""
    keys = draw(key_batches(name))
    values = {"o": st.integers(-2, 5), "p": TEXTS.filter(lambda text: text is not None)}
    return [{**key, **{column: draw(values[column]) for column in ORDERS.get(name, ())}} for key in keys]


@st.composite
def programs(draw: st.DrawFn, length: int = 12, names: Sequence[str] = TABLES) -> list[tuple[Any, ...]]:
    """A list of (method of Driver, its arguments): what to do, without the comparisons."""
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(4, length))):
        name, lake = draw(st.sampled_from(names)), draw(lakes)
        kinds = ["write", "write", "write", "update", "update", "delete", "delete_where", "fold", "add_column"]
        kinds += ["delete_at", "delete_at", "fold"] if name in ORDERS else []
        kind = draw(st.sampled_from(kinds))
        argument: tuple[Any, ...] = ()
        if kind == "update":
            argument = (draw(updates(name)),)
        if kind == "write":
            argument = draw(batches(name, ())), draw(st.sampled_from(["upsert", "upsert", "replace"]))
        elif kind == "delete":
            argument = (draw(key_batches(name)),)
        elif kind == "delete_at":
            argument = (draw(keys_with_order(name)),)
        elif kind == "delete_where":
            argument = (draw(st.sampled_from(list(CONDITIONS))),)
        elif kind == "add_column":
            argument = (draw(ADDED),)
        steps.append((kind, name, lake, *argument))
    return steps
