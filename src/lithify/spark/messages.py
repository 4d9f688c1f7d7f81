"""Messages of a stream as Spark hands them over, and the events in them, opened on the executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lithify.errors import InvalidRequest
from lithify.spark.json_lines import write_json
from lithify.spark.schemas import arrow_schema, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed
from lithify.text.json_lines import message_batch
from lithify.text.text_rows import Target

VALUE, KEY = "value", "key"
COLUMN, WHY, RECORD = "_lithify_column", "_lithify_why", "_lithify_record"
_PARTS = ("before", "after", "op", "source", "ts_ms")


def messages_of(frame: DataFrame) -> DataFrame:
    """The columns `value`, JSON text or null, and `key` if there is one."""
    if VALUE in frame.columns:
        return frame.select(*[F.col(name).cast("string") for name in (VALUE, KEY) if name in frame.columns])
    if "payload" in frame.columns:
        return frame.select(F.to_json(F.col("payload"), {"ignoreNullFields": "false"}).alias(VALUE))
    if "op" in frame.columns and ("after" in frame.columns or "before" in frame.columns):
        parts = F.struct(*[F.col(name) for name in _PARTS if name in frame.columns])
        return frame.select(F.to_json(parts, {"ignoreNullFields": "false"}).alias(VALUE))
    raise InvalidRequest(
        "an envelope takes messages: a column 'value' with the JSON of each, as Spark's Kafka source hands it over, or "
        f"its parts before, after, op and source; the stream has {', '.join(frame.columns)}"
    )


def opened(messages: DataFrame, target: Target, label: str) -> DataFrame:
    """Events, and what is none with why and the message as it was."""
    columns = pa.schema([pa.field(f.name, f.type) for f in target.columns])
    for name in (COLUMN, WHY, RECORD):
        columns = columns.append(pa.field(name, pa.string()))
    shape = spark_schema(columns)
    arrow = arrow_schema(shape)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = pa.Table.from_batches([batch])
            texts = found.column(VALUE).cast(pa.binary()).to_pylist()
            keys = found.column(KEY).cast(pa.binary()).to_pylist() if KEY in found.column_names else None
            made = message_batch(texts, label, target, keys)
            bad = [{COLUMN: each.column, WHY: each.reason, RECORD: each.record} for each in made.bad]
            for part in (
                made.rows,
                pa.Table.from_pylist(bad, pa.schema([arrow.field(n) for n in (COLUMN, WHY, RECORD)])),
            ):
                whole = [
                    part.column(f.name).cast(f.type) if f.name in part.column_names else pa.nulls(part.num_rows, f.type)
                    for f in arrow
                ]
                yield from pa.table(whole, schema=arrow).to_batches()

    return messages.mapInArrow(run, shape)


def bad_messages(frame: DataFrame, rows_max: int) -> list[tuple[str | None, str, str]]:
    """The first few messages that are no row: column, why, message."""
    bad = frame.where(F.col(WHY).isNotNull()).select(COLUMN, WHY, RECORD).limit(rows_max)
    try:
        return [(row[COLUMN], row[WHY], row[RECORD]) for row in bad.collect()]
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def write_bad(frame: DataFrame, folder: PurePath) -> list[PurePath]:
    bad = frame.where(F.col(WHY).isNotNull())
    return write_json(
        bad.select(F.col(COLUMN).alias("column"), F.col(WHY).alias("why"), F.col(RECORD).alias("record")), folder
    )


def good_events(frame: DataFrame) -> DataFrame:
    return frame.where(F.col(WHY).isNull()).drop(COLUMN, WHY, RECORD)
