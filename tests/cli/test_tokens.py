"""lithify tokens: create, list, revoke."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lithify.cli.tokens import lifetime_s
from lithify.errors import InvalidRequest
from lithify.http.tokens import Tokens

Run = Callable[..., Any]


@pytest.fixture
def tokens(cli: Run, tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "lake")


def test_create_shows_the_secret_once(cli: Run, tokens: Tokens) -> None:
    answer = cli("tokens", "create", "dashboard", "--scope", "read")

    assert answer.code == 0
    secret = answer.out.split()[-1]
    found = tokens.find(secret)
    assert found is not None
    assert (found.name, found.scopes, found.tables, found.expires_at) == ("dashboard", ("read",), (), None)
    assert secret not in cli("tokens", "list").out


def test_create_as_json(cli: Run, tokens: Tokens) -> None:
    document = cli(
        "tokens", "create", "loader", "--scope", "write,read", "--table", "shop.*", "--table", "log.events",
        "--expires", "30d", "--json",
    ).json  # fmt: skip

    found = tokens.find(document.pop("secret"))
    assert found is not None
    assert document == {**found.document(), "state": "valid"}
    assert found.scopes == ("read", "write")
    assert found.tables == ("shop.*", "log.events")
    assert found.expires_at == pytest.approx(time.time() + 30 * 86_400, abs=600)


def test_list(cli: Run, tokens: Tokens) -> None:
    tokens.create("a", ["read"], ["shop.orders"])
    tokens.create("b", ["admin"])
    tokens.revoke("b")

    document = cli("tokens", "list", "--json").json
    shown = cli("tokens", "list").out

    assert {(each["name"], each["state"]) for each in document["tokens"]} == {("a", "valid"), ("b", "revoked")}
    assert not [each for each in document["tokens"] if "sha256" in each]
    for part in ("shop.orders", "revoked", "never"):
        assert part in shown


def test_list_of_none(cli: Run) -> None:
    assert "no token yet" in cli("tokens", "list").out


def test_revoke(cli: Run, tokens: Tokens) -> None:
    _, secret = tokens.create("a", ["read"])

    assert cli("tokens", "revoke", "a").code == 0

    assert Tokens(tokens.path.parents[1]).find(secret) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "a"), "--scope"),
        (("create", "a", "--scope", "all"), "read, write, maintain, erase, admin"),
        (("create", "a b", "--scope", "read"), "no name of a token"),
        (("create", "a", "--scope", "read", "--table", "orders"), "no table name"),
        (("create", "a", "--scope", "read", "--expires", "soon"), "30d"),
        (("revoke", "nobody"), "no token 'nobody'"),
    ],
)
def test_refusals(cli: Run, arguments: tuple[str, ...], words: str) -> None:
    answer = cli("tokens", *arguments)

    assert answer.refused
    assert words in answer.err


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5_400), ("12h", 43_200), ("30d", 2_592_000), ("2W", 1_209_600)])
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert lifetime_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1.5d", "30", "d", "1y", "9999999d"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(InvalidRequest):
        lifetime_s(text)
