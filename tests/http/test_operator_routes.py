"""What an operator asks for: to end a job, how the machine is, options of a table, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.http.service import Service
from lithify.lake.maintenance import maintenance_of
from support.faults import FaultyStore, Gate

ClientWith = Callable[..., TestClient]
WAIT_S = 60


class TestCancel:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        """One pending change file is enough to fold."""
        return settings.model_copy(update={"fold_files_max": 1})

    @pytest.fixture
    def gate(self) -> Iterator[Gate]:
        gate = Gate()
        yield gate
        gate.open()

    @pytest.fixture
    def lake(self, tmp_path: Path, settings: Settings, lake: Lake, gate: Gate) -> Iterator[Lake]:
        """The same lake, on which folds wait before they begin to write."""
        lake.close()
        held = FaultyStore("fold.manifest", gate.hold, times=None)
        with Lake(tmp_path / "lake", settings=settings, store=held) as again:
            yield again
            gate.open()

    def test_a_job_that_was_asked_for(self, client: TestClient, gate: Gate) -> None:
        with ThreadPoolExecutor(1) as pool:
            fold = pool.submit(client.post, "/v1/tables/shop.orders/fold")
            gate.wait()
            (job,) = client.get("/v1/maintenance/jobs").json()["jobs"]
            answer = client.post(f"/v1/maintenance/jobs/{job['id']}/cancel")
            asked = client.get("/v1/maintenance/jobs").json()["jobs"]
            gate.open()
            ended = fold.result(WAIT_S)
        assert (answer.status_code, answer.json()) == (200, {"id": job["id"], "cancelled": True})
        assert [each["cancelled"] for each in asked] == [True]
        assert (ended.status_code, ended.json()["code"]) == (409, "cancelled")
        assert "by token read-write-maintain-admin" in ended.json()["message"]
        (last,) = client.get("/v1/maintenance/history", params={"limit": 1}).json()["jobs"]
        assert (last["id"], last["outcome"]) == (job["id"], "cancelled")

    def test_a_cycle(self, client: TestClient, client_with: ClientWith, lake: Lake, gate: Gate) -> None:
        begun = client.post("/v1/maintenance/trigger").json()["cycle"]
        gate.wait()
        path = f"/v1/maintenance/jobs/{begun}/cancel"
        limited = client_with("maintain", table="shop.*").post(path)
        answer = client.post(path)
        gate.open()
        assert maintenance_of(lake).cycle.wait(WAIT_S)
        (report,) = client.get("/v1/maintenance/history").json()["cycles"]
        assert (limited.status_code, answer.status_code) == (403, 200)
        assert report["stopped"] == "cancelled by token read-write-maintain-admin"
        assert report["done"] == 0
        assert client.post(path).status_code == 404

    def test_a_cycle_of_its_own_tables(self, client_with: ClientWith, lake: Lake, gate: Gate) -> None:
        limited = client_with("maintain", table="shop.*")
        begun = limited.post("/v1/maintenance/trigger").json()["cycle"]
        gate.wait()
        answer = limited.post(f"/v1/maintenance/jobs/{begun}/cancel")
        gate.open()
        assert maintenance_of(lake).cycle.wait(WAIT_S)
        assert answer.status_code == 200

    def test_only_of_tables_that_the_token_may_maintain(
        self, client: TestClient, client_with: ClientWith, gate: Gate
    ) -> None:
        other, reader = client_with("maintain", table="log.events"), client_with("read", "maintain", table="log.*")
        seer = client_with("read")
        with ThreadPoolExecutor(1) as pool:
            fold = pool.submit(client.post, "/v1/tables/shop.orders/fold")
            gate.wait()
            (job,) = client.get("/v1/maintenance/jobs").json()["jobs"]
            path = f"/v1/maintenance/jobs/{job['id']}/cancel"
            answers = [each.post(path).status_code for each in (other, reader, seer)]
            gate.open()
            assert fold.result(WAIT_S).status_code == 200
        assert answers == [404, 404, 403]


class TestDoctor:
    def test_what_it_tells(self, client: TestClient, lake: Lake) -> None:
        found = client.get("/v1/doctor").json()
        names = [check["name"] for check in found["checks"]]
        assert {"python", "disk", "fsync", "lake", "table shop.orders", "table log.events"} <= set(names)
        assert found["failed"] == 0
        assert str(lake.path) not in str(found)

    def test_a_damaged_table(self, client: TestClient, lake: Lake) -> None:
        next(Path(str(lake.path)).glob("shop/orders/changes/*.parquet")).unlink()
        found = client.get("/v1/doctor").json()
        (bad,) = [check for check in found["checks"] if check["status"] == "fail"]
        assert (bad["name"], found["failed"]) == ("table shop.orders", 1)
        assert "is missing" in bad["advice"]

    def test_one_at_a_time(self, client: TestClient, service: Service) -> None:
        with service.doctor._busy:
            answer = client.get("/v1/doctor")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


class TestOptions:
    def test_every_option_with_the_value_that_holds(self, client: TestClient) -> None:
        found = {each["name"]: each for each in client.get("/v1/tables/shop.orders/options").json()["options"]}
        assert (found["missing_columns"]["value"], found["missing_columns"]["own"]) == ("null", True)
        assert (found["compression_level"]["value"], found["compression_level"]["own"]) == (3, False)
        assert found["compression_level"]["allowed"] == "a whole number from 1 to 19"
        assert found["compression_level"]["help"]

    def test_setting_one_and_going_back(self, client: TestClient, lake: Lake) -> None:
        def put(value: Any, **more: Any) -> dict[str, Any]:
            order = {"options": {"compression_level": value}, **more}
            answer = client.put("/v1/tables/shop.orders/options", json=order)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        shown, before = put(9, dry_run=True), lake.table("shop.orders").options["compression_level"]
        done, after = put(9), lake.table("shop.orders").options["compression_level"]
        back = put(None)
        assert (shown["changed"], shown["dry_run"], before) == (["compression_level"], True, 3)
        assert (done["changed"], done["dry_run"], after) == (["compression_level"], False, 9)
        assert {each["name"]: each for each in shown["options"]}["compression_level"]["value"] == 9
        assert {each["name"]: each for each in done["options"]}["compression_level"]["default"] == 3
        assert back["changed"] == ["compression_level"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"compression_levl": 3}, "there is no table option"),
            ({"compression_level": 99}, "a whole number from 1 to 19"),
            ({"sort_by": ["none"]}, "option sort_by names 'none'"),
            ({}, "options"),
        ],
    )
    @pytest.mark.parametrize("dry_run", [True, False])
    def test_what_cannot_be_is_refused(
        self, client: TestClient, options: dict[str, Any], message: str, dry_run: bool
    ) -> None:
        answer = client.put("/v1/tables/shop.orders/options", json={"options": options, "dry_run": dry_run})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert message in answer.json()["message"]

    @pytest.mark.parametrize("name", ["expires", "missing_columns"])
    def test_what_decides_about_rows_takes_the_right_to_write(self, client_with: ClientWith, name: str) -> None:
        operator = client_with("maintain", table="shop.orders")
        refused = operator.put("/v1/tables/shop.orders/options", json={"options": {name: None}})
        allowed = operator.put("/v1/tables/shop.orders/options", json={"options": {"pack_files_min": 5}})
        assert (refused.status_code, allowed.status_code) == (403, 200)


class TestColumns:
    def change(self, client: TestClient, **order: Any) -> Any:
        return client.post("/v1/tables/shop.orders/columns", json=order)

    def names(self, lake: Lake) -> list[str]:
        return list(lake.table("shop.orders").definition.columns.names)

    @pytest.mark.parametrize(
        ("order", "names"),
        [
            ({"change": "add", "column": "note", "type": "string"}, ["id", "amount", "status", "note"]),
            ({"change": "rename", "column": "status", "to": "state"}, ["id", "amount", "state"]),
            ({"change": "drop", "column": "status"}, ["id", "amount"]),
            ({"change": "move", "column": "status"}, ["status", "id", "amount"]),
            ({"change": "move", "column": "amount", "to": "status"}, ["id", "status", "amount"]),
        ],
    )
    def test_a_dry_run_says_what_the_change_does(
        self, client: TestClient, lake: Lake, order: dict[str, Any], names: list[str]
    ) -> None:
        before = self.names(lake)
        shown = self.change(client, **order, dry_run=True).json()
        unchanged = self.names(lake)
        done = self.change(client, **order)
        assert done.status_code == 200, done.text
        assert ([each["name"] for each in shown["columns"]], shown["dry_run"]) == (names, True)
        assert unchanged == before
        assert [each["name"] for each in done.json()["columns"]] == names == self.names(lake)
        assert done.json()["seq"] >= shown["seq"]

    def test_widening_writes_base_anew(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").fold()
        order = {"change": "widen", "column": "amount", "type": "decimal(20,2)"}
        shown = self.change(client, **order, dry_run=True).json()
        assert (shown["rewritten_files"], shown["rewritten_bytes"] > 0) == (1, True)
        done = self.change(client, **order).json()
        assert done["columns"][1] == {"name": "amount", "type": "decimal(20,2)", "nullable": True}
        assert lake.table("shop.orders").stats().base_rows == 3

    @pytest.mark.parametrize("change", ["require", "relax", "default"])
    def test_what_may_be_in_it(self, client: TestClient, lake: Lake, change: str) -> None:
        if change == "relax":
            assert self.change(client, change="require", column="status").status_code == 200
        more = {"default": "new"} if change == "default" else {}
        assert self.change(client, change=change, column="status", **more).status_code == 200
        definition = lake.table("shop.orders").definition
        found = definition.columns.field("status").nullable, dict(definition.column_defaults)
        assert found == {"require": (False, {}), "relax": (True, {}), "default": (True, {"status": "new"})}[change]

    @pytest.mark.parametrize(
        ("order", "status", "message"),
        [
            ({"change": "drop", "column": "none"}, 404, "none"),
            ({"change": "drop", "column": "id"}, 400, "'id'"),
            ({"change": "rename", "column": "status"}, 400, "give 'to'"),
            ({"change": "drop", "column": "status", "to": "x"}, 400, "takes no 'to'"),
            ({"change": "add", "column": "status", "type": "string"}, 409, "status"),
            ({"change": "widen", "column": "amount", "type": "int8"}, 400, "does not hold"),
            ({"change": "add", "column": "x", "type": "money"}, 400, "money"),
        ],
    )
    @pytest.mark.parametrize("dry_run", [True, False])
    def test_what_cannot_be_is_refused(
        self, client: TestClient, lake: Lake, order: dict[str, Any], status: int, message: str, dry_run: bool
    ) -> None:
        before = self.names(lake)
        answer = self.change(client, **order, dry_run=dry_run)
        assert answer.status_code == status, answer.text
        assert message in answer.json()["message"]
        assert self.names(lake) == before
