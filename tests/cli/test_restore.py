"""`lithify restore`, `lithify write --if-changed` and `--evolve`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_an_earlier_version_comes_back(orders: Run) -> None:
    orders("tag", "shop.orders", "good")
    orders("write", "shop.orders", "--row", '{"id": 9, "amount": 1.5}')
    plan = orders("restore", "shop.orders", "good", "--dry-run", "--json").json
    assert (plan["to"], plan["seq"], plan["upserted"], plan["deleted"]) == (1, 2, 0, 1)
    assert "1 deleted" in orders("restore", "shop.orders", "1", "--reason", "a test").out
    assert orders("get", "shop.orders", "9").code == 3
    assert "nothing was changed" in orders("restore", "shop.orders", "1").out
    assert orders("history", "shop.orders", "--json").json["history"][0]["reason"] == "a test"


def test_a_version_that_is_not_there_is_refused(orders: Run) -> None:
    answer = orders("restore", "shop.orders", "99", "--json")
    assert (answer.code, answer.json["error"]["code"]) == (3, "not_found")


def test_rows_that_are_there_already_are_not_written(orders: Run) -> None:
    row = ("--row", '{"id": 9, "amount": 1.5}')
    orders("write", "shop.orders", *row)
    assert "nothing was written" in orders("write", "shop.orders", *row, "--if-changed").out
    done = orders("write", "shop.orders", *row, "--row", '{"id": 10}', "--if-changed", "--json").json
    assert (done["upserted"], done["skipped"], done["seq"]) == (1, 1, 3)
    answer = orders("write", "shop.orders", *row, "--if-changed", "--mode", "replace", "--json")
    assert "goes with mode upsert" in answer.json["error"]["message"]


def test_an_update_leaves_out_what_changes_nothing(orders: Run) -> None:
    orders("write", "shop.orders", "--row", '{"id": 9, "amount": 1.5}')
    done = orders(
        "write", "shop.orders", "--update", "--if-changed", "--row", '{"id": 9, "amount": 1.5}', "--json"
    ).json
    assert (done["rows"], done["skipped"]) == (0, 1)


def test_columns_that_are_new_are_added_on_request(orders: Run, tmp_path: Path) -> None:
    row = ("--row", '{"id": 9, "rank": 3}')
    assert orders("write", "shop.orders", "--update", *row).refused
    assert orders("write", "shop.orders", "--update", "--evolve", *row).code == 0
    assert orders("get", "shop.orders", "9", "--json").json["row"]["rank"] == 3
    (tmp_path / "more.csv").write_text("id,amount,day\n9,2.5,2026-11-19\n")
    assert orders("write", "shop.orders", str(tmp_path / "more.csv"), "--update", "--evolve").code == 0
    assert orders("get", "shop.orders", "9", "--json").json["row"]["day"] == "2026-11-19"


def test_rows_that_are_refused_add_no_column(orders: Run) -> None:
    answer = orders("write", "shop.orders", "--evolve", "--row", '{"id": "x", "rank": 3}', "--json")
    assert answer.refused
    columns = orders("describe", "shop.orders", "--json").json["columns"]
    assert "rank" not in [column["name"] for column in columns]
    answer = orders("write", "shop.orders", "--evolve", "--mode", "replace", "--row", '{"id": 9}', "--json")
    assert "--evolve goes with" in answer.json["error"]["message"]
