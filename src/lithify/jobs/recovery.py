"""What becomes of jobs that were left behind: their process died, or lost its lease.

The log decides, and not the state that a manifest was left in:

| state found                            | what recovery does                                |
|----------------------------------------|---------------------------------------------------|
| committed in the log                   | make it durable, clean up, remove the manifest    |
| fenced in the log                      | delete the folder, remove the manifest            |
| not in the log, owner may be alive     | leave it, unless its lease has a newer holder     |
| not in the log, owner gone             | fence, delete the folder, remove the manifest     |
| manifest unreadable or out of bounds   | set aside, never deleted                          |
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import PurePath

from lithify.core.names import parse_table_name
from lithify.delta.changes import ChangesLog
from lithify.errors import Corruption, LithifyError, NotFound
from lithify.jobs.finish_column_change import finish_column_change
from lithify.jobs.jobs import (
    delete_folder,
    fence,
    finish,
    forget_folded,
    may_go_on,
    unfinished,
)
from lithify.jobs.manifest import Job, parsed_manifest
from lithify.tables import presence
from lithify.tables.handles import Handles, table_folder
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)
TORN_MS = 60_000


def recover(runtime: Runtime, table: str | None = None, lease: int | None = None) -> list[str]:
    """Settle every unfinished job whose owner is gone, or whose lease has a newer holder (`lease`). Returns what was
    done, a line each.
    """
    done = []
    if not runtime.store.locks and table is None:
        presence.forget_silent(runtime)
    if not runtime.store.remote:  # where an object is whole, or not there
        for name in runtime.store.names(runtime.control / "jobs"):
            if name.startswith("."):
                _remove_unborn(runtime, runtime.control / "jobs" / name)
    for job in unfinished(runtime, table, set_aside=True):
        overtaken = lease is not None and job.lease is not None and job.lease < lease
        if may_go_on(runtime, job) and not overtaken:
            continue
        try:
            done.append(settle(runtime, job))
        except NotFound as error:
            if _table_is_gone(runtime, job):
                finish(runtime, job, "table dropped")
                done.append(f"{job.kind} of {job.table}: the table is gone, nothing to do")
            else:
                logger.warning("%s of %s cannot be recovered now: %s", job.kind, job.table, error)
        except LithifyError as error:
            # One damaged table is no reason to leave the others' jobs unsettled.
            logger.warning("%s of %s cannot be recovered now: %s", job.kind, job.table, error)
    return done


def _table_is_gone(runtime: Runtime, job: Job) -> bool:
    name = parse_table_name(job.table)
    try:
        return ChangesLog.open(table_folder(runtime, name) / "changes", runtime.store, job.table, 20).dropped
    except NotFound:
        return True


def settle(runtime: Runtime, job: Job) -> str:
    """Fence it, or finish what it has committed, whoever its owner is. Returns what was done."""
    handles = Handles(runtime, parse_table_name(job.table))
    log = handles.base.log if job.log == "base" else handles.changes.log
    runtime.store.step("recover.start")
    runtime.counters.jobs_recovered.labels(job.kind).inc()
    if fence(runtime, job, log):
        runtime.store.step("recover.fenced")
        delete_folder(runtime, job, log)
        finish(runtime, job, "recovered", reason="its process was gone before it committed")
        return f"{job.kind} of {job.table} had not committed: its files were deleted"
    log.make_durable()
    if job.kind == "fold":
        forget_folded(handles)
    if job.kind == "columns":
        finish_column_change(handles)
    finish(runtime, job, "done", reason="committed; its process was gone before it cleaned up")
    return f"{job.kind} of {job.table} had committed: its manifest was removed"


def _remove_unborn(runtime: Runtime, path: PurePath) -> None:
    """A manifest that was never renamed into place: its job died before it began, and wrote nothing. Of one that died
    within that write nothing can be read: it goes when it has lain there for longer than a write takes.
    """
    with contextlib.suppress(LithifyError):
        try:
            goes = not parsed_manifest(runtime, path).owner.may_be_alive()
        except (ValueError, TypeError, KeyError, Corruption):
            goes = runtime.now_ms() - runtime.store.modified_ms(path) > TORN_MS
        if goes:
            runtime.store.delete(path)
