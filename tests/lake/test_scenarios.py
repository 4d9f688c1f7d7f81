"""What a table engine must be able to do, told as a user would: one scenario each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound, Settings
from lithify.lake.internals import internals

ORDERS = pa.schema([("id", pa.int64()), ("customer_id", pa.int64()), ("amount", pa.float64())])
CUSTOMERS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "customer_id": i % 2, "amount": float(i)} for i in ids]


def test_register_and_insert(lake: Lake) -> None:
    table = lake.create_table("shop.orders", ORDERS, key="id")

    commit = table.append(orders(1, 2, 3))

    assert (commit.seq, commit.rows) == (1, 3)
    assert lake.tables() == ["shop.orders"]
    assert lake.sql("select sum(amount) total from shop.orders").to_pylist() == [{"total": 6.0}]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (pa.table({"id": [1], "customer_id": [1], "amount": ["much"]}), "column 'amount'"),
        (pa.table({"id": [1], "customer": [1], "amount": [1.0]}), "column 'customer' is not in the table"),
        (pa.table({"id": pa.array([None], pa.int64()), "customer_id": [1], "amount": [1.0]}), "'id' is null"),
    ],
)
def test_a_batch_of_another_schema_is_refused_and_changes_nothing(lake: Lake, rows: pa.Table, told: str) -> None:
    table = lake.create_table("shop.orders", ORDERS, key="id")
    table.append(orders(1))

    with pytest.raises(InvalidRequest, match=told):
        table.append(rows)

    assert table.snapshot().seq == 1
    assert table.to_arrow().num_rows == 1
    assert table.append(orders(2)).seq == 2


def test_an_unknown_table_is_named_and_not_created(lake: Lake) -> None:
    lake.create_table("shop.orders", ORDERS, key="id")

    for use in (
        lambda: lake.table("shop.order"),
        lambda: lake.drop_table("shop.order"),
        lambda: lake.sql("select * from shop.order"),
    ):
        with pytest.raises(NotFound, match=r"^table shop\.order does not exist"):
            use()

    assert lake.tables() == ["shop.orders"]
    assert not (lake.path / "shop" / "order").exists()


def test_tables_of_the_same_name_in_other_namespaces_are_other_tables(lake: Lake) -> None:
    names = ["east.orders", "west.orders", "east.returns"]
    tables = [lake.create_table(name, ORDERS, key="id") for name in names]

    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(lambda number: tables[number].append(orders(*range(number + 1))), range(len(tables))))
    tables[1].delete([0])

    assert [table.to_arrow().num_rows for table in tables] == [1, 1, 3]
    lake.drop_table("east.orders")
    assert [lake.table(name).to_arrow().num_rows for name in names[1:]] == [1, 3]


def test_more_tables_than_may_be_loaded_can_all_be_used(folder: Path) -> None:
    count = 7
    with Lake(folder / "lake", settings=Settings(loaded_tables_max=3)) as lake:
        tables = [lake.create_table(f"shop.t{n}", ORDERS, key="id") for n in range(count)]

        with ThreadPoolExecutor(count) as pool:
            for _ in range(3):
                list(pool.map(lambda n: tables[n].upsert(orders(n)), range(count)))
                assert len(lake._loaded.loaded()) <= 3

        union = " union all ".join(f"select id from shop.t{n}" for n in range(count))
        assert sorted(lake.sql(union).column("id").to_pylist()) == list(range(count))
        assert [table.snapshot().seq for table in tables] == [3] * count


def test_tables_and_rows_survive_a_restart(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        lake.create_table("shop.orders", ORDERS, key="id", order_by="customer_id").append(orders(1, 2))
        lake.create_table("shop.customers", CUSTOMERS, key="id")

    with Lake(folder / "lake") as lake:
        assert sorted(lake.tables()) == ["shop.customers", "shop.orders"]
        definition = lake.table("shop.orders").definition
        assert (definition.key, definition.order_by) == (("id",), "customer_id")
        assert lake.table("shop.orders").append(orders(3)).seq == 2
        assert lake.table("shop.orders").to_arrow().num_rows == 3


def test_readers_see_whole_commits_while_a_writer_writes(lake: Lake) -> None:
    """Each commit adds a pair of rows: no reader may ever see half of one, or an older state than before."""
    table = lake.create_table("shop.orders", ORDERS, key="id")
    done = threading.Event()

    def read() -> list[int]:
        seen = [0]
        while not done.is_set():
            found = sorted(lake.sql("select id from shop.orders").column("id").to_pylist())
            assert found == list(range(len(found)))
            assert len(found) % 2 == 0
            seen.append(len(found))
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for n in range(0, 40, 2):
                table.append(orders(n, n + 1))
        finally:
            done.set()
        for reader in readers:
            seen = reader.result(60)
            assert seen == sorted(seen)
    assert table.to_arrow().num_rows == 40


def test_a_reader_in_flight_keeps_its_snapshot(lake: Lake) -> None:
    table = lake.create_table("shop.orders", ORDERS, key="id")
    table.append(orders(1, 2))
    before = internals(table).reader.plan(table.snapshot())
    table.delete([1])
    table.append(orders(3))
    table.fold()

    serving = table._internals.runtime.serving
    assert sorted(serving.read(before, ["id"]).column("id").to_pylist()) == [1, 2]
    assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == [2, 3]


def test_a_join_reads_every_table_fresh(lake: Lake) -> None:
    lake.create_table("shop.orders", ORDERS, key="id").append(orders(1, 2, 3))
    customers = lake.create_table("crm.customers", CUSTOMERS, key="id")
    customers.append([{"id": 0, "name": "ada"}, {"id": 1, "name": "bob"}])
    query = """
        select name, sum(amount) total from shop.orders o join crm.customers c on o.customer_id = c.id
        group by name order by name
    """
    assert lake.sql(query).to_pylist() == [{"name": "ada", "total": 2.0}, {"name": "bob", "total": 4.0}]

    customers.upsert([{"id": 1, "name": "eve"}])
    lake.table("shop.orders").delete([3])

    assert lake.sql(query).to_pylist() == [{"name": "ada", "total": 2.0}, {"name": "eve", "total": 1.0}]


def test_creating_twice_is_idempotent_where_asked_for(lake: Lake) -> None:
    first = lake.create_table("shop.orders", ORDERS, key="id", if_not_exists=True)
    first.append(orders(1))

    again = lake.create_table("shop.orders", ORDERS, key="id", if_not_exists=True)

    assert again is first
    assert again.to_arrow().num_rows == 1
    with pytest.raises(Conflict, match=r"shop\.orders exists"):
        lake.create_table("shop.orders", ORDERS, key="id")
    with pytest.raises(Conflict, match="other columns"):
        lake.create_table("shop.orders", CUSTOMERS, key="id", if_not_exists=True)


def test_a_table_whose_log_is_damaged_is_named_and_not_created_anew(lake: Lake, folder: Path) -> None:
    lake.create_table("shop.orders", ORDERS, key="id").append(orders(1))
    lake.close()
    first = folder / "lake" / "shop" / "orders" / "changes" / "_delta_log" / f"{0:020d}.json"
    damaged = first.read_bytes()[:40]
    first.write_bytes(damaged)

    with Lake(folder / "lake") as again:
        with pytest.raises(Corruption, match="orders"):
            again.create_table("shop.orders", ORDERS, key="id", if_not_exists=True)
        assert first.read_bytes() == damaged
