"""Writes of the data source, as Spark calls them but without Spark: begun here, written by pickled tasks, committed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from lithify import Conflict, InvalidRequest, Lake, LithifyDataSource, Table, Unavailable
from lithify.files.local import LocalStorage
from lithify.jobs import jobs, recovery
from lithify.spark.datasource.write import TableWriter, TaskMessage
from lithify.spark.schemas import spark_schema
from lithify.tables.runtime import Owner
from lithify.write import spool

COLUMNS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("total", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def orders(lake: Lake) -> Table:
    return lake.create_table("shop.orders", COLUMNS, key="id")


def source(lake: Lake, table: str, **options: str) -> LithifyDataSource:
    return LithifyDataSource(CaseInsensitiveDict({"path": f"{lake.path}/{table.replace('.', '/')}", **options}))


def begun(lake: Lake, table: str = "shop.orders", columns: pa.Schema = COLUMNS, **options: str) -> Any:
    """A writer as it comes to executors and to the process that commits."""
    return pickle.loads(pickle.dumps(source(lake, table, **options).writer(spark_schema(columns), overwrite=False)))


def task(writer: TableWriter, rows: Sequence[dict[str, Any]], columns: pa.Schema = COLUMNS) -> TaskMessage:
    batches = pa.Table.from_pylist(list(rows), schema=columns).to_batches(max_chunksize=1000)
    message: TaskMessage = pickle.loads(pickle.dumps(writer.write(iter(batches))))
    return message


def rows(ids: Sequence[int], region: str = "north", total: int = 1) -> list[dict[str, Any]]:
    return [{"id": number, "region": region, "total": total} for number in ids]


def leftovers(lake: Lake) -> list[str]:
    folders = [path.name for path in (lake.path / "shop/orders/changes").glob("*-*") if path.is_dir()]
    return [name for name in folders if name.startswith("spool-")] + [
        path.name for path in (lake.path / "_lithify/jobs").glob("*")
    ]


def test_rows_of_all_tasks_are_one_commit(lake: Lake, orders: Table) -> None:
    before = orders.upsert(rows([1], region="old")).seq
    writer = begun(lake)

    writer.commit([task(writer, rows([1, 2])), task(writer, []), task(writer, rows([3]))])

    assert orders.stats().seq == before + 1
    assert sorted(orders.to_arrow().to_pylist(), key=lambda row: row["id"]) == rows([1, 2, 3])
    assert orders.history(1)[0].operation == "upsert"
    assert leftovers(lake) == []


def test_many_rows_are_sorted_into_files_that_a_fold_only_links(
    lake: Lake, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SMALL_ROWS_MAX", 10)
    writer = begun(lake)
    mixed = [number * 7919 % 60_000 for number in range(60_000)]

    writer.commit([task(writer, rows(mixed[:30_000])), task(writer, rows(mixed[30_000:]))])

    (file,) = (lake.path / "shop/orders/changes").glob("bulk-*/part-*.parquet")
    assert pa.parquet.read_table(file).column("id").to_pylist() == list(range(60_000))
    assert orders.fold(dry_run=True).files_linked == 1
    assert leftovers(lake) == []


@pytest.mark.parametrize("small_rows_max", [0, 1000], ids=["sorted", "small"])
def test_of_several_rows_of_a_key_the_highest_order_by_wins(
    lake: Lake, small_rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SMALL_ROWS_MAX", small_rows_max)
    table = lake.create_table("shop.orders", COLUMNS, key="id", order_by="total")
    writer = begun(lake)

    writer.commit([task(writer, rows([1, 2], total=5)), task(writer, [*rows([1], "b", 9), *rows([2], "b", 3)])])

    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "region": "b", "total": 9},
        {"id": 2, "region": "north", "total": 5},
    ]


@pytest.mark.parametrize("small_rows_max", [0, 1000], ids=["sorted", "small"])
def test_of_equal_ones_the_highest_in_the_next_column_wins(
    lake: Lake, small_rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SMALL_ROWS_MAX", small_rows_max)
    table = lake.create_table("shop.orders", COLUMNS, key="id", order_by=["total", "region"])
    writer = begun(lake)

    writer.commit([task(writer, [*rows([1, 2], "b", 5), *rows([3], None, 5)]), task(writer, rows([1, 2, 3], "a", 5))])

    assert {row["id"]: row["region"] for row in table.to_arrow().to_pylist()} == {1: "b", 2: "b", 3: "a"}


@pytest.mark.parametrize("order_by", [None, "total", ["region", "total"]], ids=["unordered", "left out", "half of it"])
@pytest.mark.parametrize("small_rows_max", [0, 1000], ids=["sorted", "small"])
def test_several_rows_of_a_key_are_refused_without_a_value_of_order_by(
    lake: Lake, small_rows_max: int, order_by: str | list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SMALL_ROWS_MAX", small_rows_max)
    orders = lake.create_table("shop.orders", COLUMNS, key="id", order_by=order_by)
    columns = pa.schema([COLUMNS.field("id"), COLUMNS.field("region")])
    writer = begun(lake, columns=columns, missing="null")
    messages = [task(writer, rows(ids), columns) for ids in ([1, 2], [2, 3])]

    with pytest.raises(InvalidRequest, match=r"more than one row for the same key, e.g. 2"):
        writer.commit(messages)

    assert orders.to_arrow().num_rows == 0
    assert leftovers(lake) == []


def test_a_table_with_no_key_takes_the_files_of_its_tasks(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, partition_by="region")
    table.append(rows([1]))
    writer = begun(lake, mode="append")
    messages = [task(writer, rows([1, 2]) + rows([3], region="south")), task(writer, rows([1]))]
    files = {Path(file.path).name for message in messages for file in message.written}

    writer.commit(messages)

    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 1, 1, 2, 3]
    assert {path.name for path in (lake.path / "shop/orders/changes").glob("bulk-*/*")} == files
    assert leftovers(lake) == []


def test_files_of_attempts_that_failed_or_ran_twice_do_not_count(lake: Lake, orders: Table) -> None:
    writer = begun(lake)
    task(writer, rows([1, 2], region="first attempt"))
    good = task(writer, rows([1, 2], region="second attempt"))

    writer.commit([good])

    assert set(orders.to_arrow().column("region").to_pylist()) == {"second attempt"}
    assert leftovers(lake) == []


def test_a_spool_that_cannot_be_removed_does_not_fail_a_write_that_is_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was told so would write again, and the rows of a table with no key would be there twice."""
    table = lake.create_table("shop.orders", COLUMNS)
    writer = begun(lake)
    messages = [task(writer, rows([1, 2]))]

    def in_use(self: LocalStorage, path: Path) -> None:
        raise Unavailable(f"{path}: a task that ran twice still writes there")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete_folder", in_use)
        writer.commit(messages)

    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2]
    (left,) = jobs.unfinished(table._internals.runtime, table.name)
    assert left.kind == spool.KIND


def test_a_write_that_failed_in_spark_leaves_nothing(lake: Lake, orders: Table) -> None:
    writer = begun(lake)
    message = task(writer, rows([1]))
    assert leftovers(lake) != []

    writer.abort([message, None])
    writer.abort([message, None])

    assert orders.to_arrow().num_rows == 0
    assert leftovers(lake) == []


def test_a_write_of_no_rows_commits_nothing(lake: Lake, orders: Table) -> None:
    seq = orders.stats().seq
    writer = begun(lake)

    writer.commit([task(writer, [])])

    assert orders.stats().seq == seq
    assert leftovers(lake) == []


def test_a_batch_that_the_table_refuses_is_told_by_the_commit_and_not_tried_again(lake: Lake, orders: Table) -> None:
    writer = begun(lake)
    message = task(writer, [{"id": None, "region": "x", "total": 1}])

    with pytest.raises(InvalidRequest, match="column 'id' is null"):
        writer.commit([message])

    assert leftovers(lake) == []


def test_the_same_batch_id_writes_once(lake: Lake, orders: Table) -> None:
    for _ in range(2):
        writer = begun(lake, batchId="load-7")
        writer.commit([task(writer, rows([1]))])

    assert orders.stats().seq == 1


def test_a_spool_outlives_the_process_that_began_it_and_goes_with_its_owner(lake: Lake, orders: Table) -> None:
    runtime = orders._internals.runtime
    this = Owner.this_process()
    alive = spool.begin(orders._internals, Owner(this.host, 1, ""))
    dead = spool.begin(orders._internals, Owner(this.host, 2**22 + 1, "never"))

    recovery.recover(runtime, orders.name)

    assert (Path(alive.root) / alive.folder).is_dir()
    assert not (Path(dead.root) / dead.folder).exists()
    with pytest.raises(Conflict, match="write again"):
        spool.commit(orders._internals, dead, [], [], "upsert")
    spool.abort(orders._internals, alive)
    assert leftovers(lake) == []


def test_a_spool_belongs_to_the_jvm_above_whoever_begins_it(tmp_path: Path) -> None:
    """Where there is none, to the process above."""
    (tmp_path / "java").symlink_to(sys.executable)
    program = (
        "import os, subprocess, sys\n"
        "inner = 'import os; from lithify.write.spool import driver_of; print(driver_of(os.getpid()).pid)'\n"
        "middle = f'import subprocess, sys; subprocess.run([sys.argv[1], \"-c\", {inner!r}])'\n"
        "print(os.getpid(), flush=True)\n"
        "subprocess.run([sys.argv[1], '-c', middle, sys.argv[1]])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(
        [tmp_path / "java", "-c", program, sys.executable],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment,
    )

    java, found = done.stdout.split()
    assert found == java
    assert spool.driver_of(os.getpid()).pid == os.getppid()


def test_columns_that_changed_meanwhile_do_not_lose_rows(
    lake: Lake, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = begun(lake, missing="null"), begun(lake, missing="null")
    messages = [task(small, rows([1]))], [task(large, rows([2]))]
    orders.add_column(pa.field("note", pa.string()))

    small.commit(messages[0])
    monkeypatch.setattr(spool, "SMALL_ROWS_MAX", 0)
    with pytest.raises(Conflict, match=r"columns of table shop\.orders changed"):
        large.commit(messages[1])

    assert orders.to_arrow().to_pylist() == [{**rows([1])[0], "note": None}]
    assert leftovers(lake) == []


def test_a_column_that_came_meanwhile_refuses_rows_that_do_not_have_it(lake: Lake, orders: Table) -> None:
    writer = begun(lake)
    messages = [task(writer, rows([1]))]
    orders.add_column(pa.field("note", pa.string()))

    with pytest.raises(InvalidRequest, match="lack the column 'note'"):
        writer.commit(messages)

    assert orders.count() == 0
    assert leftovers(lake) == []


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, COLUMNS.remove(2), "lack the column 'total'"),
        ({}, pa.schema([("id", pa.int64()), ("nope", pa.string())]), "'nope' is not in the table"),
        ({}, pa.schema([("id", pa.string())]), "'id': string does not fit int64"),
        ({"asOf": "3"}, COLUMNS, "'asOf' is for batch reads"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_task_runs(
    lake: Lake, orders: Table, options: dict[str, str], columns: pa.Schema, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        begun(lake, columns=columns, **options)

    assert leftovers(lake) == []


def test_upserts_need_a_key_and_overwriting_is_refused(lake: Lake) -> None:
    lake.create_table("shop.orders", COLUMNS)

    with pytest.raises(InvalidRequest, match="has no key"):
        begun(lake, mode="upsert")
    with pytest.raises(InvalidRequest, match="overwrite"):
        source(lake, "shop.orders").writer(spark_schema(COLUMNS), overwrite=True)
