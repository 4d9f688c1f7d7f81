"""Running plain Python tasks on Spark: one task per partition, results and errors come back as values.

An error does not fail the Spark job, so nothing of it is lost in a Java trace. Tasks of one machine share a tally, a
file that gets one byte for each task that ended: its length is the progress, and a byte that says "failed" lets tasks
that have not begun yet be left out.

A session's settings can limit the memory of each task (`TASK_BYTES_MAX`). The limit counts private writable memory
(RLIMIT_DATA), not files that are mapped for reading, which Spark's own limit on address space does. A task that wants
more ends in a MemoryError.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lithify.core.compute_errors import as_error, classify
from lithify.errors import ComputeFailed, LithifyError, OutOfResources
from lithify.spark.remote_files import TaskCopies

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# A failed task comes as Spark's own error or, where PySpark knows no class for it, as the bridge's.
SPARK_ERRORS = (PySparkException, Py4JError)

TASK_BYTES_MAX = "spark.lithify.task.bytes.max"

_DONE, _FAILED = b".", b"x"

T = TypeVar("T")
R = TypeVar("R")


class _LeftOut:
    """The result of a task that was not begun because another one had failed."""


def run_tasks(
    spark: SparkSession, function: Callable[[T], R], tasks: Sequence[T], *, tally: str | None = None
) -> list[R]:
    """`function` of each task, in order; or the first error among them, a LithifyError as itself. `tally` is an
    empty file that the tasks can reach, if there is one.
    """
    if not tasks:
        return []
    pickled = [pickle.dumps(task) for task in tasks]
    bytes_max, copies = int(spark.conf.get(TASK_BYTES_MAX, "0") or 0), TaskCopies.of(spark)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        copies.use()
        if bytes_max:
            limit_memory(bytes_max)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = _attempt(function, pickled[number], tally)
                yield pa.RecordBatch.from_pylist([{"id": number, "result": result}])

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "id long, result binary")
    try:
        rows = frame.collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    results: list[R] = []
    left_out = 0
    for row in sorted(rows, key=lambda row: row["id"]):
        result = pickle.loads(bytes(row["result"]))
        if isinstance(result, LithifyError):
            raise result
        left_out += isinstance(result, _LeftOut)
        results.append(result)
    assert not left_out, "tasks were left out though none failed"
    return results


def run_partitions(frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], R]) -> list[R]:
    """`function` of the rows of each partition; or the first error among them, a LithifyError as itself."""
    copies = TaskCopies.of(frame.sparkSession)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        copies.use()

        result: Any
        try:
            result = function(batches)
        except LithifyError as error:
            result = error
        yield pa.RecordBatch.from_pylist([{"result": pickle.dumps(result)}])

    try:
        rows = frame.mapInArrow(run, "result binary").collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    results = [pickle.loads(bytes(row["result"])) for row in rows]
    for result in results:
        if isinstance(result, LithifyError):
            raise result
    return results


def _attempt(function: Callable[[Any], Any], task: bytes, tally: str | None) -> bytes:
    if tally is not None and failed_count(tally):
        return pickle.dumps(_LeftOut())
    result: Any
    try:
        result = function(pickle.loads(task))
        answer = pickle.dumps(result)
    except Exception as error:
        result = as_error(error, "a task failed")
        answer = pickle.dumps(result)
    if isinstance(result, OutOfResources):
        _give_back()
    if tally is not None:
        _count(tally, _FAILED if isinstance(result, LithifyError) else _DONE)
    return answer


def limit_memory(bytes_max: int) -> None:
    """Bound this process's private memory, from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))


def _give_back() -> None:
    """Spark keeps this process for the next task, which should find all of its memory."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()


def _count(tally: str, mark: bytes) -> None:
    # On another machine the file is not there, and nobody counts; a mark is not worth failing for.
    with contextlib.suppress(OSError):
        handle = os.open(tally, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, mark)
        finally:
            os.close(handle)


def done_count(tally: str) -> int:
    return _marks(tally).count(_DONE)


def failed_count(tally: str) -> int:
    return _marks(tally).count(_FAILED)


def _marks(tally: str) -> bytes:
    try:
        return Path(tally).read_bytes()
    except OSError:
        return b""


def compute_failed(error: BaseException) -> ComputeFailed:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    why = causes[-1] if causes else lines[0] if lines else type(error).__name__
    failure = classify(error)
    if failure.kind == "recoverable":
        return OutOfResources(f"Spark failed: {failure.reason} ({why})", reason=failure.reason)
    if failure.kind == "permanent":
        return ComputeFailed(f"Spark failed: {why}", reason=failure.reason)
    return ComputeFailed(f"Spark failed: {why}", unknown=True)


class SessionCompute:
    """On a Spark session of this process: one that the user shares."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._used: SparkSession | None = None

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        from lithify.spark.tasks import run_tasks

        self._used = self._session()
        return run_tasks(self._used, function, tasks)

    def run_on_driver(self, function: Callable[[SparkSession, T], R], task: T) -> R:
        self._used = self._session()
        return function(self._used, task)

    def cancel_all(self, reason: str = "cancelled") -> None:
        if self._used is not None:
            self._used.interruptAll()

    def close(self) -> None:
        return None
