"""What the service can do, for programs (`/openapi.json`) and for people (`/docs`), without anything from elsewhere.

The page is made from the document: no script, nothing to download. Every operation is said to answer its failures in
the one shape, in place of what the framework would say.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Request
from starlette.responses import HTMLResponse, Response

from lithify.http.auth import public

DESCRIPTION = (
    "Row-level changes on plain Delta tables, read fresh. Every route under /v1 takes a bearer token with the scope "
    "that it names. Integers beyond ±2^53, decimals and times travel as texts."
)
METHODS = ("get", "post", "put", "patch", "delete")
SHAPE_DEPTH = 3
_ORDER = (  # of the page: beginnings of paths, with a blank where they end
    *(
        "/v1/tables ",
        "/v1/tables/{name} ",
        "/v1/tables/{name}/row",
        "/v1/tables/{name}/delete",
        "/v1/tables/{name}/changes",
    ),
    *("/v1/query/sql", "/v1/query/results", "/v1/query/explain", "/v1/query/running", "/v1/query/{id}"),
    *("/v1/tables", "/v1/maintenance", "/v1/pipelines", "/v1/query/cache", "/v1/compaction"),
)
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
        "what_to_do": "Check the name, key or id; GET /v1/tables lists the tables that there are.",
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


def completed(document: dict[str, Any], scopes: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, Any]:
    """The framework's document with our failures in it, and with the scopes of which a caller needs one."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = ERROR
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for name, path in document["paths"].items():
        for method in METHODS:
            if method in path:
                responses = path[method]["responses"]
                if (method.upper(), name) in scopes:
                    path[method]["x-scopes"] = list(scopes[method.upper(), name])
                if "HTTPValidationError" in str(responses.get("422", "")):
                    del responses["422"]
                for status, description in _FAILURES.items():
                    responses.setdefault(status, {"description": description, "content": content})
    return document


NO_JSON = "The body is no application/json."


def failing(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """What a route may fail with besides what all of them may: `failing(_409="It is running already.")`."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {int(name[1:]): {"description": text, "content": content} for name, text in descriptions.items()}


def body_like(examples: Mapping[str, Any]) -> Any:
    """A request's body: values of it, by what they show."""
    return Body(openapi_examples={shown: {"summary": shown, "value": value} for shown, value in examples.items()})


def page(document: dict[str, Any]) -> str:
    said = html.escape
    schemas = document.get("components", {}).get("schemas", {})
    found = sorted(
        (
            (path, method, methods[method])
            for path, methods in document["paths"].items()
            for method in METHODS
            if method in methods
        ),
        key=lambda operation: _order(operation[0]),
    )
    parts = [f"<h1>{said(document['info']['title'])} {said(document['info']['version'])}</h1>"]
    parts.append(f"<p>{said(document['info'].get('description', ''))} <a href='/openapi.json'>openapi.json</a></p>")
    entries = (
        f"<tr><td>{method.upper()}</td><td><a href='#{_anchor(path, method)}'>{said(path)}</a></td>"
        f"<td>{said(operation.get('summary', ''))}</td></tr>"
        for path, method, operation in found
    )
    parts.append(f"<table>{''.join(entries)}</table>")
    parts.extend(_operation(path, method, operation, schemas) for path, method, operation in found)
    return f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Lithify</title>{_STYLE}{''.join(parts)}</html>"


def _order(path: str) -> int:
    """What is wanted first stands first."""
    return next((n for n, start in enumerate(_ORDER) if f"{path} ".startswith(start)), len(_ORDER))


def _anchor(path: str, method: str) -> str:
    return method + "".join(letter if letter.isalnum() else "-" for letter in path)


def _operation(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    said = html.escape
    title = f"<b>{method.upper()}</b> <code>{said(path)}</code>"
    lines = [f"<h2 id='{_anchor(path, method)}'>{title}</h2><p>{said(operation.get('summary', ''))}</p>"]
    if text := operation.get("description"):
        lines.append(f"<p class='more'>{said(text)}</p>")
    rows = [("scope", " or ".join(operation["x-scopes"]), "")] if operation.get("x-scopes") else []
    rows += [
        (f"{each['in']} {each['name']}", "required" if each.get("required") else "", each.get("description", ""))
        for each in operation.get("parameters", ())
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", kind, _example(content)))
        rows += _fields(content.get("schema", {}), schemas)
    failures = []
    for status, response in operation["responses"].items():
        if not status.startswith("2"):
            failures += [] if status in _FAILURES else [f"{status}: {response.get('description', '')}"]
            continue
        for kind, content in response.get("content", {}).items():
            shape = _example(content) or _shape(content.get("schema", {}), schemas, SHAPE_DEPTH)
            rows.append((f"answer {status}", kind, shape or response.get("description", "")))
    if failures:
        rows.append(("fails with", "", " ".join(failures)))
    cells = ("<tr>" + "".join(f"<td>{said(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return "".join(lines) + f"<table>{''.join(cells)}</table>"


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What a body may have, field by field."""
    schema = _resolved(schema, schemas)
    required = schema.get("required", ())
    return [
        (f"body {name}", "required" if name in required else "", field.get("description") or _shape(field, schemas, 2))
        for name, field in schema.get("properties", {}).items()
    ]


def _shape(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> str:
    """A schema in one line: {"table": string, "rows": integer, "tables": [{…}]}."""
    schema = _resolved(schema, schemas)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(_shape(choice, schemas, depth) for choice in choices))
    if schema.get("properties"):
        if depth == 0:
            return "{…}"
        inner = (f'"{name}": {_shape(each, schemas, depth - 1)}' for name, each in schema["properties"].items())
        return "{" + ", ".join(inner) + "}"
    if schema.get("type") == "array":
        return f"[{_shape(schema.get('items', {}), schemas, depth)}]"
    if schema.get("format") == "binary":
        return ""
    return orjson.dumps(schema["const"]).decode() if "const" in schema else str(schema.get("type", "any"))


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for; what is one choice or null, as that choice."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        schema = choices[0]
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return dict(schemas.get(name, {})) if name else schema


def _example(content: dict[str, Any]) -> str:
    found = content.get("example")
    if found is None and content.get("examples"):
        found = next(iter(content["examples"].values())).get("value")
    if found is None:
        return ""
    return found if isinstance(found, str) else orjson.dumps(found).decode()


_STYLE = """<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1d21 }
h2 { font-size: 1rem; margin: 2rem 0 .2rem; border-top: 1px solid #d8dce1; padding-top: .8rem }
p { margin: .2rem 0 } .more { white-space: pre-line; color: #4a525c }
code, td { font: 13px ui-monospace, monospace }
td { padding: .1rem .8rem .1rem 0; vertical-align: top; word-break: break-word }
</style>"""
