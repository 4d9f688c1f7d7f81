"""Fixtures shared by all tests. Whatever uses `spark` is marked `spark`. What else they share lies in tests/support,
which child processes import by name too.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from support.folders import memory_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes is the machine's business: a busy one must not fail a property that holds.
settings.register_profile("lithify", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lithify")

# Every JVM of the tests, also in children: none lives long enough for the optimising compiler to pay for itself.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither read nor written, by the tests and their children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where possible."""
    with memory_folder() as path:
        yield path


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Imported here: the tests without a JVM should not pay for PySpark.
    from lithify.spark.session import SparkOptions, local_session

    session = local_session(SparkOptions(master="local[2]", driver_memory="2g", shuffle_partitions=2))
    yield session
    session.stop()
