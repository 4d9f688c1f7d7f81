"""Merge rules over HTTP: declared, shown, counted and taken back."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake

COLUMNS = [{"name": "page", "type": "string"}, {"name": "views", "type": "int64"}, {"name": "n", "type": "int64"}]
RULES = {"views": "sum", "n": "count"}
ROWS = "/v1/tables/web.pages/rows"


def create(client: TestClient, **more: Any) -> Any:
    return client.post("/v1/tables", json={"name": "web.pages", "columns": COLUMNS, "key": ["page"], **more})


def test_rows_count_by_the_rules_once_and_are_taken_back(client: TestClient, lake: Lake) -> None:
    created = create(client, merge_rules=RULES)
    assert (created.status_code, created.json()["merge_rules"]) == (201, RULES)
    assert client.get("/v1/tables/web.pages").json()["merge_rules"] == RULES
    once = {"Idempotency-Key": "one"}
    for _ in range(2):
        assert client.post(ROWS, json=[{"page": "a", "views": 5}], headers=once).status_code == 200
    assert client.post(ROWS, json=[{"page": "a", "views": 2}]).status_code == 200
    assert client.post(ROWS, params={"mode": "retract"}, json=[{"page": "a", "views": 5}]).status_code == 200
    assert lake.table("web.pages").get("a") == {"page": "a", "views": 2, "n": 1}


@pytest.mark.parametrize(
    ("rules", "said"), [({"page": "max"}, "is in key"), ({"views": "summ"}, "did you mean 'sum'"), ({"views": 7}, "")]
)
def test_rules_that_make_no_sense_are_refused(client: TestClient, rules: Any, said: str) -> None:
    refused = create(client, merge_rules=rules)
    assert refused.status_code in (400, 422)
    assert said in refused.text
    assert client.get("/v1/tables/web.pages").status_code == 404


def test_what_is_no_sum_is_not_taken_back(client: TestClient) -> None:
    refused = client.post("/v1/tables/shop.orders/rows", params={"mode": "retract"}, json=[{"id": 1}])
    assert refused.status_code == 400
    assert "nothing to retract" in refused.text
