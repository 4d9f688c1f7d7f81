"""One row of one file, by its key: decoded here, without a query that would have to be planned.

What is small is decoded from few row groups, the key's columns first; of what is large, the engine's own reader
(`sql/lookup.py`) takes the pages that can hold the key.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.predicates import UNKNOWN, Compare, Predicate
from lithify.core.read_plan import Source
from lithify.core.snapshot import Snapshot
from lithify.errors import LithifyError
from lithify.files.footer_cache import Footers
from lithify.files.local_files import is_far
from lithify.files.open_parquet import corrupt
from lithify.files.parquet import completed
from lithify.sql.lookup import Lookup

# A lookup decodes so many bytes rather than have a query planned.
DECODED_BYTES_MAX = 2 * 2**20

_LOOKUP = Lookup()


def row_in(source: Source, snapshot: Snapshot, wanted: pa.Table, footers: Footers) -> pa.Table | None:
    """The row of a file with these values of the key, completed to all columns."""
    schema = snapshot.schema
    fixed = dict(source.constants)
    if any(name in fixed and fixed[name] != wanted.column(name)[0].as_py() for name in schema.key):
        return None
    inside = {name: wanted.column(name)[0] for name in schema.key if name not in fixed}
    near = not is_far(source.path, source.size_bytes)
    if near and inside and source.about_raw_bytes > _decoded_bytes_max(source) and _LOOKUP.can_read(source):
        columns = pa.schema([f for f in schema.columns if f.name not in fixed])
        try:
            found = _LOOKUP.rows(source.path, source.size_bytes, columns, inside)
        except LithifyError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            # The other way to read it says what is wrong with the file, if it is the file.
            found = _decoded(footers, source, snapshot, inside)
    else:
        found = _decoded(footers, source, snapshot, inside)
    return completed(found.slice(0, 1), schema.columns, fixed) if found.num_rows else None


def _decoded_bytes_max(source: Source) -> int:
    """More where a part of the footer is enough: DataFusion needs all of it, and the page index of every column."""
    return DECODED_BYTES_MAX if source.part is None else max(DECODED_BYTES_MAX, 2 * source.part.footer_bytes)


def _decoded(footers: Footers, source: Source, snapshot: Snapshot, key: Mapping[str, pa.Scalar]) -> pa.Table:
    """The rows with these values, from all rows of the row groups: first the key, and the rest where it is found."""
    try:
        opened = footers.open(source)
        present = opened.names
        columns = [name for name in snapshot.schema.names if name in present and name not in dict(source.constants)]
        with opened.file as file:
            for group in opened.groups:
                keys = file.read_row_group(group, columns=[name for name in key if name in present], use_threads=False)
                row = _row_of(keys, key)
                if row >= 0:
                    return file.read_row_group(group, columns=columns, use_threads=False).slice(row, 1)
            return snapshot.schema.columns.empty_table()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(source.path, error) from error


def equals(column: str, value: pa.Scalar) -> Predicate:
    try:
        return Compare(column, "=", value.as_py())
    except (ValueError, OverflowError):  # a moment beyond Python's calendar
        return UNKNOWN


def _row_of(rows: pa.Table, key: Mapping[str, pa.Scalar]) -> int:
    """Of the first row with these values, or -1."""
    mask = None
    for name, value in key.items():
        if name not in rows.column_names:
            return -1
        values = rows.column(name)
        equal = pc.equal(values if values.type == value.type else values.cast(value.type, safe=False), value)
        mask = equal if mask is None else pc.and_(mask, equal)
    return (0 if rows.num_rows else -1) if mask is None else int(pc.index(mask, True).as_py())


def row_with(rows: pa.Table, wanted: pa.Table) -> pa.Table | None:
    if not rows.num_rows:
        return None
    row = _row_of(rows, {name: wanted.column(name)[0] for name in wanted.column_names})
    return None if row < 0 else rows.slice(row, 1)
