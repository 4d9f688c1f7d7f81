"""A lake with somebody in it who is to be erased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lithify import Lake, Table
from support.erasures import COLUMNS, OLD, SETTINGS, others, wanda


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", create=True, settings=SETTINGS) as lake:
        yield lake


@pytest.fixture
def customers(lake: Lake) -> Table:
    """Two versions of Wanda in base and in changes, among others."""
    table = lake.create_table("shop.customers", COLUMNS, key="id")
    table.upsert(others())
    table.upsert(wanda(OLD))
    table.fold()
    table.upsert(wanda())
    table.delete([7])
    return table
