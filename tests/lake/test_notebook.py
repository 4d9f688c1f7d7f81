"""A lake and its parts in a notebook: told from the logs, without opening a data file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, Table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("<i>note", pa.string())])


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Table]:
    with Lake(tmp_path / "lake") as lake:
        table = lake.create_table("shop.orders", COLUMNS, key="id")
        for part in range(3):
            table.upsert([{"id": part * 10 + n, "<i>note": "x"} for n in range(10)])
            table.fold()
        table.upsert([{"id": 1, "<i>note": "y"}])
        for file in (tmp_path / "lake").glob("shop/orders/*/**/*.parquet"):
            if "_delta_log" not in file.parts:
                file.write_bytes(b"damaged")
        yield table


def test_a_table_shows_its_columns_and_what_is_pending(orders: Table) -> None:
    shown = orders._repr_html_()

    assert "30 rows in base as of seq 3; 1 pending changes, seq 4" in shown
    assert "&lt;i&gt;note" in shown
    assert "<i>" not in shown


def test_a_lake_lists_its_tables(orders: Table, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        shown = lake._repr_html_()

    assert "shop.orders" in shown
    assert "<td" in shown


def test_snapshots_and_plans_show_counts_instead_of_files(orders: Table) -> None:
    snapshot = orders.snapshot()

    assert "parquet" not in snapshot._repr_html_()
    assert "<td" in snapshot._repr_html_()
    assert all("<td" in plan._repr_html_() for plan in orders.compact(dry_run=True))


def test_jobs_and_reports_are_shown(orders: Table) -> None:
    assert "pending_rows" in orders.stats()._repr_html_()
    assert "upsert" in orders.history(limit=1)[0]._repr_html_()
    assert "bytes_freed" in orders.vacuum(dry_run=True)._repr_html_()


def test_lists_are_shown_as_tables(orders: Table) -> None:
    history = orders.history()

    assert history[0].operation == "upsert"
    shown = history._repr_html_()  # type: ignore[attr-defined]
    assert shown.count("<tr>") == len(history) + 1
    assert "<th>operation</th>" in shown
    assert orders.tags()._repr_html_() == "<p>none</p>"  # type: ignore[attr-defined]
