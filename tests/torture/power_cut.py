"""What a power cut leaves of a disk, at any moment of a program.

A recording (recorder.c) says in which order files were made, written, linked, renamed, removed and fsynced, by whatever
library. `Disk` replays it up to a moment and lays down a folder as it may look after the power came back:

    synced   contents as of their last fsync, and names as of the last fsync of their folder: nothing else
    chance   of everything that was not synced, each name and content is there, or not, or in part
    ordered  names as a journal keeps them: all changes up to some moment after the last fsync, contents that were not
             synced empty
    zeros    all names, and zeros where contents were not synced

    python tests/torture/power_cut.py FOLDER RECORDING PROGRAM     (with recorder.c preloaded) makes a recording
"""

from __future__ import annotations

import ctypes
import datetime as dt
import os
import pickle
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa

import lithify.delta.changes
from lithify import Lake
from lithify.lake.maintenance import Maintenance
from support.bags import bag
from support.clocks import Clock, lake_with
from support.crashes import State, _merge_changes, state_of
from support.eager import eager_tiers

MODELS = ("synced", "chance", "ordered", "zeros")
SETTINGS = eager_tiers("power", lease_s=1, read_overhead_max=1000, fold_files_max=4)
_HEAD = struct.Struct("<cQqIIQ")
LATER = Clock(10 * 86_400_000)


@dataclass(frozen=True)
class Event:
    kind: str
    inode: int
    offset: int
    path: str
    target: str
    data: bytes


def events_of(recording: Path) -> list[Event]:
    text, at, events = recording.read_bytes(), 0, []
    while at < len(text):
        kind, inode, offset, first, second, length = _HEAD.unpack_from(text, at)
        at += _HEAD.size
        a, b, data = (text[start : start + size] for start, size in _parts(at, first, second, length))
        at += first + second + length
        events.append(Event(kind.decode(), inode, offset, a.decode(), b.decode(), data))
    return events


def _parts(at: int, *sizes: int) -> Iterator[tuple[int, int]]:
    for size in sizes:
        yield at, size
        at += size


Names = dict[int, dict[str, int]]


@dataclass
class Disk:
    """Nodes are numbered by us: the kernel gives an inode's number to the next file as soon as it is free."""

    root: str
    names: Names = field(default_factory=lambda: {0: {}})
    synced_names: Names = field(default_factory=lambda: {0: {}})
    contents: dict[int, bytearray] = field(default_factory=dict)
    synced_contents: dict[int, bytes] = field(default_factory=dict)
    _nodes: dict[int, int] = field(default_factory=dict)
    _journal: list[Names] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        match event.kind:
            case "C":
                node = self._new(event.inode)
                self.contents[node] = bytearray()
                self._enter(event.path, node)
            case "F":
                node = self._new(event.inode)
                self.names[node], self.synced_names[node] = {}, {}
                self._enter(event.path, node)
            case "W":
                content = self.contents[self._nodes[event.inode]]
                content.extend(bytes(max(0, event.offset - len(content))))
                content[event.offset : event.offset + len(event.data)] = event.data
            case "T":
                content = self.contents[self._nodes[event.inode]]
                content.extend(bytes(max(0, event.offset - len(content))))
                del content[event.offset :]
            case "S":
                node = self._nodes[event.inode]
                self.synced_contents[node] = bytes(self.contents[node])
            case "D":
                node = self._node(event.path)
                self.synced_names[node] = dict(self.names[node])
            case "L":
                self._enter(event.target, self._node(event.path))
            case "R":
                self._enter(event.target, self._leave(event.path))
            case "U":
                self._leave(event.path)
        if event.kind in "SD":
            self._journal = []
        if event.kind in "SDCFLRU":
            self._journal.append({node: dict(names) for node, names in self.names.items()})

    def _new(self, inode: int) -> int:
        node = 1 + max((*self.names, *self.contents), default=0)
        self._nodes[inode] = node
        return node

    def _steps(self, path: str) -> list[str]:
        return [name for name in path[len(self.root) :].split("/") if name]

    def _node(self, path: str) -> int:
        node = 0
        for name in self._steps(path):
            node = self.names[node][name]
        return node

    def _enter(self, path: str, node: int) -> None:
        *folders, name = self._steps(path)
        self.names[self._node("/".join((self.root, *folders)))][name] = node

    def _leave(self, path: str) -> int:
        *folders, name = self._steps(path)
        return self.names[self._node("/".join((self.root, *folders)))].pop(name)

    def cut(self, model: str, rng: random.Random, target: Path) -> Path:
        journal = rng.choice(self._journal) if self._journal else self.names
        self._lay(0, target, model, rng, journal)
        return target

    def _lay(self, node: int, path: Path, model: str, rng: random.Random, journal: Names) -> None:
        path.mkdir()
        for name, child in self._left(node, model, rng, journal).items():
            if child in self.names:
                self._lay(child, path / name, model, rng, journal)
            else:
                (path / name).write_bytes(self._content(child, model, rng))

    def _left(self, node: int, model: str, rng: random.Random, journal: Names) -> dict[str, int]:
        now, synced = self.names[node], self.synced_names[node]
        if model == "synced":
            return synced
        if model == "ordered":
            return journal.get(node, {})
        if model == "zeros":
            return now
        left = dict(synced)
        for name in sorted({*synced, *now}):
            if synced.get(name) != now.get(name) and rng.random() < 0.5:
                left.pop(name, None)
                if name in now:
                    left[name] = now[name]
        return left

    def _content(self, node: int, model: str, rng: random.Random) -> bytes:
        now, synced = bytes(self.contents[node]), self.synced_contents.get(node, b"")
        if model in ("synced", "ordered"):
            return synced
        if model == "zeros":
            return synced + bytes(max(0, len(now) - len(synced)))
        return rng.choice([synced, now, now[: len(now) // 2], bytes(len(now))]) if now != synced else now


# -- programs

Operation = Callable[[Lake], Any]
KEYED = pa.schema([("id", pa.int64()), ("v", pa.string())])
WIDE = pa.schema([*KEYED, ("w", pa.int64())])
TIMED = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])


def _on(work: Callable[[Any], Any]) -> Operation:
    return lambda lake: work(lake.table("a.t"))


def _create(columns: pa.Schema = KEYED, **options: Any) -> Operation:
    return lambda lake: lake.create_table("a.t", columns, **options)


def _put(*ids: int, v: str = "x") -> Operation:
    return _on(lambda t: t.append([{"id": i, "v": v} for i in ids], missing="null"))


def _at(*ids: int, v: str = "x") -> Operation:
    rows = [{"id": i, "at": dt.datetime(2026, 11, 1 + i % 2, i % 24, tzinfo=dt.UTC), "v": v} for i in ids]
    return _on(lambda t: t.upsert(rows))


def _many(start: int, v: str) -> Operation:
    """More rows than a change file may have without an entry in the sidecar."""
    rows = pa.table({"id": range(start, start + 25_000), "v": [v] * 25_000})
    return _on(lambda t: t.upsert(rows))


def _load(start: int, count: int, v: str, batch_id: str | None = None) -> Operation:
    """As many rows are written: as a stream, in files of their own."""

    def work(table: Any) -> None:
        with patch("lithify.write.load.LOAD_ROWS_MIN", 1):
            table.upsert(pa.table({"id": range(start, start + count), "v": [v] * count}), batch_id, missing="null")

    return _on(work)


def _merge(first: int, last: int, v: str) -> Operation:
    lines = ", ".join(f"({i}, '{v}')" for i in range(first, last))
    return lambda lake: lake.execute(
        f"merge into a.t t using (values {lines}) as s(id, v) on t.id = s.id when matched and t.v = 'gone' then delete "
        "when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)"
    )


def _update(*ids: int, missing: str = "insert", **given: Any) -> Operation:
    return _on(lambda t: t.update([{"id": i, **given} for i in ids], missing=missing))


def _vacuum(lake: Lake) -> None:
    with lake_with(LATER, lake.path, SETTINGS) as later:
        for name in later.tables():
            later.table(name).vacuum(1, dry_run=False)


def _trim(lake: Lake) -> None:
    with lake_with(LATER, lake.path, SETTINGS) as later:
        for name in later.tables():
            handles = later.table(name)._internals.handles
            for log in (handles.changes.log, handles.base.log):
                log.now_ms = LATER.now_ms
                log.trim_if_due()


def _cycle(lake: Lake) -> None:
    with Lake(lake.path, settings=SETTINGS) as other:
        Maintenance(other).cycle.run()


_FOLD, _COMPACT = _on(lambda t: t.fold()), _on(lambda t: t.compact())
_DROP: Operation = lambda lake: lake.drop_table("a.t")  # noqa: E731
PROGRAMS: dict[str, tuple[Operation, ...]] = {
    "keyed": (
        *(_create(key="id"), _put(*range(20)), _FOLD, _put(2, 25, v="y"), _on(lambda t: t.delete([3]))),
        *(_merge_changes, _put(30, 31), _put(32), _merge_changes, _FOLD, _put(40), _FOLD, _COMPACT),
        *(_put(41, 2, v="z"), _FOLD, _on(lambda t: t.optimize(by=["v", "id"]))),
        *(_on(lambda t: t.delete_where("id > 31")), _put(3, v="again"), _FOLD, _vacuum),
        *(_put(50), _put(51), _put(52), _trim, _put(53), _on(lambda t: t.add_column(pa.field("w", pa.int64())))),
        *(_on(lambda t: t.upsert([{"id": 1, "v": "w", "w": 5}])), _FOLD),
        *(_on(lambda t: t.set_options({"fold_files_max": 9})), _put(54)),
        *(2 * (_on(lambda t: t.upsert([{"id": 60, "v": "x"}], "b1", missing="null")),)),
        *(_cycle, _put(61), _vacuum, _put(62), _trim, _FOLD),
    ),
    "changed": (
        *(_create(WIDE, key="id"), _load(0, 40, "a"), _update(1, 2, 50, w=1), _merge(30, 45, "m"), _FOLD),
        *(_update(1, v="u"), _update(2, w=2), _merge_changes, _update(2, 3, v="gone"), _merge(0, 5, "n"), _FOLD),
        *(_load(20, 60, "b", "l1"), _load(20, 60, "b", "l1"), _update(25, 900, w=3, missing="skip"), _FOLD, _COMPACT),
        *(_on(lambda t: t.delete([25, 26])), _update(25, w=4), _merge(24, 28, "o"), _cycle, _update(24, v="p")),
        *(_vacuum, _load(0, 5, "c"), _trim, _merge(2, 9, "q"), _FOLD),
    ),
    "keyless": (
        *(_create(), _put(*range(10)), _FOLD, _put(1, 1), _on(lambda t: t.delete([{"id": 1}])), _put(1), _FOLD),
        *(_put(5), _on(lambda t: t.delete_where("id = 2")), _cycle, _put(8), _FOLD, _COMPACT, _vacuum, _put(9)),
        *(_trim, _put(10), _FOLD),
    ),
    "dropped": (
        *(_create(key="id"), _put(1, 2), _FOLD, _put(3), _DROP, _create(key="id"), _put(7), _FOLD, _put(8), _DROP),
        *(_create(TIMED, key="id", time="at"), _at(1, 2), _FOLD, _vacuum, _at(4)),
        *(lambda lake: lake.create_table("b.u", KEYED, key="id"), _DROP),
    ),
    "timed": (
        *(_create(TIMED, key="id", time="at"), _at(*range(30)), _FOLD, _at(1, 2, v="b"), _FOLD, _at(5, 40, v="c")),
        *(_FOLD, _on(lambda t: t.delete([6, 7])), _at(50), _FOLD, _COMPACT, _on(lambda t: t.compact("hourly"))),
        *(_at(6), _cycle, _vacuum, _at(60), _trim, _FOLD),
    ),
    "large": (
        *(_create(key="id"), _many(0, "a"), _FOLD, _many(20_000, "b"), _put(7, v="c"), _FOLD, _many(90_000, "b")),
        *(_FOLD, _COMPACT, _vacuum, _put(8)),
    ),
}


def shorten_logs() -> None:
    """Logs that are trimmed after few commits, so that a short program sees it."""
    lithify.delta.changes.LIVE_COMMITS_MIN, lithify.delta.changes.LIVE_COMMITS_MAX = 6, 12


def record(folder: Path, recording: Path, program: str) -> list[State]:
    """In a process with the recorder: run the program. The states before the first and after each operation."""
    shorten_logs()
    recorder = ctypes.CDLL(None)
    recorder.record_to(os.fsencode(recording), os.fsencode(folder))
    states: list[State] = [{}]
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        recorder.mark(b"opened 0")
        for number, operation in enumerate(PROGRAMS[program], 1):
            recorder.mark(b"begun %d" % number)
            operation(lake)
            recorder.mark(b"acknowledged %d" % number)
            states.append(state_of(lake))
    recorder.record_end()
    return states


# -- what must hold afterwards


def moments(events: Iterable[Event], disk: Disk, chosen: set[int]) -> Iterator[tuple[int, int, int]]:
    """Replay, and stop at each chosen event: its number, the operations acknowledged, and those begun by then."""
    acknowledged = begun = 0
    for number, event in enumerate(events):
        if event.kind == "M":
            word, count = event.path.split()
            acknowledged, begun = (int(count), begun) if word == "acknowledged" else (acknowledged, int(count))
        else:
            disk.apply(event)
        if number in chosen:
            yield number, acknowledged, begun


def wrong(path: Path, allowed: list[State]) -> str | None:
    """What does not hold of a lake that was opened after a cut: rows, the next write and fold, the next cycle."""
    with Lake(path, settings=SETTINGS) as lake:
        before = state_of(lake)
        if before not in allowed:
            return f"rows: {_sizes(before)}, and not one of {[_sizes(state) for state in allowed]}"
        for name in lake.tables():
            table = lake.table(name)
            row = {**dict.fromkeys(table.schema.names), "id": -1, "v": "next"}
            table.append([row])
            table.fold()
            if bag(table.to_arrow().to_pylist()) != before[name][1] + bag([row]):
                return (
                    f"{name}: after the next write and fold it holds {_sizes(state_of(lake))}, before {_sizes(before)}"
                )
    with Lake(path, settings=SETTINGS) as lake:
        before = state_of(lake)
        report = Maintenance(lake).cycle.run()
        if state_of(lake) != before or not report.healthy:
            return f"a cycle: {report}, {_sizes(before)} before, {_sizes(state_of(lake))} after"
    return None


def _sizes(state: State) -> dict[str, int]:
    return {name: sum(rows.values()) for name, (_, rows, *_) in state.items()}


def main() -> None:
    folder, recording, program = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    states = record(folder, recording, program)
    recording.with_suffix(".states").write_bytes(pickle.dumps([dict(state) for state in states]))
    kinds = Counter(event.kind for event in events_of(recording))
    print(f"{program}: {len(states) - 1} operations, {dict(kinds)}")


if __name__ == "__main__":
    main()
