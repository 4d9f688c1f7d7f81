"""A lake with a table of orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("placed", pa.timestamp("us", "UTC")),
        pa.field("n", pa.int32()),
    ]
)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        lake.create_table("shop.orders", COLUMNS, key="id")
        lake.execute("insert into shop.orders (id, status, amount, n) values (1, 'new', 5, 1), (2, 'paid', 7.5, 2)")
        yield lake
