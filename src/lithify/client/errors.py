"""Errors of a service as the errors that the same call raises on a local lake.

The class comes from `code`. What the service adds (its request id, the status, what to do) is in `details`. An answer
that is not the service's own, as a proxy may give, is told by its status.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from lithify.errors import Forbidden, InvalidRequest, LithifyError, NotFound, Unavailable

TEXT_LENGTH_MAX = 200
UNAUTHENTICATED, INTERNAL = 401, "internal"
OTHER_VERSION = ("no_such_route", "method_not_allowed")
NEEDS_TOKEN = "pass a token of this lake to lithify.connect, or set LITHIFY_TOKEN for commands"


def _kinds(root: type[LithifyError]) -> Iterator[tuple[str, type[LithifyError]]]:
    """Those of `lithify.errors`: others that happen to be loaded share their codes."""
    for kind in root.__subclasses__():
        if kind.__module__ == root.__module__:
            yield kind.code, kind
            yield from _kinds(kind)


_BY_CODE: dict[str, type[LithifyError]] = {
    **dict(_kinds(LithifyError)),
    "unauthenticated": Forbidden,
    "internal": Unavailable,
    **dict.fromkeys(OTHER_VERSION, Unavailable),
}


def error_of(status: int, body: bytes, address: str) -> LithifyError:
    """The error that an answer outside 2xx stands for."""
    document = _document(body)
    if document is None:
        return _by_status(status)(f"{address} answered {_named(status)}: {_start_of(body)}", status=status)
    kind = _BY_CODE.get(str(document["code"])) or _by_status(status)
    given = document.get("details")
    details = {str(name): value for name, value in given.items()} if isinstance(given, dict) else {}
    added = {"status": status, "request_id": document.get("id"), "what_to_do": document.get("what_to_do")}
    details |= {name: value for name, value in added.items() if value is not None}
    message = str(document["message"])
    if status == UNAUTHENTICATED:
        message += f": {NEEDS_TOKEN}"
    elif document["code"] == INTERNAL:
        message += f": it is a bug, and the server's log has its place under {document.get('id')}"
    elif document["code"] in OTHER_VERSION:
        message = f"{address}: {message}: is the service of the same version as this client?"
    for reserved in ("message", "public"):
        details.pop(reserved, None)
    return kind(message, **details)


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    known = isinstance(document, dict) and isinstance(document.get("code"), str) and "message" in document
    return document if known else None


def _by_status(status: int) -> type[LithifyError]:
    match status:
        case 401 | 403:
            return Forbidden
        case 404:
            return NotFound
        case 408 | 429:
            return Unavailable
        case _:
            return Unavailable if status >= 500 else InvalidRequest


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _start_of(body: bytes) -> str:
    text = " ".join(body[: 4 * TEXT_LENGTH_MAX].decode("utf-8", "replace").split())
    shown = "".join(c for c in text if c.isprintable())[:TEXT_LENGTH_MAX]
    return shown or "is there a Lithify service at this address?"
