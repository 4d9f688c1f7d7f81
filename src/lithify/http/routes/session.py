"""Signing in to the console with the code that `lithify serve` printed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from lithify.http.auth import BAD_CODE, public
from lithify.http.console.sign_in import CODE_LENGTH_MAX
from lithify.http.documents.lake import SessionDocument, caller_document
from lithify.http.documents.tables import Order, Text
from lithify.http.errors import Refusal
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.query import TakesJson
from lithify.http.service import ServiceDep

router = APIRouter(prefix="/session", tags=["tokens"], route_class=JsonRoute)


class SignInOrder(Order):
    """The code of an address that `lithify serve` printed."""

    code: Text = Field(
        description="What stands behind `#code=` in the address.",
        min_length=1,
        max_length=CODE_LENGTH_MAX,
        examples=["q0Vw8Qe1s2…"],
    )


@router.post(
    "",
    summary="Exchange a sign-in code for a token",
    status_code=201,
    responses=failing(_415=NO_JSON),
    dependencies=[TakesJson],
)
def sign_in(
    order: Annotated[SignInOrder, body_like({"A code": {"code": "q0Vw8Qe1s2"}})],
    service: ServiceDep,
    _: Annotated[None, public()],
) -> SessionDocument:
    """A code is good once, and for 60 seconds; the token for 8 hours. 401 for any other code."""
    found = service.sign_in.exchange(order.code)
    if found is None:
        raise Refusal(401, BAD_CODE)
    token, secret = found
    return SessionDocument(secret=secret, **caller_document(token).model_dump())
