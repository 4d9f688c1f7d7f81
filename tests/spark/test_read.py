"""Fresh reads in Spark equal those of the serving engine."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lithify import Corruption, Lake, Settings, Table

pytest.importorskip("pyspark")

from lithify.spark import overlay, read
from lithify.spark.read import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ALL_TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(20, 4)),
        ("l", pa.list_(pa.string())),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


def full_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "i8": number % 100,
        "i16": number,
        "i32": -number,
        "f32": 0.5,
        "f64": number / 3,
        "s": f"text {number}",
        "b": bytes([number % 256]),
        "t": number % 2 == 0,
        "d": dt.date(2026, 1, 1 + number % 28),
        "ts": dt.datetime(2026, 1, 1, 12, 30, number % 60, 123456, tzinfo=dt.UTC),
        "ntz": dt.datetime(2026, 1, 1, 12, 30, number % 60, 654321),
        "dec": Decimal(number) / 4,
        "l": ["a", None, str(number)],
        "st": {"x": number, "y": None},
        "m": [("k", number)],
    }


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def same_on_both(table: Table, spark: SparkSession, **options: Any) -> list[dict[str, Any]]:
    served = by_id(table.to_arrow(**options).to_pylist())
    assert by_id(rows_of(table.to_spark(spark, **options))) == served
    return served


def test_every_type_survives_write_change_and_fold(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", ALL_TYPES, key="id")
    table.upsert([full_row(n) for n in range(20)])
    table.fold()
    table.upsert([full_row(n) | {"s": None, "dec": None} for n in range(5)] + [{"id": 99}], missing="null")
    table.delete([7, 8])

    before = same_on_both(table, spark)
    table.fold()

    assert same_on_both(table, spark) == before
    assert len(before) == 19


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int32(), [-5, 0, 7, 2**31 - 1, -(2**31)]),
        (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
        (pa.string(), ["", "a", "é", "𝄞", "z" * 300]),
        (pa.binary(), [b"", b"\x00", b"\xff", b"a"]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 1, 1), dt.date(9999, 12, 31)]),
        (
            pa.timestamp("us", "UTC"),
            [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)],
        ),
        (pa.timestamp("us"), [dt.datetime(1900, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)]),
        (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal(0), Decimal("12345678901234567890.123456789")]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_told_apart(lake: Lake, spark: SparkSession, kind: pa.DataType, keys: list[Any]) -> None:
    table = lake.create_table("s.t", pa.schema([("id", kind), ("v", pa.int64())]), key="id")
    table.upsert([{"id": key, "v": 0} for key in keys])
    table.fold()
    table.upsert([{"id": keys[0], "v": 1}])
    table.delete([{"id": keys[1]}])

    rows = same_on_both(table, spark)
    assert {row["id"]: row["v"] for row in rows} == {keys[0]: 1, **dict.fromkeys(keys[2:], 0)}
    assert table.get({"id": keys[0]}) == {"id": keys[0], "v": 1}
    assert table.get({"id": keys[1]}) is None

    report = table.fold()
    assert (report.updated, report.deleted, report.inserted) == (1, 1, 0)
    assert same_on_both(table, spark) == rows


def test_where_and_as_of(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    table.upsert([{"id": n, "v": "old"} for n in range(10)])
    table.fold()
    table.upsert([{"id": 3, "v": "new"}])

    assert [row["id"] for row in same_on_both(table, spark, where="v = 'new'")] == [3]
    assert 3 not in [row["id"] for row in same_on_both(table, spark, where="v = 'old'")]
    assert len(same_on_both(table, spark, where="v = 'old'", as_of=1)) == 10


def test_a_filter_never_brings_back_an_older_version(lake: Lake, spark: SparkSession) -> None:
    """order_by: base may win, so a filter must not hide the base row that beats a change."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
    table = lake.create_table("s.t", schema, key="id", order_by="at")
    table.upsert([{"id": 1, "at": 10, "v": "newest"}, {"id": 2, "at": 10, "v": "base"}])
    table.fold()
    table.upsert([{"id": 1, "at": 5, "v": "late"}, {"id": 2, "at": 11, "v": "newer"}])

    assert same_on_both(table, spark, where="v = 'late'") == []
    assert same_on_both(table, spark, where="v = 'base'") == []
    assert [row["v"] for row in same_on_both(table, spark)] == ["newest", "newer"]


def test_changes_too_many_for_memory_are_merged_by_the_engine(lake: Lake, spark: SparkSession) -> None:
    few = Lake(lake.path, spark=spark, settings=Settings(resolve_rows_max=3))
    for name, options in (
        ("s.keyed", {"key": "id"}),
        ("s.ordered", {"key": "id", "order_by": "v"}),
        ("s.keyless", {}),
    ):
        table = lake.create_table(name, pa.schema([("id", pa.int64()), ("v", pa.int64())]), **options)
        table.append([{"id": n, "v": n} for n in range(6)])
        table.fold()
        table.append([{"id": n, "v": 3} for n in range(4)])
        table.delete([{"id": 5}, {"id": 1}])
        table.append([{"id": 5, "v": 50}])
        expected = by_id(table.to_arrow().to_pylist())

        other = few.table(name)
        assert other._internals.opened.planned().plan().overlay is None
        assert by_id(other.to_arrow().to_pylist()) == expected
        assert by_id(rows_of(other.to_spark(spark))) == expected


def test_a_missing_file_is_named(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64())]), key="id")
    table.upsert([{"id": 1}])
    table.fold()
    gone = table.base_path / table.snapshot().base[0].path
    gone.unlink()

    with pytest.raises(Corruption, match=gone.name):
        table.to_spark(spark).count()


def test_reading_a_snapshot_again_and_again_gives_the_same_rows(lake: Lake, spark: SparkSession) -> None:
    """The second read knows where the changed rows are and looks at no key: several files, a later change, a fold."""
    table = lake.create_table("s.t", pa.schema([("id", pa.string()), ("v", pa.int64())]), key="id")
    for start in (0, 100, 200):
        table.upsert([{"id": f"k{n:05d}", "v": n} for n in range(start, start + 100)])
        table.fold()
    table.upsert([{"id": f"k{n:05d}", "v": -n} for n in range(0, 300, 7)])
    table.delete([f"k{n:05d}" for n in range(1, 300, 7)])

    first = same_on_both(table, spark)
    assert [same_on_both(table, spark) for _ in range(3)] == [first] * 3

    table.upsert([{"id": "k00002", "v": 1}])
    assert same_on_both(table, spark) == same_on_both(table, spark) != first


def test_a_lost_overlay_is_laid_down_again(lake: Lake, spark: SparkSession) -> None:
    """Invariant 10: derived data is disposable."""
    table = lake.create_table("s.t", pa.schema([("id", pa.string())]), key="id")
    table.upsert([{"id": "a"}, {"id": "b"}])
    table.fold()
    table.delete(["a"])
    assert table.to_spark(spark).count() == 1
    shutil.rmtree(lake.path / "s" / "t" / "index")

    assert table.to_spark(spark).count() == 1


@pytest.mark.parametrize("handed_words_max", [0, 1 << 18])
@pytest.mark.parametrize("first", [-7_000, 0, 5_000_000_000])
def test_hidden_rows_are_told_alike_by_a_file_of_bits_and_by_bits_that_come_with_the_query(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, handed_words_max: int, first: int
) -> None:
    monkeypatch.setattr(overlay, "HANDED_MAX_WORDS", handed_words_max)
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id")
    table.upsert([{"id": first + n, "v": n} for n in range(-50, 2_000)])
    table.fold()
    table.upsert([{"id": first + n, "v": -n} for n in range(0, 2_000, 13)])
    table.delete([first + n for n in range(-10, 2_000, 77)])

    assert len(same_on_both(table, spark)) == 2_050 - 27
    staged = [file.name for file in (lake.path / "s" / "t" / "index").glob("overlay-*/*")]
    assert staged.count("filter.parquet") == (handed_words_max == 0)


def test_a_read_after_a_change_lists_no_file_of_base_again(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[int] = []

    def noted(session: SparkSession, files: Any, columns: pa.Schema) -> DataFrame:
        scanned.append(len(files))
        return scan(session, files, columns)

    monkeypatch.setattr(read, "scan", noted)
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("x", pa.float64())]), key="id")
    table.upsert([{"id": n, "x": n / 3} for n in range(100)])
    table.fold()
    for number in range(3):
        table.upsert([{"id": number, "x": float("nan")}])
        assert table.to_spark(spark).where("isnan(x)").count() == number + 1
    assert scanned == [1]

    table.fold()
    assert table.to_spark(spark).where("isnan(x)").count() == 3
    assert scanned == [1, 1]


def test_a_file_that_another_was_put_in_place_of_is_scanned_anew(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id")
    table.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    table.fold()
    table.upsert([{"id": 1, "v": 3}])
    assert table.to_spark(spark).count() == 2
    file = table.base_path / table.snapshot().base[0].path
    file.write_bytes(file.read_bytes() + b"\0")

    table.upsert([{"id": 1, "v": 4}])
    with pytest.raises(Corruption, match=file.name):
        table.to_spark(spark)


def test_frames_of_two_snapshots_are_told_apart_in_a_join(lake: Lake, spark: SparkSession) -> None:
    """Also where no commit between them has changed a file of base."""
    table = lake.create_table("s.t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id")
    table.upsert([{"id": n, "v": n} for n in range(10)])
    table.fold()
    before = table.snapshot()
    table.upsert([{"id": 3, "v": 30}, {"id": 5, "v": 50}])
    old, new = table.to_spark(spark, as_of=before), table.to_spark(spark)

    changed = new.join(old, (new["id"] == old["id"]) & (new["v"] != old["v"])).select(new["id"], old["v"], new["v"])

    assert sorted(map(tuple, changed.collect())) == [(3, 3, 30), (5, 5, 50)]
