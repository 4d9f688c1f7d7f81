"""A lake that shares the one Spark session of the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from lithify import Lake, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    """Folds run on Spark whatever their size."""
    with Lake(tmp_path / "lake", spark=spark, settings=Settings(local_job_bytes_max=0)) as opened:
        yield opened
