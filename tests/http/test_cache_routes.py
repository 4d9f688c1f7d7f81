"""The hot cache over HTTP: pin, unpin, evict, stats."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake, LimitExceeded, Settings
from lithify.lake.maintenance import PINS_MAX, Maintenance, maintenance_of
from lithify.maintenance.job_slots import JobSlot

ClientWith = Callable[..., TestClient]
ORDERS = {"table": "shop.orders"}


def post(client: TestClient, verb: str, **order: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/query/cache/{verb}", json=order)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def stats(client: TestClient) -> dict[str, Any]:
    return dict(client.get("/v1/query/cache/stats").json())


class TestPin:
    def test_loads_and_keeps(self, client: TestClient) -> None:
        found = post(client, "pin", **ORDERS)
        assert (found["table"], found["rows"], found["pinned"], found["seq"]) == ("shop.orders", 3, True, 1)
        assert found["bytes"] > 0
        assert [table["table"] for table in stats(client)["tables"]] == ["shop.orders"]

    def test_some_columns(self, client: TestClient) -> None:
        found = post(client, "pin", table="shop.orders", columns=["status"])
        assert "status" in found["columns"]
        assert "amount" not in found["columns"]

    def test_twice_is_once(self, client: TestClient) -> None:
        post(client, "pin", **ORDERS)
        post(client, "pin", **ORDERS)
        assert len(stats(client)["tables"]) == 1

    def test_an_unknown_column(self, client: TestClient) -> None:
        answer = client.post("/v1/query/cache/pin", json={"table": "shop.orders", "columns": ["nothing"]})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")

    @pytest.mark.parametrize(
        "body", [{}, {"table": 1}, {"table": None}, {"table": "shop.orders", "columns": []}, {"tables": "shop.orders"}]
    )
    def test_a_body_that_does_not_fit(self, client: TestClient, body: Any) -> None:
        answer = client.post("/v1/query/cache/pin", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")

    def test_one_load_at_a_time_per_table(self, client: TestClient, lake: Lake) -> None:
        with maintenance_of(lake)._pins.take(JobSlot("shop.orders", "pin", 0)):
            answer = client.post("/v1/query/cache/pin", json=ORDERS)
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert post(client, "pin", **ORDERS)["pinned"]


class TestTooLarge:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"cache_bytes_max": 64})

    def test_what_does_not_fit_names_the_limit(self, client: TestClient) -> None:
        answer = client.post("/v1/query/cache/pin", json=ORDERS)
        assert (answer.status_code, answer.json()["code"]) == (413, "limit_exceeded")
        assert answer.json()["details"]["limit"] == "size"
        assert "cache_bytes_max" in answer.json()["message"]


class TestNoCache:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"cache_bytes_max": 0})

    def test_says_so(self, client: TestClient) -> None:
        answer = client.post("/v1/query/cache/pin", json=ORDERS)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert stats(client)["bytes_max"] == 0
        assert post(client, "evict", **ORDERS)["bytes"] == 0


class TestUnpin:
    def test_it_stays_until_room_is_needed(self, client: TestClient) -> None:
        post(client, "pin", **ORDERS)
        assert post(client, "unpin", **ORDERS) == {"table": "shop.orders", "unpinned": True}
        assert [table["pinned"] for table in stats(client)["tables"]] == [False]

    def test_what_is_not_pinned(self, client: TestClient) -> None:
        assert post(client, "unpin", **ORDERS)["unpinned"] is False


class TestEvict:
    def test_gives_memory_back_and_drops_the_pin(self, client: TestClient) -> None:
        size = post(client, "pin", **ORDERS)["bytes"]
        assert post(client, "evict", **ORDERS) == {"table": "shop.orders", "bytes": size}
        assert stats(client)["tables"] == []

    def test_everything(self, client: TestClient) -> None:
        for table in ("shop.orders", "log.events"):
            post(client, "pin", table=table)
        assert client.post("/v1/query/cache/evict").json()["bytes"] > 0
        assert stats(client)["tables"] == []

    def test_what_is_not_in_memory_gives_nothing_back(self, client: TestClient) -> None:
        assert post(client, "evict", **ORDERS)["bytes"] == 0

    def test_everything_takes_a_token_for_all_tables(self, client_with: ClientWith) -> None:
        limited = client_with("maintain", table="shop.orders")
        assert limited.post("/v1/query/cache/evict", json={}).status_code == 403
        assert limited.post("/v1/query/cache/evict", json=ORDERS).status_code == 200


class TestStats:
    def test_counts(self, client: TestClient) -> None:
        post(client, "pin", **ORDERS)
        post(client, "evict", **ORDERS)
        found = stats(client)
        assert (found["loads"], found["evictions"], found["bytes"]) == (1, 1, 0)
        assert found["bytes_max"] == 64 * 2**20

    def test_a_token_for_one_table_sees_that_one(self, client: TestClient, client_with: ClientWith) -> None:
        for table in ("shop.orders", "log.events"):
            post(client, "pin", table=table)
        limited = client_with("read", table="shop.orders")
        assert [table["table"] for table in stats(limited)["tables"]] == ["shop.orders"]


@pytest.mark.parametrize("verb", ["pin", "unpin", "evict"])
class TestEach:
    def test_an_unknown_table(self, client: TestClient, verb: str) -> None:
        answer = client.post(f"/v1/query/cache/{verb}", json={"table": "shop.nothing"})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    def test_what_is_no_name(self, client: TestClient, verb: str) -> None:
        answer = client.post(f"/v1/query/cache/{verb}", json={"table": "../shop"})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")

    def test_a_token_for_another_table(self, client_with: ClientWith, verb: str) -> None:
        limited = client_with("maintain", table="log.events")
        assert limited.post(f"/v1/query/cache/{verb}", json=ORDERS).status_code == 403


def test_so_many_loads_at_once(lake: Lake) -> None:
    """Beyond that, callers are refused at once instead of holding threads."""
    maintenance = Maintenance(lake)
    with contextlib.ExitStack() as running:
        for number in range(PINS_MAX):
            running.enter_context(maintenance._pins.take(JobSlot(f"a.t{number}", "pin", 0)))
        with pytest.raises(LimitExceeded):
            maintenance.pin("shop.orders")
    assert maintenance.pin("shop.orders").pinned
