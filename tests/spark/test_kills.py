"""Processes of a cluster that are killed, or doubled, in the middle of work: the rows are those of an undisturbed run,
and nothing is left of attempts that failed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from lithify import Lake, Settings
from lithify.compute.processes import members
from support import cluster_work as work
from support.cluster import Cluster, Gate, executor_of, kill
from support.drivers import Driver
from support.leftovers import never_committed, unsettled

# A cluster on a busy machine takes its time.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST = dict.fromkeys(range(300), "first")
CHANGED = dict.fromkeys(range(0, 300, 10), "second")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def gate(cluster: Cluster) -> Iterator[Gate]:
    yield cluster.gate
    cluster.gate.open()
    cluster.gate.disarm()


@pytest.fixture
def another_driver(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def make(**conf: str) -> Driver:
        extra_conf = {**cluster.conf, **conf}
        made.append(Driver(tmp_path / "driver", master=cluster.url, driver_memory="1g", extra_conf=extra_conf))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


def csv_files(folder: Path) -> str:
    for number in range(2):
        (folder / f"{number}.csv").write_text("id,v\n" + "".join(f"{10 * n},second\n" for n in range(number, 30, 2)))
    return str(folder / "*.csv")


def rows(path: Path) -> dict[int, str]:
    """After whatever is left to recovery has been settled."""
    with Lake(path) as lake:
        table = lake.table("s.t")
        table.fold()
        return work.rows_of(table)


def check(path: Path, expected: dict[int, str]) -> None:
    assert rows(path) == expected
    assert unsettled(path) == []
    assert never_committed(path) == []


Work = tuple[Callable[..., Any], tuple[Any, ...]]


def ingest(path: Path, tmp_path: Path) -> Work:
    work.make(path, FIRST)
    return work.ingest, (path, csv_files(tmp_path))


def fold(path: Path, tmp_path: Path) -> Work:
    work.make(path, FIRST, parts=3)
    work.upsert(path, CHANGED)
    return work.fold, (path,)


def compact(path: Path, tmp_path: Path) -> Work:
    work.make(path, {**FIRST, **CHANGED}, parts=3)
    return work.compact, (path,)


def stream(path: Path, tmp_path: Path) -> Work:
    work.make(path, FIRST)
    ids = list(CHANGED)
    inbox = work.write_batches(tmp_path / "inbox", [dict.fromkeys(ids[half::2], "second") for half in range(2)])
    return work.stream, (path, inbox, tmp_path / "checkpoint", 0)


ALL = pytest.mark.parametrize("prepare", [ingest, fold, compact, stream], ids=lambda work: work.__name__)


@ALL
def test_an_executor_is_killed(
    cluster_driver: Driver, gate: Gate, path: Path, tmp_path: Path, prepare: Callable[..., Work]
) -> None:
    function, arguments = prepare(path, tmp_path)
    gate.arm()

    cluster_driver.start(function, *arguments)
    kill(executor_of(gate.stopped()))
    cluster_driver.result()

    check(path, {**FIRST, **CHANGED})


def test_a_machine_is_lost(cluster: Cluster, cluster_driver: Driver, gate: Gate, path: Path, tmp_path: Path) -> None:
    """The worker, its executors and their Python, all at once."""
    function, arguments = ingest(path, tmp_path)
    gate.arm()

    cluster_driver.start(function, *arguments)
    stopped = gate.stopped()
    (host,) = [host for host, worker in cluster.workers.items() if stopped in members(worker.pid)]
    cluster.workers[host].kill()
    cluster_driver.result()
    cluster.start_worker(host)

    check(path, {**FIRST, **CHANGED})


def test_a_slow_task_is_started_twice(
    another_driver: Callable[..., Driver], gate: Gate, path: Path, tmp_path: Path
) -> None:
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.task.duration.threshold": "1s",
    }
    driver = another_driver(**speculation)
    for prepare in (ingest, fold):
        folder = path / prepare.__name__
        (tmp_path / prepare.__name__).mkdir()
        function, arguments = prepare(folder, tmp_path / prepare.__name__)
        gate.arm()

        driver.start(function, *arguments)
        gate.stopped()
        # The first attempt is at the gate still, unless Spark has killed it: it goes on when the commit is done.
        driver.result()
        gate.open()

        check(folder, {**FIRST, **CHANGED})


@pytest.mark.parametrize("prepare", [ingest, stream], ids=lambda work: work.__name__)
def test_the_driver_is_killed(
    another_driver: Callable[..., Driver],
    cluster_driver: Driver,
    gate: Gate,
    path: Path,
    tmp_path: Path,
    prepare: Callable[..., Work],
) -> None:
    function, arguments = prepare(path, tmp_path)
    gate.arm()
    driver = another_driver()

    driver.start(function, *arguments)
    gate.stopped()
    driver.kill()

    check(path, FIRST)
    gate.disarm()
    cluster_driver.run(function, *arguments)
    check(path, {**FIRST, **CHANGED})


@pytest.mark.parametrize("prepare", [fold, compact], ids=lambda work: work.__name__)
def test_the_spark_worker_is_killed(
    cluster: Cluster, gate: Gate, path: Path, tmp_path: Path, prepare: Callable[..., Work]
) -> None:
    """The driver of a lake's own maintenance. What it was doing is tried again in smaller pieces."""
    prepare(path, tmp_path)
    settings = Settings(
        local_job_bytes_max=0,
        pack_files_min=2,
        spark_master=cluster.url,
        spark_driver_memory="1g",
        spark_conf=cluster.conf,
    )
    with Lake(path, settings=settings) as lake, ThreadPoolExecutor(1) as threads:
        table = lake.table("s.t")
        gate.arm()
        done = threads.submit(table.fold if prepare is fold else table.compact)
        gate.stopped()
        worker = lake._runtime.compute.status().pid  # type: ignore[attr-defined]
        kill(worker)
        done.exception()

    check(path, {**FIRST, **CHANGED})
