"""The hot cache of this service: pin, unpin, evict, stats. What is cached never changes an answer, only its time."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter

from lithify.core.results import CacheStats, HotTableStats
from lithify.http.auth import Caller, needs
from lithify.http.documents.maintenance import EvictedDocument, EvictOrder, PinOrder, UnpinnedDocument, UnpinOrder
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.query import TakesJson
from lithify.http.routes.table_maintenance import JsonIfAny
from lithify.http.routes.tables import DAMAGED
from lithify.http.service import LakeDep
from lithify.lake.maintenance import chosen_tables, maintenance_of

FAILING = failing(_415=NO_JSON)
ORDERS = {"table": "shop.orders"}
Maintainer = Annotated[Caller, needs("maintain", per_table=True)]
router = APIRouter(prefix="/query/cache", tags=["cache"], route_class=JsonRoute)


@router.post(
    "/pin",
    summary="Load a table into memory and keep it there",
    responses=failing(
        _409="It is being pinned already.",
        _413="It does not fit into the cache.",
        _415=NO_JSON,
        _424=DAMAGED,
        _503="As many tables as may be at once are being pinned.",
    ),
    dependencies=[TakesJson],
)
def pin(
    order: Annotated[PinOrder, body_like({"All columns of a table": ORDERS})], lake: LakeDep, caller: Maintainer
) -> HotTableStats:
    """Answers when it is loaded. It then follows the table's changes, and stays until it is evicted. 404 for an unknown
    table, 400 for an unknown column, 413 if it does not fit beside what is pinned already.
    """
    caller.check("maintain", order.table)
    return maintenance_of(lake).pin(order.table, order.columns)


@router.post("/unpin", summary="Let a pinned table go when room is needed", responses=FAILING, dependencies=[TakesJson])
def unpin(
    order: Annotated[UnpinOrder, body_like({"A table": ORDERS})], lake: LakeDep, caller: Maintainer
) -> UnpinnedDocument:
    """It stays in memory until others need the room. 404 for an unknown table."""
    caller.check("maintain", order.table)
    (table,) = chosen_tables(lake, order.table)
    return UnpinnedDocument(table=table, unpinned=lake.cache.unpin(table))


@router.post("/evict", summary="Give a table's memory back, or all of it", responses=FAILING, dependencies=[JsonIfAny])
def evict(
    lake: LakeDep,
    caller: Maintainer,
    order: Annotated[EvictOrder | None, body_like({"One table": ORDERS, "Everything": {}})] = None,
) -> EvictedDocument:
    """Drops pins, too. A table that is not in memory gives back nothing, which is no failure; 404 for an unknown table.
    Only a token for all tables may evict everything.
    """
    table = order.table if order is not None else None
    caller.check("maintain", table)
    if table is not None:
        chosen_tables(lake, table)
    return EvictedDocument(table=table, bytes=lake.cache.evict(table))


@router.get("/stats", summary="What is in memory, and how often it served")
def stats(lake: LakeDep, caller: Annotated[Caller, needs("read", "maintain", per_table=True)]) -> CacheStats:
    """A token for some tables sees only those of them; the sums are of all."""
    found = lake.cache.stats()
    mine = tuple(hot for hot in found.tables if caller.may("read", hot.table) or caller.may("maintain", hot.table))
    return replace(found, tables=mine)
