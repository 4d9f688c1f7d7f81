"""Plans of background work: what to do with which files, and why. Values only; `policies` makes them, jobs run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lithify.model.snapshot import DataFile


@dataclass(frozen=True)
class CompactPlan:
    """Rewrite `files`, all of one partition of base, into fewer files. The same rows come out.

    `origin` names the outputs' folder and so their tier. `window_us`: rows are split by windows of this length of the
    time column, so that late rows land in their own window. Outputs end at about `target_bytes`.
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
    kind: str = field(default="compact", init=False)

    @property
    def bytes_in(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class MinorPlan:
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
class FoldDue:
    """The pending changes should be folded now."""

    table: str
    why: str
    gain: str
    files: tuple[DataFile, ...]
    bytes_in: int
    bytes_out: int
    kind: str = field(default="fold", init=False)


Plan = CompactPlan | MinorPlan | FoldDue
