"""Records that loads, streams and pipelines have set aside: look at them, try them once more, delete them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from lithify.core.results import Retried
from lithify.http.auth import Maintainer, Reader, Writer
from lithify.http.documents.maintenance import (
    PurgeOrder,
    QuarantineDocument,
    RecordsSetAsideDocument,
    RetryOrder,
)
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.table_maintenance import JsonIfAny
from lithify.http.routes.tables import DAMAGED, TablePath
from lithify.http.service import LakeDep
from lithify.lake.internals import internals
from lithify.write.quarantine import records_of

RECORDS_MAX = 1_000
BYTES_MAX = 8 * 2**20
SetName = Annotated[
    str, Path(description="Their name, as the list tells it.", max_length=255, examples=["stream.orders-17"])
]

router = APIRouter(prefix="/tables/{name}/quarantine", tags=["tables"], route_class=JsonRoute)


@router.get("", summary="Records that were set aside, by name", responses=failing(_424=DAMAGED))
def list_quarantine(name: TablePath, lake: LakeDep, _: Reader) -> QuarantineDocument:
    """Oldest first. Each name is one load, one batch of a stream, or one run of a pipeline's step."""
    return QuarantineDocument(table=name, quarantine=lake.table(name).quarantine())


@router.get("/{set_name}", summary="Records of one name, and why they are no rows", responses=failing(_424=DAMAGED))
def show_quarantine(
    name: TablePath,
    set_name: SetName,
    lake: LakeDep,
    _: Reader,
    limit: Annotated[int, Query(description="Records at most.", ge=1, le=RECORDS_MAX)] = 100,
    after: Annotated[int, Query(description="Pass over so many.", ge=0)] = 0,
) -> RecordsSetAsideDocument:
    """As they came, with the place where they stood. An answer has 8 MiB of them at most, or one."""
    handles = internals(lake.table(name)).handles
    found, more = records_of(handles, set_name, limit, after, BYTES_MAX)
    return RecordsSetAsideDocument(table=name, name=set_name, records=found, more=more)


@router.post(
    "/{set_name}/retry",
    summary="Try records of one name once more",
    responses=failing(_409="Others changed the table too often meanwhile.", _415=NO_JSON, _424=DAMAGED),
    dependencies=[JsonIfAny],
)
def retry_quarantine(
    name: TablePath,
    set_name: SetName,
    lake: LakeDep,
    caller: Writer,
    order: Annotated[RetryOrder | None, body_like({"Nulls for columns that they lack": {"missing": "null"}})] = None,
) -> Retried:
    """What fits by now is written in one commit, once; the others stay."""
    missing = order.missing if order is not None else None
    return lake.table(name).retry_quarantine(set_name, missing=missing, actor=caller.token.name)


@router.post(
    "/purge",
    summary="Delete records that were set aside",
    responses=failing(_415=NO_JSON, _424=DAMAGED),
    dependencies=[JsonIfAny],
)
def purge_quarantine(
    name: TablePath,
    lake: LakeDep,
    _: Maintainer,
    order: Annotated[PurgeOrder | None, body_like({"What is older than a month": {"older_than_hours": 720}})] = None,
) -> QuarantineDocument:
    """Answers what went. There is no way back."""
    wanted = () if order is None else (order.name, order.older_than_hours)
    return QuarantineDocument(table=name, quarantine=lake.table(name).purge_quarantine(*wanted))
