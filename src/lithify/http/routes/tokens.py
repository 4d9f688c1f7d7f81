"""Tokens over HTTP: list, make, revoke. Only for an admin of the whole lake; a secret is answered once."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from lithify.http.auth import Caller, needs
from lithify.http.documents.lake import CallerDocument, SessionDocument, caller_document
from lithify.http.documents.tables import Document, Order, Text
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.query import TakesJson
from lithify.http.service import Service, ServiceDep
from lithify.http.tokens import EXPIRES_S_MAX, NAME_LENGTH_MAX, TABLES_MAX, TOKENS_MAX, Scope, Token

Admin = Annotated[Caller, needs("admin")]
router = APIRouter(prefix="/tokens", tags=["tokens"], route_class=JsonRoute)
CREATE_EXAMPLE = {"name": "dashboard", "scopes": ["read"], "tables": ["shop.*"], "expires_s": 2_592_000}


class TokenDocument(CallerDocument):
    """A token, without its secret."""

    state: Literal["valid", "expired", "revoked"] = Field(description="Whether it lets anybody in.")
    revoked_at: float | None = Field(description="When it was revoked, in seconds since 1970.")
    last_used_at: float | None = Field(
        description="When this service last let it in, in seconds since 1970; null: not since it began."
    )


class TokensDocument(Document):
    """Tokens of the lake."""

    tokens: list[TokenDocument] = Field(description="The newest first, at most `limit` of them.")
    more: bool = Field(description="Whether there are more.")


class CreateToken(Order):
    """A token to be made."""

    name: Text = Field(
        description="Who uses it; letters, digits and _ . @ -", max_length=NAME_LENGTH_MAX, examples=["dashboard"]
    )
    scopes: list[Scope] = Field(description="What it may do; admin includes all others.", min_length=1, max_length=5)
    tables: list[Text] = Field(
        [], description="Only these tables, or shop.* for a namespace; empty: all.", max_length=TABLES_MAX
    )
    expires_s: float | None = Field(
        None,
        gt=0,
        le=EXPIRES_S_MAX,
        description="Seconds after which it ends by itself; null: never.",
        examples=[86_400],
    )


@router.get("", summary="List the tokens")
def listed(
    service: ServiceDep,
    _: Admin,
    limit: Annotated[int, Query(description="Tokens at most.", ge=1, le=TOKENS_MAX)] = 100,
) -> TokensDocument:
    """Those that are expired or revoked too. Secrets are stored nowhere."""
    found = service.tokens.listed()[::-1]
    return TokensDocument(tokens=[_document(service, token) for token in found[:limit]], more=len(found) > limit)


@router.post(
    "",
    summary="Make a token",
    status_code=201,
    responses=failing(_415=NO_JSON),
    dependencies=[TakesJson],
)
def create(
    order: Annotated[CreateToken, body_like({"One that may read a namespace": CREATE_EXAMPLE})],
    service: ServiceDep,
    _: Admin,
) -> SessionDocument:
    """Its secret is in this answer, and nowhere else."""
    token, secret = service.tokens.create(order.name, order.scopes, order.tables, order.expires_s)
    return SessionDocument(secret=secret, **caller_document(token).model_dump())


@router.delete("/{id}", summary="Revoke a token")
def revoke(
    id: Annotated[str, Path(description="The token's id.", pattern=r"^[0-9a-f]{8}$", examples=["5f3a0c1d"])],
    service: ServiceDep,
    _: Admin,
) -> TokenDocument:
    """Within a second it lets nobody in any more, and never again. 404 for an unknown id; again, nothing changes."""
    return _document(service, service.tokens.revoke(id))


def _document(service: Service, token: Token) -> TokenDocument:
    last_used = service.tokens.last_used(token.id)
    return TokenDocument(
        **caller_document(token).model_dump(),
        state=token.state(time.time()),
        revoked_at=token.revoked_at,
        last_used_at=last_used,
    )
