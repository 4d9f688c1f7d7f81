"""Parquet files as a DataFrame: Spark's own scan, without the rows it would lose.

A session may be set to pass over files that are missing or damaged. Here they are an error, whatever it is set to.

Spark asks the statistics and dictionaries of Parquet files which row groups can satisfy a condition. Statistics pass
over NaN, which Spark takes for the greatest of all numbers, and dictionaries tell -0.0 from 0.0, which Spark takes for
one number: `x > 5` loses a NaN beside small numbers, `x = 0` a -0.0. So floating columns come through an expression
that changes nothing and that no condition passes on its way down. Conditions on other columns still do.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField, StructType


def read_files(spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
    """Rows of these columns. A column that a file lacks is null; a page that fails its checksum is an error."""
    frame = whole_files(spark).schema(schema).parquet(*paths)
    return frame.select(*[_column(field) for field in schema.fields])


def whole_files(spark: SparkSession) -> DataFrameReader:
    """Reads all of every file, or fails."""
    reader = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    return reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """The optimiser sees that it is empty: no task runs for it, and no Python worker starts."""
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(1).select(*nulls).where(F.lit(False))


def _column(field: StructField) -> Column:
    column = F.col("`" + field.name.replace("`", "``") + "`")
    if isinstance(field.dataType, DoubleType | FloatType):
        return F.nanvl(column, column).alias(field.name)
    return column
