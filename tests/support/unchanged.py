"""A refused request changes nothing: same seq, same rows, same files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lithify import Lake
from support.bags import bag


def files_of(path: Path) -> set[str]:
    """Every file of a lake, but for the lock files, which hold nothing, and those that tell of open processes."""
    found = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}
    return {name for name in found if not name.endswith(".lock") and not name.startswith("_lithify/processes/")}


@contextlib.contextmanager
def nothing_changes(lake: Lake) -> Iterator[None]:
    def state() -> dict[str, object]:
        return {
            name: (
                lake.table(name).stats(),
                lake.table(name).schema,
                bag(_plain(lake.table(name).to_arrow().to_pylist())),
            )
            for name in lake.tables()
        }

    before, files_before = state(), files_of(lake.path)
    yield
    assert state() == before
    assert files_of(lake.path) == files_before


def _plain(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: repr(value) for name, value in row.items()} for row in rows]
