"""The order of the rows in compacted files: by default of the key, else of the time; or what `sort_by` says."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import InvalidRequest, Lake, Settings, Table
from lithify.core.schema import define
from lithify.index import footers
from support.bags import bag

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("city", pa.string()), ("x", pa.float64())])
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    tiers = ({"name": "hourly", "files_min": 2, "age_min_s": 0}, {"name": "daily", "files_min": 2, "age_min_s": 0})
    with Lake(folder / "lake", settings=Settings(pack_files_min=2, tiers=tiers)) as lake:
        yield lake


def row(rng: random.Random, number: int) -> dict[str, Any]:
    at = DAY + dt.timedelta(seconds=rng.randrange(86_400))
    return {"id": number, "at": at, "city": rng.choice(["Ulm", "Oslo", None]), "x": rng.random()}


def filled(table: Table) -> Table:
    """Small files of rows in no order."""
    rng = random.Random(3)
    for number in range(6):
        table.append([row(rng, 50 * number + i) for i in rng.sample(range(50), 50)])
        table.fold()
    return table


def compacted(table: Table) -> list[pa.Table]:
    before = bag(table.to_arrow().to_pylist())
    while table.compact():
        pass
    assert bag(table.to_arrow().to_pylist()) == before
    return [pq.read_table(table.base_path / file.path, partitioning=None) for file in table.snapshot().base]


def in_order(rows: list[dict[str, Any]], *columns: str) -> bool:
    keys = [[(r[column] is None, r[column]) for column in columns] for r in rows]
    return keys == sorted(keys)


def test_a_time_series_without_a_key_comes_out_in_the_order_of_time(lake: Lake) -> None:
    files = compacted(filled(lake.create_table("a.t", SCHEMA, time="at")))

    assert len(files) < 6
    assert all(in_order(file.to_pylist(), "at") for file in files)


def test_a_table_with_a_key_comes_out_in_the_order_of_the_key(lake: Lake) -> None:
    (file,) = compacted(filled(lake.create_table("a.t", SCHEMA, key="id")))

    assert in_order(file.to_pylist(), "id")


@pytest.mark.parametrize("key", [None, "id"])
def test_sort_by_says_another_order(lake: Lake, key: str | None) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, key=key, sort_by=["city", "at"]))

    (file,) = compacted(table)

    assert in_order(file.to_pylist(), "city", "at")


def test_sort_by_can_be_set_and_taken_back_later(lake: Lake) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, key="id"))
    table.set_options({"sort_by": "at"})
    (file,) = compacted(table)
    assert in_order(file.to_pylist(), "at")

    table.set_options({"sort_by": None})
    assert table.definition.sort_columns == ("id",)


def test_changes_to_files_in_another_order_than_the_keys_are_folded(lake: Lake) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, key="id", sort_by="at"))
    compacted(table)

    table.upsert([{"id": 7, "at": DAY, "city": "new", "x": 1.0}])
    table.delete([9])
    table.fold()

    assert table.get(7)["city"] == "new"  # type: ignore[index]
    assert table.get(9) is None
    assert table.to_arrow().num_rows == 299


def test_row_groups_are_ruled_out_by_a_column_that_rows_are_sorted_by(lake: Lake) -> None:
    table = lake.create_table("a.t", SCHEMA, sort_by="at", options={"row_group_rows": 1_024})
    rng = random.Random(4)
    for number in range(4):
        table.append([row(rng, 4_096 * number + i) for i in range(4_096)])
        table.fold()
    compacted(table)

    with Lake(lake.path) as other:  # with nothing in memory yet
        (read,) = other.explain("select count(*) from a.t where at < timestamp '2026-01-01 01:00:00Z'")

    assert read.groups_total == 16
    assert read.groups_read == 1


def orders(table: Table) -> list[tuple[tuple[str, ...], int]]:
    facts = table.inspect_index().base
    assert facts is not None
    return [(order.columns, order.files) for order in facts.orders]


def test_the_index_records_the_order_of_every_file(lake: Lake) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, sort_by=["city", "at"]))
    assert orders(table) == [((), 6)]
    compacted(table)
    table.append([{"id": 1_000, "at": DAY, "city": "Ulm", "x": 0.5}])
    table.fold()

    assert sorted(orders(table)) == [((), 1), (("city", "at"), 1)]
    assert table.check_index().ok


def test_an_index_from_before_orders_were_recorded_is_as_good_as_ever(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, sort_by="at"))
    compacted(table)
    with monkeypatch.context() as before:
        before.setattr(footers, "_sorts", lambda order: {})
        table.rebuild_index()

    assert orders(table) == [((), 1)]
    assert table.check_index().ok
    table.rebuild_index()
    assert orders(table) == [(("at",), 1)]


def test_an_order_that_the_footer_does_not_state_is_found_by_a_check(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, sort_by="at"))
    compacted(table)
    with monkeypatch.context() as wrong:
        wrong.setattr(footers, "_sorts", lambda order: {0: 4})
        table.rebuild_index()

    assert len(table.check_index().different) == 1


def test_partition_columns_need_no_order() -> None:
    schema = define(SCHEMA, key=["city", "id"], partition_by="city")

    assert schema.sort_columns == ("id",)


@pytest.mark.parametrize(("column", "word"), [("nowhere", "the table has"), ("x", "floating point")])
def test_columns_that_cannot_give_an_order_are_refused(lake: Lake, column: str, word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        lake.create_table("a.t", SCHEMA, sort_by=column)
    table = lake.create_table("a.t", SCHEMA)
    with pytest.raises(InvalidRequest, match=f"sort_by.*{column}"):
        table.set_options({"sort_by": [column]})


def test_optimize_takes_the_columns_of_sort_by(lake: Lake) -> None:
    table = filled(lake.create_table("a.t", SCHEMA, sort_by=["city"]))

    (plan,) = table.optimize(dry_run=True)

    assert plan.by == ("city",)
