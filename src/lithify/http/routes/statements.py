"""SQL that writes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request

from lithify.core.lake_methods import Wish
from lithify.core.results import Executed
from lithify.http.auth import Caller, needs
from lithify.http.bodies import BodyDep
from lithify.http.documents.tables import ExecuteRequest
from lithify.http.formats.keys import bound
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.queries import lowered, while_there
from lithify.http.routes.query import TakesJson
from lithify.http.routes.tables import IdempotencyKey
from lithify.http.service import ServiceDep
from lithify.lake.internals import internals
from lithify.lake.statements import execute

router = APIRouter(prefix="/query", tags=["query"], route_class=JsonRoute)
EXECUTE_EXAMPLES = {
    "Some rows": {"sql": "update shop.orders set status = $1 where id in (7, 8)", "parameters": ["paid"]},
    "What would be": {"sql": "delete from shop.orders where status = 'test'", "dry_run": True},
}


@router.post(
    "/execute",
    summary="Run a statement that writes",
    responses=failing(
        _404="A table that the statement names is not there.",
        _409="A key is there already, two rows of the source want one row, the Idempotency-Key was used for another "
        "write, or other writers were faster each time.",
        _415=NO_JSON,
        _422="A limit (rows, time, memory) stopped it: nothing is written.",
        _424="A table's log or files are damaged; other tables are not affected.",
        _503="The outcome is not known, or too many queries wait: send it again with the same Idempotency-Key.",
        _507="The disk is full; reads go on.",
    ),
    dependencies=[TakesJson],
)
async def run_statement(
    ask: Annotated[ExecuteRequest, body_like(EXECUTE_EXAMPLES)],
    request: Request,
    service: ServiceDep,
    caller: Annotated[Caller, needs("write", per_table=True)],
    body: BodyDep,
    idempotency_key: IdempotencyKey = None,
) -> Executed:
    """INSERT, UPDATE, DELETE or MERGE as one commit, decided on one snapshot of each table.

    It needs the scope write for its table, and read for every table that it reads: that one too, unless it only
    inserts.
    """
    batch_id, settings = bound(idempotency_key, caller, "execute", body), service.settings
    wish = Wish(ask.dry_run, batch_id, caller.token.name, ask.reason)

    def run(id: str) -> Executed:
        timeout_s = lowered(ask.timeout_s, settings.query_timeout_s)
        limited = internals(service.lake).limited(
            ask.sql, id=id, timeout_s=timeout_s, may_read=caller.may_read, owner=caller.token.id
        )
        with limited as within:
            return execute(
                internals(service.lake),
                ask.sql,
                ask.parameters,
                wish,
                may=caller.may,
                within=within,
            )

    return await while_there(request, service, caller, run, ask.id)
