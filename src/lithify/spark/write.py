"""Writing a DataFrame as files that base could take as they are.

Rows are range-partitioned and sorted by key in Spark, then streamed through Arrow into the same Parquet writer that
small writes use, with the same checks. Equal keys lie next to each other, so one look at the neighbour finds
duplicates, or picks the winner by order_by. What a task reports is what counts: files of failed or doubled task
attempts are never committed.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lithify.errors import InvalidRequest, LithifyError
from lithify.model.batch import check_rows, conform
from lithify.model.fold_plan import partition_rows
from lithify.model.schema import TableSchema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed
from lithify.store.parquet import Layout, PartWriter, Written

OPEN_WRITERS_MAX = 64
WAITING_BYTES_MAX = 256 * 2**20
FILE_ROWS_MAX = 4_000_000
EXAMPLES_MAX = 5


@dataclass(frozen=True)
class WriteTask:
    schema: TableSchema
    root: str
    folder: str
    ordered: bool = False  # rows come with an order_by value, so that of several rows of a key one can win


def write_parts(frame: DataFrame, task: WriteTask) -> list[Written]:
    """Write the frame below `root`/`folder`; what comes back is durable but for directory entries."""
    schema = task.schema
    if schema.keyed:
        keys = [F.col(f"`{name}`") for name in schema.key]
        task = replace(task, ordered=schema.order_by in frame.columns)
        order = [F.col(f"`{schema.order_by}`").asc_nulls_first()] if task.ordered else []
        frame = frame.repartitionByRange(*keys).sortWithinPartitions(*keys, *order)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        result: Any
        try:
            result = _PartitionWriter(task).write_all(batches)
        except LithifyError as error:
            result = error
        yield pa.RecordBatch.from_pylist([{"result": pickle.dumps(result)}])

    try:
        rows = frame.mapInArrow(run, "result binary").collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    results = [pickle.loads(bytes(row["result"])) for row in rows]
    for result in results:
        if isinstance(result, LithifyError):
            raise result
    return [file for result in results for file in result]


@dataclass
class _PartitionWriter:
    """Rows come sorted by key, so those of one partition come in bits and pieces: they are gathered before a file is
    opened, and a table with many partitions gets one file for each instead of thousands."""

    task: WriteTask
    waiting: dict[tuple[Any, ...], list[pa.Table]] = field(default_factory=dict)
    waiting_bytes: int = 0
    writers: dict[tuple[Any, ...], PartWriter] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], int] = field(default_factory=dict)
    done: list[Written] = field(default_factory=list)

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> list[Written]:
        schema = self.task.schema
        layout = Layout.of(schema)
        carried: pa.Table | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                table = conform(pa.Table.from_batches([batch]), schema.columns)
                check_rows(table, schema)
                if schema.keyed:
                    table, carried = self._winners(table if carried is None else pa.concat_tables([carried, table]))
                self._write(table, layout)
            if carried is not None:
                self._write(carried, layout)
            for place in list(self.waiting):
                self._flush(place, layout)
            for place in list(self.writers):
                self._close(place)
        except BaseException:
            for writer in self.writers.values():
                writer.abandon()
            raise
        return self.done

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

    def _write(self, table: pa.Table, layout: Layout) -> None:
        if not table.num_rows:
            return
        partitions, group_of = partition_rows(self.task.schema, table)
        for number, partition in enumerate(partitions):
            place = tuple(partition.values())
            part = table if len(partitions) == 1 else table.filter(pa.array(group_of == number))
            parts = self.waiting.setdefault(place, [])
            parts.append(part)
            self.waiting_bytes += part.nbytes
            if sum(each.num_rows for each in parts) >= layout.buffer_rows:
                self._flush(place, layout)
        while self.waiting_bytes > WAITING_BYTES_MAX:
            self._flush(max(self.waiting, key=lambda p: sum(each.nbytes for each in self.waiting[p])), layout)

    def _flush(self, place: tuple[Any, ...], layout: Layout) -> None:
        parts = self.waiting.pop(place)
        self.waiting_bytes -= sum(part.nbytes for part in parts)
        writer = self.writers.get(place)
        if writer is None:
            if len(self.writers) >= OPEN_WRITERS_MAX:
                self._close(next(iter(self.writers)))
            path = Path(self.task.root) / self.task.folder / f"part-{uuid.uuid4().hex}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = self.writers[place] = PartWriter(path, layout.columns, layout)
            self.rows[place] = 0
        for part in parts:
            writer.write(part)
            self.rows[place] += part.num_rows
        if self.rows[place] >= FILE_ROWS_MAX:
            self._close(place)

    def _close(self, place: tuple[Any, ...]) -> None:
        self.done.append(self.writers.pop(place).close(Path(self.task.root)))
