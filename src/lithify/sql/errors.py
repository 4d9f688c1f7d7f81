"""What went wrong in DataFusion, in the project's own errors: with the damaged file, or what to do next."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from lithify.core.names import CATALOG
from lithify.core.read_plan import Source
from lithify.errors import ComputeFailed, Corruption, InvalidRequest, LimitExceeded, LithifyError, NotFound, Unavailable
from lithify.files.addresses import is_remote
from lithify.files.local_files import forget
from lithify.files.open_parquet import corrupt, open_file
from lithify.files.read_proof import Damaged, check_whole
from lithify.sql.empty_catalog import NAMESPACE, EmptyCatalog
from lithify.sql.far_times import converted


@contextlib.contextmanager
def translated_errors(catalog: EmptyCatalog | None = None, sources: Sequence[Source] = ()) -> Iterator[None]:
    try:
        yield
    except LithifyError:
        raise
    except BaseException as error:
        if catalog is not None and catalog.failure is not None:
            raise catalog.failure from error
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        plans = catalog.plans.values() if catalog is not None else ()
        files = [*sources, *(s for plan in plans for s in (*plan.clean, *plan.touched, *plan.changes))]
        raise _translated(error, files, catalog.plan_text if catalog is not None else "") from error


# The last one: a nested loop that was to go on from disk, and read nothing a second time.
_EXHAUSTED = ("Resources exhausted", "Not enough memory", "no data to spill")
_MISSING = re.compile(r"table '([^']*)' not found")


def is_exhausted(error: BaseException) -> bool:
    """Whether the engine has met the limit of its memory."""
    return any(sign in str(error) for sign in _EXHAUSTED)


def out_of_memory() -> LimitExceeded:
    return LimitExceeded(
        "the query needs more memory than it is given (query_memory_bytes_max): ask for less, or raise the limit",
        limit="memory",
    )


def _translated(error: BaseException, files: Sequence[Source], plan_text: str) -> LithifyError:
    text = str(error).replace("DataFusion error: ", "").strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if "Too many open files" in text:
        return Unavailable(
            "too many files are open to run the query: retry; if it stays so, raise the limit (ulimit -n)"
        )
    if missing := _MISSING.search(first):
        # DataFusion completes a name by its catalog and, where there is none, by its schema.
        name = missing[1].removeprefix(f"{CATALOG}.").removeprefix("main.")
        if name.count(".") == 2:
            catalog = name.partition(".")[0]
            return NotFound(
                f"table {name} does not exist: there is no catalog {catalog!r}; a lake is one catalog, {CATALOG!r}: "
                f"write {CATALOG}.namespace.table, or namespace.table"
            )
        return NotFound(f"table {name} does not exist in this lake: `lithify tables` lists what does", table=name)
    reading = ("Parquet", "External error", "Object at location", "Object Storage")
    if any(sign in first for sign in reading) and (damage := _damage(files, first)) is not None:
        return damage
    if is_exhausted(error):
        return out_of_memory()
    planning = (
        "SQL error",
        "Error during planning",
        "Schema error",
        "This feature is not implemented",
        "type_coercion",
        "Execution error: Unknown",
    )
    said = _said(text) or first
    if (told := _out_of_reach(said, plan_text)) is not None:
        return ComputeFailed(f"{told} ({said})", public=told)
    # A rule of the optimiser sees the text of the query and no rows: what it stops at are constants.
    if _RULE.match(first) or any(sign in first for sign in planning):
        return InvalidRequest(f"the query is not accepted: {said}")
    return ComputeFailed(f"the query failed: {said}", public=f"the query failed: {_without_values(said)}")


_NANOSECONDS = re.compile(r"to Timestamp\(ns|to Nanosecond|represented as nanoseconds|Timestamp -?\d+ out of range")
_FAR_APART = "Cannot cast to Interval(MonthDayNano)"


def _out_of_reach(said: str, plan_text: str) -> str | None:
    """What is told of a time that the engine has no nanoseconds for."""
    if _FAR_APART in said:
        return (
            "the query failed: two times are more than 292 years apart, and their difference stands beside an "
            "interval: add the interval to one of them instead (a < b + interval '1 day')"
        )
    if _NANOSECONDS.search(said) is None:
        return None
    columns = ", ".join(converted(plan_text)[:3]) or "what it works with"
    return (
        "the query failed: something in it takes no times before 1677 or after 2262: "
        f"write cast(… as timestamp) around the day, text or time (here: {columns})"
    )


_RULE = re.compile(r"(?:Optimizer|Analyzer) rule '\w+' failed|type_coercion$")
_MORE = re.compile(r"error: |Valid fields are |Did you mean ")
SAID_MAX = 600


# A condition of `delete_where` or `to_arrow` stands in a query of our own, over a table of this name.
_OF_A_CONDITION = f"{NAMESPACE}.t."


def _said(text: str) -> str:
    """The sentences that say what is wrong: of each cause the first line, and what is added below it."""
    causes = [cause.splitlines() for cause in text.split("\ncaused by\n") if cause.strip()]
    sentences = []
    for first, *below in (lines for lines in causes if not _RULE.match(lines[0])):
        more = [line.strip().removeprefix("error: ") for line in below if _MORE.match(line.strip())]
        sentences.append(" ".join([first.removesuffix("Syntax(").strip(), *more]))
    said = ": ".join(sentences).replace(_OF_A_CONDITION, "")
    return said if len(said) <= SAID_MAX else f"{said[: SAID_MAX - 3]}..."


# DataFusion's words at run time quote the value they stopped at.
_KINDS = (
    (re.compile(r"divide by zero", re.I), "it divides by zero"),
    (re.compile(r"overflow", re.I), "a number does not fit its type"),
    (re.compile(r"cast", re.I), "a value cannot be cast as the query asks"),
    (re.compile(r"pars(?:e|ing)", re.I), "a text cannot be read as the query asks"),
)


def _without_values(text: str) -> str:
    return next(
        (said for pattern, said in _KINDS if pattern.search(text)), "an operation on its values is not possible"
    )


def _damage(files: Sequence[Source], said: str) -> LithifyError | None:
    """What is wrong with the files of a scan that failed, if it is one of them."""
    try:
        for source in files:
            check_whole(source.path, source.size_bytes)
    except LithifyError as error:
        return error
    if (found := first_broken(files)) is None:
        return None
    broken, problem = found
    if isinstance(problem, InvalidRequest):  # it is encrypted, and nothing is wrong with it
        return problem
    public = f"{broken} cannot be read as Parquet: restore this file from a copy"
    kind = Damaged if is_remote(broken) else Corruption
    forget(broken)
    return kind(f"{public} ({said})", public=public, path=broken)


def first_broken(files: Sequence[Source]) -> tuple[str, LithifyError] | None:
    for source in files:
        try:
            file = open_file(source.path, source.size_bytes)
            for group in range(file.num_row_groups):
                file.read_row_group(group)
        except LithifyError as error:
            return source.path, error
        except (pa.ArrowException, OSError, ValueError) as error:
            return source.path, corrupt(source.path, error)
    return None
