"""Bulk writes: a Spark DataFrame becomes change files, and one commit gives them the next seq.

The files lie in the job's own folder below `changes`. Those of plain rows are laid out as base wants them, so that
folding them into an empty range of keys only links them; those of events (`write_events`) are apart by operation, and
no key stands in two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lithify.core.arguments import check_batch_id
from lithify.core.ops import Op
from lithify.core.results import Commit
from lithify.core.rows import check_convertible
from lithify.core.schema import TableSchema
from lithify.delta.actions import LogChange
from lithify.delta.changes import SEQ_TXN, batch_txn
from lithify.errors import Conflict, InvalidRequest
from lithify.files.parquet import Written
from lithify.jobs import jobs
from lithify.tables.handles import Handles
from lithify.write.replay import Portion, committed_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Files = Sequence[tuple[Written, Op]]
Produce = Callable[[TableSchema, str, str], Files]


@dataclass(frozen=True)
class BulkWrite:
    """What the commit says besides its files. One with a `portion` may be empty: it still says how far the feed is."""

    operation: str
    batch_id: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    portion: Portion | None = None
    schema_fingerprint: str | None = None

    def before(self, handles: Handles) -> Commit | None:
        """The answer that this write got the first time, as of the log handle's version."""
        return committed_before(handles, self.operation, self.batch_id, self.portion)


def write_frame(
    handles: Handles,
    frame: DataFrame,
    operation: str,
    batch_id: str | None = None,
    info: Mapping[str, Any] | None = None,
    portion: Portion | None = None,
    schema_fingerprint: str | None = None,
) -> Commit:
    """Rows to append or upsert."""
    from lithify.spark.schemas import arrow_schema
    from lithify.spark.write import WriteTask, write_parts

    check_batch_id(batch_id)
    check_convertible(arrow_schema(frame.schema), handles.schema().columns)
    handles.runtime.session(frame.sparkSession)

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        return [(file, Op.UPSERT) for file in write_parts(frame, WriteTask(schema, root, folder))]

    write = BulkWrite(operation, batch_id, info or {}, portion, schema_fingerprint)
    return write_files(handles, write, produce)


def write_events(
    handles: Handles,
    frame: DataFrame,
    op_column: str | None,
    portion: Portion,
    operation: str,
    info: Mapping[str, Any],
    order: Sequence[str] = (),
) -> Commit:
    """Events in the order of the frame's rows (of the columns `order` before that), settled per key: upserts, replaces
    and deletes in one commit.
    """
    from lithify.spark.event_write import EventTask, write_settled

    handles.runtime.session(frame.sparkSession)

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        return write_settled(frame, EventTask(schema, root, folder, op_column, tuple(order)))

    return write_files(handles, BulkWrite(operation, None, info, portion), produce)


def write_files(handles: Handles, write: BulkWrite, produce: Produce) -> Commit:
    """One job and one commit of whatever files `produce` writes into the job's folder."""
    runtime, store = handles.runtime, handles.runtime.store
    schema = handles.schema()
    if (replayed := write.before(handles)) is not None:
        return replayed
    jobs.recover(runtime, str(handles.name))
    with jobs.running(handles, "bulk", "changes") as run:
        job, root = run.job, run.log.path
        store.make_folder(root / job.folder)
        files = produce(schema, str(root), job.folder)
        if write.portion is None and not any(file.rows for file, _ in files):
            raise InvalidRequest("the batch is empty: the DataFrame has no rows")
        store.step("bulk.written")
        jobs.check_outputs(runtime, root, [file for file, _ in files])
        jobs.drop_leftovers(runtime, root, job, [file.path for file, _ in files])
        store.sync_folder(root / job.folder)
        store.sync_folder(root)
        commit = _commit(handles, run, schema, files, write)
        if not commit.replayed:
            runtime.activity.committed(1, commit.rows)
    return commit


def _commit(handles: Handles, run: jobs.RunningJob, schema: TableSchema, files: Files, write: BulkWrite) -> Commit:
    changes, table = handles.changes, str(handles.name)
    deleted = sum(file.rows for file, op in files if op is Op.DELETE)
    upserted = sum(file.rows for file, op in files if op is not Op.DELETE)
    rows = upserted + deleted
    before: Commit | None = None

    def build() -> LogChange | None:
        nonlocal before
        if (before := write.before(handles)) is not None:
            return None
        changes.schema.check_fingerprint(write.schema_fingerprint, table)
        if changes.schema.columns.names[: len(schema.names)] != schema.names:
            raise Conflict(
                f"the columns of table {table} changed while the rows were written; nothing was committed: write again"
            )
        info = {
            "operation": write.operation,
            "rows": rows,
            "upserted": upserted,
            "deleted": deleted,
            "actor": handles.runtime.settings.actor,
            **write.info,
        }
        txns: dict[str, int] = {}
        if write.batch_id is not None:
            info["batch_id"] = write.batch_id
            txns[batch_txn(write.batch_id)] = changes.seq + 1
        if write.portion is not None:
            txns |= write.portion.txns(changes.seq + 1)
        return changes.added(files, txns, info)

    done = run.commit(f"{write.operation} on", build)
    if done is not None:
        seq = done.change.txns[SEQ_TXN]
        return Commit(table, seq, write.operation, rows, upserted, deleted, write.batch_id)
    assert before is not None
    return before
