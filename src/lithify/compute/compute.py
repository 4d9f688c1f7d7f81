"""Where heavy tasks run: in this process, on a Spark session, or on Spark in a supervised child process.

A task is a picklable value; its function is importable by name. Results come back in the order of the tasks. Errors
of a task that Lithify knows are raised as themselves. `OutOfResources` (memory ran out, the worker died) means that
the same work in smaller pieces may succeed; every other `ComputeFailed` is permanent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from lithify.core.optional import has_spark
from lithify.errors import OutOfResources
from lithify.metrics.progress import current

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def engine_for(bytes_read: int, local_bytes_max: int, *, as_query: bool = False) -> str:
    """`local` or `spark`: large work runs on Spark, or here task by task where Spark is not installed. `as_query`: it
    is one query on Spark, and here would take all of its rows into memory.
    """
    return "local" if bytes_read < local_bytes_max or not (as_query or has_spark()) else "spark"


class Compute(Protocol):
    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """`function(task)` for each task, spread over Spark's executors."""
        ...

    def run_on_driver(self, function: Callable[[SparkSession, T], R], task: T) -> R:
        """`function(session, task)` beside the Spark driver: for work that is itself a Spark query."""
        ...

    def cancel_all(self, reason: str = ...) -> None:
        """End what runs, as far as that can be done from another thread; whoever waits for it gets ComputeFailed."""
        ...

    def close(self) -> None: ...


@contextmanager
def stoppable(compute: Compute) -> Iterator[Compute]:
    """Work that is cancelled meanwhile is ended there, too."""
    progress = current()
    if progress is None:
        yield compute
    else:
        with progress.stopped_by(lambda why: compute.cancel_all(why)):
            yield compute


class HereCompute:
    """In this process, one task after the other. Has no Spark."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        try:
            return [function(task) for task in tasks]
        except (MemoryError, pa.ArrowMemoryError) as error:
            raise OutOfResources(f"memory of this process ran out: {error}") from error

    def run_on_driver(self, function: Callable[[SparkSession, T], R], task: T) -> R:
        raise AssertionError("work for a Spark driver cannot run without Spark")

    def cancel_all(self, reason: str = "cancelled") -> None:
        """Tasks here end where they say how far they are (`metrics/progress.py`)."""

    def close(self) -> None:
        return None
