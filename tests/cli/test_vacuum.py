"""vacuum."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def orphan(orders: Run, tmp_path: Path) -> Path:
    """A file that a writer left behind long ago."""
    path = tmp_path / "lake" / "shop" / "orders" / "changes" / f"write-{'a' * 32}.parquet"
    path.write_bytes(b"x" * 2048)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def test_shows_what_would_go_and_how_to_delete_it(orders: Run, orphan: Path) -> None:
    answer = orders("vacuum", "shop.orders")
    assert answer.code == 0
    assert "2.0 KiB" in answer.out
    assert "dry run: nothing was deleted" in answer.out
    assert "lithify vacuum shop.orders --retain-hours 168 --apply" in answer.out
    assert orphan.exists()


def test_apply_deletes(orders: Run, orphan: Path) -> None:
    answer = orders("vacuum", "--all", "--apply", "--json").json
    (found,) = answer["vacuums"]
    assert answer["dry_run"] is False
    assert (found["files"], found["orphans"], found["bytes_freed"]) == (1, 1, 2048)
    assert found["paths"] == [f"changes/{orphan.name}"]
    assert not orphan.exists()
    assert orders("sql", "select count(*) as n from shop.orders", "--json").json["rows"] == [{"n": 3}]


def test_says_that_there_is_nothing_to_delete(orders: Run) -> None:
    assert "nothing to delete" in orders("vacuum", "--all").out


@pytest.mark.parametrize("hours", ["0.5", "-1", "nan"])
def test_less_than_an_hour_is_refused(orders: Run, orphan: Path, hours: str) -> None:
    answer = orders("vacuum", "shop.orders", "--apply", "--retain-hours", hours, "--json")
    assert (answer.code, answer.json["error"]["code"]) == (1, "invalid_request")
    assert orphan.exists()


@pytest.mark.parametrize("arguments", [[], ["shop.orders", "--all"]])
def test_it_needs_a_table_or_all(orders: Run, arguments: list[str]) -> None:
    answer = orders("vacuum", *arguments)
    assert answer.code == 1
    assert "say which table to vacuum, or --all" in answer.err
