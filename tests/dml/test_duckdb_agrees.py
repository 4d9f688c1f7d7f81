"""Random programs of INSERT, UPDATE, DELETE and MERGE give the rows, and the counts, that DuckDB gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lithify import Lake
from support.effort import examples
from support.statement_programs import run

STATEMENTS = 30


@pytest.mark.parametrize("seed", range(examples(2, 200)))
@pytest.mark.parametrize(("key", "order_by"), [("id", None), ("id", "seen"), (None, None)])
def test_random_programs_are_equal_row_for_row(folder: Path, seed: int, key: str | None, order_by: str | None) -> None:
    with Lake(folder / "lake") as lake:
        accepted = run(lake, lake.execute, seed, key=key, order_by=order_by, statements=STATEMENTS)
    assert accepted > STATEMENTS // 4
