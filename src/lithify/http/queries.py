"""Queries on behalf of a caller: within the settings' limits, over the tables that its token may read.

A query gets a thread of its own kind, so that queries that wait for their turn never keep writes from theirs. If the
client goes away, the query is cancelled: nobody would read its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson
import pyarrow as pa
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from lithify.errors import Cancelled
from lithify.http.admission import CANCEL_AGAIN_S, LOOK_S, admitted
from lithify.http.auth import BAD_TOKEN, CHALLENGE, Caller
from lithify.http.documents.tables import answer_columns
from lithify.http.errors import Refusal
from lithify.http.formats.negotiate import answered
from lithify.http.service import Service
from lithify.lake.internals import internals
from lithify.lake.queries import run_query
from lithify.read.history import ChangesPage
from lithify.sql.limits import Answer

AT_ONCE_VALUES_MAX = 1_000
AT_ONCE_BYTES_MAX = 64 * 2**10
Result = TypeVar("Result")


def lowered(asked: float | None, limit: float) -> float:
    return limit if asked is None else min(asked, limit)


async def answer_of(
    request: Request,
    service: Service,
    caller: Caller,
    sql: str,
    as_of: int | str | None = None,
    *,
    id: str | None = None,
    timeout_s: float | None = None,
    rows_max: int | None = None,
    only: str | None = None,
) -> Answer:
    """`only`: the one table that this query may name."""
    lake, limits = internals(service.lake), service.settings

    def run(inner: str) -> Answer:
        return run_query(
            lake,
            sql,
            as_of,
            id=inner,
            timeout_s=lowered(timeout_s, limits.query_timeout_s),
            rows_max=int(lowered(rows_max, limits.query_rows_max)),
            may_read=caller.may_read,
            only=only,
            owner=caller.token.id,
        )

    service.response_memory.check()
    answer = await while_there(request, service, caller, run, id)
    service.response_memory.hold(request.scope["state"], answer.rows)
    return answer


async def while_there(
    request: Request, service: Service, caller: Caller, run: Callable[[str], Result], id: str | None = None
) -> Result:
    """Run something that is a query of the lake, by the id it is given, in a thread of its own. It is cancelled when
    the client goes away or its token is no longer valid.
    """
    with admitted(service, caller, id) as inner:
        # Never waited for: there are as many threads as slots.
        work = asyncio.ensure_future(to_thread.run_sync(run, inner, limiter=CapacityLimiter(1)))
        gone = asyncio.ensure_future(_gone(request))
        revoked = False
        try:
            while not work.done() and not gone.done() and not revoked:
                await asyncio.wait({work, gone}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                revoked = not work.done() and not gone.done() and not service.tokens.is_valid(caller.token.id)
            while not work.done():
                # Again, should it not have begun yet.
                service.lake.cancel(inner)
                await asyncio.wait({work}, timeout=CANCEL_AGAIN_S)
            return await work
        except Cancelled as error:
            if revoked:
                raise Refusal(401, BAD_TOKEN, CHALLENGE) from error
            raise
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await gone


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def facts_of(answer: Answer, id: str) -> dict[str, Any]:
    """What every page of an answer says."""
    return {
        "id": id,
        "cut": answer.cut,
        "seconds": round(answer.seconds, 6),
        "source": answer.source,
        "snapshots": dict(answer.snapshots),
    }


async def in_thread(rows: pa.Table, work: Callable[[], Result]) -> Result:
    """Spell an answer: at once if it is small, and otherwise where nobody else waits for it."""
    if rows.num_rows * rows.num_columns <= AT_ONCE_VALUES_MAX and rows.nbytes <= AT_ONCE_BYTES_MAX:
        return work()
    return await to_thread.run_sync(work)


def response_of(facts: Mapping[str, Any], rows: pa.Table, kind: str, next: str | None = None) -> Response:
    document = {**facts, "columns": answer_columns(rows.schema), "row_count": rows.num_rows}
    headers = {
        "Id": facts["id"],
        "Row-Count": str(rows.num_rows),
        "Cut": "true" if facts["cut"] else "false",
        "Seconds": f"{facts['seconds']:.6f}",
        "Source": facts["source"],
        "Snapshots": orjson.dumps(facts["snapshots"]).decode(),
    }
    if next is not None:
        document["next"] = headers["Next"] = next
    return answered(rows, kind, document, headers)


def page_answer(table: str, since: int, page: ChangesPage, kind: str) -> Response:
    """Whole commits of a table, and from where to go on."""
    document = {
        "table": table,
        "since": since,
        "next": page.next,
        "more": page.more,
        "row_count": page.rows.num_rows,
        "columns": answer_columns(page.rows.schema),
    }
    headers = {
        "Row-Count": str(page.rows.num_rows),
        "Next": str(page.next),
        "More": "true" if page.more else "false",
    }
    return answered(page.rows, kind, document, headers)
