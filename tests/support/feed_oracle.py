"""What each commit does to the rows of a table, told by the plain dicts of `program`.

The feed that is expected is noted while the program runs: a row that was not there is inserted, one that was and is
replaced by what was written is updated, one that is gone was deleted. A write that leaves the old row where it was lost
against it, and has no effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from lithify import InvalidRequest, Lake, Table
from support.background import merge_changes
from support.bags import bag
from support.program import (
    ADDED,
    ALL_TABLES,
    CONDITIONS,
    ORDERS,
    SCHEMAS,
    Driver,
    Oracle,
    Row,
    batches,
    key_batches,
    keys_with_order,
    lakes,
    updates,
)

ReadFeed = Callable[[Table, Any, Any], pa.Table]


@dataclass
class FeedOracle(Oracle):
    effects: list[tuple[int, str, Row]] = field(default_factory=list)
    past: dict[int, list[Row]] = field(default_factory=dict)
    replaced: dict[tuple[int, Any], Row] = field(default_factory=dict)

    def write(self, rows: list[Row], op: str) -> None:
        before = dict(self.rows)
        super().write(rows, op)
        if not self.key:
            new = [row for key, row in self.rows.items() if key not in before]
            self.effects += [(self.seq, "insert", row) for row in new]
            return
        for row in self._one_per_key(rows):
            key = self.key_of(row)
            if self.rows.get(key) is row:
                if key in before:
                    self.replaced[self.seq, key] = before[key]
                self.effects.append((self.seq, "update" if key in before else "insert", row))

    def update(self, rows: list[Row]) -> None:
        before = dict(self.rows)
        super().update(rows)
        for key, row in self.rows.items():
            if row is not before.get(key):
                if key in before:
                    self.replaced[self.seq, key] = before[key]
                self.effects.append((self.seq, "update" if key in before else "insert", row))

    def delete(self, keys: list[Row]) -> None:
        before = dict(self.rows)
        super().delete(keys)
        self.effects += [(self.seq, "delete", row) for key, row in before.items() if key not in self.rows]

    def delete_at(self, keys: list[Row]) -> None:
        before = dict(self.rows)
        super().delete_at(keys)
        self.effects += [(self.seq, "delete", row) for key, row in before.items() if key not in self.rows]

    def remember(self) -> None:
        super().remember()
        self.past[self.seq] = list(self.rows.values())

    def expected(self, since: int, until: int) -> list[Row]:
        return [
            {**self.whole(row), "_seq": seq, "_kind": kind}
            for seq, kind, row in self.effects
            if max(since, self.created_at) < seq <= until
        ]

    def expected_with_before(self, since: int, until: int) -> list[Row]:
        found = []
        for row in self.expected(since, until):
            if row["_kind"] == "update":
                before = self.whole(self.replaced[row["_seq"], self.key_of(row)])
                found.append({**before, "_seq": row["_seq"], "_kind": "update_before"})
                row = {**row, "_kind": "update_after"}
            found.append(row)
        return found

    def state(self, seq: int) -> list[Row]:
        return [self.whole(row) for row in self.past[seq]]


class FeedDriver(Driver):
    """A driver whose tables are also folded, merged and compacted in every way, and whose feeds are compared."""

    oracles: dict[str, FeedOracle]  # type: ignore[assignment]

    def _create(self, name: str, created_at: int = 0) -> None:
        self._lakes[0].create_table(name, **SCHEMAS[name], options={"missing_columns": "null"})
        columns = list(SCHEMAS[name]["schema"].names)
        self.oracles[name] = FeedOracle(name, columns, seq=created_at, created_at=created_at)
        self.oracles[name].remember()

    def _open(self) -> Lake:
        return Lake(self._path, settings=self._settings.model_copy(update={"minor_files_min": 2, "pack_files_min": 2}))

    def merge_changes(self, name: str, lake: int) -> None:
        if self.oracles[name].key:
            merge_changes(self.table(name, lake))

    def compact(self, name: str, lake: int) -> None:
        self.table(name, lake).compact()
        self.look_for_tombstones(name)

    def optimize(self, name: str, lake: int) -> None:
        self.table(name, lake).optimize(by="v")
        self.look_for_tombstones(name)

    def check_feed(self, name: str, lake: int, since: int, until: int, read: ReadFeed) -> None:
        oracle, table = self.oracles[name], self.table(name, lake)
        found = read(table, since, until).to_pylist()
        assert bag(found) == bag(oracle.expected(since, until)), f"{name} from {since} to {until}"
        assert [row["_seq"] for row in found] == sorted(row["_seq"] for row in found)
        since = max(since, oracle.created_at)
        assert bag(applied(oracle.state(since), found, oracle.key)) == bag(oracle.state(until))

    def check_feed_with_before(self, name: str, lake: int, since: int, until: int, read: ReadFeed) -> None:
        oracle, table = self.oracles[name], self.table(name, lake)
        found = read(table, since, until).to_pylist()
        assert bag(found) == bag(oracle.expected_with_before(since, until)), f"{name} from {since} to {until}"
        for before, after in itertools.pairwise([{}, *found, {}]):
            pair = (before.get("_kind") == "update_before", after.get("_kind") == "update_after")
            assert pair[0] == pair[1], "each update follows the row before it"
            assert not pair[0] or (before["_seq"], oracle.key_of(before)) == (after["_seq"], oracle.key_of(after))

    def check_net(self, name: str, lake: int, since: int, until: int) -> None:
        oracle, table = self.oracles[name], self.table(name, lake)
        if not oracle.key:
            with pytest.raises(InvalidRequest, match="no key"):
                table.latest_changes(since, until)
            return
        net = table.latest_changes(since, until)
        first = max(since, oracle.created_at)
        rows = {oracle.key_of(row): row for row in oracle.state(first)}
        for row in net.deleted.to_pylist():
            rows.pop(oracle.key_of(row), None)
        rows |= {oracle.key_of(row): row for row in net.rows.to_pylist()}
        assert bag(rows.values()) == bag(oracle.state(until))
        assert net.until == max(until, first)
        touched = {oracle.key_of(row) for _, _, row in oracle.effects}
        assert {oracle.key_of(row) for row in net.rows.to_pylist()} <= touched


def applied(rows: list[Row], feed: list[Row], key: tuple[str, ...]) -> list[Row]:
    """The feed applied row by row, as any consumer would."""
    state = list(rows)
    for effect in feed:
        row = {name: value for name, value in effect.items() if name not in ("_seq", "_kind")}
        same = [old for old in state if all(old[name] == row[name] for name in key)] if key else []
        if effect["_kind"] == "insert":
            assert not same, "an insert of what is there"
        elif effect["_kind"] == "update":
            assert len(same) == 1, "an update of what is not there"
            state.remove(same[0])
        else:
            assert row in state, "a delete of what is not there, or was different"
            state.remove(row)
            continue
        state.append(row)
    return state


@st.composite
def feed_programs(draw: st.DrawFn, length: int = 14) -> tuple[str, list[tuple[Any, ...]]]:
    name = draw(st.sampled_from(ALL_TABLES))
    kinds = (
        ["write"] * 4
        + ["update"] * 3
        + ["delete"] * 2
        + ["delete_where", "fold", "merge_changes", "compact", "optimize", "add_column"]
    )
    kinds += ["delete_at"] * 3 if name in ORDERS else []
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(2, length))):
        kind = draw(st.sampled_from(kinds))
        argument: tuple[Any, ...] = ()
        if kind == "write":
            argument = draw(batches(name, ())), draw(st.sampled_from(["upsert", "upsert", "replace"]))
        elif kind == "update":
            argument = (draw(updates(name)),)
        elif kind == "delete":
            argument = (draw(key_batches(name)),)
        elif kind == "delete_at":
            argument = (draw(keys_with_order(name)),)
        elif kind == "delete_where":
            argument = (draw(st.sampled_from(list(CONDITIONS))),)
        elif kind == "add_column":
            argument = (draw(ADDED),)
        steps.append((kind, name, draw(lakes), *argument))
    return name, steps
