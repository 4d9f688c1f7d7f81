"""What happened a moment ago, and how the whole is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from lithify.http.auth import Caller, needs
from lithify.http.documents.events import DoctorDocument, EventsDocument
from lithify.http.events import check_streams, page_of, stream_of
from lithify.http.openapi import failing
from lithify.http.service import ServiceDep

EVENTS_MAX = 1_000
EVENT_STREAM = "text/event-stream"
EventId = Annotated[
    str | None, Query(description="Only what came after the event of this id.", pattern="^[0-9a-f]{32}$")
]
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page of events; with `Accept: text/event-stream`, a stream of them.",
        "content": {EVENT_STREAM: {"schema": {"type": "string", "description": "Server-sent events."}}},
    },
    **failing(_503="As many streams as may be are open."),
}

router = APIRouter(tags=["lake"])


@router.get("/events", summary="What happened a moment ago", response_model=EventsDocument, responses=STREAMED)
async def events(
    service: ServiceDep,
    caller: Annotated[Caller, needs("read", "maintain", per_table=True)],
    after: EventId = None,
    limit: Annotated[int, Query(description="Events at most, of a page.", ge=1, le=EVENTS_MAX)] = 100,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[
        str | None, Header(description="As `after`, for a stream that goes on.", pattern="^[0-9a-f]{32}$")
    ] = None,
) -> Any:
    """Writes and folds, wherever they were committed, jobs and cycles of this service. Some 2,000 are kept, in memory.

    A token for some tables is told of those. A stream ends after ten minutes, and with its token: go on with the last
    id. Without a stream, ask again `after` the last one.
    """
    place = after or last_event_id
    if EVENT_STREAM not in accept:
        return page_of(service.events, caller, place, limit)
    check_streams(service, caller)
    stream = stream_of(service, service.events, caller, place)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


@router.get(
    "/doctor",
    summary="How this machine, its libraries and the lake are",
    responses=failing(_409="Somebody else looks at this moment."),
)
def doctor(service: ServiceDep, _: Annotated[Caller, needs("admin")]) -> DoctorDocument:
    """What `lithify doctor` tells, of the machine that the service runs on: tables are opened, and their files looked
    for, one after the other, for at most half a minute. One at a time; an answer is good for some seconds. Paths inside
    the lake are told from its root.
    """
    return service.doctor.look(service)
