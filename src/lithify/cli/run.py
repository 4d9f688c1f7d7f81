"""`lithify run`: maintenance in the foreground, told while it happens, and declared pipelines and streams beside it.

The work runs on other threads; this one waits for it to end or for a signal. The first Ctrl-C or SIGTERM starts
nothing new, lets running jobs end or cancels them, and exits with 0. The second ends the process at once: recovery
clears up behind it, as it does behind a power cut.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import HANDLED, Commands, Session, TierOption
from lithify.cli.logs import iso_time, logging_to, print_line
from lithify.cli.long_running import share_heaps
from lithify.cli.metrics_port import MetricsPortOption, metrics_served
from lithify.cli.output import TABLE, TIME, WHY, Report, sizes, texts
from lithify.cli.signals import STOP_GRACE_S, caught, in_terminal, in_thread, next_of, wait
from lithify.cli.values import human_bytes, human_seconds, seconds_of_every
from lithify.core.json_out import dumps
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    from lithify.lake.maintenance import Maintenance
    from lithify.lake.pipeline_runner import PipelineRunner
    from lithify.maintenance.reports import CycleReport

command = Commands("Maintenance")
STOPPING = "stopping: running jobs end first; Ctrl-C again ends at once"
FORCED = "ended at once: what was running is cleared up by the next cycle"
logger = logging.getLogger(__name__)
Event = dict[str, Any]

EVERY = "20ms", "168h"
JOBS = (
    TABLE,
    *texts(kind="job", partition="partition", outcome="outcome"),
    *sizes(bytes_in="read", bytes_out="written"),
    TIME,
    WHY,
)


@command("run", local=True, json_help="Every event as a line of JSON; with --once, the report as one JSON document.")
def run(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Run one cycle, show its report, and end.")] = False,
    tier: TierOption = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="Look at the policies this often: 10s, 1m. Default: policy_interval_s."
        ),
    ] = None,
    no_pipelines: Annotated[
        bool, typer.Option("--no-pipelines", help="Leave declared pipelines and streams to another process.")
    ] = False,
    metrics_port: MetricsPortOption = None,
) -> None:
    """Keep the lake in shape: fold, merge and compact when it is due, until Ctrl-C.

    Policies are looked at on an interval, tiers at their cron times. Pipelines and streams of the settings run by
    their schedules, unless there is --once or --tier. Several processes may run this on one lake: one cycle runs at a
    time, and one run of each pipeline. With --json, and into a pipe, every event is a line; cycles with nothing to do
    are silent.

    Examples:
        lithify run
        lithify run --every 10s --json
        lithify run --once --tier hourly --tier daily
    """
    if once and every is not None:
        raise InvalidRequest("--once runs one cycle: leave out --every")
    every_s = None if every is None else seconds_of_every(every, *EVERY)
    from lithify.lake.maintenance import Maintenance

    live = in_terminal(session)
    level = logging.WARNING if live else logging.INFO
    told = logging_to(session.out.log_line, lambda: session.log_format, level, all_of_it=not live)
    share_heaps()
    with session.local_lake() as lake, told, metrics_served(session, lake, metrics_port):
        maintenance = Maintenance(lake)
        if once:
            _once(session, maintenance, tier or None)
        else:
            pipelines = None if tier or no_pipelines else lake.pipeline_runner
            _until_stopped(session, maintenance, pipelines, tier or None, every_s)


def _once(session: Session, maintenance: Maintenance, tier: list[str] | None) -> None:
    cycle = maintenance.cycle
    with caught() as inbox, session.out.working("looking at the tables") as progress:
        tell = _Live(session, progress, "looking at the tables", steps=False) if in_terminal(session) else None
        work = in_thread(inbox, lambda: cycle.run(tier, on_event=tell))

        def stop() -> None:
            cycle.close()
            if not cycle.wait(STOP_GRACE_S):
                cycle.cancel()

        report = wait(session, inbox, work, stop, STOPPING, FORCED)
    _show(session, report)
    if not report.healthy:
        raise typer.Exit(HANDLED)


def _until_stopped(
    session: Session,
    maintenance: Maintenance,
    pipelines: PipelineRunner | None,
    tier: list[str] | None,
    every: float | None,
) -> None:
    every_s = session.settings.policy_interval_s if every is None else every
    with caught() as inbox, session.out.working("starting", logs=True) as progress:
        looks = tier is None or "pack" in tier
        until = f", next look in {every_s:g} s" if looks else f" for the time of tier {', '.join(tier or ())}"
        tell = _Teller(session, progress, f"waiting{until}", lambda: inbox.put(signal.SIGPIPE)).tell
        maintenance.check_role()  # nothing else is done here
        scheduler = maintenance.scheduler(every_s=every, only_tier=tier, on_event=tell)
        if pipelines is not None:
            pipelines.check()
        scheduler.start()
        started = {"lake": session.lake_path, "every_s": every_s, "tiers": scheduler.crons}
        if pipelines is not None:
            pipelines.start()
        if pipelines is not None and pipelines.schedules:
            started["pipelines"] = pipelines.schedules
        tell({"event": "started", "time_ms": maintenance.cycle.runtime.now_ms(), **started})
        next_of(inbox)
        tell({"event": "stopping", "time_ms": maintenance.cycle.runtime.now_ms()})

        def stop() -> None:
            scheduler.stop(STOP_GRACE_S)
            if pipelines is not None:
                pipelines.stop(STOP_GRACE_S)

        work = in_thread(inbox, stop)
        wait(session, inbox, work, lambda: None, STOPPING, FORCED, stopping=True)
        tell({"event": "stopped", "time_ms": maintenance.cycle.runtime.now_ms()})


# -- telling


class _Teller:
    """One line per event; in a terminal, one per thing done and a view of what is going on.

    The start of a cycle is held back until something happens in it: one that finds nothing to do is not told.
    """

    def __init__(self, session: Session, progress: Report, waiting: str, on_closed: Callable[[], None]) -> None:
        self._session, self._on_closed = session, on_closed
        self._closed = False
        self._begun: Event | None = None
        self._live = _Live(session, progress, waiting) if in_terminal(session) else None

    def tell(self, event: Event) -> None:
        if self._closed:
            return
        try:
            self._tell(event)
            if _reader_is_gone():
                raise BrokenPipeError
        except BrokenPipeError:
            # Whoever read this has gone. What is left in the buffer must not fail once more at the end.
            self._closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._on_closed()

    def _tell(self, event: Event) -> None:
        if self._live is not None:
            self._live(event)
            return
        name, begun = event["event"], None
        if "cycle" in event or name == "cycle failed":
            begun, self._begun = self._begun, None
        if name == "cycle started":
            self._begun = event
        elif begun is not None and name == "cycle done" and not event.get("stopped"):
            logger.debug("cycle %s: nothing was due", event["cycle"])
        else:
            for each in (begun, event) if begun is not None else (event,):
                self._line(each)

    def _line(self, event: Event) -> None:
        facts = {name: value for name, value in event.items() if name not in ("event", "time_ms")}
        if self._session.as_json:
            line = {"event": event["event"], "time": iso_time(event["time_ms"] / 1000), **facts}
            sys.stdout.write(dumps(line) + "\n")
            sys.stdout.flush()
        else:
            print_line(self._session.settings.log_format, event["event"], event["time_ms"], facts)


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more. An idle run would never notice by writing."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(state & select.POLLERR for _, state in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False  # no such descriptor, or a system that cannot tell


class _Live:
    def __init__(self, session: Session, progress: Report, waiting: str, *, steps: bool = True) -> None:
        self._out, self._progress, self._waiting, self._steps = session.out, progress, waiting, steps
        self._running: dict[tuple[str, str, str], str] = {}

    def __call__(self, event: Event) -> None:
        key = (event.get("table", ""), event.get("kind", ""), event.get("partition", ""))
        if event["event"] == "job started":
            self._running[key] = f"{_job(event)} of {event['table']}: {_why(event)}"
        elif event["event"].startswith("job "):
            self._running.pop(key, None)
        if self._steps:
            self._step(event)
        self._progress("; ".join(self._running.values()) or self._waiting, None)

    def _step(self, event: Event) -> None:
        match event["event"]:
            case "job done":
                moved = f"{human_bytes(event['bytes_in'])} → {human_bytes(event['bytes_out'])}"
                self._job_step(event, f"{moved}, {_why(event)}")
            case "job failed" | "job replanned" | "job cancelled":
                self._job_step(event, f"{event['event'][4:]}: {event['reason']}")
            case "skipped":
                self._out.step("skipped", event["table"], "", event["why"])
            case "problem":
                self._out.problems([event["detail"]])
            case "cycle failed":
                self._out.problems([f"cycle failed ({event['what']}): {event['reason']}"])
            case "recovered":
                self._out.step(event["event"], event["detail"], "", "")
            case "started":
                crons = ", ".join(f"{tier} {cron!r}" for tier, cron in event["tiers"].items())
                self._out.note(f"policies every {event['every_s']:g} s; {crons or 'no tiers'} (UTC); Ctrl-C stops")
                for name, schedule in event.get("pipelines", {}).items():
                    self._out.note(f"{name} {schedule}")
            case "stopping":
                self._out.note(STOPPING if self._running else "stopping")
            case "stopped":
                self._out.note("stopped")

    def _job_step(self, event: Event, result: str) -> None:
        self._out.step(_job(event), event["table"], human_seconds(event["seconds"]), result)


def _job(event: Event) -> str:
    return str(event.get("tier") or event["kind"])


def _why(event: Event) -> str:
    """Reasons of plans begin with what is shown beside them."""
    return str(event["why"]).removeprefix(f"{_job(event)}: ")


def _show(session: Session, report: CycleReport) -> None:
    document = report.document()
    rows = [{**job, "kind": _job(job), "why": job["reason"] or _why(job)} for job in document["jobs"]]
    if not session.as_json:
        empty = "nothing was done" if report.skipped or report.problems else "nothing was due"
        session.out.listing(JOBS, rows, {}, empty=empty)
        damaged = [f"{skipped.table} was skipped: {skipped.why}" for skipped in report.skipped if skipped.damaged]
        session.out.problems([*damaged, *report.problems])
        for skipped in report.skipped:
            if not skipped.damaged:
                session.out.note(f"held back: {skipped.table}: {skipped.why}")
        for line in report.recovered:
            session.out.note(line)
    left = f", {plural(report.not_started, 'job')} not started" if report.not_started else ""
    stopped = f"; {report.stopped}" if report.stopped else ""
    failed = f", {len(report.failures)} failed" if report.failures else ""
    postponed = sum(not skipped.damaged for skipped in report.skipped)
    left += f", {postponed} held back" if postponed else ""
    unusable = len(report.skipped) - postponed
    left += f", {plural(unusable, 'table')} skipped" if unusable else ""
    text = f"{plural(report.done, 'job')} done{failed}{left} in {human_seconds(report.seconds)}{stopped}"
    session.out.message(text, document, healthy=report.healthy)
