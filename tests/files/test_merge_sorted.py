"""Merging files: the same rows come out, in key order, in files of the target size, in their own windows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify import Corruption
from lithify.core import arrow_rows
from lithify.files.merge_sorted import MergeResult, MergeSource, MergeTask, merge_files
from lithify.files.parquet import Layout
from lithify.files.zorder import ClusterTask, cluster_here

UTC = dt.UTC
HOUR_US = 3_600_000_000
NUMBERS = pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.string(), False), pa.field("v", pa.int64())])


def sources(folder: Path, tables: list[pa.Table], row_group_rows: int = 3) -> tuple[MergeSource, ...]:
    for job in ("pack-0", "cluster-0"):
        (folder / job).mkdir(exist_ok=True)
    found = []
    for number, table in enumerate(tables):
        path = folder / f"in-{number}.parquet"
        pq.write_table(table, path, row_group_size=row_group_rows, write_page_checksum=True)
        found.append(MergeSource(str(path), table.num_rows, path.stat().st_size))
    return tuple(found)


def merged(
    folder: Path, tables: list[pa.Table], by: tuple[str, ...], **more: Any
) -> tuple[MergeResult, list[pa.Table]]:
    schema = tables[0].schema
    task = MergeTask(
        sources(folder, tables, more.pop("row_group_rows", 3)),
        by,
        by or ("v",),
        Layout(schema, row_group_rows=more.pop("group_out", 4)),
        str(folder),
        "pack-0",
        "part",
        more.pop("target_bytes", 1 << 30),
        **more,
    )
    result = merge_files(task)
    return result, [pq.read_table(folder / file.path) for file in result.written]


def rows_of(tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


keys = st.tuples(st.integers(0, 6), st.sampled_from(["", "a", "b", "é", "𝛼"]))
runs = st.lists(st.lists(keys, max_size=12), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(given_runs=runs, in_order=st.booleans(), row_group_rows=st.integers(1, 5))
def test_the_same_rows_come_out_in_key_order(
    tmp_path_factory: pytest.TempPathFactory,
    given_runs: list[list[tuple[int, str]]],
    in_order: bool,
    row_group_rows: int,
) -> None:
    tables = []
    for run in given_runs:
        lines = sorted(run) if in_order else run
        values = [{"a": a, "b": b, "v": i} for i, (a, b) in enumerate(lines)]
        tables.append(pa.Table.from_pylist(values, schema=NUMBERS))

    result, found = merged(tmp_path_factory.mktemp("merge"), tables, ("a", "b"), row_group_rows=row_group_rows)

    assert Counter(rows_of(found)) == Counter(rows_of(tables))
    # Footers tell of one column at a time: of inputs in no order, the first key column's is made.
    columns = 2 if in_order else 1
    assert [row[:columns] for row in rows_of(found)] == sorted(row[:columns] for row in rows_of(tables))
    assert (result.rows_read, result.fingerprint_read) == (result.rows_written, result.fingerprint_written)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [-5, 0, 7]),
        (pa.string(), ["", "a" * 100, "z"]),
        (pa.binary(), [b"\x00", b"a", b"\xff"]),
        (pa.date32(), [dt.date(1969, 1, 1), dt.date(2020, 1, 1), dt.date(2026, 1, 1)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC)]),
        (pa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)]),
        (pa.decimal128(12, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("99.99")]),
        (pa.bool_(), [False, True]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_merged(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([pa.field("k", kind, False), pa.field("v", pa.int64())])
    tables = [pa.Table.from_pylist([{"k": value, "v": n} for value in values], schema=schema) for n in range(3)]

    _, found = merged(tmp_path, tables, ("k",), row_group_rows=1)

    assert [row[0] for row in rows_of(found)] == sorted([*values, *values, *values])


def test_files_with_disjoint_ranges_are_read_one_after_the_other(tmp_path: Path) -> None:
    tables = [
        pa.table({"a": range(n * 10, n * 10 + 10), "b": ["x"] * 10, "v": range(10)}, schema=NUMBERS) for n in (2, 0, 1)
    ]

    _, found = merged(tmp_path, tables, ("a", "b"))

    assert [row[0] for row in rows_of(found)] == list(range(30))


def test_outputs_end_at_the_target_without_a_small_rest(tmp_path: Path) -> None:
    tables = [
        pa.table(
            {"a": range(n, 40_000, 4), "b": [f"{i:09x}" for i in range(n, 40_000, 4)], "v": range(10_000)},
            schema=NUMBERS,
        )
        for n in range(4)
    ]
    total = sum(source.size_bytes for source in sources(tmp_path, tables, 2_000))

    result, _ = merged(tmp_path, tables, ("a",), row_group_rows=2_000, group_out=1_000, target_bytes=total // 4)

    sizes = [file.size_bytes for file in result.written]
    assert 3 <= len(sizes) <= 5
    assert max(sizes) <= total // 4 * 1.3
    assert max(file.rows for file in result.written) < 2 * min(file.rows for file in result.written)


def test_late_rows_land_in_their_own_window(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), False), pa.field("t", pa.timestamp("us", "UTC"))])
    day = dt.datetime(2026, 11, 15, tzinfo=UTC)
    times = [day + dt.timedelta(hours=h, minutes=m) for h in (3, 1) for m in (0, 59)]
    tables = [
        pa.Table.from_pylist([{"a": n * 10 + i, "t": t} for i, t in enumerate(times)], schema=schema) for n in range(2)
    ]

    result, found = merged(tmp_path, tables, ("a",), window=("t", HOUR_US))

    assert sorted(sorted({t.hour for t in table.column("t").to_pylist()}) for table in found) == [[1], [3]]
    assert result.rows_written == 8


def test_a_date_or_a_missing_time_has_one_window(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), False), pa.field("t", pa.timestamp("us", "UTC"))])
    tables = [pa.Table.from_pylist([{"a": n, "t": None}], schema=schema) for n in range(2)]

    _, found = merged(tmp_path, tables, ("a",), window=("t", HOUR_US))

    assert [table.num_rows for table in found] == [2]


def test_a_damaged_input_is_named(tmp_path: Path) -> None:
    tables = [pa.table({"a": range(100), "b": ["x"] * 100, "v": range(100)}, schema=NUMBERS) for _ in range(2)]
    task = MergeTask(
        sources(tmp_path, tables, 10), ("a",), ("a",), Layout(NUMBERS), str(tmp_path), "pack-0", "part", 1 << 30
    )
    path = Path(task.sources[1].path)
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)

    with pytest.raises(Corruption, match=r"in-1\.parquet") as caught:
        merge_files(task)

    assert caught.value.details["path"] == str(path)
    assert not list((tmp_path / "pack-0").glob("*"))


def test_an_input_with_other_rows_than_its_log_says_is_named(tmp_path: Path) -> None:
    tables = [pa.table({"a": [1], "b": ["x"], "v": [1]}, schema=NUMBERS)] * 2
    first, second = sources(tmp_path, tables)
    lying = MergeSource(second.path, 7, second.size_bytes)
    task = MergeTask((first, lying), ("a",), ("a",), Layout(NUMBERS), str(tmp_path), "pack-0", "part", 1 << 30)

    with pytest.raises(Corruption, match="1 rows instead of 7"):
        merge_files(task)


@pytest.mark.parametrize(
    ("kind", "in_file"),
    [
        (pa.string(), pa.binary()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.int64(), pa.int32()),
    ],
    ids=str,
)
def test_a_file_may_spell_the_type_of_the_key_differently(
    tmp_path: Path, kind: pa.DataType, in_file: pa.DataType
) -> None:
    schema = pa.schema([pa.field("k", kind, False), pa.field("v", pa.int64())])
    plain = pa.string() if pa.types.is_string(kind) else pa.int64()
    tables = []
    for n, spelled in enumerate((in_file, kind, in_file)):
        numbers = [f"{i:03d}" for i in range(n, 30, 3)] if plain == pa.string() else range(n * 1000, 30_000, 3000)
        table = pa.table({"k": pa.array(numbers, plain).cast(kind), "v": range(10)})
        tables.append(table.set_column(0, "k", table.column("k").cast(spelled)))
    task = MergeTask(
        sources(tmp_path, tables), ("k",), ("k",), Layout(schema), str(tmp_path), "pack-0", "part", 1 << 30
    )

    result = merge_files(task)

    (found,) = (pq.read_table(tmp_path / file.path) for file in result.written)
    keys = [value for table in tables for value in table.column("k").cast(kind).to_pylist()]
    assert found.column("k").to_pylist() == sorted(keys)
    assert result.fingerprint_read == result.fingerprint_written


def test_keys_beyond_the_calendar_are_merged(tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    schema = pa.schema([pa.field("k", kind, False), pa.field("v", pa.int64())])
    last_us = 253_402_300_800_000_000
    numbers = [[0, last_us + 2], [1, last_us + 1], [2, 3]]
    tables = [pa.table({"k": pa.array(each, pa.int64()).cast(kind), "v": [1, 2]}, schema=schema) for each in numbers]

    _, found = merged(tmp_path, tables, ("k",), row_group_rows=1)

    keys = [number for table in found for number in table.column("k").cast(pa.int64()).to_pylist()]
    assert keys == [0, 1, 2, 3, last_us + 1, last_us + 2]


@pytest.mark.parametrize("in_order", [True, False])
def test_large_files_are_merged_and_clustered_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    monkeypatch.setattr(arrow_rows, "PIECE_BYTES_MAX", 500)
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string())])
    tables = []
    for n in range(3):
        numbers = list(range(n, 60, 3)) if in_order else [(i * 7) % 20 * 3 + n for i in range(20)]
        tables.append(pa.table({"k": numbers, "v": [f"{i}" * 40 for i in numbers]}, schema=schema))
    wanted = sorted(row for table in tables for row in zip(*table.to_pydict().values(), strict=True))

    _, found = merged(tmp_path, tables, ("k",))
    clustered = cluster_here(
        ClusterTask(sources(tmp_path, tables), ("k",), ("k",), Layout(schema), str(tmp_path), "cluster-0", "p", 1 << 30)
    )

    assert rows_of(found) == wanted
    assert rows_of([pq.read_table(tmp_path / file.path) for file in clustered.written]) == wanted


orders = st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.one_of(st.none(), st.booleans()))


@settings(max_examples=60, deadline=None)
@given(given_runs=st.lists(st.lists(orders, max_size=12), min_size=1, max_size=5), in_order=st.booleans())
def test_columns_with_nulls_and_repeated_values_give_an_order_too(
    tmp_path_factory: pytest.TempPathFactory,
    given_runs: list[list[tuple[int | None, bool | None]]],
    in_order: bool,
) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.bool_()), ("v", pa.int64())])

    def sort_key(pair: tuple[Any, ...]) -> list[tuple[bool, Any]]:
        return [(value is None, value) for value in pair[:2]]

    tables = []
    for run in given_runs:
        lines = sorted(run, key=sort_key) if in_order else run
        tables.append(pa.Table.from_pylist([{"a": a, "b": b, "v": i} for i, (a, b) in enumerate(lines)], schema=schema))

    _, found = merged(tmp_path_factory.mktemp("merge"), tables, ("a", "b"), row_group_rows=2)

    assert Counter(rows_of(found)) == Counter(rows_of(tables))
    assert [sort_key(row) for row in rows_of(found)] == sorted(sort_key(row) for row in rows_of(found))


def test_the_footers_of_sorted_files_say_so(tmp_path: Path) -> None:
    schema = pa.schema([("l", pa.list_(pa.int64())), ("a", pa.int64()), ("v", pa.int64())])
    table = pa.Table.from_pylist([{"l": [1], "a": 5, "v": 1}, {"l": [], "a": None, "v": 2}], schema=schema)

    result, _ = merged(tmp_path, [table, table], ("a",))
    as_they_came, _ = merged(tmp_path, [table, table], ())

    footer = pq.read_metadata(tmp_path / result.written[0].path)
    column = footer.row_group(0).sorting_columns[0]
    assert footer.schema.column(column.column_index).path == "a"
    assert not column.descending
    assert not column.nulls_first
    assert pq.read_metadata(tmp_path / as_they_came.written[0].path).row_group(0).sorting_columns == ()
