"""What a piece of work took: time by the clock, processor time of this process and all below it, and what everybody
else on the machine used meanwhile. Linux tells both in /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Took:
    wall_s: float
    cpu_s: float
    others_s: float


def timed(work: Callable[[], T]) -> tuple[T, Took]:
    own, all_, start = _own(), _all(), time.perf_counter()
    answer = work()
    wall = time.perf_counter() - start
    cpu = _own() - own
    return answer, Took(wall, cpu, max(0.0, _all() - all_ - cpu))


def _own() -> float:
    """Of this process, of those below it, and of those below it that have ended."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                said = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            fields = said[said.rindex(")") + 2 :].split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += used.get(process, 0.0)
        waiting += children.get(process, [])
    return total


def _all() -> float:
    user, nice, system, _idle, _wait, irq, softirq, *_ = map(
        int, (_PROC / "stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS
