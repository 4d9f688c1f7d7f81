"""The physical layout of data files, read back from their footers: whoever wrote them, it is the same."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lithify import Corruption, Lake, Settings, Table
from lithify.core.schema import TableSchema, define
from lithify.files.parquet import BLOOM_ROWS_MIN, GROUP_ROWS_LARGE, GROUP_ROWS_SMALL, Layout, PartWriter, encode, read
from lithify.options.table_options import defaults_of, stored

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer_id", pa.string()),
        ("tax_key", pa.string()),
        ("shop_id", pa.int32()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("paid", pa.bool_()),
    ]
)
MORNING = dt.datetime(2026, 11, 15, 8, 0, 0, 123456, dt.UTC)


def rows(count: int) -> pa.Table:
    numbers = range(count)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([f"customer {n * 7 % count}" for n in numbers]),
        pa.array([f"tax {n % 11}" for n in numbers]),
        pa.array([n % 300 for n in numbers], pa.int32()),
        pa.array([f"note {n % 100}" for n in numbers]),
        pa.array([MORNING + dt.timedelta(seconds=n) for n in numbers], SCHEMA.field("at").type),
        pa.array([n % 2 == 0 for n in numbers]),
    ]
    return pa.table(columns, schema=SCHEMA)


def table_schema(**options: Any) -> TableSchema:
    schema = define(SCHEMA, "id", time="at")
    return TableSchema(schema.columns, schema.key, None, "at", (), stored(options), defaults_of(Settings()))


def written(path: Path, table: pa.Table, layout: Layout) -> pq.FileMetaData:
    writer = PartWriter(path, table.schema, layout)
    for start in range(0, table.num_rows, 10_000):
        writer.write(table.slice(start, 10_000))
    writer.close(path.parent)
    return pq.read_metadata(path)


def group_sizes(metadata: pq.FileMetaData) -> list[int]:
    return [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]


def columns_of(metadata: pq.FileMetaData) -> dict[str, list[Any]]:
    """The chunks of each column, one per row group."""
    names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    return {
        name: [metadata.row_group(g).column(i) for g in range(metadata.num_row_groups)] for i, name in enumerate(names)
    }


def bloom_columns(metadata: pq.FileMetaData) -> set[str]:
    return {name for name, chunks in columns_of(metadata).items() if any(c.bloom_filter_offset for c in chunks)}


def data_files(table: Table, which: str) -> list[Path]:
    root = table.base_path.parent / which
    return [root / file.path for file in (table.snapshot().base if which == "base" else table.snapshot().changes)]


# -- row groups


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (100, [100]),
        (GROUP_ROWS_SMALL + 1, [GROUP_ROWS_SMALL, 1]),
        (GROUP_ROWS_LARGE - 1, [GROUP_ROWS_SMALL] * 3 + [GROUP_ROWS_SMALL - 1]),
        (GROUP_ROWS_LARGE, [GROUP_ROWS_LARGE]),
        (GROUP_ROWS_LARGE + 5, [GROUP_ROWS_LARGE, 5]),
    ],
)
def test_row_groups_are_small_in_small_files_and_large_in_large_ones(
    folder: Path, count: int, sizes: list[int]
) -> None:
    table = rows(count)
    layout = Layout.of(table_schema())
    assert group_sizes(written(folder / "f.parquet", table, layout)) == sizes
    assert group_sizes(pq.ParquetFile(pa.BufferReader(encode(table, layout)[0])).metadata) == sizes
    assert read(folder / "f.parquet", SCHEMA).equals(table)


def test_row_groups_of_a_size_that_the_table_sets(folder: Path) -> None:
    layout = Layout.of(table_schema(row_group_rows=4096))
    metadata = written(folder / "f.parquet", rows(10_000), layout)
    assert group_sizes(metadata) == [4096, 4096, 1808]
    assert bloom_columns(metadata) == {"id", "customer_id", "tax_key"}


# -- bloom filters


def test_bloom_filters_stand_on_exactly_the_wanted_columns(folder: Path) -> None:
    automatic = written(folder / "automatic.parquet", rows(BLOOM_ROWS_MIN), Layout.of(table_schema()))
    assert bloom_columns(automatic) == {"id", "customer_id", "tax_key"}
    chosen = Layout.of(table_schema(bloom_columns=("note", "shop_id")))
    assert bloom_columns(written(folder / "chosen.parquet", rows(BLOOM_ROWS_MIN), chosen)) == {"note", "shop_id"}
    none = Layout.of(table_schema(bloom_columns=()))
    assert bloom_columns(written(folder / "none.parquet", rows(BLOOM_ROWS_MIN), none)) == set()


def test_every_row_group_has_its_own_filter(folder: Path) -> None:
    metadata = written(folder / "f.parquet", rows(GROUP_ROWS_SMALL * 2), Layout.of(table_schema()))
    offsets = [chunk.bloom_filter_offset for chunk in columns_of(metadata)["customer_id"]]
    assert len(set(offsets)) == 2
    assert all(offsets)


def test_a_small_change_file_does_not_pay_for_filters() -> None:
    small = rows(BLOOM_ROWS_MIN - 1)
    with_filters, _ = encode(small, Layout.of(table_schema()))
    without, _ = encode(small, Layout.of(table_schema(bloom_columns=())))
    assert with_filters == without


def test_an_engine_skips_by_the_filters_and_finds_what_is_there(folder: Path) -> None:
    path = folder / "f.parquet"
    written(path, rows(GROUP_ROWS_SMALL), Layout.of(table_schema(bloom_columns=("customer_id", "id", "shop_id"))))
    probe = "select bloom_filter_excludes from parquet_bloom_probe(?, ?, ?)"
    for column, present, absent in (
        ("customer_id", "customer 77", "customer x"),
        ("id", 77, 10**9),
        ("shop_id", 77, 5000),
    ):
        assert duckdb.execute(probe, [str(path), column, present]).fetchall() == [(False,)]
        assert duckdb.execute(probe, [str(path), column, absent]).fetchall() == [(True,)]


def test_false_positives_are_about_as_rare_as_wanted(folder: Path) -> None:
    written(folder / "f.parquet", rows(GROUP_ROWS_SMALL), Layout.of(table_schema(bloom_fpp=0.01)))
    probe = "select bloom_filter_excludes from parquet_bloom_probe(?, 'customer_id', ?)"
    path = str(folder / "f.parquet")
    passed = sum(not duckdb.execute(probe, [path, f"absent {n}"]).fetchall()[0][0] for n in range(500))
    assert passed <= 25


def test_filters_are_smaller_where_less_is_asked_of_them(folder: Path) -> None:
    sizes = {
        fpp: columns_of(written(folder / f"{fpp}", rows(GROUP_ROWS_SMALL), Layout.of(table_schema(bloom_fpp=fpp))))
        for fpp in (0.001, 0.3)
    }
    lengths = {fpp: found["customer_id"][0].bloom_filter_length for fpp, found in sizes.items()}
    assert lengths[0.3] < lengths[0.001]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [n % 100 for n in range(BLOOM_ROWS_MIN)]),
        (pa.date32(), [dt.date(2000, 1, 1) + dt.timedelta(n) for n in range(BLOOM_ROWS_MIN)]),
        (pa.decimal128(10, 2), [Decimal(n) for n in range(BLOOM_ROWS_MIN)]),
        (pa.binary(), [str(n).encode() for n in range(BLOOM_ROWS_MIN)]),
        (pa.timestamp("us"), [dt.datetime(2000, 1, 1) + dt.timedelta(n) for n in range(BLOOM_ROWS_MIN)]),
        (pa.bool_(), [n % 2 == 0 for n in range(BLOOM_ROWS_MIN)]),
    ],
)
def test_a_key_of_any_type_can_be_written(folder: Path, kind: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"k": pa.array(values, kind)}, schema=pa.schema([pa.field("k", kind, nullable=False)]))
    metadata = written(folder / "f.parquet", table, Layout.of(define(table.schema, "k")))
    assert bloom_columns(metadata) == (set() if pa.types.is_boolean(kind) else {"k"})
    assert read(folder / "f.parquet", table.schema).equals(table)


# -- pages, codec, types


def test_zstd_at_the_level_that_the_table_sets() -> None:
    sizes = {}
    texts = [f"{n * n} bottles of {hex(n * 7919)} on the wall, take {n} down" for n in range(5_000)]
    table = rows(5_000).set_column(4, SCHEMA.field("note"), pa.array(texts))
    for level in (1, 19):
        data, _ = encode(table, Layout.of(table_schema(compression_level=level)))
        metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
        assert {c.compression for chunks in columns_of(metadata).values() for c in chunks} == {"ZSTD"}
        sizes[level] = len(data)
    assert sizes[19] < sizes[1]


def test_timestamps_are_microseconds_with_statistics(folder: Path) -> None:
    metadata = written(folder / "f.parquet", rows(10), Layout.of(table_schema()))
    at = metadata.schema.column(5)
    assert (at.physical_type, json.loads(at.logical_type.to_json())["timeUnit"]) == ("INT64", "microseconds")
    assert columns_of(metadata)["at"][0].statistics.min == MORNING


def test_a_flipped_byte_in_a_page_is_noticed(folder: Path) -> None:
    path = folder / "f.parquet"
    metadata = written(path, rows(1000), Layout.of(table_schema()))
    chunk = columns_of(metadata)["note"][0]
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(Corruption, match=r"f\.parquet"):
        read(path, SCHEMA)


# -- statistics in the log


@pytest.mark.parametrize(("others", "expected"), [(0, {"id", "at"}), (2, {"id", "at", "customer_id", "tax_key"})])
def test_statistics_cover_the_special_columns_and_the_first_others(others: int, expected: set[str]) -> None:
    _, stats = encode(rows(10), Layout.of(table_schema(stats_columns_max=others)))
    assert set(json.loads(stats)["nullCount"]) == expected


def test_wide_tables_have_statistics_for_32_others() -> None:
    wide = pa.schema([(f"c{n}", pa.int64()) for n in range(40)] + [("k", pa.int64()), ("region", pa.string())])
    layout = Layout.of(define(wide, "k", partition_by="region"))
    assert layout.stats_columns == ("k", "region", *(f"c{n}" for n in range(32)))


def test_statistics_in_the_log_of_both_parts(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options={"stats_columns_max": 1})
        table.upsert(rows(10))
        table.fold()
        table.upsert(rows(10))
        for which in ("base", "changes"):
            actions = pa.table(DeltaTable(table.base_path.parent / which).get_add_actions(flatten=True))
            counted = {name for name in actions.column_names if name.startswith("null_count.")}
            filled = {name for name in counted if actions.column(name).null_count < actions.num_rows}
            assert filled == {"null_count.id", "null_count.customer_id"}


# -- every writer


def described(path: Path) -> dict[str, Any]:
    metadata = pq.read_metadata(path)
    columns = columns_of(metadata)
    return {
        "groups": group_sizes(metadata),
        "blooms": bloom_columns(metadata),
        "codecs": {c.compression for chunks in columns.values() for c in chunks},
        "encodings": {name: chunks[0].encodings for name, chunks in columns.items()},
        "page indexes": {c.has_column_index and c.has_offset_index for chunks in columns.values() for c in chunks},
        "types": [(c.path, c.physical_type, str(c.logical_type)) for c in map(metadata.schema.column, range(7))],
        "statistics": {c.is_stats_set for chunks in columns.values() for c in chunks},
    }


OPTIONS = {"row_group_rows": 4096, "bloom_columns": ["customer_id"], "compression_level": 7}


def test_small_writes_and_folds_have_the_same_layout(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options=OPTIONS)
        table.upsert(rows(BLOOM_ROWS_MIN))
        [change] = data_files(table, "changes")
        expected = described(change)
        assert (expected["groups"], expected["blooms"]) == ([4096, 4096], {"customer_id"})
        table.fold()
        table.upsert(rows(10))
        table.fold()  # rewrites the file that the first fold linked
        [base] = data_files(table, "base")
        assert described(base) == expected


def test_options_set_later_hold_for_what_is_written_then(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options=OPTIONS)
        table.upsert(rows(BLOOM_ROWS_MIN))
        table.set_options({"row_group_rows": 2048, "bloom_columns": None})
        table.upsert(rows(BLOOM_ROWS_MIN))
        first, second = (described(path) for path in data_files(table, "changes"))
        assert first["groups"] == [4096, 4096]
        assert (second["groups"], second["blooms"]) == ([2048] * 4, {"id", "customer_id", "tax_key"})


@pytest.mark.spark
def test_spark_writes_the_same_layout(folder: Path) -> None:
    settings = Settings(
        spark_master="local[2]", spark_driver_memory="1g", spark_shuffle_partitions=1, local_frame_bytes_max=0
    )
    with Lake(folder / "lake", settings=settings) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id", options=OPTIONS)
        table.upsert(rows(BLOOM_ROWS_MIN))
        pandas = rows(BLOOM_ROWS_MIN).to_pandas()
        table.upsert(lake.spark.createDataFrame(pandas).coalesce(1))
        here, spark = data_files(table, "changes")
        assert "bulk-" in str(spark)
        ours, theirs = described(here), described(spark)
        assert {**theirs, "groups": None} == {**ours, "groups": None}
        assert max(theirs["groups"]) == 4096
        assert read(spark, SCHEMA).num_rows <= BLOOM_ROWS_MIN
