"""Writing through the data source: tasks lay rows down, and the driver makes one commit of what they report.

Rows of a DataFrame have no order, and a table with a key wants its files sorted, with one row per key. A data source
cannot ask Spark to sort for it. So the tasks of a keyed table write spool files, rows as they come, into the folder of
a job; the driver then sorts them into files laid out as any bulk write (`write/spool.py`). A table without a key needs
none of that: its tasks write the files that are committed.

Only what reaches the driver in a message counts. A task that failed, or ran twice, leaves files behind that no commit
names. A batch that the table refuses is told in the message: trying that task again would change nothing.

A stream's micro-batches travel inside the messages, with no file and nothing to clean up, and are bounded for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lithify.core.rows import check_rows, fitted
from lithify.errors import InvalidRequest, LimitExceeded, LithifyError, cut_here
from lithify.files.parquet import Written, part_path
from lithify.files.staging import SpoolFile
from lithify.spark.datasource.table import Source, Spooled, SpoolTarget
from lithify.spark.write import WriteTask, write_batches

SPOOL_GROUP_BYTES = 16 * 2**20
QUERY_ID = "sql.streaming.queryId"  # a task of a streaming query has it, the process that commits has not
TASK_BYTES_MAX = 64 * 2**20  # of a micro-batch, in the message of one task


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task did: it spooled rows, wrote finished files, or was refused."""

    spooled: Spooled | None = None
    written: tuple[Written, ...] = ()
    error: LithifyError | None = None


@dataclass(frozen=True)
class RowsMessage(WriterCommitMessage):
    """Rows of one task as an Arrow stream, and the query they belong to; or why there are none."""

    rows: bytes = b""
    query: str | None = None
    error: LithifyError | None = None


class TableWriter(DataSourceArrowWriter):
    """`source` knows how to find the table again: Spark makes the commit in another process."""

    def __init__(self, source: Source, target: SpoolTarget) -> None:
        self.source, self.target = source, target

    @cut_here
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        try:
            if self.target.schema.keyed:
                return TaskMessage(spool(self.target, iterator))
            task = WriteTask(self.target.schema, self.target.root, self.target.folder)
            return TaskMessage(written=tuple(write_batches(iterator, task)))
        except InvalidRequest as error:
            return TaskMessage(error=error)

    @cut_here
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [message for message in messages if isinstance(message, TaskMessage)]
        with self.source.opened() as table:
            error = next((message.error for message in found if message.error is not None), None)
            if error is not None:
                table.abort_write(self.target)
                raise error
            table.commit_write(
                self.target,
                [message.spooled for message in found if message.spooled is not None],
                [file for message in found for file in message.written],
                self.source.parsed.mode,
                self.source.parsed.batch_id,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with self.source.opened() as table:
            table.abort_write(self.target)


def spool(target: SpoolTarget, batches: Iterator[pa.RecordBatch]) -> Spooled | None:
    """One file of rows that fit the table, in no order; None where there are none."""
    columns = target.schema.columns
    path = part_path(target.root, target.folder, f"spool-{uuid.uuid4().hex}.parquet")
    writer: SpoolFile | None = None
    waiting: list[pa.Table] = []
    rows = raw_bytes = waiting_bytes = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            table = fitted(pa.Table.from_batches([batch]), target.schema)
            check_rows(table, target.schema)
            waiting.append(table)
            rows, raw_bytes = rows + table.num_rows, raw_bytes + table.nbytes
            waiting_bytes += table.nbytes
            if waiting_bytes >= SPOOL_GROUP_BYTES:
                writer = writer or SpoolFile(path, columns)
                writer.write(waiting)
                waiting, waiting_bytes = [], 0
        if waiting:
            writer = writer or SpoolFile(path, columns)
            writer.write(waiting)
        if writer is None:
            return None
        return Spooled(path.name, rows, writer.close(), raw_bytes)
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


class TableStreamWriter(DataSourceStreamArrowWriter):
    """One commit per micro-batch, with the epoch in it: a batch that Spark sends again is not written again."""

    def __init__(self, source: Source, columns: pa.Schema) -> None:
        self.source, self.columns = source, columns

    @cut_here
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsMessage:
        sink = pa.BufferOutputStream()
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in iterator:
            writer = writer or pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
            if sink.tell() > TASK_BYTES_MAX:
                return RowsMessage(
                    error=LimitExceeded(
                        f"a task of the stream has more than {TASK_BYTES_MAX // 2**20} MiB for one micro-batch: limit "
                        "what the source hands over at a time (maxFilesPerTrigger, rowsPerBatch, …), or write with "
                        "table.stream_writer() and foreachBatch, which hands large batches to Spark",
                        limit="bytes",
                    )
                )
        if writer is not None:
            writer.close()
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        return RowsMessage(sink.getvalue().to_pybytes(), query)

    @cut_here
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        found = [message for message in messages if isinstance(message, RowsMessage)]
        error = next((message.error for message in found if message.error is not None), None)
        if error is not None:
            raise error
        tables = [pa.ipc.open_stream(message.rows).read_all() for message in found if message.rows]
        rows = pa.concat_tables(tables) if tables else self.columns.empty_table()
        query = next((message.query for message in found if message.query is not None), None)
        with self.source.opened() as table:
            table.apply_batch(self.source.parsed, query, rows, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was laid down anywhere."""
