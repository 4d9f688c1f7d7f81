"""Statistics of a file, and values that other writers put into one."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.store.parquet import Layout, encode, read

BEYOND_US = 253_402_300_800_000_005
BEYOND_DAYS = 4_000_000


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "UTC"), [0, BEYOND_US]),
        (pa.timestamp("us"), [-BEYOND_US, 0]),
        (pa.date32(), [0, BEYOND_DAYS]),
        (pa.date32(), [-BEYOND_DAYS, 0]),
    ],
    ids=str,
)
def test_a_moment_beyond_the_calendar_has_no_bounds(tmp_path: Path, kind: pa.DataType, values: list[int]) -> None:
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array(values, plain).cast(kind)})

    data, stats = encode(table, Layout(table.schema, stats_columns=("id", "at")))

    told = json.loads(stats)
    assert (told["minValues"], told["maxValues"]) == ({"id": 1}, {"id": 2})
    assert told["nullCount"] == {"id": 0, "at": 0}
    (tmp_path / "a.parquet").write_bytes(data)
    assert read(tmp_path / "a.parquet", table.schema).equals(table)


def test_a_file_is_completed_to_the_columns_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ms", "UTC")), "gone": [1], "day": ["old"]}), path)
    columns = pa.schema([("day", pa.string()), ("new", pa.int64()), ("at", pa.timestamp("us", "UTC"))])

    found = read(path, columns, {"day": "1970-01-01"})

    moment = dt.datetime(1970, 1, 1, 0, 0, 0, 1_000, dt.UTC)
    assert found.schema == columns
    assert found.to_pylist() == [{"day": "1970-01-01", "new": None, "at": moment}]
