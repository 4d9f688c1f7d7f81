"""What went wrong in DataFusion, in the project's own errors: with the damaged file, or what to do next."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import ComputeFailed, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.model.plans import Source
from lithify.serving.catalog import EmptyCatalog


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
        raise _translated(error, files) from error


_MISSING = re.compile(r"table '([^']*)' not found")


def _translated(error: BaseException, files: Sequence[Source]) -> LithifyError:
    text = str(error).replace("DataFusion error: ", "").strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if missing := _MISSING.search(first):
        # DataFusion completes a name by its catalog and, where there is none, by its schema.
        name = missing[1].removeprefix("lake.").removeprefix("main.")
        return NotFound(f"table {name} does not exist in this lake: `lithify tables` lists what does")
    reading = ("Parquet", "External error", "Object at location", "Object Store")
    if any(sign in first for sign in reading) and (broken := first_broken(files)) is not None:
        return Corruption(f"{broken} cannot be read as Parquet: restore this file from a copy ({first})")
    planning = (
        "SQL error",
        "Error during planning",
        "Schema error",
        "This feature is not implemented",
        "type_coercion",
        "Execution error: Unknown",
    )
    if any(sign in first for sign in planning):
        return InvalidRequest(f"the query is not accepted: {first}")
    return ComputeFailed(f"the query failed: {first}")


def first_broken(files: Sequence[Source]) -> str | None:
    for source in files:
        try:
            file = pq.ParquetFile(source.path, page_checksum_verification=True)
            for group in range(file.num_row_groups):
                file.read_row_group(group)
        except (pa.ArrowException, OSError, ValueError):
            return source.path
    return None
