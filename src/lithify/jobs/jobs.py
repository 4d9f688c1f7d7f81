"""Jobs: work that writes many files before one commit decides that they count.

A manifest exists before the first output byte, and a job writes only into its own folder. Its commit carries
`txn("lithify.job.<id>", 1)`. Recovery of a job whose owner is gone first commits the same txn as a fence (2), then
deletes the folder; the owner, should it wake up, finds the fence at the version it wants to swap and gives up.

The manifest's state says how far its owner, and nobody else, has come: `writing` its files, `committing` them after
they were verified, `cleaning` up behind the commit. What becomes of a job that was left behind is decided by the log,
not by the state (`recovery`).

Whether an owner is gone is a guess: its process is looked up on this machine, on others it has a day, and where the
storage has no locks it gives signs of life (`tables/presence.py`). A wrong guess costs the work of the job, and nothing
else: fence and commit are two swaps of the same name, and one of them comes first.

Only an owner that gives up itself, before it came to its commit, may delete its files before the fence: where they fill
the disk, the fence finds no room.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

from lithify.core.ops import ORDERED_DELETES
from lithify.core.snapshot import DataFile
from lithify.delta.actions import LogChange
from lithify.delta.base import BaseLog
from lithify.delta.changes import FORGOTTEN, job_txn
from lithify.delta.commit import Build, Committed, commit
from lithify.delta.commit_outcome import Lost
from lithify.delta.log import DeltaLog
from lithify.errors import Conflict, Corruption, LithifyError, reason_of
from lithify.files.parquet import Written
from lithify.jobs.manifest import (
    COMMITTING,
    FENCED,
    WRITING,
    Job,
    manifest_path,
    manifests,
    read_manifest,
    write_manifest,
)
from lithify.jobs.past_jobs import Journal
from lithify.jobs.watch import watched
from lithify.merge.late import kept
from lithify.metrics.log_lines import tell
from lithify.metrics.progress import Progress
from lithify.tables import presence
from lithify.tables.handles import Handles
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)

FOREIGN_JOB_HOURS_MAX = 24
LOOKS_MAX = 20
# Jobs that bring rows in or fold them; all others merge files into fewer ones, and their kind is the tier.
NO_TIERS = frozenset({"fold", "bulk", "spool", "adopt", "attach", "columns"})
# Their owner is another process, or whoever writes rows: nobody else can end them.
UNWATCHED = frozenset({"spool"})
# Jobs of this process that are under way. One of ours that is not here was left behind, e.g. by a full disk.
_under_way: set[str] = set()


def begin(
    runtime: Runtime,
    table: str,
    kind: str,
    log: str,
    inputs: Sequence[str] = (),
    *,
    lease: int | None = None,
    why: str = "",
    outlives_us: bool = False,
    id: str | None = None,
) -> Job:
    """`log` is 'base' or 'changes': where the job writes and commits. `inputs`: files that no other job should take.
    `outlives_us`: its owner is another process, for which this one can give no sign of life.
    """
    job_id = id or runtime.new_id()
    job = Job(
        job_id,
        kind,
        table,
        log,
        f"{kind}-{job_id}",
        runtime.owner,
        runtime.now_ms(),
        tuple(inputs),
        lease=lease,
        why=why,
    )
    runtime.store.make_folder(runtime.control / "jobs")
    _under_way.add(job.id)
    try:
        if not outlives_us:
            presence.begin(runtime, job.id)
        write_manifest(runtime, job)
    except BaseException:
        _no_longer_under_way(runtime, job)
        raise
    runtime.store.step(f"{kind}.manifest")
    return job


def _no_longer_under_way(runtime: Runtime, job: Job) -> None:
    _under_way.discard(job.id)
    presence.end(runtime, job.id)


class OpenJob:
    """A job inside of its bracket."""

    def __init__(self, handles: Handles, job: Job, point: str, progress: Progress) -> None:
        self.handles, self.job, self.point, self.progress = handles, job, point, progress
        self.log = handles.base.log if job.log == "base" else handles.changes.log
        self.facts: dict[str, Any] = {}
        self.committed: Committed | None = None
        self.left = False

    def commit(self, what: str, build: Build) -> Committed | None:
        """Its one commit, which says that it is done. None: it turned out not to be needed."""
        self.progress.settle()
        self.job = advance(self.handles.runtime, self.job, COMMITTING)

        def checked() -> LogChange | None:
            check_not_fenced(self.job, self.log)
            change = build()
            return None if change is None else replace(change, txns={**change.txns, **self.job.txn})

        self.committed = self.handles.commit(self.log, what, checked, point=self.point)
        return self.committed

    def tell(self, files: tuple[int, int], bytes: tuple[int, int], rows: int, **more: int) -> None:
        """For its line in the history: how many files and bytes went in and came out."""
        self.facts = dict(zip(("files_in", "files_out", "bytes_in", "bytes_out"), (*files, *bytes), strict=True))
        self.facts |= {"rows": rows, **more}

    def clean_up(self, act: Callable[[Handles], None]) -> None:
        """After the commit: what fails now is left to recovery, which does the same."""
        try:
            act(self.handles)
        except Exception as error:
            leave(self.handles.runtime, self.job, error)
            self.left = True


@contextlib.contextmanager
def running(
    handles: Handles,
    kind: str,
    log: str,
    inputs: Sequence[str] = (),
    *,
    lease: int | None = None,
    why: str = "",
    point: str | None = None,
) -> Iterator[OpenJob]:
    """A job from its manifest to its line in the history. Whatever stops it, the log decides: its files go only
    behind a fence, and recovery finishes what has committed. Without a commit it was not needed, and is put away.
    """
    runtime, table = handles.runtime, str(handles.name)
    with watched(runtime, Progress(runtime.new_id(), kind, table, why)) as progress:
        job = begin(runtime, table, kind, log, inputs, lease=lease, why=why, id=progress.id)
        run = OpenJob(handles, job, point or kind, progress)
        try:
            yield run
        except BaseException as error:
            give_up(runtime, run.job, run.log, error)
            raise
        if run.committed is None:
            put_away(runtime, run.job, run.log)
        elif not run.left:
            finish(runtime, run.job, **run.facts)
            runtime.store.step(f"{run.point}.done")


def advance(runtime: Runtime, job: Job, state: str) -> Job:
    job = replace(job, state=state)
    write_manifest(runtime, job)
    runtime.store.step(f"{job.kind}.{state}")
    return job


def sync_outputs(runtime: Runtime, root: PurePath, paths: Iterable[str]) -> None:
    """The files were fsynced by whoever wrote them; their directory entries are the job's to make durable."""
    folders = {root}
    for path in paths:
        folders.update(parent for parent in (root / path).parents if parent.is_relative_to(root))
    for folder in folders:
        runtime.store.sync_folder(folder)


def drop_leftovers(runtime: Runtime, root: PurePath, job: Job, paths: Iterable[str]) -> None:
    """Remove what failed or doubled attempts at tasks have left in the job's folder: only files that were reported
    count.
    """
    reported = set(paths)
    for path in list(runtime.store.below(root / job.folder)):
        if f"{job.folder}/{path}" not in reported:
            runtime.store.delete(root / job.folder / path)


def check_outputs(runtime: Runtime, root: PurePath, files: Iterable[Written]) -> None:
    """What a task says it wrote lies there, all of it."""
    told = list(files)
    for file, found in zip(told, runtime.store.sizes(root / file.path for file in told), strict=True):
        if found != file.size_bytes:
            raise Corruption(
                f"{root / file.path} has {found} of the {file.size_bytes} bytes that were written: nothing was "
                "committed; check the disk of this machine, then try again"
            )


def finish(runtime: Runtime, job: Job, outcome: str = "done", **facts: Any) -> None:
    """The log has decided. A manifest that cannot be removed now is recovery's: the job has not failed for that."""
    _no_longer_under_way(runtime, job)
    try:
        runtime.store.delete(manifest_path(runtime, job.id))
    except Exception as error:
        logger.warning("the manifest of %s %s of %s is left to recovery: %s", job.kind, job.id, job.table, error)
        return
    _count(runtime, job, outcome, facts)
    _record(runtime, job, outcome, facts)


def _count(runtime: Runtime, job: Job, outcome: str, facts: dict[str, Any]) -> None:
    """A log line, and what merging files has gained."""
    if outcome == "done" and job.kind not in NO_TIERS and "files_in" in facts:
        runtime.counters.files_compacted.labels(job.kind).inc(facts["files_in"])
        runtime.counters.bytes_saved.labels(job.kind).inc(max(facts["bytes_in"] - facts["bytes_out"], 0))
    seconds = round(max(runtime.now_ms() - job.created_ms, 0) / 1000, 3)
    tell(logger, f"{job.kind} {outcome}", table=job.table, job=job.id, **facts, seconds=seconds, why=job.why)


def leave(runtime: Runtime, job: Job, error: BaseException) -> None:
    """The commit stands, and recovery will find that and clean up behind it."""
    _no_longer_under_way(runtime, job)
    logger.warning("cleaning up after %s %s of %s is left to recovery: %s", job.kind, job.id, job.table, error)


def abandon(runtime: Runtime, job: Job, log: DeltaLog, outcome: str = "given up", **facts: Any) -> None:
    """Give up our own job: nothing was committed, and after the fence nothing can be."""
    if fence(runtime, job, log):
        delete_folder(runtime, job, log)
        finish(runtime, job, outcome, **facts)


def put_away(runtime: Runtime, job: Job, log: DeltaLog) -> None:
    """Give up a job that turned out not to be needed: what stops that is recovery's, and changes no answer."""
    try:
        abandon(runtime, job, log)
    except Exception as error:
        leave(runtime, job, error)


def give_up(runtime: Runtime, job: Job, log: DeltaLog, error: BaseException) -> None:
    """Clean up after whatever stopped the job. The log decides whether it has committed."""
    outcome, reason = "cancelled" if _was_stopped(error) else "failed", _reason(error)
    try:
        taken = is_fenced(job, log)
        try:
            abandon(runtime, job, log, outcome, reason=reason)
        except Exception:
            _make_room(runtime, job, log)
            abandon(runtime, job, log, outcome, reason=reason)
    except Exception as second:
        # What stopped the job says more than what stopped its cleaning up, e.g. on a full disk.
        logger.warning("%s %s of %s is left to recovery: %s", job.kind, job.id, job.table, second)
        return
    finally:
        _no_longer_under_way(runtime, job)
    if taken and isinstance(error, Exception):
        raise given_up(job) from error


def _make_room(runtime: Runtime, job: Job, log: DeltaLog) -> None:
    """The job's own files may be what fills the disk, so that its fence finds no room. They can go before it while the
    job has not come to its commit: only we could commit them, and we will not.
    """
    if job.state == WRITING and _outcome(job, log) is None:
        delete_folder(runtime, job, log)


def check_not_fenced(job: Job, log: DeltaLog) -> None:
    if log.txn(job_txn(job.id)) is not None:
        raise given_up(job)


def is_fenced(job: Job, log: DeltaLog) -> bool:
    return _outcome(job, log) == FENCED


def _outcome(job: Job, log: DeltaLog) -> int | None:
    """What the head of the log says of the job."""
    for _ in range(LOOKS_MAX):
        with log.lock, contextlib.suppress(Lost):
            log.refresh()
            return log.txn(job_txn(job.id))
    raise Conflict(f"the log of {job.table} moves on too fast to look at job {job.id}: try again")


def given_up(job: Job) -> Conflict:
    return Conflict(
        f"{job.kind} of {job.table} was given up by another process that took this one for dead: run it again"
    )


def fence(runtime: Runtime, job: Job, log: DeltaLog) -> bool:
    """Make sure that the job can never commit. False: it has committed."""
    info = {"operation": "fence job", "detail": f"{job.kind} {job.id}"}
    state: int | None = None

    def build() -> LogChange | None:
        nonlocal state
        state = log.txn(job_txn(job.id))
        return None if state is not None else LogChange(info, txns={job_txn(job.id): FENCED})

    return commit(runtime, log, f"giving up job {job.id} of {job.table}", build) is not None or state == FENCED


# -- looking at them


def unfinished(runtime: Runtime, table: str | None = None, *, set_aside: bool = False) -> list[Job]:
    """Jobs with a manifest, oldest first, whoever owns them. `set_aside` those that cannot be trusted."""
    found = [read_manifest(runtime, path, set_aside) for path in manifests(runtime)]
    jobs = [job for job in found if job is not None and (table is None or job.table == table)]
    return sorted(jobs, key=lambda job: (job.created_ms, job.id))


def under_way(runtime: Runtime, table: str | None = None) -> list[Job]:
    """Unfinished jobs whose process may still be at work."""
    return [job for job in unfinished(runtime, table) if may_go_on(runtime, job)]


def owner_may_be_alive(runtime: Runtime, job: Job) -> bool:
    return job.owner.may_be_alive() if runtime.store.locks else may_go_on(runtime, job)


def job_history(runtime: Runtime, limit: int | None = None) -> list[dict[str, Any]]:
    """Jobs that ended, newest first."""
    return _journal(runtime).read(limit)


def may_go_on(runtime: Runtime, job: Job) -> bool:
    """A hint only: fencing a job that lives does no harm, it merely has to be done again."""
    if job.owner == runtime.owner:
        return job.id in _under_way
    if not runtime.store.locks:
        silent_s_max = presence.job_silent_s_max(runtime)
        return presence.may_be_alive(runtime, job.owner, silent_s_max, job.created_ms, FOREIGN_JOB_HOURS_MAX)
    if job.owner.host != runtime.owner.host:
        # Nobody can look there; a host that was renamed or is gone must not hold its files for ever.
        return runtime.now_ms() - job.created_ms < FOREIGN_JOB_HOURS_MAX * 3_600_000
    return job.owner.may_be_alive()


def forget_folded(handles: Handles) -> None:
    """Remove changes that base holds durably, as far as these handles have come. Anyone may do this, any number of
    times. What keeps late events out stays for `late_hours` after its fold (`merge/late.py`).
    """
    changes, base = handles.changes, handles.base

    def unneeded() -> list[DataFile]:
        live = changes.files()
        folded = [file for file in live if file.seq <= watermark]
        if not any(file.op in ORDERED_DELETES for file in folded):
            return folded
        cutoff_ms = changes.log.next_ms() - round(changes.schema.options["late_hours"] * 3_600_000)
        pending = [file for file in live if file.seq > watermark]
        young = partial(_is_late, base, cutoff_ms)
        late = {file.log_path for file in kept(changes.schema, folded, pending, young)}
        return [file for file in folded if file.log_path not in late]

    def build() -> LogChange | None:
        folded = unneeded()
        info: dict[str, Any] = {"operation": "remove folded", "seq": changes.seq, "watermark": watermark}
        if forgotten := sum(file.rows for file in folded if file.op in ORDERED_DELETES):
            info[FORGOTTEN] = forgotten
        return LogChange(info, removes=folded) if folded else None

    with changes.log.lock:
        watermark = base.watermark
        if unneeded():
            base.log.make_durable()
            handles.commit(changes.log, "removing folded changes of", build)


def _is_late(base: BaseLog, cutoff_ms: int, file: DataFile) -> bool:
    """Whether a tombstone was written or folded after the cutoff, by the times of the logs."""
    if file.time_ms > cutoff_ms:
        return True
    folded_ms = base.folded_ms(file.seq)
    return folded_ms is not None and folded_ms > cutoff_ms


def delete_folder(runtime: Runtime, job: Job, log: DeltaLog) -> None:
    referenced = next((f.path for f in log.files(()) if PurePath(f.path).parts[0] == job.folder), None)
    if referenced is not None:
        raise Conflict(f"job {job.id} is fenced, but the log names {referenced}: nothing was deleted")
    runtime.store.delete_folder(log.path / job.folder)


def _journal(runtime: Runtime) -> Journal:
    return Journal(runtime.store, runtime.control / "history" / "jobs.jsonl")


def _record(runtime: Runtime, job: Job, outcome: str, facts: dict[str, Any]) -> None:
    now_ms = runtime.now_ms()
    line = {
        "id": job.id,
        "kind": job.kind,
        "table": job.table,
        "outcome": outcome,
        "why": job.why,
        "started_ms": job.created_ms,
        "ended_ms": now_ms,
        "owner": job.owner.label,
        **facts,
    }
    try:
        _journal(runtime).append(line)
    except Exception as error:
        logger.warning("%s %s of %s is not in the job history: %s", job.kind, job.id, job.table, error)


def _was_stopped(error: BaseException) -> bool:
    """By the user, or with a cycle's time: nothing is wrong with the job."""
    return not isinstance(error, Exception) or bool(isinstance(error, LithifyError) and error.details.get("cancelled"))


def _reason(error: BaseException) -> str:
    return reason_of(error) if isinstance(error, Exception) else "interrupted"
