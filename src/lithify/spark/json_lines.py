"""Rows as JSON lines in a folder, for people to look at: a file for each partition."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lithify.files.addresses import is_remote, path_of
from lithify.files.staging import discard, json_files, write_lines
from lithify.spark.schemas import column_named
from lithify.spark.tasks import SPARK_ERRORS, compute_failed, run_partitions


def write_json(frame: DataFrame, folder: PurePath, *, empty: bool = True) -> list[PurePath]:
    """In place of what the folder held. `empty`: also files without lines count. Spark's own writer knows no buckets:
    there tasks write the lines themselves.
    """
    try:
        if not is_remote(folder):
            frame.write.mode("overwrite").json(str(folder))
        else:
            discard(folder)
            lines = frame.select(F.to_json(F.struct(*[column_named(name) for name in frame.columns])).alias("line"))
            target = str(folder)
            run_partitions(lines, lambda batches: _written(batches, target))
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    return json_files(folder, empty=empty)


def _written(batches: Iterator[pa.RecordBatch], folder: str) -> bool:
    lines = (line.encode() for batch in batches for line in batch.column(0).to_pylist())
    return write_lines(path_of(folder) / f"part-{uuid.uuid4().hex}.json", lines)
