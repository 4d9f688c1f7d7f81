"""Erasures over HTTP: begin one, see how it stands, go on with it, read its receipt. Keys travel in bodies only.

What begins here is hidden when the answer comes. The rest is done by maintenance, which is told to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from lithify.core.json_out import jsonable
from lithify.core.names import plain_name
from lithify.core.results import ErasurePlan, Verified
from lithify.errors import Conflict, InvalidRequest, NotFound
from lithify.http.auth import Caller, needs
from lithify.http.bodies import BodyDep
from lithify.http.documents.erasures import (
    BeginErasure,
    BegunErasureDocument,
    EraseOrder,
    ErasureDocument,
    ErasuresDocument,
    ResumedErasureDocument,
    VerifyOrder,
)
from lithify.http.formats.keys import checked_keys, exact_keys
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.placeless import placeless
from lithify.http.routes.query import TakesJson
from lithify.http.service import LakeDep
from lithify.lake.internals import internals
from lithify.lake.lake import Lake

if TYPE_CHECKING:
    from lithify.erasure.erasure import Erasure  # needs an extra

LIMIT_MAX = 1_000
Eraser = Annotated[Caller, needs("erase", per_table=True)]
ErasureId = Annotated[str, Path(description="Its id.", pattern=r"^[0-9a-f]{32}$")]
EXAMPLES = {"One customer": {"table": "shop.customers", "keys": [42], "reason": "ticket-118"}}
_REFUSED = failing(
    _409="Another erasure of the table is not done yet.", _415=NO_JSON, _503="`lithify[erase]` is not installed here."
)

router = APIRouter(prefix="/erasures", tags=["erasures"], route_class=JsonRoute)


@router.get("", summary="Erasures, the newest first")
def listed(
    lake: LakeDep,
    caller: Eraser,
    open: Annotated[bool, Query(description="Only those that are not done.")] = False,
    limit: Annotated[int, Query(description="Erasures at most.", ge=1, le=LIMIT_MAX)] = 100,
) -> ErasuresDocument:
    """Of tables that the token may erase from."""
    found = [each for each in lake.erasures()[::-1] if caller.may("erase", each.table)]
    if open:
        found = [each for each in found if each.state not in ("done", "cancelled")]
    return ErasuresDocument(
        erasures=[ErasureDocument(**_told(lake, each)) for each in found[:limit]], more=len(found) > limit
    )


@router.post("/plan", summary="What an erasure would do", responses=_REFUSED, dependencies=[TakesJson])
def plan(
    order: Annotated[EraseOrder, body_like(EXAMPLES)], lake: LakeDep, caller: Eraser, body: BodyDep
) -> ErasurePlan:
    """Nothing is done."""
    return cast("ErasurePlan", lake.erase(**_asked(order, lake, caller, body), dry_run=True))


@router.post(
    "", status_code=202, summary="Erase rows, their past and their files", responses=_REFUSED, dependencies=[TakesJson]
)
def begin(
    order: Annotated[BeginErasure, body_like(EXAMPLES)], lake: LakeDep, caller: Eraser, body: BodyDep
) -> BegunErasureDocument:
    """The rows are hidden when this is answered; there is no way back. Look at a plan first. Maintenance does the rest:
    ask for the erasure until its state is `done`, then for its receipt.
    """
    asked = _asked(order, lake, caller, body)
    begun = cast("Erasure", lake.erase(**asked, actor=caller.token.name, break_pins=order.break_pins))
    return BegunErasureDocument(**_told(lake, begun), salt=begun.salt or "", cycle=_maintained(lake, begun))


@router.get("/{id}", summary="How an erasure stands")
def show(id: ErasureId, lake: LakeDep, caller: Eraser) -> ErasureDocument:
    """404 for one of a table that the token may not erase from."""
    return ErasureDocument(**_told(lake, _found(id, lake, caller)))


@router.get(
    "/{id}/receipt",
    summary="The receipt of an erasure",
    response_class=Response,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}, "example": {"version": 1}}}},
        **failing(_409="It is not done yet."),
    },
)
def receipt(id: ErasureId, lake: LakeDep, caller: Eraser) -> Response:
    """As it was signed, byte for byte. Keep it elsewhere."""
    content = _found(id, lake, caller).receipt_bytes()
    return Response(content, media_type="application/json")


@router.post(
    "/{id}/verify", summary="Whether a receipt is genuine", responses=failing(_415=NO_JSON), dependencies=[TakesJson]
)
def verify(
    id: ErasureId,
    lake: LakeDep,
    caller: Eraser,
    order: Annotated[VerifyOrder, body_like({"About a key": {"key": 42, "salt": "5f…"}})],
) -> Verified:
    """And, with key and salt, whether it is about that key. `problems` is empty if nothing is wrong."""
    return _found(id, lake, caller).verify(key=order.key, salt=order.salt)


@router.post("/{id}/resume", status_code=202, summary="Go on with an erasure", responses=failing(_409="It is done."))
def resume(id: ErasureId, lake: LakeDep, caller: Eraser) -> ResumedErasureDocument:
    """Where the last scan found something it begins again with what is sealed."""
    found = _found(id, lake, caller).reopen()
    return ResumedErasureDocument(**_told(lake, found), cycle=_maintained(lake, found))


@router.post(
    "/{id}/cancel", summary="Give an erasure up", responses=failing(_409="Its past is being deleted, or it has ended.")
)
def cancel(id: ErasureId, lake: LakeDep, caller: Eraser) -> ErasureDocument:
    """While nothing of the past is gone. What it has hidden stays deleted."""
    return ErasureDocument(**_told(lake, _found(id, lake, caller).cancel()))


def _asked(order: EraseOrder, lake: Lake, caller: Caller, body: bytes) -> dict[str, Any]:
    name = plain_name(order.table)
    caller.check("erase", name)
    asked = {"name": name, "history": order.history, "reason": order.reason, "rows_max": order.rows_max}
    if order.where is not None:
        caller.check("read", name)
        if order.keys is None:
            return {**asked, "where": order.where}
    if order.keys is None or order.where is not None:
        raise InvalidRequest("say what to erase: keys, or where, and not both")
    keys, refused = checked_keys(order.keys, internals(lake.table(name)).known_schema, lambda: exact_keys(body))
    if refused or keys is None:
        raise InvalidRequest(f"nothing was done: {refused[0].error.public}")
    return {**asked, "keys": keys}


def _found(id: str, lake: Lake, caller: Caller) -> Erasure:
    found = lake.erasure(id)
    if not caller.may("erase", found.table):
        raise NotFound(f"this lake has no erasure {id!r}: GET /v1/erasures lists them")
    return found


def _told(lake: Lake, erasure: Erasure) -> dict[str, Any]:
    told = erasure.describe()
    return {**told, "places": placeless(lake, told["places"]), "problems": placeless(lake, jsonable(told["problems"]))}


def _maintained(lake: Lake, erasure: Erasure) -> str | None:
    """None: a cycle is running, or this node may not run one; the next takes it up."""
    try:
        return lake.trigger_maintenance(None, [erasure.table] if erasure.table in lake.tables() else [])
    except Conflict:
        return None
