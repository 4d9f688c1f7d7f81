"""Parquet files as a DataFrame: Spark's own scan, without the rows it would lose.

A session may be set to pass over files that are missing or damaged. Here they are an error, whatever it is set to.
Spark takes a path for a pattern, too: what would be one in a folder's name is escaped.

Spark asks the statistics and dictionaries of Parquet files which row groups can satisfy a condition. Statistics pass
over NaN, which Spark takes for the greatest of all numbers, and dictionaries tell -0.0 from 0.0, which Spark takes for
one number: `x > 5` loses a NaN beside small numbers, `x = 0` a -0.0. So floating columns come through an expression
that changes nothing and that no condition passes on its way down. Conditions on other columns still do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField, StructType

from lithify.files.read_proof import Marks

_PATTERN = re.compile(r"[{}\[\]*?\\]")


class NamedFile(Protocol):
    """A file as a log names it."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...


def read_files(spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
    """Rows of these columns. A column that a file lacks is null; a page that fails its checksum is an error."""
    frame = whole_files(spark).schema(schema).parquet(*map(literal, paths))
    return frame.select(*[_column(field) for field in schema.fields])


def scan_files(spark: SparkSession, files: Sequence[NamedFile], schema: StructType) -> DataFrame:
    """As `read_files`. Spark lists the files here, passing over empty ones, and remembers them with their sizes: from
    then on one that is gone is an error.
    """
    marks = Marks()
    for file in files:
        marks.add(file.path, file.size_bytes)
    try:
        return read_files(spark, [file.path for file in files], schema)
    finally:
        marks.check()  # says which one is gone, in place of what Spark says


def literal(path: str) -> str:
    return _PATTERN.sub(r"\\\g<0>", path)


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
