"""What a failed computation calls for: smaller pieces, or a person.

A failure is *recoverable* when the same work in smaller pieces, or on a new worker, may succeed: memory ran out, a
process was killed. It is *permanent* when it would only fail again: bad data, a missing file, no permission, a full
disk, a query that Spark refuses. Everything else is *unknown*: it is said so (`details["unknown"]`), and whoever
started the work decides; trying it once more in smaller pieces is reasonable.

Errors with a type are judged by it. Others, which Spark and its bridge report as text, are judged by the phrases that
the JVM, Python, Arrow and the operating system use, memory first: a file that is missing after a crash is a symptom.
"""

from __future__ import annotations

import errno
import re
import signal
from dataclasses import dataclass
from typing import Literal

from lithify.errors import ComputeFailed, LithifyError, OutOfResources, Unavailable

Kind = Literal["recoverable", "permanent", "unknown"]


@dataclass(frozen=True)
class Failure:
    kind: Kind
    reason: str


_PERMANENT_ERRNOS = {
    errno.ENOENT: "a file is missing",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
}

# Spark's own classes for what the query, not the machine, got wrong.
_REFUSED = {"AnalysisException", "ParseException", "IllegalArgumentException", "UnsupportedOperationException"}

JVM_ENDED = "Spark's JVM ended"

_RECOVERABLE_TEXT = (
    (r"OutOfMemoryError|Java heap space|GC overhead limit|UNABLE_TO_ACQUIRE_MEMORY", "the JVM ran out of memory"),
    (r"\bMemoryError\b|ArrowMemoryError|(?:m|re)alloc of size \d+ failed|bad_alloc", "a task ran out of memory"),
    (r"Cannot allocate memory|memory allocation \(\w+\) failed|insufficient memory", "the machine ran out of memory"),
    (r"can't start new thread|unable to create native thread", "no further thread could be started"),
    (r"Python worker exited unexpectedly|Python worker \S*\s*crashed", "a Python worker of Spark died"),
    (r"ExecutorLostFailure|Container killed|exceeding memory limits", "a Spark executor was lost"),
    (
        r"Py4JNetworkError|Answer from Java side is empty|Error while sending or receiving|Connection refused"
        r"|SparkContext was shut down|stopped SparkContext",
        JVM_ENDED,
    ),
)

_PERMANENT_TEXT = (
    (r"No space left on device|Disk quota exceeded", "the disk is full"),
    (r"Permission denied|AccessDeniedException|AccessControlException", "permission denied"),
    (r"FileNotFoundException|FileNotFoundError|NoSuchFileException|No such file or directory", "a file is missing"),
    (r"Read-only file system", "the file system is read-only"),
    (r"is not a Parquet file|Parquet magic bytes not found|CRC checksum verification failed", "a file is damaged"),
    (r"AnalysisException|ParseException", "Spark refused the query"),
)

_CHAIN_MAX = 8

# What a shell or a container reports for a process that a signal ended: 128 and the signal's number.
_SIGNALLED = 128
_KILLED = {
    signal.SIGKILL: "it was killed, most likely because the machine ran out of memory",
    signal.SIGSEGV: "it crashed with a segmentation fault",
    signal.SIGBUS: "it crashed on memory or a file that went away",
    signal.SIGABRT: "it aborted, most likely because memory ran out",
    signal.SIGTERM: "it was asked to end from outside",
}


def classify(error: BaseException) -> Failure:
    if isinstance(error, OutOfResources):
        return Failure("recoverable", error.message)
    if isinstance(error, ComputeFailed) and error.details.get("unknown"):
        return Failure("unknown", error.message)
    if isinstance(error, LithifyError):
        return Failure("permanent", error.message)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return Failure("recoverable", "a task ran out of memory")
    if isinstance(error, OSError) and error.errno in _PERMANENT_ERRNOS:
        return Failure("permanent", _PERMANENT_ERRNOS[error.errno])
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _REFUSED:
        return Failure("permanent", "Spark refused the query")
    return classify_text("\n".join(f"{type(link).__name__}: {link}" for link in _chain(error)))


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what it was raised from; some only say that something went wrong."""
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < _CHAIN_MAX:
        chain.append(chain[-1].__cause__)
    return chain


def classify_text(text: str) -> Failure:
    for kind, table in (("recoverable", _RECOVERABLE_TEXT), ("permanent", _PERMANENT_TEXT)):
        for pattern, reason in table:
            if re.search(pattern, text):
                return Failure(kind, reason)  # type: ignore[arg-type]
    return Failure("unknown", "the cause is not one that Lithify knows")


def classify_exit(code: int) -> Failure:
    """Of a process that ended by itself: `code` as `subprocess` reports it (-9) or as a shell does (137)."""
    number = -code if code < 0 else code - _SIGNALLED
    why = _KILLED.get(number)  # type: ignore[call-overload]
    if why is not None:
        return Failure("recoverable", f"exit {_SIGNALLED + number}: {why}")
    return Failure("unknown", f"exit {code}")


def as_error(error: BaseException, doing: str) -> LithifyError:
    """The error to raise for a foreign one; Lithify's own stay as they are. `doing` begins the message."""
    if isinstance(error, LithifyError):
        return error
    failure = classify(error)
    said, public = " ".join(f"{type(error).__name__}: {error}".split()), f"{doing}: {failure.reason}"
    if failure.kind == "recoverable":
        return OutOfResources(f"{doing}: {failure.reason} ({said})", public=public, reason=failure.reason)
    if failure.kind == "unknown":
        return ComputeFailed(f"{doing}: {said}", public=public, unknown=True)
    if isinstance(error, OSError):
        full = {"disk_full": True} if error.errno in (errno.ENOSPC, errno.EDQUOT) else {}
        return Unavailable(f"{doing}: {failure.reason} ({said})", public=public, reason=failure.reason, **full)
    return ComputeFailed(f"{doing}: {failure.reason} ({said})", public=public, reason=failure.reason)
