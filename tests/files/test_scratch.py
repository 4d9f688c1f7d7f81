"""Temporary folders: gone when closed, and when their process was killed, with the next process that makes one."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from lithify.errors import Unavailable
from lithify.files import scratch
from lithify.files.scratch import OWNER_FILE, Scratch, sweep
from support import children
from support.folders import memory_folder
from support.waiting import eventually


@pytest.fixture
def parent() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def hold(parent: str, told: Connection) -> None:
    """Make a folder with something in it, and stay."""
    made = Scratch("query", Path(parent))
    (made.path / "spill").mkdir()
    (made.path / "spill" / "rows").write_bytes(b"x" * 1000)
    told.send_bytes(str(made.path).encode())
    time.sleep(children.WAIT_S_MAX)


def locked_elsewhere(parent: Path) -> tuple[Path, int, BaseProcess]:
    told, child_end = children.pipe()
    child = children.start(hold, str(parent), child_end, scratch=parent)
    child_end.close()
    path = Path(told.recv_bytes().decode())
    assert child.pid is not None
    return path, child.pid, child


def test_a_folder_goes_when_it_is_closed(parent: Path) -> None:
    with Scratch("log", parent) as path:
        (path / "a").write_bytes(b"x")
        assert path.parent == parent
    assert list(parent.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_uses_stays(parent: Path) -> None:
    (dead, dead_pid, dead_child), (alive, alive_pid, alive_child) = locked_elsewhere(parent), locked_elsewhere(parent)
    os.kill(dead_pid, signal.SIGKILL)
    dead_child.join(children.WAIT_S_MAX)
    try:
        assert sweep(parent) == 1
        assert not dead.exists()
        assert (alive / "spill" / "rows").exists()
    finally:
        os.kill(alive_pid, signal.SIGKILL)
        alive_child.join(children.WAIT_S_MAX)
    eventually(lambda: sweep(parent) == 1, "the lock of a killed process")
    assert not alive.exists()


def test_the_first_folder_of_a_process_clears_the_place(parent: Path) -> None:
    left, pid, child = locked_elsewhere(parent)
    os.kill(pid, signal.SIGKILL)
    child.join(children.WAIT_S_MAX)
    with Scratch("serving", parent):
        assert not left.exists()


def test_nothing_else_is_touched(parent: Path) -> None:
    (parent / "elsewhere").mkdir()
    (parent / "elsewhere" / OWNER_FILE).touch()
    (parent / "lithify-no-owner").mkdir()
    (parent / "lithify-link").symlink_to(parent / "elsewhere")
    (parent / "lithify-file").touch()
    before = sorted(parent.iterdir())
    assert sweep(parent) == 0
    assert sorted(parent.iterdir()) == before
    assert sweep(parent / "not there") == 0


def test_a_folder_taken_away_before_it_was_locked_is_made_again(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, raced = scratch._locked, iter([1])

    def overtaken(path: Path, *, create: bool) -> int | None:
        if create:
            for _ in raced:
                path.parent.rmdir()
        return locked(path, create=create)

    monkeypatch.setattr(scratch, "_locked", overtaken)
    with Scratch("log", parent) as path:
        assert (path / OWNER_FILE).exists()


def test_a_sweep_takes_no_longer_than_it_may(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (parent / f"lithify-{number}").mkdir()
        (parent / f"lithify-{number}" / OWNER_FILE).touch()
    monkeypatch.setattr(scratch, "SWEEP_S_MAX", -1.0)
    assert sweep(parent) == 0
    monkeypatch.undo()
    assert sweep(parent) == 3


def test_without_descriptors_no_folder_is_made_and_what_stays_goes_with_the_next(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can look into a folder then to remove what is in it."""
    kept, gone = Scratch("kept", parent), Scratch("gone", parent)
    (gone.path / "spill").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(Unavailable, match="too many files"):
            Scratch("more", parent)
        gone.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    kept.close()
    assert list(parent.iterdir()) == []
