"""How much the long tests do.

A sweep over the steps of some work takes some of each class: the same storage call after the same named step of the
engine does the same to another file. Of the longest sweeps a run takes a third (`of_this_run`), another one each time;
SWEEP_SEED, which a run prints, takes the same again. Random programs are a handful, new ones in each run. `make soak`
sets SOAK, and then nothing is left out and the programs are many.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

EVERY = 6
SHARES = 3
SOAK = os.environ.get("SOAK", "") not in ("", "0")
# In the environment, so that all workers of a run have the same.
SEED = int(os.environ.setdefault("SWEEP_SEED", str(secrets.randbelow(1_000_000))))


def examples(number: int, soak: int) -> int:
    """How many random cases to try."""
    return soak if SOAK else number


class Thinning:
    """Says of each step of a run, while it runs, whether it is one of those that `thinned` would take."""

    def __init__(self) -> None:
        self._step = ""
        self._seen: Counter[Hashable] = Counter()

    def takes(self, point: str) -> bool:
        kind = self._step, point
        if not point.startswith("store."):
            self._step = point
        self._seen[kind] += 1
        return SOAK or self._seen[kind] % EVERY == 1


def thinned(cases: Iterable[T], classes_of: Callable[[T], Iterable[Hashable]]) -> list[T]:
    """The first case of each class, and every sixth after it: all classes, and long runs of one in the middle too."""
    seen: Counter[Hashable] = Counter()
    chosen = []
    for case in cases:
        classes = set(classes_of(case))
        if SOAK or any(seen[name] % EVERY == 0 for name in classes):
            chosen.append(case)
        seen.update(classes)
    return chosen


def of_this_run(cases: Sequence[T]) -> Sequence[T]:
    """Every third case, from one of the first three on, as the seed tells: after some runs all have had their turn."""
    return cases if SOAK else cases[SEED % SHARES :: SHARES]


def some_back(seq: int, oldest: int) -> list[int]:
    """How far to look back from `seq`: to it, to both sides of `oldest`, and to every fifth in between and before."""
    backs = range(seq + 1)
    return [back for back in backs if SOAK or back % 5 == seq % 5 or back == 0 or abs(seq - back - oldest) <= 1]


def staged(points: Sequence[tuple[str, int]]) -> list[tuple[str, str, int]]:
    """Each storage call of a run with the named step that came before it: (step, call, how many times it has come)."""
    step, found = "", []
    for point, nth in points:
        if point.startswith("store."):
            found.append((step, point, nth))
        else:
            step = point
    return found
