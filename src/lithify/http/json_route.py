"""Routes whose body is one JSON document: bounded before it is parsed, and parsed where nobody else waits for it.

The framework parses a body in the event loop and before it looks at scopes. 64 MB of `[],[],…` keep everybody waiting
for seconds that way and take 30 times their size in memory, so a document here has far fewer values than rows may have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from anyio import to_thread
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from lithify.errors import InvalidRequest, LimitExceeded
from lithify.http.bodies import JSON_DEPTH_MAX, check_fields, depth_of
from lithify.http.errors import RefusedBody

VALUES_MAX = 1_000_000
AT_ONCE_BYTES_MAX = 64 * 2**10


class JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_bounded


class _JsonRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= AT_ONCE_BYTES_MAX:
            return parsed(body)
        return await to_thread.run_sync(parsed, body)


def parsed(body: bytes) -> Any:
    """Raises what the framework lets pass: a refusal, or that it is no JSON."""
    if sum(body.count(mark) for mark in (b",", b"{", b"[")) > VALUES_MAX:
        raise RefusedBody(
            LimitExceeded(f"the body holds more than {VALUES_MAX:,} JSON values: send it in parts", limit="size")
        )
    if depth_of(body) > JSON_DEPTH_MAX:
        raise RefusedBody(InvalidRequest(f"the JSON is nested deeper than {JSON_DEPTH_MAX} levels: flatten it"))
    if (encoding := json.detect_encoding(body)) not in ("utf-8", "utf-8-sig"):
        body = body.decode(encoding).encode()
    document = json.loads(body)
    try:
        check_fields(body, document)
    except InvalidRequest as error:
        raise RefusedBody(error) from None
    return document
