"""What the rooms below `lake` know of a table that somebody holds: this, and neither its class nor the lake.

`lake/internals.py: TableInternals` is one. Each look asks anew, so a table may be unloaded and opened again meanwhile.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from lithify.core.names import TableName
from lithify.core.results import Commit
from lithify.core.schema import TableSchema

if TYPE_CHECKING:
    from lithify.read.change_feed import Feed
    from lithify.read.reader import Reader
    from lithify.tables.handles import Handles
    from lithify.tables.runtime import Runtime
    from lithify.write.conditions import Write
    from lithify.write.small_writes import Request


class TableAccess(Protocol):
    """One table while it is the same one."""

    name: TableName
    incarnation: str
    runtime: Runtime

    @property
    def handles(self) -> Handles: ...

    @property
    def reader(self) -> Reader: ...

    @property
    def feed(self) -> Feed: ...

    @property
    def known_schema(self) -> TableSchema:
        """As it was when this process last looked, told without waiting for a commit under way."""

    def maintaining(self) -> AbstractContextManager[tuple[Handles, Reader]]:
        """For maintenance: one at a time, on handles of its own, so that no reader and no writer waits for it."""

    def write(self, request: Request) -> Commit: ...

    def before(self, write: Write) -> Commit | None:
        """The answer of then, if this was written before. Raises where it may not be written."""
