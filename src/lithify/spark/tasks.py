"""Running plain Python tasks on Spark: one task per partition, results and our own errors come back as values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lithify.errors import ComputeFailed, LithifyError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """`function` of each task, in order. A LithifyError inside a task is raised here as itself; anything else fails
    the Spark job.
    """
    if not tasks:
        return []
    from pyspark.errors import PySparkException

    pickled = [pickle.dumps(task) for task in tasks]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result: Any
                try:
                    result = function(pickle.loads(pickled[number]))
                except LithifyError as error:
                    result = error
                yield pa.RecordBatch.from_pylist([{"id": number, "result": pickle.dumps(result)}])

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "id long, result binary")
    try:
        rows = frame.collect()
    except PySparkException as error:
        raise compute_failed(error) from error
    results: list[R] = []
    for row in sorted(rows, key=lambda row: row["id"]):
        result = pickle.loads(bytes(row["result"]))
        if isinstance(result, LithifyError):
            raise result
        results.append(result)
    return results


def compute_failed(error: BaseException) -> ComputeFailed:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ComputeFailed(f"Spark failed: {lines[0] if lines else type(error).__name__}")
