"""The data source `lithify` for Spark: its tables are those of a lake.

Spark pickles this class by its name and imports it on executors too, where neither Delta nor DataFusion need be
installed: what opens a lake is imported when one is opened, and that happens only where Spark plans and commits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING

from lithify.core.position import Position, seq_of
from lithify.errors import InvalidRequest, LithifyError
from lithify.files.addresses import address_of, folder_of, path_of
from lithify.files.open_storage import storage_of
from lithify.spark.datasource.options import Mode, SourceOptions
from lithify.spark.datasource.source import TableSource
from lithify.spark.datasource.table import Spooled, SpoolTarget

if TYPE_CHECKING:
    import pyarrow as pa

    from lithify.core.read_plan import PlannedTable
    from lithify.core.schema import TableSchema
    from lithify.files.parquet import Written
    from lithify.lake.table import Table


class LithifyDataSource(TableSource):
    """`spark.dataSource.register(LithifyDataSource)`, then `spark.read.format("lithify").load("lake/shop/orders")`."""

    @contextmanager
    def opened(self) -> Iterator[LakeTable]:
        """For one call. It comes in a process of Spark's, which may be forked or ended at any moment: no table stays
        open there, and no thread of a lake runs on.
        """
        from lithify.lake.lake import Lake

        options = self.parsed
        with Lake(options.lake, create=False) as lake:
            yield LakeTable(lake.table(options.table))


class LakeTable:
    """`TableAccess` over a table of an open lake."""

    def __init__(self, table: Table) -> None:
        from lithify.lake.internals import internals

        self._table, self._internals = table, internals(table)

    @property
    def definition(self) -> TableSchema:
        return self._table.definition

    @property
    def index(self) -> PurePath:
        return self._internals.handles.folder / "index"

    def planned(self, as_of: str | None) -> PlannedTable:
        return self._internals.opened.planned(as_of)

    def seq_of(self, position: str) -> int:
        if position == "latest":
            return self._table.snapshot().seq
        return seq_of(0 if position == "earliest" else position, self._table.name, self._internals.incarnation)

    def position_of(self, seq: int) -> str:
        return str(Position(self._table.name, self._internals.incarnation, seq))

    def feed(self, since: int, until: int, *, before: bool) -> pa.Table:
        return self._table.feed(since, until, before=before)

    def feed_until(self, since: int, rows_max: int) -> int:
        return self._internals.feed.until(since, rows_max)

    def begin_write(self) -> SpoolTarget:
        from lithify.write import spool

        return spool.begin(self._internals, spool.driver_of(os.getpid()))

    def commit_write(
        self,
        target: SpoolTarget,
        spooled: Sequence[Spooled],
        written: Sequence[Written],
        mode: Mode | None,
        batch_id: str | None,
    ) -> None:
        from lithify.write import spool

        spool.commit(self._internals, target, spooled, written, mode or _usual_mode(target.schema), batch_id)

    def abort_write(self, target: SpoolTarget) -> None:
        from lithify.write import spool

        spool.abort(self._internals, target)

    def apply_batch(self, options: SourceOptions, query: str | None, rows: pa.Table, epoch: int) -> None:
        query = query or _query_in(options.checkpoint)
        if query is None and options.name is None:
            raise InvalidRequest(
                "Spark does not tell here which streaming query a micro-batch belongs to: give the query a name of its "
                "own, .option('name', ...), and keep one name to one checkpoint folder"
            )
        sink = self._table.stream_writer(
            options.mode or _usual_mode(self.definition),
            name=options.name,
            op_column=options.op_column,
            null_keys=options.null_keys,
            missing=options.missing,
        )
        sink.take(self._internals, rows, epoch, query)


def _usual_mode(schema: TableSchema) -> Mode:
    return "upsert" if schema.keyed else "append"


def _query_in(checkpoint: str | None) -> str | None:
    """The id of the query that a checkpoint folder belongs to, where this process can read it."""
    if checkpoint is None:
        return None
    try:
        checkpoint = str(address_of(checkpoint) or folder_of(checkpoint))
        found = json.loads(storage_of(checkpoint).read(path_of(checkpoint) / "metadata"))
        return str(found["id"])
    except (LithifyError, ValueError, KeyError, TypeError):
        return None
