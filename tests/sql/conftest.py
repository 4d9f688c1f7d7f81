"""A table that the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.settings import load_settings
from support.folders import memory_folder

ROWS = 30_000


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """A table of 30,000 rows in which half of them have the same `side`. Nothing is cached."""
    settings = load_settings(cache_bytes_max=0, query_timeout_s=60)
    with memory_folder() as path, Lake(path / "lake", settings=settings) as lake:
        orders = lake.create_table(
            "shop.orders", pa.schema([("id", pa.int64()), ("side", pa.int64()), ("name", pa.string())]), key="id"
        )
        numbers = list(range(ROWS))
        orders.append(
            pa.table({"id": numbers, "side": [n % 2 for n in numbers], "name": [f"name {n}" for n in numbers]})
        )
        yield lake
