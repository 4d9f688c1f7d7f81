"""The data source in a real Spark session: what only Spark itself can show. Everything else is in test_source_*.py."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lithify import Lake, LithifyDataSource, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine takes its time: Spark starts a Python process for each plan and each commit.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("price", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        ("tags", pa.map_(pa.string(), pa.float64())),
        ("share", pa.float32()),
        ("paid", pa.bool_()),
    ]
)


def order(number: int, region: str = "north") -> dict[str, Any]:
    return {
        "id": number,
        "region": region,
        "price": Decimal("12345.6789"),
        "at": dt.datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=dt.UTC),
        "local": dt.datetime(1900, 1, 1, 0, 0, 0, 1),
        "day": dt.date(1969, 12, 31),
        "raw": b"\0\xff",
        "items": [{"sku": "é", "count": None}, None],
        "tags": [("a", 0.5), ("b", None)],
        "share": 0.1,
        "paid": True,
    }


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(LithifyDataSource)


@pytest.fixture
def plain_lake(tmp_path: Path) -> Iterator[Lake]:
    """Without a session: the data source brings its own."""
    with Lake(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def orders(plain_lake: Lake) -> Table:
    table = plain_lake.create_table("shop.orders", COLUMNS, key="id")
    table.upsert([order(number) for number in range(50)])
    table.fold()
    table.upsert([order(7, "south"), {"id": 100}], missing="null")
    table.delete([8])
    return table


def path_of(table: Table) -> str:
    return str(table.base_path.parent)


def test_a_table_is_read_as_to_spark_reads_it_and_through_sql(spark: SparkSession, orders: Table) -> None:
    frame = spark.read.format("lithify").load(path_of(orders))
    native = orders.to_spark(spark)
    # Nobody has registered anything in a session of its own, as in `spark-sql`.
    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    other.sql(f"CREATE TEMPORARY VIEW fresh USING lithify OPTIONS (path '{path_of(orders)}')")

    found = frame.orderBy("id").toArrow()
    by_sql = other.sql("SELECT id FROM fresh WHERE region = 'south' OR id > 40 AND id <> 45 ORDER BY id").collect()
    none, everything = (other.sql(f"SELECT count(*) FROM fresh WHERE {what}").first() for what in ("id > 500", "true"))

    assert frame.schema == native.schema
    assert found.equals(native.orderBy("id").toArrow())
    assert [row.id for row in by_sql] == [7, 41, 42, 43, 44, 46, 47, 48, 49, 100]
    # Spark takes what it planned for the filter before for a read without one.
    assert (none[0], everything[0]) == (0, 50)


def test_a_frame_is_upserted_and_one_that_fails_leaves_nothing(
    spark: SparkSession, plain_lake: Lake, orders: Table
) -> None:
    frame = orders.to_spark(spark).where("id in (1, 7)").withColumn("region", F.lit("written"))
    jobs = plain_lake.path / "_lithify/jobs"

    frame.write.format("lithify").mode("append").option("mode", "upsert").save(path_of(orders))
    broken = spark.range(200, 210, 1, 2).withColumn(
        "region", F.when(F.col("id") > 207, F.raise_error(F.lit("on purpose"))).otherwise("x")
    )
    with pytest.raises(PySparkException, match="on purpose"):
        broken.write.format("lithify").mode("append").option("missing", "null").save(path_of(orders))
    with pytest.raises(PySparkException, match="mode\\('overwrite'\\) and INSERT OVERWRITE are not supported"):
        frame.write.format("lithify").mode("overwrite").save(path_of(orders))

    assert orders.get(7) == {**order(7, "written"), "share": pytest.approx(0.1)}
    assert orders.get(200) is None
    assert orders.history(1)[0].operation == "upsert"
    assert list(jobs.iterdir()) == []
    assert list((Path(path_of(orders)) / "changes").glob("spool-*")) == []


def test_what_is_wrong_with_options_is_said_by_spark(spark: SparkSession, orders: Table) -> None:
    with pytest.raises(PySparkException, match="did you mean 'asOf'") as caught:
        spark.read.format("lithify").option("asoff", "1").load(path_of(orders))
    assert "datasource/options.py" not in str(caught.value)  # without the frames that lie below


def test_a_table_follows_another_one_over_folds_and_restarts(
    spark: SparkSession, plain_lake: Lake, orders: Table, tmp_path: Path
) -> None:
    """Both ends of the stream are the data source. Spark is made to forget that it ended its last micro-batch."""
    copy = plain_lake.create_table("shop.copy", COLUMNS, key="id")
    checkpoint = tmp_path / "checkpoint"

    def follow() -> int:
        changes = spark.readStream.format("lithify").option("rowsPerBatch", "50").load(path_of(orders))
        query = (
            changes.withColumnRenamed("_kind", "what")
            .drop("_seq")
            .writeStream.format("lithify")
            .option("checkpointLocation", str(checkpoint))
            .option("opColumn", "what")
            .trigger(availableNow=True)
            .start(path_of(copy))
        )
        assert query.awaitTermination(300)
        return copy.stats().seq

    def same() -> bool:
        return bool(copy.to_arrow().sort_by("id").equals(orders.to_arrow().sort_by("id")))

    assert follow() == 2
    assert same()
    for forgotten in ((checkpoint / "commits/1"), (checkpoint / "commits/.1.crc")):
        forgotten.unlink(missing_ok=True)
    assert follow() == 2
    orders.delete_where("id < 10")
    orders.upsert([order(3, "again")])
    orders.fold()
    assert follow() == 3
    assert same()
