"""Which failures smaller pieces may cure, and which only a person can."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from lithify.core.compute_errors import as_error, classify, classify_exit, classify_text
from lithify.errors import ComputeFailed, Corruption, LithifyError, NotFound, OutOfResources, Unavailable


class AnalysisException(Exception):
    """As Spark names it."""


RECOVERABLE = [
    "java.lang.OutOfMemoryError: Java heap space",
    "java.lang.OutOfMemoryError: GC overhead limit exceeded",
    "org.apache.spark.memory.SparkOutOfMemoryError: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes",
    "pyarrow.lib.ArrowMemoryError: malloc of size 1073741824 failed",
    "realloc of size 536870912 failed",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB\nMemoryError",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "OpenJDK 64-Bit Server VM warning: There is insufficient memory for the Java Runtime Environment to continue.",
    "Native memory allocation (mmap) failed to map 16777216 bytes",
    "OSError: [Errno 12] Cannot allocate memory",
    "RuntimeError: can't start new thread",
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
    "py4j.protocol.Py4JNetworkError: Answer from Java side is empty",
    "Job 3 cancelled because SparkContext was shut down",
    # What is missing after a crash is not the cause.
    "FileNotFoundError: part-0.parquet\nPython worker exited unexpectedly (crashed)",
]
PERMANENT = [
    "java.io.IOException: No space left on device",
    "java.io.FileNotFoundException: File file:/lake/part-0.parquet does not exist",
    "PermissionError: [Errno 13] Permission denied: '/lake'",
    "java.nio.file.AccessDeniedException: /lake",
    "file:/lake/a.parquet is not a Parquet file. Expected magic number at tail",
    "org.apache.spark.sql.AnalysisException: cannot resolve",
    "org.apache.spark.sql.catalyst.parser.ParseException: near 'selct'",
]


@pytest.mark.parametrize("text", RECOVERABLE)
def test_memory_and_lost_workers_are_recoverable(text: str) -> None:
    assert classify_text(text).kind == "recoverable"


@pytest.mark.parametrize("text", PERMANENT)
def test_bad_data_files_and_queries_are_permanent(text: str) -> None:
    assert classify_text(text).kind == "permanent"


def test_anything_else_is_unknown() -> None:
    assert classify_text("java.lang.IllegalStateException: should not happen").kind == "unknown"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "recoverable"),
        (pa.lib.ArrowMemoryError("malloc of size 64 failed"), "recoverable"),
        (OSError(errno.ENOMEM, "no"), "recoverable"),
        (OutOfResources("the worker died"), "recoverable"),
        (Corruption("a.parquet is damaged"), "permanent"),
        (NotFound("no MemoryError here: table x.y"), "permanent"),
        (ComputeFailed("refused"), "permanent"),
        (ComputeFailed("strange", unknown=True), "unknown"),
        (FileNotFoundError(errno.ENOENT, "gone"), "permanent"),
        (PermissionError(errno.EACCES, "no"), "permanent"),
        (OSError(errno.ENOSPC, "full"), "permanent"),
        (OSError(errno.EIO, "disk"), "unknown"),
        (AnalysisException("column OutOfMemoryError not found"), "permanent"),
        (ValueError("7"), "unknown"),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else value,
)
def test_errors_are_judged_by_their_type(error: BaseException, kind: str) -> None:
    assert classify(error).kind == kind


def test_the_cause_of_an_error_that_says_nothing_is_looked_at() -> None:
    error = RuntimeError("An error occurred while calling o45.sc")
    error.__cause__ = ConnectionError("Py4JNetworkError: Answer from Java side is empty")

    assert classify(error).kind == "recoverable"


@pytest.mark.parametrize("code", [137, 139, 134, -9, -11, -6, -15])
def test_a_process_ended_by_a_signal_is_recoverable(code: int) -> None:
    failure = classify_exit(code)

    assert failure.kind == "recoverable"
    assert failure.reason.startswith(f"exit {code if code > 0 else 128 - code}: ")


@pytest.mark.parametrize("code", [0, 1, 2, 70])
def test_a_process_that_ended_by_itself_is_unknown(code: int) -> None:
    assert classify_exit(code).kind == "unknown"


@pytest.mark.parametrize(
    ("error", "kind", "details"),
    [
        (MemoryError(), OutOfResources, {"reason": "a task ran out of memory"}),
        (FileNotFoundError(errno.ENOENT, "gone"), Unavailable, {"reason": "a file is missing"}),
        (AnalysisException("no column x"), ComputeFailed, {"reason": "Spark refused the query"}),
        (ValueError("two\nlines"), ComputeFailed, {"unknown": True}),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else "",
)
def test_a_foreign_error_becomes_one_of_ours(error: Exception, kind: type[LithifyError], details: object) -> None:
    ours = as_error(error, "a task failed")

    assert type(ours) is kind
    assert ours.details == details
    assert ours.message.startswith("a task failed: ")
    assert type(error).__name__ in ours.message
    assert "\n" not in ours.message


def test_an_error_of_ours_stays_itself() -> None:
    error = Corruption("a.parquet is damaged")

    assert as_error(error, "a task failed") is error
