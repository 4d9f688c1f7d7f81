"""The feed as a DataFrame: the same rows as in Arrow, by native scans, at any size."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lithify import Lake, NotFound, Settings, Table
from support.bags import bag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("o", pa.int64()),
        ("local", pa.timestamp("us")),
        ("utc", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int32())),
        ("f", pa.float64()),
    ]
)
NOON = dt.datetime(2026, 11, 15, 12)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    """Spark decides, however few rows there are."""
    with Lake(tmp_path / "lake", spark=spark, settings=Settings(feed_rows_max=0)) as opened:
        yield opened


def row(key: int | None, o: int | None, n: int = 0) -> dict[str, Any]:
    return {"id": key, "o": o, "local": NOON, "utc": NOON.replace(tzinfo=dt.UTC), "list": [n, None], "f": n / 2}


def changed(lake: Lake, name: str, **options: Any) -> Table:
    """Ten commits over few keys, with a fold and a new column in between."""
    table = lake.create_table(name, SCHEMA, **options, options={"missing_columns": "null"})
    table.append([row(key, 5) for key in range(5)])
    table.append([row(1, 4, 1), row(2, 6, 1), row(7, None, 1)])
    table.delete([{"id": 1}, {"id": 99}])
    table.fold()
    table.add_column(pa.field("more", pa.int32()))
    table.append([{**row(1, 1, 2), "more": 2}, row(2, 5, 2), row(8, 1, 2)])
    if options:
        table.replace([row(2, 0, 3)])
        table.append([row(2, None, 4), row(3, 5, 4)])
    table.delete([{"id": 2}, {"id": 4}])
    if not options:
        table.fold()
    table.delete([{"id": 8}] if options else [{"o": 1}, {"o": None}])
    table.append([row(8, 9, 5)])
    return table


def check(table: Table, since: int, until: int, *, before: bool = False) -> None:
    frame = table.feed_to_spark(since, until, before=before)
    found, expected = frame.toArrow().to_pylist(), table.feed(since, until, before=before).to_pylist()
    for r in (*found, *expected):
        r["list"] = str(r["list"])
    assert bag(found) == bag(expected), f"{table.name} from {since} to {until}"
    if before:
        assert [(r["_seq"], r["id"], r["_kind"]) for r in found] == [(r["_seq"], r["id"], r["_kind"]) for r in expected]
    assert [r["_seq"] for r in found] == sorted(r["_seq"] for r in found)
    assert frame.columns == table.feed(since, until).column_names


def test_the_same_rows_as_in_arrow(lake: Lake) -> None:
    keyed = changed(lake, "a.keyed", key="id")
    ordered = changed(lake, "a.ordered", key="id", order_by="o")
    keyless = changed(lake, "a.keyless")
    check(keyed, 3, keyed.snapshot().seq)
    check(ordered, 0, ordered.snapshot().seq)
    check(ordered, 2, 5)  # few commits
    check(keyless, 1, keyless.snapshot().seq)


def test_updates_come_with_the_row_before_them(lake: Lake) -> None:
    keyed = changed(lake, "a.keyed", key="id")
    ordered = changed(lake, "a.ordered", key="id", order_by="o")
    check(keyed, 3, keyed.snapshot().seq, before=True)
    check(ordered, 1, ordered.snapshot().seq, before=True)
    check(ordered, 3, 4, before=True)  # one commit


def test_a_first_load_is_scanned_where_it_lies(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    table.append(spark.range(1_000).selectExpr("id", "cast(id as string) as v"))
    frame = table.feed_to_spark(table.position(as_of=0))
    assert frame.where("_kind = 'insert' AND _seq = 1 AND v = cast(id as string)").count() == 1_000
    assert sorted(Path(path).name for path in frame.inputFiles()) == sorted(
        Path(file.path).name for file in table.snapshot().changes
    )


def test_few_rows_are_handed_over(tmp_path: Path, spark: SparkSession) -> None:
    with Lake(tmp_path / "lake", spark=spark) as lake:
        table = changed(lake, "a.keyed", key="id")
        check(table, 3, table.snapshot().seq)
        assert table.feed_to_spark(table.position()).count() == 0
        assert table.feed_to_spark(table.position()).columns == table.feed(0).column_names


def test_files_that_are_gone_are_found_before_any_work(lake: Lake) -> None:
    table = changed(lake, "a.keyed", key="id")
    next((lake.path / "a" / "keyed" / "changes").glob("write-*.parquet")).unlink()
    with pytest.raises(NotFound, match="Start again"):
        table.feed_to_spark(0)
