"""Values of maintenance: what is wanted (a policy), and what to do with which files, and why (plans).

`triggers` makes plans from a policy, jobs run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from lithify.core.fields import Bytes, Count
from lithify.core.html import Shown
from lithify.core.results import PlannedCompaction
from lithify.core.snapshot import DataFile


@dataclass(frozen=True)
class CompactPlan(Shown):
    """Rewrite `files`, all of one partition of base, into fewer files. The same rows come out.

    `origin` names the outputs' folder and so their tier. `window_us`: rows are split by windows of this length of the
    time column, so that late rows land in their own window. Outputs end at about `target_bytes`. `by`: in z-order of
    these columns, instead of in key order.
    """

    table: str
    origin: str
    files: tuple[DataFile, ...]
    partition: Mapping[str, str | None]
    target_bytes: int
    why: str
    gain: str
    bytes_out: int
    window_us: int | None = None
    by: tuple[str, ...] = ()
    kind: str = field(default="compact", init=False)

    @property
    def file_count(self) -> int:
        return len(self.files)

    @property
    def bytes_in(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def summary(self) -> PlannedCompaction:
        return PlannedCompaction(
            self.table,
            self.origin,
            dict(self.partition),
            self.file_count,
            self.bytes_in,
            self.bytes_out,
            self.gain,
            self.why,
        )


@dataclass(frozen=True)
class MinorPlan(Shown):
    """Merge a contiguous run of change files into one per operation, labelled with the run's highest seq."""

    table: str
    files: tuple[DataFile, ...]
    why: str
    gain: str
    bytes_out: int
    kind: str = field(default="minor", init=False)

    @property
    def bytes_in(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class FoldDue(Shown):
    """The pending changes should be folded now."""

    table: str
    why: str
    gain: str
    files: tuple[DataFile, ...]
    bytes_in: int
    bytes_out: int
    kind: str = field(default="fold", init=False)


Plan = CompactPlan | MinorPlan | FoldDue


@dataclass(frozen=True)
class FileCount(Shown):
    """So many files."""

    files: Annotated[Count, "How many."] = 0
    bytes: Annotated[Bytes, "Their bytes."] = 0


@dataclass(frozen=True)
class Debt(Shown):
    """What a table's maintenance has left to do. `origins` counts base files by what wrote them, tiers among it;
    `waiting` are base files that would be compacted now; `due` says why for every plan.
    """

    origins: Mapping[str, FileCount]
    pending_files: int
    pending_rows: int
    pending_bytes: int
    read_overhead: float
    waiting: FileCount
    due: tuple[str, ...]
