"""Erasures over HTTP: rows are hidden when the answer comes, maintenance does the rest, the receipt is the lake's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake, verify_receipt
from support.waiting import eventually

ClientWith = Callable[..., TestClient]
PATH = "/v1/erasures"
ORDER: dict[str, Any] = {"table": "shop.orders", "keys": [2], "history": "cut", "reason": "ticket-7"}


@pytest.fixture
def eraser(client_with: ClientWith) -> TestClient:
    return client_with("erase")


@pytest.fixture
def idle(lake: Lake) -> Iterator[None]:
    """No cycle goes on when the test ends."""
    yield
    eventually(lambda: lake.running_cycle() is None)


def state(client: TestClient, id: str) -> str:
    return str(client.get(f"{PATH}/{id}").json()["state"])


@pytest.mark.usefixtures("idle")
def test_from_the_plan_to_the_receipt(eraser: TestClient, lake: Lake, tmp_path: Path) -> None:
    plan = eraser.post(f"{PATH}/plan", json={**ORDER}).json()
    assert (plan["table"], plan["keys"], plan["rows"], plan["blocked_by"]) == ("shop.orders", 1, 1, [])
    assert eraser.get(PATH).json() == {"erasures": [], "more": False}

    answer = eraser.post(PATH, json=ORDER)
    assert answer.status_code == 202
    begun = answer.json()
    assert lake.table("shop.orders").get(2) is None
    assert (begun["table"], begun["reason"], len(begun["salt"])) == ("shop.orders", "ticket-7", 64)
    eventually(lambda: state(eraser, begun["id"]) == "done", "the erasure to be done by maintenance")

    receipt = eraser.get(f"{PATH}/{begun['id']}/receipt")
    kept = tmp_path / "receipt.json"
    kept.write_bytes(receipt.content)
    assert verify_receipt(str(kept), key=2, salt=begun["salt"]).subject
    told = eraser.post(f"{PATH}/{begun['id']}/verify", json={"key": 2, "salt": begun["salt"]}).json()
    assert (told["genuine"], told["subject"], told["problems"]) == (True, True, [])
    other = eraser.post(f"{PATH}/{begun['id']}/verify", json={"key": 3, "salt": begun["salt"]}).json()
    assert other["subject"] is False
    (listed,) = eraser.get(PATH).json()["erasures"]
    assert (listed["id"], listed["state"]) == (begun["id"], "done")
    assert "salt" not in listed
    assert eraser.get(PATH, params={"open": True}).json()["erasures"] == []
    assert begun["salt"] not in json.dumps(eraser.get(f"{PATH}/{begun['id']}").json())


@pytest.mark.usefixtures("idle")
def test_the_past_stays_unless_it_is_to_be_cut(eraser: TestClient, lake: Lake) -> None:
    table = lake.table("shop.orders")
    seq = table.snapshot().seq
    rest = [row for row in table.to_arrow(as_of=seq).to_pylist() if row["id"] != 2]
    order = {name: value for name, value in ORDER.items() if name != "history"}
    plan = eraser.post(f"{PATH}/plan", json=order).json()
    assert (plan["files_to_rewrite"] > 0, plan["bytes_to_rewrite"] > 0) == (True, True)
    assert eraser.post(f"{PATH}/plan", json=ORDER).json()["files_to_rewrite"] == 0

    begun = eraser.post(PATH, json=order).json()

    assert begun["history"] == "rewrite"
    eventually(lambda: state(eraser, begun["id"]) == "done", "the erasure to be done by maintenance")
    assert table.to_arrow(as_of=seq).to_pylist() == rest


@pytest.mark.usefixtures("idle")
def test_one_that_is_held_up_is_cancelled_or_goes_on(eraser: TestClient, lake: Lake) -> None:
    lake.table("shop.orders").tag("month-end")
    held = eraser.post(PATH, json=ORDER).json()["id"]
    eventually(lambda: state(eraser, held) == "blocked")
    assert any("month-end" in each for each in eraser.get(f"{PATH}/{held}").json()["blocked_by"])
    assert eraser.get(f"{PATH}/{held}/receipt").status_code == 409
    assert eraser.post(f"{PATH}/{held}/cancel").json()["state"] == "cancelled"
    assert eraser.post(f"{PATH}/{held}/resume").status_code == 409

    again = eraser.post(PATH, json=ORDER).json()["id"]
    eventually(lambda: state(eraser, again) == "blocked" and lake.running_cycle() is None)
    lake.table("shop.orders").untag("month-end")
    assert eraser.post(f"{PATH}/{again}/resume").status_code == 202
    eventually(lambda: state(eraser, again) == "done")


@pytest.mark.usefixtures("idle")
def test_a_condition_needs_the_right_to_read(eraser: TestClient, client_with: ClientWith, lake: Lake) -> None:
    asked = {"table": "shop.orders", "where": "amount > 2", "history": "cut"}
    assert eraser.post(f"{PATH}/plan", json=asked).status_code == 403
    both = client_with("erase", "read")
    assert both.post(f"{PATH}/plan", json=asked).json()["rows"] == 2
    assert both.post(PATH, json=asked).status_code == 202
    assert [row["id"] for row in lake.table("shop.orders").to_arrow().to_pylist()] == [1]


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"table": "shop.orders"}, "keys, or where"),
        ({"table": "shop.orders", "keys": [1], "where": "id = 1"}, "keys, or where"),
        ({"table": "shop.orders", "keys": ["x"]}, "nothing was done"),
        ({"table": "shop.orders", "keys": [{"nope": 1}]}, "no key column"),
        ({"table": "shop.orders", "keys": [1, 2, 3], "rows_max": 2}, "more than rows_max"),
        ({"table": "log.events", "keys": [1]}, "key"),
        ({"table": "shop.orders", "keys": [1], "history": "none"}, "history"),
        ({"table": "shop.orders", "keys": [1], "because": "x"}, "because"),
    ],
)
def test_what_is_refused(client_with: ClientWith, lake: Lake, order: dict[str, Any], says: str) -> None:
    answer = client_with("erase", "read").post(PATH, json={"history": "cut", **order})

    assert answer.status_code == 400
    assert says in answer.text
    assert lake.erasures() == []
    assert lake.table("shop.orders").count() == 3


def test_what_is_not_there(eraser: TestClient) -> None:
    assert eraser.post(PATH, json={**ORDER, "table": "shop.none"}).status_code == 404
    for path in ("", "/receipt"):
        assert eraser.get(f"{PATH}/{'0' * 32}{path}").status_code == 404
    assert eraser.get(f"{PATH}/none").status_code in (400, 404)


@pytest.mark.usefixtures("idle")
def test_who_may_not_erase_from_a_table_sees_none_of_its_erasures(client_with: ClientWith, eraser: TestClient) -> None:
    id = eraser.post(PATH, json=ORDER).json()["id"]
    stranger = client_with("erase", table="log.events")

    assert stranger.get(PATH).json()["erasures"] == []
    assert stranger.get(f"{PATH}/{id}").status_code == 404
    assert stranger.post(f"{PATH}/{id}/cancel").status_code == 404
    assert stranger.post(f"{PATH}/{id}/verify", json={}).status_code == 404
    assert stranger.post(PATH, json=ORDER).status_code == 403
