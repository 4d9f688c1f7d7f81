"""Running plain Python tasks on Spark: one task per partition, results and our own errors come back as values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lithify.errors import ComputeFailed, LithifyError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# A failed task comes as Spark's own error or, where PySpark knows no class for it, as the bridge's.
SPARK_ERRORS = (PySparkException, Py4JError)

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """`function` of each task, in order. A LithifyError inside a task is raised here as itself; anything else fails
    the Spark job.
    """
    if not tasks:
        return []
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
    except SPARK_ERRORS as error:
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
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    why = causes[-1] if causes else lines[0] if lines else type(error).__name__
    return ComputeFailed(f"Spark failed: {why}")
