"""Rows of base files by keys, without a query: where the key is one column of whole numbers, days or moments.

The engine asks a hash table about every row of the files. But files are sorted by their key more often than not, and
then a key is found by bisection: of each row group that may hold a key its column is decoded, looked at whether it
ascends, and searched. Ten million rows take 50 ms of one core so, and 240 ms through the engine. Where a column does
not ascend, each row of it is looked for among the keys.

That is all as long as nothing but the key is asked for, and what was decoded for it is kept (`kept_keys.py`). Other
columns are decoded for whole row groups here, and page by page by the engine, so many of them are left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lithify.core.column_types import Family, type_of
from lithify.core.distinct import distinct
from lithify.core.read_plan import Source
from lithify.files.footer_cache import Footers
from lithify.files.open_parquet import corrupt
from lithify.files.parquet import completed
from lithify.sql.kept_keys import Ascending, KeptKeys, Numbers, numbers_of
from lithify.sql.scan_memory import bring_most

# So much of row groups, uncompressed, may be decoded for columns besides the key.
OTHERS_RAW_BYTES_MAX = 16 * 2**20
# Fewer rows are looked through by one thread sooner than another one is awake.
ROWS_PER_THREAD_MIN = 500_000
_FAMILIES = (Family.INTEGER, Family.DATE, Family.TIMESTAMP)


class KeyRows:
    def __init__(self, footers: Footers, threads: int) -> None:
        self._footers, self._threads = footers, threads
        self._kept = KeptKeys()

    def rows(self, sources: Sequence[Source], keys: pa.Table, columns: pa.Schema) -> pa.Table | None:
        """The rows with one of these keys, in the order of the sources; None where the engine is the better one."""
        if not _can_find(sources, keys, columns):
            return None
        bring_most(sources)
        wanted = distinct(numbers_of(keys.column(0).combine_chunks()))
        name = keys.column_names[0]
        if self._threads < 2 or len(sources) < 2 or sum(source.rows for source in sources) < ROWS_PER_THREAD_MIN:
            parts = [self._in_file(source, name, wanted, columns) for source in sources]
        else:
            with ThreadPoolExecutor(min(self._threads, len(sources))) as pool:
                parts = list(pool.map(lambda source: self._in_file(source, name, wanted, columns), sources))
        return pa.concat_tables([columns.empty_table(), *(rows for part in parts for rows in part)])

    def _in_file(self, source: Source, key: str, wanted: Numbers, columns: pa.Schema) -> list[pa.Table]:
        field, constants = columns.field(key), dict(source.constants)
        alone = len(columns) == 1 and key not in constants
        try:
            if alone and (kept := self._kept.of(source, field)) is not None:
                return [_of_numbers(keys.among(wanted), field) for keys in kept]
            opened, found, seen = self._footers.open(source), list[pa.Table](), dict[int, Ascending]()
            with opened.file as file:
                for place, number in enumerate(opened.groups):
                    group = _Group(file, number, opened.names, constants)
                    keys = group.read(pa.schema([field])).column(0)
                    places = np.concatenate([np.empty(0, np.int64), *_places(keys, wanted)])
                    if len(places):
                        found.append(group.rows(columns, keys, field, places))
                    if alone and (ascending := Ascending.of(keys)) is not None:
                        seen[place if source.groups is None else source.groups[place]] = ascending
                count = file.num_row_groups if source.groups is None else None
            self._kept.keep(source, field, seen, count)
            return found
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(source.path, error) from error

    def forget(self) -> None:
        self._kept.forget()


class _Group(NamedTuple):
    file: pq.ParquetFile
    number: int
    names: frozenset[str]
    constants: dict[str, Any]

    def read(self, columns: pa.Schema) -> pa.Table:
        names = [name for name in columns.names if name in self.names and name not in self.constants]
        return completed(self.file.read_row_group(self.number, names, use_threads=False), columns, self.constants)

    def rows(self, columns: pa.Schema, keys: pa.ChunkedArray, key: pa.Field, places: Numbers) -> pa.Table:
        others, found = pa.schema([field for field in columns if field.name != key.name]), {key.name: keys}
        if others.names:
            rest = self.read(others)
            found |= dict(zip(rest.column_names, rest.columns, strict=True))
        return pa.table([found[name] for name in columns.names], schema=columns).take(pa.array(places))


def _places(column: pa.ChunkedArray, wanted: Numbers) -> Iterator[Numbers]:
    """Of the rows that have one of the wanted values, which are in order."""
    start = 0
    for chunk in column.chunks:
        there = np.flatnonzero(chunk.is_valid()) if chunk.null_count else None
        values = numbers_of(chunk.drop_null() if there is not None else chunk)
        found = _found(values, wanted)
        yield start + (found if there is None else there[found])
        start += len(chunk)


def _found(values: Numbers, wanted: Numbers) -> Numbers:
    if not len(values):
        return np.empty(0, np.int64)
    if bool((values[1:] >= values[:-1]).all()):
        near = wanted[np.searchsorted(wanted, values[0]) : np.searchsorted(wanted, values[-1], "right")]
        first, last = (np.searchsorted(values, near, side) for side in ("left", "right"))
        if bool((last - first <= 1).all()):
            return first[last > first].astype(np.int64)
        return np.concatenate([np.arange(*ends, dtype=np.int64) for ends in zip(first, last, strict=True)])
    line = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    return np.flatnonzero(wanted[line] == values) if len(wanted) else np.empty(0, np.int64)


def _of_numbers(values: Numbers, field: pa.Field) -> pa.Table:
    kind = field.type
    plain = kind if pa.types.is_integer(kind) else pa.int64() if kind.bit_width == 64 else pa.int32()
    column = pa.array(values, pa.int64()).cast(plain)
    return pa.table([column if plain == kind else column.view(kind)], schema=pa.schema([field]))


def _can_find(sources: Sequence[Source], keys: pa.Table, columns: pa.Schema) -> bool:
    if keys.num_columns != 1 or not keys.num_rows or keys.column_names[0] not in columns.names:
        return False
    if keys.column(0).null_count:  # which are equal to nulls
        return False
    kind = keys.schema.types[0]
    if type_of(kind).family not in _FAMILIES or kind != columns.field(keys.column_names[0]).type:
        return False
    if len(columns) == 1:
        return True
    sizes = [source.raw_bytes for source in sources]
    return None not in sizes and sum(size or 0 for size in sizes) <= OTHERS_RAW_BYTES_MAX
