"""Suites that break things from beneath: kills, power cuts, a full disk, clocks that disagree."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.folders import memory_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where possible."""
    with memory_folder() as path:
        yield path
