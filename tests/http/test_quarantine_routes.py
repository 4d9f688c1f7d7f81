"""Records that were set aside, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lithify import Lake

ClientWith = Callable[..., TestClient]
PATH = "/v1/tables/shop.orders/quarantine"
RECORDS = [{"id": 7, "amount": "x", "status": "b"}, {"id": 8, "status": "c"}, {"id": 9, "amount": "9.00", "status": ""}]


@pytest.fixture
def name(lake: Lake, tmp_path: Path) -> str:
    table = lake.table("shop.orders")
    table.set_options({"missing_columns": "refuse"})
    (tmp_path / "in.json").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    lake.ingest("shop.orders", str(tmp_path / "in.json"), on_bad_record="quarantine")
    (found,) = table.quarantine()
    return found.name


def test_they_are_listed_and_shown(client: TestClient, name: str) -> None:
    (found,) = client.get(PATH).json()["quarantine"]
    assert (found["name"], found["records"]) == (name, 2)
    first = client.get(f"{PATH}/{name}", params={"limit": 1}).json()
    assert (first["more"], [json.loads(each["record"])["id"] for each in first["records"]]) == (True, [7])
    rest = client.get(f"{PATH}/{name}", params={"after": 1}).json()
    assert (rest["more"], [json.loads(each["record"])["id"] for each in rest["records"]]) == (False, [8])


def test_an_answer_ends_where_it_gets_large(client: TestClient, lake: Lake, name: str) -> None:
    (part,) = Path(lake.path, "shop/orders/quarantine", name).glob("part-*")
    record = {"why": "no row", "record": json.dumps({"id": 1, "status": "s" * 3 * 2**20})}
    part.write_text("".join(json.dumps(record) + "\n" for _ in range(7)))
    counts, more, after = [], True, 0
    while more:
        answer = client.get(f"{PATH}/{name}", params={"after": after}).json()
        counts.append(len(answer["records"]))
        after, more = after + counts[-1], answer["more"]
    assert counts == [2, 2, 2, 1]


def test_they_are_tried_once_more_by_the_caller(client: TestClient, lake: Lake, name: str) -> None:
    assert client.post(f"{PATH}/{name}/retry").json()["written"] == 0
    done = client.post(f"{PATH}/{name}/retry", json={"missing": "null"}).json()
    assert (done["written"], done["left"]) == (1, 1)
    assert lake.table("shop.orders").get(8) == {"id": 8, "amount": None, "status": "c"}
    assert lake.table("shop.orders").history(1)[0].actor != lake.table("shop.orders").history()[-1].actor


def test_they_are_purged(client: TestClient, lake: Lake, name: str) -> None:
    assert client.post(f"{PATH}/purge", json={"older_than_hours": 5}).json()["quarantine"] == []
    gone = client.post(f"{PATH}/purge", json={"name": name}).json()["quarantine"]
    assert [each["name"] for each in gone] == [name]
    assert lake.table("shop.orders").quarantine() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/..%2f..%2fbase", 404),
        ("POST", "/nope/retry", 404),
        ("GET", "/nope?limit=0", 400),
        ("GET", "/nope?after=-1", 400),
    ],
)
def test_what_is_wrong_is_said(client: TestClient, name: str, method: str, path: str, status: int) -> None:
    assert client.request(method, PATH + path).status_code == status


@pytest.mark.parametrize("order", [{"name": 1}, {"older_than_hours": 0}, {"else": 1}])
def test_a_wrong_order_purges_nothing(client: TestClient, lake: Lake, name: str, order: dict[str, object]) -> None:
    assert client.post(f"{PATH}/purge", json=order).status_code == 400
    assert len(lake.table("shop.orders").quarantine()) == 1
