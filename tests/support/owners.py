"""Random writes of several owners, and which states they may have led to.

Every owner writes to all tables, one operation after the other, and to keys of its own, so that its rows follow from
its own operations alone. Each operation is noted before it begins and when it ends. One that was acknowledged must
show, one that was refused must not, and one whose end nobody knows (killed, or `CommitUnknown`) shows whole or not at
all: so a few candidates are left, and what is read must be one of them.

Each write to a keyed table also sets the owner's counter row, so that a reader can tell a write that shows in part.
Updates and MERGE leave the column `w` as it was, which says in which write all of the row was set.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from lithify import Commit, Executed, Lake

COUNTER = 999
KEYS = 60
_OWN = [("o", pa.int64()), ("k", pa.int64()), ("n", pa.int64()), ("v", pa.string()), ("w", pa.int64())]
_DAY_0 = dt.datetime(2026, 9, 21, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Kind:
    """A kind of table: how it is created, and how an owner's key number becomes a key."""

    name: str
    columns: pa.Schema
    key: tuple[str, ...] = ()
    order_by: str | None = None
    time: str | None = None

    def key_of(self, owner: int, k: int) -> dict[str, Any]:
        match self.key:
            case ("id",):
                return {"id": owner * 1000 + k}
            case ("s",):
                return {"s": f"o{owner}-{'ü' * (k % 4)}k{k}" + "x" * 40 * (k % 7 == 0)}
            case _:
                return {"a": owner, "b": f"k{k}"}

    def create(self, lake: Lake) -> None:
        lake.create_table(
            self.name,
            self.columns,
            key=list(self.key) or None,
            order_by=self.order_by,
            time=self.time,
            if_not_exists=True,
        )


KINDS = {
    kind.name: kind
    for kind in (
        Kind("a.int", pa.schema([("id", pa.int64()), *_OWN]), ("id",)),
        Kind("a.text", pa.schema([("s", pa.string()), *_OWN]), ("s",)),
        Kind("a.pair", pa.schema([("a", pa.int64()), ("b", pa.string()), *_OWN]), ("a", "b")),
        Kind("a.ordered", pa.schema([("id", pa.int64()), ("at", pa.int64()), *_OWN]), ("id",), order_by="at"),
        Kind("a.time", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), *_OWN]), ("id",), time="ts"),
        Kind("a.log", pa.schema([("i", pa.int64()), *_OWN])),
    )
}
KEYED = [name for name, kind in KINDS.items() if kind.key]


def make(rng: random.Random, n: int, appended: list[int]) -> dict[str, Any]:
    """The owner's nth operation. `appended`: earlier appends that it may delete."""
    name = rng.choice(list(KINDS))
    write: dict[str, Any] = {"n": n, "table": name, "keys": [], "at": None, "hours": [], "batch_id": None}
    if rng.random() < 0.6:
        write["batch_id"] = f"batch-{n}"
    if name == "a.log":
        if not appended or rng.random() < 0.6:
            return {**write, "kind": "append", "rows": rng.randint(1, 20)}
        if rng.random() < 0.5:
            return {**write, "kind": "delete", "keys": rng.sample(appended, min(len(appended), rng.randint(1, 3)))}
        return {**write, "kind": "delete_where", "keys": [rng.choice(appended)]}
    write["keys"] = rng.sample(range(KEYS), rng.randint(1, 25))
    write["at"] = n if rng.random() < 0.6 else max(1, n - rng.randint(1, 40))
    write["hours"] = [None if rng.random() < 0.05 else rng.randrange(72) for _ in write["keys"]]
    chance = rng.random()
    for kind, below in (("upsert", 0.3), ("replace", 0.38), ("load", 0.5), ("update", 0.64), ("merge", 0.72)):
        if chance < below:
            # A statement sets what it names, whatever is newer; its owner keeps to the order.
            return {**write, "kind": kind, **({"at": n} if kind == "merge" else {})}
    if chance < 0.88:
        return {**write, "kind": "delete"}
    low = rng.randrange(KEYS)
    return {**write, "kind": "delete_where", "low": low, "high": low + rng.randint(1, 20)}


def perform(lake: Lake, owner: int, write: Mapping[str, Any]) -> Commit | Executed:
    kind, n, name = KINDS[write["table"]], write["n"], write["table"]
    table, batch_id = lake.table(name), write["batch_id"] and f"{owner}-{write['batch_id']}"
    match write["kind"]:
        case "append":
            rows = [{"i": i, "o": owner, "k": 0, "n": n, "v": "z", "w": n} for i in range(write["rows"])]
            return table.append(rows, batch_id=batch_id)
        case "delete" if not kind.key:
            return table.delete([{"o": owner, "n": m} for m in write["keys"]], batch_id=batch_id)
        case "delete":
            keys = [kind.key_of(owner, k) for k in write["keys"]]
            return table.delete(keys if len(kind.key) > 1 else [key[kind.key[0]] for key in keys], batch_id=batch_id)
        case "delete_where" if not kind.key:
            return table.delete_where(f"o = {owner} and n = {write['keys'][0]}", batch_id=batch_id)
        case "delete_where":
            text = f"o = {owner} and k >= {write['low']} and k < {write['high']}"
            return table.delete_where(text, batch_id=batch_id)
        case operation:
            hours = dict(zip(write["keys"], write["hours"], strict=True))
            rows = [_row(kind, owner, k, n, write["at"], hours[k]) for k in write["keys"]]
            rows.append(_row(kind, owner, COUNTER, n, n, 0))
            match operation:
                case "update":
                    kept = {"w", kind.time}
                    return table.update([{c: v for c, v in row.items() if c not in kept} for row in rows], batch_id)
                case "load":
                    with patch("lithify.write.load.LOAD_ROWS_MIN", 1):
                        return table.upsert(pa.Table.from_pylist(rows, kind.columns), batch_id=batch_id)
                case "merge":
                    return lake.execute(_merge(kind, rows), batch_id=batch_id)
            return getattr(table, operation)(rows, batch_id=batch_id)


def _merge(kind: Kind, rows: Sequence[Mapping[str, Any]]) -> str:
    names = [name for name in kind.columns.names if name != kind.time]
    lines = ", ".join("(" + ", ".join(_literal(row[name]) for name in names) + ")" for row in rows)
    matched = " and ".join(f"t.{name} = s.{name}" for name in kind.key)
    told = ", ".join(f"{name} = s.{name}" for name in names if name not in (*kind.key, "w"))
    # The column of times is given to none: a new row has null there.
    given = ", ".join([f"s.{name}" for name in names] + ["null"] * (kind.time is not None))
    return (
        f"merge into {kind.name} t using (values {lines}) as s({', '.join(names)}) on {matched} "
        f"when matched then update set {told} "
        f"when not matched then insert ({', '.join([*names, *([kind.time] if kind.time else [])])}) values ({given})"
    )


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _row(kind: Kind, owner: int, k: int, n: int, at: int | None, hour: int | None) -> dict[str, Any]:
    row = {**kind.key_of(owner, k), "o": owner, "k": k, "n": n, "v": text_of(kind.name, owner, k, n), "w": n}
    if kind.order_by:
        row[kind.order_by] = at
    if kind.time:
        row[kind.time] = None if hour is None else _DAY_0 + dt.timedelta(hours=hour)
    return row


def text_of(table: str, owner: int, k: int, n: int) -> str:
    return f"{table}-{owner}-{k}-{n}"


# What an owner's rows in a table come to: of an appending one, how many rows each append has; else (n, at, w) by key.
State = dict[int, Any]


def applied(state: State, write: Mapping[str, Any]) -> State:
    state, n, keys = dict(state), write["n"], write["keys"]
    ordered = KINDS[write["table"]].order_by is not None
    match write["kind"]:
        case "append":
            state[n] = write["rows"]
        case "delete_where" if "low" in write:
            state = {k: v for k, v in state.items() if not write["low"] <= k < write["high"]}
        case "delete" | "delete_where":
            state = {k: v for k, v in state.items() if k not in keys}
        case operation:
            for k in [*keys, COUNTER]:
                at = (n if k == COUNTER else write["at"]) if ordered else None
                if operation in ("upsert", "load", "update") and ordered and k in state and at < state[k][1]:
                    continue
                # An update that inserts gives nothing but the columns that it sets.
                stays = state[k][2] if k in state else None if operation == "update" else n
                state[k] = n, at, stays if operation in ("update", "merge") else n
    return state


def found(table: str, rows: Iterable[Mapping[str, Any]]) -> dict[int, State]:
    """The state of each owner that rows come to. A key that stands twice is reported in its place."""
    states: dict[int, State] = {}
    for row in rows:
        state = states.setdefault(row["o"], {})
        if table == "a.log":
            state[row["n"]] = state.get(row["n"], 0) + 1
        elif row["k"] in state or row["v"] != text_of(table, row["o"], row["k"], row["n"]):
            state[row["k"]] = "doubled or mangled", dict(row), state.get(row["k"])
        else:
            state[row["k"]] = row["n"], row.get("at"), row["w"]
    return states


class Notebook:
    """What one owner did, in a file that outlives it: begun, then acknowledged, refused or unknown."""

    def __init__(self, folder: Path, owner: int) -> None:
        self._path = folder / f"{owner}.jsonl"

    def note(self, what: str, write: Mapping[str, Any], **facts: Any) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps({"what": what, "write": dict(write), **facts}) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]


class Candidates:
    """The states that each owner's rows may be in, given its notebook. Ask it while nobody writes."""

    def __init__(self, folder: Path, owners: int) -> None:
        self._books = {owner: Notebook(folder, owner) for owner in range(owners)}
        self._read = dict.fromkeys(range(owners), 0)
        self.states: dict[tuple[int, str], list[State]] = {}
        self.counts = {"acknowledged": 0, "refused": 0, "unknown": 0, "again": 0}

    def catch_up(self) -> None:
        for owner, book in self._books.items():
            lines = book.lines()
            for line in range(self._read[owner], len(lines)):
                if lines[line]["what"] in ("begun", "again"):
                    self._take(owner, lines, line)
            self._read[owner] = len(lines)

    def _take(self, owner: int, lines: list[dict[str, Any]], line: int) -> None:
        write = lines[line]["write"]
        end = lines[line + 1]["what"] if line + 1 < len(lines) else "killed"
        again = lines[line]["what"] == "again"
        if end in ("begun", "again", "killed"):
            if end == "again":
                return  # decided where it is tried again: the same batch id writes once
            end = "unknown"
        if again and end == "refused":
            end = "unknown"  # the attempt before it may have been the one that counted
        self.counts[end] += 1
        self.counts["again"] += again
        before = self.states.setdefault((owner, write["table"]), [{}])
        after = [applied(state, write) for state in before]
        if end == "acknowledged":
            self.states[owner, write["table"]] = _unique(after)
        elif end == "unknown":
            self.states[owner, write["table"]] = _unique([*before, *after])

    def decide(self, table: str, states: Mapping[int, State]) -> list[str]:
        """What does not fit. Owners are in the state that was found from now on."""
        bad = []
        for owner in self._books:
            candidates, state = self.states.get((owner, table), [{}]), states.get(owner, {})
            if state not in candidates:
                near = min(candidates, key=lambda candidate: len(_lines(candidate) ^ _lines(state)))
                missing, extra = sorted(_lines(near) - _lines(state))[:9], sorted(_lines(state) - _lines(near))[:9]
                bad.append(
                    f"{table}: rows of owner {owner} fit none of {len(candidates)} states; "
                    f"of the nearest are missing {missing}, and too much {extra}"
                )
            self.states[owner, table] = [state]
        return bad


def _unique(states: list[State]) -> list[State]:
    distinct: list[State] = []
    for state in states:
        if state not in distinct:
            distinct.append(state)
    return distinct


def _lines(state: State) -> set[str]:
    return {f"{k}: {v}" for k, v in state.items()}


def seeded() -> random.Random:
    """For a process that may be killed: its choices need no replay, its notebook tells them."""
    return random.Random(os.urandom(8))
