"""tag, tags, untag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_a_version_gets_a_name_and_is_read_by_it(orders: Run) -> None:
    answer = orders("tag", "shop.orders", "month-end")
    assert answer.code == 0
    assert "month-end" in answer.out
    assert orders("delete", "shop.orders", "1").code == 0
    counted = ("sql", "select count(*) as n from shop.orders", "--json")
    assert orders(*counted).json["rows"] == [{"n": 2}]
    assert orders(*counted, "--as-of", "month-end").json["rows"] == [{"n": 3}]
    (tag,) = orders("tags", "shop.orders", "--json").json["tags"]
    assert (tag["name"], tag["table"]) == ("month-end", "shop.orders")
    assert "month-end" in orders("tags", "shop.orders").out


def test_a_name_is_taken_away(orders: Run) -> None:
    orders("tag", "shop.orders", "x")
    assert orders("untag", "shop.orders", "x", "--json").json["untagged"] is True
    assert orders("tags", "shop.orders", "--json").json["tags"] == []
    answer = orders("untag", "shop.orders", "x", "--json")
    assert (answer.code, answer.json["error"]["code"]) == (3, "not_found")


def test_a_name_that_is_none_is_refused(orders: Run) -> None:
    answer = orders("tag", "shop.orders", "2026-11-15", "--json")
    assert (answer.code, answer.json["error"]["code"]) == (1, "invalid_request")
