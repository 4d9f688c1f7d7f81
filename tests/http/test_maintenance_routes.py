"""Maintenance over HTTP: status, stats, candidates, jobs, history, trigger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.core.names import TableName
from lithify.lake.maintenance import maintenance_of
from support.faults import FaultyStore, Gate

from .conftest import EVENTS

WAIT_S = 60
ClientWith = Callable[..., TestClient]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """One pending change file is enough to fold."""
    return settings.model_copy(update={"fold_files_max": 1})


def get(client: TestClient, what: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/maintenance/{what}", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def trigger(client: TestClient, lake: Lake, **query: Any) -> dict[str, Any]:
    """A cycle from its beginning to its end."""
    answer = client.post("/v1/maintenance/trigger", params=query)
    assert answer.status_code == 202, answer.text
    assert maintenance_of(lake).cycle.wait(WAIT_S)
    return dict(answer.json())


@pytest.mark.parametrize("what", ["status", "stats", "candidates", "jobs", "history"])
def test_the_earlier_name_answers_the_same(client: TestClient, what: str) -> None:
    now, before = client.get(f"/v1/maintenance/{what}"), client.get(f"/v1/compaction/{what}")
    assert (before.status_code, before.json()) == (now.status_code, now.json()) == (200, before.json())


def test_the_earlier_name_starts_a_cycle(client: TestClient, lake: Lake) -> None:
    answer = client.post("/v1/compaction/trigger")
    assert answer.status_code == 202
    assert maintenance_of(lake).cycle.wait(WAIT_S)
    assert get(client, "history")["cycles"][0]["cycle"] == answer.json()["cycle"]


class TestStatus:
    def test_an_idle_service(self, client: TestClient) -> None:
        found = get(client, "status")
        assert (found["may_compact"], found["scheduled"], found["cycle"], found["last_cycle"]) == (
            True,
            False,
            None,
            None,
        )
        assert {tier["name"] for tier in found["tiers"]} == {"hourly", "daily", "weekly", "monthly"}
        assert found["worker"]["alive"] is False

    def test_a_scheduled_service(self, client: TestClient, lake: Lake) -> None:
        lake.start_maintenance(every_s=3600)
        found = get(client, "status")
        assert found["scheduled"] is True
        assert set(found["crons"]) == {"hourly", "daily"}

    def test_the_last_cycle(self, client: TestClient, lake: Lake) -> None:
        cycle = trigger(client, lake)["cycle"]
        assert get(client, "status")["last_cycle"]["cycle"] == cycle


class TestStats:
    def test_what_is_no_table_is_not_looked_at(self, client: TestClient, lake: Lake) -> None:
        root = Path(str(lake.path))
        for stray in ("shop/lost+found", "my notes/x", "shop/empty"):
            (root / stray).mkdir(parents=True)
        (root / "shop" / ".DS_Store").write_text("x")
        found = get(client, "stats")
        assert [table["table"] for table in found["tables"]] == ["log.events", "shop.orders"]
        assert (found["more"], found["tables_total"]) == (False, 3)  # the empty folder has the name of a table

    def test_a_table_that_is_dropped_goes_and_one_that_is_made_comes(self, client: TestClient, lake: Lake) -> None:
        get(client, "stats", age_s_max=60)
        with Lake(lake.path) as other:
            other.drop_table("log.events")
            gone = get(client, "stats", age_s_max=60)
            other.create_table("log.events", EVENTS)
        back = get(client, "stats", age_s_max=60)
        assert [table["table"] for table in gone["tables"]] == ["shop.orders"]
        assert [(table["table"], table["pending_rows"]) for table in back["tables"]] == [
            ("log.events", 0),
            ("shop.orders", 3),
        ]

    def test_a_write_is_seen_at_once_however_old_the_rest_may_be(self, client: TestClient, lake: Lake) -> None:
        get(client, "stats", age_s_max=600)
        with Lake(lake.path) as other:
            other.table("shop.orders").upsert([{"id": 8, "amount": "1.00", "status": None}])
        found = get(client, "stats", age_s_max=600)
        assert [table["pending_rows"] for table in found["tables"]] == [2, 4]

    def test_state_and_debt(self, client: TestClient) -> None:
        found = get(client, "stats")
        assert [table["table"] for table in found["tables"]] == ["log.events", "shop.orders"]
        assert found["pending_rows"] == 5
        assert all(table["due"] for table in found["tables"])

    def test_one_table(self, client: TestClient) -> None:
        assert [table["table"] for table in get(client, "stats", table="shop.orders")["tables"]] == ["shop.orders"]

    def test_a_namespace(self, client: TestClient) -> None:
        assert [table["table"] for table in get(client, "stats", namespace="log")["tables"]] == ["log.events"]

    def test_a_limit_says_that_there_is_more(self, client: TestClient) -> None:
        found = get(client, "stats", limit=1)
        assert (len(found["tables"]), found["more"]) == (1, True)

    def test_after_a_cycle(self, client: TestClient, lake: Lake) -> None:
        trigger(client, lake)
        (table,) = get(client, "stats", table="shop.orders")["tables"]
        assert (table["pending_rows"], table["base_rows"], table["last_job"]["kind"]) == (0, 3, "fold")

    def test_a_damaged_table_is_told_and_the_others_go_on(self, client: TestClient, lake: Lake) -> None:
        damage(lake, "shop.orders")
        found = get(client, "stats")
        errors = {table["table"]: table["error"] for table in found["tables"]}
        assert errors["log.events"] is None
        assert errors["shop.orders"]
        assert str(lake.path) not in json.dumps(found)


class TestCandidates:
    def test_what_a_cycle_would_do(self, client: TestClient, lake: Lake) -> None:
        found = get(client, "candidates")
        assert [(each["table"], each["kind"], each["files"]) for each in found["candidates"]] == [
            ("log.events", "fold", 1),
            ("shop.orders", "fold", 1),
        ]
        assert (found["more"], found["skipped"]) == (False, [])
        assert lake.table("shop.orders").stats().pending_rows == 3

    def test_a_tier_alone(self, client: TestClient) -> None:
        assert get(client, "candidates", tier="pack")["candidates"] == []

    def test_a_limit(self, client: TestClient) -> None:
        found = get(client, "candidates", limit=1)
        assert (len(found["candidates"]), found["more"]) == (1, True)

    def test_a_damaged_table_is_skipped(self, client: TestClient, lake: Lake) -> None:
        damage(lake, "shop.orders")
        found = get(client, "candidates")
        assert [entry["table"] for entry in found["skipped"]] == ["shop.orders"]
        assert str(lake.path) not in json.dumps(found)


class TestJobs:
    def test_nothing_runs(self, client: TestClient) -> None:
        assert get(client, "jobs") == {"jobs": [], "cycle": None}


class TestHistory:
    def test_cycles_and_jobs(self, client: TestClient, lake: Lake) -> None:
        cycle = trigger(client, lake)["cycle"]
        found = get(client, "history")
        assert [(each["cycle"], each["done"]) for each in found["cycles"]] == [(cycle, 2)]
        assert {job["table"] for job in found["jobs"]} == {"shop.orders", "log.events"}

    def test_of_one_table(self, client: TestClient, lake: Lake) -> None:
        trigger(client, lake)
        assert {job["table"] for job in get(client, "history", table="log.events")["jobs"]} == {"log.events"}

    def test_a_limit(self, client: TestClient, lake: Lake) -> None:
        trigger(client, lake)
        trigger(client, lake)
        found = get(client, "history", limit=1)
        assert (len(found["cycles"]), len(found["jobs"])) == (1, 1)

    def test_a_line_of_another_version_is_left_out(self, client: TestClient, lake: Lake) -> None:
        cycle = trigger(client, lake)["cycle"]
        with (lake.path / "_lithify" / "history" / "cycles.jsonl").open("a") as journal:
            journal.write('{"cycle": 7, "what": []}\nno json\n{}\n')
        assert [each["cycle"] for each in get(client, "history")["cycles"]] == [cycle]


class TestTrigger:
    def test_does_what_is_due(self, client: TestClient, lake: Lake) -> None:
        found = trigger(client, lake)
        assert (found["tier"], found["tables"]) == (None, 2)
        assert lake.table("shop.orders").stats().pending_rows == 0

    def test_one_table(self, client: TestClient, lake: Lake) -> None:
        assert trigger(client, lake, table="shop.orders")["tables"] == 1
        assert lake.table("shop.orders").stats().pending_rows == 0
        assert lake.table("log.events").stats().pending_rows == 2

    def test_a_namespace(self, client: TestClient, lake: Lake) -> None:
        trigger(client, lake, namespace="log")
        assert lake.table("shop.orders").stats().pending_rows == 3
        assert lake.table("log.events").stats().pending_rows == 0

    def test_a_tier(self, client: TestClient, lake: Lake) -> None:
        assert trigger(client, lake, tier="daily")["tier"] == "daily"
        assert get(client, "history")["cycles"][0]["what"] == "daily"

    def test_several_tiers_work_in_one_cycle(self, client: TestClient, lake: Lake) -> None:
        found = trigger(client, lake, tier=["hourly", "daily"])
        assert (found["tier"], found["tiers"]) == (None, ["hourly", "daily"])
        assert get(client, "history")["cycles"][0]["what"] == "hourly,daily"
        assert client.post("/v1/maintenance/trigger", params={"tier": ["hourly", "yearly"]}).status_code == 400

    def test_a_token_for_one_table_touches_that_one(self, client_with: ClientWith, lake: Lake) -> None:
        limited = client_with("maintain", table="log.events")
        assert trigger(limited, lake)["tables"] == 1
        assert lake.table("shop.orders").stats().pending_rows == 3
        assert limited.post("/v1/maintenance/trigger", params={"table": "shop.orders"}).status_code == 403


class TestRunning:
    @pytest.fixture
    def gate(self) -> Iterator[Gate]:
        gate = Gate()
        yield gate
        gate.open()

    @pytest.fixture
    def lake(self, tmp_path: Path, settings: Settings, lake: Lake, gate: Gate) -> Iterator[Lake]:
        """The same lake, on which a fold waits before its commit."""
        lake.close()
        with Lake(tmp_path / "lake", settings=settings, store=FaultyStore("fold.commit", gate.hold)) as again:
            yield again
            gate.open()

    def test_a_second_trigger_is_told_the_id(self, client: TestClient, gate: Gate) -> None:
        get(client, "status")  # the tiers of all tables are known from now on
        first = client.post("/v1/maintenance/trigger", params={"table": "shop.orders"})
        gate.wait()
        second = client.post("/v1/maintenance/trigger")
        found, status = get(client, "jobs"), get(client, "status")
        gate.open()

        assert (first.status_code, second.status_code) == (202, 409)
        assert second.json()["code"] == "conflict"
        assert second.json()["details"]["cycle"] == first.json()["cycle"]
        assert found["cycle"]["cycle"] == status["cycle"]["cycle"] == first.json()["cycle"]
        assert [(job["table"], job["kind"], job["alive"]) for job in found["jobs"]] == [("shop.orders", "fold", True)]


class TestWithoutTheRole:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"roles": ("read", "write")})

    def test_a_trigger_is_in_the_wrong_place(self, client: TestClient, lake: Lake) -> None:
        answer = client.post("/v1/maintenance/trigger")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "roles" in answer.json()["message"]
        assert lake.running_cycle() is None

    def test_the_status_says_so(self, client: TestClient) -> None:
        assert get(client, "status")["may_compact"] is False

    def test_what_is_asked_for_by_name_is_no_cycle(self, client: TestClient) -> None:
        assert client.post("/v1/tables/shop.orders/fold", json={}).status_code == 200


@pytest.mark.parametrize(("method", "what"), [("GET", "stats"), ("GET", "candidates"), ("POST", "trigger")])
class TestChoosing:
    @pytest.mark.parametrize(
        ("query", "status", "code"),
        [
            ({"table": "shop.nothing"}, 404, "not_found"),
            ({"namespace": "nowhere"}, 404, "not_found"),
            ({"table": "Shop!"}, 400, "invalid_request"),
            ({"table": "shop.orders", "namespace": "log"}, 400, "invalid_request"),
            ({"table": "x" * 300}, 400, "invalid_request"),
            ({"namespace": ""}, 400, "invalid_request"),
        ],
    )
    def test_what_is_not_there(
        self, client: TestClient, method: str, what: str, query: dict[str, str], status: int, code: str
    ) -> None:
        answer = client.request(method, f"/v1/maintenance/{what}", params=query)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(("method", "what"), [("GET", "candidates"), ("POST", "trigger")])
@pytest.mark.parametrize("tier", ["yearly", "weekly", "x" * 40, ""])
def test_a_tier_that_is_unknown_or_off(client: TestClient, method: str, what: str, tier: str) -> None:
    answer = client.request(method, f"/v1/maintenance/{what}", params={"tier": tier})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("what", ["stats", "candidates", "jobs", "history"])
@pytest.mark.parametrize("limit", ["0", "1001", "all"])
def test_a_limit_that_is_none(client: TestClient, what: str, limit: str) -> None:
    answer = client.get(f"/v1/maintenance/{what}", params={"limit": limit})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("what", ["status", "stats", "candidates", "jobs", "history"])
def test_a_token_for_one_table_sees_nothing_of_others(
    client: TestClient, client_with: ClientWith, lake: Lake, what: str
) -> None:
    trigger(client, lake)
    lake.table("shop.orders").upsert([{"id": 9, "amount": "1.00", "status": "x"}])
    limited = client_with("read", table="log.events")
    assert "shop.orders" not in json.dumps(get(limited, what))


@pytest.mark.parametrize("what", ["stats", "candidates"])
def test_a_token_for_one_table_may_not_name_another(client_with: ClientWith, what: str) -> None:
    limited = client_with("read", table="log.events")
    assert limited.get(f"/v1/maintenance/{what}", params={"table": "shop.orders"}).status_code == 403


def damage(lake: Lake, table: str) -> None:
    """No commit of its changes can be read any more, by whoever opens it now."""
    lake._loaded.forget(TableName(*table.split(".")))
    for commit in (lake.path / table.replace(".", "/") / "changes" / "_delta_log").glob("*.json"):
        commit.write_bytes(b"\x00garbage\n" * 3)
