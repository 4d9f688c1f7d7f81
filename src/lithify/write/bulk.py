"""Bulk writes: a Spark DataFrame becomes change files, and one commit gives them the next seq.

The files lie in the job's own folder below `changes`. Those of plain rows are laid out as base wants them, so that
folding them into an empty range of keys only links them; those of events (`write_events`) are apart by operation, and
no key stands in two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.missing_columns import check_frame
from lithify.core.ops import DELETES, Op
from lithify.core.results import Commit
from lithify.core.rows import check_convertible
from lithify.core.schema import TableSchema
from lithify.delta.actions import LogChange
from lithify.delta.changes import SEQ_TXN
from lithify.errors import Conflict, InvalidRequest
from lithify.files.parquet import Written
from lithify.jobs import jobs, recovery
from lithify.metrics.recent_events import RecentEvents
from lithify.tables.handles import Handles
from lithify.write.allow_updates import allow_ordered_deletes, allow_updates
from lithify.write.conditions import Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Files = Sequence[tuple[Written, Op]]
Produce = Callable[[TableSchema, str, str], Files]


def few_rows(handles: Handles, frame: DataFrame, write: Write) -> pa.Table | None:
    """The rows of a DataFrame that is known to be small, to be written without Spark; None: it may be large."""
    from lithify.spark.small_frames import rows_if_few

    _check_columns(handles, frame, write)
    handles.runtime.session(frame.sparkSession)
    return rows_if_few(frame, handles.runtime.settings.local_frame_bytes_max)


def _check_columns(handles: Handles, frame: DataFrame, write: Write) -> None:
    from lithify.spark.schemas import arrow_schema

    schema = handles.schema()
    check_convertible(arrow_schema(frame.schema), schema.columns, schema.column_defaults)
    if write.complete:
        check_frame(frame.columns, schema)


def write_frame(handles: Handles, frame: DataFrame, write: Write) -> Commit:
    """Rows to append or upsert."""
    from lithify.spark.write import WriteTask, write_parts

    _check_columns(handles, frame, write)
    if handles.schema().rules:
        return write_events(handles, frame, write, None)
    handles.runtime.session(frame.sparkSession)

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        if write.complete:
            check_frame(frame.columns, schema)  # which may have another column by now
        return [(file, Op.UPSERT) for file in write_parts(frame, WriteTask(schema, root, folder))]

    return write_files(handles, write, produce)


def write_events(
    handles: Handles,
    frame: DataFrame,
    write: Write,
    op_column: str | None,
    order: Sequence[str] = (),
    *,
    partial: bool = False,
) -> Commit:
    """Events in the order of the frame's rows (of the columns `order` before that), resolved per key: upserts, replaces
    and deletes in one commit. `partial`: they leave columns that the frame does not have as they are.
    """
    from lithify.spark.event_write import EventTask, write_resolved

    handles.runtime.session(frame.sparkSession)
    if partial:
        allow_updates(handles)

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        task = EventTask(schema, root, folder, op_column, tuple(order), partial, complete=write.complete)
        return write_resolved(frame, task)

    return write_files(handles, write, produce)


def write_files(handles: Handles, write: Write, produce: Produce) -> Commit:
    """One job and one commit of whatever files `produce` writes into the job's folder."""
    runtime, store = handles.runtime, handles.runtime.store
    schema = handles.schema()
    if (replayed := write.before(handles.changes)) is not None:
        return replayed
    handles.base.check_writable(schema)
    recovery.recover(runtime, str(handles.name))
    with jobs.running(handles, "bulk", "changes") as run:
        job, root = run.job, run.log.path
        store.make_folder(root / job.folder)
        files = produce(schema, str(root), job.folder)
        if not write.may_be_empty and not any(file.rows for file, _ in files):
            raise InvalidRequest("the batch is empty: there is no row in it")
        store.step("bulk.written")
        jobs.check_outputs(runtime, root, [file for file, _ in files])
        jobs.drop_leftovers(runtime, root, job, [file.path for file, _ in files])
        store.sync_folder(root / job.folder)
        store.sync_folder(root)
        allow_ordered_deletes(handles, (op for _, op in files))
        commit = _commit(handles, run, schema, files, write)
        if not commit.replayed:
            runtime.activity.committed(1, commit.rows)
            runtime.shared(RecentEvents).wrote(str(handles.name), commit.seq, commit.rows)
    return commit


def _commit(handles: Handles, run: jobs.OpenJob, schema: TableSchema, files: Files, write: Write) -> Commit:
    changes, table = handles.changes, str(handles.name)
    deleted = sum(file.rows for file, op in files if op in DELETES)
    upserted = sum(file.rows for file, op in files if op not in DELETES)
    before: Commit | None = None

    def build() -> LogChange | None:
        nonlocal before
        if (before := write.before(changes)) is not None:
            return None
        now = changes.schema
        handles.base.check_writable(now)
        known = now.names if write.complete else now.names[: len(schema.names)]
        if now.generation != schema.generation or known != schema.names:
            raise Conflict(
                f"the columns of table {table} changed while the rows were written; nothing was committed: write again"
            )
        said = write.said(upserted, deleted, handles.runtime.settings.actor)
        return changes.added(files, write.txns(changes.seq + 1), said)

    done = run.commit(f"{write.operation} on", build)
    if done is not None:
        return write.commit(table, done.change.txns[SEQ_TXN], upserted, deleted)
    assert before is not None
    return before
