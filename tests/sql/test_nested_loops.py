"""Joins with no equality: whatever memory there is, the answer is right or the query is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import duckdb
import pyarrow as pa
import pytest

from lithify import Lake, LimitExceeded
from lithify.settings import load_settings
from support.folders import memory_folder

T = TypeVar("T")
ROWS = 4_000
NEXT = "a.id < b.id and b.id < a.id + 2"
A_B = "select count(*), count(a.id), count(b.id) from shop.orders a {join} join shop.orders b on {condition}"
IF_NEXT = f"select count(*) from shop.orders a where {{exists}} (select 1 from shop.orders b where {NEXT})"
QUERIES = {
    "inner": A_B.format(join="inner", condition="a.id < b.id"),
    **{join: A_B.format(join=join, condition=NEXT) for join in ("left", "right", "full")},
    "no condition": A_B.format(join="left", condition="true") + " where a.id < 30",
    "semi": IF_NEXT.format(exists="exists"),
    "anti": IF_NEXT.format(exists="not exists"),
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """So wide that it is scanned from its files, and not read into memory before."""
    texts = [os.urandom(700).hex() for _ in range(ROWS)]
    return pa.table({"id": range(ROWS), "part": [n % 10 for n in range(ROWS)], "text": texts})


@pytest.fixture(scope="module")
def lake(table: pa.Table) -> Iterator[Lake]:
    settings = load_settings(cache_bytes_max=0)
    with memory_folder() as path, Lake(path / "lake", settings=settings) as lake:
        orders = lake.create_table("shop.orders", table.schema, key="id", partition_by="part")
        orders.append(table)
        assert orders.fold().files_written == 10  # type: ignore[union-attr]
        yield lake


def expected(table: pa.Table, query: str) -> list[object]:
    with duckdb.connect() as connection:
        connection.register("orders", table)
        (row,) = connection.execute(query.replace("shop.orders", "orders")).fetchall()
    return list(row)


def answered(ask: Callable[[], T]) -> T | None:
    """None: refused for want of memory."""
    try:
        return ask()
    except LimitExceeded as error:
        if error.details["limit"] != "memory":
            raise
        return None


@pytest.mark.parametrize("memory_bytes_max", [2**14, 2**15, 2**16, 3 * 2**15])
@pytest.mark.parametrize("kind", QUERIES)
def test_little_memory_does_not_change_an_answer(lake: Lake, table: pa.Table, kind: str, memory_bytes_max: int) -> None:
    answer = answered(lambda: lake.query(QUERIES[kind], memory_bytes_max=memory_bytes_max))
    assert answer is None or list(answer.rows.to_pylist()[0].values()) == expected(table, QUERIES[kind])


@pytest.mark.parametrize("kind", QUERIES)
def test_with_enough_memory_there_is_an_answer(lake: Lake, table: pa.Table, kind: str) -> None:
    assert list(lake.sql(QUERIES[kind]).to_pylist()[0].values()) == expected(table, QUERIES[kind])


def test_what_else_needs_room_in_such_a_query_still_spills(lake: Lake) -> None:
    shuffled = "select row_number() over (order by value * 7919 % 1000003, value) n from range(1000000)"
    few = "select count(*) from shop.orders a join shop.orders b on a.id < b.id and a.id < 3 and b.id < 9"
    rows = lake.query(f"select max(n) n from ({shuffled}) where n > ({few})", memory_bytes_max=16 * 2**20).rows
    assert rows.to_pylist() == [{"n": 1_000_000}]
