"""What the service can do, for programs (`/openapi.json`) and for people (`/docs`), without anything from elsewhere.

The page is made from the document: no script, nothing to download. Every operation is said to answer its failures in
the one shape, in place of what the framework would say.
"""

from __future__ import annotations

import html
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from lithify.http.access import public

DESCRIPTION = (
    "Row-level changes on plain Delta tables, read fresh. Every route under /v1 takes a bearer token with the scope "
    "that it names. Integers beyond ±2^53, decimals and times travel as texts."
)
METHODS = ("get", "post", "put", "patch", "delete")
ERROR = {
    "title": "Error",
    "type": "object",
    "required": ["code", "message", "what_to_do", "id"],
    "properties": {
        "code": {"type": "string", "description": "Stable: programs may compare it."},
        "message": {"type": "string", "description": "Names the thing. Without values of rows."},
        "what_to_do": {"type": "string", "description": "For a person who meets this."},
        "id": {"type": "string", "description": "The request's id, as in the log and the X-Request-Id header."},
        "details": {"type": "object", "description": "Which limit, cycle or row it is about."},
    },
    "example": {
        "code": "not_found",
        "message": "table shop.order does not exist in this lake",
        "what_to_do": "Check the name; GET /v1/tables lists the tables that there are.",
        "id": "5f3a0c1d9e7b2a46",
    },
}
_FAILURES = {
    "400": "The request does not fit: fix it.",
    "401": "No valid token.",
    "403": "The token lacks the scope, or the table.",
    "404": "There is no such thing.",
    "default": "Any other failure, in the same shape.",
}

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def openapi(request: Request, _: Annotated[None, public()]) -> Response:
    return Response(orjson.dumps(request.app.openapi()), media_type="application/json")


@router.get("/docs")
async def docs(request: Request, _: Annotated[None, public()]) -> HTMLResponse:
    return HTMLResponse(page(request.app.openapi()))


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """The framework's document with our failures in it."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = ERROR
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path in document["paths"].values():
        for method in METHODS:
            if method in path:
                responses = path[method]["responses"]
                if "HTTPValidationError" in str(responses.get("422", "")):
                    del responses["422"]
                for status, description in _FAILURES.items():
                    responses.setdefault(status, {"description": description, "content": content})
    return document


def failing(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """What a route may fail with besides what all of them may: `failing(_409="It is running already.")`."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {int(name[1:]): {"description": text, "content": content} for name, text in descriptions.items()}


def page(document: dict[str, Any]) -> str:
    said = html.escape
    parts = [f"<h1>{said(document['info']['title'])} {said(document['info']['version'])}</h1>"]
    parts.append(f"<p>{said(document['info'].get('description', ''))} <a href='/openapi.json'>openapi.json</a></p>")
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                parts.append(_operation(path, method, methods[method]))
    return f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Lithify</title>{_STYLE}{''.join(parts)}</html>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    said = html.escape
    lines = [f"<h2><b>{method.upper()}</b> <code>{said(path)}</code></h2><p>{said(operation.get('summary', ''))}</p>"]
    if text := operation.get("description"):
        lines.append(f"<p class='more'>{said(text)}</p>")
    rows = [
        (f"{each['in']} {each['name']}", "required" if each.get("required") else "", each.get("description", ""))
        for each in operation.get("parameters", ())
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", kind, _example(content)))
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            if status not in _FAILURES:
                rows.append((f"answer {status}", kind, _example(content) or response.get("description", "")))
    cells = ("<tr>" + "".join(f"<td>{said(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return "".join(lines) + f"<table>{''.join(cells)}</table>"


def _example(content: dict[str, Any]) -> str:
    found = content.get("example")
    if found is None and content.get("examples"):
        found = next(iter(content["examples"].values())).get("value")
    if found is None:
        return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]
    return found if isinstance(found, str) else orjson.dumps(found).decode()


_STYLE = """<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1d21 }
h2 { font-size: 1rem; margin: 2rem 0 .2rem; border-top: 1px solid #d8dce1; padding-top: .8rem }
p { margin: .2rem 0 } .more { white-space: pre-line; color: #4a525c }
code, td { font: 13px ui-monospace, monospace }
td { padding: .1rem .8rem .1rem 0; vertical-align: top; word-break: break-word }
</style>"""
