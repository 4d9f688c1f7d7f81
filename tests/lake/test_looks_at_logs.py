"""A read asks each log of a table once how far it has come: more would only be slower, and could see two states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from support.looks import looks_counted

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
READS: dict[str, Callable[[Lake], Any]] = {
    "sql": lambda lake: lake.sql("select v from a.t where id > 1"),
    "the same table twice": lambda lake: lake.sql("select x.v from a.t x join a.t y on x.id = y.id"),
    "explain": lambda lake: lake.explain("select v from a.t where id > 1"),
}
TABLE_READS: dict[str, Callable[[Any], Any]] = {
    "get": lambda table: table.get(1),
    "to_arrow": lambda table: table.to_arrow(where="id > 1"),
    "head": lambda table: table.head(),
    "count": lambda table: table.count(),
}


@pytest.fixture
def looks() -> Iterator[Counter[str]]:
    with looks_counted() as seen:
        yield seen


@pytest.fixture
def filled(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(refresh_s=3600)) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        table.upsert([{"id": i, "v": "x"} for i in range(10)])
        table.fold()
        table.upsert([{"id": 1, "v": "y"}])
        yield lake


@pytest.mark.parametrize("read", READS)
def test_a_query_looks_at_each_log_once(read: str, filled: Lake, looks: Counter[str]) -> None:
    READS[read](filled)
    assert looks == {"t/changes": 1, "t/base": 1}


@pytest.mark.parametrize("read", TABLE_READS)
def test_a_read_of_a_table_looks_at_each_log_once(read: str, filled: Lake, looks: Counter[str]) -> None:
    table = filled.table("a.t")
    looks.clear()
    TABLE_READS[read](table)
    assert looks == {"t/changes": 1, "t/base": 1}


def test_what_happened_between_two_seqs_is_told_with_one_look(filled: Lake, looks: Counter[str]) -> None:
    table = filled.table("a.t")
    looks.clear()
    assert table.latest_changes(1, 2).rows.to_pylist() == [{"id": 1, "v": "y"}]
    assert looks == {"t/changes": 1}


def test_a_query_reads_the_table_that_has_the_name_today(filled: Lake) -> None:
    """Dropped and created anew by others, while it was open here."""
    assert filled.sql("select count(*) c from a.t").to_pylist() == [{"c": 10}]
    with Lake(filled.path) as other:
        other.drop_table("a.t")
        other.create_table("a.t", SCHEMA, key="id").upsert([{"id": 77, "v": "new"}])
    assert filled.sql("select id, v from a.t").to_pylist() == [{"id": 77, "v": "new"}]
