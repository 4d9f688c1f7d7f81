"""A process is killed at every named step; what was acknowledged is there once, and the next operation works."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lithify import Lake
from support import children, crashes
from support.bags import bag
from support.leftovers import unsettled

# In the fast suite two stand for all: each kill is a process of its own.
FAST = ("upsert", "fold_links")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in crashes.SCENARIOS]
)
def test_a_kill_at_every_named_step_loses_nothing(name: str, folder: Path) -> None:
    sweep(name, folder, lambda point, nth: not point.startswith("store.") and nth == 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", crashes.SCENARIOS)
def test_a_kill_at_every_storage_call_loses_nothing(name: str, folder: Path) -> None:
    sweep(name, folder, lambda point, nth: point.startswith("store.") or nth > 1)


def sweep(name: str, folder: Path, wanted: Callable[[str, int], bool]) -> None:
    prepared = folder / "prepared"
    crashes.prepare(crashes.SCENARIOS[name], prepared)
    rehearsal = shutil.copytree(prepared, folder / "rehearsal")
    points, states = crashes.run_and_record(name, rehearsal)
    chosen = [(point, nth) for point, nth in points if wanted(point, nth)]
    assert chosen
    for point, nth in chosen:
        path = shutil.copytree(prepared, folder / f"{point}-{nth}")
        acknowledged = folder / f"{point}-{nth}.acknowledged"
        child = children.start(crashes.run_until_killed, name, str(path), str(acknowledged), point, nth, scratch=folder)
        assert children.finish(child) == -signal.SIGKILL, f"{name} never came to {point} {nth}"
        done = int(acknowledged.read_text()) if acknowledged.exists() else 0
        found = crashes.state_of(path)
        assert found in states[done : done + 2], f"{name} killed at {point} {nth} after {done} operations"
        assert_next_operations_work(path, found, f"{name} killed at {point} {nth}")
        shutil.rmtree(path)


def assert_next_operations_work(path: Path, found: crashes.State, what: str) -> None:
    before = found["a.t"][1] if "a.t" in found else Counter()
    with Lake(path, settings=crashes.SETTINGS) as lake:
        table = lake.create_table("a.t", crashes.KEYED, key="id") if "a.t" not in lake.tables() else lake.table("a.t")
        new = {**dict.fromkeys(table.schema.names), "id": 1000, "v": "next"}
        expected = before + bag([new])

        table.append([new])
        table.fold()

        assert bag(table.to_arrow().to_pylist()) == expected, what
        assert table.stats().pending_files == 0, what
        assert unsettled(path) == [], what


def test_a_lake_whose_creation_was_killed_opens(folder: Path) -> None:
    store = crashes.RecordingStore()
    Lake(folder / "rehearsal", store=store).close()
    for point, nth in store.occurrences():
        path = folder / f"{point}-{nth}"
        child = children.start(crashes.open_until_killed, str(path), point, nth, scratch=folder)
        assert children.finish(child) == -signal.SIGKILL

        with Lake(path) as lake:
            assert lake.tables() == [], f"killed at {point} {nth}"
