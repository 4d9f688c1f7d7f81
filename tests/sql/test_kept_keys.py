"""Keys that were decoded once are found again without the file, as long as it is that file."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify import Lake
from lithify.core.ops import Op
from lithify.core.read_plan import Source
from lithify.errors import LithifyError
from lithify.files.footer_cache import Footers, Opened
from lithify.sql import key_rows
from lithify.sql.kept_keys import Ascending, KeptKeys
from lithify.sql.key_rows import KeyRows

NUMBERS = st.one_of(st.integers(-30, 30), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1]))


class Counting(Footers):
    opened = 0

    def open(self, source: Source) -> Opened:
        self.opened += 1
        return super().open(source)


def source_of(path: Path, **more: Any) -> Source:
    return Source(str(path), -1, path.stat().st_size, (), 0, Op.UPSERT, raw_bytes=1, **more)


def written(path: Path, values: Any, kind: pa.DataType | None = None, group_rows: int = 4) -> Source:
    column = pa.array(values, kind or pa.int64())
    pq.write_table(pa.table({"k": column, "v": column}), path, row_group_size=group_rows)
    return source_of(path)


def find(search: KeyRows, source: Source, keys: list[Any], kind: pa.DataType | None = None) -> list[Any]:
    field = pa.field("k", kind or pa.int64())
    found = search.rows([source], pa.table({"k": pa.array(keys, field.type)}), pa.schema([field]))
    assert found is not None
    assert found.schema == pa.schema([field])
    return found.column("k").to_pylist()


@given(st.lists(NUMBERS, unique=True), st.lists(NUMBERS, unique=True))
def test_numbers_that_are_kept_are_those_that_were_there(values: list[int], wanted: list[int]) -> None:
    kept = Ascending.of(pa.chunked_array([pa.array(sorted(values), pa.int64())]))
    assert (kept is None) == (not values)
    if kept is not None:
        found = kept.among(np.array(sorted(wanted), np.int64))
        assert found.tolist() == sorted(set(values) & set(wanted))
        assert kept.offsets.itemsize == (4 if max(values) - min(values) < 2**32 else 8)


@pytest.mark.parametrize("values", [[], [1, 1], [2, 1], [1, None], [None]])
def test_what_does_not_ascend_is_not_kept(values: list[int | None]) -> None:
    assert Ascending.of(pa.chunked_array([pa.array(values, pa.int64())])) is None


@pytest.mark.parametrize(
    ("kind", "values", "absent"),
    [
        (pa.int64(), [1, 5, 7, 20, 21, 40], 6),
        (pa.int8(), [-128, -1, 0, 3, 100, 127], 1),
        (pa.date32(), [dt.date(2026, 1, day) for day in (1, 2, 5, 8, 9)], dt.date(2026, 1, 3)),
        (pa.timestamp("us"), [dt.datetime(2026, 1, day) for day in (1, 2, 5, 8, 9)], dt.datetime(2026, 1, 3)),
    ],
)
def test_the_second_look_up_opens_no_file(tmp_path: Path, kind: pa.DataType, values: list[Any], absent: Any) -> None:
    source, footers = written(tmp_path / "f.parquet", values, kind), Counting()
    search = KeyRows(footers, 1)

    assert find(search, source, [values[1], absent], kind) == [values[1]]
    assert find(search, source, [*values[2:5], absent], kind) == values[2:5]
    assert find(search, source, [absent], kind) == []
    assert footers.opened == 1
    search.forget()
    assert find(search, source, values[:1], kind) == values[:1]
    assert footers.opened == 2


def test_row_groups_are_kept_one_by_one(tmp_path: Path) -> None:
    values, footers = list(range(0, 24, 2)), Counting()
    whole, search = written(tmp_path / "f.parquet", values), KeyRows(footers, 1)
    first, others = (source_of(tmp_path / "f.parquet", groups=groups) for groups in ((0,), (1, 2)))

    assert find(search, first, values) == values[:4]
    assert find(search, others, values) == values[4:]
    assert find(search, first, values) == values[:4]
    assert footers.opened == 2
    # How many row groups the file has was not known.
    assert find(search, whole, values) == values
    assert find(search, whole, values) == values
    assert footers.opened == 3


def test_who_wants_other_columns_or_has_keys_in_no_order_reads_the_file(tmp_path: Path) -> None:
    source, footers = written(tmp_path / "f.parquet", [3, 1, 2]), Counting()
    search, both = KeyRows(footers, 1), pa.schema([("k", pa.int64()), ("v", pa.int64())])
    for number in (1, 2, 3):
        assert find(search, source, [1, 2]) == [1, 2]
        assert search.rows([source], pa.table({"k": [3]}), both) == pa.table({"k": [3], "v": [3]})
        assert footers.opened == 2 * number


def test_another_file_in_its_place_is_another_file(tmp_path: Path) -> None:
    path, search = tmp_path / "f.parquet", KeyRows(Footers(), 1)
    assert find(search, written(path, [1, 2, 3]), [2, 5]) == [2]
    times = path.stat()
    source = written(path, [4, 5, 6])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    assert find(search, source, [2, 5]) == [5]
    path.unlink()
    with pytest.raises(LithifyError):
        find(search, source, [5])


def test_what_is_kept_has_a_bound(tmp_path: Path) -> None:
    source = written(tmp_path / "f.parquet", list(range(400)))
    field, kept = pa.field("k", pa.int64()), KeptKeys(bytes_max=400)
    groups = {number: Ascending.of(pa.chunked_array([range(number * 4, number * 4 + 4)])) for number in range(100)}
    kept.keep(source, field, {number: keys for number, keys in groups.items() if keys is not None}, 100)

    there = [number for number in groups if kept.of(source_of(tmp_path / "f.parquet", groups=(number,)), field)]
    assert len(there) == 400 // 16
    assert kept.of(source, field) is None


def test_several_files_in_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "ROWS_PER_THREAD_MIN", -10)
    files = [written(tmp_path / f"{n}.parquet", [n * 10 + i for i in range(10)]) for n in range(5)]
    footers = Counting()
    search, field = KeyRows(footers, 2), pa.field("k", pa.int64())
    for _ in range(3):
        found = search.rows(files, pa.table({"k": [41, 7, 23, 99]}), pa.schema([field]))
        assert found == pa.table({"k": [7, 23, 41]})
    assert footers.opened == 5


def test_what_the_engine_lets_go_of_is_read_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("s.t", pa.schema([("k", pa.int64()), ("a", pa.int64())]), key="k")
    table.upsert([{"k": 3 * number, "a": 1} for number in range(20)])
    table.fold()
    serving, opened = lake._internals.runtime.serving, list[str]()
    look = serving.footers.open

    def noted(source: Source) -> Opened:
        opened.append(source.path)
        return look(source)

    monkeypatch.setattr(serving.footers, "open", noted)
    for keys in ("3, 6", "9, 10", "12"):
        lake.execute(f"UPDATE s.t SET a = 2 WHERE k IN ({keys})")
    assert len(opened) == 1
    serving.let_go()
    lake.execute("UPDATE s.t SET a = 2 WHERE k IN (15, 16)")
    assert len(opened) == 2
    assert table.count(where="a = 2") == 5
