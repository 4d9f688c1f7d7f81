"""Writing the events of a large micro-batch: resolved on the executors by the same function that resolves a small one.

Events are numbered in the order of the frame's rows, range-partitioned by key, and sorted by key and number, so that
all events of a key come to one task, one after the other. A task resolves each Arrow batch as it comes; the outcome of
the last key is carried over to the next one, where more of its events may come. Upserts, replaces and deletes go to
files of their own. As with every bulk write, only what a task reports counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lithify.core.arrow_rows import sort_by
from lithify.core.ops import DELETES, Change, Op
from lithify.core.partial_rows import PATCH_FIELDS
from lithify.core.rows import conform
from lithify.core.schema import TableSchema
from lithify.files.addresses import path_of
from lithify.files.parquet import Layout, PartWriter, Written, part_path
from lithify.merge.events import check_events, resolve_events
from lithify.merge.winners import compose
from lithify.spark.schemas import arrow_schema, in_order_of
from lithify.spark.tasks import run_partitions

ARRIVAL = "_lithify_arrival"
FILE_ROWS_MAX = 4_000_000


@dataclass(frozen=True)
class EventTask:
    schema: TableSchema
    root: str
    folder: str
    op_column: str | None = None
    order: tuple[str, ...] = ()  # columns that go before the position in the frame in the order of arrival
    partial: bool = False  # columns that the frame does not have stay as they are
    complete: bool = False  # rows without a column of the table are refused
    wins: bool = False  # rows win against what is there, whatever order_by says


def write_resolved(frame: DataFrame, task: EventTask) -> list[tuple[Written, Op]]:
    """Write the frame below `root`/`folder`; what comes back is durable but for directory entries."""
    check_events(task.schema, arrow_schema(frame.drop(*task.order).schema), task.op_column)
    keys = in_order_of(frame, task.schema.select(task.schema.key))
    numbered = frame.withColumn(ARRIVAL, F.monotonically_increasing_id())
    arrival = [*task.order, ARRIVAL]
    ordered = numbered.repartitionByRange(*keys).sortWithinPartitions(*keys, *arrival).drop(*arrival)

    results = run_partitions(ordered, lambda batches: _EventWriter(task).write_all(batches))
    return [file for result in results for file in result]


@dataclass
class _EventWriter:
    task: EventTask
    carried: Mapping[Op, pa.Table] = field(default_factory=dict)
    writers: dict[Op, PartWriter] = field(default_factory=dict)
    rows: dict[Op, int] = field(default_factory=dict)
    done: list[tuple[Written, Op]] = field(default_factory=list)

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> list[tuple[Written, Op]]:
        try:
            for batch in batches:
                if batch.num_rows:
                    self._take(pa.Table.from_batches([batch]))
            self._write(self.carried)
            for op in list(self.writers):
                self._close(op)
        except BaseException:
            for writer in self.writers.values():
                writer.abandon()
            raise
        return self.done

    def _take(self, events: pa.Table) -> None:
        """Write what is resolved for good: all but the last key, of which more may follow."""
        schema = self.task.schema
        task = self.task
        parts = resolve_events(schema, events, task.op_column, partial=task.partial, complete=task.complete)
        if self.task.wins and Op.UPSERT in parts:
            upserts = [parts.pop(Op.UPSERT), *([parts[Op.REPLACE]] if Op.REPLACE in parts else ())]
            parts[Op.REPLACE] = sort_by(pa.concat_tables(upserts), schema.key)
        if any(_of_key(rows, self._key_of(events, 0)).any() for rows in self.carried.values()):
            earlier, later = self.carried.items(), parts.items()
            parts = compose(schema, [Change(0, op, rows) for op, rows in (*earlier, *later)])
        else:
            self._write(self.carried)
        last, carried = self._key_of(events, events.num_rows - 1), {}
        for op, rows in parts.items():
            found = _of_key(rows, last)
            if found.any():
                carried[op], parts[op] = rows.filter(pa.array(found)), rows.filter(pa.array(~found))
        self.carried = carried
        self._write(parts)

    def _key_of(self, events: pa.Table, row: int) -> pa.Table:
        schema = self.task.schema
        return conform(events.slice(row, 1).select(list(schema.key)), schema.select(schema.key))

    def _write(self, parts: Mapping[Op, pa.Table]) -> None:
        for op, rows in parts.items():
            if not rows.num_rows:
                continue
            if op is Op.UPDATE:
                first = self.rows.get(op, 0) if op in self.writers else 0
                rows = rows.append_column(PATCH_FIELDS[1], pa.array(range(first, first + rows.num_rows), pa.int32()))
            if op not in self.writers:
                layout = Layout.of(self.task.schema)
                if op in DELETES:
                    layout = replace(layout, stats_columns=tuple(rows.column_names))
                elif op is Op.UPDATE:
                    schema = self.task.schema
                    layout = replace(layout, stats_columns=(*schema.key, *schema.order_columns))
                path = part_path(self.task.root, self.task.folder, f"part-{uuid.uuid4().hex}.parquet")
                self.writers[op], self.rows[op] = PartWriter(path, rows.schema, layout), 0
            self.writers[op].write(rows)
            self.rows[op] += rows.num_rows
            if self.rows[op] >= FILE_ROWS_MAX:
                self._close(op)

    def _close(self, op: Op) -> None:
        self.done.append((self.writers.pop(op).close(path_of(self.task.root)), op))


def _of_key(rows: pa.Table, key: pa.Table) -> np.ndarray:
    """Which rows have this key."""
    same = np.ones(rows.num_rows, np.bool_)
    for name in key.column_names:
        same &= pc.equal(rows.column(name), key.column(name)[0]).to_numpy()
    return same
