"""What one cycle does: recover what died, look at every table, do what is due.

For each table the pending changes come first (merging and folding, in order), then compactions on a fresh look at
the table: plans of one partition in order, partitions and tables side by side up to `jobs_max`. Nothing that goes
wrong with one table or job stops the others. A job whose inputs changed under it is left to the next look; work that
fails again and again for the same reason is tried less and less often.

A cycle that ran out of time, was stopped, or lost its lease starts nothing new.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from lithify.core.wording import plural
from lithify.delta.remote_log import clock_s
from lithify.errors import Cancelled, ComputeFailed, Conflict, LithifyError, NotFound, reason_of
from lithify.jobs import recovery
from lithify.jobs.leases import RenewedLease
from lithify.jobs.past_jobs import Journal
from lithify.jobs.watch import watched
from lithify.maintenance.backoff import BackOff, Waiting, Work
from lithify.maintenance.plans import CompactPlan, Plan
from lithify.maintenance.reports import CANCELLED, DONE, FAILED, REPLANNED, CycleReport, JobOutcome, Skipped
from lithify.metrics.counters import Counters
from lithify.metrics.progress import Progress, under
from lithify.metrics.recent_events import RecentEvents
from lithify.options.tiers import TierNames
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)

VACUUM, POLICIES, CYCLE = "vacuum", "policies", "cycle"
ASK_AGAIN_S = 1.0
Event = dict[str, Any]
OnEvent = Callable[[Event], None]
TOLD = frozenset({"cycle started", "cycle done"})  # in the log of events, where jobs tell of themselves
FinishDrops = Callable[[Callable[[str], None], Collection[str]], Sequence[str]]


class Maintained(Protocol):
    """A table as a cycle sees it. `run` and `vacuum` raise `Conflict` when the table moved on under them."""

    def plans(self, now_ms: int, tier: TierNames) -> Sequence[Plan]: ...

    def run(self, plan: Plan) -> Any: ...

    def trim(self) -> None: ...

    def vacuum(self) -> Any: ...

    def vacuum_due(self, now_ms: int) -> bool: ...


@dataclass(frozen=True)
class CycleParts:
    """What every cycle of a lake works with. `open_table(name, token)` opens a table for jobs under a lease's token;
    `finish_drops(problem, there)` clears away what interrupted drops have left, and answers in words what it did.
    """

    runtime: Runtime
    tables: Callable[[], Sequence[str]]
    open_table: Callable[[str, int], Maintained]
    notify: Callable[[str], None]
    counters: Counters
    finish_drops: FinishDrops = lambda problem, there: []


@dataclass(frozen=True)
class Wanted:
    """Which of all that is due: the work of some tiers, kinds and tiers by name (`only`), or vacuum instead."""

    tables: Sequence[str]
    tiers: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    vacuum: bool = False

    @property
    def what(self) -> str:
        return VACUUM if self.vacuum else (",".join(self.tiers) or POLICIES)


def cycle_journal(runtime: Runtime) -> Journal:
    return Journal(runtime.store, runtime.control / "history" / "cycles.jsonl")


class CycleRun:
    """One cycle."""

    def __init__(
        self, parts: CycleParts, wanted: Wanted, timeout_s: float | None = None, on_event: OnEvent | None = None
    ) -> None:
        self._parts, self._runtime, self.wanted = parts, parts.runtime, wanted
        self.id, self.started_ms = self._runtime.new_id(), self._runtime.now_ms()
        self._timeout_s = self._runtime.settings.cycle_timeout_s if timeout_s is None else timeout_s
        self._on_event = on_event
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._stopped: str | None = None
        self._cancelled = False
        self._not_started = 0
        self._jobs: list[JobOutcome] = []
        self._skipped: list[Skipped] = []
        self._problems: list[str] = []
        self._backoff = BackOff()
        self._renewed: RenewedLease | None = None
        self._asked_s = -ASK_AGAIN_S
        self._progress = Progress(self.id, CYCLE, why=wanted.what)

    def run(self, renewed: RenewedLease) -> CycleReport:
        self._renewed = renewed
        started_s = time.monotonic()
        runtime = self._runtime
        previous = next(iter(cycle_journal(runtime).read(1)), {})
        self._backoff = BackOff.of_documents(previous.get("waiting") or (), runtime.now_ms())
        self._tell("cycle started", what=self.wanted.what, tables=len(self.wanted.tables))
        runtime.store.step("cycle.started")
        recovered = self._recover(renewed.lease.token)
        with watched(runtime, self._progress, tells=False), self._progress.stopped_by(self.stop):
            self._work(started_s + self._timeout_s)
        report = CycleReport(
            self.id,
            self.wanted.what,
            self.started_ms,
            time.monotonic() - started_s,
            tuple(self._jobs),
            tuple(self._skipped),
            tuple(recovered),
            self._backoff.waiting(),
            tuple(self._problems),
            self._stopped,
            self._not_started,
            runtime.owner.label,
        )
        self._keep(report)
        return report

    def stop(self, why: str) -> None:
        with self._lock:
            self._stopped = self._stopped or why

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
        self._runtime.compute.cancel_all("maintenance was stopped")

    # -- in order

    def _recover(self, token: int) -> list[str]:
        try:
            recovered = recovery.recover(self._runtime, lease=token)
        except LithifyError as error:
            # One table that cannot be recovered now is no reason to leave the others alone.
            self._problem(f"recovery: {error.message}")
            recovered = []
        try:
            recovered += self._parts.finish_drops(self._problem, frozenset(self.wanted.tables))
        except LithifyError as error:
            self._problem(f"recovery: {error.message}")
        for line in recovered:
            self._tell("recovered", detail=line)
        return recovered

    def _work(self, deadline_s: float) -> None:
        """Tables first, and then, table by table, the compactions that are due after that."""
        pool = ThreadPoolExecutor(self._runtime.settings.jobs_max, thread_name_prefix="lithify-cycle")
        try:
            waiting: set[Future[list[PlanQueue]]] = {pool.submit(self._table, name) for name in self.wanted.tables}
            while waiting:
                left_s = None if self._stopped else max(deadline_s - time.monotonic(), 0)
                ended, waiting = wait(waiting, left_s, FIRST_COMPLETED)
                for future in ended:
                    for name, table, plans in future.result():
                        waiting.add(pool.submit(self._run_queue, name, table, plans))
                if not ended and waiting:
                    self.stop(f"timeout after {self._timeout_s:g} s")
                    self.cancel()
        except BaseException:
            self.stop("interrupted")
            self.cancel()
            raise
        finally:
            pool.shutdown()

    def _may_start(self) -> bool:
        if self._renewed is not None and not self._renewed.still_ours():
            self.stop("another process took over the lease")
        self._asked_s = clock_s()
        return self._goes_on()

    def _may_look(self) -> bool:
        """What only looks need not ask for each table whose turn it is: nobody has slept since somebody did."""
        return self._goes_on() if clock_s() - self._asked_s < ASK_AGAIN_S else self._may_start()

    def _goes_on(self) -> bool:
        with self._lock:
            return self._stopped is None

    # -- one table

    def _table(self, name: str) -> list[PlanQueue]:
        """What comes first on a table; returns what may then run side by side."""
        if not (self._may_start() if self.wanted.vacuum else self._may_look()):
            return []
        try:
            token = self._renewed.lease.token if self._renewed is not None else 0
            table = self._parts.open_table(name, token)
            if self.wanted.vacuum:
                self._attempt(Work(name, VACUUM), None, table.vacuum)
                return []
            plans = self._plans(table)
            first = [plan for plan in plans if not isinstance(plan, CompactPlan)]
            if first:
                self._run_queue(name, table, first)
                plans = self._plans(table)
            if not self.wanted.tiers:
                self._trim(name, table)
                self._vacuum(name, table)
            return _queues(name, table, [plan for plan in plans if isinstance(plan, CompactPlan)])
        except LithifyError as error:
            self._damaged(name, error.message)
        except Exception as error:
            logger.exception("looking at %s crashed", name)
            self._damaged(name, reason_of(error))
        return []

    def _plans(self, table: Maintained) -> list[Plan]:
        found = table.plans(self._runtime.now_ms(), self.wanted.tiers or None)
        return [plan for plan in found if self.wanted.only is None or _label(plan) in self.wanted.only]

    def _trim(self, name: str, table: Maintained) -> None:
        try:
            table.trim()
        except Conflict as error:
            logger.debug("the logs of %s are trimmed another time: %s", name, error)
        except LithifyError as error:
            self._problem(f"the logs of {name} could not be trimmed: {error.message}")

    def _vacuum(self, name: str, table: Maintained) -> None:
        wanted = self.wanted.only is None or VACUUM in self.wanted.only
        if wanted and table.vacuum_due(self._runtime.now_ms()) and self._may_start():
            self._attempt(Work(name, VACUUM), None, table.vacuum)

    def _run_queue(self, name: str, table: Maintained, plans: Sequence[Plan]) -> list[PlanQueue]:
        for number, plan in enumerate(plans):
            if not self._may_start():
                with self._lock:
                    self._not_started += len(plans) - number
                break
            self._attempt(_work(name, plan), plan, lambda plan=plan: table.run(plan))  # type: ignore[misc]
        return []

    # -- one job

    def _attempt(self, work: Work, plan: Plan | None, run: Callable[[], Any]) -> None:
        with self._lock:
            waiting = self._backoff.hold_back(work, self._runtime.now_ms())
        if waiting is not None:
            self._skip(Skipped(work.table, _waiting_text(waiting)))
            return
        facts = _facts(work, plan)
        self._tell("job started", **facts, bytes_in=plan.bytes_in if plan is not None else 0)
        started_s = time.monotonic()
        with under(self._progress):
            outcome, reason, result = self._outcome(work, run)
        job = JobOutcome(
            **facts,
            outcome=outcome,
            seconds=time.monotonic() - started_s,
            bytes_in=_number(result, "bytes_in", "bytes_read"),
            bytes_out=_number(result, "bytes_out", "bytes_written"),
            reason=reason,
        )
        self._note(work, job)

    def _outcome(self, work: Work, run: Callable[[], Any]) -> tuple[str, str | None, Any]:
        try:
            result = run()
        except Conflict as error:
            return REPLANNED, error.message, None
        except Exception as error:
            if isinstance(error, ComputeFailed) and (self._cancelled or error.details.get("cancelled")):
                return CANCELLED, reason_of(error).removeprefix("cancelled: "), None
            if isinstance(error, Cancelled):
                return CANCELLED, error.message, None
            if isinstance(error, NotFound) and not self._is_there(work.table):
                return CANCELLED, "the table was dropped", None
            if not isinstance(error, LithifyError):
                logger.exception("%s of %s crashed", work.kind, work.table)
            return FAILED, reason_of(error), None
        problems = list(getattr(result, "problems", ()))
        for problem in problems:
            self._problem(f"{work.kind} of {work.table}: {problem}")
        # Inputs that are left out for being damaged would otherwise be planned, and left out, in every cycle.
        if problems and not getattr(result, "files_written", 0):
            return FAILED, problems[0], result
        return DONE, None, result

    def _note(self, work: Work, job: JobOutcome) -> None:
        counters = self._parts.counters
        counters.jobs.labels(job.kind, job.outcome).inc()
        counters.job_seconds.labels(job.kind).observe(job.seconds)
        counters.job_bytes.labels(job.kind, "in").inc(job.bytes_in)
        counters.job_bytes.labels(job.kind, "out").inc(job.bytes_out)
        with self._lock:
            self._jobs.append(job)
            if job.outcome == FAILED:
                self._backoff.failed(work, job.reason or "", self._runtime.now_ms())
            elif job.outcome == DONE:
                counters.job_done.labels(job.kind).set(self._runtime.now_ms() / 1000)
                self._backoff.succeeded(work)
        if job.outcome == DONE:
            self._notify(work.table)
        facts = _facts_of(job)
        self._tell(f"job {job.outcome}", **facts)

    def _notify(self, table: str) -> None:
        try:
            self._parts.notify(table)
        except LithifyError as error:
            logger.warning("%s will be seen at its next refresh: %s", table, error)

    # -- telling

    def _skip(self, skipped: Skipped) -> None:
        with self._lock:
            self._skipped.append(skipped)
        self._tell("skipped", table=skipped.table, why=skipped.why, damaged=skipped.damaged)

    def _damaged(self, name: str, reason: str) -> None:
        if self._is_there(name):
            self._skip(Skipped(name, reason, damaged=True))

    def _is_there(self, name: str) -> bool:
        try:
            return name in self._parts.tables()
        except LithifyError as error:
            logger.warning("it cannot be told whether %s was dropped: %s", name, error)
            return True

    def _problem(self, text: str) -> None:
        with self._lock:
            self._problems.append(text)
        self._tell("problem", detail=text)

    def _keep(self, report: CycleReport) -> None:
        counters = self._parts.counters
        counters.cycles.labels("stopped" if report.stopped else "ended").inc()
        counters.cycle_ended.set(self._runtime.now_ms() / 1000)
        counters.cycle_seconds.labels(report.what).observe(report.seconds)
        counters.jobs_waiting.set(len(report.waiting))
        if self._renewed is not None and self._renewed.lost.is_set():
            counters.leases_lost.inc()
        document = report.document()
        try:
            cycle_journal(self._runtime).append(document)
        except LithifyError as error:
            logger.warning("cycle %s is not in the history: %s", report.id, error)
        self._tell("cycle done", **{k: v for k, v in document.items() if not isinstance(v, list) and k != "cycle"})

    def _tell(self, event: str, **facts: Any) -> None:
        if event in TOLD:
            numbers = {name: value for name, value in facts.items() if isinstance(value, int | float)}
            self._runtime.shared(RecentEvents).tell(event, secret=numbers, cycle=self.id, what=self.wanted.what)
        if self._on_event is None:
            return
        told = {"event": event, "time_ms": self._runtime.now_ms(), "cycle": self.id, **facts}
        try:
            with self._telling:
                self._on_event(told)
        except Exception:
            # Whoever listens (a closed pipe, a full disk) must not decide over jobs.
            logger.exception("nobody could be told that %s", event)


PlanQueue = tuple[str, Maintained, Sequence[Plan]]


def _queues(name: str, table: Maintained, plans: Sequence[Plan]) -> list[PlanQueue]:
    """Plans of one partition, in order."""
    by_partition: dict[str, list[Plan]] = {}
    for plan in plans:
        by_partition.setdefault(_partition(plan), []).append(plan)
    return [(name, table, queue) for queue in by_partition.values()]


def _label(plan: Plan) -> str:
    return plan.origin if isinstance(plan, CompactPlan) else plan.kind


def _partition(plan: Plan) -> str:
    if not isinstance(plan, CompactPlan):
        return ""
    return ",".join(f"{column}={value}" for column, value in sorted(plan.partition.items()))


def _work(name: str, plan: Plan) -> Work:
    """A batch is known by its partition and first file: the rest of it may change from look to look."""
    if not isinstance(plan, CompactPlan):
        return Work(name, plan.kind)
    return Work(name, plan.origin, f"{_partition(plan)} {plan.files[0].path if plan.files else ''}".strip())


def _facts(work: Work, plan: Plan | None) -> dict[str, Any]:
    return {
        "table": work.table,
        "kind": plan.kind if plan is not None else work.kind,
        "tier": plan.origin if isinstance(plan, CompactPlan) else None,
        "partition": _partition(plan) if plan is not None else "",
        "why": plan.why if plan is not None else "asked for",
    }


def _facts_of(job: JobOutcome) -> dict[str, Any]:
    facts = {name: getattr(job, name) for name in ("table", "kind", "tier", "partition", "why")}
    numbers = {"bytes_in": job.bytes_in, "bytes_out": job.bytes_out, "seconds": round(job.seconds, 3)}
    return {**facts, **numbers, "reason": job.reason}


def _number(result: Any, *names: str) -> int:
    return next((int(value) for name in names if (value := getattr(result, name, None)) is not None), 0)


def _waiting_text(entry: Waiting) -> str:
    when = f"waits {plural(entry.turns_left, 'more turn')}" if entry.turns_left else "is tried again next time"
    return f"{entry.work.kind} failed {plural(entry.failures, 'time')}, {when}: {entry.reason}"
