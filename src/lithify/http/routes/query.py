"""SQL: ask, page through an answer, explain, see what runs, cancel."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from starlette.responses import Response

from lithify.core.results import TableExplanation
from lithify.errors import NotFound
from lithify.http.admission import inner_id, outer_id
from lithify.http.auth import Caller, needs
from lithify.http.documents.tables import (
    SQL_EXAMPLES,
    CancelledQuery,
    ExplainDocument,
    ExplainRequest,
    QueryAnswer,
    RunningQueries,
    SqlRequest,
)
from lithify.http.formats.negotiate import ARROW, CSV, JSON, NDJSON, accepted, check_json
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, failing
from lithify.http.paging import Paged
from lithify.http.queries import answer_of, facts_of, in_thread, response_of, while_there
from lithify.http.service import LakeDep, ServiceDep
from lithify.lake.internals import internals
from lithify.lake.queries import explain_query

router = APIRouter(prefix="/query", tags=["query"], route_class=JsonRoute)


async def answer_format(accept: Annotated[str | None, Header(include_in_schema=False)] = None) -> str:
    return accepted(accept)


async def json_body(content_type: Annotated[str | None, Header(include_in_schema=False)] = None) -> None:
    check_json(content_type)


Format = Annotated[str, Depends(answer_format)]
TakesJson = Depends(json_body)
Reader = Annotated[Caller, needs("read", per_table=True)]
QueryId = Annotated[
    str, Path(description="The query's id.", min_length=1, max_length=200, examples=["report-7"], pattern=r"^[\w.:-]+$")
]

_ROWS = {"status": "paid", "orders": 3}
ROW_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows, in the format that Accept asks for. Besides JSON, what stands beside the rows is told by "
        "the headers X-Lithify-Id, -Row-Count, -Cut, -Seconds, -Source, -Snapshots and -Next.",
        "model": QueryAnswer,
        "content": {
            NDJSON: {"schema": {"type": "string"}, "example": '{"status":"paid","orders":3}\n'},
            CSV: {"schema": {"type": "string"}, "example": "status,orders\npaid,3\n"},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    **failing(
        _406="None of the formats in Accept is answered.",
        _409="The query was cancelled, or another one with this id is under way.",
        _413="The answer is too large to be kept for paging.",
        _415=NO_JSON,
        _422="A limit (time, memory) stopped the query, or it cannot be computed.",
        _424="A table's log or files are damaged; other tables are not affected.",
        _503="Too many queries wait already, or the machine refuses.",
    ),
}


@router.post(
    "/sql",
    summary="Run a SELECT",
    responses=ROW_ANSWERS,
    response_class=Response,
    dependencies=[TakesJson],
)
async def sql(
    ask: Annotated[SqlRequest, Body(openapi_examples=SQL_EXAMPLES)],
    request: Request,
    service: ServiceDep,
    caller: Reader,
    kind: Format,
) -> Response:
    """Every table is read fresh, each from one snapshot. Only tables that the token may read are there.

    The answer has at most `query_rows_max` rows, or fewer if `rows_max` says so; `cut` tells whether there would have
    been more. With `page_rows` the first page comes now and the others from `next`, for five minutes.
    """
    answer = await answer_of(
        request,
        service,
        caller,
        ask.sql,
        ask.as_of,
        id=ask.id,
        timeout_s=ask.timeout_s,
        rows_max=ask.rows_max,
    )
    id = outer_id(caller, answer.id) or answer.id
    facts = facts_of(answer, id)
    page_rows = ask.page_rows or answer.rows.num_rows
    if answer.rows.num_rows <= page_rows:
        return await in_thread(answer.rows, lambda: response_of(facts, answer.rows, kind))

    def first_page() -> Response:
        paged = Paged(id, answer.rows, page_rows, facts)
        service.answers.keep(caller.token.id, paged)
        return response_of(facts, paged.page(1), kind, paged.next(1))

    return await in_thread(answer.rows, first_page)


@router.get(
    "/results/{id}",
    summary="A further page of an answer",
    responses={200: ROW_ANSWERS[200], **failing(_406="None of the formats in Accept is answered.")},
    response_class=Response,
)
def results(
    id: QueryId,
    request: Request,
    service: ServiceDep,
    caller: Reader,
    kind: Format,
    page: Annotated[int, Query(description="Pages count from 1.", ge=1, le=2**31)] = 1,
) -> Response:
    """All pages are of one answer, whatever was written meanwhile. 404 when it is no longer kept, or was asked for with
    another token: send the query again.
    """
    paged = service.answers.get(caller.token.id, id)
    rows = paged.page(page)
    service.response_memory.hold(request.scope["state"], rows)
    return response_of(paged.facts, rows, kind, paged.next(page))


@router.post(
    "/explain",
    summary="What a query would read, without running it",
    responses=failing(
        _415=NO_JSON,
        _422="A limit (time, memory) stopped it.",
        _424="A table's log or files are damaged; other tables are not affected.",
        _503="Too many queries wait already, or the machine refuses.",
    ),
    dependencies=[TakesJson],
)
async def explain(
    ask: Annotated[ExplainRequest, Body(openapi_examples={"plain": SQL_EXAMPLES["plain"]})],
    request: Request,
    service: ServiceDep,
    caller: Reader,
) -> ExplainDocument:
    """Files and row groups per table, and which condition rules out how many of them."""

    def run(id: str) -> list[TableExplanation]:
        lake = internals(service.lake)
        with lake.limited(ask.sql, id=id, may_read=caller.may_read, owner=caller.token.id) as within:
            return explain_query(lake, ask.sql, ask.as_of, may_read=caller.may_read, within=within)

    found = await while_there(request, service, caller, run)
    return ExplainDocument(tables=found)


@router.get("/running", summary="Queries that run or wait")
def running(lake: LakeDep, caller: Reader) -> RunningQueries:
    """Those of this token; for an admin of the whole lake all of them, those of others by their full id."""
    shown = []
    for query in lake.queries():
        id = outer_id(caller, query.id) or (query.id if caller.may("admin") else None)
        if id is not None:
            shown.append(replace(query, id=id))
    return RunningQueries(queries=shown)


@router.post("/{id}/cancel", summary="Cancel a query")
def cancel(id: QueryId, lake: LakeDep, caller: Reader) -> CancelledQuery:
    """The query ends with 409 `cancelled`. 404 if no query of this token with this id runs or waits. An admin of the
    whole lake cancels those of others by their full id.
    """
    if not lake.cancel(inner_id(caller, id)) and not (caller.may("admin") and lake.cancel(id)):
        raise NotFound(f"no query {id} of this token runs or waits: it may have ended already")
    return CancelledQuery(id=id, cancelled=True)


__all__ = ["JSON", "Format", "TakesJson", "router"]
