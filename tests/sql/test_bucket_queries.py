"""Queries in processes of their own over a lake in a bucket, which they cannot reach."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.lake.internals import internals
from lithify.lake.queries import run_query

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = 2_000


@pytest.fixture
def lake(address: str, folder: Path) -> Iterator[Lake]:
    """Rows in base, and changes to some of them."""
    with Lake(address, settings=Settings(cache_folder=folder / "cache", cache_bytes_max=0)) as lake:
        for name in ("shop.orders", "shop.secret"):
            table = lake.create_table(name, SCHEMA, key="id")
            table.upsert(pa.table({"id": range(ROWS), "v": ["old"] * ROWS}, SCHEMA))
            table.fold()
            table.upsert([{"id": 1, "v": "new"}])
        yield lake


def test_a_query_process_reads_local_copies(lake: Lake) -> None:
    for turn in range(3):
        found = lake.query(f"select v, count(*) as rows from shop.orders where id > {-turn} group by v order by v")
        assert found.rows.to_pydict() == {"v": ["new", "old"], "rows": [1, ROWS - 1 if turn else ROWS - 2]}


def test_a_query_process_goes_on_when_copies_go(lake: Lake, folder: Path) -> None:
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            shutil.rmtree(folder / "cache" / "copies", ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for turn in range(5):
            found = lake.query(f"select sum(id) as total from shop.orders where id > {-1 - turn}")
            assert found.rows.to_pydict() == {"total": [sum(range(ROWS))]}
    finally:
        ended.set()
        remover.join()


def test_names_of_copies_go_with_their_query(lake: Lake, folder: Path) -> None:
    lake.query("select sum(id) from shop.orders")
    lake.sql("select sum(id), count(v) from shop.orders")
    assert list((folder / "cache").rglob("pins-*")) == []


def test_a_query_process_sees_copies_of_no_other_table(lake: Lake) -> None:
    with pytest.raises(Exception, match=r"may not read table shop\.secret"):
        run_query(internals(lake), "select * from shop.secret", may_read=lambda name: name == "shop.orders")
