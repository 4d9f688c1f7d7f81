"""Acknowledged means durable (invariant 1), with power cuts at any call of libc, of whatever library.

All cuts of all programs, in all models, in `make soak`; some of each here.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lithify.delta.changes
from lithify import LithifyError
from support.effort import SOAK
from support.folders import memory_folder
from support.preloaded import compiled
from torture.power_cut import MODELS, PROGRAMS, Disk, Event, events_of, moments, shorten_logs, wrong

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CUTS = 20  # others in each run
Lie = Callable[[Event], bool]


@pytest.fixture(scope="module")
def recordings() -> Iterator[Callable[[str], Path]]:
    with memory_folder() as folder:
        recorder = compiled(HERE / "recorder.c", folder)

        def recording_of(program: str) -> Path:
            path = folder / f"{program}.recording"
            if not path.exists():
                (folder / program).mkdir()
                subprocess.run(
                    [sys.executable, str(HERE / "power_cut.py"), str(folder / program), str(path), program],
                    env={**os.environ, "LD_PRELOAD": str(recorder)},
                    check=True,
                )
            return path

        yield recording_of


@pytest.fixture(autouse=True)
def _short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program had them."""
    for name in ("LIVE_COMMITS_MIN", "LIVE_COMMITS_MAX"):
        monkeypatch.setattr(lithify.delta.changes, name, getattr(lithify.delta.changes, name))
    shorten_logs()


def cut_at(recording: Path, folder: Path, cuts: int, seed: int, lie: Lie = lambda event: False) -> Counter[str]:
    """What was wrong after cuts at random events, or at all of them. `lie`: fsyncs that the disk only claims."""
    events = [event for event in events_of(recording) if not lie(event)]
    states = pickle.loads(recording.with_suffix(".states").read_bytes())
    rng = random.Random(seed)
    chosen = set(range(len(events)) if SOAK else rng.sample(range(len(events)), cuts))
    disk, found = Disk(str(recording.with_suffix(""))), Counter[str]()
    for number, acknowledged, begun in moments(events, disk, chosen):
        for model in MODELS if SOAK else (rng.choice(MODELS),):
            left = disk.cut(model, random.Random(seed * 1_000_003 + number), folder / f"{number}-{model}")
            try:
                what = wrong(left / "lake", [states[acknowledged], states[max(acknowledged, begun)]])
            except LithifyError as error:
                what = f"{type(error).__name__}: {error}"
            if what is not None:
                event = events[number]
                where = f"{event.kind} {event.path} {event.target}".replace(disk.root, "")
                found[f"{model} at {number} ({where}), seed {seed}, {acknowledged} acknowledged: {what}"] += 1
            shutil.rmtree(left)
    return found


@pytest.mark.timeout(36_000 if SOAK else 300)
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_a_power_cut_takes_nothing_that_was_acknowledged(
    program: str, recordings: Callable[[str], Path], folder: Path
) -> None:
    seed = int.from_bytes(os.urandom(3))

    found = cut_at(recordings(program), folder, CUTS if program != "large" else CUTS // 4, seed)

    assert not found, "\n".join(found)


def test_a_disk_that_only_claims_to_have_synced_commits_is_noticed(
    recordings: Callable[[str], Path], folder: Path
) -> None:
    """A suite that does not see this would see nothing."""

    def lie(event: Event) -> bool:
        return event.kind in "SD" and "_delta_log" in event.path

    assert cut_at(recordings("keyless"), folder, CUTS, 1, lie)
