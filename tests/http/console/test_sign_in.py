"""Signing in with the code that `lithify serve` printed, and tokens over HTTP."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from lithify.http.console.sign_in import CODE_S, SESSION_S, SignIn
from lithify.http.service import Service
from lithify.http.tokens import Tokens


def test_a_code_becomes_a_token_of_eight_hours(stranger: TestClient, service: Service) -> None:
    code = service.sign_in.code(("admin",))

    answer = stranger.post("/v1/session", json={"code": code})

    session = answer.json()
    assert answer.status_code == 201
    assert (session["name"], session["scopes"]) == ("console", ["admin"])
    assert session["expires_at"] - session["created_at"] == SESSION_S == 8 * 3600
    headers = {"Authorization": f"Bearer {session['secret']}"}
    assert stranger.get("/v1/lake", headers=headers).json()["caller"]["id"] == session["id"]


def test_a_code_is_good_once(stranger: TestClient, service: Service) -> None:
    code = service.sign_in.code(("read",))
    assert stranger.post("/v1/session", json={"code": code}).status_code == 201

    again = stranger.post("/v1/session", json={"code": code})

    assert (again.status_code, again.json()["code"]) == (401, "unauthenticated")
    assert code not in again.text


@pytest.mark.parametrize("body", [{"code": "guess"}, {"code": "\ud800"}, {"code": "x" * 300}, {}])
def test_another_code_is_refused_and_leaves_the_right_one_good(
    stranger: TestClient, service: Service, body: dict[str, str]
) -> None:
    code = service.sign_in.code(("read",))
    answer = stranger.post("/v1/session", content=json.dumps(body), headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 401)
    assert stranger.post("/v1/session", json={"code": code}).status_code == 201


def test_without_a_code_nobody_is_let_in(stranger: TestClient, tokens: Tokens) -> None:
    assert stranger.post("/v1/session", json={"code": "any"}).status_code == 401
    assert not tokens.listed()


def test_a_code_ends_after_a_minute_and_when_there_is_a_new_one(tokens: Tokens) -> None:
    now = 1000.0
    sign_in = SignIn(tokens, clock=lambda: now)
    first, second = sign_in.code(("read",)), sign_in.code(("read",))
    assert sign_in.exchange(first) is None
    now += CODE_S
    assert CODE_S == 60
    assert sign_in.exchange(second) is None


class TestTokens:
    def test_one_is_made_listed_used_and_revoked(self, client: TestClient, stranger: TestClient) -> None:
        made = client.post(
            "/v1/tokens", json={"name": "dash", "scopes": ["read"], "tables": ["shop.*"], "expires_s": 60}
        )
        token = made.json()
        headers = {"Authorization": f"Bearer {token['secret']}"}
        assert made.status_code == 201
        assert stranger.get("/v1/tables", headers=headers).json()["tables"] == ["shop.orders"]

        listed = client.get("/v1/tokens").json()["tokens"]
        assert listed[0]["id"] == token["id"]
        assert (listed[0]["state"], listed[0]["last_used_at"] is not None) == ("valid", True)
        assert "secret" not in listed[0]
        assert "sha256" not in str(listed)

        assert client.delete(f"/v1/tokens/{token['id']}").json()["state"] == "revoked"
        assert client.delete(f"/v1/tokens/{token['id']}").json()["state"] == "revoked"
        assert stranger.get("/v1/tables", headers=headers).status_code == 401

    def test_a_list_has_an_end(self, client: TestClient, tokens: Tokens) -> None:
        tokens.create("other", ["read"])
        found = client.get("/v1/tokens", params={"limit": 1}).json()
        assert (len(found["tokens"]), found["tokens"][0]["name"], found["more"]) == (1, "other", True)

    @pytest.mark.parametrize(
        "body",
        [
            {"name": "a b", "scopes": ["read"]},
            {"name": "a", "scopes": []},
            {"name": "a", "scopes": ["root"]},
            {"name": "a", "scopes": ["read"], "tables": ["*"]},
            {"name": "a", "scopes": ["read"], "expires_s": -1},
            {"name": "a", "scopes": ["read"], "expires": 5},
        ],
    )
    def test_what_does_not_fit_makes_none(self, client: TestClient, tokens: Tokens, body: dict[str, object]) -> None:
        before = len(tokens.listed())
        assert client.post("/v1/tokens", json=body).status_code == 400
        assert len(tokens.listed()) == before

    def test_an_unknown_one_is_not_revoked(self, client: TestClient) -> None:
        assert client.delete("/v1/tokens/00000000").status_code == 404
