"""Who gets in: the token first, then the scope, then the table; and the name that the service is called by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.testclient import TestClient

from lithify.http.auth import Need, Public, endpoints_of, needs
from lithify.http.console.files import console_files
from lithify.http.hosts import Hosts
from lithify.http.tokens import Tokens
from support.probes import add_probes

ClientWith = Callable[..., TestClient]
BASE_URL = "http://127.0.0.1"


@pytest.fixture(autouse=True)
def _probes(app: FastAPI) -> None:
    add_probes(app)


@pytest.mark.parametrize(
    "path",
    ["/v1/tables", "/metrics", "/probe/write", "/nowhere", "/health", "/docs/x", f"{BASE_URL}//docs", f"{BASE_URL}//"],
)
def test_without_a_token_there_is_nothing(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)

    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/docs", "/openapi.json"])
def test_but_what_is_public(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 200


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer lith_wrong", "Basic dXNlcjpwYXNz", "lith_wrong", "Bearer lith_\xff"]
)
def test_a_header_that_is_no_valid_token(stranger: TestClient, header: str) -> None:
    answer = stranger.get("/probe/status", headers={"Authorization": header.encode("latin-1")})

    assert answer.status_code == 401
    assert "lith_wrong" not in answer.text


def test_the_scheme_may_be_spelled_in_any_case(stranger: TestClient, tokens: Tokens) -> None:
    _, secret = tokens.create("a", ["read"])

    assert stranger.get("/probe/status", headers={"Authorization": f"bearer {secret}"}).status_code == 200


def test_a_token_in_the_address_is_none(stranger: TestClient, tokens: Tokens) -> None:
    _, secret = tokens.create("a", ["read"])

    assert stranger.get(f"/probe/status?token={secret}&access_token={secret}").status_code == 401


def test_a_token_that_is_revoked_while_the_service_runs(client_with: ClientWith, tokens: Tokens) -> None:
    client = client_with("read")
    assert client.get("/probe/status").status_code == 200

    tokens.revoke("read")

    assert client.get("/probe/status").status_code == 401


def test_a_damaged_file_of_tokens_is_said_and_lets_nobody_in(client: TestClient, tokens: Tokens) -> None:
    tokens.path.write_text("{")
    tokens._looked_at = float("-inf")

    answer = client.get("/probe/status")

    assert answer.status_code == 424
    assert answer.json()["code"] == "corruption"
    assert answer.json()["message"].startswith("_lithify/tokens.json is damaged")
    assert client.get("/health/live").status_code == 200


def test_a_scope_that_the_token_lacks(client_with: ClientWith) -> None:
    answer = client_with("read").get("/probe/write")

    assert answer.status_code == 403
    assert answer.json()["code"] == "forbidden"
    assert "write" in answer.json()["message"]


def test_write_does_not_include_read(client_with: ClientWith) -> None:
    assert client_with("write").get("/probe/tables/shop.orders").status_code == 403


def test_admin_includes_all(client_with: ClientWith) -> None:
    client = client_with("admin")

    assert [client.get(f"/probe/{path}").status_code for path in ("write", "status", "tables/a.b")] == [200] * 3


def test_one_of_several_scopes_is_enough(client_with: ClientWith) -> None:
    assert client_with("maintain").get("/probe/status").status_code == 200
    assert client_with("write").get("/probe/status").status_code == 403


@pytest.mark.parametrize(("table", "status"), [("shop.orders", 200), ("log.events", 403), ("shop.orders%2f..", 403)])
def test_a_token_of_one_table(client_with: ClientWith, table: str, status: int) -> None:
    assert client_with("read", table="shop.orders").get(f"/probe/tables/{table}").status_code in (status, 404)


def test_a_token_of_one_table_has_no_right_to_the_whole_lake(client_with: ClientWith) -> None:
    answer = client_with("read", table="shop.orders").get("/probe/status")

    assert answer.status_code == 403
    assert "the lake as a whole" in answer.json()["message"]


def test_even_as_admin(client_with: ClientWith) -> None:
    assert client_with("admin", table="shop.*").get("/probe/write").status_code == 403


def test_a_route_that_checks_each_table_itself(client_with: ClientWith) -> None:
    answer = client_with("read", table="shop.*").get("/probe/each")

    assert answer.json() == {"shop.orders": True, "shop.lines": True, "log.events": False}


def test_the_token_comes_before_the_parameters(stranger: TestClient, client_with: ClientWith) -> None:
    """Who may not call a route learns nothing of what it takes."""
    assert stranger.post("/probe/order?limit=x", json={"id": "x"}).status_code == 401
    assert client_with("write").post("/probe/order?limit=x", json={"id": 1}).status_code == 403


def test_every_route_says_who_may_call_it(app: FastAPI) -> None:
    silent = [(found.methods, found.path) for found in app.state.endpoints if found.marker is None]

    assert silent == []
    assert {found.path for found in app.state.endpoints if isinstance(found.marker, Public)} == {
        "/health/live",
        "/health/ready",
        "/docs",
        "/openapi.json",
        "/v1/session",
        *console_files(),
    }


def test_every_described_operation_is_among_them(app: FastAPI) -> None:
    described = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if not path.startswith("/probe")
    }
    known = {(method, found.path) for found in app.state.endpoints for method in found.methods}

    assert described <= known


def test_a_route_that_takes_the_table_of_its_path_has_one(app: FastAPI) -> None:
    for found in app.state.endpoints:
        if isinstance(found.marker, Need) and found.marker.table:
            assert "{name}" in found.path


def test_a_route_without_a_word_about_it_is_noticed() -> None:
    router = APIRouter()

    @router.get("/said")
    def said(_: Annotated[object, needs("read")]) -> None: ...

    @router.get("/silent")
    def silent(_: Annotated[object, Depends(lambda: 1)]) -> None: ...

    assert {found.path: found.marker is None for found in endpoints_of(router, "/v1")} == {
        "/v1/said": False,
        "/v1/silent": True,
    }


class TestHost:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "[::1]"]
    )
    def test_this_machine(self, client: TestClient, host: str) -> None:
        assert client.get("/health/live", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "",
            "localhost@evil",
            "10.0.0.1",
            "[::2]",
            "[::1].evil.com",
            "[::1]evil.com:80",
            "[::1]:80.evil.com",
            "[::1",
            "localhost:80.evil.com",
            "localhost:evil.com",
            "localhost:80:80",
            "localhost/evil",
        ],
    )
    def test_a_name_that_somebody_else_points_here(self, client: TestClient, host: str) -> None:
        answer = client.get("/health/live", headers={"Host": host})

        assert answer.status_code == 421
        assert answer.json()["code"] == "wrong_host"
        assert not host or host not in answer.text

    @pytest.mark.parametrize(
        ("bound", "allowed", "called", "answered"),
        [
            ("lake.example", (), "lake.example:443", True),
            ("10.0.0.5", (), "10.0.0.5", True),
            ("10.0.0.5", (), "10.0.0.6", False),
            ("127.0.0.1", ("lake.example",), "Lake.Example.", True),
            ("0.0.0.0", (), "192.168.1.7:8080", True),
            ("::", (), "[fe80::1]:8080", True),
            ("0.0.0.0", (), "evil.example", False),
            ("127.0.0.1", (), "192.168.1.7", False),
        ],
    )
    def test_other_names(self, bound: str, allowed: tuple[str, ...], called: str, answered: bool) -> None:
        async def nothing(*_: object) -> None: ...

        assert Hosts(nothing, bound, allowed).allows(called) is answered


def test_no_other_site_may_read_an_answer(client: TestClient) -> None:
    answer = client.get("/health/live", headers={"Origin": "https://evil.example"})

    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = client.options("/v1/tables", headers={"Origin": "https://e", "Access-Control-Request-Method": "GET"})
    assert preflight.status_code >= 400


def test_headers_that_keep_browsers_from_guessing(client: TestClient) -> None:
    for path in ("/health/live", "/nowhere", "/docs"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "server" not in headers
