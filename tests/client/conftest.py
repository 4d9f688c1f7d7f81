"""One lake, seen twice: as it is (`lake`) and through a service (`remote`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import lithify
from lithify import Lake, Settings
from lithify.client.lake import RemoteLake
from support.folders import memory_folder
from support.service import Served, serving

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings(port=0, shutdown_s=5, cache_bytes_max=64 * 2**20, query_rows_max=1_000, body_bytes_max=2**20)


@pytest.fixture(scope="module")
def lake(settings: Settings) -> Iterator[Lake]:
    with memory_folder() as folder, Lake(folder / "lake", settings=settings) as lake:
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake, settings: Settings) -> Iterator[Served]:
    with serving(lake, settings) as served:
        yield served


@pytest.fixture(scope="module")
def remote(served: Served) -> Iterator[RemoteLake]:
    with lithify.connect(served.url, token=served.token) as remote:
        yield remote


@pytest.fixture
def name() -> str:
    """A table's name that no other test has. The whole lake goes at the end."""
    return f"shop.t{next(_NUMBERS)}"
