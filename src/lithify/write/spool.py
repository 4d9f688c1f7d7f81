"""Rows that tasks outside our hands have laid down, made into one commit.

The data source's tasks run wherever Spark puts them, and the process that began the write is gone before they end. So
the spool is a job of its own, owned by the driver that lives through all of it, and nothing in its folder is ever
committed: what the tasks report is taken out of it, into an ordinary write with a job and a commit of its own. That is
why the spool needs no fence when it ends well. A task that ran twice may still be writing: vacuum finds what it leaves.

Few rows go through the table's writer. More are sorted by key with bounded memory, on disk where it does not suffice,
and streamed into files laid out as any bulk write. Finished files of a table with no key are moved as they are.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lithify.compute.processes import name_and_parent, process_start
from lithify.core.ops import Op
from lithify.core.read_plan import Source
from lithify.core.results import Commit
from lithify.core.schema import TableSchema
from lithify.errors import Conflict, Corruption, InvalidRequest, LithifyError
from lithify.files.addresses import is_remote, path_of
from lithify.files.parquet import Written, read
from lithify.files.read_proof import check_whole
from lithify.files.scratch import Scratch
from lithify.files.storage import Storage
from lithify.jobs import jobs, recovery
from lithify.jobs.manifest import Job
from lithify.spark.datasource.table import Spooled, SpoolTarget
from lithify.tables.runtime import Owner
from lithify.write.batch_ids import conditions_of
from lithify.write.bulk import Files, write_files
from lithify.write.conditions import Write
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from lithify.write.access import TableAccess

KIND = "spool"
SMALL_ROWS_MAX = 100_000
SMALL_BYTES_MAX = 64 * 2**20
EXAMPLES_MAX = 5
ANCESTORS_MAX = 8
JVM = "java"

logger = logging.getLogger(__name__)


def driver_of(pid: int) -> Owner:
    """The Spark driver that a process plans or commits for: the nearest JVM above it. Spark starts such processes
    through another Python, which may go before the driver does. Where there is none, it is the process above.
    """
    above = os.getppid() if pid == os.getpid() else name_and_parent(pid)[1]
    found = above
    for _ in range(ANCESTORS_MAX):
        name, parent = name_and_parent(found)
        if name == JVM:
            break
        found = parent
    else:
        found = above
    return Owner(Owner.this_process().host, found, process_start(found) or "")


def begin(table: TableAccess, owner: Owner) -> SpoolTarget:
    """Where the tasks' rows go, kept until `commit` or `abort`, or until the owner is gone."""
    handles = table.handles
    runtime = handles.runtime
    schema = handles.schema()
    if schema.rules:
        raise InvalidRequest(
            f"table {table.name} has {schema.rules_name}, by which the order of rows counts, and the data source hands "
            "them over in no order: use table.upsert(frame), or stream_writer for a stream"
        )
    recovery.recover(runtime, str(table.name))
    job = jobs.begin(replace(runtime, owner=owner), str(table.name), KIND, "changes", outlives_us=True)
    root = handles.changes.log.path
    runtime.store.make_folder(root / job.folder)
    return SpoolTarget(schema, str(root), job.folder, job.id)


def commit(
    table: TableAccess,
    target: SpoolTarget,
    spooled: Sequence[Spooled],
    written: Sequence[Written],
    operation: str,
    batch_id: str | None = None,
) -> Commit | None:
    """One commit of what the tasks reported; None where they had no rows. The spool is gone afterwards, either way."""
    job = _job(table, target)
    try:
        write = Write(operation, conditions=conditions_of(batch_id), complete=target.complete)
        rows = sum(part.rows for part in spooled) + sum(file.rows for file in written)
        if not rows:
            done = None
        elif spooled and rows <= SMALL_ROWS_MAX and sum(part.raw_bytes for part in spooled) <= SMALL_BYTES_MAX:
            done = _commit_small(table, target, spooled, write)
        else:
            done = _commit_large(table, target, spooled, written, write)
    except BaseException as error:
        # What stopped the write says more than what stops its cleaning up, which recovery does when the driver is gone.
        with contextlib.suppress(LithifyError):
            _end(table, job, "failed", reason=str(error))
        raise
    try:
        _end(table, job, "done", rows=rows)
    except LithifyError as error:
        # The rows are committed: whoever heard of an error now would write them once more.
        logger.warning("the spool of %s is left to recovery: %s", job.table, error)
    return done


def abort(table: TableAccess, target: SpoolTarget) -> None:
    """Nothing was committed, and nothing will be."""
    for job in _found(table, target):
        _end(table, job, "given up", reason="the write failed in Spark")


def _commit_small(table: TableAccess, target: SpoolTarget, spooled: Sequence[Spooled], write: Write) -> Commit:
    schema = target.schema
    paths = _paths(table, target, spooled)
    parts = [read(path, schema.columns, size_bytes=part.size_bytes) for path, part in zip(paths, spooled, strict=True)]
    rows = pa.concat_tables(parts)
    if schema.keyed and not target.ordered:
        _refuse_duplicates(rows, schema)
    return table.write(Request(write, {Op.UPSERT: rows}))


def _commit_large(
    table: TableAccess, target: SpoolTarget, spooled: Sequence[Spooled], written: Sequence[Written], write: Write
) -> Commit:
    from lithify.spark.write import WriteTask, write_batches
    from lithify.sql.sort_files import sorted_batches

    handles = table.handles
    paths = _paths(table, target, spooled)
    expected = sum(part.rows for part in spooled)

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        if schema.columns != target.schema.columns:
            raise Conflict(
                f"the columns of table {table.name} changed while the rows were written; nothing was committed: write "
                "again"
            )
        files = [_moved(file, handles.runtime.store, root, folder) for file in written]
        if paths:
            by = [*schema.key, *(schema.order_columns if target.ordered else ())]
            spill = stack.enter_context(_spill(root, target))
            memory = handles.runtime.settings.query_memory_bytes_max
            sources = [Source(str(path), part.rows, part.size_bytes) for path, part in zip(paths, spooled, strict=True)]
            batches = sorted_batches(sources, schema.columns, by, spill, memory)
            task = WriteTask(schema, root, folder, ordered=target.ordered)
            files += write_batches(_counted(batches, expected), task)
        return [(file, Op.UPSERT) for file in files]

    with contextlib.ExitStack() as stack:
        return write_files(handles, write, produce)


def _spill(root: str, target: SpoolTarget) -> contextlib.AbstractContextManager[PurePath]:
    """What is sorted on disk goes beside the rows, unless those lie far away."""
    return Scratch("sort") if is_remote(root) else contextlib.nullcontext(PurePath(root) / target.folder)


def _counted(batches: Iterator[pa.RecordBatch], expected: int) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != expected:
        raise Corruption(f"{rows} of {expected} spooled rows were found again: nothing was committed; write again")


def _moved(file: Written, store: Storage, root: str, folder: str) -> Written:
    """A finished file, out of the spool and into the folder of the job that commits it."""
    path = f"{folder}/{PurePath(file.path).name}"
    store.move(path_of(root) / file.path, path_of(root) / path, sync=False)
    return replace(file, path=path)


def _paths(table: TableAccess, target: SpoolTarget, spooled: Sequence[Spooled]) -> list[PurePath]:
    folder = path_of(target.root) / target.folder
    if not table.runtime.store.is_folder(folder):
        raise Conflict(f"{folder} was removed while Spark wrote into it, with the table, say: write again")
    for part in spooled:
        check_whole(str(folder / part.path), part.size_bytes)
    return [folder / part.path for part in spooled]


def _refuse_duplicates(rows: pa.Table, schema: TableSchema) -> None:
    key = list(schema.key)
    counts = rows.select(key).group_by(key).aggregate([([], "count_all")])
    if counts.num_rows == rows.num_rows:
        return
    twice = np.flatnonzero(counts.column("count_all").to_numpy() > 1)[:EXAMPLES_MAX]
    examples = counts.select(key).take(pa.array(twice)).to_pylist()
    shown = ", ".join(str(next(iter(row.values())) if len(row) == 1 else row) for row in examples)
    raise InvalidRequest(
        f"the DataFrame has more than one row for the same key, e.g. {shown}: rows of a DataFrame have no order, so "
        "remove the duplicates first, or create the table with order_by"
    )


def _found(table: TableAccess, target: SpoolTarget) -> list[Job]:
    return [job for job in jobs.unfinished(table.runtime, str(table.name)) if job.id == target.job]


def _job(table: TableAccess, target: SpoolTarget) -> Job:
    for job in _found(table, target):
        return job
    raise Conflict(
        f"the write to {table.name} was given up by another process that took its Spark driver for dead: write again"
    )


def _end(table: TableAccess, job: Job, outcome: str, **facts: object) -> None:
    handles = table.handles
    handles.runtime.store.delete_folder(handles.changes.log.path / job.folder)
    jobs.finish(handles.runtime, job, outcome, **facts)
