"""Deletes over HTTP that say when."""

from __future__ import annotations

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import Lake, Table

PATH = "/v1/tables/shop.prices"


@pytest.fixture
def prices(lake: Lake) -> Table:
    columns = pa.schema([("id", pa.int64()), ("at", pa.decimal128(20, 2)), ("v", pa.string())])
    table = lake.create_table("shop.prices", columns, key="id", order_by="at")
    table.upsert([{"id": n, "at": "5.25", "v": "there"} for n in (1, 2, 3)])
    return table


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for row in table.to_arrow().to_pylist())


def test_one_value_for_all_or_one_for_each(client: TestClient, prices: Table) -> None:
    assert client.post(f"{PATH}/delete", json={"keys": [1, 2], "at": "5.24"}).json()["deleted"] == 2
    assert ids(prices) == [1, 2, 3], "all of them are newer"
    assert client.post(f"{PATH}/delete", json={"keys": [1, 2], "at": ["5.24", 5.25]}).status_code == 200
    assert ids(prices) == [1, 3]


def test_keys_that_are_refused_take_their_values_with_them(client: TestClient, prices: Table) -> None:
    answer = client.post(f"{PATH}/delete", json={"keys": [1, "x", 3], "at": ["5.24", "9", "9"]})
    assert (answer.status_code, [one["index"] for one in answer.json()["refused"]]) == (207, [1])
    assert ids(prices) == [1, 2]


@pytest.mark.parametrize(("at", "said"), [(["1"], "1 values for 2 keys"), ("noon", "at"), ([None, "1"], "null")])
def test_what_is_no_place_in_the_order_is_refused(client: TestClient, prices: Table, at: object, said: str) -> None:
    answer = client.post(f"{PATH}/delete", json={"keys": [1, 2], "at": at})
    assert answer.status_code == 400
    assert said in answer.json()["message"]
    assert ids(prices) == [1, 2, 3]


def test_a_table_without_an_order_says_so(client: TestClient, lake: Lake) -> None:
    answer = client.post("/v1/tables/shop.orders/delete", json={"keys": [1], "at": 5})
    assert answer.status_code == 400
    assert "has no order_by" in answer.json()["message"]
    assert lake.table("shop.orders").get(1) is not None


@pytest.fixture
def tied(client: TestClient, lake: Lake) -> Table:
    columns = [{"name": name, "type": kind} for name, kind in (("id", "int64"), ("at", "timestamp"), ("lsn", "int64"))]
    order = {"name": "shop.prices", "columns": columns, "key": ["id"], "order_by": ["at", "lsn"]}
    answer = client.post("/v1/tables", json=order)
    assert (answer.status_code, answer.json()["order_by"]) == (201, ["at", "lsn"])
    table = lake.table("shop.prices")
    table.upsert([{"id": n, "at": "2026-11-15T12:00:00Z", "lsn": 5} for n in (1, 2, 3)])
    return table


NOON = "2026-11-15T12:00:00Z"


@pytest.mark.parametrize(
    ("at", "left"),
    [
        ([NOON, 4], [1, 2, 3]),
        ({"at": NOON, "lsn": 5}, [3]),
        ([[NOON, 4], [NOON, 5]], [1, 3]),
        ([{"lsn": 6, "at": NOON}, {"at": NOON, "lsn": 4}], [2, 3]),
    ],
)
def test_with_several_columns_a_place_has_a_value_of_each(
    client: TestClient, tied: Table, at: object, left: list[int]
) -> None:
    assert client.post(f"{PATH}/delete", json={"keys": [1, 2], "at": at}).status_code == 200
    assert ids(tied) == left


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (NOON, "`at` is a single value"),
        ([NOON], "`at` has 1 values"),
        ({"at": NOON}, "`at` has at"),
        ([[NOON, 5]], "1 values for 2 keys"),
        (["noon", 5], "column 'at': the value does not fit timestamp"),
        ([NOON, None], "null"),
    ],
)
def test_with_several_columns_half_a_place_is_refused(client: TestClient, tied: Table, at: object, said: str) -> None:
    answer = client.post(f"{PATH}/delete", json={"keys": [1, 2], "at": at})
    assert answer.status_code == 400
    assert said in answer.json()["message"]
    assert ids(tied) == [1, 2, 3]


def test_one_column_may_come_as_a_list_and_is_told_by_its_name(client: TestClient) -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "at", "type": "int64"}]
    order = {"name": "shop.one", "columns": columns, "key": ["id"], "order_by": ["at"]}
    assert client.post("/v1/tables", json=order).json()["order_by"] == "at"
    assert client.post("/v1/tables", json={**order, "name": "shop.two", "order_by": ["at", 7]}).status_code == 400
