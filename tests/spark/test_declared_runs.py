"""Declared pipelines and streams on real Spark: the session that a lake was given, or a worker of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.compute.worker import WorkerCompute
from lithify.lake.internals import internals
from lithify.lake.pipeline_runner import PipelineRunner
from lithify.pipelines.reports import PipelineReport
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ORDERS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("amount", pa.int64())])
DAILY = {
    "name": "daily",
    "table": "shop.orders",
    "by": ["day"],
    "sql": "select day, sum(amount) as revenue from source group by day",
    "target": "shop.daily",
    "key": "day",
}


def ended(lake: Lake, name: str) -> PipelineReport:
    def look() -> PipelineReport | None:
        (status,) = lake.pipeline_status(name)
        return status.last if status.running is None and status.last and status.last.outcome != "idle" else None

    found: PipelineReport = eventually(look, f"a run of {name}")
    return found


def test_a_stream_feeds_a_table_and_a_pipeline_follows_its_changes(folder: Path, spark: SparkSession) -> None:
    landing = folder / "landing"
    landing.mkdir()
    (landing / "1.json").write_text(
        '{"id": 1, "day": "a", "amount": 5}\n{"id": 2, "day": "a", "amount": 2}\n{"id": 3}\n'
    )
    settings = Settings(
        pipelines={"sales": {"steps": [DAILY], "on": "shop.orders"}},
        streams={
            "files": {
                "source": str(landing),
                "target": "shop.orders",
                "format": "json",
                "on_bad_record": "quarantine",
                "every": "1s",
            }
        },
    )
    with Lake(folder / "lake", spark, create=True, settings=settings) as lake:
        lake.create_table("shop.orders", ORDERS, key="id")
        lake.start_pipelines()
        taken = ended(lake, "files")
        assert (taken.outcome, taken.reason) == ("done", None)
        assert (taken.steps[0].written, taken.steps[0].quarantined) == (2, 1)
        eventually(lambda: "shop.daily" in lake.tables() and lake.table("shop.daily").to_arrow().num_rows, "the target")
        assert lake.table("shop.daily").to_arrow().to_pylist() == [{"day": "a", "revenue": 7}]

        lake.table("shop.orders").upsert([{"id": 9, "day": "b", "amount": 1}])
        eventually(lambda: lake.table("shop.daily").to_arrow().num_rows == 2, "the group of the new row")
        eventually(lambda: lake.pipeline_status("sales")[0].running is None)
        (status,) = lake.pipeline_status("sales")
        assert (status.failures, status.error) == (0, None)
        assert [run["outcome"] for run in lake.pipeline_runs("sales")].count("failed") == 0
        assert lake.pipeline_runs("files", 1)[0]["steps"][0]["quarantined"] == 1

    with Lake(folder / "lake", settings=settings) as lake:
        runner = PipelineRunner(lake)
        (last,) = [known.last for known in runner.known_here() if known.entry.name == "sales"]
        assert last is not None
        assert last.outcome == "done"
        (landing / "2.json").write_text("")
        assert runner.plan("sales").steps[0].does == "nothing"
        worker = internals(lake).runtime.compute
        assert isinstance(worker, WorkerCompute)
        assert worker.status().pid is None


def test_a_dry_run_asks_the_worker_for_columns_and_a_wrong_query_is_told(folder: Path) -> None:
    wrong = {**DAILY, "name": "wrong", "sql": "select nope from source", "target": "shop.wrong"}
    settings = Settings(pipelines={"sales": {"steps": [DAILY]}, "bad": {"steps": [wrong]}}, worker_memory="1g")
    with Lake(folder / "lake", create=True, settings=settings) as lake:
        lake.create_table("shop.orders", ORDERS, key="id").upsert([{"id": 1, "day": "a", "amount": 5}])
        worker = internals(lake).runtime.compute
        assert isinstance(worker, WorkerCompute)
        assert worker.status().starts == 0
        (step,) = lake.plan_pipeline("sales").steps
        assert step.columns == {"day": "string", "revenue": "int64"}
        assert lake.tables() == ["shop.orders"]
        run = lake.trigger_pipeline("bad")
        failed = ended(lake, "bad")
        assert (failed.run, failed.outcome) == (run, "failed")
        assert "nope" in (failed.reason or "")
        assert lake.pipeline_status("bad")[0].state == "failing"
        assert worker.status().starts == 1
