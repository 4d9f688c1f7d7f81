"""The surviving row groups of a plan, read into memory.

Worth it where little is left: no folder of links, no listing, no second look at footers. From about 100,000 rows on the
engine's own scan takes less processor time, and half of it for a million. Of a lake in a bucket more is read this way:
blocks of an object instead of all of it, and copies whose pages are verified. A row group may survive its
statistics and still hold no wanted row, so the columns of the predicate are read first, and the others only of the row
groups where some row may match; of those few rows are handed on where few match.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.core.column_types import Family, type_of
from lithify.core.predicates import And, Compare, In, IsNull, Or, Predicate, Prefix, both, columns_of
from lithify.core.read_plan import ReadPlan, Source
from lithify.core.schema import nullable
from lithify.files.addresses import is_remote
from lithify.files.footer_cache import Footers
from lithify.files.local_files import bring, is_far
from lithify.files.open_parquet import corrupt
from lithify.files.parquet import completed
from lithify.merge.apply import standing

RAW_BYTES_MAX = 4 * 2**20
BUCKET_RAW_BYTES_MAX = 64 * 2**20
ROWS_BYTES_MAX = 256 * 2**20
FILES_MAX = 1_000
# Less than this is read faster by one thread than it takes to wake another.
RAW_BYTES_PER_THREAD = 2 * 2**20
# Less than this is not worth two visits, one for the predicate's columns and one for the others.
RAW_BYTES_AT_ONCE = 512 * 2**10
# Rows are picked out where at most one in so many may match.
PICKED_SHARE = 8
# Of a file in a bucket so small a share is read from blocks of it.
LITTLE_SHARE = 4


def fits_memory(plan: ReadPlan) -> bool:
    """Whether what the plan leaves is known to be small. A merge that is not resolved yet needs every row."""
    standing = (*plan.clean, *plan.touched)
    if plan.overlay is None or len(standing) > FILES_MAX:
        return False
    total = 0
    for source in standing:
        if source.raw_bytes is None:
            return False
        total += source.raw_bytes
    in_bucket = plan.copied or any(is_remote(source.path) for source in standing)
    return total <= (BUCKET_RAW_BYTES_MAX if in_bucket else RAW_BYTES_MAX)


def bring_most(sources: Sequence[Source]) -> None:
    """All but what little is read of: of that, no more than its row groups is brought when they are read."""
    bring((source.path, source.size_bytes) for source in sources if not _little_of(source))


def _little_of(source: Source) -> bool:
    is_little = source.raw_bytes is not None and source.raw_bytes * LITTLE_SHARE <= source.size_bytes
    return is_little and is_far(source.path, source.size_bytes)


class GroupReader:
    """Reads row groups; keeps the footers of the files it read last, or the parts of them that it needed."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        self.footers = Footers()

    def read(self, sources: Sequence[Source], columns: pa.Schema, predicate: Predicate) -> pa.Table:
        """Rows of the sources' row groups that may satisfy the predicate, in the order of the sources. Raises TooLarge
        if they turn out to be too many.
        """
        bring_most(sources)
        raw_bytes = sum(source.raw_bytes or 0 for source in sources)
        visit = _Visit(columns, predicate, at_once=raw_bytes <= RAW_BYTES_AT_ONCE)
        if len(sources) < 2 or raw_bytes < RAW_BYTES_PER_THREAD or self._threads < 2:
            visit.use_threads = raw_bytes >= RAW_BYTES_PER_THREAD
            parts = [self._read(source, visit) for source in sources]
        else:
            with ThreadPoolExecutor(min(self._threads, len(sources))) as pool:
                parts = list(pool.map(lambda source: self._read(source, visit), sources))
        return pa.concat_tables([columns.empty_table(), *(table for part in parts for table in part)])

    def _read(self, source: Source, visit: _Visit) -> list[pa.Table]:
        try:
            opened = self.footers.open(source)
            with opened.file as file:
                found = (visit.rows(file, group, opened.names, dict(source.constants)) for group in opened.groups)
                return [rows for rows in found if rows is not None]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(source.path, error) from error


class TooLarge(Exception):
    """What was small in its files is not in memory: values that repeat take no room there."""


class _Visit:
    """How every row group of one read is read."""

    def __init__(self, columns: pa.Schema, predicate: Predicate, *, at_once: bool) -> None:
        self._columns, self._predicate = columns, predicate
        asked = columns_of(predicate)
        self._tested = bool(asked) and asked <= set(columns.names)
        first = columns.names if at_once or not self._tested else asked
        self._first = pa.schema([f for f in columns if f.name in first])
        self._rest = pa.schema([f for f in columns if f.name not in first])
        self._lock = threading.Lock()
        self._bytes_left = ROWS_BYTES_MAX
        self.use_threads = False

    def rows(
        self, file: pq.ParquetFile, group: int, known: frozenset[str], constants: dict[str, Any]
    ) -> pa.Table | None:
        """The rows of one row group that may be wanted, None if there are none."""

        def read(wanted: pa.Schema) -> pa.Table:
            names = [name for name in wanted.names if name in known and name not in constants]
            return completed(file.read_row_group(group, names, use_threads=self.use_threads), wanted, constants)

        rows = read(self._first)
        mask = rows_that_may_match(self._predicate, rows) if self._tested else None
        picked = pc.indices_nonzero(mask.fill_null(False)) if mask is not None else None
        if picked is not None and not len(picked):
            return None
        if self._rest.names:
            rows = _beside(rows, read(self._rest), self._columns)
        if picked is not None and len(picked) * PICKED_SHARE <= rows.num_rows:
            rows = rows.take(picked)
        self._count(rows.nbytes)
        return rows

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes_left -= size_bytes
            if self._bytes_left < 0:
                raise TooLarge


def rows_in_memory(reader: GroupReader, plan: ReadPlan, names: Sequence[str], predicate: Predicate) -> pa.Table:
    """The fresh rows of a table that may satisfy the predicate, of these columns: `scan_files` for a small plan. Raises
    TooLarge if it is not small after all.
    """
    overlay = plan.overlay
    assert overlay is not None
    if (cutoff := plan.snapshot.cutoff) is not None:
        wanted_too = list(dict.fromkeys([*names, cutoff.column]))
        shown = replace(plan, snapshot=plan.snapshot.unhidden)
        rows = rows_in_memory(reader, shown, wanted_too, both((predicate, cutoff.shown)))
        return cutoff.standing(rows).select(list(names))
    columns = nullable(plan.schema.select(names))
    bring_most((*plan.clean, *plan.touched))
    parts = [reader.read(plan.clean, columns, predicate)]
    if plan.touched:
        by = plan.by if overlay.hidden.num_rows else ()
        wanted = nullable(plan.schema.select(list(dict.fromkeys([*names, *by]))))
        rows = reader.read(plan.touched, wanted, predicate)
        parts.append(standing(rows, overlay.hidden, by).select(list(names)))
    parts.append(overlay.rows.select(list(names)).cast(columns))
    return pa.concat_tables(parts)


def _beside(left: pa.Table, right: pa.Table, columns: pa.Schema) -> pa.Table:
    return pa.table([left.column(n) if n in left.column_names else right.column(n) for n in columns.names], columns)


# -- which rows can satisfy a predicate: False only with proof, as for row groups

# The query itself decides afterwards which rows do. So NaN is kept wherever an order is asked for, zeros of both signs
# count as one, and a constant that does not fit the column exactly keeps everything. None stands for a mask that keeps
# every row.
_TESTS: dict[str, Callable[[Any, Any], pa.ChunkedArray]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WITH_EQUAL = {"<": "<=", ">": ">="}


def rows_that_may_match(predicate: Predicate, rows: pa.Table) -> pa.ChunkedArray | None:
    """True, or false or null where the predicate is not TRUE. `rows` has every column of the predicate."""
    match predicate:
        case And(parts):
            known = [mask for part in parts if (mask := rows_that_may_match(part, rows)) is not None]
            return _joined(known, pc.and_kleene)
        case Or(parts):
            masks = [rows_that_may_match(part, rows) for part in parts]
            understood = [mask for mask in masks if mask is not None]
            return _joined(understood, pc.or_kleene) if len(understood) == len(masks) else None
        case Compare(column, op, value):
            return _compared(rows.column(column), op, value)
        case In(column, values, negated=False):
            return _among(rows.column(column), values)
        case IsNull(column, negated):
            return pc.is_valid(rows.column(column)) if negated else pc.is_null(rows.column(column))
        case Prefix(column, prefix):
            return _prefixed(rows.column(column), prefix)
        case _:
            return None


def _joined(masks: Sequence[pa.ChunkedArray], join: Callable[[Any, Any], Any]) -> pa.ChunkedArray | None:
    whole = None
    for mask in masks:
        whole = mask if whole is None else join(whole, mask)
    return whole


def _compared(column: pa.ChunkedArray, op: str, value: Any) -> pa.ChunkedArray | None:
    constant = _constant(column.type, value)
    if constant is None:
        return None
    if type_of(column.type).family is not Family.FLOAT:
        return _TESTS[op](column, constant)
    if op == "<>":
        return None
    column = column.cast(pa.float64())
    test = _TESTS[op if value else _WITH_EQUAL.get(op, op)](column, constant)
    return test if op == "=" else pc.or_kleene(test, pc.is_nan(column))


def _among(column: pa.ChunkedArray, values: Sequence[Any]) -> pa.ChunkedArray | None:
    # NULL is equal to nothing, not even to itself.
    given = [value for value in values if value is not None]
    known = [constant for value in given if (constant := _constant(column.type, value)) is not None]
    if len(known) < len(given) or type_of(column.type).family is Family.FLOAT:
        return None
    return pc.is_in(column, value_set=pa.array([constant.as_py() for constant in known], column.type))


def _prefixed(column: pa.ChunkedArray, prefix: str | bytes) -> pa.ChunkedArray | None:
    return pc.starts_with(column, pattern=prefix) if type_of(column.type).python is type(prefix) else None


def _constant(kind: pa.DataType, value: Any) -> pa.Scalar | None:
    """The very value in the column's type (floats: in 64 bits), or None if there is no such thing."""
    known, given = type_of(kind), type(value)
    if known.family is Family.FLOAT:
        fits = given in (int, float) and not math.isnan(value) and _is_double(value)
        return pa.scalar(float(value), pa.float64()) if fits else None
    decimal = known.family is Family.DECIMAL
    if given is not known.python and not (decimal and given is int):
        return None
    if known.family is Family.TIMESTAMP and (value.tzinfo is None) != (kind.tz is None):
        return None
    try:
        return pa.scalar(Decimal(value) if decimal else value, kind)
    except (pa.ArrowException, ValueError, OverflowError):  # out of range, or more digits than the column has
        return None


def _is_double(value: float) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False
