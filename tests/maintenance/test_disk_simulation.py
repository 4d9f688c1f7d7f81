"""A day of small writes to random keys, played with the policies and the retention alone: what is written, kept, read.

Every minute there is a cycle, as `lithify run` has it: the fold or the merge that is due, and once an hour a vacuum.
The figures in docs/maintenance.md are from here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import pytest

from lithify.core.snapshot import DataFile
from lithify.maintenance.read_cost import read_cost
from lithify.maintenance.retention_limits import HOUR_MS, RetentionLimits
from lithify.maintenance.triggers import changed_bytes, fold_due, minor_due
from lithify.options.policy import MaintenancePolicy
from support.file_lists import GB, KEYED, MB, NOW, base, change, folder, snapshot

WRITES_A_MINUTE, ROWS, WRITE_BYTES, LOG_BYTES = 240, 50, 4_000, 1_500
KEYS = 1_000_000
LIMITS = RetentionLimits()


@dataclass
class Day:
    """`removed`: when, and how large, of files that are not live any more."""

    base: list[DataFile]
    policy: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    limits: RetentionLimits = LIMITS
    changes: list[DataFile] = field(default_factory=list)
    removed: deque[tuple[int, int]] = field(default_factory=deque)
    times_ms: deque[int] = field(default_factory=deque)
    now_ms: int = NOW
    seq: int = 0
    folds: int = 0
    changed_bytes: float = 0
    rewritten_bytes: int = 0
    removed_bytes_max: int = 0
    files_max: int = 0
    overheads: list[float] = field(default_factory=list)

    def run(self, minutes: int = 24 * 60) -> Day:
        for minute in range(minutes):
            self._write()
            self._cycle()
            if minute % 60 == 59:
                self._vacuum()
            self.files_max = max(self.files_max, len(self.removed) + len(self.changes))
        return self

    @property
    def live_bytes(self) -> int:
        return sum(file.size_bytes for file in (*self.base, *self.changes))

    @property
    def amplification(self) -> float:
        return self.rewritten_bytes / self.changed_bytes

    def _write(self) -> None:
        for number in range(WRITES_A_MINUTE):
            self.seq += 1
            time_ms = self.now_ms + number * 250
            self.times_ms.append(time_ms)
            self.changes.append(change(self.seq, 0, KEYS, rows=ROWS, size=WRITE_BYTES, time_ms=time_ms))
        self.now_ms += 60_000

    def _cycle(self) -> None:
        seen = snapshot(KEYED, self.base, self.changes)
        self.overheads.append(read_cost(seen).overhead)
        if fold_due(seen, self.policy, self.now_ms) is not None:
            cost = read_cost(seen)
            self.changed_bytes += changed_bytes(cost)
            self.rewritten_bytes += sum(file.size_bytes for file in cost.touched)
            self._remove([*cost.touched, *self.changes])
            self.base, self.changes = [replace(file, path=f"x{file.path}") for file in self.base], []
            self.folds += 1
        elif (plan := minor_due(seen, self.policy)) is not None:
            self._remove(list(plan.files))
            rows, last = sum(file.rows for file in plan.files), plan.files[-1].seq
            size = 2_000 + int(rows * cost_per_row(self.base))
            path = f"{folder('minor', self.seq)}/part-0.parquet"
            first_ms = min(file.time_ms for file in plan.files)
            merged = change(last, 0, KEYS, rows=rows, size=size, time_ms=first_ms, path=path)
            self.rewritten_bytes += size
            gone = range(plan.files[0].seq, last + 1)
            self.changes = sorted([file for file in self.changes if file.seq not in gone] + [merged], key=_seq)

    def _remove(self, files: list[DataFile]) -> None:
        self.removed.extend((self.now_ms, file.size_bytes) for file in files)

    def _vacuum(self) -> None:
        removed_bytes = sum(size for _, size in self.removed)
        self.removed_bytes_max = max(self.removed_bytes_max, removed_bytes)
        cutoff_ms = self.limits.cutoff(self.now_ms, list(self.times_ms), self.removed, self.live_bytes).time_ms
        while self.removed and self.removed[0][0] < cutoff_ms:
            self.removed.popleft()
        while self.times_ms and self.times_ms[0] < self.now_ms - 2 * HOUR_MS:
            self.times_ms.popleft()


def _seq(file: DataFile) -> int:
    return file.seq


def cost_per_row(files: list[DataFile]) -> float:
    return sum(file.size_bytes for file in files) / sum(file.rows for file in files)


def small() -> list[DataFile]:
    return [base(1, 0, KEYS, size=int(3.7 * MB), rows=300_000)]


def large() -> list[DataFile]:
    """Every change can meet every file of it."""
    return [base(n, 0, KEYS, size=512 * MB, rows=5_000_000) for n in range(20)]


def told(name: str, day: Day) -> None:
    print(
        f"\n{name}: {day.folds} folds, {day.rewritten_bytes / GB:.2f} GB rewritten, amplification "
        f"{day.amplification:.1f}, {day.removed_bytes_max / MB:,.0f} MB and {day.files_max:,} files kept at most, "
        f"reads {max(day.overheads):.2f}x, {sum(day.overheads) / len(day.overheads):.2f}x on average"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "files"), [("3.7 MB", small()), ("10 GB", large())])
def test_a_day_of_four_writes_a_second_stays_within_its_bounds(name: str, files: list[DataFile]) -> None:
    day = Day(files).run()
    told(name, day)
    assert day.amplification <= 1.5 * day.policy.write_amplification_max
    assert max(day.overheads) <= 3 * day.policy.read_overhead_max
    # What an hour leaves, twice: the floor, and the hour until the next vacuum.
    assert day.removed_bytes_max <= 3 * max(LIMITS.bytes_min, LIMITS.size_multiple * day.live_bytes)
    assert day.files_max <= 3 * 60 * WRITES_A_MINUTE * 2


def test_without_a_bound_the_same_day_writes_far_more() -> None:
    unbounded = MaintenancePolicy(write_amplification_max=1_000_000)
    bounded, free = Day(small()).run(60), Day(small(), policy=unbounded).run(60)
    told("3.7 MB, bounded, 1 h", bounded)
    told("3.7 MB, unbounded, 1 h", free)
    assert bounded.rewritten_bytes < 0.6 * free.rewritten_bytes
