"""Which scope each route needs. A new route has to be entered here, and every wrong scope is tried on it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify.http.auth import Need, Public
from lithify.http.console.files import console_files
from support.shared_service import SharedService, shared_service

ClientWith = Callable[..., TestClient]
READ, WRITE, MAINTAIN, WATCH, PUBLIC = ("read",), ("write",), ("maintain",), ("read", "maintain"), ()
ERASE = ("erase",)
SCOPES = ("read", "write", "maintain", "erase", "admin")


class Route(NamedTuple):
    """`reach`: what a token for some tables may do there. "table": the one in the path must be among them; "own": the
    route asks for each table; "lake": nothing. `every`: all of the scopes are needed, not one.
    """

    scopes: tuple[str, ...]
    reach: str
    body: Any = None
    every: bool = False


ROUTES = {
    "GET /health/live": Route(PUBLIC, "lake"),
    "GET /health/ready": Route(PUBLIC, "lake"),
    "GET /openapi.json": Route(PUBLIC, "lake"),
    "GET /docs": Route(PUBLIC, "lake"),
    **{f"GET {path}": Route(PUBLIC, "lake") for path in console_files()},
    "POST /v1/session": Route(PUBLIC, "lake"),
    "GET /v1/lake": Route(SCOPES, "own"),
    "GET /v1/schema": Route(READ, "own"),
    "GET /v1/series": Route(WATCH, "lake"),
    "GET /v1/events": Route(WATCH, "own"),
    "GET /v1/doctor": Route(("admin",), "lake"),
    "GET /v1/tokens": Route(("admin",), "lake"),
    "POST /v1/tokens": Route(("admin",), "lake", {"name": "new", "scopes": ["read"]}),
    "DELETE /v1/tokens/{id}": Route(("admin",), "lake"),
    "GET /metrics": Route(WATCH, "lake"),
    "GET /v1/tables": Route(READ, "own"),
    "POST /v1/tables": Route(WRITE, "own", {"name": "shop.new", "columns": [{"name": "id", "type": "int64"}]}),
    "GET /v1/tables/{name}": Route(("read", "write"), "table"),
    "DELETE /v1/tables/{name}": Route(("admin",), "table"),
    "POST /v1/tables/{name}/rows": Route(WRITE, "table", [{"id": 9}]),
    "POST /v1/tables/{name}/delete": Route(WRITE, "table", {"keys": [1]}),
    "POST /v1/tables/{name}/delete-where": Route(("read", "write"), "table", {"condition": "id = 1"}, every=True),
    "POST /v1/tables/{name}/restore": Route(("read", "write"), "table", {"to": 1}, every=True),
    "GET /v1/tables/{name}/row": Route(READ, "table"),
    "GET /v1/tables/{name}/rows": Route(READ, "table"),
    "GET /v1/tables/{name}/changes": Route(READ, "table"),
    "GET /v1/tables/{name}/feed": Route(READ, "table"),
    "GET /v1/tables/{name}/snapshot": Route(READ, "table"),
    "GET /v1/tables/{name}/stats": Route(READ, "table"),
    "GET /v1/tables/{name}/partitions": Route(READ, "table"),
    "GET /v1/tables/{name}/files": Route(READ, "table"),
    "GET /v1/tables/{name}/groups": Route(READ, "table"),
    "GET /v1/tables/{name}/history": Route(READ, "table"),
    "GET /v1/tables/{name}/tags": Route(READ, "table"),
    "PUT /v1/tables/{name}/tags/{tag}": Route(MAINTAIN, "table", {}),
    "DELETE /v1/tables/{name}/tags/{tag}": Route(MAINTAIN, "table"),
    "GET /v1/tables/{name}/quarantine": Route(READ, "table"),
    "GET /v1/tables/{name}/quarantine/{set_name}": Route(READ, "table"),
    "POST /v1/tables/{name}/quarantine/{set_name}/retry": Route(WRITE, "table", {}),
    "POST /v1/tables/{name}/quarantine/purge": Route(MAINTAIN, "table", {}),
    "GET /v1/tables/{name}/options": Route(("read", "write", "maintain"), "table"),
    "PUT /v1/tables/{name}/options": Route(
        ("write", "maintain"), "table", {"options": {"pack_files_min": 5}, "dry_run": True}
    ),
    "POST /v1/tables/{name}/columns": Route(
        ("admin",), "table", {"change": "add", "column": "note", "type": "string", "dry_run": True}
    ),
    "POST /v1/tables/{name}/fold": Route(MAINTAIN, "table", {"dry_run": True}),
    "POST /v1/tables/{name}/compact": Route(MAINTAIN, "table", {"dry_run": True}),
    "POST /v1/tables/{name}/optimize": Route(MAINTAIN, "table", {"dry_run": True}),
    "POST /v1/tables/{name}/vacuum": Route(MAINTAIN, "table", {"dry_run": True}),
    "POST /v1/query/sql": Route(READ, "own", {"sql": "select 1"}),
    "GET /v1/query/results/{id}": Route(READ, "own"),
    "POST /v1/query/explain": Route(READ, "own", {"sql": "select 1"}),
    "POST /v1/query/execute": Route(WRITE, "own", {"sql": "insert into shop.orders (id) values (77)", "dry_run": True}),
    "GET /v1/query/running": Route(READ, "own"),
    "POST /v1/query/{id}/cancel": Route(READ, "own"),
    "POST /v1/query/cache/pin": Route(MAINTAIN, "own", {"table": "shop.orders"}),
    "POST /v1/query/cache/unpin": Route(MAINTAIN, "own", {"table": "shop.orders"}),
    "POST /v1/query/cache/evict": Route(MAINTAIN, "own", {"table": "shop.orders"}),
    "GET /v1/query/cache/stats": Route(WATCH, "own"),
    "GET /v1/maintenance/status": Route(WATCH, "own"),
    "GET /v1/maintenance/stats": Route(WATCH, "own"),
    "GET /v1/maintenance/candidates": Route(WATCH, "own"),
    "GET /v1/maintenance/jobs": Route(WATCH, "own"),
    "POST /v1/maintenance/jobs/{id}/cancel": Route(MAINTAIN, "own"),
    "GET /v1/maintenance/history": Route(WATCH, "own"),
    "POST /v1/maintenance/trigger": Route(MAINTAIN, "own"),
    "GET /v1/pipelines": Route(WATCH, "own"),
    "GET /v1/pipelines/{pipeline}": Route(WATCH, "own"),
    "GET /v1/pipelines/{pipeline}/runs": Route(WATCH, "own"),
    "POST /v1/pipelines/{pipeline}/run": Route(WRITE, "own", {"dry_run": True}),
    "GET /v1/erasures": Route(ERASE, "own"),
    "POST /v1/erasures": Route(ERASE, "own", {"table": "shop.nothing", "keys": [1]}),
    "POST /v1/erasures/plan": Route(ERASE, "own", {"table": "shop.nothing", "keys": [1]}),
    "GET /v1/erasures/{id}": Route(ERASE, "own"),
    "GET /v1/erasures/{id}/receipt": Route(ERASE, "own"),
    "POST /v1/erasures/{id}/verify": Route(ERASE, "own", {}),
    "POST /v1/erasures/{id}/resume": Route(ERASE, "own"),
    "POST /v1/erasures/{id}/cancel": Route(ERASE, "own"),
    "GET /v1/compaction/status": Route(WATCH, "own"),
    "GET /v1/compaction/stats": Route(WATCH, "own"),
    "GET /v1/compaction/candidates": Route(WATCH, "own"),
    "GET /v1/compaction/jobs": Route(WATCH, "own"),
    "POST /v1/compaction/jobs/{id}/cancel": Route(MAINTAIN, "own"),
    "GET /v1/compaction/history": Route(WATCH, "own"),
    "POST /v1/compaction/trigger": Route(MAINTAIN, "own"),
}
GUARDED = [name for name, route in ROUTES.items() if route.scopes]
WRONG = [
    (name, scope)
    for name in GUARDED
    for scope in SCOPES
    if scope != "admin" and (ROUTES[name].every or scope not in ROUTES[name].scopes)
]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedService]:
    with shared_service() as service:
        yield service


@pytest.fixture(scope="module")
def app(shared: SharedService) -> FastAPI:
    return shared.app


@pytest.fixture(scope="module")
def client_with(shared: SharedService) -> ClientWith:
    return shared.client


@pytest.fixture(scope="module")
def stranger(shared: SharedService) -> TestClient:
    return shared.client()


def call(client: TestClient, name: str, table: str = "shop.orders") -> Any:
    method, path = name.split()
    query = {"key": 1} if path.endswith("/row") else {"column": "id"} if path.endswith("/groups") else {}
    # The others still need these tables.
    table_name = table.partition(".")[0] + ".gone" if method == "DELETE" and table == "shop.orders" else table
    path = path.replace("{name}", table_name).replace("{id}", "none").replace("{tag}", f"t{uuid.uuid4().hex}")
    body = ROUTES[name].body
    return client.request(method, path, params=query, json=body)


def test_every_route_is_entered_with_its_scope(app: FastAPI) -> None:
    found = {}
    for endpoint in app.state.endpoints:
        marker = endpoint.marker
        assert marker is not None, f"{endpoint.path} says neither needs(...) nor public()"
        (method,) = endpoint.methods
        if isinstance(marker, Public):
            found[f"{method} {endpoint.path}"] = (PUBLIC, "lake", False)
        else:
            assert isinstance(marker, Need)
            reach = "table" if marker.table else "own" if marker.per_table else "lake"
            found[f"{method} {endpoint.path}"] = (marker.scopes, reach, marker.every)
    assert found == {name: (route.scopes, route.reach, route.every) for name, route in ROUTES.items()}


def test_nothing_is_served_besides(stranger: TestClient) -> None:
    """What the framework would add by itself, like its own page of documentation, has no scope."""
    entered = {path.split(" ")[1] for path in ROUTES}
    for path in ("/redoc", "/docs/oauth2-redirect", "/v1/docs", "/v1/openapi.json"):
        assert path not in entered
        assert stranger.get(path).status_code == 401


@pytest.mark.parametrize("name", GUARDED)
def test_without_a_token(stranger: TestClient, name: str) -> None:
    answer = call(stranger, name)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("name", "scope"), WRONG)
def test_with_a_wrong_scope(client_with: ClientWith, name: str, scope: str) -> None:
    answer = call(client_with(scope), name)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("name", GUARDED)
def test_each_right_scope_and_admin_are_let_in(client_with: ClientWith, name: str) -> None:
    route = ROUTES[name]
    for scopes in [("admin",), *([route.scopes] if route.every else [(scope,) for scope in route.scopes])]:
        assert call(client_with(*scopes), name).status_code not in (401, 403)


@pytest.mark.parametrize("name", [name for name in GUARDED if "{name}" in name])
def test_a_token_for_another_table(client_with: ClientWith, name: str) -> None:
    limited = client_with(*ROUTES[name].scopes, table="log.none")
    assert call(limited, name).status_code == 403
    assert call(limited, name, "log.none").status_code == 404


@pytest.mark.parametrize("name", [name for name in GUARDED if ROUTES[name].reach == "lake"])
def test_a_token_for_some_tables_has_no_right_to_the_lake(client_with: ClientWith, name: str) -> None:
    assert call(client_with("admin", table="shop.*"), name).status_code == 403


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("POST /v1/query/sql", {"sql": "select * from shop.orders"}),
        ("POST /v1/query/explain", {"sql": "select * from shop.orders"}),
        ("POST /v1/query/sql", {"sql": "select 1 from log.events, lake.shop.orders"}),
        ("POST /v1/tables", {"name": "shop.new", "columns": [{"name": "id", "type": "int64"}]}),
        ("POST /v1/query/cache/pin", {"table": "shop.orders"}),
        ("POST /v1/query/cache/unpin", {"table": "shop.orders"}),
        ("POST /v1/query/cache/evict", {"table": "shop.orders"}),
        ("POST /v1/query/cache/evict", {}),
        ("POST /v1/erasures", {"table": "shop.orders", "keys": [1]}),
        ("POST /v1/erasures/plan", {"table": "shop.orders", "keys": [1]}),
    ],
)
def test_a_table_that_a_body_names(client_with: ClientWith, name: str, body: Any) -> None:
    limited = client_with("read", "write", "maintain", "erase", table="log.events")
    method, path = name.split()
    answer = limited.request(method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_no_name_of_another_table_is_told(client_with: ClientWith) -> None:
    limited = client_with("read", table="log.events")
    assert limited.get("/v1/tables").json()["tables"] == ["log.events"]
    answer = limited.post("/v1/query/sql", json={"sql": "select * from information_schema.tables"})
    assert "orders" not in answer.text
