"""What pipelines get from the lake that they run on, and all that they know of it.

A run goes by moments: at each, a table is looked at once, when it is first asked for, and whatever is decided then goes
by that snapshot. There is one when a run begins, which tells what there is to do, and one in each step, because steps
take long and what one of them writes the next one reads. What a step has looked at is pinned until it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.names import TableName, parse_table_name
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.errors import LithifyError, NotFound
from lithify.read.change_feed import Feed
from lithify.tables.handles import Handles, not_found
from lithify.tables.pins import pinned
from lithify.tables.runtime import Runtime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.pipelines.opened import OpenTable, OpenTables
    from lithify.write.access import TableAccess


@dataclass(frozen=True)
class Context:
    """`spark` answers with the lake's session, which is all its own where `owns_spark`."""

    runtime: Runtime
    tables: OpenTables
    table: Callable[[TableName, str], TableAccess]
    exists: Callable[[TableName], bool]
    create: Callable[[TableName, TableSchema], bool]
    spark: Callable[[], SparkSession]
    owns_spark: bool


@dataclass(frozen=True)
class Seen:
    """A table as it was at one moment. Nothing here looks at its logs again."""

    table: TableAccess
    opened: OpenTable
    snapshot: Snapshot

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    @property
    def handles(self) -> Handles:
        return self.opened.handles

    @cached_property
    def feed(self) -> Feed:
        return Feed(self.opened.reader, look=False)

    def frame(self, spark: SparkSession, where: str | None = None) -> DataFrame:
        return self.opened.frame(spark, self.snapshot, where)

    def rows(self, where: str, rows_max: int) -> pa.Table | None:
        """None: there are more than that."""
        planned = self.opened.reader.planned(self.snapshot)
        found = self.handles.runtime.serving.read(planned, None, where, limit=rows_max + 1)
        return found if found.num_rows <= rows_max else None

    def count(self) -> int:
        return self.handles.runtime.serving.count(self.opened.reader.planned(self.snapshot))


class Moment:
    """The tables of the lake, each as it is when first asked for. `pins`: keeps their files until it is closed."""

    def __init__(self, context: Context, pins: ExitStack | None = None) -> None:
        self.context, self._pins = context, pins
        self._seen: dict[str, Seen | None] = {}

    def find(self, name: str) -> Seen | None:
        """None: there is no such table."""
        if name not in self._seen:
            parsed = parse_table_name(name)
            try:
                self._seen[name] = self.context.tables.read(parsed, self._look)
            except NotFound:
                if self.context.exists(parsed):
                    raise
                self._seen[name] = None
        return self._seen[name]

    def table(self, name: str) -> Seen:
        found = self.find(name)
        if found is None:
            raise not_found(parse_table_name(name))
        return found

    def created(self, name: str, schema: TableSchema) -> Seen:
        """The table, which is created if it is not there."""
        if self.find(name) is None:
            self.context.create(parse_table_name(name), schema)
            del self._seen[name]
        return self.table(name)

    def exists(self, name: str) -> bool:
        """Asked of the log of a table that is open; of others the catalog may know without opening them."""
        parsed = parse_table_name(name)
        if name not in self._seen and not self.context.tables.is_open(parsed):
            return self.context.exists(parsed)
        try:
            return self.find(name) is not None
        except LithifyError:
            return True  # a damaged table is still a table

    def _look(self, opened: OpenTable) -> Seen:
        handles = opened.handles
        snapshot = handles.snapshot() if self._pins is None else self._pins.enter_context(pinned(handles, None))
        return Seen(self.context.table(handles.name, handles.incarnation), opened, snapshot)
