"""Who may call which route. Every route names its scope with `needs`, or says with `public` that it has none.

The token is looked up before anything else of a request is read (`Access`, around the whole app): without a valid one
there is nothing but the public routes. The scope is then checked by the route's own dependency. A token that is limited
to some tables passes

- a route with `table=True` if the table in its path is one of them,
- a route with `per_table=True`, which promises to ask `caller.may` or `caller.check` about every table it touches,
- and no other: those concern the lake as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from lithify.core.names import plain_name
from lithify.errors import Forbidden
from lithify.http.errors import Refusal, refused
from lithify.http.tokens import Scope, Token, Tokens

__all__ = ["Access", "Caller", "Endpoint", "Need", "Public", "Scope", "endpoints_of", "needs", "public"]

_bearer = HTTPBearer(auto_error=False, description="A token of this lake: `lithify tokens create` makes one.")


@dataclass(frozen=True)
class Caller:
    token: Token

    def may(self, scope: Scope, table: str | None = None) -> bool:
        """On this table; without one, on the lake as a whole."""
        return self.token.allows(scope, table)

    def may_read(self, table: str) -> bool:
        return self.may("read", table)

    def check(self, scope: Scope, table: str | None = None) -> None:
        if not self.may(scope, table):
            what = f"table {table}" if table is not None else "the lake as a whole"
            raise Forbidden(f"token {self.token.name} does not have the scope {scope} for {what}")


class Need:
    """The scopes of which a caller needs one, or every one, as a dependency that answers the caller."""

    def __init__(self, scopes: tuple[Scope, ...], table: bool, per_table: bool, every: bool) -> None:
        self.scopes, self.table, self.per_table, self.every = scopes, table, per_table, every
        self._enough = all if every else any

    async def __call__(self, request: Request, _: Annotated[Any, Depends(_bearer)] = None) -> Caller:
        caller = cast("Caller | None", getattr(request.state, "caller", None))
        if caller is None:
            raise Refusal(401, NO_TOKEN, CHALLENGE)
        table = plain_name(str(request.path_params["name"])) if self.table else None
        if self.per_table:
            allowed = self._enough(caller.token.has(scope) for scope in self.scopes)
        else:
            allowed = self._enough(caller.may(scope, table) for scope in self.scopes)
        if not allowed:
            which = (" and " if self.every else " or ").join(self.scopes)
            if self._enough(caller.token.has(scope) for scope in self.scopes):
                where = f"table {table}" if table is not None else "the lake as a whole, only for some of its tables"
                raise Forbidden(f"token {caller.token.name} does not have the scope {which} for {where}")
            raise Forbidden(f"token {caller.token.name} does not have the scope {which}")
        return caller


class Public:
    async def __call__(self) -> None:
        return None


def needs(scope: Scope, *others: Scope, table: bool = False, per_table: bool = False, every: bool = False) -> Any:
    """A dependency that answers the `Caller`, who has one of these scopes, or every one of them.

    `table`: for the table in the path parameter `name`. `per_table`: the route checks every table it touches itself.
    """
    return Depends(Need((scope, *others), table, per_table, every))


def public() -> Any:
    return Depends(Public())


# Who may do what with the table in the path; and who sees what becomes of the tables that it has a scope for.
Reader = Annotated[Caller, needs("read", table=True)]
Writer = Annotated[Caller, needs("write", table=True)]
Maintainer = Annotated[Caller, needs("maintain", table=True)]
Watcher = Annotated[Caller, needs("read", "maintain", per_table=True)]


@dataclass(frozen=True)
class Endpoint:
    """One route as the whole app has it, and what it says about its callers: None must not be."""

    methods: tuple[str, ...]
    path: str
    marker: Need | Public | None
    function: Callable[..., Any]


def endpoints_of(router: APIRouter, prefix: str) -> Iterator[Endpoint]:
    for route in router.routes:
        if isinstance(route, APIRoute):
            calls = (dependency.call for dependency in route.dependant.dependencies)
            marker = next((call for call in calls if isinstance(call, Need | Public)), None)
            yield Endpoint(tuple(sorted(route.methods or ())), prefix + route.path, marker, route.endpoint)


CHALLENGE = {"WWW-Authenticate": 'Bearer realm="lithify"'}
NO_TOKEN = "this needs a token"
BAD_TOKEN = "the token is not valid: unknown, expired or revoked"
BAD_CODE = (
    "the sign-in code is not valid: it is good once, and for a minute; sign in with a token, or start the service anew"
)


class Access:
    """Answers 401 before anything of the body is read, unless the path is public."""

    def __init__(self, app: ASGIApp, tokens: Tokens, public_paths: frozenset[str]) -> None:
        self._app, self._tokens, self._public = app, tokens, public_paths

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._public:
            await self._app(scope, receive, send)
            return
        secret = _secret(Headers(scope=scope).get("authorization", ""))
        token = self._tokens.find(secret) if secret else None
        state = scope.setdefault("state", {})
        if token is None:
            failure = refused(401, BAD_TOKEN if secret else NO_TOKEN, CHALLENGE)
            state["code"] = failure.code
            await failure.response(state["id"])(scope, receive, send)
            return
        state["caller"], state["token_id"] = Caller(token), token.id
        await self._app(scope, receive, send)


def _secret(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
