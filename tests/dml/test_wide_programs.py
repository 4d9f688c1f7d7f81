"""Random programs of statements over tables of every shape give the rows and the counts that DuckDB gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lithify import Lake
from support.effort import examples
from support.wide_programs import run

STEPS = 25


@pytest.mark.parametrize("seed", range(examples(3, 400)))
def test_random_programs_over_tables_of_every_shape_are_equal_row_for_row(folder: Path, seed: int) -> None:
    with Lake(folder / "lake") as lake:
        assert run(lake, seed, STEPS) > STEPS // 8
