"""Pipelines and streams that run by themselves: when each of them is due, what came of its runs, and runs on request.

One thread looks every second, at no file of data, for what is due: a moment that has come, or a table with a new seq.
What is due runs on a thread of its own, as many at a time as the Spark worker takes; what has nothing to do ends there,
without Spark. Whatever a run raises is told in the entry's state, and the entry is tried again later (`turns.py`).

What is remembered of an entry is what its runs left in the lake's history (`past_runs.py`), so a process that starts
goes on where the one before it was. Of several processes on one lake each looks by itself; the lease of a run keeps two
from doing the same, and progress that is committed with the rows makes a second run find nothing to do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lithify.compute.compute import Compute
from lithify.core.arguments import check_text
from lithify.core.names import parse_table_name
from lithify.errors import ComputeFailed, Conflict, InvalidRequest, LithifyError, NotFound, did_you_mean, reason_of
from lithify.jobs import leases
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.lake.pipeline_tasks import RunTask, plan_pipeline, run_entry
from lithify.metrics.log_lines import tell
from lithify.pipelines.due import Last, due_ms, ended_ms, failures_in_a_row
from lithify.pipelines.entries import Entry, declared_entries
from lithify.pipelines.past_runs import past_runs, remember
from lithify.pipelines.pipeline import declared_steps, is_running, lease_name
from lithify.pipelines.reports import PipelinePlan, PipelineReport, StepPlan, StepReport, report_of
from lithify.pipelines.run_tally import RunTally, Tallied
from lithify.pipelines.status import PipelineStatus, State, StepStatus
from lithify.pipelines.stream_declaration import StreamDeclaration
from lithify.pipelines.stream_run import KIND, file_stream, files_there

logger = logging.getLogger(__name__)

LOOK_S = 1.0
# How old what is told about steps may be, where nothing has run since: their files are listed for it.
STEPS_AGE_S = 10.0
LAG_AGE_S = 30.0
PAUSE_MS = 10_000
STOP_GRACE_S = 10.0
Listing = tuple[str, frozenset[int]]


@dataclass(frozen=True)
class Order:
    """A run that somebody asked for."""

    run: str
    full: bool = False
    step: str | None = None


@dataclass
class Standing:
    """What this process knows of one entry."""

    entry: Entry
    last: PipelineReport | None = None
    succeeded_ms: int | None = None
    failures: int = 0
    order: Order | None = None
    running: str | None = None
    began_ms: int = 0
    here: Last | None = None  # when the last run was, if it was here, by the clock that tells what is due
    pause_until_ms: int = 0  # another process has it
    steps: tuple[StepStatus, ...] = ()
    steps_s: float | None = None
    trouble: str | None = None  # why it cannot be looked at
    seq: int | None = None  # of the table on whose changes it runs, when the last run began
    taken: Listing | None = None  # the files of a stream when its last run that ended well began
    owed: bool = field(default=True)  # `on`: whether a run is due that has not ended well yet

    @property
    def lag(self) -> int | None:
        return max((each.lag for each in self.steps if each.lag is not None), default=None)


class PipelineRunner:
    """Get one from `Lake.pipeline_runner`. Nothing runs by itself before `start`."""

    def __init__(
        self,
        lake: Lake,
        *,
        clock: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
        compute: Compute | None = None,
    ) -> None:
        self._lake, self._internals, self._clock, self._look_s = lake, internals(lake), clock, look_s
        self._runtime = self._internals.runtime
        self._compute = compute or self._runtime.compute
        self.entries: Mapping[str, Entry] = declared_entries(self._runtime.settings, remote=self._runtime.store.remote)
        self._known = {name: self._remembered(entry) for name, entry in self.entries.items()}
        self._changed = threading.Condition()
        self._since_ms = self._now_ms()
        self._scheduled = self._closed = False
        self._looker: threading.Thread | None = None
        self._threads: ThreadPoolExecutor | None = None

    # -- starting and stopping

    def check(self) -> None:
        """Raises, naming the entry, what is wrong with the declarations. No table is written, Spark is not started."""
        if any(entry.kind == "pipeline" for entry in self.entries.values()):
            # A table that is not there may come; until then the runs that need it fail, and nothing else does.
            with contextlib.suppress(NotFound):
                declared_steps(self._internals.pipelines).ordered()

    def start(self) -> None:
        """Run from now on what has a schedule, until `stop`."""
        self.check()
        with self._changed:
            self._scheduled = True
        if any(entry.schedule is not None for entry in self.entries.values()):
            self._ensure_looking()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Start nothing new; let what runs end, then end it with its Spark worker: what is committed stands."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            ended = self._changed.wait_for(lambda: not self._running(), grace_s)
        if not ended:
            self._compute.cancel_all("the process is being stopped")

    def join(self) -> None:
        """After `stop`, and after the lake has been closed: wait for threads that have learned of it."""
        if self._looker is not None:
            self._looker.join()
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def trigger(self, name: str, *, full: bool = False, step: str | None = None) -> str:
        """Run it now, in the background; answers the run's id. Raises `Conflict` while it runs, wherever that is."""
        entry = self.entry(name)
        self._check_order(entry, full, step)
        self._check_free(entry)
        order = Order(self._runtime.new_id(), full, step)
        with self._changed:
            if self._closed:
                raise Conflict("pipelines are being stopped here: nothing is started")
            known = self._known[name]
            if known.order is not None or known.running is not None:
                waiting = known.running or (known.order.run if known.order is not None else None)
                raise Conflict(f"{entry} is running already: wait for it to end", pipeline=name, run=waiting)
            known.order = order
        self._ensure_looking()
        return order.run

    def plan(self, name: str, *, full: bool = False, step: str | None = None) -> PipelinePlan:
        """What a run would do now. Spark is asked only if there is something to do."""
        entry = self.entry(name)
        self._check_order(entry, full, step)
        if isinstance(entry.declared, StreamDeclaration):
            return _stream_plan(entry.declared, self._stream_now(self._known[name]))
        pipeline = self._lake.pipeline(name)
        if all(each.idle for each in pipeline.steps_now(full=full, step=step)):
            return pipeline.plan(full=full, step=step, check=False)
        return self._compute.run_on_driver(plan_pipeline, self._task(entry, Order("", full, step)))

    # -- what is known

    def entry(self, name: str) -> Entry:
        check_text("the name of a pipeline", name)
        if name not in self.entries:
            hint = did_you_mean(name, self.entries) or f"there is {', '.join(self.entries) or 'none'}"
            raise NotFound(f"there is no pipeline and no stream {name!r} in the settings: {hint}")
        return self.entries[name]

    def status(self, name: str) -> PipelineStatus:
        """As of now, also of what other processes run."""
        entry, known = self.entry(name), self._known[name]
        self._learn(known)
        self._look_at_steps(known)
        lease = leases.current(self._runtime, lease_name(entry.kind, name))
        with self._changed:
            waiting = known.order.run if known.order is not None else None
            running = known.running or waiting or (lease.id if lease is not None else None)
            return self._status(known, running, lease.holder if lease is not None else None)

    def known_here(self) -> list[Standing]:
        """As this process saw them last: nothing is looked at."""
        with self._changed:
            return [replace(known) for known in self._known.values()]

    @property
    def schedules(self) -> dict[str, str]:
        """What runs by itself, and when, in words."""
        return {name: str(entry.schedule) for name, entry in self.entries.items() if entry.schedule is not None}

    def _status(self, known: Standing, running: str | None, by: str | None) -> PipelineStatus:
        entry, schedule = known.entry, known.entry.schedule
        state: State = "running" if running else "failing" if known.failures else "waiting"
        if state == "waiting" and schedule is None:
            state = "on request"
        here = self._scheduled and not self._closed and schedule is not None
        files = [each.files for each in known.steps if each.files is not None]
        return PipelineStatus(
            pipeline=entry.name,
            kind=entry.kind,
            state=state,
            schedule=None if schedule is None else str(schedule),
            every_s=None if schedule is None else schedule.every_s,
            cron=None if schedule is None else schedule.cron,
            on=None if schedule is None else schedule.on,
            here=here,
            running=running,
            running_by=by,
            next_ms=self._due_ms(known) if here and running is None else None,
            failures=known.failures,
            error=known.last.reason if known.failures and known.last is not None else known.trouble,
            lag=known.lag,
            files=sum(files) if files else None,
            last=known.last,
            succeeded_ms=known.succeeded_ms,
            steps=list(known.steps),
        )

    def _remembered(self, entry: Entry) -> Standing:
        known = Standing(entry)
        self._learn(known)
        self._tally(known)
        return known

    def _tally(self, known: Standing) -> None:
        tallied = Tallied(known.failures, known.succeeded_ms, known.lag)
        self._runtime.shared(RunTally).tell(known.entry.name, tallied)

    def _learn(self, known: Standing) -> None:
        """What the history says of later runs than those that are known here."""
        reports = [
            report for line in past_runs(self._runtime, known.entry.name) if (report := report_of(line)) is not None
        ]
        if not reports or (known.last is not None and reports[0].started_ms <= known.last.started_ms):
            return
        good = next((report for report in reports if report.outcome in ("done", "idle")), None)
        known.last, known.failures, known.here = reports[0], failures_in_a_row(reports), None
        if good is not None:
            known.succeeded_ms = max(known.succeeded_ms or 0, ended_ms(good))

    # -- looking

    def _ensure_looking(self) -> None:
        with self._changed:
            if self._looker is None and not self._closed:
                workers = self._runtime.settings.jobs_max
                self._threads = ThreadPoolExecutor(workers, "lithify-pipeline")
                self._looker = threading.Thread(target=self._look_until, name="lithify-pipelines", daemon=True)
                self._looker.start()
            self._changed.notify_all()

    def _look_until(self) -> None:
        every_s = max(self._look_s, self._runtime.settings.refresh_s) if self._runtime.store.remote else self._look_s
        while True:
            for known in list(self._known.values()):
                if not self._closed and known.running is None:
                    self._look(known)
            with self._changed:
                # Woken when something ends, is asked for, or is to stop.
                self._changed.wait_for(lambda: self._closed or self._can_begin(), every_s)
                if self._closed:
                    return

    def _can_begin(self) -> bool:
        return self._has_slot() and any(known.order is not None for known in self._known.values())

    def _look(self, known: Standing) -> None:
        try:
            due = known.order is not None or (self._scheduled and self._is_due(known))
            if not due and self._scheduled:
                self._look_at_steps(known, LAG_AGE_S)
        except Exception as error:
            known.trouble = reason_of(error)
            return
        with self._changed:
            if not due or self._closed or not self._has_slot():
                return
            order, known.order = known.order or Order(self._runtime.new_id()), None
            known.running, known.began_ms = order.run, self._now_ms()
        assert self._threads is not None
        self._threads.submit(self._turn, known, order)

    def _running(self) -> int:
        return sum(known.running is not None for known in self._known.values())

    def _has_slot(self) -> bool:
        return self._running() < self._runtime.settings.jobs_max

    def _is_due(self, known: Standing) -> bool:
        schedule = known.entry.schedule
        if schedule is None or self._now_ms() < known.pause_until_ms <= self._now_ms() + PAUSE_MS:
            return False
        due = self._due_ms(known)
        if schedule.on is None or known.failures:
            return due is not None and due <= self._now_ms()
        seq = self._seq(schedule.on)
        if seq is None or (seq == known.seq and not known.owed):
            return False
        known.seq, known.owed = seq, True
        return True

    def _due_ms(self, known: Standing) -> int | None:
        last = known.here
        if last is None and known.last is not None:
            last = Last(known.last.started_ms, ended_ms(known.last))
        return due_ms(known.entry.schedule, last, known.failures, self._now_ms(), self._since_ms)

    def _seq(self, table: str) -> int | None:
        """None: there is no such table yet."""
        try:
            return self._internals.open_tables.read(
                parse_table_name(table), lambda opened: opened.handles.snapshot().seq
            )
        except NotFound:
            return None

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    # -- one run

    def _turn(self, known: Standing, order: Order) -> None:
        entry, began_ms, began = known.entry, self._runtime.now_ms(), time.monotonic()
        report: PipelineReport | None = None
        try:
            report = self._run(known, order)
            known.owed = False
        except Conflict as error:
            logger.debug("%s waits: %s", entry, error)
            known.pause_until_ms = self._now_ms() + PAUSE_MS
        except LithifyError as error:
            cancelled = isinstance(error, ComputeFailed) and error.details.get("cancelled")
            outcome = "stopped" if self._closed or cancelled else "failed"
            report = self._unwell(known, order, began_ms, time.monotonic() - began, outcome, error.message)
        except Exception as error:
            logger.exception("%s failed", entry)
            report = self._unwell(known, order, began_ms, time.monotonic() - began, "failed", reason_of(error))
        finally:
            self._ended(known, report)

    def _run(self, known: Standing, order: Order) -> PipelineReport:
        entry, began_ms = known.entry, self._runtime.now_ms()
        self._check_free(entry)
        listing = None
        if isinstance(entry.declared, StreamDeclaration):
            listing = self._listing(entry.declared)
            known.steps, idle = (_stream_step(known, listing),), listing == known.taken
        else:
            pipeline = self._lake.pipeline(entry.name)
            known.steps = tuple(pipeline.steps_now())
            idle = not order.full and all(each.idle for each in known.steps)
        if idle:
            report = _idle(known, order, began_ms)
            if known.failures:  # or the next process would believe that it still fails
                remember(self._runtime, report)
            return report
        report = self._compute.run_on_driver(run_entry, self._task(entry, order))
        known.taken = listing
        for target in entry.targets:
            self._internals.open_tables.notify(parse_table_name(target))
        return report

    def _unwell(
        self, known: Standing, order: Order, began_ms: int, seconds: float, outcome: str, reason: str
    ) -> PipelineReport:
        """The run may have written down by itself how far it came."""
        name = known.entry.name
        newest = next(iter(past_runs(self._runtime, name, 1)), {})
        if newest.get("run") == order.run and (written := report_of(newest)) is not None:
            return written
        report = PipelineReport(name, order.run, began_ms, outcome, [], seconds, reason)  # type: ignore[arg-type]
        remember(self._runtime, report)
        return report

    def _ended(self, known: Standing, report: PipelineReport | None) -> None:
        with self._changed:
            known.running, known.steps_s = None, None
            if report is not None:
                known.last, known.trouble, known.here = report, None, Last(known.began_ms, self._now_ms())
                if report.outcome in ("done", "idle"):
                    known.failures, known.succeeded_ms = 0, ended_ms(report)
                elif report.outcome == "failed":
                    known.failures += 1
            self._tally(known)
            self._changed.notify_all()
        if report is None:
            return
        counters = self._runtime.counters
        counters.pipeline_runs.labels(report.outcome).inc()
        if report.outcome == "failed":
            facts = {"pipeline": report.pipeline, "failures": known.failures, "reason": report.reason}
            tell(logger, "pipeline run failed", level=logging.WARNING, **facts)
        elif report.outcome == "done":
            rows = sum(step.written + step.deleted for step in report.steps)
            tell(logger, "pipeline run done", pipeline=report.pipeline, rows=rows, seconds=round(report.seconds, 3))

    def _task(self, entry: Entry, order: Order) -> RunTask:
        return RunTask(str(self._lake.path), self._runtime.settings, entry.name, order.run, order.full, order.step)

    def _check_order(self, entry: Entry, full: bool, step: str | None) -> None:
        if entry.kind == KIND and (full or step is not None):
            raise InvalidRequest(f"{entry} takes files once, in one step: leave out full and step")
        if step is not None and entry.kind == "pipeline":
            self._lake.pipeline(entry.name).check_step(step)

    def _check_free(self, entry: Entry) -> None:
        """Before Spark is started for it."""
        lease = leases.current(self._runtime, lease_name(entry.kind, entry.name))
        if lease is not None:
            raise is_running(entry.kind, entry.name, lease)

    # -- steps and files

    def _look_at_steps(self, known: Standing, age_s_max: float = STEPS_AGE_S) -> None:
        now_s = time.monotonic()
        if known.steps_s is not None and now_s - known.steps_s < age_s_max:
            return
        try:
            if isinstance(known.entry.declared, StreamDeclaration):
                steps: tuple[StepStatus, ...] = (self._stream_now(known),)
            else:
                steps = tuple(self._lake.pipeline(known.entry.name).steps_now())
            known.steps, known.steps_s, known.trouble = steps, now_s, None
            self._tally(known)
        except LithifyError as error:
            known.trouble = error.message

    def _stream_now(self, known: Standing) -> StepStatus:
        assert isinstance(known.entry.declared, StreamDeclaration)
        return _stream_step(known, self._listing(known.entry.declared))

    def _listing(self, stream: StreamDeclaration) -> Listing:
        table = internals(self._lake.table(stream.target))
        file_stream(table, stream)  # refuses what does not fit, without Spark
        return table.incarnation, files_there(stream)


def _stream_step(known: Standing, listing: Listing) -> StepStatus:
    stream = known.entry.declared
    assert isinstance(stream, StreamDeclaration)
    waiting = None if known.taken is None or known.taken[0] != listing[0] else len(listing[1] - known.taken[1])
    idle = listing == known.taken
    why = "no new files" if idle else "it is not known which files are new" if waiting is None else "new files"
    return StepStatus(stream.name, KIND, stream.source, stream.target, None, why, idle, files=waiting)


def _idle(known: Standing, order: Order, began_ms: int) -> PipelineReport:
    steps = [
        StepReport(each.step, each.kind, "idle", each.source, each.target, each.why, each.since, each.until)
        for each in known.steps
    ]
    return PipelineReport(known.entry.name, order.run, began_ms, "idle", steps, 0.0)


def _stream_plan(stream: StreamDeclaration, now: StepStatus) -> PipelinePlan:
    does = "nothing" if now.idle else KIND
    step = StepPlan(stream.name, KIND, stream.source, stream.target, does, now.why, changed=now.files)
    return PipelinePlan(stream.name, [step])
