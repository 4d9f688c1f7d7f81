"""Maintenance of one table, now: fold, compact, optimize, vacuum. Each answers when it is done.

What is asked for here runs once at a time per table and `jobs_max` times in all; beyond that it is refused, not queued
(`maintenance/job_slots.py`). A client that goes away meanwhile stops nothing. A dry run needs no turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Header

from lithify.core.results import CompactReport, VacuumReport
from lithify.http.auth import Maintainer
from lithify.http.documents.maintenance import (
    CompactionsDocument,
    CompactOrder,
    DoneFold,
    FoldOrder,
    OptimizeOrder,
    PlannedCompactionsDocument,
    PlannedFold,
    VacuumOrder,
)
from lithify.http.formats.negotiate import check_json
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.tables import DAMAGED, TablePath
from lithify.http.service import LakeDep
from lithify.lake.maintenance import maintenance_of, why_idle
from lithify.maintenance.plans import CompactPlan

FAILING = failing(
    _409="Something is running on this table already, or others changed it too often meanwhile.",
    _415=NO_JSON,
    _424=DAMAGED,
    _503="As many runs as may be at once are under way, or Spark could not be used.",
    _507="The disk is full.",
)


async def json_if_any(content_type: Annotated[str | None, Header(include_in_schema=False)] = None) -> None:
    """These bodies may be left out; what is sent is JSON."""
    if content_type is not None:
        check_json(content_type)


JsonIfAny = Depends(json_if_any)
ONLY_LOOK = {"Only look": {"dry_run": True}}
VACUUM_EXAMPLES = {
    "Only look, which is the default": {"retain_hours": 168},
    "Delete": {"dry_run": False, "retain_hours": 168},
}
router = APIRouter(prefix="/tables/{name}", tags=["maintenance"], route_class=JsonRoute, dependencies=[JsonIfAny])


@router.post("/fold", summary="Merge pending changes into base", responses=FAILING)
def fold(
    name: TablePath,
    lake: LakeDep,
    _: Maintainer,
    order: Annotated[FoldOrder | None, body_like({**ONLY_LOOK, "Do it": {"dry_run": False}})] = None,
) -> DoneFold | PlannedFold:
    """Readers and writers go on meanwhile. Answers when it is done; one that dies harms nothing."""
    if order is not None and order.dry_run:
        return PlannedFold(**vars(lake.table(name).fold(dry_run=True)))
    return DoneFold(**vars(maintenance_of(lake).asked(name, "fold", lambda table: table.fold())))


@router.post("/compact", summary="Merge small base files into larger ones, as far as it is due", responses=FAILING)
def compact(
    name: TablePath,
    lake: LakeDep,
    _: Maintainer,
    order: Annotated[CompactOrder | None, body_like({**ONLY_LOOK, "One tier's work": {"tier": "hourly"}})] = None,
) -> CompactionsDocument | PlannedCompactionsDocument:
    """The same rows stay. Without a tier, what tiers and packing call for now; `pack` is packing alone.

    400 for a tier that nobody declared. One that is off, or needs a time column, has nothing to do: `note` says so.
    """
    order = order or CompactOrder()
    tier, table = order.tier, lake.table(name)
    note = "; ".join(why_idle(table, tier)) or None
    if order.dry_run:
        return _planned(name, table.compact(tier, dry_run=True), note)
    return _done(name, maintenance_of(lake).asked(name, "compact", lambda table: table.compact(tier)), note)


@router.post("/optimize", summary="Write base anew in z-order", responses=FAILING)
def optimize(
    name: TablePath,
    lake: LakeDep,
    _: Maintainer,
    order: Annotated[
        OptimizeOrder | None, body_like({**ONLY_LOOK, "By these columns": {"by": ["customer", "placed"]}})
    ] = None,
) -> CompactionsDocument | PlannedCompactionsDocument:
    """Filters on any of the columns then read few files. The same rows stay. 400 for a column that it cannot go by."""
    order = order or OptimizeOrder()
    by = order.by
    if order.dry_run:
        table = lake.table(name)
        plans = table.optimize(by, dry_run=True)
        pending = not plans and table.stats().pending_rows
        return _planned(name, plans, "all rows are pending: they are folded first" if pending else None)
    return _done(name, maintenance_of(lake).asked(name, "optimize", lambda table: table.optimize(by)))


@router.post("/vacuum", summary="Delete files that no retained version needs", responses=FAILING)
def vacuum(
    name: TablePath,
    lake: LakeDep,
    _: Maintainer,
    order: Annotated[VacuumOrder | None, body_like(VACUUM_EXAMPLES)] = None,
) -> VacuumReport:
    """Without `"dry_run": false` it only shows what would go. Files of pinned snapshots, running jobs and writes under
    way stay.
    """
    order = order or VacuumOrder()
    hours = order.retain_hours
    if order.dry_run:
        return lake.table(name).vacuum(hours, dry_run=True)
    return maintenance_of(lake).asked(name, "vacuum", lambda table: table.vacuum(hours, dry_run=False))


def _planned(name: str, plans: Sequence[CompactPlan], note: str | None = None) -> PlannedCompactionsDocument:
    return PlannedCompactionsDocument(table=name, planned=[plan.summary() for plan in plans], note=note)


def _done(name: str, reports: Sequence[CompactReport], note: str | None = None) -> CompactionsDocument:
    return CompactionsDocument(table=name, done=list(reports), note=note)
