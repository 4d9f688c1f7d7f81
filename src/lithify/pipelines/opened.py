"""The open tables of the lake, as far as pipelines know them; `lake/open_tables.py` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from lithify.core.names import TableName
from lithify.core.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.read.reader import Reader
    from lithify.tables.handles import Handles

T = TypeVar("T")


class OpenTable(Protocol):
    handles: Handles
    reader: Reader

    def frame(self, spark: SparkSession, as_of: Snapshot, where: str | None) -> DataFrame: ...


class OpenTables(Protocol):
    def read(self, name: TableName, what: Callable[[OpenTable], T]) -> T:
        """What `what` finds, asked of the table that has this name now."""

    def is_open(self, name: TableName) -> bool: ...
