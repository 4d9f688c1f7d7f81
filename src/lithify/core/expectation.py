"""What a step of a pipeline expects of the rows that come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Otherwise = Literal["fail", "quarantine", "warn"]


@dataclass(frozen=True)
class Expectation:
    """A condition on the rows that come out, and what becomes of those for which it is false or null."""

    name: str
    that: str
    otherwise: Otherwise = "fail"
