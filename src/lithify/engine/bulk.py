"""Bulk writes: a Spark DataFrame becomes change files, and one commit gives them the next seq.

The files lie in the job's own folder below `changes`, laid out as base wants them, so that folding them into an
empty range of keys only links them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lithify.engine import jobs
from lithify.engine.attempts import swap_with_retries
from lithify.engine.handles import Handles
from lithify.engine.table_index import solid
from lithify.engine.writer import Commit, Writer, check_batch_id
from lithify.errors import Conflict, InvalidRequest
from lithify.log.changes import batch_txn
from lithify.model.batch import check_convertible
from lithify.model.merge import Op
from lithify.store.parquet import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_frame(
    handles: Handles,
    frame: DataFrame,
    operation: str,
    batch_id: str | None = None,
    info: dict[str, object] | None = None,
) -> Commit:
    from lithify.spark.types import arrow_schema
    from lithify.spark.write import WriteTask, write_parts

    runtime, store = handles.runtime, handles.runtime.store
    schema = handles.schema()
    check_batch_id(batch_id)
    check_convertible(arrow_schema(frame.schema), schema.columns)
    if batch_id is not None and (replayed := Writer(handles).replay(operation, batch_id)) is not None:
        return replayed
    jobs.recover(runtime, str(handles.name))
    job = jobs.begin(runtime, str(handles.name), "bulk", "changes")
    log = handles.changes.log
    store.make_folder(log.path / job.folder)
    try:
        files = write_parts(frame, WriteTask(schema, str(log.path), job.folder))
        rows = sum(file.rows for file in files)
        if not rows:
            raise InvalidRequest("the batch is empty: the DataFrame has no rows")
        store.step("bulk.written")
        written = {file.path for file in files}
        for name in store.names(log.path / job.folder):
            # Left behind by task attempts that failed or were doubled.
            if f"{job.folder}/{name}" not in written:
                store.remove(log.path / job.folder / name)
        store.sync_folder(log.path / job.folder)
        store.sync_folder(log.path)
        commit = _commit(handles, job, files, operation, rows, batch_id, info or {})
    except BaseException as error:
        jobs.give_up(runtime, job, log, error)
        raise
    store.step("bulk.committed")
    log.make_durable()
    store.step("bulk.durable")
    log.checkpoint_if_due()
    if commit.replayed:
        jobs.abandon(runtime, job, log)
    else:
        handles.changes_index.after_commit(log.version, solid(files), ())
        runtime.activity.committed(1, commit.rows)
        jobs.finish(runtime, job)
    return commit


def _commit(
    handles: Handles,
    job: jobs.Job,
    files: list[Written],
    operation: str,
    rows: int,
    batch_id: str | None,
    extra: dict[str, object],
) -> Commit:
    changes, runtime = handles.changes, handles.runtime
    schema = changes.schema
    write_id = runtime.new_id()

    def attempt() -> Commit:
        handles.check_alive()
        jobs.check_not_fenced(job, changes.log)
        if batch_id is not None and (replayed := Writer(handles).replay(operation, batch_id)) is not None:
            return replayed
        if changes.schema.columns.names[: len(schema.names)] != schema.names:
            raise Conflict(
                f"the columns of table {handles.name} changed while the rows were written; nothing was committed: "
                "write again"
            )
        info = {
            "operation": operation,
            "rows": rows,
            "upserted": rows,
            "deleted": 0,
            "actor": runtime.settings.actor,
            **extra,
        }
        txns = dict(job.txn)
        if batch_id is not None:
            info["batch_id"] = batch_id
            txns[batch_txn(batch_id)] = changes.seq + 1
        seq = changes.commit([(file, Op.UPSERT) for file in files], txns, info, write_id)
        return Commit(str(handles.name), seq, operation, rows, rows, 0, batch_id)

    with changes.log.lock:
        changes.log.refresh()
        return swap_with_retries(runtime, changes.log, f"{operation} on {handles.name}", attempt)
