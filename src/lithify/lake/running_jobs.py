"""Jobs under way, in whichever process: how far each has come, and the way to end one."""

from __future__ import annotations

from lithify.core.arguments import check_text
from lithify.errors import Conflict
from lithify.jobs import jobs, leases, watch
from lithify.jobs.manifest import WRITING, Job
from lithify.jobs.watch import Watched
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.maintenance.cycle import CYCLE
from lithify.maintenance.cycle_lease import LEASE
from lithify.maintenance.reports import RunningJob
from lithify.tables.runtime import Runtime

COMMITS = "it commits, and ends by itself in a moment"
ELSEWHERE = "it is not watched by its process: end the process that runs it"
GONE = "its process is gone: the next cycle of maintenance clears up behind it"


_Amounts = tuple[int | None, int | None, int | None, int | None, int | None, int | None, bool]


def running_jobs(lake: Lake) -> list[RunningJob]:
    """Oldest first. A vacuum has no manifest, and is known by what it says of itself."""
    runtime = internals(lake).runtime
    now_ms, told = runtime.now_ms(), watch.running(runtime)
    found = [_of_manifest(runtime, job, told.pop(job.id, None), now_ms) for job in jobs.unfinished(runtime)]
    # What is watched and has no manifest (any more) is a vacuum, or ends at this moment.
    found += [_of_watched(job, now_ms) for job in told.values() if job.kind == "vacuum"]
    return sorted(found, key=lambda job: -job.age_s)


def cancel_job(lake: Lake, id: str, why: str) -> bool:
    """Ask for the end of a job, or of the cycle that runs. False: nothing of this id is under way. `why`: as in "by
    somebody", for the history.
    """
    check_text("the id of a job", id)
    runtime = internals(lake).runtime
    if is_cycle(lake, id):
        return _cancel(runtime, id, CYCLE, why)
    job = next((job for job in running_jobs(lake) if job.id == id), None)
    if job is None:
        return False
    what = f"{job.kind} of {job.table}"
    if not job.alive:
        raise Conflict(f"{what} cannot be cancelled: {GONE}", job=id)
    if job.state != WRITING:
        raise Conflict(f"{what} cannot be cancelled: {COMMITS}", job=id)
    if job.kind in jobs.UNWATCHED:
        raise Conflict(f"{what} cannot be cancelled: {ELSEWHERE}", job=id)
    return _cancel(runtime, id, what, why)


def is_cycle(lake: Lake, id: str) -> bool:
    lease = leases.current(internals(lake).runtime, LEASE)
    return lease is not None and lease.id == id


def _cancel(runtime: Runtime, id: str, what: str, why: str) -> bool:
    if not watch.cancel(runtime, id, why):
        raise Conflict(f"{what} cannot be cancelled: {COMMITS}", job=id)
    return True


def _of_manifest(runtime: Runtime, job: Job, told: Watched | None, now_ms: int) -> RunningJob:
    return RunningJob(
        job.id,
        job.table,
        job.kind,
        job.state,
        job.owner.label,
        jobs.owner_may_be_alive(runtime, job),
        max(now_ms - job.created_ms, 0) / 1000,
        len(job.inputs),
        job.why,
        *_amounts(told),
    )


def _of_watched(job: Watched, now_ms: int) -> RunningJob:
    age_s, owner = max(now_ms - job.started_ms, 0) / 1000, job.owner.label
    alive, files = job.owner.may_be_alive(), job.total.files
    return RunningJob(job.id, job.table, job.kind, WRITING, owner, alive, age_s, files, job.why, *_amounts(job))


def _amounts(
    job: Watched | None,
) -> tuple[int | None, int | None, int | None, int | None, int | None, int | None, bool]:
    """What is read again, for whatever reason, is not more than there is."""
    if job is None or not job.total.files:
        return None, None, None, None, None, None, job is not None and job.cancelled
    done, total = job.done, job.total
    return (
        min(done.files, total.files),
        total.files,
        min(done.rows, total.rows) if total.rows else None,
        total.rows or None,
        min(done.bytes, total.bytes),
        total.bytes,
        job.cancelled,
    )
