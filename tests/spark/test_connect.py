"""Over Spark Connect: another process has the driver, and this one only a session by the network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from lithify import Lake, Settings
from support import cluster_work as work
from support.cluster import ConnectServer
from support.drivers import Driver
from support.leftovers import unsettled

# A cluster on a busy machine takes its time.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def driver(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    started = Driver(tmp_path_factory.mktemp("client"), remote=connect_server.url)
    yield started
    started.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_tasks_get_lithify_from_the_client(driver: Driver, path: Path) -> None:
    assert all(".zip" in row["lithify"] for row in driver.run(work.surroundings, path))


def test_bulk_writes_ingest_and_fresh_reads(driver: Driver, path: Path, tmp_path: Path) -> None:
    work.make(path, {})
    (tmp_path / "rows.csv").write_text("id,v\n" + "".join(f"{n},csv\n" for n in range(900, 950)))

    assert driver.run(work.bulk_upsert, path, 0, 1000, "bulk") == 1000
    assert driver.run(work.ingest, path, str(tmp_path / "rows.csv")) == 50
    work.upsert(path, {7: "changed"})

    expected = {n: "csv" if 900 <= n < 950 else "bulk" for n in range(1000)} | {7: "changed"}
    assert driver.run(work.read, path) == expected
    assert driver.run(work.read, path, "v = 'changed'") == {7: "changed"}


def test_a_small_frame_is_fetched_and_written_by_the_client(driver: Driver, path: Path) -> None:
    work.make(path, {1: "first"})
    assert driver.run(work.small_upsert, path, {1: "second", 2: "second"}) == "write"
    assert driver.run(work.read, path) == {1: "second", 2: "second"}


def test_fold_compact_and_optimize(driver: Driver, path: Path) -> None:
    work.make(path, dict.fromkeys(range(300), "first"), parts=3)
    work.upsert(path, dict.fromkeys(range(0, 300, 10), "second"))

    assert driver.run(work.fold, path) == "spark"
    assert driver.run(work.compact, path) == ["spark"]
    assert driver.run(work.optimize, path) == ["spark"]

    with Lake(path) as lake:
        assert work.rows_of(lake.table("s.t")) == {n: "first" if n % 10 else "second" for n in range(300)}
    assert unsettled(path) == []


@pytest.mark.parametrize("rows_max", [0, 1000], ids=["Spark writes", "the engine writes"])
def test_a_stream_whose_function_runs_on_the_server(driver: Driver, path: Path, tmp_path: Path, rows_max: int) -> None:
    work.make(path, {})
    batches = [dict.fromkeys(range(5 * n, 5 * n + 10), f"batch {n}") for n in range(2)]
    inbox = work.write_batches(tmp_path / "inbox", batches)

    driver.run(work.stream, path, inbox, tmp_path / "checkpoint", rows_max)

    with Lake(path) as lake:
        found = work.rows_of(lake.table("s.t"))
    assert found == {n: "batch 0" if n < 5 else "batch 1" for n in range(15)}


def test_the_spark_worker_works_over_connect(connect_server: ConnectServer, path: Path) -> None:
    work.make(path, dict.fromkeys(range(100), "first"), parts=2)
    work.upsert(path, {5: "second"})
    settings = Settings(local_job_bytes_max=0, spark_remote=connect_server.url)
    with Lake(path, settings=settings) as lake:
        table = lake.table("s.t")

        assert table.fold().engine == "spark"
        assert [report.engine for report in table.optimize(by=["v"])] == ["spark"]

        assert work.rows_of(table) == {n: "second" if n == 5 else "first" for n in range(100)}
