"""Cycles: one at a time per lake, each job on its own, and nothing lost when a process sleeps, dies or is overtaken."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import ComputeFailed, Conflict, Corruption, InvalidRequest, Lake, NotFound, Settings, Unavailable
from lithify.jobs import leases
from lithify.maintenance.cycle_lease import LEASE, Cycle, cycle_history
from lithify.maintenance.plans import Plan
from lithify.tables.runtime import Owner, Runtime
from support import children, cycles
from support.bags import bag
from support.cycles import PlayedTable, Result, compact, fold, folding_cycle, minor, wait_until_stopped
from support.faults import FaultyStore, Gate, disk_full
from support.leftovers import unsettled

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def runtime(folder: Path) -> Iterator[Runtime]:
    with Lake(folder, settings=cycles.SETTINGS) as lake:
        yield lake._runtime


def played(runtime: Runtime, tables: dict[str, PlayedTable], **parts: Any) -> Cycle:
    return Cycle(runtime, lambda: list(tables), lambda name, lease: tables[name], **parts)


def with_settings(runtime: Runtime, **values: Any) -> Runtime:
    return dataclasses.replace(runtime, settings=runtime.settings.model_copy(update=values))


def failing(error: Exception) -> Callable[[Plan], Any]:
    def act(plan: Plan) -> Any:
        raise error

    return act


class TestWhatRuns:
    def test_changes_first_then_compactions_on_a_fresh_look(self, runtime: Runtime) -> None:
        table = PlayedTable([compact("a.t", "1", "x"), minor("a.t"), fold("a.t")])
        report = played(runtime, {"a.t": table}).run()
        assert [plan.kind for plan in table.ran] == ["minor", "fold", "compact"]
        assert (report.done, report.bytes_in, report.bytes_out, report.stopped) == (3, 300, 120, None)
        assert report.healthy

    def test_a_compaction_that_the_fold_made_needless_does_not_run(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t"), compact("a.t", "1", "x")])
        table.act = lambda plan: table.due.pop() if plan.kind == "fold" else None
        played(runtime, {"a.t": table}).run()
        assert [plan.kind for plan in table.ran] == ["fold"]

    def test_plans_of_a_partition_in_order_and_partitions_side_by_side(self, runtime: Runtime) -> None:
        together = threading.Barrier(2, timeout=60)
        plans = [compact("a.t", day, name) for name in ("x", "y", "z") for day in ("1", "2")]
        table = PlayedTable(plans, lambda plan: together.wait() and None)
        played(runtime, {"a.t": table}).run()
        for day in ("1", "2"):
            names = [p.files[0].path for p in table.ran if p.partition["_day"] == day]  # type: ignore[union-attr]
            assert names == ["x", "y", "z"]

    def test_no_more_jobs_at_once_than_allowed(self, runtime: Runtime) -> None:
        running, most, lock = 0, 0, threading.Lock()

        def act(plan: Plan) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with lock:
                running -= 1

        tables = {f"a.t{n}": PlayedTable([fold("x"), compact("x", "1", "x")], act) for n in range(6)}
        played(with_settings(runtime, jobs_max=2), tables).run()
        assert most <= 2
        assert all(len(table.ran) == 2 for table in tables.values())

    def test_one_tier(self, runtime: Runtime) -> None:
        table = PlayedTable([compact("a.t", "1", "x")])
        report = played(runtime, {"a.t": table}).run("hourly")
        assert (table.tiers, report.what, table.trimmed) == ([("hourly",)], "hourly", 0)
        assert report.jobs[0].tier == "hourly"

    def test_only_some_kinds(self, runtime: Runtime) -> None:
        plans = [compact("a.t", "1", "x"), compact("a.t", "1", "y", "pack"), fold("a.t")]
        table = PlayedTable(plans)
        played(runtime, {"a.t": table}).run(only={"fold", "minor", "pack"})
        assert [plan.files[0].path for plan in table.ran] == ["c", "y"]

    def test_some_tables(self, runtime: Runtime) -> None:
        tables = {"a.t": PlayedTable([fold("a.t")]), "a.u": PlayedTable([fold("a.u")])}
        played(runtime, tables).run(tables=["a.u"])
        assert (len(tables["a.t"].ran), len(tables["a.u"].ran)) == (0, 1)

    def test_a_table_that_is_not_there(self, runtime: Runtime) -> None:
        with pytest.raises(NotFound, match=r"a\.none"):
            played(runtime, {"a.t": PlayedTable([])}).run(tables=["a.none"])
        assert cycle_history(runtime) == []

    def test_logs_are_trimmed_and_nothing_is_vacuumed(self, runtime: Runtime) -> None:
        table = PlayedTable([])
        played(runtime, {"a.t": table}).run()
        assert (table.trimmed, table.vacuumed) == (1, 0)

    def test_vacuum_runs_alone(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")])
        report = played(runtime, {"a.t": table}).run(vacuum=True)
        assert (table.vacuumed, table.ran, report.what) == (1, [], "vacuum")

    def test_jobs_know_the_lease(self, runtime: Runtime) -> None:
        tokens = []
        cycle = Cycle(runtime, lambda: ["a.t"], lambda name, lease: tokens.append(lease) or PlayedTable([]))  # type: ignore[func-returns-value]
        cycle.run()
        cycle.run()
        assert tokens == [1, 2]

    def test_completion_is_told_at_once(self, runtime: Runtime) -> None:
        told: list[tuple[str, int]] = []
        table = PlayedTable([fold("a.t"), compact("a.t", "1", "x")])
        played(runtime, {"a.t": table}, notify=lambda name: told.append((name, len(table.ran)))).run()
        assert told == [("a.t", 1), ("a.t", 2)]

    def test_counters(self, runtime: Runtime) -> None:
        tables = {"a.t": PlayedTable([fold("a.t")]), "a.u": PlayedTable([fold("a.u")], failing(Unavailable("no")))}
        cycle = played(runtime, tables)
        cycle.run()
        text = cycle.counters.text().decode()
        assert 'lithify_jobs_total{kind="fold",outcome="done"} 1.0' in text
        assert 'lithify_jobs_total{kind="fold",outcome="failed"} 1.0' in text
        assert 'lithify_job_bytes_total{direction="in",kind="fold"} 100.0' in text
        assert "lithify_cycle_running 0.0" in text
        assert "lithify_jobs_waiting 1.0" in text

    def test_lakes_do_not_share_counters(self, runtime: Runtime) -> None:
        first, second = played(runtime, {}), played(runtime, {})
        first.run()
        assert b'lithify_cycles_total{outcome="ended"} 1.0' in first.counters.text()
        assert b"lithify_cycles_total{" not in second.counters.text()

    def test_events_tell_the_story(self, runtime: Runtime) -> None:
        events: list[dict[str, Any]] = []
        report = played(runtime, {"a.t": PlayedTable([fold("a.t")])}).run(on_event=events.append)
        assert [event["event"] for event in events] == ["cycle started", "job started", "job done", "cycle done"]
        assert {event["cycle"] for event in events} == {report.id}
        assert events[1]["bytes_in"] == 10
        assert (events[2]["table"], events[2]["kind"], events[2]["why"]) == ("a.t", "fold", "many changes")
        assert (events[2]["bytes_in"], events[2]["bytes_out"]) == (100, 40)
        json.dumps(events)

    def test_a_listener_that_fails_changes_nothing(self, runtime: Runtime) -> None:
        def fail(event: dict[str, Any]) -> None:
            raise BrokenPipeError

        assert played(runtime, {"a.t": PlayedTable([fold("a.t")])}).run(on_event=fail).done == 1


class TestWhatGoesWrong:
    def test_a_damaged_table_does_not_stop_the_others(self, folder: Path) -> None:
        with Lake(folder, settings=cycles.SETTINGS) as lake:
            for name in ("a.bad", "a.good"):
                lake.create_table(name, COLUMNS, key="id").upsert([{"id": 1, "v": "x"}])
        (folder / "a" / "bad" / "changes" / "_delta_log" / "00000000000000000000.json").write_text("{torn")
        with Lake(folder, settings=cycles.SETTINGS) as lake:
            report = folding_cycle(lake).run()
            assert [(s.table, s.damaged) for s in report.skipped] == [("a.bad", True)]
            assert report.done == 1
            assert not report.healthy
            assert lake.table("a.good").stats().pending_rows == 0

    def test_a_failed_job_is_recorded_and_the_rest_goes_on(self, runtime: Runtime) -> None:
        tables = {
            "a.t": PlayedTable([fold("a.t")], failing(Corruption("file c is damaged"))),
            "a.u": PlayedTable([fold("a.u")]),
        }
        report = played(runtime, tables).run()
        assert [(job.table, job.reason) for job in report.failures] == [("a.t", "file c is damaged")]
        assert report.done == 1
        assert cycle_history(runtime)[0]["failed"] == 1

    def test_a_crash_is_a_failure_with_its_reason(self, runtime: Runtime) -> None:
        tables = {"a.t": PlayedTable([fold("a.t"), minor("a.t")], failing(ZeroDivisionError("by zero")))}
        report = played(runtime, tables).run()
        assert {job.reason for job in report.failures} == {"ZeroDivisionError: by zero"}

    def test_a_table_that_cannot_be_planned_is_skipped(self, runtime: Runtime) -> None:
        tables = {"a.t": PlayedTable([]), "a.u": PlayedTable([fold("a.u")])}
        tables["a.t"].plans = lambda now_ms, tier: failing(ValueError("odd"))(fold("a.t"))  # type: ignore[method-assign]
        report = played(runtime, tables).run()
        assert [(s.table, s.why) for s in report.skipped] == [("a.t", "ValueError: odd")]
        assert report.done == 1

    def test_moved_inputs_are_no_failure_and_come_again_at_once(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")], failing(Conflict("inputs changed")))
        cycle = played(runtime, {"a.t": table})
        assert [cycle.run().replanned for _ in range(3)] == [1, 1, 1]
        table.act = None
        report = cycle.run()
        assert (report.done, report.failures, report.healthy) == (1, (), True)

    def test_a_table_dropped_meanwhile_is_no_failure(self, runtime: Runtime) -> None:
        tables: dict[str, PlayedTable] = {}

        def drop(plan: Plan) -> None:
            tables.clear()
            raise NotFound("table a.t was dropped")

        tables["a.t"] = PlayedTable([fold("a.t")], drop)
        report = played(runtime, tables).run()
        assert report.healthy
        assert report.skipped == ()

    def test_damaged_inputs_that_were_left_out_are_told(self, runtime: Runtime) -> None:
        table = PlayedTable([compact("a.t", "1", "x")], lambda plan: Result(problems=("file x is damaged",)))
        report = played(runtime, {"a.t": table}).run()
        assert report.done == 1
        assert report.problems == ("hourly of a.t: file x is damaged",)

    def test_work_that_only_left_out_damaged_inputs_backs_off(self, runtime: Runtime) -> None:
        nothing = Result(files_written=0, problems=("file x is damaged",))
        table = PlayedTable([compact("a.t", "1", "x")])
        table.run = lambda plan: nothing  # type: ignore[method-assign]
        cycle = played(runtime, {"a.t": table})
        assert [len(cycle.run().failures) for _ in range(3)] == [1, 0, 1]

    def test_recovery_that_fails_is_told_and_the_cycle_goes_on(
        self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*arguments: Any, **options: Any) -> list[str]:
            raise Corruption("a.t cannot be settled")

        monkeypatch.setattr("lithify.jobs.recovery.recover", fail)
        report = played(runtime, {"a.t": PlayedTable([fold("a.t")])}).run()
        assert report.problems == ("recovery: a.t cannot be settled",)
        assert report.done == 1

    def test_no_room_for_the_report(self, runtime: Runtime) -> None:
        class Full(FaultyStore):
            def append(self, path: Path, data: bytes) -> int:
                raise Unavailable("no space left")

        full = dataclasses.replace(runtime, store=Full("none", disk_full))
        assert played(full, {"a.t": PlayedTable([fold("a.t")])}).run().done == 1


class TestBackOff:
    def failures(self, cycle: Cycle, turns: int) -> list[int]:
        return [len(cycle.run().failures) for _ in range(turns)]

    def test_one_two_four_turns(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")], failing(Corruption("bad file")))
        found = self.failures(played(runtime, {"a.t": table}), 14)
        assert found == [1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]

    def test_after_an_hour_it_is_tried_again(self, runtime: Runtime) -> None:
        clock = Clock()
        table = PlayedTable([fold("a.t")], failing(Corruption("bad file")))
        cycle = played(dataclasses.replace(runtime, now_ms=clock), {"a.t": table})
        self.failures(cycle, 11)
        clock.now_ms += HOUR_MS
        assert self.failures(cycle, 2) == [1, 0]

    def test_a_clock_that_went_back_does_not_wait_forever(self, runtime: Runtime) -> None:
        clock = Clock()
        table = PlayedTable([fold("a.t")], failing(Corruption("bad file")))
        cycle = played(dataclasses.replace(runtime, now_ms=clock), {"a.t": table})
        self.failures(cycle, 11)
        clock.now_ms -= 24 * HOUR_MS
        assert self.failures(cycle, 1) == [1]

    def test_another_reason_starts_anew(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")], failing(Corruption("bad file")))
        cycle = played(runtime, {"a.t": table})
        assert self.failures(cycle, 3) == [1, 0, 1]
        table.act = failing(Unavailable("no permission"))
        assert self.failures(cycle, 5) == [0, 0, 1, 0, 1]

    def test_success_forgets(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")], failing(Corruption("bad file")))
        cycle = played(runtime, {"a.t": table})
        self.failures(cycle, 2)
        table.act = None
        report = cycle.run()
        assert (report.done, report.waiting) == (1, ())

    def test_other_work_on_the_table_goes_on(self, runtime: Runtime) -> None:
        def act(plan: Plan) -> None:
            if plan.files[0].path == "bad":
                raise Corruption("bad file")

        table = PlayedTable([compact("a.t", "1", "bad"), compact("a.t", "1", "good")], act)
        cycle = played(runtime, {"a.t": table})
        assert (len(cycle.run().failures), len(table.ran)) == (1, 1)
        table.due.append(fold("a.t"))
        assert cycle.run().done == 1

    def test_the_next_process_knows(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")], failing(Corruption("bad file")))
        found = [n for _ in range(4) for n in self.failures(played(runtime, {"a.t": table}), 1)]
        assert found == [1, 0, 1, 0]
        waiting = cycle_history(runtime)[0]["waiting"]
        assert [(w["table"], w["kind"], w["reason"], w["failures"]) for w in waiting] == [
            ("a.t", "fold", "bad file", 2)
        ]


class TestTheHistory:
    def test_newest_first_and_cut_off_lines_are_skipped(self, runtime: Runtime) -> None:
        cycle = played(runtime, {})
        ids = [cycle.run().id for _ in range(2)]
        path = runtime.control / "history" / "cycles.jsonl"
        path.write_text(path.read_text() + '{"cycle": "cut o')
        assert [entry["cycle"] for entry in cycle_history(runtime)] == [ids[1], ids[0]]

    def test_an_odd_history_is_no_obstacle(self, runtime: Runtime) -> None:
        path = runtime.control / "history" / "cycles.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"waiting": [1, {"table": "a.t"}, {"table": 1, "kind": 2, "place": 3, "failures": "x"}]}\n')
        assert played(runtime, {"a.t": PlayedTable([fold("a.t")])}).run().done == 1


class TestRoles:
    def test_a_node_without_the_role_says_so_and_does_nothing(self, runtime: Runtime) -> None:
        table = PlayedTable([fold("a.t")])
        cycle = played(with_settings(runtime, roles=("read", "write")), {"a.t": table})
        with pytest.raises(InvalidRequest, match=r"roles is read,write.*LITHIFY_ROLES"):
            cycle.run()
        assert (table.ran, table.tiers, cycle_history(runtime)) == ([], [], [])
        assert leases.current_token(runtime, LEASE) == 0

    @pytest.mark.parametrize(("text", "roles"), [("read", ("read",)), ("write, compact", ("write", "compact"))])
    def test_from_the_environment(self, text: str, roles: object, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITHIFY_ROLES", text)
        assert Settings().roles == roles


class TestOneAtATime:
    def test_the_second_trigger_gets_the_id(self, runtime: Runtime) -> None:
        gate = Gate()
        cycle = played(runtime, {"a.t": PlayedTable([fold("a.t")], lambda plan: gate.hold())})
        reports = []
        thread = threading.Thread(target=lambda: reports.append(cycle.run()))
        thread.start()
        gate.wait()
        with pytest.raises(Conflict, match=r"a cycle is already running: [0-9a-f]{32} by ") as here:
            cycle.run()
        with pytest.raises(Conflict) as other_lake:
            played(runtime, {}).run()
        gate.open()
        thread.join()
        assert here.value.details == other_lake.value.details == {"cycle": reports[0].id}
        assert cycle.run().stopped is None

    def test_across_processes(self, folder: Path, tmp_path: Path) -> None:
        with Lake(folder, settings=cycles.SETTINGS) as lake:
            table = lake.create_table("a.t", COLUMNS, key="id")
            table.upsert([{"id": 1, "v": "x"}])
            table.fold()
            table.upsert([{"id": 1, "v": "y"}])
            reached, go_on, results = children.event(), children.event(), children.queue()
            child = children.start(cycles.run_gated, str(folder), reached, go_on, results, scratch=tmp_path)
            assert reached.wait(children.WAIT_S_MAX)
            with pytest.raises(Conflict, match=f"-{child.pid} since") as refused:
                folding_cycle(lake).run()
            go_on.set()
            assert results.get(timeout=children.WAIT_S_MAX) == (refused.value.details["cycle"], 1)
            assert children.finish(child) == 0
            assert folding_cycle(lake).run().jobs == ()
            assert lake.table("a.t").to_arrow().to_pylist() == [{"id": 1, "v": "y"}]

    def test_a_process_that_dies_is_followed_at_once(self, folder: Path, tmp_path: Path) -> None:
        with Lake(folder, settings=cycles.SETTINGS) as lake:
            rows = self.prepare(lake)
            assert children.finish(children.start(cycles.run_killed, str(folder), scratch=tmp_path)) == -signal.SIGKILL
            report = folding_cycle(lake).run()
            assert (len(report.recovered), report.done, report.healthy) == (2, 2, True)
            self.check(lake, rows)

    def test_a_sleeper_is_overtaken_and_does_no_harm(self, folder: Path, tmp_path: Path) -> None:
        """Stopped in the middle of a commit, past its lease; another process works; then it wakes up."""
        with Lake(folder, settings=cycles.SETTINGS) as lake:
            rows = self.prepare(lake)
            results = children.queue()
            child = children.start(cycles.run_stopped, str(folder), results, scratch=tmp_path)
            assert child.pid is not None
            wait_until_stopped(child.pid)
            try:
                with pytest.raises(Conflict, match="already running"):
                    folding_cycle(lake).run()
                later = int(time.time() * 1000) + 120_000
                report = folding_cycle(lake, now_ms=lambda: later).run()
                assert (len(report.recovered), report.done, report.healthy) == (1, 2, True)
                for name in rows:
                    lake.table(name).upsert([{"id": 2, "v": "newer"}])
                    rows[name][1]["v"] = "newer"
            finally:
                os.kill(child.pid, signal.SIGCONT)
            done, replanned, stopped = results.get(timeout=children.WAIT_S_MAX)
            assert children.finish(child) == 0
            assert (done, replanned, stopped) == (0, 1, "another process took over the lease")
            self.check(lake, rows)
            assert folding_cycle(lake, now_ms=lambda: later + 120_000).run().done == 2
            self.check(lake, rows)

    def prepare(self, lake: Lake) -> dict[str, list[dict[str, Any]]]:
        """Two tables whose folds rewrite a file."""
        rows = [{"id": 1, "v": "new"}, {"id": 2, "v": "old"}]
        for name in ("a.t", "a.u"):
            table = lake.create_table(name, COLUMNS, key="id")
            table.upsert([{"id": 1, "v": "old"}, {"id": 2, "v": "old"}])
            table.fold()
            table.upsert([{"id": 1, "v": "new"}])
        return {name: [dict(row) for row in rows] for name in ("a.t", "a.u")}

    def check(self, lake: Lake, rows: dict[str, list[dict[str, Any]]]) -> None:
        for name, expected in rows.items():
            assert bag(lake.table(name).to_arrow().to_pylist()) == bag(expected)
        assert unsettled(lake.path) == []


class Cancellable:
    """A worker whose jobs end when they are cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel_all(self, reason: str = "") -> None:
        self.cancelled.set()

    def act(self, plan: Plan) -> None:
        assert self.cancelled.wait(60)
        raise ComputeFailed("cancelled")


class TestStopping:
    def test_after_the_timeout_nothing_is_started_and_what_runs_is_cancelled(self, runtime: Runtime) -> None:
        worker = Cancellable()
        tables = {
            name: PlayedTable([fold(name), compact(name, "1", "x")], worker.act) for name in ("a.t", "a.u", "a.v")
        }
        slow = dataclasses.replace(with_settings(runtime, jobs_max=1), compute=worker)  # type: ignore[arg-type]
        cycle = played(slow, tables)
        report = cycle.run(timeout_s=0.05)
        assert report.stopped == "timeout after 0.05 s"
        assert [job.outcome for job in report.jobs] == ["cancelled"]
        assert (report.waiting, report.not_started) == ((), 1)
        worker.act = lambda plan: None  # type: ignore[method-assign]
        for table in tables.values():
            table.act = None
        assert cycle.run().done == 6

    def test_a_failure_of_its_own_while_others_are_cancelled_stays_one(self, runtime: Runtime) -> None:
        worker = Cancellable()

        def act(plan: Plan) -> None:
            assert worker.cancelled.wait(60)
            raise Corruption("bad file")

        slow = dataclasses.replace(runtime, compute=worker)  # type: ignore[arg-type]
        report = played(slow, {"a.t": PlayedTable([fold("a.t")], act)}).run(timeout_s=0.05)
        assert [job.reason for job in report.failures] == ["bad file"]

    def test_closing_lets_the_running_job_end(self, runtime: Runtime) -> None:
        gate = Gate()
        table = PlayedTable([minor("a.t"), fold("a.t")], lambda plan: gate.hold())
        cycle = played(runtime, {"a.t": table})
        reports = []
        thread = threading.Thread(target=lambda: reports.append(cycle.run()))
        thread.start()
        gate.wait()
        cycle.close()
        assert not cycle.wait(0)
        gate.open()
        assert cycle.wait(60)
        thread.join()
        assert (reports[0].done, reports[0].stopped) == (1, "stopped")
        with pytest.raises(Conflict, match="being stopped"):
            cycle.run()

    def test_a_lost_lease_starts_nothing_new(self, runtime: Runtime) -> None:
        clock = Clock()
        there = dataclasses.replace(runtime, now_ms=clock, owner=Owner("elsewhere", 1, "1"))

        def overtaken(plan: Plan) -> None:
            clock.now_ms += 24 * HOUR_MS
            assert leases.acquire(there, LEASE, "their cycle", 60)[0]

        table = PlayedTable([minor("a.t"), fold("a.t")], overtaken)
        cycle = played(dataclasses.replace(runtime, now_ms=clock), {"a.t": table})
        report = cycle.run()
        assert (report.done, report.stopped) == (1, "another process took over the lease")
        assert leases.current(there, LEASE) is not None
        with pytest.raises(Conflict, match="already running: their cycle by elsewhere-1"):
            cycle.run()
        assert b"lithify_leases_lost_total 1.0" in cycle.counters.text()
