"""Processes, as the kernel tells of them.

The processes of one session: a worker leads its own, and its JVM and Spark's Python workers belong to it.

Spark puts its Python workers into a process group of their own, so a session, not a group, is what holds all of them
together. They are found in /proc; where there is none, the worker's process group stands for the session.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.01
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@functools.cache
def machine() -> str:
    """What tells the processes that can be looked up from here from those of other machines and containers, which may
    bear the same host name. Empty: nothing tells.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{os.stat(_PROC / 'self/ns/pid').st_ino}"
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """What tells it from a later one with the same number. None: it is gone. Empty: nothing more is told of it."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        if _PROC.is_dir():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return ""
        return ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def is_gone(pid: int) -> bool:
    """For sure: where the kernel tells nothing of processes, none is."""
    return _PROC.is_dir() and not (_PROC / str(pid)).exists()


def name_and_parent(pid: int) -> tuple[str, int]:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", 0
    before, _, after = text.rpartition(")")
    return before.partition("(")[2], int(after.split()[1])


def members(leader: int) -> list[int]:
    """Living processes of the session that `leader` leads or led."""
    found = []
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        with contextlib.suppress(OSError):
            # Behind the name, which may hold anything: state, parent, group, session.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def rss_bytes(leader: int) -> int:
    """Resident memory of a session, pages shared between its processes counted for each of them."""
    pages = 0
    for pid in members(leader):
        with contextlib.suppress(OSError):
            pages += int((_PROC / str(pid) / "statm").read_text().split()[1])
    return pages * _PAGE_BYTES


def kill_session(leader: int, spare: int | None = None) -> None:
    """SIGKILL to all processes of the session that `leader` leads or led, except `spare`."""
    for pid in members(leader):
        if pid != spare:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if spare is None and not _PROC.is_dir():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def end_session(leader: int, wait_s_max: float) -> None:
    """Kill a session whose leader is gone, and wait for the last of its processes to be gone too."""
    until = time.monotonic() + wait_s_max
    kill_session(leader)
    while members(leader) and time.monotonic() < until:
        time.sleep(_POLL_S)
        kill_session(leader)
