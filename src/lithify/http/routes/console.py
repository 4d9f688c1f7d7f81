"""The console's files. Each has a route of its own, so that nothing but these paths is public."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import Response

from lithify.http.auth import public
from lithify.http.console.files import console_files

router = APIRouter(include_in_schema=False)


async def file(request: Request, _: Annotated[None, public()]) -> Response:
    return console_files()[request.scope["path"]].response(request)


for path in console_files():
    router.add_api_route(path, file, methods=["GET"])
