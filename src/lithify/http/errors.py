"""One shape for every answer that is no success: code, message, what to do, and the request's id.

    {"code": "not_found", "message": "…", "what_to_do": "…", "id": "…", "details": {…}}

Errors of Lithify are answered by their code and their `public` message, which holds no value of a row; so do the
framework's own (no such route, wrong method, parameters that do not fit). Anything else is a bug: it is answered with
`internal`, and the log gets the kind of the error and the lines of code that it went through, not its text.
"""

from __future__ import annotations

import http
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response
from starlette.routing import compile_path

from lithify.errors import Conflict, LimitExceeded, LithifyError, Unavailable

MESSAGE_LENGTH_MAX = 2_000
FRAMES_MAX = 12
RETRY_AFTER_S = 1

STATUS: Mapping[str, int] = {
    "invalid_request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "cancelled": 409,
    "limit_exceeded": 422,
    "compute_failed": 422,
    "corruption": 424,
    "unavailable": 503,
    "commit_unknown": 503,
    "out_of_resources": 503,
    "error": 500,
}
_BY_STATUS: Mapping[int, str] = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "no_such_route",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "too_slow",
    413: "limit_exceeded",
    415: "unsupported_media_type",
    421: "wrong_host",
    431: "limit_exceeded",
    503: "unavailable",
}
WHAT_TO_DO: Mapping[str, str] = {
    "invalid_request": "Change the request as the message says; nothing was changed.",
    "unauthenticated": "Send a valid token: Authorization: Bearer lith_…; `lithify tokens create` makes one.",
    "forbidden": "Use a token with this scope for this table; `lithify tokens create --scope … --table …` makes one.",
    "not_found": "Check the name, key or id; GET /v1/tables lists the tables that there are.",
    "no_such_route": "Check the address; /docs lists the routes.",
    "method_not_allowed": "Use a method that the Allow header lists; /docs describes them.",
    "not_acceptable": "Ask for a format that this route answers in; /docs lists them.",
    "unsupported_media_type": "Send a format and an encoding that this route takes; /docs lists them.",
    "too_slow": "Send the request again, without pauses.",
    "wrong_host": "Call the service by a name that it knows; the setting allowed_hosts adds further ones.",
    "conflict": "Look at the current state, then decide whether to send it again.",
    "other_schema": "Describe the table, make the rows fit its columns, and send them with its schema_fingerprint.",
    "cancelled": "Send it again if it is still wanted; nothing was changed.",
    "limit_exceeded": "Ask for less, or raise the limit that is named.",
    "compute_failed": "Change the query; the same one would fail again.",
    "corruption": "Restore what is damaged from a copy; other tables are not affected. `lithify doctor` looks closer.",
    "unavailable": "Send it again after a moment; if it stays, the message says what to repair on the server.",
    "disk_full": "Free disk space on the server, then send it again; reads go on meanwhile.",
    "commit_unknown": "Send it again with the same Idempotency-Key: what was committed is not written twice.",
    "out_of_resources": "Send it again later or in smaller pieces; the server ran out of memory, or a worker died.",
    "error": "Send it again; if it stays, report it with this id.",
    "internal": "Report it with this id: the server's log has the place. It is a bug in Lithify.",
}
_TO_LIMIT: Mapping[str, str] = {
    "time": "Ask for less, or for more time (timeout_s, up to the setting query_timeout_s).",
    "memory": "Ask for less at once, or raise the setting query_memory_bytes_max.",
    "rows": "Ask for fewer rows, or raise the setting query_rows_max.",
    "queue": "Send it again after a moment; other queries are being answered.",
    "size": "Send it in smaller pieces, or raise the limit that is named.",
}
# Of an error's details, what says which thing it is about. Others may quote what a row holds.
_DETAILS_SHOWN = (
    "limit",
    "cycle",
    "pipeline",
    "run",
    "table",
    "seq",
    "index",
    "job",
    "retry_after_s",
    "schema_fingerprint",
)


class Refusal(HTTPException):
    """What only HTTP can refuse: formats, encodings, hosts, slowness. `code` is one of `WHAT_TO_DO`."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers or {}))


class RefusedBody(HTTPException):
    """An error of Lithify met while a body is read. FastAPI lets this kind pass, and hides every other."""

    def __init__(self, error: LithifyError) -> None:
        super().__init__(failure_of(error).status, error.public)
        self.error = error


@dataclass(frozen=True)
class Failure:
    status: int
    code: str
    message: str
    what_to_do: str
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self, id: str) -> dict[str, Any]:
        said = {"code": self.code, "message": self.message[:MESSAGE_LENGTH_MAX], "what_to_do": self.what_to_do}
        return {**said, "id": id, **({"details": dict(self.details)} if self.details else {})}

    def response(self, id: str) -> Response:
        body = orjson.dumps(self.document(id), default=str)
        return Response(body, self.status, dict(self.headers), media_type="application/json")


def failure_of(error: LithifyError, root: PurePath | None = None) -> Failure:
    """How an error is answered. Paths inside the lake are named from its `root`."""
    status, code = STATUS.get(error.code, 500), error.code
    what_to_do, headers = WHAT_TO_DO.get(code, WHAT_TO_DO["error"]), {}
    limit = str(error.details.get("limit", ""))
    if isinstance(error, LimitExceeded):
        status = {"size": 413, "queue": 503}.get(limit, status)
        what_to_do = _TO_LIMIT.get(limit, what_to_do)
    elif isinstance(error, Conflict) and "schema_fingerprint" in error.details:
        status, what_to_do = 412, WHAT_TO_DO["other_schema"]
    elif isinstance(error, Unavailable) and error.details.get("disk_full"):
        status, what_to_do = 507, WHAT_TO_DO["disk_full"]
    elif code == "compute_failed" and (error.details.get("unknown") or error.details.get("reason")):
        status, what_to_do = 503, WHAT_TO_DO["unavailable"]  # a worker or the machine, not the query
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    message = error.public
    if root is not None:
        message = message.replace(f"{root}/", "").replace(str(root), "the lake")
    details = {
        name: error.details[name]
        for name in _DETAILS_SHOWN
        if isinstance(error.details.get(name), str | int | float) and not isinstance(error.details[name], bool)
    }
    return Failure(status, code, message, what_to_do, details, headers)


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Failure:
    code = _BY_STATUS.get(status, "invalid_request" if status < 500 else "error")
    return Failure(status, code, message, WHAT_TO_DO[code], headers=dict(headers or {}))


INTERNAL = Failure(500, "internal", "the service failed on this request", WHAT_TO_DO["internal"])


def frames_of(error: BaseException) -> str:
    """Where an error came through, innermost first, and its kind; not its text, which may quote values."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return " < ".join(f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))


def add_handlers(app: FastAPI, root: PurePath) -> None:
    async def on_lithify_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, LithifyError)
        return _answer(request, failure_of(error, root))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        if isinstance(error, RefusedBody):
            return _answer(request, failure_of(error.error, root))
        return _answer(request, _of_http(error, request))

    async def on_unfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _answer(request, refused(400, _unfit(error.errors())))

    app.add_exception_handler(LithifyError, on_lithify_error)
    app.add_exception_handler(StarletteHTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_unfit)


def _answer(request: Request, failure: Failure) -> Response:
    request.state.code = failure.code
    return failure.response(request.state.id)


def _of_http(error: StarletteHTTPException, request: Request) -> Failure:
    if isinstance(error, Refusal):
        message = str(error.detail)
    elif error.status_code == 404:
        message = "there is no such route"
    elif error.status_code == 405:
        # Each route knows its own methods only; several stand at one path.
        allowed = {"Allow": ", ".join(_methods_at(request))}
        return refused(405, f"this route does not take {request.method}", allowed)
    elif error.status_code == 400:
        message = "the body is no JSON"
    else:
        message = http.HTTPStatus(error.status_code).phrase.lower()
    return refused(error.status_code, message, error.headers)


def _methods_at(request: Request) -> list[str]:
    path, found = request.url.path, request.app.state.endpoints
    return sorted({method for each in found if compile_path(each.path)[0].match(path) for method in each.methods})


def _unfit(errors: Sequence[Mapping[str, Any]]) -> str:
    """The first thing that does not fit, by its place; what was sent there is not repeated."""
    first = errors[0]
    kind, *path = [str(part) for part in first["loc"]] or ["request"]
    field = ".".join(path)[:100]
    said = str(first["msg"])
    if first["type"] == "json_invalid":
        return f"the body is no JSON (at byte {field}): {first.get('ctx', {}).get('error', '')}"
    if first["type"] in ("value_error", "assertion_error"):
        said = "the value is not accepted"
    where = f"{kind} parameter" if kind in ("query", "path", "header", "cookie") else kind
    others = ", ".join(repr(".".join(map(str, error["loc"][1:]))[:100]) for error in errors[1:4])
    more = f" (and {len(errors) - 1} more: {others})" if len(errors) > 1 else ""
    return f"{where} {field!r}: {said}{more}" if field else f"{where}: {said}{more}"
