"""Batch reads of the data source, as Spark calls them but without Spark: planned here, pickled, read by the pieces."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as pushed
from pyspark.sql.datasource import CaseInsensitiveDict

from lithify import InvalidRequest, Lake, LithifyDataSource, NotFound, Settings
from lithify.core.read_plan import Source
from lithify.errors import Corruption, LimitExceeded
from lithify.files import staging
from lithify.spark.datasource import plan as source_plan
from lithify.spark.datasource.plan import Piece, ScanPartition, groups_of

COLUMNS = pa.schema(
    [("id", pa.int64()), ("region", pa.string()), ("total", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as opened:
        yield opened


def source(lake: Lake, table: str, **options: str) -> LithifyDataSource:
    return LithifyDataSource(CaseInsensitiveDict({"path": f"{lake.path}/{table.replace('.', '/')}", **options}))


def planned(
    opened: LithifyDataSource, filters: Sequence[pushed.Filter] = ()
) -> tuple[pushed.DataSourceReader, list[pushed.InputPartition]]:
    reader = opened.reader(opened.schema())
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    return reader, list(reader.partitions())


def rows_of(opened: LithifyDataSource, filters: Sequence[pushed.Filter] = ()) -> pa.Table:
    """As executors get them: everything has been pickled."""
    reader, partitions = planned(opened, filters)
    shipped, parts = pickle.loads(pickle.dumps((reader, partitions)))
    batches = [batch for part in parts for batch in shipped.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def pieces(partitions: Sequence[Any]) -> list[Piece]:
    return [piece for part in partitions for piece in part.pieces]


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    def ordered(table: pa.Table) -> list[Mapping[str, Any]]:
        return sorted(table.to_pylist(), key=lambda row: str(sorted(row.items())))

    return ordered(found) == ordered(expected)


def orders(ids: Sequence[int], region: str = "north", total: int = 1) -> list[dict[str, Any]]:
    moment = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
    return [{"id": number, "region": region, "total": total, "at": moment} for number in ids]


def test_pending_changes_are_merged_on_a_table_with_a_key(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders(range(100)))
    table.fold()
    table.upsert(orders([5, 200], region="south"))
    table.delete([7, 8])
    table.upsert(orders([8], region="again"))

    found = rows_of(source(lake, "shop.orders"))

    assert same_rows(found, table.to_arrow())
    assert found.num_rows == 100


def test_a_row_of_base_that_wins_by_order_by_stays(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id", order_by="total")
    table.upsert(orders(range(50), total=10))
    table.fold()
    table.upsert(orders([1], region="late", total=3))
    table.upsert(orders([2], region="newer", total=30))

    found = rows_of(source(lake, "shop.orders", readOnce="true"), [pushed.EqualTo(("region",), "late")])

    assert not [row for row in found.to_pylist() if row["region"] == "late"]
    assert same_rows(rows_of(source(lake, "shop.orders")), table.to_arrow())


def test_tombstones_by_any_column_are_merged_on_a_table_with_no_key(lake: Lake) -> None:
    table = lake.create_table("shop.events", COLUMNS)
    table.append(orders(range(20)) + orders(range(20, 25), region="south"))
    table.append([{"id": 100, "region": None, "total": 1}])
    table.fold()
    table.delete([{"region": None}, {"region": "south"}])
    table.append(orders([300], region="south"))

    found = rows_of(source(lake, "shop.events"))

    assert same_rows(found, table.to_arrow())
    assert found.num_rows == 21


def test_large_overlays_are_laid_down_beside_the_table_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_plan, "INLINE_BYTES_MAX", 10)
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders(range(100)))
    table.fold()
    table.upsert(orders(range(50, 150), region="south"))

    found = rows_of(source(lake, "shop.orders"))
    staged = {path: path.stat().st_mtime_ns for path in (lake.path / "shop/orders/index").glob("scan-*/*")}
    again = rows_of(source(lake, "shop.orders"))

    assert same_rows(found, table.to_arrow())
    assert same_rows(again, found)
    assert {path.name for path in staged} == {"rows.parquet", "hidden.arrow"}
    assert {path: path.stat().st_mtime_ns for path in staged} == staged


def test_what_nobody_asked_for_in_a_day_goes_with_the_next_overlay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_plan, "INLINE_BYTES_MAX", 10)
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders(range(10)))
    planned(source(lake, "shop.orders"))
    (old,) = (lake.path / "shop/orders/index").glob("scan-*")
    table.upsert(orders(range(10)))
    planned(source(lake, "shop.orders"))
    assert old.exists()

    monkeypatch.setattr(source_plan, "sweep", partial(staging.sweep, unused_s_max=-1))
    table.upsert(orders(range(10)))
    planned(source(lake, "shop.orders"))

    assert not old.exists()


def test_filters_rule_out_files_and_row_groups_and_are_left_to_spark(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id", partition_by="region", options={"row_group_rows": 1024})
    for region in ("north", "south", "west"):
        ids = range(5000) if region == "north" else range(10_000 + len(region), 10_100 + len(region))
        table.upsert(orders([number * 10 + len(region) for number in ids], region=region))
        table.fold()

    _, everything = planned(source(lake, "shop.orders"))
    _, one_region = planned(source(lake, "shop.orders", readOnce="true"), [pushed.EqualTo(("region",), "south")])
    _, one_key = planned(source(lake, "shop.orders", readOnce="true"), [pushed.EqualTo(("id",), 105)])

    assert len(pieces(everything)) == 3
    assert len(pieces(one_region)) == 1
    (piece,) = pieces(one_key)
    assert piece.groups == (0,)


def test_a_filter_chooses_row_groups_and_the_rows_of_those_are_all_there(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id", options={"row_group_rows": 1024})
    table.upsert(orders(range(5000)))
    table.fold()
    table.upsert(orders([2500], region="south"))

    between = [pushed.GreaterThan(("id",), 2400), pushed.LessThan(("id",), 2600)]
    found = rows_of(source(lake, "shop.orders", readOnce="true"), between)

    assert set(found.column("id").to_pylist()) >= set(range(2401, 2600))
    assert found.num_rows < 2100
    assert found.column("id").to_pylist().count(2500) == 1


def test_filters_rule_out_nothing_where_the_dataframe_may_be_read_again(lake: Lake) -> None:
    """Spark would take the partitions of one filter for the next read too."""
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders(range(100)))
    table.fold()

    found = rows_of(source(lake, "shop.orders"), [pushed.GreaterThan(("id",), 1000)])

    assert found.num_rows == 100


def test_filters_do_not_show_while_spark_has_pushdown_switched_off(lake: Lake) -> None:
    lake.create_table("shop.orders", COLUMNS, key="id")
    opened = source(lake, "shop.orders", readOnce="true")

    reader = opened.reader(opened.schema())

    # What Spark looks at before it refuses a reader with a method of its own.
    assert getattr(reader.pushFilters, "__func__", None) is pushed.DataSourceReader.pushFilters


def test_an_empty_table_has_no_rows(lake: Lake) -> None:
    lake.create_table("shop.orders", COLUMNS, key="id")
    reader, partitions = planned(source(lake, "shop.orders"))

    assert partitions == []
    assert list(reader.read(pushed.InputPartition(None))) == []


def test_large_files_are_cut_and_small_ones_packed() -> None:
    small = [Piece(f"/small-{number}", 100) for number in range(40)]
    large = Piece("/large", 400 * 2**20)

    parts = source_plan._packed([*((piece, piece.file_bytes) for piece in small), (large, large.file_bytes)])

    with_small = [part for part in parts if any(piece.path != "/large" for piece in part)]
    of_large = [piece for part in parts for piece in part if piece.path == "/large"]
    assert len(with_small) < 6
    assert 10 <= len(of_large) <= source_plan.PARTITIONS_WANTED
    assert [group for piece in of_large for group in groups_of(piece, 100)] == list(range(100))
    assert {piece.path for part in parts for piece in part} == {"/large", *(piece.path for piece in small)}


def test_a_share_of_few_row_groups_may_be_empty_and_none_is_read_twice() -> None:
    shares = [Piece("/f", 1, None, (number, 7)) for number in range(7)]

    assert [group for piece in shares for group in groups_of(piece, 3)] == [0, 1, 2]


def test_a_file_that_is_cut_gives_each_row_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id", options={"row_group_rows": 1024})
    table.upsert(orders(range(5000)))
    table.fold()
    monkeypatch.setattr(source_plan, "PARTITION_BYTES_MAX", 400)
    monkeypatch.setattr(source_plan, "PARTITION_BYTES_MIN", 400)
    monkeypatch.setattr(source_plan, "OPEN_BYTES", 10)

    _, partitions = planned(source(lake, "shop.orders"))

    assert len(partitions) > 1
    assert same_rows(rows_of(source(lake, "shop.orders")), table.to_arrow())


def test_as_of_reads_the_rows_and_columns_of_then(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    seq = table.upsert(orders([1])).seq
    table.add_column(pa.field("note", pa.string()))
    table.upsert(orders([2]), missing="null")

    found = rows_of(source(lake, "shop.orders", asOf=str(seq)))

    assert same_rows(found, table.to_arrow(as_of=seq))
    assert found.column_names == COLUMNS.names


def test_columns_are_chosen_by_the_option_or_the_schema(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders(range(10)))
    table.fold()
    table.delete([3])
    opened = source(lake, "shop.orders", columns="total, region")
    whole = source(lake, "shop.orders")

    found = rows_of(opened)
    reader = whole.reader(opened.schema())

    assert found.column_names == ["total", "region"]
    assert found.num_rows == 9
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 9
    with pytest.raises(InvalidRequest, match="no column 'nope'"):
        source(lake, "shop.orders", columns="id, nope").schema()


def test_a_schema_with_another_type_is_refused(lake: Lake) -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    lake.create_table("shop.orders", COLUMNS, key="id")

    with pytest.raises(InvalidRequest, match="'id' is bigint in the table, not int"):
        source(lake, "shop.orders").reader(StructType([StructField("id", IntegerType())]))


def test_values_of_every_type_come_as_spark_has_them(lake: Lake) -> None:
    columns = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("wide", pa.decimal128(38, 10)),
            ("ntz", pa.timestamp("us")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("many", pa.list_(pa.struct([("x", pa.float32()), ("y", pa.list_(pa.string()))]))),
            ("by", pa.map_(pa.string(), pa.decimal128(9, 2))),
            ("small", pa.int8()),
        ]
    )
    row = {
        "id": 1,
        "wide": Decimal("1234567890123456789012345678.0123456789"),
        "ntz": dt.datetime(1, 1, 1, 0, 0, 0, 1),
        "day": dt.date(1969, 12, 31),
        "raw": b"\0\xff",
        "many": [{"x": 0.5, "y": ["é", None]}, None],
        "by": [("k", Decimal("1.50")), ("n", None)],
        "small": -128,
    }
    table = lake.create_table("shop.kinds", columns, key="id")
    table.upsert([row, {"id": 2}], missing="null")
    table.fold()
    table.upsert([{**row, "id": 3}])

    found = rows_of(source(lake, "shop.kinds"))

    assert same_rows(found, table.to_arrow())


def test_changes_come_with_kind_and_seq(lake: Lake) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    first = table.upsert(orders([1, 2])).seq
    table.upsert(orders([2, 3], region="south"))
    table.fold()
    last = table.delete([1]).seq

    later = rows_of(source(lake, "shop.orders", since=str(first)))
    between = rows_of(source(lake, "shop.orders", since=table.position(first), until=str(last - 1)))
    everything = rows_of(source(lake, "shop.orders", changes="true"))

    assert (
        later.select(["id", "_seq", "_kind"]).to_pylist()
        == table.feed(first).select(["id", "_seq", "_kind"]).to_pylist()
    )
    assert [row["_kind"] for row in between.to_pylist()] == ["update", "insert"]
    assert everything.num_rows == 5


def test_many_changes_are_laid_down_in_pages(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lithify.spark.datasource import table as source_table

    monkeypatch.setattr(source_table, "FEED_PAGE_ROWS", 30)
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    for number in range(6):
        table.upsert(orders(range(number * 20, number * 20 + 20)))

    reader, partitions = planned(source(lake, "shop.orders", changes="true"))
    seqs = [{value for batch in reader.read(part) for value in batch.column("_seq").to_pylist()} for part in partitions]

    assert [sorted(found) for found in seqs] == [[1, 2], [3, 4], [5, 6]]


def test_more_changes_than_one_process_merges_are_refused(lake: Lake, tmp_path: Path) -> None:
    with Lake(tmp_path / "small", settings=Settings(resolve_rows_max=5)) as small:
        table = small.create_table("shop.orders", COLUMNS, key="id")
        table.upsert(orders(range(10)))
        plan = table._internals.opened.planned().plan()

        with pytest.raises(LimitExceeded, match=r"fold it, or read it with table.to_spark\(\)"):
            source_plan.partitions_of(plan, tmp_path)


def test_a_flipped_bit_is_an_error_that_names_the_file(lake: Lake) -> None:
    """In bytes that no compression could shrink, only the checksum of the page tells."""
    table = lake.create_table("shop.blobs", pa.schema([("id", pa.int64()), ("raw", pa.binary())]), key="id")
    table.upsert([{"id": number, "raw": random.Random(number).randbytes(1000)} for number in range(100)])
    table.fold()
    reader, partitions = planned(source(lake, "shop.blobs"))
    (piece,) = pieces(partitions)
    data = bytearray(Path(piece.path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(piece.path).write_bytes(data)

    with pytest.raises(Corruption, match=r"/fold-[0-9a-f]+/.*\.parquet"):
        [list(reader.read(part)) for part in partitions]


def test_a_file_that_went_after_the_plan_was_made_is_no_damage(lake: Lake) -> None:
    """Spark keeps the plan with the DataFrame, vacuum does not know of it."""
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders([1]))
    table.fold()
    reader, partitions = planned(source(lake, "shop.orders"))
    (piece,) = pieces(partitions)
    Path(piece.path).unlink()

    with pytest.raises(NotFound, match="Load the table again"):
        [list(reader.read(part)) for part in partitions]


def test_a_table_or_lake_that_is_not_there_is_said_and_nothing_is_created(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"shop.nothing does not exist"):
        source(lake, "shop.nothing").schema()
    with pytest.raises(NotFound):
        LithifyDataSource(CaseInsensitiveDict({"path": str(tmp_path / "none/shop/orders")})).schema()
    assert not (tmp_path / "none").exists()


def test_executors_need_neither_delta_nor_datafusion(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert(orders(range(10)))
    table.fold()
    table.delete([3])
    opened = source(lake, "shop.orders")
    reader, partitions = planned(opened)
    (tmp_path / "shipped").write_bytes(pickle.dumps((opened, reader, partitions)))
    program = (
        "import sys, pickle\n"
        "for name in ('deltalake', 'datafusion', 'pydantic', 'pydantic_settings', 'typer', 'httpx'):\n"
        "    sys.modules[name] = None\n"
        f"_, reader, parts = pickle.load(open({str(tmp_path / 'shipped')!r}, 'rb'))\n"
        "print(sum(batch.num_rows for part in parts for batch in reader.read(part)))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    assert done.stdout.strip() == "9", done.stderr


def test_partition_columns_that_stand_in_the_log_alone_are_filled_in(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path, write_page_checksum=True)
    columns = pa.schema([("id", pa.int64()), ("region", pa.string())])
    from lithify.spark.datasource.read import batches
    from lithify.spark.schemas import spark_schema

    piece = Piece(str(path), path.stat().st_size, constants=Source(str(path), 2, 1, (("region", "n"),)).constants)

    (batch,) = batches(ScanPartition((piece,)), columns, spark_schema(columns))
    (only,) = batches(ScanPartition((piece,)), columns, spark_schema(pa.schema([columns.field("region")])))

    assert batch.to_pylist() == [{"id": 1, "region": "n"}, {"id": 2, "region": "n"}]
    assert only.to_pylist() == [{"region": "n"}, {"region": "n"}]
