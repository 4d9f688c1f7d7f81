"""Tokens: random, stored hashed, limited, ended; and a file that two processes may change."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound, Unavailable
from lithify.http import tokens as module
from lithify.http.tokens import PREFIX, Tokens
from support.faults import FaultyStore, disk_full


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake_path(tmp_path: Path) -> Path:
    Lake(tmp_path / "lake").close()
    return tmp_path / "lake"


@pytest.fixture
def tokens(lake_path: Path, clock: Clock) -> Tokens:
    return Tokens(lake_path, clock=clock)


@pytest.fixture
def _looking_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)


def test_a_token_is_found_by_its_secret(tokens: Tokens) -> None:
    token, secret = tokens.create("dashboard", ["read"])

    assert tokens.find(secret) == token


def test_a_secret_is_256_random_bits(tokens: Tokens) -> None:
    secrets = {tokens.create("a", ["read"])[1] for _ in range(20)}

    assert len(secrets) == 20
    assert all(secret.startswith(PREFIX) and len(secret) == len(PREFIX) + 43 for secret in secrets)


def test_the_file_holds_no_secret_and_is_its_owners_alone(tokens: Tokens) -> None:
    _, secret = tokens.create("dashboard", ["read"])

    text = tokens.path.read_text()
    assert secret not in text
    assert secret.removeprefix(PREFIX) not in text
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("given", ["", PREFIX, "lith_" + "A" * 43, "x" * 100_000, "\udcff", "Ω"])
def test_nothing_else_is_found(tokens: Tokens, given: str) -> None:
    tokens.create("dashboard", ["admin"])

    assert tokens.find(given) is None


def test_a_hash_from_the_file_is_no_secret(tokens: Tokens) -> None:
    token, _ = tokens.create("dashboard", ["admin"])

    assert tokens.find(token.sha256) is None


def test_a_token_expires(tokens: Tokens, clock: Clock) -> None:
    token, secret = tokens.create("guest", ["read"], expires_s=60)
    clock.now += 59
    assert tokens.find(secret) == token

    clock.now += 1
    assert tokens.find(secret) is None
    assert token.state(clock.now) == "expired"


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_revoked_token_lets_nobody_in(tokens: Tokens, by: str) -> None:
    token, secret = tokens.create("guest", ["read"])
    assert tokens.find(secret) is not None

    revoked = tokens.revoke(token.id if by == "id" else token.name)

    assert revoked.revoked_at is not None
    assert tokens.find(secret) is None


def test_revoking_leaves_the_others(tokens: Tokens) -> None:
    secrets_left = [tokens.create(name, ["read"])[1] for name in ("a", "b")]
    tokens.create("c", ["read"])

    tokens.revoke("c")

    assert all(tokens.find(secret) for secret in secrets_left)


@pytest.mark.parametrize("by", ["id", "name"])
def test_revoking_twice_is_no_error(tokens: Tokens, by: str) -> None:
    token, _ = tokens.create("a", ["read"])
    name = token.id if by == "id" else "a"

    assert tokens.revoke(name) == tokens.revoke(name)


def test_a_name_that_several_valid_tokens_have_is_not_enough(tokens: Tokens) -> None:
    first, _ = tokens.create("a", ["read"])
    tokens.create("a", ["read"])

    with pytest.raises(Conflict, match=first.id):
        tokens.revoke("a")


def test_revoking_what_is_not_there(tokens: Tokens) -> None:
    with pytest.raises(NotFound, match="tokens list"):
        tokens.revoke("nobody")


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["read"], {"read"}),
        (["write"], {"write"}),
        (["maintain"], {"maintain"}),
        (["read", "write"], {"read", "write"}),
        (["erase"], {"erase"}),
        (["admin"], {"read", "write", "maintain", "erase", "admin"}),
    ],
)
def test_what_the_scopes_allow(tokens: Tokens, scopes: list[str], allowed: set[str]) -> None:
    token, _ = tokens.create("a", scopes)

    assert {scope for scope in module.SCOPES if token.allows(scope, None)} == allowed
    assert {scope for scope in module.SCOPES if token.allows(scope, "shop.orders")} == allowed


@pytest.mark.parametrize(
    ("patterns", "table", "allowed"),
    [
        (("shop.orders",), "shop.orders", True),
        (("shop.orders",), "shop.orders2", False),
        (("shop.*",), "shop.orders", True),
        (("shop.*",), "shop2.orders", False),
        (("shop.*",), "sho.orders", False),
        (("shop.*", "log.events"), "log.events", True),
        (("shop.*",), None, False),
    ],
)
def test_what_the_tables_allow(tokens: Tokens, patterns: tuple[str, ...], table: str | None, allowed: bool) -> None:
    token, _ = tokens.create("a", ["read"], patterns)

    assert token.allows("read", table) is allowed
    assert not token.allows("write", table)


@pytest.mark.parametrize("tables", [["shop"], ["*"], ["*.*"], ["shop.or*"], ["../x.y"], ["shop.orders.*"], [""]])
def test_patterns_that_are_none(tokens: Tokens, tables: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="table name"):
        tokens.create("a", ["read"], tables)


@pytest.mark.parametrize("scopes", [[], ["all"], ["read", "root"], [""]])
def test_scopes_that_are_none(tokens: Tokens, scopes: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="read, write, maintain, erase, admin"):
        tokens.create("a", scopes)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "-a", "a\nb", "ä"])
def test_names_that_are_none(tokens: Tokens, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name of a token"):
        tokens.create(name, ["read"])


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
def test_expiries_that_are_none(tokens: Tokens, seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="expires"):
        tokens.create("a", ["read"], expires_s=seconds)


@pytest.mark.usefixtures("_looking_at_once")
def test_a_running_service_notices_what_another_process_did(tokens: Tokens, lake_path: Path, clock: Clock) -> None:
    elsewhere = Tokens(lake_path, clock=clock)
    assert tokens.find("lith_x") is None

    token, secret = elsewhere.create("new", ["read"])
    assert tokens.find(secret) == token
    elsewhere.revoke("new")
    assert tokens.find(secret) is None


def test_the_file_is_looked_at_within_a_second() -> None:
    assert module.LOOK_S < 1


@pytest.mark.usefixtures("_looking_at_once")
@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 1}',
        '{"format": 1, "tokens": [{}]}',
        '{"format": 1, "tokens": [1]}',
        '{"format": "x", "tokens": []}',
        '{"format": 1, "tokens": [{"id": "1", "name": "a", "scopes": ["god"], "tables": [], "created_at": 1, '
        '"expires_at": null, "revoked_at": null, "sha256": "' + "0" * 64 + '"}]}',
    ],
)
def test_a_damaged_file_lets_nobody_in(tokens: Tokens, damage: str) -> None:
    _, secret = tokens.create("a", ["admin"])
    assert tokens.find(secret) is not None

    tokens.path.write_text(damage)

    for _ in range(2):
        with pytest.raises(Corruption, match="no token is accepted"):
            tokens.find(secret)


@pytest.mark.usefixtures("_looking_at_once")
def test_a_file_of_a_newer_version_lets_nobody_in(tokens: Tokens) -> None:
    _, secret = tokens.create("a", ["admin"])
    tokens.path.write_text(json.dumps({**json.loads(tokens.path.read_text()), "format": 99}))

    with pytest.raises(InvalidRequest, match="upgrade"):
        tokens.find(secret)


@pytest.mark.usefixtures("_looking_at_once")
def test_a_deleted_file_lets_nobody_in(tokens: Tokens) -> None:
    _, secret = tokens.create("a", ["admin"])
    tokens.find(secret)
    tokens.path.unlink()

    assert tokens.find(secret) is None


def test_the_first_token_is_made_once(tokens: Tokens) -> None:
    made = tokens.create_first("first")

    assert made is not None
    assert made[0].scopes == ("admin",)
    assert tokens.create_first("first") is None


def test_there_is_no_first_token_after_others_even_revoked_ones(tokens: Tokens) -> None:
    tokens.create("a", ["read"])
    tokens.revoke("a")

    assert tokens.create_first("first") is None
    assert not tokens.any_valid()


def test_a_lake_with_tokens_is_not_written_to_for_a_first_one(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.create("a", ["read"])
    monkeypatch.setattr(tokens, "_change", lambda: pytest.fail("a lake that may only be read could not be served"))

    assert tokens.create_first("first") is None


def test_tokens_made_at_the_same_time_are_all_kept(lake_path: Path) -> None:
    made: list[str] = []

    def make() -> None:
        mine = Tokens(lake_path)
        made.extend(mine.create("a", ["read"])[1] for _ in range(5))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    tokens = Tokens(lake_path)
    assert len(made) == 20
    assert all(tokens.find(secret) for secret in made)


def test_a_full_disk_leaves_the_file_as_it_was(lake_path: Path, tokens: Tokens) -> None:
    _, secret = tokens.create("a", ["read"])
    before = tokens.path.read_bytes()

    with pytest.raises(Unavailable, match="no space left"):
        Tokens(lake_path, FaultyStore("store.write", disk_full)).create("b", ["read"])

    assert tokens.path.read_bytes() == before
    assert tokens.find(secret) is not None


def test_when_a_token_was_last_used_is_known(tokens: Tokens, clock: Clock) -> None:
    token, secret = tokens.create("a", ["read"])
    assert tokens.last_used(token.id) is None

    tokens.find(secret)

    assert tokens.last_used(token.id) == clock.now


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENS_MAX", 3)


@pytest.mark.usefixtures("_few")
def test_the_number_of_tokens_is_bounded_and_ended_ones_make_room(tokens: Tokens) -> None:
    for name in "abc":
        tokens.create(name, ["read"])
    with pytest.raises(InvalidRequest, match="revoke"):
        tokens.create("d", ["read"])

    tokens.revoke("a")
    tokens.create("d", ["read"])

    assert {token.name for token in tokens.listed()} == {"b", "c", "d"}
