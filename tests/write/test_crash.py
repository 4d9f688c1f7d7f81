"""A process is killed at every named step; what was acknowledged is there once, and the next operation works."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from lithify import Lake
from support import children, crashes
from support.effort import SHARES, of_this_run, thinned
from support.folders import copied
from support.moments import Moment, moments


@pytest.mark.slow
@pytest.mark.parametrize("name", crashes.SCENARIOS)
def test_a_kill_at_every_step_loses_nothing(name: str, folder: Path) -> None:
    lake, told = folder / "child" / "lake", folder / "child" / "acknowledged"
    lake.parent.mkdir()
    crashes.prepare(crashes.SCENARIOS[name], lake)
    _, states = crashes.run_and_record(name, copied(lake, folder / "rehearsal"))
    found = moments(crashes.run, name, str(lake), str(told), folder=folder / "child", copies=folder / "left")
    assert sum(point.startswith("store.") for moment in found for point in moment.points) > 5
    for moment in of_this_run(thinned(found, Moment.classes)):
        lake, told = moment.path / "lake", moment.path / "acknowledged"
        crashes.assert_nothing_is_lost(lake, lake, told, states, f"{name} {moment}")
        shutil.rmtree(moment.path)


@pytest.mark.parametrize("name", ["upsert", "fold_links", "compact"])
@pytest.mark.slow
def test_a_kill_by_a_real_signal_loses_nothing(name: str, folder: Path) -> None:
    """Each is a process of its own: some stand for all, and of those a run takes a third."""
    prepared = folder / "prepared"
    crashes.prepare(crashes.SCENARIOS[name], prepared)
    rehearsal = copied(prepared, folder / "rehearsal")
    points, states = crashes.run_and_record(name, rehearsal)
    chosen = [(point, nth) for point, nth in points if not point.startswith("store.") and nth == 1]
    assert len(chosen) >= SHARES
    for point, nth in of_this_run(chosen):
        path = copied(prepared, folder / f"{point}-{nth}")
        acknowledged = folder / f"{point}-{nth}.acknowledged"
        child = children.start(crashes.run_until_killed, name, str(path), str(acknowledged), point, nth, scratch=folder)
        assert children.finish(child) == -signal.SIGKILL, f"{name} never came to {point} {nth}"
        crashes.assert_nothing_is_lost(path, path, acknowledged, states, f"{name} killed at {point} {nth}")
        shutil.rmtree(path)


def test_a_lake_whose_creation_was_killed_opens(folder: Path) -> None:
    store = crashes.RecordingStore()
    Lake(folder / "rehearsal", store=store).close()
    for point, nth in store.occurrences():
        path = folder / f"{point}-{nth}"
        child = children.start(crashes.open_until_killed, str(path), point, nth, scratch=folder)
        assert children.finish(child) == -signal.SIGKILL

        with Lake(path) as lake:
            assert lake.tables() == [], f"killed at {point} {nth}"
