"""A writer is killed at every step, or the power goes: the old state or the new one, and the next commit works."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from lithify.errors import Corruption, NotFound
from lithify.files.local import LocalStorage
from lithify.index import writer
from lithify.index.reader import Sidecar
from support import children, sidecar_writes
from support.faults import RecordingStore
from support.powercut import Disk
from support.sidecars import TABLE_ID, State, sample_entry, state


def state_at(path: Path) -> State | None:
    try:
        return state(Sidecar.open(path, TABLE_ID).view())
    except NotFound:
        return None


@pytest.mark.parametrize("name", sidecar_writes.SCENARIOS)
def test_a_kill_at_every_step_leaves_the_old_state_or_the_new_one(name: str, folder: Path) -> None:
    prepared = folder / "prepared"
    prepared.mkdir()
    sidecar_writes.prepare(name, prepared / "x.pm")
    rehearsal, store = shutil.copytree(prepared, folder / "rehearsal"), RecordingStore()
    old = state_at(rehearsal / "x.pm")
    sidecar_writes.run(name, store, rehearsal / "x.pm")
    new = state_at(rehearsal / "x.pm")
    steps = store.occurrences()
    assert len(steps) >= 4
    seen = []
    for point, nth in steps:
        path = shutil.copytree(prepared, folder / f"{point}-{nth}") / "x.pm"

        child = children.start(sidecar_writes.run_until_killed, name, str(path), point, nth, scratch=folder)

        assert children.finish(child) == -signal.SIGKILL, f"{name} never came to {point} {nth}"
        found = state_at(path)
        assert found in (old, new), f"{name} killed at {point} {nth}"
        seen.append(found)
        if found is None:
            writer.create(LocalStorage(), path, TABLE_ID, 200, [sample_entry("next", 1)])
        else:
            writer.append(LocalStorage(), path, TABLE_ID, 200, [sample_entry("next", 1)], [])
        expected = {*(found or {}), "next"}
        assert state_at(path).keys() == expected, f"{name} killed at {point} {nth}"  # type: ignore[union-attr]
    assert seen[0] == old


@pytest.mark.parametrize("name", sidecar_writes.SCENARIOS)
def test_a_power_cut_leaves_a_state_that_was_there_or_a_file_that_is_refused(name: str, folder: Path) -> None:
    root = folder / "disk"
    (root / "index").mkdir(parents=True)
    path = root / "index" / "x.pm"
    sidecar_writes.prepare(name, path)
    with Disk(root) as disk:
        old = state_at(path)
        sidecar_writes.run(name, LocalStorage(), path)
        new = state_at(path)
        strict = disk.strict(folder / "strict")
        torn = [disk.torn(folder / f"torn-{seed}", seed) for seed in range(40)]

    assert state_at(strict / "index" / "x.pm") in (old, new)
    for left in torn:
        try:
            assert state_at(left / "index" / "x.pm") in (old, new)
        except Corruption:  # the disk has lost what it had promised to keep
            writer.create(LocalStorage(), left / "index" / "x.pm", TABLE_ID, 200, [])
            assert state_at(left / "index" / "x.pm") == {}
