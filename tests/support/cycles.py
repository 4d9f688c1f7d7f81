"""Cycles under test: tables that are played, and real ones that fold whatever is pending."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from lithify import Lake, Settings
from lithify.compute.processes import process_start
from lithify.core.names import parse_table_name
from lithify.core.snapshot import DataFile
from lithify.maintenance.cycle_lease import Cycle
from lithify.maintenance.fold import FoldJob
from lithify.maintenance.plans import CompactPlan, FoldDue, MinorPlan, Plan
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from lithify.tables.runtime import Runtime
from support.faults import FaultyStore, kill_process

SETTINGS = Settings(actor="cycle", checkpoint_every=4)


def file(path: str, size_bytes: int = 10) -> DataFile:
    return DataFile(path, path, size_bytes, 1)


def fold(table: str) -> FoldDue:
    return FoldDue(table, "many changes", "faster reads", (file("c"),), 10, 5)


def minor(table: str) -> MinorPlan:
    return MinorPlan(table, (file("c"), file("d")), "small changes", "fewer files", 5)


def compact(table: str, day: str, name: str, origin: str = "hourly") -> CompactPlan:
    return CompactPlan(table, origin, (file(name), file(name + "2")), {"_day": day}, 100, "small files", "fewer", 20)


@dataclasses.dataclass(frozen=True)
class Result:
    bytes_read: int = 100
    bytes_written: int = 40
    files_written: int = 1
    problems: tuple[str, ...] = ()


class PlayedTable:
    """Gives the plans it was given until they have run; `act` is called with each plan, and may fail or wait."""

    def __init__(self, plans: Sequence[Plan], act: Callable[[Plan], Any] | None = None) -> None:
        self.due, self.act = list(plans), act
        self.ran: list[Plan] = []
        self.tiers: list[str | None] = []
        self.trimmed = self.vacuumed = 0
        self.wants_vacuum = False

    def plans(self, now_ms: int, tier: str | None) -> list[Plan]:
        self.tiers.append(tier)
        return list(self.due)

    def run(self, plan: Plan) -> Any:
        result = self.act(plan) if self.act is not None else None
        self.ran.append(plan)
        self.due.remove(plan)
        return result if result is not None else Result()

    def trim(self) -> None:
        self.trimmed += 1

    def vacuum(self) -> Any:
        self.vacuumed += 1
        return Result()

    def vacuum_due(self, now_ms: int) -> bool:
        return self.wants_vacuum


class FoldingTable:
    """A real table whose policy is to fold at once."""

    def __init__(self, runtime: Runtime, name: str, lease: int) -> None:
        self._handles, self._lease = Handles(runtime, parse_table_name(name)), lease
        self._name = name

    def plans(self, now_ms: int, tier: str | None) -> list[Plan]:
        snapshot = self._handles.snapshot()
        return [dataclasses.replace(fold(self._name), files=snapshot.changes)] if snapshot.changes else []

    def run(self, plan: Plan) -> Any:
        return FoldJob(self._handles, Reader(self._handles), self._lease).run()

    def trim(self) -> None:
        self._handles.base.log.refresh()

    def vacuum(self) -> Any:
        return Result()

    def vacuum_due(self, now_ms: int) -> bool:
        return False


def folding_cycle(lake: Lake, **parts: Any) -> Cycle:
    runtime = dataclasses.replace(lake._runtime, **parts)
    return Cycle(
        runtime,
        lake.tables,
        lambda name, lease: FoldingTable(runtime, name, lease),
        notify=lambda name: lake._loaded.notify(parse_table_name(name)),
    )


# -- what children do


def run_gated(path: str, reached: Event, go_on: Event, results: Queue[Any]) -> None:
    """A cycle that waits in the middle of its first fold."""

    def hold() -> None:
        reached.set()
        go_on.wait()

    with Lake(path, settings=SETTINGS, store=FaultyStore("fold.commit", hold)) as lake:
        report = folding_cycle(lake).run()
        results.put((report.id, report.done))


def run_stopped(path: str, results: Queue[Any]) -> None:
    """A cycle that falls asleep in the middle of its first fold, until somebody wakes the process up."""
    settings = SETTINGS.model_copy(update={"jobs_max": 1})
    with Lake(path, settings=settings, store=FaultyStore("fold.commit", fall_asleep)) as lake:
        report = folding_cycle(lake).run()
        results.put((report.done, report.replanned, report.stopped))


def run_killed(path: str) -> None:
    """A cycle that dies when both of its folds have come to their commit."""
    both = threading.Barrier(2, action=kill_process)

    def meet() -> None:
        both.wait()

    settings = SETTINGS.model_copy(update={"jobs_max": 2})
    with Lake(path, settings=settings, store=FaultyStore("fold.commit", meet, times=None)) as lake:
        folding_cycle(lake).run()


def maintain_stopped(path: str, settings: Settings, point: str, results: Queue[Any]) -> None:
    """A cycle with the lake's own policies that falls asleep at a point."""
    from lithify.lake.maintenance import Maintenance

    with Lake(path, settings=settings, store=FaultyStore(point, fall_asleep)) as lake:
        report = Maintenance(lake).cycle.run()
        results.put((report.done, report.replanned, report.stopped))


def fall_asleep() -> None:
    """By way of this thread: sent to the process, another one may take it, and this one would run on for a while."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def wait_until_stopped(pid: int, wait_s_max: float = 120, poll_s: float = 0.01) -> None:
    deadline = time.monotonic() + wait_s_max
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "Tt":
        assert process_start(pid) is not None, "it ended"
        assert time.monotonic() < deadline, "it never fell asleep"
        time.sleep(poll_s)
