"""Rows that a statement names by their keys are looked up, and nothing but that differs from asking for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lithify import Lake
from support.effort import examples
from support.two_ways import run

STEPS = 25


@pytest.mark.parametrize("seed", range(examples(4, 400)))
def test_statements_that_look_rows_up_do_what_they_do_otherwise(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(folder / "one") as one, Lake(folder / "other") as other:
        taken, looked_up = run((one, other), seed, STEPS, monkeypatch)
    assert taken > STEPS // 8
    assert looked_up
