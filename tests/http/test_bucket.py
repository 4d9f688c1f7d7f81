"""A service on a lake in a bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.http.tokens import Tokens
from support.fault_proxy import FaultProxy
from support.service import Served, serving

pytestmark = pytest.mark.bucket

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int64())])
ROWS = [{"id": number, "amount": number * 10} for number in range(1, 501)]
TOTAL = "select count(*) as orders, sum(amount) as amount from shop.orders"


@pytest.fixture
def lake(address: str, settings: Settings) -> Iterator[Lake]:
    with Lake(address, settings=settings) as lake:
        lake.create_table("shop.orders", ORDERS, key="id").upsert(ROWS)
        lake.create_table("shop.secret", ORDERS, key="id").upsert(ROWS[:1])
        yield lake


@contextlib.contextmanager
def _client(served: Served, token: str | None = None) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {token or served.token}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=60) as client:
        yield client


def _rows(client: httpx.Client, sql: str) -> list[list[int]]:
    answer = client.post("/v1/query/sql", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["rows"])


def test_what_is_written_is_read_from_files_from_memory_and_after_a_fold(lake: Lake, settings: Settings) -> None:
    with serving(lake, settings) as served, _client(served) as client:
        assert _rows(client, TOTAL) == [[500, 1_252_500]]
        written = client.post("/v1/tables/shop.orders/rows", json={"rows": [{"id": 501, "amount": 7}]})
        assert written.json()["seq"] == 2
        assert _rows(client, TOTAL) == [[501, 1_252_507]]
        assert client.post("/v1/tables/shop.orders/fold", json={}).json()["final_rows"] == 501
        assert client.post("/v1/query/cache/pin", json={"table": "shop.orders"}).json()["rows"] == 501
        assert client.post("/v1/tables/shop.orders/delete", json={"keys": [501]}).json()["deleted"] == 1
        answer = client.post("/v1/query/sql", json={"sql": TOTAL}).json()
        assert (answer["source"], answer["rows"]) == ("hot", [[500, 1_252_500]])


def test_a_token_made_elsewhere_counts_and_is_held_to_its_tables(lake: Lake, settings: Settings) -> None:
    _, secret = Tokens(lake.path).create("reader", ("read",), ("shop.orders",))
    with serving(lake, settings) as served, _client(served, secret) as client:
        assert _rows(client, TOTAL) == [[500, 1_252_500]]
        refused = client.post("/v1/query/sql", json={"sql": "select * from shop.secret"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


def test_it_is_not_ready_while_the_bucket_does_not_answer(proxy: FaultProxy, lake: Lake, settings: Settings) -> None:
    with serving(lake, settings) as served, _client(served) as client:
        assert client.get("/health/ready").status_code == 200
        proxy.fail("403", on="HEAD", times=None)
        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert "bucket cannot be reached" in answer.json()["message"]
        assert client.get("/health/live").status_code == 200
        proxy.heal()
        assert client.get("/health/ready").status_code == 200
