"""What a kill would leave at each step of a process, all of it from one run.

The process is a child that stops itself, with all its threads, at every step of its store. While it stands still its
folder is copied, then it goes on to its end. A copy is what a kill at that step would have left, and whoever looks at
it finds its owner gone, as after a kill. Steps between which nothing changed on disk leave the same: one copy will do.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lithify.files.local import LocalStorage
from support import children
from support.cycles import fall_asleep, wait_until_stopped
from support.folders import contents, copied


@dataclass(frozen=True)
class Moment:
    """A copy of the folder, and the steps at which it looked like that; `after`: the named step before them."""

    path: Path
    after: str = ""
    points: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "killed at " + " or ".join(self.points)

    def classes(self) -> set[tuple[str, str]]:
        return {(self.after, point) for point in self.points}


class _Stopping(LocalStorage):
    def __init__(self, passed: Connection) -> None:
        self._passed, self._one_at_a_time = passed, threading.Lock()

    def step(self, name: str) -> None:
        with self._one_at_a_time:
            self._passed.send_bytes(name.encode())
            fall_asleep()


def moments(target: Callable[..., Any], *arguments: Any, folder: Path, copies: Path) -> list[Moment]:
    """Run `target(store, *arguments)`, which works below `folder`, and return what it left at its steps in `copies`."""
    copies.mkdir()
    found: list[Moment] = []
    last: dict[str, bytes | None] = {}
    step = ""
    passed, child_end = children.pipe()
    child = children.start(_run, target, child_end, arguments, scratch=copies)
    child_end.close()
    assert child.pid is not None
    while (name := _next(passed)) is not None:
        wait_until_stopped(child.pid, poll_s=0.0005)
        try:
            now = contents(folder)
            if not found or now != last:
                found.append(Moment(copied(folder, copies / str(len(found))), step))
                last = now
            found[-1].points.append(name)
            step = step if name.startswith("store.") else name
        finally:
            os.kill(child.pid, signal.SIGCONT)
    assert children.finish(child) == 0
    return found


def _run(target: Callable[..., Any], passed: Connection, arguments: tuple[Any, ...]) -> None:
    target(_Stopping(passed), *arguments)


def _next(passed: Connection) -> str | None:
    assert passed.poll(children.WAIT_S_MAX), "the child came to no step and to no end"
    try:
        return passed.recv_bytes().decode()
    except EOFError:
        return None
