"""`lithify cache` against a running service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from lithify.cli.main import app as commands

Run = Callable[..., Any]


@pytest.fixture
def cache(served: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`cache("pin", "shop.orders")` answers the JSON document, or the error."""
    monkeypatch.setenv("LITHIFY_TOKEN", served.token)
    monkeypatch.delenv("LITHIFY_LAKE", raising=False)

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(commands, ["cache", *arguments, "--server", served.url, "--json"])
        return json.loads(result.stdout)

    return run


def test_pin_and_stats(cache: Run) -> None:
    pinned = cache("pin", "shop.orders", "--columns", "id, status")
    assert (pinned["table"], pinned["rows"], pinned["pinned"]) == ("shop.orders", 3, True)
    assert [table["table"] for table in cache("stats")["tables"]] == ["shop.orders"]


def test_unpin_and_evict(cache: Run) -> None:
    size = cache("pin", "shop.orders")["bytes"]
    cache("unpin", "shop.orders")
    assert [table["pinned"] for table in cache("stats")["tables"]] == [False]
    assert cache("evict", "shop.orders")["bytes"] == size
    assert cache("evict", "--all")["bytes"] == 0


@pytest.mark.parametrize("arguments", [("evict",), ("evict", "shop.orders", "--all")])
def test_evict_wants_to_know_what(cache: Run, arguments: tuple[str, ...]) -> None:
    assert "--all" in cache(*arguments)["error"]["message"]


def test_an_unknown_table(cache: Run) -> None:
    assert cache("pin", "shop.nothing")["error"]["code"] == "not_found"


def test_for_people(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_TOKEN", served.token)
    for arguments, expected in ((("pin", "shop.orders"), "3 rows"), (("stats",), "shop.orders")):
        result = CliRunner().invoke(commands, ["cache", *arguments, "--server", served.url])
        assert (result.exit_code, expected in result.stdout) == (0, True), result.output
