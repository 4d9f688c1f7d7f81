"""Whether the service lives, and whether it can answer, for supervisors without a token; and its measures, with one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from lithify.core.names import CONTROL_FOLDER
from lithify.errors import LithifyError, NotFound, Unavailable
from lithify.http.auth import Caller, needs, public
from lithify.http.metrics import CONTENT_TYPE
from lithify.http.service import Service, ServiceDep
from lithify.lake.catalog import MARKER
from lithify.lake.internals import internals

METRICS_EXAMPLE = {
    "schema": {"type": "string"},
    "example": 'lithify_queries_total{source="hot"} 1024.0\nlithify_pending_rows{table="shop.orders"} 310.0\n',
}

_IN_A_FOLDER = (
    "the lake's folder is gone: mount or restore it",
    "the lake's folder cannot be read: check the disk and the folder's owner and mode",
)
_IN_A_BUCKET = (
    "the lake is no longer in its bucket: restore it",
    "the lake's bucket cannot be reached: check the object store, the network and the service's keys",
)

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Annotated[str, Field(description="ok, or there is no such answer.", examples=["ok"])]


@router.get("/health/live", summary="Does the process answer?")
async def live(_: Annotated[None, public()]) -> Health:
    """200 as long as it does; of the lake it says nothing."""
    return Health(status="ok")


@router.get("/health/ready", summary="Can requests be answered?")
def ready(_: Annotated[None, public()], service: ServiceDep) -> Health:
    """200 while the lake is there and can be read; 503 otherwise, and from the moment of being stopped."""
    check_ready(service)
    return Health(status="ok")


@router.get(
    "/metrics",
    summary="What Prometheus reads",
    response_class=PlainTextResponse,
    responses={200: {"description": "In the text format of Prometheus.", "content": {"text/plain": METRICS_EXAMPLE}}},
)
def metrics(_: Annotated[Caller, needs("read", "maintain")], service: ServiceDep) -> Response:
    """Requests, queries, writes, cache, maintenance and this process. Cheap: no log and no file is looked at."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def check_ready(service: Service) -> None:
    if service.stopping:
        raise Unavailable("the service is stopping: call another one, or this one when it is back")
    lake, store = service.lake, internals(service.lake).runtime.store
    gone, unreadable = _IN_A_BUCKET if store.remote else _IN_A_FOLDER
    try:
        store.size(lake.path / CONTROL_FOLDER / MARKER)
        if not store.remote:  # of a bucket the answer to one request says it all
            store.names(lake.path)
    except NotFound as error:
        raise Unavailable(gone) from error
    except LithifyError as error:
        raise Unavailable(unreadable) from error
