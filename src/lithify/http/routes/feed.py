"""What commits did to the rows of a table, page by page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from lithify.http.auth import Reader
from lithify.http.documents.tables import FeedDocument
from lithify.http.json_route import JsonRoute
from lithify.http.queries import page_answer
from lithify.http.routes.query import ROW_ANSWERS, Format
from lithify.http.routes.tables import PAGE_FAILING, TablePath
from lithify.http.service import LakeDep, ServiceDep
from lithify.lake.internals import internals

router = APIRouter(prefix="/tables/{name}/feed", tags=["rows"], route_class=JsonRoute)
A_POSITION = {"min_length": 1, "max_length": 300}


@router.get(
    "",
    summary="What commits did to the rows since a seq",
    responses={200: {**ROW_ANSWERS[200], "model": FeedDocument}, **PAGE_FAILING},
    response_class=Response,
)
def feed(
    name: TablePath,
    request: Request,
    lake: LakeDep,
    service: ServiceDep,
    _: Reader,
    kind: Format,
    since: Annotated[
        str, Query(description="`next` of the last answer, or a position; 0: from the beginning.", **A_POSITION)
    ] = "0",
    until: Annotated[
        str | None, Query(description="The seq or position to end at; by default the newest.", **A_POSITION)
    ] = None,
    columns: Annotated[
        str | None, Query(description="Names with commas between them; by default all.", examples=["id,status"])
    ] = None,
    before: Annotated[bool, Query(description="Show each update with the row before it.")] = False,
    limit: Annotated[
        int | None, Query(description="About so many rows; whole commits are never divided.", ge=1)
    ] = None,
) -> Response:
    """The exact effect of each commit, with `_seq` and `_kind`: a late update that lost and a delete of nothing are
    left out, and a deleted row is shown as it was. Whole commits, up to about `query_rows_max` rows: `more` tells
    whether to ask again at once. 404 if vacuum has removed some of them.
    """
    rows_max = min(limit or service.settings.query_rows_max, service.settings.query_rows_max)
    service.response_memory.check()
    wanted = [column.strip() for column in columns.split(",")] if columns is not None else None
    of_table = internals(lake.table(name)).feed
    page = of_table.page(since, until, wanted, rows_max, before=before)
    service.response_memory.hold(request.scope["state"], page.rows)
    return page_answer(name, of_table.seq_of(since), page, kind)
