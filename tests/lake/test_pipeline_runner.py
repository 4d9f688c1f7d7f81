"""Pipelines and streams that run by themselves: what starts a run, what comes of it, and what outlives the process.

Spark is a fake here that does what a run would leave behind; `tests/spark/test_declared_runs.py` has the real one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import ComputeFailed, Conflict, InvalidRequest, Lake, NotFound, Settings
from lithify.jobs import leases
from lithify.lake.internals import internals
from lithify.lake.pipeline_runner import PipelineRunner
from lithify.lake.pipeline_tasks import RunTask
from lithify.pipelines.context import Moment
from lithify.pipelines.declaration import parse_pipelines
from lithify.pipelines.past_runs import past_runs, remember
from lithify.pipelines.pending import work_of
from lithify.pipelines.reports import PipelineReport, StepReport
from lithify.streams.apply import apply_batch
from support.waiting import eventually

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
STEP = {"name": "s", "table": "a.source", "target": "a.target", "key": "id"}


class FakeSpark:
    """Runs are commits without rows, or what `fail` says, in turn; `hold` keeps them under way."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.tasks = lake, list[RunTask]()
        self.fail: list[Exception] = []
        self.free = threading.Event()
        self.free.set()
        self.cancelled = threading.Event()

    def run(self, function: Any, tasks: Any) -> Any:
        raise AssertionError("pipelines run on the driver")

    def run_on_driver(self, function: Callable[..., Any], task: RunTask) -> Any:
        self.tasks.append(task)
        while not self.free.wait(0.01):
            if self.cancelled.is_set():
                raise ComputeFailed("cancelled: the process is being stopped", cancelled=True)
        if self.fail:
            raise self.fail.pop(0)
        runtime = internals(self.lake).runtime
        steps = []
        for step in parse_pipelines(task.settings.pipelines)[task.name].steps if task.settings.pipelines else ():
            work = work_of(Moment(internals(self.lake).pipelines), step)
            target = self.lake.create_table(step.target, SCHEMA, key="id", if_not_exists=True)
            known = {"read": work.until, "declared": work.declared}
            checkpoint = work.state.next(step.feed, **{name: value for name, value in known.items() if value})
            apply_batch(internals(target), SCHEMA.empty_table(), checkpoint=checkpoint, mode="upsert")
            steps.append(StepReport(step.label, step.kind, "done", step.source, step.target, written=3, quarantined=1))
        report = PipelineReport(task.name, task.run, runtime.now_ms(), "done", steps, 0.1)
        remember(runtime, report)
        return report

    def cancel_all(self, reason: str = "cancelled") -> None:
        self.cancelled.set()

    def close(self) -> None:
        pass


def settings(schedule: Mapping[str, str], **more: Any) -> Settings:
    return Settings(pipelines={"p": {"steps": [STEP], **schedule}}, **more)


@contextmanager
def running(
    folder: Path, chosen: Settings, clock: Callable[[], float] | None = None, *, start: bool = True
) -> Iterator[tuple[Lake, PipelineRunner, FakeSpark]]:
    with Lake(folder / "lake", create=True, settings=chosen) as lake:
        if "a.source" not in lake.tables():
            lake.create_table("a.source", SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
        spark = FakeSpark(lake)
        runner = PipelineRunner(lake, look_s=0.01, compute=spark, **({"clock": clock} if clock else {}))
        if start:
            runner.start()
        try:
            yield lake, runner, spark
        finally:
            spark.free.set()
            runner.stop(0)
            runner.join()


def ended(runner: PipelineRunner, outcome: str, name: str = "p") -> PipelineReport:
    def look() -> PipelineReport | None:
        last = runner.status(name).last
        return last if last is not None and last.outcome == outcome and runner.status(name).running is None else None

    found: PipelineReport = eventually(look, f"a run of {name} that is {outcome}")
    return found


class Clock:
    now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


class TestWhatStartsARun:
    def test_a_change_of_its_table(self, folder: Path) -> None:
        with running(folder, settings({"on": "a.source"})) as (lake, runner, spark):
            ended(runner, "done")
            lake.table("a.source").upsert([{"id": 2, "v": "y"}])
            eventually(lambda: len(spark.tasks) == 2, "the run for the second change")
            ended(runner, "done")
            status = runner.status("p")
        assert (status.lag, status.next_ms, status.failures, status.state) == (0, None, 0, "waiting")
        assert [task.name for task in spark.tasks] == ["p", "p"]

    def test_its_interval_and_nothing_without_changes(self, folder: Path) -> None:
        clock = Clock()
        with running(folder, settings({"every": "30s"}), clock) as (lake, runner, spark):
            first = ended(runner, "done")
            lake.table("a.source").upsert([{"id": 2, "v": "y"}])
            assert runner.status("p").lag is not None
            assert len(spark.tasks) == 1
            clock.now_s += 3_600
            second = eventually(lambda: (last := ended(runner, "done")).run != first.run and last)
            clock.now_s += 3_600
            idle = ended(runner, "idle")
        assert len({first.run, second.run, idle.run}) == 3
        assert len(spark.tasks) == 2
        assert [run["outcome"] for run in past_runs(internals(lake).runtime, "p")] == ["done", "done"]

    def test_a_cron_moment_that_passed_while_nobody_looked(self, folder: Path) -> None:
        clock = Clock()
        with running(folder, settings({"cron": "0 * * * *"}), clock) as (lake, runner, spark):
            due_ms = runner.status("p").next_ms
            assert due_ms is not None
            assert 0 < due_ms - clock.now_s * 1000 <= 3_600_000
            assert not spark.tasks
            clock.now_s += 3_600
            ended(runner, "done")
        lake_ms = internals(lake).runtime.now_ms()
        clock.now_s = lake_ms / 1000 + 7_200
        with running(folder, settings({"cron": "0 * * * *"}), clock) as (_, runner, spark):
            ended(runner, "idle")
            assert not spark.tasks

    def test_somebody_who_asks(self, folder: Path) -> None:
        with running(folder, settings({}), start=False) as (_, runner, spark):
            assert runner.status("p").state == "on request"
            run = runner.trigger("p")
            assert ended(runner, "done").run == run
            runner.trigger("p", full=True)
            eventually(lambda: len(spark.tasks) == 2)
            assert spark.tasks[1].full

    def test_nothing_before_it_is_started(self, folder: Path) -> None:
        with running(folder, settings({"every": "1h"}), start=False) as (_, runner, spark):
            assert (runner.status("p").here, runner.status("p").next_ms) == (False, None)
            runner.start()
            ended(runner, "done")
        assert len(spark.tasks) == 1

    def test_a_missing_table_is_waited_for(self, folder: Path) -> None:
        step = {**STEP, "table": "a.later"}
        chosen = Settings(pipelines={"p": {"steps": [step], "on": "a.later"}})
        with running(folder, chosen) as (lake, runner, spark):
            assert "reads table a.later, which there is not" in (runner.status("p").error or "")
            lake.create_table("a.later", SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
            # A run that began with the empty table takes its row too, and the next finds nothing to do.
            runs = internals(lake).runtime
            eventually(lambda: [run for run in past_runs(runs, "p") if run["outcome"] == "done"], "a run that is done")
        assert spark.tasks


class TestFailures:
    @pytest.mark.parametrize("error", [InvalidRequest("column v is gone"), RuntimeError("bug")])
    def test_one_is_told_kept_and_tried_again_later(self, folder: Path, error: Exception) -> None:
        clock = Clock()
        with running(folder, settings({"every": "1s"}), clock, start=False) as (lake, runner, spark):
            clock.now_s = internals(lake).runtime.now_ms() / 1000
            spark.fail = [error, error]
            runner.start()
            ended(runner, "failed")
            status = runner.status("p")
            assert (status.state, status.failures) == ("failing", 1)
            assert "column v is gone" in (status.error or "") or "RuntimeError: bug" in (status.error or "")
            first_ms = status.next_ms or 0
            clock.now_s += 11
            eventually(lambda: runner.status("p").failures == 2)
            assert (runner.status("p").next_ms or 0) - first_ms > 15_000

        with running(folder, settings({"every": "1s"}), clock, start=False) as (_, runner, spark):
            status = runner.status("p")
            assert (status.state, status.failures, status.succeeded_ms) == ("failing", 2, None)
            runner.start()
            assert not spark.tasks
            clock.now_s += 3_600
            ended(runner, "done")
            assert (runner.status("p").failures, runner.status("p").error) == (0, None)

    def test_a_run_with_nothing_to_do_ends_a_row_of_failures_for_good(self, folder: Path) -> None:
        with running(folder, settings({}), start=False) as (lake, runner, _):
            runner.trigger("p")
            ended(runner, "done")
            failed = PipelineReport("p", "x", internals(lake).runtime.now_ms() + 50, "failed", [], 1.0, "why")
            remember(internals(lake).runtime, failed)
            assert runner.status("p").failures == 1
            eventually(lambda: internals(lake).runtime.now_ms() > failed.started_ms)
            runner.trigger("p")
            ended(runner, "idle")
        with running(folder, settings({}), start=False) as (_, runner, _):
            assert runner.status("p").failures == 0

    def test_a_table_that_is_damaged_is_told_and_the_others_run(self, folder: Path) -> None:
        other = {"name": "s", "table": "a.bad", "target": "a.worse", "key": "id"}
        chosen = Settings(pipelines={"bad": {"steps": [other], "every": "1h"}, "p": {"steps": [STEP], "every": "1h"}})
        with Lake(folder / "lake", create=True, settings=chosen) as lake:
            lake.create_table("a.bad", SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
        for path in (folder / "lake/a/bad/changes/_delta_log").glob("*.json"):
            path.write_text("garbage\n")
        with running(folder, chosen) as (_, runner, spark):
            ended(runner, "done")
            failed = ended(runner, "failed", "bad")
            assert "is not readable" in (failed.reason or "")
        assert {task.name for task in spark.tasks} == {"p"}


class TestSeveralProcesses:
    def test_a_run_elsewhere_is_seen_and_waited_for(self, folder: Path) -> None:
        with running(folder, settings({"on": "a.source"}), start=False) as (lake, runner, spark):
            runtime = internals(lake).runtime
            ours, lease = leases.acquire(runtime, "pipeline-p", "theirs", 60, "pipeline p")
            assert ours
            assert (runner.status("p").running, runner.status("p").state) == ("theirs", "running")
            with pytest.raises(Conflict, match="pipeline p is being run by"):
                runner.trigger("p")
            runner.start()
            eventually(lambda: (known := runner.known_here()[0]).pause_until_ms and not known.running, "a look")
            assert not spark.tasks
            leases.release(runtime, lease)
            runner.trigger("p")
            ended(runner, "done")

    def test_what_another_process_did_is_told(self, folder: Path) -> None:
        with running(folder, settings({}), start=False) as (lake, runner, _):
            assert runner.status("p").last is None
            remember(internals(lake).runtime, PipelineReport("p", "theirs", 1_800_000_000_000, "done", [], 2.0))
            status = runner.status("p")
        assert status.last is not None
        assert (status.last.run, status.succeeded_ms) == ("theirs", 1_800_000_002_000)

    def test_two_asking_at_once_are_one_run(self, folder: Path) -> None:
        with running(folder, settings({}), start=False) as (_, runner, spark):
            spark.free.clear()
            run = runner.trigger("p")
            with pytest.raises(Conflict, match="is running already") as refused:
                runner.trigger("p")
            assert refused.value.details["run"] == run
            spark.free.set()
            ended(runner, "done")
        assert len(spark.tasks) == 1


class TestStopping:
    def test_what_runs_is_ended_and_is_no_failure(self, folder: Path) -> None:
        with running(folder, settings({"every": "1s"}), start=False) as (_, runner, spark):
            spark.free.clear()
            runner.start()
            eventually(lambda: spark.tasks)
            runner.stop(0)
            runner.join()
            with pytest.raises(Conflict, match="being stopped"):
                runner.trigger("p")
            (known,) = runner.known_here()
            assert known.last is not None
            assert (known.last.outcome, known.failures) == ("stopped", 0)

    def test_a_lake_that_is_closed_waits_for_its_runner(self, folder: Path) -> None:
        lake = Lake(folder / "lake", create=True, settings=settings({"every": "1s"}))
        lake.create_table("a.nothing", SCHEMA)
        before = set(threading.enumerate())
        lake.start_pipelines()
        eventually(lambda: lake.pipeline_status("p")[0].last)
        lake.close()
        assert not [each.name for each in set(threading.enumerate()) - before if "pipeline" in each.name]


class TestStreams:
    def test_its_files_are_looked_at_and_spark_is_asked_for_new_ones_alone(self, folder: Path) -> None:
        clock, landing = Clock(), folder / "landing"
        landing.mkdir()
        (landing / "1.json").write_text('{"id": 1, "v": "x"}\n')
        chosen = Settings(streams={"files": {"source": str(landing), "target": "a.source", "format": "json"}})
        with running(folder, chosen, clock) as (_, runner, spark):
            ended(runner, "done", "files")
            assert runner.status("files").files == 0
            clock.now_s += 3_600
            ended(runner, "idle", "files")
            assert len(spark.tasks) == 1
            (landing / "2.json").write_text('{"id": 2, "v": "x"}\n')
            clock.now_s += 3_600
            eventually(lambda: len(spark.tasks) == 2)
            ended(runner, "done", "files")

    def test_what_does_not_fit_is_told_without_spark(self, folder: Path) -> None:
        chosen = Settings(streams={"files": {"source": str(folder / "nowhere"), "target": "a.source"}})
        with running(folder, chosen) as (_, runner, spark):
            assert "is no folder" in (ended(runner, "failed", "files").reason or "")
            with pytest.raises(InvalidRequest, match="leave out full and step"):
                runner.trigger("files", full=True)
            with pytest.raises(NotFound):
                runner.plan("files")
        assert not spark.tasks


def test_an_unknown_name_is_told_with_what_there_is(folder: Path) -> None:
    with running(folder, settings({}), start=False) as (_, runner, _):
        with pytest.raises(NotFound, match=r"no pipeline and no stream 'q'.*there is p"):
            runner.trigger("q")
        with pytest.raises(InvalidRequest, match="has no step 't'"):
            runner.trigger("p", step="t")


def test_a_circle_is_an_error_at_the_start(folder: Path) -> None:
    back = {"name": "b", "table": "a.target", "target": "a.source", "key": "id"}
    chosen = Settings(pipelines={"p": {"steps": [STEP]}, "q": {"steps": [back], "every": "1m"}})
    with Lake(folder / "lake", create=True, settings=chosen) as lake, pytest.raises(InvalidRequest, match="circle"):
        lake.start_pipelines()


def test_a_plan_of_what_has_nothing_to_do_asks_no_spark(folder: Path) -> None:
    with running(folder, settings({}), start=False) as (_, runner, spark):
        runner.trigger("p")
        ended(runner, "done")
        (step,) = runner.plan("p").steps
        assert (step.does, step.columns) == ("nothing", {})
        assert len(spark.tasks) == 1


def test_the_history_of_one_is_not_pushed_out_by_another_and_the_shared_one_is_read(folder: Path) -> None:
    with Lake(folder / "lake", create=True) as lake:
        runtime = internals(lake).runtime
        remember(runtime, PipelineReport("quiet", "1", 1_000, "done", [], 1.0))
        for number in range(3_000):
            remember(runtime, PipelineReport("busy", f"{number:0200}", 2_000 + number, "done", [], 1.0))
        old = folder / "lake/_lithify/history/pipelines.jsonl"
        old.write_text(json.dumps(PipelineReport("old", "0", 500, "done", [], 1.0).document()) + "\nno json\n")
        assert [run["run"] for run in past_runs(runtime, "quiet")] == ["1"]
        assert [run["run"] for run in past_runs(runtime, "old")] == ["0"]
        assert past_runs(runtime, None, 1)[0]["started_ms"] == 4_999
        assert 0 < len(past_runs(runtime, "busy")) < 3_000
