"""Bounded retries of a compare-and-swap."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from lithify.delta.commit_outcome import Lost
from lithify.delta.log import DeltaLog
from lithify.errors import Conflict
from lithify.settings import Settings

T = TypeVar("T")


class Patience(Protocol):
    """How long to go on trying, and how to wait meanwhile."""

    @property
    def settings(self) -> Settings: ...

    @property
    def pause(self) -> Callable[[float], None]: ...


class PlannedAgain(Exception):
    """The table moved on under a job's plan: plan again. Internal: never leaves the engine."""


def swap_with_retries(patience: Patience, log: DeltaLog, what: str, attempt: Callable[[], T]) -> T:
    """Run `attempt` until its commit is not Lost. `attempt` validates everything at the handle's version, every
    time.
    """
    deadline = time.monotonic() + patience.settings.commit_wait_s_max
    for number in range(patience.settings.commit_attempts_max):
        try:
            return attempt()
        except Lost:
            if time.monotonic() > deadline:
                break
            # Spread rivals out, or they keep meeting at the same version.
            patience.pause(random.uniform(0, min(0.002 * 2 ** min(number, 6), 0.1)))
            log.refresh()
    raise Conflict(
        f"{what} lost the race against other writers {patience.settings.commit_attempts_max} times or for "
        f"{patience.settings.commit_wait_s_max:.0f} s; nothing was written: try again, or raise "
        "commit_attempts_max and commit_wait_s_max"
    )
