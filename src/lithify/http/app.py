"""The app: what stands around every request, and the routes inside.

From the outside in: measures (`MeasureRequests`), an id and a log line (`Frame`), the Host header (`Hosts`), the bounds
of the body (`Bodies`), the token (`Access`), then the route with its scope. Query parameters that a route does not know
are refused: a misspelt `limit` or `as_of` must not be read as none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from lithify import __version__
from lithify.errors import InvalidRequest
from lithify.http import openapi as describe
from lithify.http.auth import Access, Need, Public, endpoints_of
from lithify.http.bodies import Bodies
from lithify.http.errors import add_handlers
from lithify.http.events import TableEvents
from lithify.http.hosts import Hosts
from lithify.http.logs import Frame
from lithify.http.metrics import MeasureRequests, Metrics
from lithify.http.routes import (
    cache,
    console,
    erasures,
    events,
    feed,
    files,
    health,
    history,
    maintenance,
    options,
    pipelines,
    quarantine,
    query,
    rows,
    session,
    statements,
    table_maintenance,
    tables,
    tags,
)
from lithify.http.routes import lake as lake_routes
from lithify.http.routes import tokens as token_routes
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from lithify.lake.lake import Lake
from lithify.settings import Settings

V1 = "/v1"
MAINTENANCE, ITS_EARLIER_NAME = f"{V1}/maintenance", f"{V1}/compaction"
# They are tried in this order: what is called most comes first. No path of one matches another's.
ROUTERS: tuple[tuple[APIRouter, str], ...] = (
    *(
        (module.router, V1)
        for module in (
            *(rows, feed, statements, query, tables, cache, history, files, tags, quarantine),
            *(table_maintenance, options, pipelines, lake_routes, events, erasures, token_routes, session),
        )
    ),
    *((maintenance.router, prefix) for prefix in (MAINTENANCE, ITS_EARLIER_NAME)),
    (health.router, ""),
    (describe.router, ""),
)


def create_app(lake: Lake, settings: Settings, tokens: Tokens, *, with_console: bool = True) -> FastAPI:
    metrics = Metrics(lake)
    routers = (*ROUTERS, (console.router, "")) if with_console else ROUTERS
    endpoints = tuple(found for router, prefix in routers for found in endpoints_of(router, prefix))
    open_to_all = frozenset(found.path for found in endpoints if isinstance(found.marker, Public))
    app = FastAPI(
        title="Lithify",
        version=__version__,
        description=describe.DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(MeasureRequests, metrics=metrics),
            Middleware(Frame, root=lake.path),
            Middleware(Hosts, host=settings.host, allowed=settings.allowed_hosts),
            Middleware(Bodies, bytes_max=settings.body_bytes_max),
            Middleware(Access, tokens=tokens, public_paths=open_to_all),
        ],
    )
    app.state.service = service = Service(lake, settings, tokens, metrics)
    lake.on_change(TableEvents(service.events))
    app.state.endpoints = endpoints
    app.state.templates = {}
    for found in endpoints:
        app.state.templates.setdefault(found.function, []).append(found.path)
    for router, prefix in routers:
        checks = [Depends(only_known_parameters)] if prefix else []
        app.include_router(router, prefix=prefix, dependencies=checks, deprecated=prefix == ITS_EARLIER_NAME or None)
    add_handlers(app, lake.path)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    scopes = {
        (method, found.path): found.marker.scopes
        for found in app.state.endpoints
        for method in found.methods
        if isinstance(found.marker, Need)
    }

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            app.openapi_schema = describe.completed(document, scopes)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)


async def only_known_parameters(request: Request) -> None:
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return
    known = set(_names(route.dependant))
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise InvalidRequest(f"this route has no query parameter {unknown[:100]!r}: {takes}")
