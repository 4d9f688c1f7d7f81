"""What a table takes on disk beside its live files, and what maintenance writes for it, counted from its commits.

Removed files stay until vacuum takes them. They are counted by the minute, which is enough to tell how many of them
the next vacuum would take, and little however many there are. A vacuum says in its commit up to when it took them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated

from lithify.core.html import Shown
from lithify.maintenance.retention_limits import RetentionLimits

MINUTE_MS = 60_000


@dataclass(frozen=True)
class DiskUse(Shown):
    """`removed`: kept for versions of the past; `reclaimable`, a part of it, would go with the next vacuum.

    `write_amplification`: bytes written by folds, merges and compactions per byte of changes, which count as large as
    their rows are in base; None before there was a change.
    """

    removed_files: Annotated[int, "Files that only versions of the past need."] = 0
    removed_bytes: Annotated[int, "Bytes in them."] = 0
    reclaimable_bytes: Annotated[int, "Those of them that the next vacuum takes."] = 0
    write_amplification: Annotated[
        float | None, "Bytes that maintenance writes per byte of changes; null before there was one."
    ] = None


@dataclass
class DiskTally:
    removed_bytes: Counter[int] = field(default_factory=Counter)
    removed_files: Counter[int] = field(default_factory=Counter)
    writes: Counter[int] = field(default_factory=Counter)
    changed_rows: int = 0
    rewritten_bytes: int = 0

    def wrote(self, time_ms: int, rows: int) -> None:
        self.writes[time_ms // MINUTE_MS] += 1
        self.changed_rows += rows

    def rewrote(self, size_bytes: int) -> None:
        self.rewritten_bytes += size_bytes

    def removed(self, time_ms: int, size_bytes: int) -> None:
        self.removed_files[time_ms // MINUTE_MS] += 1
        self.removed_bytes[time_ms // MINUTE_MS] += size_bytes

    def vacuumed(self, cutoff_ms: int) -> None:
        for counts in (self.removed_files, self.removed_bytes):
            for minute in [minute for minute in counts if (minute + 1) * MINUTE_MS <= cutoff_ms]:
                del counts[minute]

    def measured(self, removed: Iterable[tuple[int, int]]) -> None:
        """What a vacuum has found lying there, and left: when it was removed, and its size."""
        self.removed_files, self.removed_bytes = Counter(), Counter()
        for time_ms, size_bytes in removed:
            self.removed(time_ms, size_bytes)

    def use(self, limits: RetentionLimits, now_ms: int, live_bytes: int, row_bytes: float) -> DiskUse:
        newest = limits.versions + 1
        times_ms: list[int] = []
        for minute in sorted(self.writes, reverse=True):
            times_ms += [minute * MINUTE_MS] * min(self.writes[minute], newest - len(times_ms))
            if len(times_ms) >= newest:
                break
        removed = [(minute * MINUTE_MS, size) for minute, size in self.removed_bytes.items()]
        cutoff_ms = limits.cutoff(now_ms, times_ms[::-1], removed, live_bytes).time_ms
        changed_bytes = self.changed_rows * row_bytes
        return DiskUse(
            sum(self.removed_files.values()),
            sum(self.removed_bytes.values()),
            sum(size for time_ms, size in removed if time_ms < cutoff_ms),
            self.rewritten_bytes / changed_bytes if changed_bytes else None,
        )
