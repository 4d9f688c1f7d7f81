"""Rows of files by their keys: whatever the order of the files, it finds what a comparison of every row finds."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify import Corruption, Lake
from lithify.core.ops import Op
from lithify.core.read_plan import Source
from lithify.files.footer_cache import Footers
from lithify.sql import key_rows
from lithify.sql.key_rows import KeyRows

INT = pa.field("k", pa.int64())
COLUMNS = pa.schema([INT, pa.field("v", pa.string())])


def source(path: Path, rows: int, **more: Any) -> Source:
    return Source(str(path), rows, path.stat().st_size, (), 0, Op.UPSERT, raw_bytes=1, **more)


def file_of(path: Path, values: Any, group_rows: int = 4, kind: pa.DataType = INT.type) -> Source:
    rows = pa.table({"k": pa.array(values, kind), "v": [f"row {number}" for number in range(len(values))]})
    pq.write_table(rows, path, row_group_size=group_rows)
    return source(path, len(values))


def find(sources: list[Source], keys: list[Any], kind: pa.DataType = INT.type, threads: int = 1) -> list[Any]:
    columns = pa.schema([pa.field("k", kind), COLUMNS.field("v")])
    found = KeyRows(Footers(), threads).rows(sources, pa.table({"k": pa.array(keys, kind)}), columns)
    assert found is not None
    return [tuple(row.values()) for row in found.to_pylist()]


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1)), max_size=20),
    st.booleans(),
    st.lists(st.integers(-20, 20), min_size=1, max_size=8, unique=True),
)
def test_rows_of_any_order_with_nulls_and_doubles(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None], ascends: bool, keys: list[int]
) -> None:
    there = sorted(value for value in values if value is not None) if ascends else values
    file = file_of(tmp_path_factory.mktemp("keys") / "f.parquet", there)
    assert find([file], keys) == [(k, f"row {n}") for n, k in enumerate(there) if k is not None and k in keys]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-128, 0, 127]),
        (pa.int16(), [-(2**15), 3, 2**15 - 1]),
        (pa.int32(), [-(2**31), 7, 2**31 - 1]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 2), dt.date(9999, 12, 31)]),
        (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2200, 1, 1, tzinfo=dt.UTC)]),
    ],
)
def test_keys_of_every_type_that_is_looked_for(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    file = file_of(tmp_path / "f.parquet", values, kind=kind)
    for number, value in enumerate(values):
        assert find([file], [value], kind) == [(value, f"row {number}")]


def test_several_files_in_several_threads_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "ROWS_PER_THREAD_MIN", 1)
    files = [file_of(tmp_path / f"{n}.parquet", [n * 10 + i for i in range(10)]) for n in range(5)]
    assert [k for k, _ in find(files, [41, 7, 23, 99], threads=2)] == [7, 23, 41]


def test_a_partition_value_that_stands_in_the_log_alone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": ["a", "b"]}), tmp_path / "f.parquet")
    file = Source(str(tmp_path / "f.parquet"), 2, (tmp_path / "f.parquet").stat().st_size, (("k", 7),), raw_bytes=1)
    assert find([file], [7]) == [(7, "a"), (7, "b")]
    assert find([file], [8]) == []


def test_what_is_left_to_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, search = file_of(tmp_path / "f.parquet", [1, 2]), KeyRows(Footers(), 1)
    key = pa.table({"k": [1]})

    assert search.rows([file], pa.table({"k": pa.array([1, None])}), COLUMNS) is None
    assert search.rows([file], pa.table({"k": [1], "v": ["row 0"]}), COLUMNS) is None
    assert search.rows([file], pa.table({"v": ["row 0"]}), COLUMNS) is None
    assert search.rows([file], pa.table({"k": pa.array([1], pa.int32())}), COLUMNS) is None
    assert search.rows([file], key.slice(1), COLUMNS) is None
    monkeypatch.setattr(key_rows, "OTHERS_RAW_BYTES_MAX", 0)
    assert search.rows([file], key, COLUMNS) is None
    assert search.rows([file], key, pa.schema([INT])) == key


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    file = file_of(path, list(np.arange(1000)), group_rows=1000)
    raw = bytearray(path.read_bytes())
    raw[4:200] = bytes(196)
    path.write_bytes(raw)
    with pytest.raises(Corruption, match=str(path)):
        find([file], [5])


def test_pending_changes_count_and_the_index_leaves_row_groups_out(lake: Lake) -> None:
    table = lake.create_table("a.t", COLUMNS.set(0, INT), key="k", options={"row_group_rows": 32768})
    table.append(pa.table({"k": np.arange(200_000), "v": ["old"] * 200_000}))
    table.fold()
    table.upsert([{"k": 5, "v": "new"}, {"k": 300_000, "v": "new"}])
    table.delete([100_000])

    reader, snapshot = table._internals.reader, table.snapshot()
    keys = pa.table({"k": [5, 6, 100_000, 300_000, 300_001]})
    plan = reader.plan_for(snapshot, [keys], ["v"])
    found = lake._internals.runtime.serving.key_queries.matching(plan, [keys], ["k", "v"])

    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [(5, "new"), (6, "old"), (300_000, "new")]
    sources = (*plan.clean, *plan.touched)
    assert [len(source.groups or ()) for source in sources] == [2]
