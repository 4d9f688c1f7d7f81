"""The outer layer of the service: an id, a line in the log and an answer for every request, whatever happens inside.

A line holds the method, the route's template, the status, the time and the token's id: never the query string, a body
or a header, which may hold values. The id is the client's own (X-Request-Id) if it is short and plain.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lithify.errors import LithifyError
from lithify.http.errors import INTERNAL, Failure, failure_of, frames_of, refused
from lithify.http.response_memory import release

logger = logging.getLogger("lithify.http")
REQUEST_ID = "X-Request-Id"
GONE = 499  # the client left before its answer; no such status is ever sent
UNMATCHED = "unmatched"
STOPPED = refused(503, "the service stopped before this was done; a write may have been committed nevertheless")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
# An answer is data for a program: no browser should guess its type, keep it, or show it inside another page.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Frame:
    def __init__(self, app: ASGIApp, root: PurePath) -> None:
        self._app, self._root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        state["id"] = request_id(Headers(scope=scope).get(REQUEST_ID, ""))
        begun = time.perf_counter()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = state["id"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            status = GONE
        except asyncio.CancelledError:
            # The time to stop is over. Nobody waits for this task any more, but its client does.
            state["code"] = STOPPED.code
            if not status:
                await STOPPED.response(state["id"])(scope, receive, answer)
        except Exception as error:
            failure = _failure(error, state, self._root)
            # With half an answer sent, cutting the connection is what tells the client.
            if not status:
                await failure.response(state["id"])(scope, receive, answer)
        finally:
            release(state)
            state["route"] = template(scope)
            _tell(scope, status, time.perf_counter() - begun)


def _tell(scope: Scope, status: int, seconds: float) -> None:
    state, route = scope["state"], scope["state"]["route"]
    facts = {
        "method": scope["method"],
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 1),
        "token": state.get("token_id", ""),
        "code": state.get("code", ""),
        "id": state["id"],
    }
    level = logging.WARNING if status >= 500 else logging.INFO
    # Those who ask every second whether it lives would fill the log.
    if route.startswith("/health/") and status < 400:
        level = logging.DEBUG
    logger.log(level, "request", extra={"lithify_facts": facts})


def request_id(given: str) -> str:
    return given if _PLAIN_ID.fullmatch(given) else secrets.token_hex(8)


def template(scope: Scope) -> str:
    """`/v1/tables/{name}`; a path that matches no route may hold anything and is not told."""
    known = scope["app"].state.templates.get(scope.get("endpoint"), (UNMATCHED,))
    return str(scope["path"] if scope["path"] in known else known[0])


class _OnlyPublic(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_public, record.args))
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            said = {"error": type(error).__name__, "where": frames_of(error)}
            record.lithify_facts = {**getattr(record, "lithify_facts", {}), "reason": "", **said}
            record.exc_info = record.exc_text = None
        return True


def _public(argument: object) -> object:
    if isinstance(argument, LithifyError):
        return argument.public
    return type(argument).__name__ if isinstance(argument, BaseException) else argument


@contextlib.contextmanager
def only_public() -> Iterator[None]:
    """What Lithify's loggers say of an error is its public message and the lines of code that it came
    through: nothing that may quote values.
    """
    handlers, only = list(logging.getLogger("lithify").handlers), _OnlyPublic()
    for handler in handlers:
        handler.addFilter(only)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(only)


def _failure(error: Exception, state: dict[str, Any], root: PurePath) -> Failure:
    if isinstance(error, LithifyError):
        failure = failure_of(error, root)
    else:
        failure = INTERNAL
        facts = {"error": type(error).__name__, "where": frames_of(error), "id": state["id"]}
        logger.error("a request failed because of a bug", extra={"lithify_facts": facts})
    state["code"] = failure.code
    return failure
