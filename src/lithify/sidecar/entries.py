"""Entries from Parquet footers.

Bounds are taken by logical type, and only where they say something: see "Bounds" in docs/format.md. The footer is what
pyarrow has read of it; statistics whose order Parquet calls unreliable it leaves out already.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import Corruption
from lithify.model.group_stats import (
    ABSENT,
    DISTINCT_KNOWN,
    HAS_MAX,
    HAS_MIN,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    Kind,
    bytes_key,
    wide_decimal_bytes,
)
from lithify.sidecar.assembly import ColumnDraft, Draft, assemble
from lithify.sidecar.blocks import ColumnInfo
from lithify.sidecar.format import BOUND_BYTES_MAX, CODEC_OTHER, GROUPS_MAX, Array

NAN_FREE_KEY = b"lithify.nan_free"
# Writers that leave a byte bound out rather than cut it.
_WHOLE_BOUNDS = ("parquet-cpp-arrow", "parquet-mr")
_PHYSICAL = {
    name: number
    for number, name in enumerate(
        ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"]
    )
}
_CODECS = {
    name: number
    for number, name in enumerate(["UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"])
}
_ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}
_KEY_MASK = 2**64 - 1
_INT64 = range(-(2**63), 2**63)

# A bound as (sort key, whole value if the key does not hold it, exact); None: it says nothing.
Bound = tuple[int, bytes, bool] | None
ToBound = Callable[[Any, bool], Bound]


def entry_of(metadata: pq.FileMetaData, path: str, size_bytes: int) -> bytes:
    """What the sidecar keeps of one Parquet file: a block of one file. `path` is relative to the Delta table."""
    entries = Entries()
    entries.add(metadata, path, size_bytes)
    return entries.block()


def footer_of(raw: bytes) -> pq.FileMetaData:
    """A Parquet footer from its bytes, without the file around it."""
    try:
        return pq.read_metadata(io.BytesIO(b"".join([b"PAR1", raw, len(raw).to_bytes(4, "little"), b"PAR1"])))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corruption(f"a Parquet footer of {len(raw)} bytes cannot be read: {error}") from error


class Entries:
    """Gathers the footers of many files into one block."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._sizes: list[int] = []
        self._footer_bytes: list[int] = []
        self._group_end: list[int] = []
        self._group_rows: list[int] = []
        self._group_bytes: list[int] = []
        self._group_raw_bytes: list[int] = []
        self._columns: dict[ColumnInfo, _Column] = {}
        self._schemas: list[tuple[Any, bool, list[_Column]]] = []

    @property
    def files(self) -> int:
        return len(self._paths)

    @property
    def groups(self) -> int:
        return len(self._group_rows)

    def add(self, metadata: pq.FileMetaData, path: str, size_bytes: int) -> None:
        first = self.groups
        assert first + metadata.num_row_groups <= GROUPS_MAX
        columns = self._columns_of(metadata)
        nan_free = _nan_free(metadata)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            compressed = raw = 0
            for place, column in enumerate(columns):
                chunk = group.column(place)
                packed, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
                compressed += packed
                raw += unpacked
                column.add(first + number, chunk, packed, unpacked, nan_free)
            self._group_rows.append(group.num_rows)
            self._group_bytes.append(compressed)
            self._group_raw_bytes.append(raw)
        self._paths.append(path)
        self._sizes.append(size_bytes)
        self._footer_bytes.append(metadata.serialized_size)
        self._group_end.append(self.groups)

    def _columns_of(self, metadata: pq.FileMetaData) -> list[_Column]:
        """Files of one table mostly share one schema, which is looked at once."""
        schema = metadata.schema
        whole = str(metadata.created_by).startswith(_WHOLE_BOUNDS)
        for known, known_whole, columns in self._schemas:
            if whole == known_whole and schema.equals(known):
                return columns
        columns = []
        for place in range(len(schema)):
            described = schema.column(place)
            info = _info(described)
            kept = self._columns.get(info)
            if kept is None or kept.whole_bounds != whole:
                kept = _Column(info, whole) if kept is None else kept.with_whole_bounds(whole)
                self._columns.setdefault(info, kept)
            columns.append(kept)
        self._schemas.append((schema, whole, columns))
        return columns

    def block(self) -> bytes:
        return assemble(
            Draft(
                self._paths,
                self._sizes,
                self._footer_bytes,
                self._group_end,
                np.array(self._group_rows, np.uint64),
                np.array(self._group_bytes, np.uint64),
                np.array(self._group_raw_bytes, np.uint64),
                {info: column.draft(self.groups, self._group_rows) for info, column in self._columns.items()},
            )
        )


def _nan_free(metadata: pq.FileMetaData) -> frozenset[str]:
    try:
        return frozenset(json.loads((metadata.metadata or {}).get(NAN_FREE_KEY, b"[]")))
    except (ValueError, TypeError):  # another writer's idea of this key
        return frozenset()


class _Column:
    """What the footers say of one column, as lists with one item per row group that has it."""

    def __init__(self, info: ColumnInfo, whole_bounds: bool) -> None:
        self.info, self.whole_bounds = info, whole_bounds
        self._bound = _bounds(info, whole_bounds)
        self._groups: list[int] = []
        self._rows: list[tuple[int, ...]] = []
        self._ends: list[tuple[int, int]] = []
        self._heap: list[bytes] = []

    def with_whole_bounds(self, whole_bounds: bool) -> _Column:
        """The same lists, filled from footers of another writer."""
        other = _Column.__new__(_Column)
        other.__dict__.update(self.__dict__)
        other.whole_bounds, other._bound = whole_bounds, _bounds(self.info, whole_bounds)
        return other

    def add(self, group: int, chunk: Any, packed: int, unpacked: int, nan_free: frozenset[str]) -> None:
        flags = nulls = distinct = low = high = 0
        low_bytes = high_bytes = b""
        stats = chunk.statistics
        if stats is not None:
            if stats.has_null_count:
                flags |= NULLS_KNOWN
                nulls = stats.null_count
            if stats.has_distinct_count:
                flags |= DISTINCT_KNOWN
                distinct = stats.distinct_count
            if self._bound is not None and stats.has_min_max:
                lower, upper = self._bound(stats.min_raw, False), self._bound(stats.max_raw, True)
                if lower is not None:
                    low, low_bytes, exact = lower
                    flags |= HAS_MIN | MIN_EXACT if exact else HAS_MIN
                if upper is not None:
                    high, high_bytes, exact = upper
                    flags |= HAS_MAX | MAX_EXACT if exact else HAS_MAX
        if self.info.name in nan_free and self.info.kind is Kind.FLOAT:
            flags |= NAN_FREE
        first = chunk.data_page_offset
        # 0 in footers that have no dictionary page but say one all the same.
        if chunk.has_dictionary_page and 0 < (dictionary := chunk.dictionary_page_offset) < first:
            first = dictionary
        self._groups.append(group)
        self._rows.append(
            (
                flags,
                low & _KEY_MASK,
                high & _KEY_MASK,
                nulls,
                first,
                packed,
                unpacked,
                chunk.num_values,
                distinct,
                _CODECS.get(chunk.compression, CODEC_OTHER),
                _encodings(chunk.encodings),
                chunk.bloom_filter_offset or 0,
                chunk.bloom_filter_length or 0,
            )
        )
        self._heap += (low_bytes, high_bytes)
        self._ends.append((len(low_bytes), len(high_bytes)))

    _ARRAYS = (
        Array.FLAGS,
        Array.LOW,
        Array.HIGH,
        Array.NULLS,
        Array.OFFSET,
        Array.BYTES,
        Array.RAW_BYTES,
        Array.VALUES,
        Array.DISTINCT,
        Array.CODEC,
        Array.ENCODINGS,
        Array.BLOOM_OFFSET,
        Array.BLOOM_BYTES,
    )

    def draft(self, groups: int, group_rows: list[int]) -> ColumnDraft:
        table = np.array(self._rows, np.uint64).reshape(len(self._rows), len(self._ARRAYS))
        lengths = np.array(self._ends, np.uint64).reshape(len(self._ends), 2)
        if len(self._groups) == groups:
            arrays = {array: table[:, place] for place, array in enumerate(self._ARRAYS)}
        else:
            arrays = {}
            for place, array in enumerate(self._ARRAYS):
                values = np.full(groups, ABSENT if array is Array.FLAGS else 0, np.uint64)
                if array is Array.VALUES:
                    values[:] = group_rows
                values[self._groups] = table[:, place]
                arrays[array] = values
            wide = np.zeros((groups, 2), np.uint64)
            wide[self._groups] = lengths
            lengths = wide
        bounds = b"".join(self._heap)
        if bounds:
            ends = np.cumsum(lengths.sum(axis=1), dtype=np.uint64)
            arrays |= {Array.LOW_END: ends - lengths[:, 1], Array.HIGH_END: ends}
        return ColumnDraft(arrays, bounds)


def _encodings(names: Iterable[str]) -> int:
    bits = 0
    for name in names:
        bits |= 1 << _ENCODINGS.get(name, 31)
    return bits


# -- columns


def _info(described: Any) -> ColumnInfo:
    name, physical = described.path, _PHYSICAL.get(described.physical_type, 255)
    nested = "." in name or described.max_repetition_level > 0
    logical = described.logical_type.type
    kind, scale, precision = _kind(described, logical)
    unit = 0
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_UTC):
        unit = {"milliseconds": 3, "microseconds": 6, "nanoseconds": 9}[_details(described)["timeUnit"]]
    return ColumnInfo(name, kind, physical, scale or unit, precision, nested)


def _details(described: Any) -> dict[str, Any]:
    details: dict[str, Any] = json.loads(described.logical_type.to_json())
    return details


def _kind(described: Any, logical: str) -> tuple[Kind, int, int]:
    physical = described.physical_type
    match logical:
        case "NONE":
            plain = {
                "BOOLEAN": Kind.BOOLEAN,
                "INT32": Kind.SIGNED,
                "INT64": Kind.SIGNED,
                "FLOAT": Kind.FLOAT,
                "DOUBLE": Kind.FLOAT,
                "BYTE_ARRAY": Kind.BINARY,
                "FIXED_LEN_BYTE_ARRAY": Kind.BINARY,
            }
            return plain.get(physical, Kind.OTHER), 0, 0
        case "INT":
            return (Kind.SIGNED if _details(described)["isSigned"] else Kind.UNSIGNED), 0, 0
        case "DATE":
            return Kind.DATE, 0, 0
        case "TIMESTAMP" if physical == "INT64":
            return (Kind.TIMESTAMP_UTC if _details(described)["isAdjustedToUTC"] else Kind.TIMESTAMP), 0, 0
        case "STRING":
            return Kind.TEXT, 0, 0
        case "DECIMAL" if described.precision <= 38:
            kind = Kind.DECIMAL if described.precision <= 18 else Kind.WIDE_DECIMAL
            return kind, described.scale, described.precision
        case _:
            return Kind.OTHER, 0, 0


# -- bounds by kind


def _bounds(info: ColumnInfo, whole: bool) -> ToBound | None:
    if info.nested:
        return None
    match info.kind:
        case Kind.SIGNED | Kind.DATE | Kind.BOOLEAN:
            return lambda value, upper: (int(value), b"", True)
        case Kind.UNSIGNED:
            mask = 2**32 - 1 if info.physical == _PHYSICAL["INT32"] else _KEY_MASK
            return lambda value, upper: (value & mask, b"", True)
        case Kind.FLOAT:
            return _float
        case Kind.TIMESTAMP | Kind.TIMESTAMP_UTC:
            return {3: _milliseconds, 6: lambda value, upper: (value, b"", True), 9: _nanoseconds}[info.scale]
        case Kind.TEXT | Kind.BINARY:
            return _whole_bytes if whole else _cut_bytes
        case Kind.DECIMAL:
            return _decimal
        case Kind.WIDE_DECIMAL:
            return _wide_decimal
        case _:
            return None


def _float(value: float, upper: bool) -> Bound:
    if math.isnan(value):
        return None
    if value == 0:
        value = 0.0 if upper else -0.0
    return int(np.float64(value).view(np.uint64)), b"", value != 0


def _milliseconds(value: int, upper: bool) -> Bound:
    return (value * 1000, b"", True) if value * 1000 in _INT64 else None


def _nanoseconds(value: int, upper: bool) -> Bound:
    return -(-value // 1000) if upper else value // 1000, b"", False


def _decimal(value: int | bytes, upper: bool) -> Bound:
    unscaled = _unscaled(value)
    return (unscaled, b"", True) if unscaled in _INT64 else None


def _wide_decimal(value: int | bytes, upper: bool) -> Bound:
    try:
        whole = wide_decimal_bytes(_unscaled(value))
    except OverflowError:
        return None
    return bytes_key(whole), whole, True


def _unscaled(value: int | bytes) -> int:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value


def _whole_bytes(value: bytes, upper: bool) -> Bound:
    return _byte_bound(value, upper, True)


def _cut_bytes(value: bytes, upper: bool) -> Bound:
    return _byte_bound(value, upper, False)


def _byte_bound(value: bytes, upper: bool, exact: bool) -> Bound:
    if len(value) > BOUND_BYTES_MAX:
        exact, value = False, value[:BOUND_BYTES_MAX]
        if upper:
            value = value.rstrip(b"\xff")
            if not value:
                return None
            value = value[:-1] + bytes([value[-1] + 1])
    held = len(value) <= 8 and not value.endswith(b"\0")
    return bytes_key(value), b"" if held else value, exact
