"""Bloom filters are asked wherever a row must hold one of a few values, and never cost a row."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake
from lithify.settings import load_settings
from lithify.write.decided import rows_with_keys
from support.folders import memory_folder

ROWS, GROUPS = 32_768, 8
# Of every kind, values that lie all over the row groups, so that bounds rule none of them out.
KINDS: dict[str, pa.DataType] = {
    "name": pa.string(),
    "day": pa.date32(),
    "ntz": pa.timestamp("us"),
    "utc": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(12, 2),
    "wide": pa.decimal128(30, 4),
    "number": pa.int64(),
}


def value(kind: str, number: int) -> Any:
    match kind:
        case "name":
            return f"name {number:09d}"
        case "day":
            return dt.date(1900, 1, 1) + dt.timedelta(days=number)
        case "ntz":
            return dt.datetime(1900, 1, 1) + dt.timedelta(seconds=977 * number)
        case "utc":
            return dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=977 * number)
        case "price":
            return Decimal(number).scaleb(-2)
        case "wide":
            return Decimal(number * 10**15 + 7).scaleb(-4)
        case _:
            return number


def literal(kind: str, number: int) -> str:
    found = value(kind, number)
    if kind in ("price", "wide", "number"):
        return str(found)
    return f"'{found.replace(tzinfo=None) if isinstance(found, dt.datetime) else found}'"


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """Odd numbers in a random order; even ones between them are in no row."""
    numbers = [2 * n + 1 for n in range(ROWS)]
    random.Random(7).shuffle(numbers)
    rows = {"id": pa.array(range(ROWS), pa.int64())}
    rows |= {kind: pa.array([value(kind, n) for n in numbers], KINDS[kind]) for kind in KINDS}
    with memory_folder() as path, Lake(path / "lake", settings=load_settings(cache_bytes_max=0)) as lake:
        options = {"row_group_rows": ROWS // GROUPS, "bloom_columns": list(KINDS)}
        table = lake.create_table("q.t", pa.table(rows).schema, key="id", options=options)
        table.upsert(pa.table(rows))
        table.fold()
        yield lake


def groups_read(lake: Lake, where: str) -> int:
    (found,) = lake.explain(f"SELECT sum(id) FROM q.t WHERE {where}")
    assert found.groups_total == GROUPS
    return found.groups_read


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_lists_read_the_row_groups_of_their_values(lake: Lake, kind: str, count: int) -> None:
    there, absent = 2 * 1000 + 1, [2 * n for n in range(1001, 1001 + count)]
    listed = ", ".join(literal(kind, number) for number in absent)
    chained = " OR ".join(f"{kind} = {literal(kind, number)}" for number in absent)

    # A filter may take a value for one of its own; it seldom does.
    assert groups_read(lake, f"{kind} = {literal(kind, there)}") <= GROUPS // 2
    assert groups_read(lake, f"{kind} IN ({listed})") <= GROUPS // 2
    assert groups_read(lake, chained) <= GROUPS // 2
    for where in (f"{kind} IN ({listed}, {literal(kind, there)})", f"{chained} OR {kind} = {literal(kind, there)}"):
        assert groups_read(lake, where) < GROUPS
        assert lake.sql(f"SELECT {kind} AS v FROM q.t WHERE {where}").column("v").to_pylist() == [value(kind, there)]


def test_a_row_of_one_column_or_of_another(lake: Lake) -> None:
    where = f"name = {literal('name', 2)} OR (price = {literal('price', 4)} AND id > 5)"

    assert groups_read(lake, where) <= GROUPS // 2
    assert groups_read(lake, f"{where} OR id > 5") == GROUPS


def test_no_row_is_missed(lake: Lake) -> None:
    some = random.sample(range(ROWS), 40)
    for kind in KINDS:
        listed = ", ".join(literal(kind, 2 * number + 1) for number in some)
        assert lake.sql(f"SELECT count(*) AS n FROM q.t WHERE {kind} IN ({listed})").to_pylist() == [{"n": len(some)}]
        for number in some[:3]:
            where = f"{kind} = {literal(kind, 2 * number + 1)}"
            assert lake.sql(f"SELECT count(*) AS n FROM q.t WHERE {where}").to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("kind", ["name", "number"])
def test_a_look_up_of_few_keys_leaves_out_files_whose_filters_know_none_of_them(folder: Path, kind: str) -> None:
    """Both parts of the table have keys from one end to the other."""
    with Lake(folder / "lake") as own:
        columns = pa.schema([("k", KINDS[kind]), ("part", pa.int64()), ("v", pa.int64())])
        table = own.create_table("s.t", columns, key="k", partition_by="part", options={"bloom_columns": ["k"]})
        rows = range(20_000)
        keys = pa.array([value(kind, 2 * number) for number in rows], KINDS[kind])
        parts = pa.array([number % 2 for number in rows], pa.int64())
        table.append(pa.table([keys, parts, pa.array(rows, pa.int64())], schema=columns))
        table.fold()

        def found(*numbers: int) -> tuple[int, list[int]]:
            wanted = pa.table({"k": pa.array([value(kind, number) for number in numbers], KINDS[kind])})
            reader, snapshot = table._internals.reader, table.snapshot()
            plan = reader.plan_for(snapshot, [wanted], ["v"])
            files = len((*plan.clean, *plan.touched))
            return files, rows_with_keys(reader, snapshot, wanted, ["v"]).column("v").to_pylist()

        assert found(0, 4, 8) == (1, [0, 2, 4])
        assert found(2, 6, 7) == (1, [1, 3])
        assert sorted(found(2, 4)[1]) == [1, 2]
        assert found(2, 4)[0] == 2
        assert found(3, 5, 7) == (0, [])
        assert found(*range(0, 160, 4))[0] == 2
        assert own.execute(f"UPDATE s.t SET v = -1 WHERE k IN ({literal(kind, 0)}, {literal(kind, 7)})").updated == 1
        table.upsert([{"k": value(kind, 7), "part": 0, "v": 7}])
        table.delete([value(kind, 4)])
        assert found(4, 7, 8)[1] == [4, 7]
