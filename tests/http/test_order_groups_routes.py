"""Order groups over HTTP: declared, shown, and fed by two sources."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake

COLUMNS = [{"name": name, "type": "int64"} for name in ("id", "price", "price_ts", "stock", "stock_ts")]
GROUPS = {"price_ts": ["price"], "stock_ts": ["stock"]}
ROWS = "/v1/tables/shop.items/rows"


def create(client: TestClient, groups: Any) -> Any:
    order = {"name": "shop.items", "columns": COLUMNS, "key": ["id"], "order_groups": groups}
    return client.post("/v1/tables", json=order)


def test_two_sources_feed_one_row(client: TestClient, lake: Lake) -> None:
    created = create(client, GROUPS)
    assert (created.status_code, created.json()["order_groups"]) == (201, GROUPS)
    assert client.get("/v1/tables/shop.items").json()["order_groups"] == GROUPS
    for row in ({"price": 9, "price_ts": 5}, {"price": 8, "price_ts": 4, "stock": 2, "stock_ts": 1}):
        assert client.post(ROWS, json=[{"id": 1, **row}]).status_code == 200
    assert lake.table("shop.items").get(1) == {"id": 1, "price": 9, "price_ts": 5, "stock": 2, "stock_ts": 1}
    refused = client.post(ROWS, params={"mode": "update"}, json=[{"id": 1, "price": 3}])
    assert (refused.status_code, "lacks 'price_ts'" in refused.json()["message"]) == (400, True)


@pytest.mark.parametrize(
    ("groups", "said"),
    [({"price_ts": ["id"]}, "is in key"), ({"price_ts": ["prise"]}, "did you mean 'price'"), ({"price_ts": [7]}, "")],
)
def test_groups_that_make_no_sense_are_refused(client: TestClient, groups: Any, said: str) -> None:
    refused = create(client, groups)
    assert refused.status_code in (400, 422)
    assert said in refused.text
    assert client.get("/v1/tables/shop.items").status_code == 404
