"""A lake that shares the one Spark session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lithify import Lake, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.cluster import Cluster, ConnectServer
    from support.drivers import Driver


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    """Folds, loads and writes of frames run on Spark whatever their size."""
    settings = Settings(local_job_bytes_max=0, local_ingest_bytes_max=0, local_frame_bytes_max=0)
    with Lake(tmp_path / "lake", spark=spark, settings=settings) as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster of processes of their own: a master and two workers."""
    from support.cluster import Cluster

    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cluster_driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver with two executors on the cluster."""
    from support.drivers import Driver

    started = Driver(tmp_path_factory.mktemp("driver"), master=cluster.url, driver_memory="1g", extra_conf=cluster.conf)
    yield started
    started.close()


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    from support.cluster import ConnectServer

    started = ConnectServer(tmp_path_factory.mktemp("connect"))
    yield started
    started.stop()
