"""On a standalone cluster of separate processes, whose executors have pyspark, pyarrow, numpy and pandas, no more."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from lithify import Lake, Settings, Unavailable
from support import cluster_work as work
from support.cluster import Cluster
from support.drivers import Driver
from support.leftovers import unsettled

# A cluster on a busy machine takes its time.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def driver(cluster_driver: Driver) -> Driver:
    return cluster_driver


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def settings(cluster: Cluster) -> Callable[..., Settings]:
    """Of a lake that starts a Spark worker of its own on the cluster."""

    def make(**changes: Any) -> Settings:
        given = {"local_job_bytes_max": 0, "spark_master": cluster.url, "spark_driver_memory": "1g"}
        size = {"spark_executor_memory": "512m", "spark_executor_cores": 1}
        return Settings(**{**given, **size, "spark_conf": cluster.conf_without_size, **changes})

    return make


def test_executors_get_lithify_and_need_nothing_else(driver: Driver, path: Path) -> None:
    seen = driver.run(work.surroundings, path)

    assert {row["others"] for row in seen} == {""}
    assert all(".zip" in row["lithify"] for row in seen)


def test_bulk_writes_and_fresh_reads(driver: Driver, path: Path) -> None:
    work.make(path, {})
    assert driver.run(work.bulk_upsert, path, 0, 1000, "bulk") == 1000
    work.upsert(path, {7: "changed", 1000: "new"})
    expected = {**dict.fromkeys(range(1000), "bulk"), 7: "changed", 1000: "new"}

    assert driver.run(work.read, path) == expected
    assert driver.run(work.read, path, "v <> 'bulk'") == {7: "changed", 1000: "new"}
    assert unsettled(path) == []


def test_ingest(driver: Driver, path: Path, tmp_path: Path) -> None:
    work.make(path, {1: "before"})
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("id,v\n" + "".join(f"{2 * n + number},csv\n" for n in range(50)))

    assert driver.run(work.ingest, path, str(tmp_path / "*.csv")) == 100

    with Lake(path) as lake:
        assert work.rows_of(lake.table("s.t")) == dict.fromkeys(range(100), "csv")


def test_fold_compact_and_optimize(driver: Driver, path: Path) -> None:
    rows = dict.fromkeys(range(300), "first")
    work.make(path, rows, parts=3)
    work.upsert(path, dict.fromkeys(range(0, 300, 10), "second"))
    expected = {n: "first" if n % 10 else "second" for n in range(300)}

    assert driver.run(work.fold, path) == "spark"
    assert driver.run(work.compact, path) == ["spark"]
    assert driver.run(work.optimize, path) == ["spark"]

    with Lake(path) as lake:
        table = lake.table("s.t")
        assert work.rows_of(table) == expected
        assert len(table.snapshot().base) == 1
    assert unsettled(path) == []


def test_a_stream_writes_through_spark(driver: Driver, path: Path, tmp_path: Path) -> None:
    work.make(path, {})
    batches = [dict.fromkeys(range(5 * n, 5 * n + 10), f"batch {n}") for n in range(2)]
    inbox = work.write_batches(tmp_path / "inbox", batches)

    driver.run(work.stream, path, inbox, tmp_path / "checkpoint", 0)

    with Lake(path) as lake:
        found = work.rows_of(lake.table("s.t"))
    assert found == {n: "batch 0" if n < 5 else "batch 1" for n in range(15)}


def test_the_spark_worker_runs_on_the_cluster(settings: Callable[..., Settings], path: Path) -> None:
    work.make(path, dict.fromkeys(range(100), "first"), parts=2)
    work.upsert(path, {5: "second"})
    with Lake(path, settings=settings()) as lake:
        table = lake.table("s.t")

        assert table.fold().engine == "spark"
        assert [report.engine for report in table.optimize(by=["v"])] == ["spark"]

        assert work.rows_of(table) == {n: "second" if n == 5 else "first" for n in range(100)}
    assert unsettled(path) == []


def test_a_cluster_that_cannot_see_the_lake_is_told_before_any_work(driver: Driver) -> None:
    # For every process this is a folder of its own: the driver's exists, those of the executors do not.
    path = Path("/proc/self/cwd/lake")
    driver.run(work.make_here, path)

    with pytest.raises(
        Unavailable, match=r"not every machine .* reaches the lake at /proc/self/cwd/lake \(.*not there\)"
    ):
        driver.run(work.bulk_upsert, path, 0, 10, "lost")

    assert driver.run(work.traces, path) == []


def test_a_cluster_without_room_is_given_up_in_time(settings: Callable[..., Settings], path: Path) -> None:
    work.make(path, {1: "first"})
    work.upsert(path, {1: "second"})
    greedy = settings(spark_executor_memory="64g", spark_wait_s_max=3)
    with Lake(path, settings=greedy) as lake, pytest.raises(Unavailable, match="no executor of Spark took up work"):
        lake.table("s.t").fold()
    assert unsettled(path) == []
