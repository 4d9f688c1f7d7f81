"""Tables of Spark's own catalog that are tables of a lake: created once, then read and written by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from lithify import Lake, LithifyDataSource, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(lake: Lake, spark: SparkSession) -> Iterator[Table]:
    spark.dataSource.register(LithifyDataSource)
    table = lake.create_table("shop.orders", pa.schema({"id": pa.int64(), "region": pa.string()}), key="id")
    table.upsert([{"id": 1, "region": "north"}])
    yield table
    for name in ("by_location", "by_options", "by_columns"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_location_is_a_table_that_is_selected_from_and_inserted_into(
    lake: Lake, orders: Table, spark: SparkSession
) -> None:
    place = f"{lake.path}/shop/orders"
    spark.sql(f"CREATE TABLE by_location USING lithify LOCATION '{place}' COMMENT 'x' TBLPROPERTIES ('team' = 'a')")

    spark.sql("INSERT INTO by_location VALUES (2, 'south')")

    found = spark.sql("SELECT region FROM by_location WHERE id = 2").collect()
    assert [row.region for row in found] == ["south"]
    assert orders.to_arrow().to_pylist() == [{"id": 1, "region": "north"}, {"id": 2, "region": "south"}]
    with pytest.raises(Exception, match="NOT MATCHED BY SOURCE THEN DELETE"):
        spark.sql("INSERT OVERWRITE by_location VALUES (3, 'west')")
    assert orders.count() == 2


def test_lake_and_table_are_options_of_a_table(lake: Lake, orders: Table, spark: SparkSession) -> None:
    spark.sql(f"CREATE TABLE by_options USING lithify OPTIONS (lake '{lake.path}', table 'shop.orders')")

    rows = spark.createDataFrame([(3, "west")], "id long, region string")
    rows.createOrReplaceTempView("given_rows")
    for insert in (
        lambda: rows.write.insertInto("by_options"),
        lambda: spark.sql("INSERT INTO by_options SELECT * FROM given_rows"),
    ):
        with pytest.raises(AnalysisException, match=r"names and types of the table: use lake\.spark_sql"):
            insert()
    spark.sql("INSERT INTO by_options SELECT id AS a, region AS b FROM given_rows")

    assert spark.table("by_options").count() == 2
    spark.sql("DROP TABLE by_options")
    assert orders.count() == 2, "the lake's table is not Spark's to drop"


def test_a_table_with_columns_of_its_own_says_how_it_is_created(lake: Lake, orders: Table, spark: SparkSession) -> None:
    """Spark creates it without asking, and then does not tell which table it is."""
    spark.sql(f"CREATE TABLE by_columns (id long, region string) USING lithify LOCATION '{lake.path}/shop/orders'")

    for use in ("SELECT * FROM by_columns", "INSERT INTO by_columns VALUES (1, 'x')"):
        with pytest.raises(Exception, match="created without columns"):
            spark.sql(use).collect()
    assert orders.count() == 1
