"""Pipelines as their users see them: planned, run, and remembered in the lake's history.

A run holds a lease, so that a second one is refused instead of doing the same work. Like every lease it only saves
work: each commit of a step stands on the one before it, so of two runs at once the second to come there is refused
by it. Everything is checked before the first step runs. A step that fails ends the run; those before it stand, and the
next run goes on from there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lithify.core.arguments import check_count
from lithify.core.optional import need
from lithify.errors import Cancelled, Conflict, InvalidRequest, LithifyError, reason_of
from lithify.jobs import leases
from lithify.pipelines.check import Check, CheckedStep, graph_of
from lithify.pipelines.context import Context, Moment
from lithify.pipelines.declaration import Declaration, Graph, Step, parse_pipeline, parse_pipelines
from lithify.pipelines.file_step import FilesRun
from lithify.pipelines.past_runs import past_runs, remember
from lithify.pipelines.pending import StepWork, work_of
from lithify.pipelines.reports import PipelinePlan, PipelineReport, StepPlan, StepReport
from lithify.pipelines.status import StepStatus
from lithify.pipelines.table_step import StepRun
from lithify.tables.runtime import Runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_S = 60.0
FILES_SHOWN_MAX = 20
Event = dict[str, Any]
OnEvent = Callable[[Event], None]


def quiet(event: Event) -> None:
    pass


class Pipeline:
    """Get one from `Lake.pipeline`."""

    def __init__(self, context: Context, declaration: Declaration, others: Sequence[Declaration] = ()) -> None:
        """`others`: pipelines whose steps may come before or after this one's."""
        self._context, self.name, self.steps = context, declaration.name, declaration.steps
        self._everywhere = [*self.steps, *(step for other in others for step in other.steps)]
        self._stopping, self._cancelled = threading.Event(), threading.Event()
        self._tag = f"lithify-pipeline-{context.runtime.new_id()}"
        self._session: SparkSession | None = None

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {[step.name for step in self.steps]})"

    # -- planning

    def plan(self, *, full: bool = False, step: str | None = None, check: bool = True) -> PipelinePlan:
        """What `run` would do now. Nothing is written. `check`: ask Spark for the columns of each step, too."""
        now = Moment(self._context)
        graph, works = self._works(now, step, full)
        checked = self._check(now, graph, works) if check else {}
        plans: list[StepPlan] = []
        moved: dict[str, str] = {}
        for work in works:
            plan = self._step_plan(now, work, checked.get(work.step.label), moved)
            plans.append(plan)
            if plan.does != "nothing":
                moved[work.step.target] = work.step.label
        return PipelinePlan(self.name, plans)

    def _step_plan(
        self, now: Moment, work: StepWork, checked: CheckedStep | None, moved: Mapping[str, str]
    ) -> StepPlan:
        step = work.step
        plan = StepPlan(
            step=step.label,
            kind=step.kind,
            source=step.source,
            target=step.target,
            does="nothing" if work.idle else "everything" if work.whole else step.kind,
            why=work.why,
            since=work.since,
            until=work.until,
            files=[file.path for file in work.files[:FILES_SHOWN_MAX]],
            changed=len(work.files) if step.kind == "files" else _changed(now, work),
            expectations=expected_of(step),
        )
        if step.table is not None and step.table in moved:
            plan = replace(plan, does="everything" if work.whole else step.kind, why=f"what {moved[step.table]} writes")
            plan = replace(plan, changed=None)
        if checked is None:
            return plan
        return replace(
            plan,
            lookups=list(checked.lookups),
            creates=not checked.exists,
            columns={column.name: str(column.type) for column in checked.target.columns},
            key=list(checked.target.key),
        )

    def steps_now(self, *, full: bool = False, step: str | None = None) -> list[StepStatus]:
        """How far behind each step is, and what calls for it, told by logs and the file system: without Spark."""
        return [_status(work) for work in self._works(Moment(self._context), step, full)[1]]

    # -- running

    def run(
        self, *, full: bool = False, step: str | None = None, on_event: OnEvent = quiet, id: str | None = None
    ) -> PipelineReport:
        """Bring every target up to date, or that of one step. `full`: from all of its source, whatever is remembered.
        `id`: what to call this run.

        Raises `Conflict` while another process runs this pipeline. What a failed step had to write is not written.
        """
        self._named(step)
        runtime, run = self._context.runtime, _Run(self, self._context, step, full, on_event, id)
        lease = lease_name("pipeline", self.name)
        ours, taken = leases.acquire(runtime, lease, run.id, LEASE_S, f"pipeline {self.name}")
        if not ours:
            raise is_running("pipeline", self.name, taken)
        with leases.RenewedLease(runtime, taken) as holding:
            return run.steps(lambda: self._stopping.is_set() or holding.lost.is_set())

    def stop(self) -> None:
        """Start no further step; from another thread."""
        self._stopping.set()

    def cancel(self) -> None:
        """Stop, and end what Spark is computing now; nothing of that step is written.

        A session that was handed in is only asked to end what carries our tag, which a local one does not know of a
        result that is being fetched: the step may then end by itself first.
        """
        self._stopping.set()
        self._cancelled.set()
        session = self._session
        if session is not None and not session.interruptTag(self._tag) and self._context.owns_spark:
            session.interruptAll()

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What earlier runs did, newest first. Runs that found nothing to do are not among them."""
        return history(self._context.runtime, self.name, limit)

    # -- shared

    def check_step(self, name: str) -> None:
        """Raises where it has no such step."""
        self._named(name)

    def _named(self, name: str | None) -> list[Step]:
        """All of our steps, or that of the name."""
        found = [step for step in self.steps if name in (None, step.name)]
        if not found:
            names = ", ".join(step.name for step in self.steps)
            raise InvalidRequest(f"pipeline {self.name} has no step {name!r}: it has {names}")
        return found

    def _works(self, now: Moment, step: str | None, full: bool) -> tuple[Graph, list[StepWork]]:
        """All steps that are known of, and what ours have to do, in order."""
        works = {each.label: work_of(now, each, full=full) for each in self._named(step)}
        graph = graph_of(now, self._everywhere)
        return graph, [works[each.label] for each in graph.ordered() if each.label in works]

    def _check(self, now: Moment, graph: Graph, works: Sequence[StepWork]) -> dict[str, CheckedStep]:
        anew = {work.step.label for work in works if work.anew}
        chosen = {work.step.label for work in works}
        before = [step for step in graph.ordered() if step.pipeline == self.name]
        last = max((number for number, step in enumerate(before) if step.label in chosen), default=-1)
        return Check(now, graph, self._spark(), anew).steps(before[: last + 1])

    def _spark(self) -> SparkSession:
        if self._session is None:
            self._session = self._context.spark()
        return self._session


class _Run:
    """One run, from its first step to its record in the history."""

    def __init__(
        self, pipeline: Pipeline, context: Context, step: str | None, full: bool, tell: OnEvent, id: str | None
    ) -> None:
        self._pipeline, self._context, self._chosen, self._full, self._tell = pipeline, context, step, full, tell
        self._runtime = context.runtime
        self.id = id or self._runtime.new_id()
        self._started_ms, self._started = self._runtime.now_ms(), time.monotonic()
        self._done: list[StepReport] = []
        self._written: set[str] = set()

    def steps(self, stopped: Callable[[], bool]) -> PipelineReport:
        now = Moment(self._context)
        graph, works = self._pipeline._works(now, self._chosen, self._full)
        if all(work.idle for work in works):
            self._done = [_idle(work) for work in works]
            return self._report("idle")
        try:
            with ExitStack() as tagged:
                self._tag(tagged)
                self._say("checking")
                checked = self._pipeline._check(now, graph, works)
                self._runtime.store.step("pipeline.checked")
                for work in works:
                    if stopped():
                        return self._remember(self._report("stopped"))
                    with ExitStack() as pins:
                        if not self._still_idle(work):
                            self._step(Moment(self._context, pins), work.step, graph, checked, stopped)
        except BaseException as error:
            self._failed(error)
            if self._pipeline._cancelled.is_set() and isinstance(error, LithifyError):
                raise Cancelled(f"pipeline {self._pipeline.name} was cancelled: steps that had ended stand") from error
            raise
        return self._remember(self._report("done"))

    def _tag(self, tagged: ExitStack) -> None:
        """Spark's jobs of this thread can be ended by `cancel`. An error is told by us, and once."""
        need("spark")
        from lithify.spark.transforms import told_once

        tagged.enter_context(told_once())
        session, tag = self._pipeline._spark(), self._pipeline._tag
        session.addTag(tag)
        tagged.callback(session.removeTag, tag)

    def _still_idle(self, before: StepWork) -> bool:
        """Of a step that had nothing to do when the run began: it is looked at again, without pinning anything."""
        if not before.idle or before.step.table in self._written:
            return False
        work = work_of(Moment(self._context), before.step, full=self._full)
        if work.idle:
            self._done.append(_idle(work))
        return work.idle

    def _step(
        self,
        now: Moment,
        step: Step,
        graph: Graph,
        checked: Mapping[str, CheckedStep],
        stopped: Callable[[], bool],
    ) -> None:
        work = work_of(now, step, full=self._full)
        if not work.idle and step.label not in checked:
            # What it reads has come into being since the others were looked at.
            checked = self._pipeline._check(Moment(self._context), graph, [work])
        if work.idle or step.label not in checked:
            self._done.append(_idle(work))
            return
        self._say("step started", step=step.label, kind=step.kind, source=step.source, target=step.target, why=work.why)

        def tell(stage: str) -> None:
            if self._pipeline._cancelled.is_set():
                raise Cancelled(f"step {step.label} was cancelled: nothing of it was written")
            self._say("step stage", step=step.label, stage=stage)

        begun = time.monotonic()
        try:
            spark = self._pipeline._spark()
            if step.kind == "files":
                report = FilesRun(self._context, spark, checked[step.label], work, tell).run(stopped)
            else:
                report = StepRun(now, spark, checked[step.label], work, tell).run()
        except LithifyError as error:
            seconds = time.monotonic() - begun
            failed = replace(_idle(work), outcome="failed", why=error.message, seconds=seconds)
            self._done.append(failed)
            self._say("step failed", step=step.label, reason=error.message, seconds=seconds)
            raise
        self._done.append(report)
        self._written.add(step.target)
        for name, rows in report.warned.items():
            self._say("warning", step=step.label, expectation=name, rows=rows)
        self._say("step done", **report.__dict__)
        self._runtime.store.step("pipeline.step")

    def _failed(self, error: BaseException) -> None:
        if self._done or not isinstance(error, InvalidRequest):
            self._remember(self._report("failed", reason_of(error)))

    def _report(self, outcome: Any, reason: str | None = None) -> PipelineReport:
        seconds = time.monotonic() - self._started
        return PipelineReport(
            self._pipeline.name, self.id, self._started_ms, outcome, tuple(self._done), seconds, reason
        )

    def _remember(self, report: PipelineReport) -> PipelineReport:
        remember(self._runtime, report)
        return report

    def _say(self, event: str, **facts: Any) -> None:
        self._tell({"event": event, "time_ms": self._runtime.now_ms(), "pipeline": self._pipeline.name, **facts})


def _idle(work: StepWork) -> StepReport:
    step = work.step
    return StepReport(
        step.label, step.kind, "idle", step.source, step.target, work.why, since=work.since, until=work.until
    )


def _changed(now: Moment, work: StepWork) -> int | None:
    """How many rows changed, where a step looks at just those."""
    if work.idle:
        return 0
    if work.whole or work.since is None or work.step.table is None:
        return None
    source = now.table(work.step.table)
    if not source.schema.keyed:
        return int(source.feed.rows(work.since, work.until, None).num_rows)
    net = source.feed.net(work.since, work.until)
    return int(net.rows.num_rows + net.deleted.num_rows)


def _status(work: StepWork) -> StepStatus:
    step = work.step
    lag = None if step.table is None or work.until is None else max(work.until - (work.state.read or 0), 0)
    return StepStatus(
        step=step.label,
        kind=step.kind,
        source=step.source,
        target=step.target,
        table=step.table,
        why=work.why,
        idle=work.idle,
        since=work.state.read,
        until=work.until,
        lag=lag,
        files=len(work.files) if step.kind == "files" else None,
        expectations=expected_of(step),
    )


def expected_of(step: Step) -> list[str]:
    return [f"{each.name}: {each.that}, otherwise {each.otherwise}" for each in step.expect]


def lease_name(kind: str, name: str) -> str:
    return f"{kind}-{name}"


def is_running(kind: str, name: str, lease: leases.Lease) -> Conflict:
    return Conflict(
        f"{kind} {name} is being run by {lease.holder}: wait for it to end, or stop it first",
        pipeline=name,
        run=lease.id,
    )


def history(runtime: Runtime, pipeline: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    """Runs of one pipeline, or of all, newest first."""
    check_count("limit", limit)
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit must be at least 1, not {limit}")
    return past_runs(runtime, pipeline, limit)


def declared_steps(context: Context) -> Graph:
    """The steps of all pipelines of the lake's settings."""
    declared = parse_pipelines(context.runtime.settings.pipelines)
    return graph_of(Moment(context), [step for declaration in declared.values() for step in declaration.steps])


def pipeline_of(context: Context, name: str, declaration: Mapping[str, Any] | None) -> Pipeline:
    document = {**context.runtime.settings.pipelines}
    if declaration is not None:
        document[name] = declaration
        parse_pipeline(name, declaration)
    if name not in document:
        known = ", ".join(document) or "none"
        raise InvalidRequest(f"there is no pipeline {name!r} in lithify.toml: there is {known}")
    found = parse_pipelines(document)
    return Pipeline(context, found[name], [other for other in found.values() if other.name != name])
