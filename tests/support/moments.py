"""What a kill would leave at each step of a process, all of it from one run.

The process is a child that stops itself, with all its threads, at every step of its store. While it stands still its
folder is copied, then it goes on to its end. A copy is what a kill at that step would have left, and whoever looks at
it finds its owner gone, as after a kill. Steps between which nothing changed on disk leave the same: one copy will do.

A lake in a bucket is stopped in the same way: the server keeps objects as files, and a copy of them beside is another
lake in the same bucket. What the server was asked to do before, by another thread of the child, it ends meanwhile; and
of many objects that are deleted in one request, a server that dies may have deleted some (`cut_deletes`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lithify.files.local import LocalStorage
from lithify.files.storage import Storage
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


class _Stops(Storage):
    passed: Connection

    def step(self, name: str) -> None:
        with _one_at_a_time:
            self.passed.send_bytes(name.encode())
            fall_asleep()


_one_at_a_time = threading.Lock()


def moments(
    target: Callable[..., Any],
    *arguments: Any,
    folder: Path,
    copies: Path,
    scratch: Path | None = None,
    remote: bool = False,
) -> list[Moment]:
    """Run `target(store, *arguments)`, which works below `folder`, and return what it left at its steps in `copies`.
    `remote`: what lies there are the objects of a server.
    """
    copies.mkdir()
    found: list[Moment] = []
    last: dict[str, bytes | None] = {}
    step = ""
    passed, child_end = children.pipe()
    child = children.start(_run, target, child_end, remote, arguments, scratch=scratch or copies)
    child_end.close()
    assert child.pid is not None
    while (name := _next(passed)) is not None:
        wait_until_stopped(child.pid, poll_s=0.0005)
        try:
            now = _settled(folder) if remote else contents(folder)
            if not found or now != last:
                found.append(Moment(copied(folder, copies / str(len(found))), step))
                last = now
            found[-1].points.append(name)
            step = step if name.startswith("store.") else name
        finally:
            os.kill(child.pid, signal.SIGCONT)
    assert children.finish(child) == 0
    return found


def cut_deletes(found: Sequence[Moment], copies: Path) -> list[Moment]:
    """What requests leave that delete several objects, and are cut off after some: no server promises an order."""
    copies.mkdir()
    cut = []
    for before, after in itertools.pairwise(found):
        there, left = _objects(before.path), _objects(after.path)
        gone = sorted(there - left)
        if len(gone) < 2 or not before.points[-1].startswith("store.delete"):
            continue
        half = len(gone) // 2
        for number, deleted in enumerate((gone[:half], gone[half:])):
            moment = copied(before.path, copies / f"{before.path.name}-{number}")
            for name in deleted:
                (moment / name).unlink()
                with contextlib.suppress(OSError):  # a server keeps no empty folders
                    os.removedirs((moment / name).parent)
            cut.append(Moment(moment, before.after, [f"{before.points[-1]} of {len(deleted)} of {len(gone)}"]))
    return cut


def _objects(folder: Path) -> set[str]:
    return {name for name, content in contents(folder).items() if content is not None}


def _settled(folder: Path) -> dict[str, bytes | None]:
    """Once the server is through with what other threads have asked for."""
    until_s, before = time.monotonic() + children.WAIT_S_MAX, None
    while time.monotonic() < until_s:
        try:
            if (now := contents(folder)) == before:
                return now
            before = now
        except FileNotFoundError:
            before = None
        time.sleep(0.005)
    raise AssertionError(f"{folder} goes on changing")


def _run(target: Callable[..., Any], passed: Connection, remote: bool, arguments: tuple[Any, ...]) -> None:
    kind: type[Storage] = LocalStorage
    if remote:
        from lithify.files.bucket.storage import BucketStorage

        kind = BucketStorage
    store = type("Stopping", (_Stops, kind), {"passed": passed})()
    target(store, *arguments)


def _next(passed: Connection) -> str | None:
    assert passed.poll(children.WAIT_S_MAX), "the child came to no step and to no end"
    try:
        return passed.recv_bytes().decode()
    except EOFError:
        return None
