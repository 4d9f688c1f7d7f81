"""What the cache asks of a table: its snapshots, a plan to load it by, and the changes that bring its rows up to date.

`read/reader.py: Reader` is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lithify.core.names import TableName
from lithify.core.ops import Change
from lithify.core.read_plan import ReadPlan
from lithify.core.snapshot import DataFile, Snapshot

if TYPE_CHECKING:
    from lithify.delta.base import BaseLog


class TableHandles(Protocol):
    name: TableName
    base: BaseLog

    def snapshot(self) -> Snapshot: ...


class TableReader(Protocol):
    @property
    def handles(self) -> TableHandles: ...

    def plan(self, snapshot: Snapshot) -> ReadPlan: ...

    def change(self, file: DataFile, snapshot: Snapshot) -> Change: ...

    def remembered(self, snapshot: Snapshot, seq_max: int = 0) -> pa.Table | None: ...

    def written_after(self, seq: int, rows_max: int | None) -> pa.Table | None: ...

    def forgets_after(self, seq: int) -> bool: ...

    def erased_after(self, seq: int) -> bool: ...
