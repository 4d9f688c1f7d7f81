"""Who may ask now: queries that run or wait are counted, in all and by token, and one too many is refused at once.

Ids of queries carry the token's id inside the lake, so that callers see and cancel only their own.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from lithify.errors import Cancelled, Conflict, LimitExceeded
from lithify.http.auth import Caller
from lithify.http.service import Service

# Beyond those that run: they wait in line inside the lake, for a bounded time.
WAITING_MAX = 60
SEPARATOR = ":"
# How often a running query's token is looked at, and how soon one that was to be cancelled is cancelled again.
LOOK_S, CANCEL_AGAIN_S = 0.5, 0.05


def inner_id(caller: Caller, id: str) -> str:
    return f"{caller.token.id}{SEPARATOR}{id}"


def outer_id(caller: Caller, id: str) -> str | None:
    """The id by which this caller knows a query of its own."""
    own = caller.token.id + SEPARATOR
    return id.removeprefix(own) if id.startswith(own) else None


@contextlib.contextmanager
def admitted(service: Service, caller: Caller, id: str | None = None) -> Iterator[str]:
    """The id that the lake knows the query by. Errors tell the caller's own."""
    settings, token = service.settings, caller.token.id
    known = id or uuid.uuid4().hex
    inner = inner_id(caller, known)
    with service.asking_lock:
        if service.asking.total() >= settings.queries_max + WAITING_MAX:
            raise LimitExceeded("too many queries wait already: send it again after a moment", limit="queue")
        if service.asking[token] >= settings.token_queries + settings.token_waiting_max:
            raise LimitExceeded(
                "too many queries of this token wait already (token_waiting_max): send it again after a moment",
                limit="queue",
            )
        service.asking[token] += 1
    try:
        yield inner
    except (Cancelled, Conflict) as error:
        raise type(error)(error.public.replace(inner, known)) from error
    finally:
        with service.asking_lock:
            service.asking[token] -= 1
            if not service.asking[token]:
                del service.asking[token]
