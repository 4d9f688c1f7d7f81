"""Machines that share a bucket and nothing else: each with its own name, clock and memory of what it saw.

Time is simulated: it goes by only when a test says so, for all of them at once. What a machine's clock shows is the
storage's time and as much as it is off; what its monotonic clock shows begins anywhere.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

from lithify.tables.runtime import Owner, Runtime
from support.bucket import Bucket


class World:
    def __init__(self, runtime: Runtime, folder: Path, seed: int = 0) -> None:
        self.passed_s = 0.0
        self.rng = random.Random(seed)
        self._runtime = runtime
        self.bucket = Bucket(folder, self.storage_ms)

    def storage_ms(self) -> float:
        return 1_800_000_000_000 + self.passed_s * 1000

    def machine(self, name: str, off_s: float = 0, *, stopped: bool = False) -> Runtime:
        """`stopped`: its clock shows one time for ever."""
        began_s = self.rng.uniform(0, 1e6)
        first_ms = self.storage_ms() + off_s * 1000

        def now_ms() -> int:
            return int(first_ms if stopped else self.storage_ms() + off_s * 1000)

        return dataclasses.replace(
            self._runtime,
            store=self.bucket,
            owner=Owner(name, 7, "1"),
            now_ms=now_ms,
            monotonic_s=lambda: began_s + self.passed_s,
            _shared={},
        )
