"""Which statistics of a Parquet file can be believed, and what of them goes into the Delta log.

A bound says something only if the writer compared values as their type does. Old writers compared all bytes as signed
ones, and put what they found into fields that are deprecated since; footers with the newer fields state the order of
each column (`Footer.orders`). Signed numbers came out right either way. Text, binary and unsigned numbers are believed
where the order is stated. Decimals in bytes were compared wrongly by many writers that state the right order, so
only those of writers that are known to be right are believed. INT96 never is.

Files that Spark wrote in the old hybrid calendar have other days in their statistics than a reader finds.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple

import pyarrow as pa

from lithify.files.examine import check_foreign
from lithify.files.open_parquet import Footer, column_orders, footer_of, read_footer

STATS_TEXT_MAX = 64
# In files with one of these keys, Spark moves old dates and times to another calendar when it reads them.
_REBASED = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
_BYTES = frozenset({"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"})
_WRITER = re.compile(r"(.*?) version (\d+)\.(\d+)")
# Who compares decimals in bytes as numbers, from which version on, and in which physical types.
_DECIMALS_RIGHT: dict[str, tuple[tuple[int, int], frozenset[str]]] = {
    "parquet-mr": ((1, 10), _BYTES),
    "parquet-cpp-arrow": ((4, 0), _BYTES),
    "parquet-rs": ((13, 0), frozenset({"FIXED_LEN_BYTE_ARRAY"})),
}
# Who states the order and did not keep to it: texts by length, unsigned numbers as signed ones.
_ORDER_WRONG = {"parquet-rs": (13, 0)}
# The end of a footer of a writer that is right about everything, before its column orders.
_RIGHT_WRITER = re.compile(rb"(parquet-mr|parquet-cpp-arrow) version (\d+)\.(\d+)[ -~]*\Z")
FOREIGN_CACHED_MAX = 100_000


def believed(footer: Footer) -> tuple[bool, ...]:
    """Of each leaf, whether its bounds are in the order of its type."""
    schema, notes = footer.metadata.schema, footer.metadata.metadata or {}
    return _believed(_Schema(schema), footer.orders, str(footer.metadata.created_by), not _REBASED.isdisjoint(notes))


class _Schema:
    """A Parquet schema that can be looked up: files of one table mostly share one."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return len(self.schema)  # names would take longer than to compare the few schemas of a table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Schema) and bool(self.schema.equals(other.schema))


@lru_cache(maxsize=64)
def _believed(schema: _Schema, orders: bytes, created_by: str, rebased: bool) -> tuple[bool, ...]:
    leaves = [schema.schema.column(column_index) for column_index in range(len(schema.schema))]
    stated = [bool(order) for order in orders] or [False] * len(leaves)
    return tuple(
        _order_known(leaf, known, _writer(created_by)) and not (rebased and _is_calendar(leaf))
        for leaf, known in zip(leaves, stated, strict=True)
    )


def _writer(created_by: str) -> tuple[str, tuple[int, int]]:
    found = _WRITER.match(created_by)
    return (found[1], (int(found[2]), int(found[3]))) if found else (created_by, (0, 0))


def _order_known(leaf: Any, stated: bool, writer: tuple[str, tuple[int, int]]) -> bool:
    application, version = writer
    physical, logical = leaf.physical_type, leaf.logical_type.type
    if physical == "INT96":
        return False
    if physical not in _BYTES and not _is_unsigned(leaf):
        return True
    if logical == "DECIMAL":
        first, kinds = _DECIMALS_RIGHT.get(application, ((0, 0), frozenset()))
        return stated and physical in kinds and version >= first
    return stated and version >= _ORDER_WRONG.get(application, (0, 0))


def _is_unsigned(leaf: Any) -> bool:
    return leaf.logical_type.type == "INT" and not json.loads(leaf.logical_type.to_json())["isSigned"]


def _is_calendar(leaf: Any) -> bool:
    return leaf.logical_type.type in ("DATE", "TIMESTAMP")


@lru_cache(maxsize=FOREIGN_CACHED_MAX)
def doubtful(path: str, size_bytes: int) -> bool:
    """Whether an engine that believes every statistic must not see those of this file, which somebody else wrote."""
    raw = read_footer(path, size_bytes)
    orders, before = column_orders(raw)
    right = _RIGHT_WRITER.search(before[-256:])
    if orders and all(orders) and right:
        first, _ = _DECIMALS_RIGHT[right[1].decode()]
        if (int(right[2]), int(right[3])) >= first:
            return False
    footer = footer_of(raw, path)
    schema = footer.metadata.schema
    leaves = [schema.column(column_index) for column_index, known in enumerate(believed(footer)) if not known]
    return any(leaf.physical_type in _BYTES or _is_unsigned(leaf) for leaf in leaves)


class Range(NamedTuple):
    """Of a column in one row group; `nulls` is None where their number is not known."""

    low: Any
    high: Any
    nulls: int | None


def ranges_of(path: PurePath, column: str, size_bytes: int | None = None) -> list[Range] | None:
    """Of each row group of a file; None where its footer does not say or is not believed."""
    check_foreign([(str(path), size_bytes)])
    footer = footer_of(read_footer(path, size_bytes), path)
    metadata = footer.metadata
    column_index = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column), None)
    if column_index is None or not believed(footer)[column_index]:
        return None
    chunks = [metadata.row_group(number).column(column_index).statistics for number in range(metadata.num_row_groups)]
    if any(chunk is None or not chunk.has_min_max for chunk in chunks):
        return None
    try:
        return [Range(chunk.min, chunk.max, chunk.null_count if chunk.has_null_count else None) for chunk in chunks]
    except (OverflowError, ValueError):  # a moment beyond Python's calendar
        return None


def stats_json(footer: Footer, schema: pa.Schema, columns: Sequence[str]) -> str:
    """Delta's statistics for one file. Bounds are left out where they would not be exact enough to prune by."""
    metadata, known = footer.metadata, believed(footer)
    column_indices = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    minimum: dict[str, Any] = {}
    maximum: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column_index = column_indices.get(name)
        if column_index is None or schema.get_field_index(name) < 0:
            continue
        chunks = [metadata.row_group(g).column(column_index).statistics for g in range(metadata.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        if not known[column_index] or len(bounded) < sum(chunk.num_values > 0 for chunk in chunks) or not bounded:
            continue
        try:
            low = _bound(min(chunk.min for chunk in bounded), schema.field(name).type, upper=False)
            high = _bound(max(chunk.max for chunk in bounded), schema.field(name).type, upper=True)
        except (OverflowError, ValueError):  # a moment beyond Python's calendar
            continue
        if low is not None and high is not None:
            minimum[name], maximum[name] = low, high
    stats = {"numRecords": metadata.num_rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls}
    # Raw UTF-8: deltalake misreads characters outside the basic plane when they are escaped.
    return json.dumps(stats, ensure_ascii=False)


def _bound(value: Any, kind: pa.DataType, *, upper: bool) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) or math.isinf(value) else value
    if isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        if len(value) <= STATS_TEXT_MAX:
            return value
        return value[:STATS_TEXT_MAX] + ("\U0010ffff" if upper else "")
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if kind.tz else "") if value.year >= 1000 else None
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        # JSON numbers pass through a double on the way: beyond 15 digits the bound would not be exact.
        return float(value) if len(value.as_tuple().digits) <= 15 else None
    return None
