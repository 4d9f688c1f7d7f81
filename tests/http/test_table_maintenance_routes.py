"""Fold, compact, optimize and vacuum over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.errors import Unavailable
from support.faults import FaultyStore, Gate

WAIT_S = 60
KINDS = ("fold", "compact", "optimize", "vacuum")
ClientWith = Callable[..., TestClient]


def post(client: TestClient, kind: str, table: str = "shop.orders", **order: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/tables/{table}/{kind}", json=order)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.fixture
def small_files(lake: Lake) -> None:
    """Four files in base of shop.orders."""
    table = lake.table("shop.orders")
    for n in range(10, 50, 10):
        table.upsert([{"id": n, "amount": "1.00", "status": "new"}])
        table.fold()


class TestFold:
    def test_moves_changes_into_base(self, client: TestClient, lake: Lake) -> None:
        found = post(client, "fold")
        assert (found["dry_run"], found["inserted"], found["final_rows"]) == (False, 3, 3)
        assert lake.table("shop.orders").stats().pending_rows == 0

    def test_a_dry_run_does_nothing(self, client: TestClient, lake: Lake) -> None:
        found = post(client, "fold", dry_run=True)
        assert (found["dry_run"], found["change_rows"]) == (True, 3)
        assert lake.table("shop.orders").stats().pending_rows == 3

    def test_without_a_body_it_folds(self, client: TestClient, lake: Lake) -> None:
        assert client.post("/v1/tables/shop.orders/fold").json()["final_rows"] == 3

    def test_nothing_to_fold_is_no_failure(self, client: TestClient) -> None:
        post(client, "fold")
        assert post(client, "fold")["change_rows"] == 0


class TestCompact:
    def test_merges_small_files(self, client: TestClient, lake: Lake, small_files: None) -> None:
        lake.table("shop.orders").set_options({"pack_files_min": 2})
        found = post(client, "compact")
        assert [(job["origin"], job["files_written"]) for job in found["done"]] == [("pack", 1)]
        assert lake.table("shop.orders").stats().base_files == 1

    def test_a_dry_run_says_what_it_would(self, client: TestClient, lake: Lake, small_files: None) -> None:
        lake.table("shop.orders").set_options({"pack_files_min": 2})
        files = lake.table("shop.orders").stats().base_files
        found = post(client, "compact", dry_run=True, tier="pack")
        assert [(job["origin"], job["files"]) for job in found["planned"]] == [("pack", files)]
        assert lake.table("shop.orders").stats().base_files == files

    def test_nothing_is_due(self, client: TestClient) -> None:
        assert post(client, "compact") == {"dry_run": False, "table": "shop.orders", "done": [], "note": None}

    def test_a_tier_that_does_not_apply_says_so(self, client: TestClient) -> None:
        found = post(client, "compact", tier="hourly")
        assert found["done"] == []
        assert "no time column" in found["note"]

    def test_an_unknown_tier(self, client: TestClient) -> None:
        answer = client.post("/v1/tables/shop.orders/compact", json={"tier": "yearly"})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert "yearly" in answer.json()["message"]


class TestOptimize:
    def test_orders_base(self, client: TestClient, small_files: None) -> None:
        found = post(client, "optimize", by=["status", "id"])
        assert [(job["origin"], job["rows"]) for job in found["done"]] == [("cluster", 7)]

    def test_a_dry_run_does_nothing(self, client: TestClient, lake: Lake, small_files: None) -> None:
        files = lake.table("shop.orders").stats().base_files
        assert post(client, "optimize", dry_run=True)["planned"][0]["files"] == files
        assert lake.table("shop.orders").stats().base_files == files

    @pytest.mark.parametrize("by", [["nothing"], [], [""], "id", [1], ["id"] * 17])
    def test_columns_that_it_cannot_go_by(self, client: TestClient, by: Any, small_files: None) -> None:
        answer = client.post("/v1/tables/shop.orders/optimize", json={"by": by})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


class TestVacuum:
    def test_only_looks_unless_told_otherwise(self, client: TestClient) -> None:
        assert client.post("/v1/tables/shop.orders/vacuum").json()["dry_run"] is True
        assert post(client, "vacuum", retain_hours=2)["dry_run"] is True
        assert post(client, "vacuum", dry_run=False)["dry_run"] is False

    @pytest.mark.parametrize("hours", [0, -1, 0.5, "168", None, True, 1e9])
    def test_hours_that_are_none(self, client: TestClient, hours: Any) -> None:
        answer = client.post("/v1/tables/shop.orders/vacuum", json={"retain_hours": hours})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert "retain_hours" in answer.json()["message"]

    @pytest.mark.parametrize("hours", ["NaN", "Infinity", "1e400"])
    def test_numbers_that_are_no_hours(self, client: TestClient, hours: str) -> None:
        body, headers = f'{{"retain_hours": {hours}}}', {"Content-Type": "application/json"}
        answer = client.post("/v1/tables/shop.orders/vacuum", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("kind", KINDS)
class TestEach:
    def test_an_unknown_table(self, client: TestClient, kind: str) -> None:
        answer = client.post(f"/v1/tables/shop.nothing/{kind}", json={})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    @pytest.mark.parametrize("body", ['{"dryrun": true}', '{"dry_run": "yes"}', "[]", "nothing", "1", '{"dry_run": 1}'])
    def test_a_body_that_does_not_fit(self, client: TestClient, kind: str, body: str) -> None:
        headers = {"Content-Type": "application/json"}
        answer = client.post(f"/v1/tables/shop.orders/{kind}", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")

    def test_a_body_in_another_format(self, client: TestClient, kind: str) -> None:
        headers = {"Content-Type": "text/csv"}
        answer = client.post(f"/v1/tables/shop.orders/{kind}", content="dry_run\ntrue\n", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")

    def test_a_token_for_another_table(self, client_with: ClientWith, kind: str) -> None:
        other = client_with("maintain", table="log.events")
        assert other.post(f"/v1/tables/shop.orders/{kind}", json={}).status_code == 403
        assert other.post(f"/v1/tables/log.events/{kind}", json={"dry_run": True}).status_code in (200, 400)


class TestTwoAtOnce:
    @pytest.fixture
    def gate(self) -> Gate:
        return Gate()

    @pytest.fixture
    def lake(self, tmp_path: Path, settings: Settings, lake: Lake, gate: Gate) -> Iterator[Lake]:
        """The same lake, on which a fold waits before its commit."""
        lake.close()
        with Lake(tmp_path / "lake", settings=settings, store=FaultyStore("fold.commit", gate.hold)) as again:
            yield again
            gate.open()

    def test_the_second_is_told_what_runs(self, client: TestClient, gate: Gate) -> None:
        client.get("/v1/maintenance/status")  # the tiers of all tables are known from now on
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/v1/tables/shop.orders/fold", json={})
            gate.wait()
            second = client.post("/v1/tables/shop.orders/vacuum", json={"dry_run": False})
            look = client.post("/v1/tables/shop.orders/fold", json={"dry_run": True})
            busy = client.get("/v1/maintenance/status").json()["asked"]
            gate.open()
            assert first.result(WAIT_S).status_code == 200
        assert (second.status_code, second.json()["code"]) == (409, "conflict")
        assert "fold of shop.orders is running" in second.json()["message"]
        assert look.status_code == 200
        assert [(turn["table"], turn["kind"]) for turn in busy] == [("shop.orders", "fold")]

    def test_other_tables_go_on(self, client: TestClient, gate: Gate) -> None:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/v1/tables/shop.orders/fold", json={})
            gate.wait()
            assert client.post("/v1/tables/log.events/vacuum", json={"dry_run": False}).status_code == 200
            assert client.get("/v1/tables/shop.orders/stats").status_code == 200
            gate.open()
            assert first.result(WAIT_S).status_code == 200


class TestTrouble:
    @pytest.fixture
    def lake(self, tmp_path: Path, settings: Settings, lake: Lake) -> Iterator[Lake]:
        """The same lake, on a disk that is full when a fold commits."""

        def full() -> None:
            raise Unavailable("the disk is full", disk_full=True)

        lake.table("shop.orders").upsert([{"id": 1, "amount": "9.00", "status": "x"}])
        lake.close()
        with Lake(tmp_path / "lake", settings=settings, store=FaultyStore("fold.commit", full)) as again:
            yield again

    def test_a_full_disk(self, client: TestClient, lake: Lake) -> None:
        answer = client.post("/v1/tables/shop.orders/fold", json={})
        assert (answer.status_code, answer.json()["code"]) == (507, "unavailable")
        assert client.get("/v1/tables/shop.orders/stats").status_code == 200
        assert client.post("/v1/tables/shop.orders/fold", json={}).status_code in (200, 507)
