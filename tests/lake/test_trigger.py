"""A cycle in the background, runs that are asked for by name, and what a process counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Conflict, InvalidRequest, Lake, LimitExceeded, NotFound, Settings
from lithify.http.metrics import Metrics
from lithify.lake.maintenance import Maintenance, chosen_tables, maintenance_of, past_cycles, running_cycle
from support.faults import FaultyStore, Gate

pytestmark = pytest.mark.slow

ORDERS = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(actor="test", fold_files_max=1, jobs_max=2)
WAIT_S = 60


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Stops the first fold before its commit until it is opened."""
    gate = Gate(WAIT_S)
    yield gate
    gate.open()


@pytest.fixture
def lake(folder: Path, gate: Gate) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS, store=FaultyStore("fold.commit", gate.hold)) as lake:
        for name in ("shop.orders", "shop.items", "log.events"):
            lake.create_table(name, ORDERS, key="id").upsert([{"id": 1, "v": "a"}])
        yield lake
        gate.open()


class TestTrigger:
    def test_answers_while_the_cycle_runs(self, lake: Lake, gate: Gate) -> None:
        cycle = lake.trigger_maintenance()

        gate.wait()
        running = running_cycle(lake)
        assert running is not None
        assert running["cycle"] == cycle

    def test_the_report_is_in_the_history(self, lake: Lake, gate: Gate) -> None:
        gate.open()
        cycle = lake.trigger_maintenance()

        assert maintenance_of(lake).cycle.wait(WAIT_S)
        assert [(entry["cycle"], entry["done"]) for entry in past_cycles(lake)] == [(cycle, 3)]

    def test_a_second_one_is_told_the_id_of_the_first(self, lake: Lake, gate: Gate) -> None:
        cycle = lake.trigger_maintenance()
        gate.wait()

        with pytest.raises(Conflict) as refused:
            lake.trigger_maintenance()
        assert refused.value.details["cycle"] == cycle

    def test_the_lake_can_be_triggered_again_afterwards(self, lake: Lake, gate: Gate) -> None:
        gate.open()
        first = lake.trigger_maintenance()
        assert maintenance_of(lake).cycle.wait(WAIT_S)

        assert lake.trigger_maintenance() != first

    def test_only_some_tables(self, lake: Lake, gate: Gate) -> None:
        gate.open()
        lake.trigger_maintenance(tables=["shop.items"])

        assert maintenance_of(lake).cycle.wait(WAIT_S)
        assert [job["table"] for job in past_cycles(lake)[0]["jobs"]] == ["shop.items"]

    def test_an_unknown_tier_or_table_starts_nothing(self, lake: Lake) -> None:
        with pytest.raises(InvalidRequest, match="no tier 'yearly'"):
            lake.trigger_maintenance("yearly")
        with pytest.raises(NotFound, match=r"shop\.nothing"):
            lake.trigger_maintenance(tables=["shop.nothing"])
        assert running_cycle(lake) is None

    def test_a_node_without_the_role_is_the_wrong_place(self, folder: Path) -> None:
        with Lake(folder / "other", settings=Settings(roles=("read",))) as lake, pytest.raises(Conflict) as refused:
            lake.trigger_maintenance()
        assert "roles" in refused.value.message

    def test_closing_the_lake_waits_for_the_cycle(self, folder: Path, gate: Gate) -> None:
        lake = Lake(folder / "closed", settings=SETTINGS, store=FaultyStore("fold.commit", gate.hold))
        lake.create_table("shop.orders", ORDERS, key="id").upsert([{"id": 1, "v": "a"}])
        cycle = lake.trigger_maintenance()
        gate.wait()

        closing = threading.Thread(target=lake.close)
        closing.start()
        gate.open()
        closing.join(WAIT_S)

        assert not closing.is_alive()
        assert past_cycles(lake)[0]["cycle"] == cycle


class TestAsked:
    def test_a_table_is_worked_on_once_at_a_time(self, lake: Lake, gate: Gate) -> None:
        maintenance = Maintenance(lake)
        first = threading.Thread(target=lambda: maintenance.asked("shop.orders", "fold", lambda table: table.fold()))
        first.start()
        gate.wait()

        with pytest.raises(Conflict, match=r"fold of shop\.orders is running"):
            maintenance.asked("shop.orders", "vacuum", lambda table: table.vacuum())
        gate.open()
        first.join(WAIT_S)
        assert maintenance.asked("shop.orders", "vacuum", lambda table: table.vacuum()).table == "shop.orders"

    def test_so_many_tables_at_once(self, lake: Lake) -> None:
        maintenance = Maintenance(lake)
        go_on, running = threading.Event(), threading.Barrier(3)

        def wait() -> None:
            running.wait(WAIT_S)
            assert go_on.wait(WAIT_S)

        threads = [
            threading.Thread(target=lambda name=name: maintenance.asked(name, "fold", lambda table: wait()))
            for name in ("shop.orders", "shop.items")
        ]
        for thread in threads:
            thread.start()
        running.wait(WAIT_S)
        try:
            with pytest.raises(LimitExceeded) as refused:
                maintenance.asked("log.events", "fold", lambda table: table.fold())
            assert refused.value.details["limit"] == "queue"
        finally:
            go_on.set()
            for thread in threads:
                thread.join(WAIT_S)

    def test_what_failed_gives_its_turn_back_and_is_counted(self, lake: Lake) -> None:
        maintenance = Maintenance(lake)
        with pytest.raises(ZeroDivisionError):
            maintenance.asked("shop.orders", "fold", lambda table: 1 // 0)

        assert maintenance.turns() == []
        assert b'lithify_jobs_total{kind="fold",outcome="failed"} 1.0' in maintenance.counters.text()


class TestLooking:
    def test_candidates_do_nothing(self, lake: Lake) -> None:
        found, skipped = Maintenance(lake).candidates(lake.tables())

        assert [(candidate.table, candidate.kind) for candidate in found] == [
            ("log.events", "fold"),
            ("shop.items", "fold"),
            ("shop.orders", "fold"),
        ]
        assert skipped == []
        assert lake.table("shop.orders").stats().pending_rows == 1

    def test_a_damaged_table_is_skipped(self, lake: Lake) -> None:
        lake.table("shop.orders")
        log = lake.path / "shop" / "items" / "base" / "_delta_log"
        next(iter(sorted(log.glob("*.json")))).write_text("{")

        found, skipped = Maintenance(lake).candidates(lake.tables())
        assert "shop.items" not in {candidate.table for candidate in found}
        assert [entry.table for entry in skipped] == ["shop.items"]

    @pytest.mark.parametrize(
        ("table", "namespace", "expected"),
        [
            (None, None, ["log.events", "shop.items", "shop.orders"]),
            (None, "shop", ["shop.items", "shop.orders"]),
            ("log.events", None, ["log.events"]),
            ("log.events", "log", ["log.events"]),
        ],
    )
    def test_choosing_tables(self, lake: Lake, table: str | None, namespace: str | None, expected: list[str]) -> None:
        assert sorted(chosen_tables(lake, table, namespace)) == expected

    @pytest.mark.parametrize(
        ("table", "namespace", "error"),
        [
            ("shop.nothing", None, NotFound),
            ("Shop!", None, InvalidRequest),
            (None, "nowhere", NotFound),
            ("log.events", "shop", InvalidRequest),
        ],
    )
    def test_choosing_what_is_not_there(
        self, lake: Lake, table: str | None, namespace: str | None, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            chosen_tables(lake, table, namespace)


class TestCounted:
    def test_writes_are_counted(self, lake: Lake) -> None:
        before = lake._runtime.activity.totals()
        lake.table("shop.orders").upsert([{"id": 2, "v": "b"}, {"id": 3, "v": "c"}])
        lake.table("shop.orders").delete([2])

        after = lake._runtime.activity.totals()
        assert after.rows_written - before.rows_written == 3
        assert after.commits - before.commits == 2

    def test_a_replayed_write_is_not_counted_again(self, lake: Lake) -> None:
        lake.table("shop.orders").upsert([{"id": 2, "v": "b"}], batch_id="x")
        before = lake._runtime.activity.totals()
        lake.table("shop.orders").upsert([{"id": 2, "v": "b"}], batch_id="x")

        assert lake._runtime.activity.totals() == before

    def test_pending_changes(self, lake: Lake) -> None:
        lake.table("shop.items").upsert([{"id": n, "v": "b"} for n in range(5)])
        for name in lake.tables():
            lake.table(name).stats()

        told = Metrics(lake).registry.get_sample_value
        rows = {name: told("lithify_pending_rows", {"table": name}) for name in lake.tables()}
        assert rows == {"log.events": 1, "shop.items": 6, "shop.orders": 1}
        assert told("lithify_pending_files", {"table": "shop.items"}) == 2

    def test_no_spark_worker_runs_before_it_is_needed(self, lake: Lake) -> None:
        told = Metrics(lake).registry.get_sample_value
        assert [told(f"lithify_worker_{what}") for what in ("alive", "starts_total", "deaths_total")] == [0, 0, 0]
