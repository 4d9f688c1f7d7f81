"""The lake as a whole, tables with their columns, and what a table is made of."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import Lake, __version__
from lithify.read.row_groups import places_of

ClientWith = Callable[..., TestClient]


class TestLake:
    def test_what_it_is_and_who_asks(self, client_with: ClientWith, lake: Lake) -> None:
        found = client_with("write", table="shop.*").get("/v1/lake").json()

        assert (found["name"], found["version"], found["storage"]) == ("lake", __version__, "folder")
        assert (found["caller"]["scopes"], found["caller"]["tables"]) == (["write"], ["shop.*"])
        assert found["disk"]["bytes"] == shutil.disk_usage(lake.path).total
        assert 0 < found["disk"]["free_bytes"] <= found["disk"]["bytes"]
        assert str(lake.path.parent) not in str(found)


class TestSchema:
    def test_tables_with_their_columns(self, client: TestClient) -> None:
        found = client.get("/v1/schema").json()

        assert [table["table"] for table in found["tables"]] == ["log.events", "shop.orders"]
        assert found["tables"][1]["columns"][1] == {"name": "amount", "type": "decimal(10,2)"}
        assert (found["more"], found["unreadable"]) == (False, [])

    def test_page_by_page(self, client: TestClient) -> None:
        first = client.get("/v1/schema", params={"limit": 1}).json()
        second = client.get("/v1/schema", params={"limit": 1, "after": "log.events"}).json()

        assert (first["tables"][0]["table"], first["more"]) == ("log.events", True)
        assert (second["tables"][0]["table"], second["more"]) == ("shop.orders", False)

    def test_only_what_the_token_may_read(self, client_with: ClientWith) -> None:
        found = client_with("read", table="shop.orders").get("/v1/schema").json()
        assert [table["table"] for table in found["tables"]] == ["shop.orders"]

    def test_a_damaged_table_is_named_and_the_others_go_on(self, client: TestClient, lake: Lake) -> None:
        damage(lake, "log/events")
        found = client.get("/v1/schema").json()
        assert (found["unreadable"], [table["table"] for table in found["tables"]]) == (["log.events"], ["shop.orders"])


def damage(lake: Lake, folder: str) -> None:
    for path in sorted((lake.path / folder / "changes" / "_delta_log").glob("*.json")):  # type: ignore[attr-defined]
        path.write_text("garbage\n")


class TestFiles:
    def test_base_and_pending_by_size_and_origin(self, client: TestClient, lake: Lake) -> None:
        orders = lake.table("shop.orders")
        orders.fold()
        orders.upsert([{"id": 1, "amount": "7.00", "status": "sent"}])
        orders.delete([2])

        found = client.get("/v1/tables/shop.orders/files").json()

        assert [(file["log"], file["origin"], file["operation"]) for file in found["files"][:1]] == [
            ("base", "fold", None)
        ]
        assert {(file["operation"], file["seq"]) for file in found["files"][1:]} == {("upsert", 2), ("delete", 3)}
        assert sum(each["files"] for each in found["sizes"]) == 3
        assert sum(each["bytes"] for each in found["sizes"]) == sum(file["bytes"] for file in found["files"])
        for each in found["sizes"]:
            assert each["files"] * each["bytes_min"] <= each["bytes"] < each["files"] * each["bytes_min"] * 2
        assert found["seq"] == 3

    def test_page_by_page(self, client: TestClient, lake: Lake) -> None:
        for number in range(4, 7):
            lake.table("shop.orders").upsert([{"id": number, "amount": "1.00", "status": None}])
        whole = [file["path"] for file in client.get("/v1/tables/shop.orders/files").json()["files"]]
        seen: list[str] = []
        more = True
        while more:
            after = {"after": seen[-1]} if seen else {}
            page = client.get("/v1/tables/shop.orders/files", params={"limit": 3, **after}).json()
            seen += [file["path"] for file in page["files"]]
            more = page["more"]
        assert seen == whole
        assert len(seen) == len(set(seen)) == 4

    def test_as_of_another_version(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").fold()
        now = client.get("/v1/tables/shop.orders/files").json()["files"]
        then = client.get("/v1/tables/shop.orders/files", params={"as_of": 0}).json()["files"]
        assert (len(now), then) == (1, [])


class TestGroups:
    def groups(self, client: TestClient, table: str, column: str, **more: Any) -> dict[str, Any]:
        return dict(
            client.get(f"/v1/tables/{table}/groups", params={"column": column, **more}).raise_for_status().json()
        )

    def test_the_range_of_each_row_group(self, client: TestClient, lake: Lake) -> None:
        orders = lake.table("shop.orders")
        orders.fold()
        orders.upsert([{"id": 11, "amount": "7.00", "status": "sent"}])

        found = self.groups(client, "shop.orders", "id")

        (group,), (pending,) = found["groups"], found["pending"]
        assert (group["low"], group["high"], group["rows"], group["origin"]) == (1, 3, 3, "fold")
        assert (pending["low"], pending["high"], pending["seq"]) == (11, 11, 2)
        assert (group["place"], pending["place"]) == ([0.0, 0.2], [1.0, 1.0])
        assert (found["linear"], found["groups_total"], found["files_unknown"]) == (True, 1, 0)

    @pytest.mark.parametrize(("column", "low", "high"), [("amount", "1.50", "3.50"), ("status", "paid", "paid")])
    def test_of_any_column(self, client: TestClient, lake: Lake, column: str, low: str, high: str) -> None:
        lake.table("shop.orders").fold()
        (group,) = self.groups(client, "shop.orders", column)["groups"]
        assert (group["low"], group["high"]) == (low, high)

    def test_without_the_index_the_log_tells(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").fold()
        (lake.path / "shop/orders/index/base.pm").unlink()  # type: ignore[attr-defined]
        found = self.groups(client, "shop.orders", "id")
        assert (found["files_unknown"], found["groups"][0]["low"], found["groups"][0]["high"]) == (1, 1, 3)

    def test_nothing_is_known_of_a_list(self, client: TestClient, lake: Lake) -> None:
        table = lake.create_table("log.lists", pa.schema([pa.field("items", pa.list_(pa.int64()))]))
        table.append([{"items": [1, 2]}])
        table.fold()
        (group,) = self.groups(client, "log.lists", "items")["groups"]
        assert (group["low"], group["high"], group["place"]) == (None, None, None)

    def test_a_limit_says_how_many_there_are(self, client: TestClient, lake: Lake) -> None:
        for number in range(4, 7):
            lake.table("shop.orders").upsert([{"id": number, "amount": "1.00", "status": None}])
        found = self.groups(client, "shop.orders", "id", limit=2)
        assert (len(found["pending"]), found["pending_total"]) == (2, 4)

    def test_a_column_that_is_not_there(self, client: TestClient) -> None:
        answer = client.get("/v1/tables/shop.orders/groups", params={"column": "nope"})
        assert (answer.status_code, "nope" in answer.json()["message"]) == (404, True)

    def test_texts_are_placed_by_rank(self) -> None:
        places, linear = places_of([("a", "zz"), ("b", "b"), (None, None)])
        assert (places, linear) == ([(0.0, 1.0), (0.5, 0.5), None], False)

    def test_what_is_not_a_number_has_no_place(self) -> None:
        places, linear = places_of([(float("nan"), 1.0), (1.0, float("inf")), (1.0, 3.0)])
        assert (places, linear) == ([None, None, (0.0, 1.0)], True)


class TestStatsPageByPage:
    def test_after_and_contains(self, client: TestClient) -> None:
        def names(**parameters: Any) -> tuple[list[str], bool]:
            found = client.get("/v1/maintenance/stats", params=parameters).json()
            return [table["table"] for table in found["tables"]], found["more"]

        assert names(limit=1) == (["log.events"], True)
        assert names(limit=1, after="log.events") == (["shop.orders"], False)
        assert names(contains="order") == (["shop.orders"], False)
        assert names(contains="%") == ([], False)

    def test_all_that_the_caller_may_see_are_counted(self, client_with: ClientWith) -> None:
        def total(client: TestClient) -> int:
            return int(
                client.get("/v1/maintenance/stats", params={"limit": 1, "contains": "or"}).json()["tables_total"]
            )

        assert total(client_with("read")) == 2
        assert total(client_with("maintain", table="log.*")) == 1


class TestStatsThatMayBeOld:
    def test_a_table_that_stays_the_same_is_looked_at_once(
        self, client: TestClient, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[str] = []
        look = lake.table_maintenance
        monkeypatch.setattr(lake, "table_maintenance", lambda name: looked.append(name) or look(name))

        def pending(**parameters: Any) -> int:
            found = client.get("/v1/maintenance/stats", params={"table": "shop.orders", **parameters}).json()
            return int(found["tables"][0]["pending_rows"])

        assert [pending(age_s_max=60), pending(age_s_max=60)] == [3, 3]
        assert len(looked) == 1
        lake.table("shop.orders").upsert([{"id": 9, "amount": "1.00", "status": None}])
        assert pending(age_s_max=60) == 4
        assert pending() == 4
        assert len(looked) == 3

    def test_a_damaged_table_says_so(self, client: TestClient, lake: Lake) -> None:
        damage(lake, "log/events")
        found = client.get("/v1/maintenance/stats", params={"age_s_max": 60}).json()
        assert ["_delta_log" in (table["error"] or "") for table in found["tables"]] == [True, False]
