"""Query parameters that a route does not know are refused: a misspelt `limit` or `as_of` must not be read as none."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from lithify.errors import InvalidRequest


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
