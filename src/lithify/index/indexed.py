"""What the index asks of the process that it is in, and of a table. `tables/runtime.py` and `tables/handles.py` are
these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lithify.core.names import TableName
from lithify.core.snapshot import Snapshot

if TYPE_CHECKING:
    from lithify.compute.compute import Compute
    from lithify.files.storage import Storage
    from lithify.index.table_index import Indexes, TableIndex
    from lithify.metrics.counters import Counters
    from lithify.settings import Settings


class Process(Protocol):
    @property
    def store(self) -> Storage: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def compute(self) -> Compute: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def indexes(self) -> Indexes: ...


class IndexedTable(Protocol):
    name: TableName
    base_index: TableIndex
    changes_index: TableIndex

    @property
    def runtime(self) -> Process: ...

    def snapshot(self) -> Snapshot: ...
