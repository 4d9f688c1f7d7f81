"""How long files that no current version needs are kept when a table is vacuumed by itself.

As long as all of this holds, whichever ends first: they are younger than `hours`; one of the newest `versions` writes
needs them; together they are no larger than `size_multiple` times what is live, or than `bytes_min`, whichever is more.
But never less than `hours_min`: readers that run now, and consumers of changes that fell behind a little, find what
they need. Pinned snapshots, tags and unfinished jobs are spared whatever this says (`vacuum_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Cutoff:
    """What was removed before `time_ms` may go; `why` names the limit that decides."""

    time_ms: int
    why: str


@dataclass(frozen=True)
class RetentionLimits:
    hours: float = 168
    versions: int = 10_000
    size_multiple: float = 2
    bytes_min: int = 2**30
    hours_min: float = 1

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RetentionLimits:
        """From a table's options, which are the lake's settings where it has none of its own."""
        return cls(
            options["vacuum_retain_hours"],
            options["vacuum_retain_versions"],
            options["vacuum_retain_size_multiple"],
            options["vacuum_retain_bytes_min"],
            options["vacuum_retain_hours_min"],
        )

    def cutoff(
        self, now_ms: int, write_times_ms: Sequence[int], removed: Iterable[tuple[int, int]], live_bytes: int
    ) -> Cutoff:
        """`write_times_ms`: of the commits of changes, oldest first. `removed`: when and how large, of files that are
        still there.
        """
        found = [Cutoff(now_ms - int(self.hours * HOUR_MS), f"{self.hours:g} h")]
        if len(write_times_ms) > self.versions:
            found.append(Cutoff(write_times_ms[-self.versions], f"{self.versions:,} versions"))
        bytes_max, retained_bytes = max(self.bytes_min, int(self.size_multiple * live_bytes)), 0
        for time_ms, size_bytes in sorted(removed, reverse=True):
            retained_bytes += size_bytes
            if retained_bytes > bytes_max:
                found.append(Cutoff(time_ms + 1, f"{bytes_max:,} bytes"))
                break
        latest = max(found, key=lambda cutoff: cutoff.time_ms)
        floor = Cutoff(now_ms - int(self.hours_min * HOUR_MS), f"at least {self.hours_min:g} h")
        return min(latest, floor, key=lambda cutoff: cutoff.time_ms)
