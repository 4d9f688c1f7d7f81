"""/openapi.json is complete, and /docs shows it without anything from elsewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify.http.console.files import console_files
from lithify.http.openapi import METHODS, page


@pytest.fixture
def document(stranger: TestClient) -> dict[str, Any]:
    return dict(stranger.get("/openapi.json").json())


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, methods[method])
        for path, methods in document["paths"].items()
        for method in METHODS
        if method in methods
    ]


def test_every_route_is_described_but_the_descriptions(document: dict[str, Any], app: FastAPI) -> None:
    described = {(method.upper(), path) for method, path, _ in operations(document)}
    known = {(method, found.path) for found in app.state.endpoints for method in found.methods}

    files = {("GET", path) for path in console_files()}
    assert known - described == {("GET", "/docs"), ("GET", "/openapi.json"), *files}


def test_every_operation_says_what_it_is(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["summary"], (method, path)
        # The framework makes one of the function's name, each word with a capital.
        assert not re.fullmatch(r"[A-Z][a-z]+( [A-Z][a-z]+)+", operation["summary"]), (method, path)


def test_failures_have_the_one_shape(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        failures = {status: each for status, each in operation["responses"].items() if not status.startswith("2")}
        assert {"400", "401", "403", "404", "default"} <= set(failures), (method, path)
        for each in failures.values():
            assert each["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    named = set(re.findall(r"#/components/schemas/([A-Za-z0-9_.-]+)", str(document)))

    assert named <= set(document["components"]["schemas"])


def test_what_is_not_public_takes_a_bearer_token(document: dict[str, Any]) -> None:
    without = {path for _, path, operation in operations(document) if not operation.get("security")}

    assert without == {"/health/live", "/health/ready", "/v1/session"}
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_the_page_shows_every_operation(stranger: TestClient, document: dict[str, Any]) -> None:
    text = stranger.get("/docs").text

    for method, path, _ in operations(document):
        assert f"<b>{method.upper()}</b> <code>{path}</code>" in text


def test_the_page_loads_nothing(stranger: TestClient) -> None:
    answer = stranger.get("/docs")

    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|src=", answer.text)


def test_whatever_the_descriptions_hold_is_text() -> None:
    document = {
        "info": {"title": "<b>t", "version": "1", "description": "<script>"},
        "paths": {"/<x>": {"get": {"summary": "<i>", "description": "'<", "responses": {}}}},
    }

    text = page(document)

    assert "<script>" not in text
    assert "<i>" not in text
    assert "/<x>" not in text


def test_every_operation_with_a_token_names_its_scope(stranger: TestClient, document: dict[str, Any]) -> None:
    named = {(method, path): operation.get("x-scopes") for method, path, operation in operations(document)}

    assert named["get", "/v1/tables/{name}/rows"] == ["read"]
    assert named["get", "/metrics"] == ["read", "maintain"]
    assert {path for (_, path), scopes in named.items() if not scopes} == {
        "/health/live",
        "/health/ready",
        "/v1/session",
    }
    assert "<td>scope</td><td>read or maintain</td>" in stranger.get("/docs").text


def test_the_page_shows_what_is_in_bodies_and_answers(stranger: TestClient) -> None:
    text = stranger.get("/docs").text

    assert "<td>body rows_max</td>" in text
    assert "{&quot;id&quot;: string, &quot;cancelled&quot;: true}" in text
    assert "Document<" not in text
