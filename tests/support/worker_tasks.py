"""Work for the Spark worker: small functions that succeed, fail, print, wait and allocate."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lithify.errors import Corruption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S_MAX = 60


def double(number: int) -> int:
    return 2 * number


def noisy(number: int) -> int:
    print('{"id": null, "results": []}')
    sys.stdout.flush()
    os.write(1, b"not a line of the protocol\n")
    return number


def corrupt(path: str) -> None:
    raise Corruption(f"{path} is damaged: restore it", path=path)


def open_missing(path: str) -> bytes:
    return Path(path).read_bytes()


def surprise(word: str) -> None:
    raise LookupError(word)


def unpicklable(_: int) -> Any:
    return lambda: None


def allocate(size_bytes: int) -> int:
    """Two copies of so many bytes, in Arrow's memory and in NumPy's."""
    import numpy as np
    import pyarrow as pa

    allocated = pa.allocate_buffer(size_bytes // 2)
    copied = np.full(size_bytes // 2, 1, np.int8)
    return allocated.size + len(copied)


def map_file(path: str) -> int:
    """The size of a file that is mapped for reading, and touched at both ends."""
    import pyarrow as pa

    with pa.memory_map(path) as source:
        buffer = source.read_buffer()
        return len(buffer) + buffer[0] + buffer[-1]


def crash(_: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def meet(folder: str) -> int:
    """Say that it runs, then wait until told to go on. Answers with its process id."""
    Path(folder, f"here-{os.getpid()}").touch()
    until = time.monotonic() + WAIT_S_MAX
    while not Path(folder, "go").exists():
        if time.monotonic() > until:
            raise TimeoutError(folder)
        time.sleep(0.02)
    return os.getpid()


def meet_unless_first(folder_and_number: tuple[str, int]) -> int:
    """Task 0 ends at once, the others as in `meet`."""
    folder, number = folder_and_number
    return 0 if number == 0 else meet(folder)


def fail_first(folder_and_number: tuple[str, int]) -> None:
    """Task 0 fails; whoever else runs leaves a mark and takes its time."""
    folder, number = folder_and_number
    Path(folder, f"ran-{number}").touch()
    if number == 0:
        raise Corruption("the first one is damaged")
    time.sleep(0.1)


def count_rows(spark: SparkSession, rows: int) -> int:
    return spark.range(rows).count()


def unknown_column(spark: SparkSession, _: int) -> None:
    spark.range(1).select("nowhere").collect()


def fill_heap(spark: SparkSession, strings: int) -> int:
    """Collect more in the JVM than its heap can hold."""
    return len(spark.range(strings).selectExpr("repeat(uuid(), 1000) as text").orderBy("text").toArrow())


def kill_jvm(spark: SparkSession, _: int) -> None:
    from pyspark import SparkContext

    SparkContext._gateway.proc.kill()
    spark.range(10).count()


def worker_pid(spark: SparkSession, _: int) -> int:
    return os.getpid()
