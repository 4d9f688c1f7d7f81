"""Waiting for what comes true by itself, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lithify.compute.processes import members

WAIT_S_MAX = 240


def eventually(holds: Callable[[], Any], what: str = "it") -> Any:
    """What `holds` answers once it is true."""
    until = time.monotonic() + WAIT_S_MAX
    while not (answer := holds()):
        assert time.monotonic() < until, f"waited too long for {what}"
        time.sleep(0.02)
    return answer


def session_is_gone(leader: int) -> bool:
    """Once the last process of a session is gone: the kernel takes its time with a large one that was killed."""
    return bool(eventually(lambda: not members(leader), f"the end of session {leader}"))
