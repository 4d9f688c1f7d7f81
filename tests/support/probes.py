"""Routes for tests of what stands around all routes: they echo, fail and crash on request."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel

from lithify import errors
from lithify.http.auth import Caller, needs
from lithify.http.bodies import BodyDep, json_of

SECRET = "s3cr3t-value"


class Order(BaseModel):
    id: int


def add_probes(app: FastAPI) -> None:
    router = APIRouter(prefix="/probe")

    @router.post("/size")
    def size(body: BodyDep, _: Annotated[Caller, needs("read")]) -> int:
        return len(body)

    @router.post("/json")
    def parsed(body: BodyDep, _: Annotated[Caller, needs("read")]) -> Any:
        return json_of(body)

    @router.post("/order")
    def order(body: Order, _: Annotated[Caller, needs("read")], limit: int = 1) -> int:
        return body.id

    @router.post("/unread")
    async def unread(_: Annotated[Caller, needs("read")]) -> str:
        return "not looked at"

    @router.get("/crash")
    def crash(_: Annotated[Caller, needs("read")]) -> None:
        raise KeyError(SECRET)

    @router.get("/raise/{kind}")
    def fail(kind: str, _: Annotated[Caller, needs("read")], limit: str | None = None) -> None:
        details = {} if limit is None else {"limit": limit}
        raise getattr(errors, kind)(f"{SECRET} stands in the way", public="something stands in the way", **details)

    @router.get("/raise-plain/{kind}")
    def fail_plainly(kind: str, _: Annotated[Caller, needs("read")]) -> None:
        raise getattr(errors, kind)(f"cannot compute {SECRET}")

    @router.get("/tables/{name}")
    def table(name: str, caller: Annotated[Caller, needs("read", table=True)]) -> str:
        return caller.token.name

    @router.get("/each")
    def each(caller: Annotated[Caller, needs("read", per_table=True)]) -> dict[str, bool]:
        return {name: caller.may("read", name) for name in ("shop.orders", "shop.lines", "log.events")}

    @router.get("/write")
    def write(caller: Annotated[Caller, needs("write")]) -> str:
        return caller.token.id

    @router.get("/status")
    def status(caller: Annotated[Caller, needs("read", "maintain")]) -> str:
        return caller.token.name

    @router.get("/wait/{seconds}")
    async def wait(seconds: float, _: Annotated[Caller, needs("read")]) -> str:
        app.state.waiting.set()
        await asyncio.sleep(seconds)
        return "waited"

    @router.get("/hold")
    def hold(_: Annotated[Caller, needs("read")]) -> str:
        app.state.waiting.set()
        app.state.hold.wait(120)
        return "held"

    app.include_router(router)
