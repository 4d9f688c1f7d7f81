"""A table's feed as a Spark DataFrame: native scans of the original change files, and one SQL text with windows.

Which commit a row is of stands in the log, not in its file, so each file is told by its name, which holds an id and is
used once. A few commits are scanned one by one with constants; many are one scan with a small broadcast join on the
name. A single commit with nothing before it, the first load of a table, needs neither a window nor a shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import PurePath

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lithify.core.names import OP, SEQ
from lithify.core.ops import Op
from lithify.core.schema import TableSchema
from lithify.merge.change_feed import (
    BEFORE,
    BY,
    INSERT,
    KIND,
    ChangeFile,
    event_columns,
    feed_schema,
    feed_sql,
    row_keys_of,
)
from lithify.spark.parquet import no_rows, scan_files
from lithify.spark.schemas import spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed

# Beyond so many commits and operations, their union would take longer to plan than a join to run.
UNION_MAX = 4
_FILE = "_lithify_file"
_LABELS = [StructField(SEQ, LongType()), StructField(OP, StringType()), StructField(BY, IntegerType())]


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Few rows that are here already."""
    schema = spark_schema(rows.schema)
    try:
        # In one piece: Spark takes an empty chunk for the end.
        return spark.createDataFrame(rows.combine_chunks(), schema) if rows.num_rows else no_rows(spark, schema)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def feed_frame(
    spark: SparkSession,
    schema: TableSchema,
    files: Sequence[ChangeFile],
    since: int,
    before: DataFrame | None,
    *,
    ordered: bool,
) -> DataFrame:
    """`before`: all rows as of `since`, None if there are none or none is asked about."""
    try:
        shown = spark_schema(feed_schema(schema)).names
        one_commit = len({file.seq for file in files}) == 1
        if before is None and one_commit and schema.keyed:
            written = _scan(spark, schema, [file for file in files if file.op is not Op.DELETE])
            return written.withColumn(KIND, F.lit(INSERT)).select(*map(_column, shown))
        row_keys = row_keys_of(schema, files)
        changes = events = _scan(spark, schema, files, row_keys)
        if before is not None and row_keys:
            labels = [F.lit(since).cast("long").alias(SEQ), F.lit(BEFORE).alias(OP), F.lit(None).cast("int").alias(BY)]
            for met in _met(schema, before, changes, row_keys, deletes=any(file.op is Op.DELETE for file in files)):
                events = events.unionAll(_with_columns(met, schema).select("*", *labels))
        found = spark.sql(feed_sql(schema, "{events}", schema.names, row_keys, quote="`"), events=events)
        return found.orderBy(SEQ) if ordered and not one_commit else found
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def _scan(
    spark: SparkSession, schema: TableSchema, files: Sequence[ChangeFile], row_keys: Sequence[Sequence[str]] = ()
) -> DataFrame:
    """Their rows with the seq and operation of their commit."""
    columns = spark_schema(schema.columns)
    if not files:
        return no_rows(spark, StructType([*columns.fields, *_LABELS]))
    groups: dict[tuple[int, str, int | None], list[ChangeFile]] = {}
    for file in files:
        by = row_keys.index(tuple(sorted(file.columns))) if file.op is Op.DELETE and not schema.keyed else None
        groups.setdefault((file.seq, file.op.value, by), []).append(file)
    if len(groups) <= UNION_MAX:
        parts = [
            scan_files(spark, group, columns)
            .withColumn(SEQ, F.lit(seq).cast("long"))
            .withColumn(OP, F.lit(op))
            .withColumn(BY, F.lit(by).cast("int"))
            for (seq, op, by), group in groups.items()
        ]
        return reduce(DataFrame.unionAll, parts)
    labels = [(PurePath(file.path).name, seq, op, by) for (seq, op, by), group in groups.items() for file in group]
    assert len({name for name, *_ in labels}) == len(labels), "names of change files hold an id"
    rows = scan_files(spark, files, columns)
    named = rows.select("*", rows.metadataColumn("_metadata")["file_name"].alias(_FILE))
    told = spark.createDataFrame(labels, StructType([StructField(_FILE, StringType()), *_LABELS]))
    return named.join(F.broadcast(told), _FILE).select(*map(_column, columns.names), SEQ, OP, BY)


def _with_columns(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """All columns of the table; one that the rows lack is null."""
    known = set(rows.columns)
    fields = spark_schema(schema.columns).fields
    columns = [_column(f.name) if f.name in known else F.lit(None).alias(f.name) for f in fields]
    return rows.select(*[column.cast(f.dataType).alias(f.name) for column, f in zip(columns, fields, strict=True)])


def _met(
    schema: TableSchema, before: DataFrame, changes: DataFrame, row_keys: Sequence[Sequence[str]], *, deletes: bool
) -> Iterator[DataFrame]:
    """The rows that a change can meet, each once. Only a delete shows the row that it met: of the others it is enough
    to know that it was there, and its order value.
    """
    rest = before
    if deletes:
        for number, by in enumerate(row_keys):
            gone = changes.where(F.col(OP) == Op.DELETE.value)
            if not schema.keyed:
                gone = gone.where(F.col(BY) == number)
            yield _joined(rest, gone, by, "left_semi", null_safe=not schema.keyed)
            rest = _joined(rest, gone, by, "left_anti", null_safe=not schema.keyed)
    if schema.keyed:
        deciding = rest.select(*map(_column, event_columns(schema, row_keys)))
        yield _joined(deciding, changes, schema.key, "left_semi", null_safe=False)


def _joined(rows: DataFrame, other: DataFrame, by: Sequence[str], how: str, *, null_safe: bool) -> DataFrame:
    # A column that was added since is null in all rows.
    rows = rows.select("*", *[F.lit(None).alias(name) for name in by if name not in rows.columns])
    names = [f"_lithify_k{number}" for number in range(len(by))]
    keys = other.select(*[_column(old).alias(new) for old, new in zip(by, names, strict=True)])
    pairs = [(_column(old), F.col(new)) for old, new in zip(by, names, strict=True)]
    same = reduce(Column.__and__, [a.eqNullSafe(b) if null_safe else a == b for a, b in pairs])
    return rows.join(keys, same, how)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
