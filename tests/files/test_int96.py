"""Timestamps in INT96, as Spark and Databricks wrote them for years, mean what they meant: beyond 2262 too."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lithify import Lake, Settings, Table

FOREVER = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
TIMES = [FOREVER, dt.datetime(2262, 4, 12), dt.datetime(1677, 9, 20), dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1, 12)]
ROWS = [{"id": number, "at": at, "v": "old"} for number, at in enumerate(TIMES)]


def write_int96(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    physical = {leaf["path_in_schema"]: leaf["physical_type"] for leaf in _leaves(path)}
    assert physical["at"] == "INT96"


def _leaves(path: Path) -> list[dict[str, Any]]:
    leaves: list[dict[str, Any]] = pq.read_metadata(path).row_group(0).to_dict()["columns"]
    return leaves


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("v", pa.string())]))


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: Lake, folder: Path) -> Table:
    write_int96(folder / "p" / "x.parquet", as_table(ROWS))
    seen = duckdb.sql(f"select * from '{folder}/p/x.parquet'").to_arrow_table().to_pylist()
    assert by_id(seen) == ROWS
    return lake.adopt("a.t", folder / "p", key="id")


def test_every_door_reads_the_moment_that_was_written(lake: Lake, table: Table) -> None:
    assert by_id(table.to_arrow().to_pylist()) == ROWS
    assert by_id(lake.sql("select * from a.t").to_pylist()) == ROWS
    assert [table.get(row["id"]) for row in ROWS] == ROWS
    lake.cache.pin("a.t")
    assert by_id(lake.sql("select * from a.t").to_pylist()) == ROWS


@pytest.mark.parametrize("at", TIMES, ids=str)
def test_a_moment_is_found_by_its_value(table: Table, at: dt.datetime) -> None:
    found = table.to_arrow(where=f"at = arrow_cast('{at.isoformat()}', 'Timestamp(Microsecond, None)')")

    assert found.column("at").to_pylist() == [at]


@pytest.mark.parametrize("work", ["fold", "compact", "optimize"])
def test_rewriting_keeps_the_moments(lake: Lake, folder: Path, work: str) -> None:
    for number in range(12):
        part = [{**row, "id": row["id"] + 10 * number} for row in ROWS]
        write_int96(folder / "p" / f"{number}.parquet", as_table(part))
    table = lake.adopt("a.t", folder / "p", key="id")
    expected = by_id(table.to_arrow().to_pylist())
    if work == "fold":
        table.upsert([{"id": 0, "at": TIMES[1], "v": "new"}])
        expected[0] |= {"at": TIMES[1], "v": "new"}
        table.fold()
    elif work == "compact":
        table.compact()
    else:
        table.optimize(by=["at"])

    assert by_id(table.to_arrow().to_pylist()) == expected
    paths = [str(table.base_path / file.path) for file in table.snapshot().base]
    assert any("INT96" not in {leaf["physical_type"] for leaf in _leaves(Path(path))} for path in paths)
    seen = duckdb.sql(f"select * from read_parquet({paths})").to_arrow_table().to_pylist()
    assert by_id(seen) == expected


def test_a_key_in_int96_is_the_same_key_to_every_write(lake: Lake, folder: Path) -> None:
    write_int96(folder / "p" / "x.parquet", as_table(ROWS))
    table = lake.adopt("a.t", folder / "p", key="at")
    table.upsert([{"id": 0, "at": FOREVER, "v": "new"}])
    table.delete([TIMES[1]])
    expected = [{**ROWS[0], "v": "new"}, *ROWS[2:]]

    for _ in range(2):
        assert by_id(table.to_arrow().to_pylist()) == expected
        assert table.get(FOREVER) == expected[0]
        assert table.get(TIMES[1]) is None
        assert table.get(TIMES[3]) == ROWS[3]
        table.fold()


def test_a_large_file_is_looked_up_by_a_key_in_int96(folder: Path) -> None:
    count = 120_000
    times = [FOREVER - dt.timedelta(microseconds=number) for number in range(count)]
    whole = pa.table(
        {"id": range(count), "at": pa.array(times, pa.timestamp("us")), "v": [f"row {i:030d}" for i in range(count)]}
    )
    write_int96(folder / "p" / "x.parquet", whole)
    with Lake(folder / "lake", settings=Settings(cache_bytes_max=0)) as lake:
        table = lake.adopt("a.t", folder / "p", key="at")

        assert table.get(times[77_777]) == {"id": 77_777, "at": times[77_777], "v": f"row {77_777:030d}"}
        assert table.get(dt.datetime(1816, 3, 29)) is None


def test_a_delta_table_with_int96_files_is_read_in_utc(lake: Lake, folder: Path) -> None:
    zoned = as_table(ROWS).set_column(1, "at", pa.array(TIMES, pa.timestamp("us", "UTC")))
    write_deltalake(folder / "d", zoned)
    (file,) = (folder / "d").glob("*.parquet")
    write_int96(file, as_table(ROWS))
    (commit,) = (folder / "d" / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["size"] = file.stat().st_size
            del line["add"]["stats"]
    commit.write_text("\n".join(json.dumps(line) for line in lines))

    table = lake.adopt("a.t", folder / "d", key="id")
    table.upsert([{"id": 0, "at": FOREVER.replace(tzinfo=dt.UTC), "v": "new"}])
    table.fold()

    expected = [{**row, "at": row["at"].replace(tzinfo=dt.UTC)} for row in ROWS]
    expected[0]["v"] = "new"
    assert by_id(table.to_arrow().to_pylist()) == expected


def test_rows_from_a_parquet_file_on_the_command_line(folder: Path) -> None:
    from lithify.cli.row_input import read_rows

    write_int96(folder / "x.parquet", as_table(ROWS))

    assert read_rows(str(folder / "x.parquet"), None, as_table(ROWS).schema, "a.t").to_pylist() == ROWS
