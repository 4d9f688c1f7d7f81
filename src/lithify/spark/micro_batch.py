"""Micro-batches as Spark hands them over: their query, and their rows while these are few.

Arrival order is the order of the DataFrame's rows: by partition, then within it, which is how all of them are fetched.
At first so many rows of each partition are: Spark's own limit costs a shuffle, which a micro-batch of a thousand rows
would wait for longer than for everything else. If these are no more than that in all, none was left out. Otherwise rows
are numbered before they are fetched, because a limited number of rows of several partitions may come in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import PurePath

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from lithify.core.arrow_rows import order_of, take
from lithify.core.names import GIVEN
from lithify.core.ops import WORDS, Op
from lithify.spark.event_write import ARRIVAL
from lithify.spark.ingest import FILE, MODIFIED, local_name, parquet_rows
from lithify.spark.json_lines import write_json
from lithify.spark.schemas import arrow_schema, column_named
from lithify.spark.tasks import SPARK_ERRORS, compute_failed

QUERY_ID = "sql.streaming.queryId"
WHY = "_lithify_why"
QUERY_ID_CONF = "spark.lithify.query.id"
EACH_ROWS_MAX = 10_000
# Spark's numbers have the partition above these bits, and the row in it below.
PARTITION_ROWS = 1 << 33


def columns_of(frame: DataFrame) -> pa.Schema:
    return arrow_schema(frame.schema)


def fetched(frame: DataFrame, rows_max: int, order: Sequence[str] = (), *, ordered: bool = True) -> pa.Table | None:
    """All rows in order of arrival (in any, if not `ordered`), or None if there are more than `rows_max`. The columns
    `order` go before the position in the frame, and are left out.
    """
    each = min(EACH_ROWS_MAX, rows_max)
    by = [*order]
    try:
        # As text: each expression that is put together here costs as much as to read this one.
        table = frame.where(f"monotonically_increasing_id() % {PARTITION_ROWS} <= {each}").toArrow()
        if table.num_rows > each:
            table = frame.select("*", F.monotonically_increasing_id().alias(ARRIVAL)).limit(rows_max + 1).toArrow()
            by.append(ARRIVAL)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    if table.num_rows > rows_max:
        return None
    return take(table.drop_columns(by), order_of(table, by)) if ordered and by else table.drop_columns(by)


def query_id(frame: DataFrame) -> str | None:
    """The id of the streaming query that a micro-batch belongs to; None where Spark does not tell.

    Spark hands it on to the tasks of the batch, and nowhere else that is public. So a task is asked, once: the answer
    is kept in the settings of the session, which every run of a query has for itself.
    """
    session = frame.sparkSession
    if (known := session.conf.get(QUERY_ID_CONF, None)) is not None:
        return known

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        found = None if context is None else context.getLocalProperty(QUERY_ID)
        yield pa.RecordBatch.from_pylist([{"id": found}], pa.schema([("id", pa.string())]))

    try:
        rows = session.range(0, 1, 1, 1).mapInArrow(ask, "id string").collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    found = next((row["id"] for row in rows if row["id"]), None)
    if found is not None:
        session.conf.set(QUERY_ID_CONF, found)
    return found


def null_keyed(frame: DataFrame, key: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """(rows with a null in their key, the others)."""
    names = [name for name in key if name in frame.columns]
    if not names:
        return frame.limit(0), frame
    missing = reduce(lambda a, b: a | b, [column_named(name).isNull() for name in names])
    return frame.where(missing), frame.where(~missing)


def strange_events(frame: DataFrame, op_column: str) -> tuple[DataFrame, DataFrame]:
    """(events whose operation is not known, the others)."""
    known = F.coalesce(F.lower(F.trim(column_named(op_column))).isin(*WORDS), F.lit(False))
    return frame.where(~known), frame.where(known)


def write_records(frame: DataFrame, why: str, folder: PurePath) -> list[PurePath]:
    """Records set aside as JSON lines, in place of what the folder held; no files where there are none."""
    record = F.to_json(F.struct(*[column_named(name) for name in frame.columns]))
    return write_json(frame.select(F.lit(why).alias("why"), record.alias("record")), folder, empty=False)


# -- files as a stream


def start_file_query(
    spark: SparkSession,
    source: str,
    checkpoint: PurePath,
    sink: Callable[[DataFrame, int], None],
    *,
    every_s: float | None,
    files_max: int,
) -> StreamingQuery:
    """Hand files to `sink` as they appear, a list of them in each micro-batch; those that are there, where `every_s` is
    None. Only names and times are read here: Spark keeps track of which files were seen.
    """
    reader = spark.readStream.format("binaryFile").option("maxFilesPerTrigger", files_max)
    reader = reader.option("recursiveFileLookup", True).option("ignoreMissingFiles", "false")
    listing = reader.schema("path string, modificationTime timestamp, length long, content binary").load(source)
    writer = listing.select("path", "modificationTime").writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
    try:
        return writer.start()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def listed(listing: DataFrame) -> list[str]:
    """The files of a micro-batch, the oldest first."""
    try:
        rows = listing.collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    return [local_name(row["path"]) for row in sorted(rows, key=lambda row: (row["modificationTime"], row["path"]))]


def judged_parquet(
    spark: SparkSession,
    files: Sequence[str],
    columns: pa.Schema,
    required: Sequence[str] = (),
    op_column: str | None = None,
) -> DataFrame:
    """Rows with the order of their files, and why one is bad (null: it is not). `required`: columns that need a value,
    but for those of a delete.
    """
    frame = parquet_rows(spark, files, columns, with_origin=True)
    why = _missing(frame, required, op_column) if required else F.lit(None)
    return frame.withColumn(WHY, why.cast("string"))


def bad_rows(frame: DataFrame, rows_max: int) -> list[str]:
    """The first few rows that are bad, each with why."""
    bad = _explained(frame).limit(rows_max)
    try:
        return [f"{local_name(row['file'])}: {row['why']}: {row['record']}" for row in bad.collect()]
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def write_bad_rows(frame: DataFrame, folder: PurePath) -> list[PurePath]:
    """Bad rows as JSON lines: file, why, record."""
    return write_json(_explained(frame), folder)


def _explained(frame: DataFrame) -> DataFrame:
    names = [name for name in frame.columns if name not in (WHY, FILE, MODIFIED, GIVEN)]
    record = F.to_json(F.struct(*[column_named(name) for name in names])).alias("record")
    return frame.where(F.col(WHY).isNotNull()).select(F.col(FILE).alias("file"), F.col(WHY).alias("why"), record)


def _missing(frame: DataFrame, required: Sequence[str], op_column: str | None) -> Column:
    """Which column lacks its value; null where none does."""
    values = {name: column_named(name) if name in frame.columns else F.lit(None) for name in required}
    said = {name: F.lit(f"column {name!r} is null: it needs a value") for name in required}
    why = F.coalesce(*[F.when(value.isNull(), said[name]) for name, value in values.items()])
    if op_column is None or op_column not in frame.columns:
        return why
    deletes = [word for word, op in WORDS.items() if op is Op.DELETE]
    return F.when(~F.lower(F.trim(column_named(op_column))).isin(deletes), why)
