"""Z-order on Spark: rank every row on the curve, range-partition and sort by that rank, write with our own writer.

Runs beside the driver. Boundaries of the ranks come from a sample; what the tasks report is what counts, so files of
failed or doubled task attempts never reach a commit.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from lithify.core.read_plan import Source
from lithify.core.rows import conform
from lithify.errors import LithifyError
from lithify.files.key_checksum import added
from lithify.files.merge_sorted import MergeResult, MergeSource
from lithify.files.open_parquet import open_file
from lithify.files.parquet import Written
from lithify.files.zorder import ClusterTask, fingerprint_of_source, write_part
from lithify.files.zorder_values import Quantiles, quantiles, z_values
from lithify.spark.read import scan
from lithify.spark.remote_files import TaskCopies
from lithify.spark.schemas import column_named, spark_schema
from lithify.spark.tasks import SPARK_ERRORS, compute_failed, run_tasks

Z_VALUE = "_lithify_z"
SAMPLE_ROWS = 200_000


def cluster(spark: SparkSession, task: ClusterTask) -> MergeResult:
    columns = task.layout.columns
    sources = [Source(s.path, s.rows, s.size_bytes, tuple(s.constants.items())) for s in task.sources]
    facts = partial(_rows_and_fingerprint, columns=task.check_columns)
    read = run_tasks(spark, facts, task.sources)
    rows = sum(count for count, _ in read)
    try:
        frame = scan(spark, sources, columns)
        results = _write(frame, task, quantiles(_sample(frame, task, rows), task.by))
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    written = [file for part in results for file in part]
    again = [MergeSource(f"{task.root}/{file.path}", file.rows, file.size_bytes) for file in written]
    return MergeResult(
        tuple(written),
        task.partition,
        rows,
        added(value for _, value in read),
        added(value for _, value in run_tasks(spark, facts, again)),
    )


def _rows_and_fingerprint(source: MergeSource, columns: pa.Schema) -> tuple[int, int]:
    """From the file itself: the log of an adopted table may not say how many rows it has."""
    return open_file(source.path, source.size_bytes).metadata.num_rows, fingerprint_of_source(source, columns)


def _sample(frame: DataFrame, task: ClusterTask, rows: int) -> pa.Table:
    chosen = frame.select(*[column_named(name) for name in task.by])
    sample = chosen.sample(fraction=min(1.0, SAMPLE_ROWS / rows), seed=1) if rows > SAMPLE_ROWS else chosen
    table = sample.toArrow()
    return conform(table, pa.schema([task.layout.columns.field(n).with_nullable(True) for n in task.by]))


def _write(frame: DataFrame, task: ClusterTask, by: list[Quantiles]) -> list[list[Written]]:
    columns = task.layout.columns
    ranked_schema = StructType([*spark_schema(columns).fields]).add(Z_VALUE, LongType())

    def with_z_value(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            ranked = table.append_column(Z_VALUE, pa.array(z_values(table, by), pa.int64()))
            yield from ranked.combine_chunks().to_batches()

    copies = TaskCopies.of(frame.sparkSession)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result: Any
        copies.use()
        tables = (conform(pa.Table.from_batches([b]).drop_columns([Z_VALUE]), columns) for b in batches if b.num_rows)
        try:
            first = next(tables, None)
            name = f"{task.name}-{uuid.uuid4().hex[:12]}.parquet"
            result = [] if first is None else [write_part(task, _chain(first, tables), name)]
        except LithifyError as error:
            result = error
        yield pa.RecordBatch.from_pylist([{"result": pickle.dumps(result)}])

    ordered = (
        frame.mapInArrow(with_z_value, ranked_schema)
        .repartitionByRange(task.files, Z_VALUE)
        .sortWithinPartitions(Z_VALUE)
    )
    results = [pickle.loads(bytes(row["result"])) for row in ordered.mapInArrow(write, "result binary").collect()]
    for result in results:
        if isinstance(result, LithifyError):
            raise result
    return results


def _chain(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest
