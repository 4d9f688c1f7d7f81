"""Commands that look at maintenance: jobs, stats."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import Commands, Session
from lithify.cli.output import TABLE, TIME, WHY, Column, counts, long_text, sizes, texts
from lithify.cli.values import bytes_cell, count_cell, seconds_cell
from lithify.core.wording import plural
from lithify.errors import LithifyError, NotFound

if TYPE_CHECKING:
    from lithify.cli.command import AnyLake

command = Commands("Maintenance")


def _time(time_ms: Any) -> str:
    return "" if time_ms is None else f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%Y-%m-%d %H:%M:%S}"


def _done(job: Mapping[str, Any]) -> str:
    """The share of rows where that is known, else of files: the last files of a job may be its largest."""
    if job["cancelled"]:
        return "ends"
    for what in ("rows", "bytes", "files"):
        if total := job[f"{what}_total"]:
            return f"{100 * job[f'{what}_done'] // total} %"
    return ""


UNFINISHED = (
    TABLE,
    Column("id", "id", style="dim"),
    *texts(kind="job", state="state"),
    Column("files", "files", count_cell, right=True),
    Column("done", "done", right=True),
    Column("age_s", "age", seconds_cell, right=True),
    Column("owner", "process"),
    Column("alive", "", lambda alive: "may be alive" if alive else "gone: recovery clears up"),
    WHY,
)
ENDED = (
    Column("ended_ms", "ended (UTC)", _time, style="dim"),
    TABLE,
    *texts(kind="job", outcome="outcome"),
    *sizes(bytes_in="read", bytes_out="written"),
    TIME,
    Column("shown", "why", long_text, wrap=True),
)
TABLES = (
    TABLE,
    Column("base_files", "files", count_cell, right=True),
    Column("base_bytes", "size", bytes_cell, right=True),
    *counts(pending_rows="pending", pending_files="in files"),
    Column("read_overhead", "read overhead", lambda times: "" if times is None else f"{times:.2f}×", right=True),
    Column("debt", "to compact", lambda debt: "" if not debt else bytes_cell(debt["bytes"]), right=True),
    Column("last_job", "last job", lambda job: "" if not job else f"{job['kind']} {job['outcome']}"),
    Column("due", "due", lambda due: long_text("; ".join(due or ())), wrap=True),
)


@command("jobs", plain=True)
def jobs(
    session: Session,
    history: Annotated[
        bool, typer.Option("--history", help="Jobs that ended, newest first, instead of those under way.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Jobs at most.")] = 20,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="ID", help="End this job, or the cycle of this id.")
    ] = None,
) -> None:
    """Show the background jobs under way, in whichever process, and how far they are, or with --history those that
    ended. --cancel ends one: what it has staged goes, what is committed stays.

    Examples:
        lithify jobs
        lithify jobs --cancel 3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a
        lithify jobs --history --limit 5 --json
    """
    with session.lake() as lake:
        if cancel is not None:
            if not lake.cancel_job(cancel):
                raise NotFound(f"no job and no cycle {cancel} is under way: `lithify jobs` lists what is")
            session.out.message(f"{cancel} ends at its next step", {"cancelled": cancel})
            return
        cycle = lake.running_cycle()
        if history:
            found = [_ended(entry) for entry in lake.ended_jobs(limit)]
            rows = [{**job, "shown": job.get("reason") or job.get("why")} for job in found]
            session.out.listing(ENDED, rows, {"jobs": found, "cycle": cycle}, empty="no job has ended yet")
        else:
            found = [dataclasses.asdict(job) for job in lake.jobs()[:limit]]
            rows = [{**job, "done": _done(job)} for job in found]
            session.out.listing(UNFINISHED, rows, {"jobs": found, "cycle": cycle}, empty="no job is under way")
        if cycle is not None:
            session.out.note(
                f"a cycle is running ({cycle['what']}): {cycle['cycle']} by {cycle['owner']} since {cycle['since']}"
            )


def _ended(entry: dict[str, Any]) -> dict[str, Any]:
    """How long a job took that died and was recovered later, nobody knows."""
    started_ms, ended_ms = entry.get("started_ms"), entry.get("ended_ms")
    if isinstance(started_ms, int) and isinstance(ended_ms, int) and not _ended_by_recovery(entry):
        return {**entry, "seconds": (ended_ms - started_ms) / 1000}
    return entry


def _ended_by_recovery(entry: dict[str, Any]) -> bool:
    gone = "its process was gone" in str(entry.get("reason") or "")
    return gone or entry.get("outcome") in ("recovered", "table dropped")


@command("stats", plain=True)
def stats(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The table: namespace.table. Default: all of them.")
    ] = None,
) -> None:
    """Show files and bytes by tier, pending changes, the expected cost of reading them, and what maintenance is due.

    Examples:
        lithify stats
        lithify stats shop.orders --json
    """
    with session.lake() as lake:
        if name is None:
            _all_stats(session, lake)
        else:
            _table_stats(session, lake, name)


def _all_stats(session: Session, lake: AnyLake) -> None:
    from lithify.maintenance.reports import job_totals

    rows: list[dict[str, Any]] = []
    for table in lake.tables():
        try:
            rows.append(lake.table_maintenance(table))
        except LithifyError as error:
            rows.append({"table": table, "error": error.message})
    last = next(iter(lake.past_cycles(1)), None)
    totals = job_totals(lake.ended_jobs())
    document = {"lake": lake.path, "tables": rows, "last_cycle": last, "jobs": totals}
    session.out.listing(TABLES, rows, document, empty="no tables yet: `lithify create` makes one")
    session.out.problems([f"{row['table']}: {row['error']}" for row in rows if "error" in row])
    for entry in (last or {}).get("waiting") or ():
        session.out.note(_waiting(entry))
    for kind, total in totals.items():
        done = f"{plural(total['done'], 'job')} done, {total['recovered']} recovered"
        merged = f"{plural(total['files_in'], 'file')} into {total['files_out']}"
        session.out.note(f"{kind}: {done}; {merged}, {bytes_cell(total['bytes_saved'])} saved")
    if last is not None:
        session.out.note(f"last cycle: {_time(last.get('started_ms'))} UTC, {plural(last.get('done', 0), 'job')} done")


def _table_stats(session: Session, lake: AnyLake, name: str) -> None:
    document = lake.table_maintenance(name)
    numbers = ("seq", "watermark", "base_files", "base_rows", "base_bytes")
    pending = ("pending_files", "pending_rows", "pending_bytes")
    fields = {
        label.replace("_", " "): bytes_cell(document[label])
        if label.endswith("_bytes")
        else count_cell(document[label])
        for label in (*numbers, *pending)
    }
    job, debt = document["last_job"], document["debt"]
    fields["read overhead"] = f"{document['read_overhead']:.2f}×"
    amplification = document["write_amplification"]
    fields["write amplification"] = "" if amplification is None else f"{amplification:.1f}×"
    fields["removed, kept for the past"] = bytes_cell(document["removed_bytes"])
    fields["reclaimable now"] = bytes_cell(document["reclaimable_bytes"])
    fields["to compact"] = (
        f"{plural(debt['files'], 'file')}, {bytes_cell(debt['bytes'])}" if debt["files"] else "nothing"
    )
    fields["due"] = "; ".join(document["due"]) or "nothing"
    fields["last job"] = f"{job['kind']} {job['outcome']}, {_time(job.get('ended_ms'))} UTC" if job else "none yet"
    session.out.record(name, fields, document)
    if not session.as_json:
        tiers = [{"origin": origin, **count} for origin, count in document["origins"].items()]
        columns = [
            Column("origin", "written by", style="bold"),
            Column("files", "files", count_cell, right=True),
            Column("bytes", "bytes", bytes_cell, right=True),
        ]
        session.out.listing(columns, tiers, {}, empty="base has no files yet")
        for entry in document["waiting"]:
            session.out.note(_waiting(entry))


def _waiting(entry: dict[str, Any]) -> str:
    times = plural(int(entry.get("failures", 1)), "time")
    return f"{entry.get('kind')} of {entry.get('table')} failed {times} and is tried less often: {entry.get('reason')}"
