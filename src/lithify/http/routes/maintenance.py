"""Maintenance of the lake: status, stats, candidates, jobs, history, and a cycle on demand.

A token for some tables sees and triggers work on those only; what concerns the lake as a whole (the schedule, the
running cycle's id, counts of a cycle) everybody with a scope sees. Texts are told without the lake's place on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import AfterValidator, Field, TypeAdapter

from lithify.core.names import is_table_name, parse_table_name, plain_name
from lithify.errors import LithifyError, NotFound
from lithify.http.auth import Caller, Scope, Watcher, needs
from lithify.http.documents.events import CancelledJobDocument
from lithify.http.documents.maintenance import (
    HISTORY_MAX,
    CandidatesDocument,
    CompactionHistoryDocument,
    CompactionStatsDocument,
    JobsDocument,
    JobTotalsDocument,
    RunningCycleDocument,
    StatusDocument,
    TierDocument,
    TriggeredDocument,
    WorkerDocument,
    known,
)
from lithify.http.openapi import failing
from lithify.http.placeless import placeless
from lithify.http.service import LakeDep, Service, ServiceDep
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.lake.maintenance import Maintenance, TableState, chosen_tables, maintenance_of, no_namespace
from lithify.lake.running_jobs import cancel_job, is_cycle
from lithify.maintenance.plans import FileCount
from lithify.maintenance.reports import EndedJob, PastCycle, Skipped, job_totals

TABLES_MAX, AGE_S_MAX = 1_000, 600
TierQuery = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=32)]] | None,
    Query(description="Only this tier's work, or `pack`. Repeat it for several.", max_length=32, examples=[["hourly"]]),
]
TableQuery = Annotated[
    str | None,
    Query(description="Only this table.", min_length=1, max_length=262, examples=["shop.orders"]),
    AfterValidator(lambda name: name if name is None else plain_name(name)),
]
NamespaceQuery = Annotated[
    str | None, Query(description="Only tables of this namespace.", min_length=1, max_length=128, examples=["shop"])
]


def watched(lake: LakeDep, caller: Watcher, table: TableQuery = None, namespace: NamespaceQuery = None) -> list[str]:
    return _chosen(lake, caller, ("read", "maintain"), table, namespace)


def named(lake: LakeDep, caller: Watcher, table: TableQuery = None, namespace: NamespaceQuery = None) -> list[str]:
    """As `watched`, for a page of many tables: whether those are there is looked at as they are shown."""
    if table is not None or namespace is not None:
        return _chosen(lake, caller, ("read", "maintain"), table, namespace)
    seen = _seen_by(caller)
    return [name for name in map(str, internals(lake).catalog.named()) if is_table_name(name) and seen(name)]


Watched = Annotated[list[str], Depends(watched)]
JobId = Annotated[
    str,
    Path(
        description="The id of a job or cycle, as GET /v1/maintenance/jobs tells it.", pattern=r"^[A-Za-z0-9-]{1,64}$"
    ),
]
Limit = Annotated[int, Query(description="Entries at most.", ge=1, le=HISTORY_MAX)]

router = APIRouter(tags=["maintenance"])


@router.get("/status", summary="Whether maintenance runs here, and what it is doing")
def status(service: ServiceDep, caller: Watcher) -> StatusDocument:
    """The cycle that runs now, in whichever process; the last one; tiers and their times; the Spark worker."""
    lake, settings, seen = service.lake, service.settings, _seen_by(caller)
    maintenance, scheduler = maintenance_of(lake), internals(lake).scheduler
    last = _cycles(lake, caller, 1)
    roles = settings.roles_now()
    return StatusDocument(
        may_compact="compact" in roles,
        roles=list(roles),
        scheduled=scheduler is not None,
        idle_because=scheduler.idle_because if scheduler is not None else None,
        crons=scheduler.crons if scheduler is not None else {},
        policy_interval_s=settings.policy_interval_s,
        jobs_max=settings.jobs_max,
        cycle=_running(lake),
        last_cycle=last[0] if last else None,
        asked=[turn for turn in maintenance.turns() if seen(turn.table)],
        worker=_worker(maintenance),
        tiers=[TierDocument.model_validate(tier) for tier in maintenance.tiers()],
    )


@router.get("/stats", summary="State and debt of the tables")
def stats(
    service: ServiceDep,
    _: Watcher,
    names: Annotated[list[str], Depends(named)],
    after: Annotated[
        str | None, Query(description="Only tables after this one, by name.", min_length=1, max_length=262)
    ] = None,
    contains: Annotated[
        str | None, Query(description="Only tables with this in their name.", min_length=1, max_length=257)
    ] = None,
    limit: Annotated[int, Query(description="Tables at most.", ge=1, le=TABLES_MAX)] = 100,
    age_s_max: Annotated[
        float,
        Query(
            description="What follows from the time and not from a write, like what is due, may be this many seconds "
            "old: for those who ask again and again.",
            ge=0,
            le=AGE_S_MAX,
        ),
    ] = 0,
) -> CompactionStatsDocument:
    """Looks at the logs of each table. One that cannot be looked at says why in `error`, and the others go on. If there
    are `more`, ask `after` the last one.
    """
    lake, tables_total = service.lake, len(names)
    names = [name for name in names if (after is None or name > after) and (contains is None or contains in name)]
    there = internals(lake).catalog.exists
    page = list(itertools.islice((name for name in names if there(parse_table_name(name))), limit + 1))
    found = [_table_maintenance(service, name, age_s_max) for name in page[:limit]]
    return CompactionStatsDocument(
        tables=found,
        more=len(page) > limit,
        tables_total=tables_total,
        base_files=sum(each.base_files for each in found),
        base_bytes=sum(each.base_bytes for each in found),
        pending_files=sum(each.pending_files for each in found),
        pending_rows=sum(each.pending_rows for each in found),
        debt=FileCount(files=sum(each.debt.files for each in found), bytes=sum(each.debt.bytes for each in found)),
        jobs=_job_totals(service, names, age_s_max),
    )


def _job_totals(service: Service, names: Sequence[str], age_s_max: float) -> dict[str, JobTotalsDocument]:
    shown = set(names)
    totals = job_totals(
        entry for entry in service.states.ended_jobs(service.lake, age_s_max) if entry.get("table") in shown
    )
    return {kind: JobTotalsDocument(**total) for kind, total in totals.items()}


@router.get("/candidates", summary="What a cycle would do now")
def candidates(
    lake: LakeDep, _: Watcher, names: Watched, tier: TierQuery = None, limit: Limit = 100
) -> CandidatesDocument:
    """Nothing is done. 400 for a tier that nobody declared or that is off, 404 for an unknown table or namespace."""
    found, skipped = maintenance_of(lake).candidates(names[:TABLES_MAX], tier)
    return CandidatesDocument(
        candidates=found[:limit],
        more=len(found) > limit or len(names) > TABLES_MAX,
        skipped=known(Skipped, placeless(lake, skipped)),
    )


@router.get("/jobs", summary="Jobs under way, in whichever process")
def jobs(lake: LakeDep, caller: Watcher, limit: Limit = 100) -> JobsDocument:
    """Those whose process is gone are cleared up by the next cycle."""
    seen = _seen_by(caller)
    found = [job for job in lake.jobs() if seen(job.table)]
    return JobsDocument(jobs=found[:limit], cycle=_running(lake))


@router.post(
    "/jobs/{id}/cancel",
    summary="End a job, or the cycle that runs",
    responses=failing(_409="It commits already, or it is not one that can be ended from here."),
)
def cancel(
    id: JobId, lake: LakeDep, caller: Annotated[Caller, needs("maintain", per_table=True)]
) -> CancelledJobDocument:
    """In whichever process it runs. What it has staged goes, and what is committed stays, as after Ctrl-C; a cycle
    starts nothing more, and its jobs end. That is at the next step, in another process within seconds. 404 if nothing
    of this id is under way, or not on a table that the token may see.
    """
    _check_may_cancel(lake, caller, id)
    if not cancel_job(lake, id, f"by token {caller.token.name}"):
        raise _no_job(id)
    return CancelledJobDocument(id=id, cancelled=True)


@router.get("/history", summary="Cycles and jobs that ended, newest first")
def history(lake: LakeDep, caller: Watcher, limit: Limit = 20, table: TableQuery = None) -> CompactionHistoryDocument:
    """What is kept is bounded: about a megabyte of each. With `table`, jobs of that table, and cycles as they were."""
    seen = _seen_by(caller)
    if table is not None:
        _chosen(lake, caller, ("read", "maintain"), table, None)
    ended = [job for job in lake.ended_jobs(None, table) if seen(str(job.get("table")))]
    return CompactionHistoryDocument(
        cycles=_cycles(lake, caller, limit), jobs=known(EndedJob, placeless(lake, ended[:limit]))
    )


@router.post(
    "/trigger",
    status_code=202,
    summary="Start a cycle in the background",
    responses=failing(
        _409="A cycle is running already, and `details.cycle` is its id; or this node may not run cycles."
    ),
)
def trigger(
    lake: LakeDep,
    caller: Annotated[Caller, needs("maintain", per_table=True)],
    tier: TierQuery = None,
    table: TableQuery = None,
    namespace: NamespaceQuery = None,
) -> TriggeredDocument:
    """Answers at once with the cycle's id, by which `GET /v1/maintenance/history` shows its report when it has ended.

    Without a tier, everything that is due: folds, merges of changes, packing and all tiers. 400 for a tier that nobody
    declared or that is off, 404 for an unknown table or namespace.
    """
    names = _chosen(lake, caller, ("maintain",), table, namespace)
    # Named one by one only where that says less than the whole lake: a table may be created in between.
    whole = table is None and namespace is None and caller.may("maintain")
    cycle = lake.trigger_maintenance(tier, None if whole else names)
    tiers = list(dict.fromkeys(tier or ()))
    return TriggeredDocument(cycle=cycle, tier=tiers[0] if len(tiers) == 1 else None, tiers=tiers, tables=len(names))


# -- what a caller may see


def _check_may_cancel(lake: Lake, caller: Caller, id: str) -> None:
    """A job on a table that it may maintain; a cycle of such tables alone."""
    if is_cycle(lake, id):
        tables = maintenance_of(lake).cycle.tables_of(id)
        if not tables or not all(caller.may("maintain", table) for table in tables):
            caller.check("maintain")
        return
    job = next((job for job in lake.jobs() if job.id == id), None)
    if job is None or not _seen_by(caller)(job.table):
        raise _no_job(id)
    caller.check("maintain", job.table)


def _no_job(id: str) -> NotFound:
    return NotFound(f"no job and no cycle {id} is under way: GET /v1/maintenance/jobs lists what is", job=id)


def _seen_by(caller: Caller) -> Callable[[str], bool]:
    return lambda table: caller.may("read", table) or caller.may("maintain", table)


def _chosen(
    lake: Lake, caller: Caller, scopes: tuple[Scope, ...], table: str | None, namespace: str | None
) -> list[str]:
    """The tables that were asked for, as far as the caller may. One that is named must be allowed; a namespace of which
    no table is, is not there.
    """
    if table is not None and not any(caller.may(scope, table) for scope in scopes):
        caller.check(scopes[0], table)
    chosen = [
        name for name in chosen_tables(lake, table, namespace) if any(caller.may(scope, name) for scope in scopes)
    ]
    if namespace is not None and not chosen:
        raise no_namespace(namespace)
    return chosen


# -- telling


def _running(lake: Lake) -> RunningCycleDocument | None:
    found = lake.running_cycle()
    return RunningCycleDocument.model_validate(found) if found is not None else None


def _cycles(lake: Lake, caller: Caller, limit: int) -> list[PastCycle]:
    """For a token of some tables without the lines that may name others."""
    seen, sees_all = _seen_by(caller), caller.may("read") or caller.may("maintain")
    cycles = known(PastCycle, placeless(lake, lake.past_cycles(limit)))
    for cycle in cycles:
        cycle.jobs = [job for job in cycle.jobs if seen(job.table)]
        cycle.skipped = [entry for entry in cycle.skipped if seen(entry.table)]
        cycle.waiting = [entry for entry in cycle.waiting if seen(entry.table)]
        if not sees_all:
            cycle.recovered, cycle.problems = [], []
    return cycles


_UPKEEP: TypeAdapter[TableState] = TypeAdapter(TableState)


def _table_maintenance(service: Service, name: str, age_s_max: float) -> TableState:
    lake = service.lake

    def look() -> TableState:
        return _UPKEEP.validate_python(placeless(lake, lake.table_maintenance(name)))

    try:
        return service.states.get(lake, name, age_s_max, look)
    except NotFound:
        return TableState(table=name, error=f"table {name} was dropped meanwhile, or its files are gone")
    except LithifyError as error:
        return TableState(table=name, error=placeless(lake, error.public))


def _worker(maintenance: Maintenance) -> WorkerDocument | None:
    found = maintenance.worker()
    if found is None:
        return None
    return WorkerDocument(
        alive=found.pid is not None,
        memory_bytes=found.rss_bytes,
        orders=len(found.orders),
        starts=found.starts,
        deaths=found.deaths,
    )
