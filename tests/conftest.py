"""Fixtures shared by all tests. Whatever uses `spark` is marked `spark`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Imported here: the tests without a JVM should not pay for PySpark.
    from lithify.spark.session import SparkOptions, local_session

    session = local_session(SparkOptions(master="local[2]", driver_memory="2g", shuffle_partitions=2))
    yield session
    session.stop()
