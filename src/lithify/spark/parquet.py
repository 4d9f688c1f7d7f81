"""Parquet files as a DataFrame: Spark's own scan, without the rows it would lose.

A session may be set to pass over files that are missing or damaged. Here they are an error, whatever it is set to.

Spark asks the statistics and dictionaries of Parquet files which row groups can satisfy a condition. Statistics pass
over NaN, which Spark takes for the greatest of all numbers, and dictionaries tell -0.0 from 0.0, which Spark takes for
one number: `x > 5` loses a NaN beside small numbers, `x = 0` a -0.0. So floating columns come through an expression
that changes nothing and that no condition passes on its way down. Conditions on other columns still do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField, StructType

from lithify.files.addresses import is_remote, path_of
from lithify.files.open_storage import storage_of
from lithify.files.read_proof import Marks
from lithify.spark import s3a
from lithify.spark.paths import literal, s3a_path
from lithify.spark.remote_files import NamedFile, local_names, rows_by_tasks
from lithify.spark.schemas import column_named

if TYPE_CHECKING:
    from lithify.files.bucket.object_marks import ObjectMarks


@dataclass(frozen=True)
class _Staged:
    path: str
    size_bytes: int


def read_files(spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
    """Rows of these columns. A column that a file lacks is null; a page that fails its checksum is an error."""
    frame = whole_files(spark).schema(schema).parquet(*map(literal, paths))
    floating = [field for field in schema.fields if isinstance(field.dataType, DoubleType | FloatType)]
    return frame.withColumns({field.name: _as_it_is(field) for field in floating}) if floating else frame


def scan_files(
    spark: SparkSession, files: Sequence[NamedFile], schema: StructType, *, name_as: str | None = None
) -> DataFrame:
    """As `read_files`. Spark lists the files here, passing over empty ones, and remembers them with their sizes: from
    then on one that is gone is an error. `name_as`: a column with the name of each row's file besides.
    """
    if (named := _noted(spark, files)) is None:
        return rows_by_tasks(spark, files, schema, name_as)
    paths, marks = named
    try:
        frame = read_files(spark, paths, schema)
        if name_as is None:
            return frame
        return frame.select("*", frame.metadataColumn("_metadata")["file_name"].alias(name_as))
    finally:
        marks.check()  # says which one is gone, in place of what Spark says


def _noted(spark: SparkSession, files: Sequence[NamedFile]) -> tuple[list[str], Marks | ObjectMarks] | None:
    """Names that Spark's own scan can read, and how the files are now. None: it can read none."""
    if s3a.reads(spark, files):
        from lithify.files.bucket.object_marks import ObjectMarks

        wanted = [(file.path, file.size_bytes) for file in files]
        return [s3a_path(path) for path, _ in wanted], ObjectMarks(wanted)
    if (paths := local_names(spark, files)) is None:
        return None
    marks = Marks()
    for path, file in zip(paths, files, strict=True):
        marks.add(path, file.size_bytes)
    return paths, marks


def staged_rows(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    """Of one file that this process has laid down for the tasks of a session."""
    if not is_remote(path):
        return read_files(spark, [path], schema)
    return scan_files(spark, [_Staged(path, storage_of(path).size(path_of(path)))], schema)


def whole_files(spark: SparkSession) -> DataFrameReader:
    """Reads all of every file, or fails."""
    reader = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    return reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """The optimiser sees that it is empty: no task runs for it, and no Python worker starts."""
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(1).select(*nulls).where(F.lit(False))


def _as_it_is(field: StructField) -> Column:
    column = column_named(field.name)
    return F.nanvl(column, column)
