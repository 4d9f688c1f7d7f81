"""Writing a DataFrame as files that base could take as they are.

Rows come to the writer in the order of their keys, partition after partition, and are streamed through Arrow into the
same Parquet writer that small writes use, with the same checks. Equal keys lie next to each other, so one look at the
neighbour finds duplicates, or picks the winner by order_by.

Getting them into that order, a shuffle by ranges and a sort, costs more than writing them. A frame whose partitions
hold disjoint ranges of keys, as exports and other tables usually do, is written as it comes: a look at the key column
alone tells, and the tasks check every row while they write. Where that look was wrong, the files are dropped and the
rows are sorted after all.

What a task reports is what counts: files of failed or doubled task attempts are never committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from lithify.core.arrow_rows import strictly_ascending
from lithify.core.rows import check_rows, fitted
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest
from lithify.files.addresses import path_of
from lithify.files.open_storage import storage_of
from lithify.files.parquet import Written
from lithify.files.part_files import PartFiles
from lithify.spark.schemas import column_named, in_order_of
from lithify.spark.tasks import SPARK_ERRORS, compute_failed, run_partitions

EXAMPLES_MAX = 5
DIRECT_ROWS_MIN = 100_000  # fewer rows in a partition are not worth a file of their own


@dataclass(frozen=True)
class WriteTask:
    schema: TableSchema
    root: str
    folder: str
    ordered: bool = False  # rows come with their order columns, so that of several rows of a key one can win
    as_it_comes: bool = False  # rows should lie in the order of their keys, but nobody has sorted them


_Span = tuple[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class _Part:
    """What one task wrote: `span` is its first and its last key."""

    files: list[Written]
    in_order: bool = True
    span: _Span | None = None


class _OutOfOrder(Exception):
    """A key is not above the one before it."""


def write_parts(frame: DataFrame, task: WriteTask) -> list[Written]:
    """Write the frame below `root`/`folder`; what comes back is durable but for directory entries."""
    schema = task.schema
    try:
        if not schema.keyed:
            return _files(_run(frame, task))
        task = replace(task, ordered=schema.has_places(frame.columns))
        if _lies_in_order(frame, schema.key):
            parts = _run(frame, replace(task, as_it_comes=True))
            if all(part.in_order for part in parts) and _disjoint([part.span for part in parts if part.span]):
                return _files(parts)
            for file in _files(parts):
                storage_of(task.root).delete(path_of(task.root) / file.path)
        keys = in_order_of(frame, schema.select(schema.key))
        by = schema.order_columns if task.ordered else ()
        order = [column.asc_nulls_first() for column in in_order_of(frame, schema.select(by))]
        return _files(_run(frame.repartitionByRange(*keys).sortWithinPartitions(*keys, *order), task))
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def write_batches(batches: Iterator[pa.RecordBatch], task: WriteTask) -> list[Written]:
    """Rows that are at hand already, of a keyed table in the order of their keys (and order_by)."""
    return _PartitionWriter(task).write_all(batches).files


def _files(parts: Iterable[_Part]) -> list[Written]:
    return [file for part in parts for file in part.files]


def _run(frame: DataFrame, task: WriteTask) -> list[_Part]:
    return run_partitions(frame, lambda batches: _PartitionWriter(task).write_all(batches))


def _lies_in_order(frame: DataFrame, key: Sequence[str]) -> bool:
    """Whether each partition seems to hold keys that no other one does, and enough rows for a file of its own."""
    columns = []
    for number, name in enumerate(key):
        column = column_named(name)
        if isinstance(frame.schema[name].dataType, TimestampType):
            column = F.unix_micros(column)  # Python's local time does not have the first and last moments
        columns.append(column.alias(f"k{number}"))
    keys = F.struct(*columns)
    found = (
        frame.select(keys.alias("key"), F.spark_partition_id().alias("part"))
        .groupBy("part")
        .agg(F.min("key").alias("low"), F.max("key").alias("high"), F.count("*").alias("rows"))
        .collect()
    )
    if len(found) > 1 and sum(row["rows"] for row in found) / len(found) < DIRECT_ROWS_MIN:
        return False
    spans = [(tuple(row["low"]), tuple(row["high"])) for row in found]
    # Nulls in a key are refused by the tasks, with the row they are in.
    return not any(value is None for span in spans for end in span for value in end) and _disjoint(spans)


def _disjoint(spans: Iterable[_Span]) -> bool:
    return all(before[1] < after[0] for before, after in pairwise(sorted(spans)))


@dataclass
class _PartitionWriter:
    """What one task does with its rows."""

    task: WriteTask
    first: tuple[Any, ...] | None = None
    last: tuple[Any, ...] | None = None

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> _Part:
        schema = self.task.schema
        files = PartFiles(schema, self.task.root, self.task.folder)
        carried: pa.Table | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                table = fitted(pa.Table.from_batches([batch]), schema)
                check_rows(table, schema)
                if self.task.as_it_comes:
                    self._check_order(table)
                elif schema.keyed:
                    table, carried = self._winners(table if carried is None else pa.concat_tables([carried, table]))
                files.write(table)
            if carried is not None:
                files.write(carried)
            written = files.close()
        except _OutOfOrder:
            files.abandon()
            return _Part(files.ended, in_order=False)
        except BaseException:
            files.abandon()
            raise
        span = None if self.first is None or self.last is None else (self.first, self.last)
        return _Part(written, span=span)

    def _check_order(self, table: pa.Table) -> None:
        """Every key above the one before it, also across batches."""
        keys = [table.column(name).combine_chunks() for name in self.task.schema.key]
        first, last = (tuple(column[row].as_py() for column in keys) for row in (0, len(table) - 1))
        if (self.last is not None and not self.last < first) or not strictly_ascending(keys):
            raise _OutOfOrder
        self.first, self.last = self.first or first, last

    def _winners(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(rows that are the last of their key, the last row, whose key may go on in the next batch)."""
        schema = self.task.schema
        same = np.ones(table.num_rows - 1, bool)
        for name in schema.key:
            keys = table.column(name).combine_chunks()
            same &= pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)).to_numpy(zero_copy_only=False)
        if same.any() and not self.task.ordered:
            examples = table.select(list(schema.key)).take(pa.array(np.flatnonzero(same)[:EXAMPLES_MAX])).to_pylist()
            shown = ", ".join(str(next(iter(row.values())) if len(row) == 1 else row) for row in examples)
            raise InvalidRequest(
                f"the DataFrame has more than one row for the same key, e.g. {shown}: rows of a DataFrame have no "
                "order, so remove the "
                "duplicates first, or create the table with order_by"
            )
        last = np.append(~same, False)
        return table.filter(pa.array(last)), table.slice(table.num_rows - 1)
