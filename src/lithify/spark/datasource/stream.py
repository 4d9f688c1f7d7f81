"""A stream over the changes of a table: offsets are positions, and a micro-batch is some whole commits.

A position names the table and its incarnation, so a checkpoint that is used with another table, or with one that was
dropped and created again, is refused instead of skipping rows. Rewrites of files have no seq of their own: a fold or a
compaction between two batches neither repeats a row nor hides one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lithify.errors import cut_here
from lithify.merge.change_feed import feed_schema
from lithify.spark.datasource.plan import ScanPartition, forget, partitions_of_rows
from lithify.spark.datasource.read import batches, check_wanted
from lithify.spark.datasource.table import Source, TableAccess, pages

POSITION = "position"


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process as long as the query runs, and keeps the table open there; `read` runs on executors."""

    def __init__(self, source: Source, wanted: StructType) -> None:
        self._source, self._options = source, source.parsed
        self._open: ExitStack | None = None
        self._table_open: TableAccess | None = None
        self._target: int | None = None
        self._planned: list[tuple[int, list[ScanPartition]]] = []
        self.wanted = wanted
        self.columns = feed_schema(self._table.definition)
        check_wanted(wanted, self.columns)

    def __getstate__(self) -> dict[str, Any]:
        return {"columns": self.columns, "wanted": self.wanted}

    @property
    def _table(self) -> TableAccess:
        if self._table_open is None:
            self._open = ExitStack()
            self._table_open = self._open.enter_context(self._source.opened())
        return self._table_open

    @cut_here
    def initialOffset(self) -> dict[str, str]:
        return self._offset(self._table.seq_of(self._options.starting_position))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._table.seq_of("latest")

    @cut_here
    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        since = self._table.seq_of(start[POSITION])
        newest = self._table.seq_of("latest")
        if self._target is not None:
            newest = min(newest, max(self._target, since))
        if isinstance(limit, ReadMaxRows) and since < newest:
            newest = min(newest, self._table.feed_until(since, limit.max_rows))
        return self._offset(newest)

    def reportLatestOffset(self) -> dict[str, str]:
        return self._offset(self._table.seq_of("latest"))

    @cut_here
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        table = self._table
        check_wanted(self.wanted, feed_schema(table.definition))  # a column may be gone since the query began
        since, until = table.seq_of(start[POSITION]), table.seq_of(end[POSITION])
        found = partitions_of_rows(pages(table, since, until, before=self._options.before), table.index)
        self._planned.append((until, found))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ScanPartition):
            yield from batches(partition, self.columns, self.wanted)

    def commit(self, end: dict[str, str]) -> None:
        self._forget_up_to(self._table.seq_of(end[POSITION]))

    def stop(self) -> None:
        self._forget_up_to(None)
        if self._open is not None:
            self._open.close()
        self._open = self._table_open = None

    def _forget_up_to(self, seq: int | None) -> None:
        """Micro-batches up to there are through (None: all, the query has ended)."""
        through = [(until, parts) for until, parts in self._planned if seq is None or until <= seq]
        self._planned = [entry for entry in self._planned if entry not in through]
        for _, parts in through:
            forget(parts)

    def _offset(self, seq: int) -> dict[str, str]:
        return {POSITION: self._table.position_of(seq)}
