"""What a table is like and what happened to it, over HTTP."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import Lake
from lithify.core.names import TableName

ROUTES = ("snapshot", "stats", "partitions", "history")


def get(client: TestClient, what: str, table: str = "shop.orders", **query: object) -> dict[str, object]:
    answer = client.get(f"/v1/tables/{table}/{what}", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.fixture
def days(lake: Lake) -> None:
    """log.days, partitioned by day, with a row on each of two days in base."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    table = lake.create_table("log.days", schema, key="id", time="at")
    table.upsert([{"id": n, "at": dt.datetime(2026, 11, 14 + n, 12, tzinfo=dt.UTC)} for n in range(2)])
    table.fold()


class TestSnapshot:
    def test_tells_seq_and_sizes(self, client: TestClient) -> None:
        found = get(client, "snapshot")
        numbers = {name: found[name] for name in ("table", "seq", "watermark", "base_rows", "pending_rows")}
        assert numbers == {"table": "shop.orders", "seq": 1, "watermark": 0, "base_rows": 0, "pending_rows": 3}

    def test_as_of_a_seq(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").delete([1])
        assert get(client, "snapshot")["seq"] == 2
        assert get(client, "snapshot", as_of=1)["seq"] == 1

    def test_as_of_a_time(self, client: TestClient) -> None:
        assert get(client, "snapshot", as_of="2030-01-01T00:00:00Z")["seq"] == 1

    def test_a_seq_that_never_was(self, client: TestClient) -> None:
        answer = client.get("/v1/tables/shop.orders/snapshot", params={"as_of": 99})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    @pytest.mark.parametrize("as_of", ["yesterday", "", "9" * 65, "9" * 40])
    def test_a_moment_that_is_none(self, client: TestClient, as_of: str) -> None:
        answer = client.get("/v1/tables/shop.orders/snapshot", params={"as_of": as_of})
        assert answer.status_code in (400, 404)


class TestStats:
    def test_counts_base_and_pending(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").fold()
        found = get(client, "stats")
        assert (found["base_rows"], found["base_files"], found["pending_rows"], found["watermark"]) == (3, 1, 0, 1)


class TestPartitions:
    def test_values_and_times(self, client: TestClient, days: None) -> None:
        found = get(client, "partitions", "log.days")["partitions"]
        assert isinstance(found, list)
        assert [(part["values"], part["rows"], part["time_min"]) for part in found] == [
            ({"_day": "2026-11-14"}, 1, "2026-11-14T12:00:00Z"),
            ({"_day": "2026-11-15"}, 1, "2026-11-15T12:00:00Z"),
        ]

    def test_a_table_without_any_has_one(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").fold()
        found = get(client, "partitions")["partitions"]
        assert isinstance(found, list)
        assert [(part["values"], part["rows"]) for part in found] == [({}, 3)]

    def test_as_of_before_the_fold(self, client: TestClient, lake: Lake) -> None:
        seq = lake.table("shop.orders").upsert([{"id": 4, "amount": "1.00", "status": "new"}]).seq
        lake.table("shop.orders").fold()
        lake.table("shop.orders").delete([1])
        assert get(client, "partitions", as_of=seq)["table"] == "shop.orders"


class TestHistory:
    def test_newest_first_with_who_and_why(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").delete([1], actor="ann", reason="asked for")
        found = get(client, "history")["history"]
        assert isinstance(found, list)
        assert [entry["operation"] for entry in found] == ["delete", "upsert", "create table"]
        assert (found[0]["actor"], found[0]["reason"], found[0]["seq"]) == ("ann", "asked for", 2)
        assert dt.datetime.fromisoformat(found[0]["time"]).tzinfo is not None

    def test_a_limit(self, client: TestClient) -> None:
        found = get(client, "history", limit=1)["history"]
        assert isinstance(found, list)
        assert len(found) == 1

    @pytest.mark.parametrize("limit", ["0", "-1", "1001", "many"])
    def test_a_limit_that_is_none(self, client: TestClient, limit: str) -> None:
        answer = client.get("/v1/tables/shop.orders/history", params={"limit": limit})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert "limit" in answer.json()["message"]


@pytest.mark.parametrize("what", ROUTES)
class TestEach:
    def test_an_unknown_table(self, client: TestClient, what: str) -> None:
        answer = client.get(f"/v1/tables/shop.nothing/{what}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    @pytest.mark.parametrize("name", ["orders", "shop.Orders!", "..", "a.b.c"])
    def test_what_is_no_name(self, client: TestClient, what: str, name: str) -> None:
        assert client.get(f"/v1/tables/{name}/{what}").status_code in (400, 404)

    def test_a_token_for_another_table(self, client_with: Callable[..., TestClient], what: str) -> None:
        other = client_with("read", table="log.events")
        assert other.get(f"/v1/tables/shop.orders/{what}").status_code == 403
        assert other.get(f"/v1/tables/log.events/{what}").status_code == 200

    def test_a_damaged_table_fails_alone(self, client: TestClient, lake: Lake, what: str) -> None:
        damage(lake.path / "shop" / "orders" / "changes" / "_delta_log")
        lake._loaded.forget(TableName("shop", "orders"))  # what is open knows its log already
        answer = client.get(f"/v1/tables/shop.orders/{what}")
        assert (answer.status_code, answer.json()["code"]) == (424, "corruption")
        assert str(lake.path) not in answer.text
        assert client.get(f"/v1/tables/log.events/{what}").status_code == 200


def damage(log: Path) -> None:
    """No commit of a log can be read any more."""
    for commit in sorted(log.glob("*.json")):
        commit.write_bytes(b"\x00garbage\n" * 3)


class TestTags:
    def test_a_version_gets_a_name_and_is_read_by_it(self, client: TestClient, lake: Lake) -> None:
        made = client.put("/v1/tables/shop.orders/tags/month-end")
        assert (made.status_code, made.json()["seq"]) == (200, 1)
        lake.table("shop.orders").delete([1])
        assert get(client, "snapshot", as_of="month-end")["seq"] == 1
        rows = client.get("/v1/tables/shop.orders/rows", params={"as_of": "month-end"}).json()["rows"]
        assert len(rows) == 3
        assert [tag["name"] for tag in client.get("/v1/tables/shop.orders/tags").json()["tags"]] == ["month-end"]

    def test_an_earlier_version(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").delete([1])
        assert client.put("/v1/tables/shop.orders/tags/before", json={"as_of": 1}).json()["seq"] == 1

    def test_a_name_is_given_once_and_taken_away(self, client: TestClient) -> None:
        path = "/v1/tables/shop.orders/tags/x"
        assert [client.put(path).status_code for _ in range(2)] == [200, 409]
        assert [client.delete(path).status_code for _ in range(2)] == [200, 404]
        assert client.put("/v1/tables/shop.orders/tags/2026").status_code == 400
