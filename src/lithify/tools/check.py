"""One thing that was looked at: how it is, and what to do about it.

`fail`: something will not work. `warn`: it works, but slowly, or not for long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    ok = "ok"
    warn = "warn"
    fail = "fail"


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, what was found, and what to do if it is not ok."""

    name: str
    status: Status
    found: str
    advice: str = ""
    values: dict[str, Any] = field(default_factory=dict)
