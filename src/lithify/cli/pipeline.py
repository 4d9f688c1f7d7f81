"""`lithify pipeline`: declared pipelines, run once or again and again, told while it happens.

The first Ctrl-C starts no further step and gives the one under way a moment to end before Spark is told to leave it:
what is committed stands, the rest is done by the next run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import Commands, Session
from lithify.cli.logs import iso_time, print_line
from lithify.cli.metrics_port import MetricsPortOption, metrics_served
from lithify.cli.output import TIME, WHY, Column, Report, long_text, texts
from lithify.cli.signals import STOP_GRACE_S, caught, in_terminal, in_thread, wait
from lithify.cli.values import human_seconds, seconds_of_every
from lithify.core.json_out import dumps
from lithify.core.wording import plural
from lithify.errors import Conflict, InvalidRequest, LithifyError

if TYPE_CHECKING:
    from lithify.lake.lake import Lake
    from lithify.pipelines.pipeline import Pipeline
    from lithify.pipelines.reports import PipelinePlan, PipelineReport
    from lithify.pipelines.status import PipelineStatus

command = Commands("Spark", group="pipeline", help="Declared pipelines: run, list, status, history.")
STOPPING = "stopping: the step under way ends first; Ctrl-C again ends at once"
FORCED = "ended at once: what was not committed is done by the next run"
EVERY = "1s", "168h"
Event = dict[str, Any]

PipelineArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The pipeline, as in [pipelines.NAME]. Default: all of them.")
]
STEPS = (
    Column("step", "step", style="bold"),
    *texts(kind="kind", outcome="outcome"),
    Column("lineage", "from", long_text),
    Column("target", "to"),
    Column("read", "read", right=True),
    Column("written", "written", right=True),
    Column("deleted", "deleted", right=True),
    Column("quarantined", "quarantined", right=True),
    Column("warned", "warned", right=True),
    TIME,
)
PLANS = (
    Column("step", "step", style="bold"),
    *texts(kind="kind", does="does"),
    Column("reads", "reads", long_text),
    Column("target", "keeps"),
    WHY,
)


@command("run", local=True, json_help="The report as one JSON document; with --every, every event as a line of JSON.")
def run(
    session: Session,
    name: PipelineArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Run once, which is the default.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Run again and again, e.g. every 30s, 5m or 1h.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="From all of the source, whatever was read before.")] = False,
    step: Annotated[str | None, typer.Option("--step", metavar="STEP", help="This step only.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
    metrics_port: MetricsPortOption = None,
) -> None:
    """Bring the targets of a pipeline up to date with what has changed since its last run.

    Pipelines are declared in lithify.toml. Each step is one commit, or leaves its target as it was; a run that fails
    is ended there, and the next one goes on. With --every and --json, and into a pipe, every event is a line.

    Examples:
        lithify pipeline run sales
        lithify pipeline run --every 30s
        lithify pipeline run sales --dry-run
        lithify pipeline run sales --step daily --full
    """
    every_s = None if every is None else seconds_of_every(every, *EVERY)
    if once and every is not None:
        raise InvalidRequest("--once and --every are two ways to run: leave one out")
    if step is not None and name is None:
        raise InvalidRequest("--step names a step of one pipeline: name the pipeline too")
    if dry_run and every is not None:
        raise InvalidRequest("--dry-run shows one run: leave out --every")
    with session.local_lake() as lake, metrics_served(session, lake, metrics_port):
        names = [name] if name is not None else in_order(lake)
        if not names:
            raise InvalidRequest("no pipelines are declared: write [[pipelines.<name>.steps]] into lithify.toml")
        if dry_run:
            with session.out.working("planning"):
                plans = [lake.pipeline(each).plan(full=full, step=step) for each in names]
            _show_plans(session, plans)
        elif every_s is None:
            _once(session, lake, names, full, step)
        else:
            _again_and_again(session, lake, names, full, step, every_s)


def in_order(lake: Lake) -> list[str]:
    from lithify.lake.internals import internals
    from lithify.pipelines.declaration import pipelines_in_order
    from lithify.pipelines.pipeline import declared_steps

    return pipelines_in_order(declared_steps(internals(lake).pipelines).ordered())


class _Runs:
    """The run under way, for whoever wants to stop it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._now: Pipeline | None = None
        self._ended, self.stopping = threading.Event(), threading.Event()

    def run(self, name: str, full: bool, step: str | None, tell: Callable[[Event], None]) -> PipelineReport:
        self._now = self._lake.pipeline(name)
        if self.stopping.is_set():
            self._now.stop()
        try:
            report = self._now.run(full=full, step=step, on_event=tell)
        except LithifyError as error:
            if not isinstance(error, Conflict):
                self._count(name, "failed")
            raise
        self._count(name, report.outcome)
        return report

    def _count(self, name: str, outcome: str) -> None:
        from lithify.lake.internals import internals
        from lithify.pipelines.run_tally import RunTally

        runtime = internals(self._lake).runtime
        runtime.counters.pipeline_runs.labels(outcome).inc()
        assert self._now is not None
        lag = None
        with contextlib.suppress(LithifyError):  # why it failed is told already
            lag = max((each.lag for each in self._now.steps_now() if each.lag is not None), default=None)
        if outcome != "stopped":
            runtime.shared(RunTally).ended(name, None if outcome == "failed" else runtime.now_ms(), lag)

    def ended(self) -> None:
        self._ended.set()

    def stop(self) -> None:
        self.stopping.set()
        if self._now is not None:
            self._now.stop()
        if not self._ended.wait(STOP_GRACE_S) and self._now is not None:
            self._now.cancel()


def _once(session: Session, lake: Lake, names: Sequence[str], full: bool, step: str | None) -> None:
    runs, reports = _Runs(lake), []
    with caught() as inbox, session.out.working("looking at the sources") as progress:
        tell = _Teller(session, progress, lines=False)

        def work() -> None:
            try:
                for name in names:
                    if not runs.stopping.is_set():
                        reports.append(runs.run(name, full, step, tell))
            finally:
                runs.ended()

        wait(session, inbox, in_thread(inbox, work), runs.stop, STOPPING, FORCED)
    _show_reports(session, reports)


def _again_and_again(
    session: Session, lake: Lake, names: Sequence[str], full: bool, step: str | None, every_s: float
) -> None:
    runs = _Runs(lake)
    with caught() as inbox, session.out.working("starting", logs=True) as progress:
        tell = _Teller(session, progress, lines=True)

        def work() -> None:
            try:
                first = True
                while first or not runs.stopping.wait(every_s):
                    for name in names:
                        if not runs.stopping.is_set():
                            _try(runs, name, full and first, step, tell)
                    first = False
                    progress(f"waiting, next run in {every_s:g} s", None)
            finally:
                runs.ended()

        tell.note(f"every {every_s:g} s: {', '.join(names)}; Ctrl-C stops")
        wait(session, inbox, in_thread(inbox, work), runs.stop, STOPPING, FORCED)
        tell.note("stopped")


def _try(runs: _Runs, name: str, full: bool, step: str | None, tell: _Teller) -> None:
    """One run of many: what fails is told, and tried again the next time."""
    try:
        report = runs.run(name, full, step, tell)
        if report.outcome != "idle":
            tell.line("run done", None, {"pipeline": name, "outcome": report.outcome, "seconds": report.seconds})
    except LithifyError as error:
        event = "run skipped" if isinstance(error, Conflict) else "run failed"
        tell.line(event, None, {"pipeline": name, "code": error.code, "reason": error.message})


class _Teller:
    """What is going on, in a terminal as a live line and a line per step, elsewhere (`lines`) as a line per event."""

    def __init__(self, session: Session, progress: Report, *, lines: bool) -> None:
        self._session, self._progress, self._lines = session, progress, lines
        self._terminal = in_terminal(session)

    def __call__(self, event: Event) -> None:
        name, step = event["event"], str(event.get("step", event["pipeline"]))
        if name == "step stage":
            self._progress(f"{step}: {event['stage']}", None)
            return
        if self._terminal:
            self._progress(f"{step}: {name}", None)
            if name == "step done":
                self._session.out.step("", step, human_seconds(event["seconds"]), counts(event))
            elif name == "warning":
                self._session.out.note(_warning(event))
        elif self._lines:
            facts = {key: value for key, value in event.items() if key not in ("event", "time_ms")}
            self.line(name, event["time_ms"], facts)

    def line(self, event: str, time_ms: int | None, facts: Event) -> None:
        moment = time.time() * 1000 if time_ms is None else time_ms
        if self._session.as_json:
            sys.stdout.write(dumps({"event": event, "time": iso_time(moment / 1000), **facts}) + "\n")
            sys.stdout.flush()
        elif not self._terminal:
            print_line(self._session.settings.log_format, event, int(moment), facts)
        elif "reason" in facts:
            self._session.out.problems([f"{facts['pipeline']}: {facts['reason']}"])

    def note(self, text: str) -> None:
        if self._terminal:
            self._session.out.note(text)


def counts(step: Event) -> str:
    """What a step did, in a few words."""
    told = [f"{step['read']:,} read", f"{step['written']:,} written", f"{step['deleted']:,} deleted"]
    if step["quarantined"]:
        told.append(f"{step['quarantined']:,} quarantined")
    return ", ".join(told)


def _warning(event: Event) -> str:
    return f"{event['step']}: {event['expectation']!r} does not hold for {plural(event['rows'], 'row')}"


def _show_reports(session: Session, reports: Sequence[PipelineReport]) -> None:
    documents = [report.document() for report in reports]
    rows = [
        {**step, "lineage": report_step.lineage, "warned": sum(report_step.warned.values())}
        for report, document in zip(reports, documents, strict=True)
        for report_step, step in zip(report.steps, document["steps"], strict=True)
    ]
    if session.as_json:
        session.out.message("", {"runs": documents})
        return
    session.out.listing(STEPS, rows, {}, empty="nothing was done")
    for report in reports:
        for step in report.steps:
            for name, count in step.warned.items():
                session.out.note(_warning({"step": step.step, "expectation": name, "rows": count}))
            if step.quarantine:
                session.out.note(f"{step.step}: {plural(step.quarantined, 'row')} set aside in {step.quarantine}")
    done = sum(step.outcome == "done" for report in reports for step in report.steps)
    stopped = any(report.outcome == "stopped" for report in reports)
    seconds = human_seconds(sum(report.seconds for report in reports))
    text = f"{plural(done, 'step')} done in {seconds}{'; stopped' if stopped else ''}"
    session.out.message("up to date" if not done and not stopped else text, {})


def _show_plans(session: Session, plans: Sequence[PipelinePlan]) -> None:
    document = {"plans": [plan.document() for plan in plans]}
    if session.as_json:
        session.out.message("", document)
        return
    rows = [{**step, "reads": _reads(step)} for plan in document["plans"] for step in plan["steps"]]
    session.out.listing(PLANS, rows, {}, empty="nothing to do")
    for row in rows:
        if row["columns"]:
            columns = ", ".join(f"{name} {kind}" for name, kind in row["columns"].items())
            verb = "creates" if row["creates"] else "has"
            key = f"; key {', '.join(row['key'])}" if row["key"] else "; no key"
            session.out.note(f"{row['step']}: {row['target']} {verb} {columns}{key}")
        for expectation in row["expectations"]:
            session.out.note(f"{row['step']}: expects {expectation}")
        for file in row["files"]:
            session.out.note(f"{row['step']}: reads {file}")


def _reads(step: Event) -> str:
    if step["kind"] == "files":
        return f"{plural(step['changed'] or 0, 'new file')} of {step['source']}"
    span = "" if step["until"] is None else f" {'' if step['since'] is None else step['since']} → {step['until']}"
    changed = f", {plural(step['changed'], 'changed row')}" if step["changed"] else ""
    lookups = f", with {', '.join(step['lookups'])}" if step["lookups"] else ""
    return f"{step['source']}{span}{changed}{lookups}"


STATUS = (
    Column("pipeline", "name", style="bold"),
    *texts(kind="kind", state="state"),
    Column("schedule", "runs", lambda value: value or "on request"),
    Column("behind", "behind"),
    Column("last", "last run (UTC)"),
    Column("outcome", "outcome"),
    Column("error", "why it failed", lambda value: long_text(value or ""), wrap=True),
)


@command("status")
def status(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The pipeline or stream. Default: all of them.")
    ] = None,
) -> None:
    """Show declared pipelines and streams: what runs, what ran last, and how far each is behind its sources.

    Examples:
        lithify pipeline status
        lithify pipeline status sales --json
        lithify --server http://127.0.0.1:8080 pipeline status
    """
    from lithify.core.json_out import jsonable

    with session.lake() as lake:
        found = lake.pipeline_status(name)
    rows = [
        {
            **vars(each),
            "behind": _behind(each),
            "last": "" if each.last is None else _moment(each.last.started_ms),
            "outcome": "" if each.last is None else each.last.outcome,
        }
        for each in found
    ]
    empty = "nothing is declared: write [[pipelines.<name>.steps]] or [streams.<name>] into the settings"
    session.out.listing(STATUS, rows, {"pipelines": jsonable(found)}, empty=empty)


def _behind(status: PipelineStatus) -> str:
    told = [] if status.lag is None else [plural(status.lag, "seq")]
    return ", ".join(told if status.files is None else [*told, plural(status.files, "file")])


def _moment(time_ms: int) -> str:
    return iso_time(time_ms / 1000)[:19].replace("T", " ")


@command("list", local=True)
def list_pipelines(session: Session) -> None:
    """Show the declared pipelines and their steps, in the order in which they run, and the declared streams.

    Examples:
        lithify pipeline list
        lithify pipeline list --json
    """
    from lithify.lake.internals import internals
    from lithify.pipelines.pipeline import declared_steps
    from lithify.pipelines.stream_declaration import StreamDeclaration

    with session.local_lake() as lake:
        schedules = lake.pipeline_runner.schedules
        graph = declared_steps(internals(lake).pipelines)
        rows = [
            {
                "pipeline": step.pipeline,
                "step": step.name,
                "kind": step.kind,
                "source": step.source,
                "target": step.target,
                "lookups": sorted(graph.reads[step.label]),
                "expectations": [each.name for each in step.expect],
                "schedule": schedules.get(step.pipeline),
            }
            for step in graph.ordered()
        ]
        rows += [
            {
                "pipeline": entry.name,
                "step": entry.name,
                "kind": "stream",
                "source": entry.declared.source,
                "target": entry.declared.target,
                "lookups": [],
                "expectations": [],
                "schedule": schedules[entry.name],
            }
            for entry in lake.pipeline_runner.entries.values()
            if isinstance(entry.declared, StreamDeclaration)
        ]
    columns = [
        Column("pipeline", "pipeline", style="bold"),
        Column("step", "step", style="bold"),
        Column("kind", "kind"),
        Column("source", "reads", long_text),
        Column("target", "keeps"),
        Column("expectations", "expects", lambda names: long_text(", ".join(names)), wrap=True),
        Column("schedule", "runs", lambda value: value or "on request"),
    ]
    empty = "no pipelines are declared: write [[pipelines.<name>.steps]] into lithify.toml"
    session.out.listing(columns, rows, {"steps": rows}, empty=empty)


@command("history", local=True)
def history(
    session: Session,
    name: PipelineArgument = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Runs at most.")] = 10,
) -> None:
    """Show what earlier runs did, step by step, newest first.

    Examples:
        lithify pipeline history sales --limit 3 --json
    """
    from lithify.lake.internals import internals
    from lithify.pipelines.pipeline import history as runs_of
    from lithify.pipelines.reports import lineage

    with session.local_lake() as lake:
        runs = runs_of(internals(lake).runtime, name, limit)
    rows = [
        {
            **step,
            "time": _moment(entry["started_ms"]),
            "lineage": lineage(step["source"], step["since"], step["until"], step["files"]),
            "warned": sum(step["warned"].values()),
        }
        for entry in runs
        for step in entry["steps"]
    ]
    session.out.listing((Column("time", "started (UTC)"), *STEPS), rows, {"runs": runs}, empty="nothing has run yet")
    failed = [f"{entry['pipeline']}: {entry['reason']}" for entry in runs if entry["outcome"] == "failed"]
    session.out.problems(failed)
