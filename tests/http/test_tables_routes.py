"""Create, list, describe and drop tables over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake
from lithify.options.table_options import OPTIONS

ClientWith = Callable[..., TestClient]
LINES: dict[str, Any] = {
    "name": "shop.lines",
    "columns": [
        {"name": "order", "type": "int64"},
        {"name": "line", "type": "int32"},
        {"name": "price", "type": "decimal(10,2)"},
        {"name": "tags", "type": "list<string>"},
        {"name": "at", "type": "timestamp", "nullable": False},
    ],
    "key": ["order", "line"],
    "time": "at",
    "options": {"row_group_rows": 65536},
}


def refused(answer: Any, status: int, code: str) -> str:
    document = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert document.keys() >= {"code", "message", "what_to_do", "id"}
    return str(document["message"])


def test_tables_are_listed(client: TestClient) -> None:
    assert client.get("/v1/tables").json() == {"tables": ["log.events", "shop.orders"]}


def test_a_token_sees_only_its_tables(client_with: ClientWith) -> None:
    assert client_with("read", table="shop.orders").get("/v1/tables").json() == {"tables": ["shop.orders"]}


def test_a_table_is_created_and_described(client: TestClient, lake: Lake) -> None:
    answer = client.post("/v1/tables", json=LINES)
    assert answer.status_code == 201
    created = answer.json()
    assert created["created"] is True
    described = client.get("/v1/tables/shop.lines").json()
    assert {**described, "created": True} == created
    assert described["columns"] == [
        {"name": "order", "type": "int64", "nullable": False},
        {"name": "line", "type": "int32", "nullable": False},
        {"name": "price", "type": "decimal(10,2)", "nullable": True},
        {"name": "tags", "type": "list<string>", "nullable": True},
        {"name": "at", "type": "timestamp", "nullable": False},
    ]
    assert described["key"] == ["order", "line"]
    assert described["time"] == "at"
    assert described["options"] == {"row_group_rows": 65536, "missing_columns": "refuse"}
    assert set(described["options_effective"]) == set(OPTIONS)
    assert lake.table("shop.lines").definition.key == ("order", "line")


def test_described_columns_create_the_same_table_again(client: TestClient) -> None:
    client.post("/v1/tables", json=LINES)
    described = client.get("/v1/tables/shop.lines").json()
    client.delete("/v1/tables/shop.lines")
    again = {"name": "shop.lines", **{name: described[name] for name in ("columns", "key", "time", "options")}}
    assert client.post("/v1/tables", json=again).json()["columns"] == described["columns"]


def test_a_description_tells_what_is_pending_and_no_path(client: TestClient, lake: Lake) -> None:
    answer = client.get("/v1/tables/shop.orders")
    assert answer.json()["pending"]["rows"] == 3
    assert str(lake.path) not in answer.text


def test_creating_a_table_twice_is_a_conflict(client: TestClient) -> None:
    assert client.post("/v1/tables", json=LINES).status_code == 201
    assert "exists already" in refused(client.post("/v1/tables", json=LINES), 409, "conflict")


@pytest.mark.parametrize("how", ["if_not_exists", "Idempotency-Key"])
def test_creating_the_same_table_again_can_be_asked_for(client: TestClient, how: str) -> None:
    asked = {**LINES, "if_not_exists": True} if how == "if_not_exists" else LINES
    headers = {how: "create-1"} if how == "Idempotency-Key" else {}
    assert client.post("/v1/tables", json=asked, headers=headers).status_code == 201
    answer = client.post("/v1/tables", json=asked, headers=headers)
    assert (answer.status_code, answer.json()["created"]) == (200, False)


def test_another_table_of_the_same_name_is_a_conflict(client: TestClient) -> None:
    client.post("/v1/tables", json=LINES)
    other = {**LINES, "key": ["order"], "if_not_exists": True}
    assert client.post("/v1/tables", json=other).status_code in (400, 409)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Shop.Lines"}, "no table name"),
        ({"name": "lines"}, "no table name"),
        ({"name": "../etc.passwd"}, "no table name"),
        ({"columns": []}, "columns"),
        ({"columns": [{"name": "a", "type": "money"}]}, "no type"),
        ({"columns": [{"name": "a", "type": "struct<a:int64,a:int64>"}], "key": [], "time": None}, "two fields 'a'"),
        (
            {
                "columns": [{"name": "a", "type": "list<struct<b:map<string,struct<x:int64,X:int64>>>>"}],
                "key": [],
                "time": None,
            },
            "two fields 'x'",
        ),
        ({"columns": [{"name": "a b", "type": "int64"}], "key": [], "time": None}, "column name"),
        ({"columns": [{"name": "_seq", "type": "int64"}], "key": [], "time": None}, "reserved"),
        ({"key": ["nope"]}, "'nope' is not in the schema"),
        ({"key": "order"}, "key"),
        ({"options": {"nope": 1}}, "nope"),
        ({"colums": []}, "colums"),
        ({"name": "shop.\ud800"}, "name"),
    ],
)
def test_what_makes_no_table(client: TestClient, change: dict[str, Any], said: str) -> None:
    body = json.dumps({**LINES, **change})
    answer = client.post("/v1/tables", content=body, headers={"Content-Type": "application/json"})
    assert said in refused(answer, 400, "invalid_request")
    assert client.get("/v1/tables/shop.lines").status_code == 404


def test_creating_takes_json(client: TestClient) -> None:
    answer = client.post("/v1/tables", content=b"name=a.b", headers={"Content-Type": "text/plain"})
    refused(answer, 415, "unsupported_media_type")
    answer = client.post("/v1/tables", content=b"{", headers={"Content-Type": "application/json"})
    refused(answer, 400, "invalid_request")


def test_creating_needs_write_for_that_table(client_with: ClientWith) -> None:
    refused(client_with("read").post("/v1/tables", json=LINES), 403, "forbidden")
    refused(client_with("write", table="shop.orders").post("/v1/tables", json=LINES), 403, "forbidden")
    assert client_with("write", table="shop.*").post("/v1/tables", json=LINES).status_code == 201


def test_a_table_is_dropped(client: TestClient, lake: Lake) -> None:
    assert client.delete("/v1/tables/shop.orders").json() == {"table": "shop.orders", "dropped": True}
    assert lake.tables() == ["log.events"]
    refused(client.delete("/v1/tables/shop.orders"), 404, "not_found")


def test_dropping_needs_an_admin(client_with: ClientWith) -> None:
    refused(client_with("write").delete("/v1/tables/shop.orders"), 403, "forbidden")


@pytest.mark.parametrize(
    ("name", "status"), [("shop.nope", 404), ("Shop.Orders", 400), ("orders", 400), ("a.b.c", 400)]
)
def test_names_in_paths(client: TestClient, name: str, status: int) -> None:
    assert client.get(f"/v1/tables/{name}").status_code == status
    assert client.delete(f"/v1/tables/{name}").status_code == status
