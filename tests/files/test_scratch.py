"""Temporary folders: gone when closed, and when their process was killed, with the next process that makes one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from lithify.files import scratch
from lithify.files.scratch import OWNER_FILE, Scratch, sweep
from support import children
from support.folders import memory_folder
from support.waiting import eventually


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def hold(place: str, told: Connection) -> None:
    """Make a folder with something in it, and stay."""
    made = Scratch("query", Path(place))
    (made.path / "spill").mkdir()
    (made.path / "spill" / "rows").write_bytes(b"x" * 1000)
    told.send_bytes(str(made.path).encode())
    time.sleep(children.WAIT_S_MAX)


def held_elsewhere(place: Path) -> tuple[Path, int, BaseProcess]:
    told, child_end = children.pipe()
    child = children.start(hold, str(place), child_end, scratch=place)
    child_end.close()
    path = Path(told.recv_bytes().decode())
    assert child.pid is not None
    return path, child.pid, child


def test_a_folder_goes_when_it_is_closed(place: Path) -> None:
    with Scratch("log", place) as path:
        (path / "a").write_bytes(b"x")
        assert path.parent == place
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_uses_stays(place: Path) -> None:
    (dead, dead_pid, dead_child), (alive, alive_pid, alive_child) = held_elsewhere(place), held_elsewhere(place)
    os.kill(dead_pid, signal.SIGKILL)
    dead_child.join(children.WAIT_S_MAX)
    try:
        assert sweep(place) == 1
        assert not dead.exists()
        assert (alive / "spill" / "rows").exists()
    finally:
        os.kill(alive_pid, signal.SIGKILL)
        alive_child.join(children.WAIT_S_MAX)
    eventually(lambda: sweep(place) == 1, "the lock of a killed process")
    assert not alive.exists()


def test_the_first_folder_of_a_process_clears_the_place(place: Path) -> None:
    left, pid, child = held_elsewhere(place)
    os.kill(pid, signal.SIGKILL)
    child.join(children.WAIT_S_MAX)
    with Scratch("serving", place):
        assert not left.exists()


def test_nothing_else_is_touched(place: Path) -> None:
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / OWNER_FILE).touch()
    (place / "lithify-no-owner").mkdir()
    (place / "lithify-link").symlink_to(place / "elsewhere")
    (place / "lithify-file").touch()
    before = sorted(place.iterdir())
    assert sweep(place) == 0
    assert sorted(place.iterdir()) == before
    assert sweep(place / "not there") == 0


def test_a_folder_taken_away_before_it_was_locked_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, raced = scratch._locked, iter([1])

    def overtaken(path: Path, *, create: bool) -> int | None:
        if create:
            for _ in raced:
                path.parent.rmdir()
        return locked(path, create=create)

    monkeypatch.setattr(scratch, "_locked", overtaken)
    with Scratch("log", place) as path:
        assert (path / OWNER_FILE).exists()


def test_a_sweep_takes_no_longer_than_it_may(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (place / f"lithify-{number}").mkdir()
        (place / f"lithify-{number}" / OWNER_FILE).touch()
    monkeypatch.setattr(scratch, "SWEEP_S_MAX", -1.0)
    assert sweep(place) == 0
    monkeypatch.undo()
    assert sweep(place) == 3
