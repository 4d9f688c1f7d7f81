"""Jobs: work that writes many files before one commit decides that they count.

A manifest exists before the first output byte, and a job writes only into its own folder. Its commit carries
`txn("lithify.job.<id>", 1)`. Recovery of a job whose owner is gone first commits the same txn as a fence (2), then
deletes the folder; the owner, should it wake up, finds the fence at the version it wants to swap and gives up.

| state found                         | what recovery does                                |
|-------------------------------------|---------------------------------------------------|
| committed in the log                | finish the cleaning up, remove the manifest       |
| fenced in the log                   | delete the folder, remove the manifest            |
| not in the log, owner may be alive  | leave it                                          |
| not in the log, owner gone          | fence, delete the folder, remove the manifest     |
| manifest unreadable                 | set aside, never deleted                          |

"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lithify.engine.handles import Handles, table_folder
from lithify.engine.runtime import Owner, Runtime
from lithify.errors import Conflict, LithifyError, NotFound
from lithify.log.changes import ChangesLog, job_txn
from lithify.log.delta import DeltaLog, Lost
from lithify.model.names import is_job_folder, parse_table_name

logger = logging.getLogger(__name__)

COMMITTED, FENCED = 1, 2


@dataclass(frozen=True)
class Job:
    id: str
    kind: str
    table: str
    log: str
    folder: str
    owner: Owner
    created_ms: int

    @property
    def txn(self) -> dict[str, int]:
        return {job_txn(self.id): COMMITTED}


def begin(runtime: Runtime, table: str, kind: str, log: str) -> Job:
    """`log` is 'base' or 'changes': where the job writes and commits."""
    job_id = runtime.new_id()
    job = Job(job_id, kind, table, log, f"{kind}-{job_id}", runtime.owner, runtime.now_ms())
    runtime.store.make_folder(runtime.control / "jobs")
    runtime.store.replace(_manifest(runtime, job_id), json.dumps(asdict(job)).encode())
    runtime.store.step(f"{kind}.manifest")
    return job


def finish(runtime: Runtime, job: Job) -> None:
    runtime.store.remove(_manifest(runtime, job.id))


def abandon(runtime: Runtime, job: Job, log: DeltaLog) -> None:
    """Give up our own job: nothing was committed, and after the fence nothing can be."""
    if fence(runtime, job, log):
        _delete_folder(runtime, job, log)
        finish(runtime, job)


def give_up(runtime: Runtime, job: Job, log: DeltaLog, error: BaseException) -> None:
    """Clean up after whatever stopped the job. Nothing was committed, or the log says that it was."""
    try:
        taken = is_fenced(job, log)
        abandon(runtime, job, log)
    except LithifyError as second:
        # What stopped the job says more than what stopped its cleaning up, e.g. on a full disk.
        logger.warning("%s %s of %s is left to recovery: %s", job.kind, job.id, job.table, second)
        return
    if taken and isinstance(error, Exception):
        raise given_up(job) from error


def check_not_fenced(job: Job, log: DeltaLog) -> None:
    if log.txn(job_txn(job.id)) is not None:
        raise given_up(job)


def is_fenced(job: Job, log: DeltaLog) -> bool:
    with log.lock:
        log.refresh()
        return log.txn(job_txn(job.id)) == FENCED


def given_up(job: Job) -> Conflict:
    return Conflict(
        f"{job.kind} of {job.table} was given up by another process that took this one for dead: run it again"
    )


def fence(runtime: Runtime, job: Job, log: DeltaLog) -> bool:
    """Make sure that the job can never commit. False: it has committed."""
    info: dict[str, Any] = {"operation": "fence job", "detail": f"{job.kind} {job.id}"}
    for _ in range(runtime.settings.commit_attempts_max):
        with log.lock:
            log.refresh()
            state = log.txn(job_txn(job.id))
            if state is not None:
                return state == FENCED
            try:
                log.commit((), (), {job_txn(job.id): FENCED}, info, runtime.new_id(), data_change=False)
                log.make_durable()
                return True
            except Lost:
                continue
    raise Conflict(f"job {job.id} of {job.table} could not be fenced: other writers are too busy; try again")


def recover(runtime: Runtime, table: str | None = None) -> list[str]:
    """Settle every unfinished job whose owner is gone. Returns what was done, a line each."""
    done = []
    for name in runtime.store.names(runtime.control / "jobs"):
        path = runtime.control / "jobs" / name
        if name.startswith("."):
            _remove_unborn(runtime, path)
            continue
        job = _read(runtime, path) if name.endswith(".json") else None
        if (
            job is None
            or (table is not None and job.table != table)
            or job.owner == runtime.owner
            or job.owner.may_be_alive()
        ):
            continue
        try:
            done.append(_settle(runtime, job))
        except NotFound as error:
            if _table_is_gone(runtime, job):
                finish(runtime, job)
                done.append(f"{job.kind} of {job.table}: the table is gone, nothing to do")
            else:
                logger.warning("%s of %s cannot be settled now: %s", job.kind, job.table, error)
    return done


def _table_is_gone(runtime: Runtime, job: Job) -> bool:
    name = parse_table_name(job.table)
    try:
        return ChangesLog.open(table_folder(runtime.root, name) / "changes", runtime.store, job.table, 20).dropped
    except NotFound:
        return True


def _settle(runtime: Runtime, job: Job) -> str:
    handles = Handles(runtime, parse_table_name(job.table))
    log = handles.base.log if job.log == "base" else handles.changes.log
    runtime.store.step("recover.start")
    if fence(runtime, job, log):
        runtime.store.step("recover.fenced")
        _delete_folder(runtime, job, log)
        finish(runtime, job)
        return f"{job.kind} of {job.table} had not committed: its files were deleted"
    log.make_durable()
    finish(runtime, job)
    return f"{job.kind} of {job.table} had committed: its manifest was removed"


def _delete_folder(runtime: Runtime, job: Job, log: DeltaLog) -> None:
    if not is_job_folder(job.folder):
        raise Conflict(
            f"manifest {job.id} names the folder {job.folder!r}, which no job writes to: remove the manifest by hand"
        )
    referenced = next((f.path for f in log.files(()) if PurePosixPath(f.path).parts[0] == job.folder), None)
    if referenced is not None:
        raise Conflict(f"job {job.id} is fenced, but the log names {referenced}: nothing was deleted")
    runtime.store.remove_folder(log.path / job.folder)


def _remove_unborn(runtime: Runtime, path: Path) -> None:
    """A manifest that was never renamed into place: its job died before it began, and wrote nothing."""
    with contextlib.suppress(ValueError, TypeError, KeyError, LithifyError):
        if not _parsed(runtime, path).owner.may_be_alive():
            runtime.store.remove(path)


def _parsed(runtime: Runtime, path: Path) -> Job:
    fields = json.loads(runtime.store.read(path))
    return Job(**{**fields, "owner": Owner(**fields["owner"])})


def _read(runtime: Runtime, path: Path) -> Job | None:
    try:
        return _parsed(runtime, path)
    except NotFound:
        return None
    except (ValueError, TypeError, KeyError, LithifyError) as error:
        aside = path.with_suffix(".unreadable")
        logger.warning("setting aside unreadable manifest %s as %s: %s", path, aside.name, error)
        runtime.store.rename(path, aside)
        return None


def _manifest(runtime: Runtime, job_id: str) -> Path:
    return runtime.control / "jobs" / f"{job_id}.json"
