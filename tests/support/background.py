"""Programs with maintenance in them: a clock that jumps, jobs that sleep in the middle and wake up, pins, vacuum.

Everything happens in one order: a sleeping job does nothing until it is woken, and whoever wakes it waits for its end.
So a program that fails fails again, however many threads it has.
"""

from __future__ import annotations

import contextlib
import gc
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lithify import Conflict, Lake, NotFound, Settings, Table
from lithify.core.snapshot import Snapshot
from lithify.files.local import LocalStorage
from lithify.jobs import recovery
from lithify.lake.maintenance import Maintenance
from lithify.maintenance.plans import MinorPlan
from lithify.maintenance.reports import CycleReport
from lithify.maintenance.table_maintenance import TableMaintenance
from support.bags import bag
from support.clocks import HOUR_MS, Clock, Stopped, lake_with, next_ms
from support.effort import some_back
from support.faults import FaultyStore, Gate
from support.leftovers import not_needed, unsettled
from support.program import Driver, Read

RETAIN_HOURS = 24
CYCLES_MAX = 8
EAGER: dict[str, Any] = {
    "actor": "program",
    "checkpoint_every": 4,
    "pack_files_min": 2,
    "minor_files_min": 2,
    "read_overhead_max": 1000,
    "tiers": ({"name": "hourly", "files_min": 2}, {"name": "daily", "files_min": 2}),
    "vacuum_retain_hours": RETAIN_HOURS,
}
# Where a job may fall asleep; `compact.*` also for clustering.
POINTS = {
    "fold": ("fold.manifest", "fold.staged", "fold.written", "fold.commit", "fold.committed", "fold.removed"),
    "merge_changes": ("minor.manifest", "minor.written", "minor.commit", "minor.committed", "minor.durable"),
    "compact": ("compact.written", "compact.commit", "compact.committed", "compact.durable"),
    "optimize": ("cluster.manifest", "compact.written", "compact.commit", "compact.committed"),
    "vacuum": ("vacuum.listed", "vacuum.epoch", "vacuum.delete"),
}


def fold(table: Table) -> Any:
    return table.fold()


def merge_changes(table: Table) -> Any:
    """Run the merge of change files that is due, if one is, whether or not a fold is."""
    with table._internals.maintaining() as (handles, reader):
        work = TableMaintenance(handles, reader)
        plans = [plan for plan in work.plans(handles.runtime.now_ms()) if isinstance(plan, MinorPlan)]
        return [work.run(plan) for plan in plans]


def compact(table: Table) -> Any:
    return table.compact()


def optimize(table: Table) -> Any:
    return table.optimize(by=["v", "s"])


def vacuum(table: Table) -> Any:
    return table.vacuum(RETAIN_HOURS, dry_run=False)


WORK: dict[str, Callable[[Table], Any]] = {
    function.__name__: function for function in (fold, merge_changes, compact, optimize, vacuum)
}


class Sleeper:
    """Work in another process's stead: it falls asleep at a point, if it comes there, until it is woken."""

    def __init__(self, open_lake: Callable[[LocalStorage], Lake], name: str, work: str, point: str) -> None:
        self.name, self.work = name, work
        self._gate, self._asleep_or_done = Gate(600), threading.Event()
        self._lake = open_lake(FaultyStore(point, self._fall_asleep))
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[Any] = self._pool.submit(lambda: WORK[work](self._lake.table(name)))
        self._running.add_done_callback(lambda _: self._asleep_or_done.set())
        assert self._asleep_or_done.wait(60)

    def _fall_asleep(self) -> None:
        self._asleep_or_done.set()
        self._gate.hold()

    @property
    def asleep(self) -> bool:
        return not self._running.done()

    def wake(self) -> None:
        """To the end of its work, which may be that others have done it, or that it was given up meanwhile."""
        self._gate.open()
        with self._pool, self._lake, contextlib.suppress(Conflict):
            self._running.result(60)


@dataclass
class Pinned:
    name: str
    snapshot: Snapshot
    rows: Counter[Any]
    release: contextlib.ExitStack


class BackgroundDriver(Driver):
    """Two lakes whose clock the program moves, with their maintenance. `oldest` is, per table, the first seq
    that retention still promises.
    """

    def __init__(
        self, path: Path, read: Read, names: Iterable[str], resolve_rows_max: int, fold_files_max: int
    ) -> None:
        self._path, self._read, self.clock = path, read, Clock()
        self._settings = Settings(**EAGER, resolve_rows_max=resolve_rows_max, fold_files_max=fold_files_max)
        self._lakes = [self._open(), self._open()]
        self._maintenance = [Maintenance(lake) for lake in self._lakes]
        self.oracles = {}
        for name in names:
            self._create(name)
        self.oldest = dict.fromkeys(self.oracles, 0)
        self._widened: dict[str, int] = {}
        self._moments = {name: [(next_ms(), 0)] for name in self.oracles}
        self.pins: list[Pinned] = []
        self.sleeper: Sleeper | None = None

    def _open(self, store: LocalStorage | None = None, clock: Clock | None = None) -> Lake:
        return lake_with(clock or self.clock, self._path, self._settings, store)

    def close(self) -> None:
        self.wake()
        for pin in self.pins:
            pin.release.close()
        super().close()

    def reopen(self, lake: int) -> None:
        super().reopen(lake)
        self._maintenance[lake] = Maintenance(self._lakes[lake])

    def note(self) -> None:
        """After a step: when which seq was the newest."""
        for name, oracle in self.oracles.items():
            self._moments[name].append((next_ms(), self._promised_from(name, oracle.seq)))

    def _promised_from(self, name: str, seq: int) -> int:
        """A column ends the state that a seq had before it."""
        return seq + (self._widened.get(name) == seq)

    def add_column(self, name: str, lake: int, column: str) -> None:
        super().add_column(name, lake, column)
        self._widened[name] = self.oracles[name].seq

    # -- maintenance

    def work(self, kind: str, name: str, lake: int) -> None:
        if kind == "vacuum":
            self._expect_vacuum(name)
        with contextlib.suppress(Conflict) if self.sleeper is not None else contextlib.nullcontext():
            WORK[kind](self.table(name, lake))
        self.look_for_tombstones(name)

    def _expect_vacuum(self, name: str) -> None:
        if self.clock.ahead_ms >= RETAIN_HOURS * HOUR_MS:
            self.oldest[name] = max(self.oldest[name], self._promised_from(name, self.oracles[name].seq))

    def vacuum_since(self, name: str, back: int) -> None:
        """A vacuum whose retention ends at an earlier moment of the program."""
        moments = self._moments[name]
        cutoff_ms, seq = moments[max(len(moments) - 1 - back, 0)]
        self.oldest[name] = max(self.oldest[name], seq)
        with self._open(clock=Stopped(at_ms=cutoff_ms + RETAIN_HOURS * HOUR_MS)) as lake:
            vacuum(lake.table(name))

    def cycle(self, lake: int, *, vacuum: bool = False) -> CycleReport:
        for name in self.oracles:
            self._expect_vacuum(name)  # which a cycle does by itself, too
        report = self._maintenance[lake].cycle.run(vacuum=vacuum)
        assert report.healthy, report
        assert self.sleeper is not None or report.replanned == 0, report
        for name in self.oracles:
            self.look_for_tombstones(name)
        return report

    def fall_asleep(self, kind: str, name: str, point: str) -> None:
        """Start work that goes on when it is woken, unless it ends before it comes to the point."""
        if self.sleeper is not None:
            return
        if kind == "vacuum":
            self._expect_vacuum(name)
        self.sleeper = Sleeper(self._open, name, kind, point)
        if not self.sleeper.asleep:
            self.wake()

    def overtake(self) -> None:
        """Take the sleeper for dead: settle what it left."""
        for path in (self._path / "_lithify" / "jobs").glob("*.json"):
            manifest = json.loads(path.read_text())
            path.write_text(json.dumps({**manifest, "owner": {**manifest["owner"], "started": "long ago"}}))
        recovery.recover(self._lakes[0]._runtime)

    def wake(self) -> None:
        if self.sleeper is not None:
            sleeper, self.sleeper = self.sleeper, None
            sleeper.wake()
            self.look_for_tombstones(sleeper.name)

    def vacuums_wait(self, name: str) -> bool:
        """Another vacuum of the table has its lock and sleeps."""
        return self.sleeper is not None and (self.sleeper.name, self.sleeper.work) == (name, "vacuum")

    # -- pins

    def pin(self, name: str, lake: int, back: int) -> None:
        oracle = self.oracles[name]
        seq = max(oracle.seq - back, self.oldest[name])
        as_of = seq if seq < oracle.seq else None
        with contextlib.ExitStack() as stack:
            snapshot = stack.enter_context(self.table(name, lake).pin(as_of))
            rows = oracle.states[seq] if as_of is not None else oracle.bag()
            self.pins.append(Pinned(name, snapshot, rows, stack.pop_all()))

    def release(self, number: int) -> None:
        if self.pins:
            self.pins.pop(number % len(self.pins)).release.close()

    # -- comparisons

    def check_all(self, lake: int) -> None:
        for name in self.oracles:
            self.check(name, lake)
        for pin in self.pins:
            found = bag(self._read(self.table(pin.name, lake), None, pin.snapshot))  # type: ignore[arg-type]
            assert found == pin.rows, f"pinned {pin.name} at seq {pin.snapshot.seq}"

    def check_past(self) -> None:
        """What retention promises is there; what it does not is right or gone."""
        for name, oracle in self.oracles.items():
            for back in some_back(oracle.seq, self.oldest[name]):
                promised = oracle.seq - back >= self.oldest[name]
                with contextlib.nullcontext() if promised else contextlib.suppress(NotFound):
                    self.check_as_of(name, 1, back)
            if self.oldest[name] <= oracle.seq:
                self.check_changes(name, 0, oracle.seq - self.oldest[name])

    def check_end(self) -> None:
        """Work comes to an end, and leaves only what is needed."""
        self.wake()
        self.check_past()
        while self.pins:
            self.release(0)
        for number in range(2):
            self.reopen(number)
        gc.collect()
        self.clock.ahead_ms = 3 * RETAIN_HOURS * HOUR_MS
        assert any(not self.cycle(0).jobs for _ in range(CYCLES_MAX)), "there is always something left to do"
        assert not self.cycle(1).jobs
        self.cycle(0, vacuum=True)
        assert unsettled(self._path) == []
        assert not_needed(self._lakes[1]) == []
        assert not self.cycle(0).jobs
        self.check_all(0)
