"""Entries from Parquet footers.

Bounds are taken by logical type, and only where they say something: see "Bounds" in docs/format.md. Whether they are in
the order of their type is for `files/statistics.py` to say.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lithify.errors import Corruption
from lithify.files.footer_parts import group_extents
from lithify.files.open_parquet import Footer
from lithify.files.parquet import NAN_FREE as NAN_FREE_NOTE
from lithify.files.statistics import believed
from lithify.index.block import ColumnInfo
from lithify.index.block_builder import U64, ColumnDraft, Draft, assemble
from lithify.index.format import BOUND_BYTES_MAX, CHUNK_ARRAYS, CODEC_OTHER, GROUPS_MAX, Array
from lithify.index.sort_orders import sort_number
from lithify.index.stats import (
    ABSENT,
    DISTINCT_KNOWN,
    HAS_MAX,
    HAS_MIN,
    KEY_BYTES,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    Kind,
    bytes_key,
    wide_decimal_bytes,
)

NAN_FREE_KEY = NAN_FREE_NOTE.encode()
# Who leaves a byte bound out rather than cut it. parquet-mr cuts them where it is told to, and footers do not show it.
_WHOLE_BOUNDS = "parquet-cpp-arrow"
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
_INT64 = range(-(2**63), 2**63)


# A column, whether it has no NaN in this file, and whether its bounds there can be used.
_Told = tuple["_Column", bool, bool]


def entry_of(footer: Footer, path: str, size_bytes: int, tag: int = 0) -> bytes:
    """What the index keeps of one Parquet file: a block of one file. `path` is relative to the Delta table."""
    entries = Entries()
    entries.add(footer, path, size_bytes, tag)
    return entries.block()


class Entries:
    """Gathers the footers of many files into one block."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._sizes: list[int] = []
        self._tags: list[int] = []
        self._footer_bytes: list[int] = []
        self._group_end: list[int] = []
        self._group_rows: list[int] = []
        self._group_bytes: list[int] = []
        self._group_raw_bytes: list[int] = []
        self._extents: list[tuple[int, int]] = []
        self._columns: dict[ColumnInfo, _Column] = {}
        self._schemas: list[tuple[Any, bytes, tuple[bool, ...], list[_Told]]] = []

    @property
    def files(self) -> int:
        return len(self._paths)

    @property
    def groups(self) -> int:
        return len(self._group_rows)

    def add(self, footer: Footer, path: str, size_bytes: int, tag: int = 0) -> None:
        """`tag`: of the file as it was read (`whole.tag_of`). Raises Corruption for a footer that makes no sense, and
        is then as it was before.
        """
        first = self.groups
        try:
            self._add(footer, path, size_bytes, tag)
        except (ValueError, OverflowError) as error:
            for numbers in (self._group_rows, self._group_bytes, self._group_raw_bytes):
                del numbers[first:]
            for column in self._columns.values():
                column.cut(first)
            raise Corruption(f"the Parquet footer of {path} makes no sense: {error}", path=path) from error

    def _add(self, footer: Footer, path: str, size_bytes: int, tag: int) -> None:
        first, metadata = self.groups, footer.metadata
        assert first + metadata.num_row_groups <= GROUPS_MAX
        whole = str(metadata.created_by).startswith(_WHOLE_BOUNDS)
        notes = metadata.metadata or {}
        columns = self._columns_of(metadata.schema, notes.get(NAN_FREE_KEY, b""), believed(footer))
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            rows, compressed, raw = group.num_rows, 0, 0
            sorts = _sorts(group.sorting_columns)
            for column_index, (column, nan_free, bounded) in enumerate(columns):
                chunk = group.column(column_index)
                if not column.info.nested and chunk.num_values != rows:
                    raise ValueError(f"{column.info.name!r} has {chunk.num_values} values for {rows} rows")
                packed, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
                compressed += packed
                raw += unpacked
                sort = sorts.get(column_index, 0)
                column.add(first + number, chunk, packed, unpacked, nan_free, bounded, whole, sort)
            self._group_rows.append(rows)
            self._group_bytes.append(compressed)
            self._group_raw_bytes.append(raw)
        self._paths.append(path)
        self._sizes.append(size_bytes)
        self._tags.append(tag)
        self._footer_bytes.append(metadata.serialized_size)
        self._group_end.append(self.groups)
        self._extents += group_extents(footer.raw, metadata) or [(0, 0)] * metadata.num_row_groups

    def _columns_of(self, schema: Any, nan_free: bytes, bounded: tuple[bool, ...]) -> list[_Told]:
        """Files of one table mostly share one schema, which is looked at once. `bounded`: the leaves with bounds."""
        for known, *same, columns in self._schemas:
            if same == [nan_free, bounded] and schema.equals(known):
                return columns
        infos = [_info(schema.column(number)) for number in range(len(schema))]
        times, free = Counter(infos), _names(nan_free)
        columns = []
        for info, believable in zip(infos, bounded, strict=True):
            # Of two columns of one name nobody can say which a reader takes: it is as if the file lacked them.
            column = self._columns.setdefault(info, _Column(info)) if times[info] == 1 else _Column(info)
            columns.append((column, info.kind is Kind.FLOAT and info.name in free, believable))
        self._schemas.append((schema, nan_free, bounded, columns))
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
                self._tags,
                [offset for offset, _ in self._extents],
                [length for _, length in self._extents],
            )
        )


def _names(nan_free: bytes) -> frozenset[str]:
    try:
        return frozenset(json.loads(nan_free or b"[]"))
    except (ValueError, TypeError):  # another writer's idea of this key
        return frozenset()


class _Column:
    """What the footers say of one column, with one item per row group that has it.

    This is the inner loop of building an index: bounds that are numbers are gathered as they are and turned into sort
    keys all at once.
    """

    _ARRAYS: tuple[Array, ...] = tuple(array for array in CHUNK_ARRAYS if array not in (Array.LOW, Array.HIGH))

    def __init__(self, info: ColumnInfo) -> None:
        self.info = info
        self.bounds = None if info.nested else _BOUNDS.get(info.kind, _NumberBounds)(info)
        self._groups = array("L")
        self._numbers = array("Q")

    def add(
        self, group: int, chunk: Any, packed: int, unpacked: int, nan_free: bool, bounded: bool, whole: bool, sort: int
    ) -> None:
        flags = nulls = distinct = 0
        stats = chunk.statistics
        if stats is not None:
            if stats.has_null_count:
                flags = NULLS_KNOWN
                nulls = stats.null_count
            if stats.has_distinct_count:
                flags |= DISTINCT_KNOWN
                distinct = stats.distinct_count
        if self.bounds is not None:
            if bounded and stats is not None and stats.has_min_max:
                flags |= self.bounds.add(stats.min_raw, stats.max_raw, whole)
            else:
                self.bounds.add_none()
        if nan_free:
            flags |= NAN_FREE
        first = chunk.data_page_offset
        # Footers without a dictionary page may give one the offset 0.
        if chunk.has_dictionary_page and 0 < (dictionary := chunk.dictionary_page_offset) < first:
            first = dictionary
        self._groups.append(group)
        self._numbers.extend(
            (
                flags,
                nulls,
                first,
                packed,
                unpacked,
                chunk.num_values,
                distinct,
                _CODECS.get(chunk.compression, CODEC_OTHER),
                _encodings_of(chunk.encodings),
                chunk.bloom_filter_offset or 0,
                chunk.bloom_filter_length or 0,
                sort,
            )
        )

    def cut(self, first: int) -> None:
        """Forget the row groups from this one on."""
        count = bisect_left(self._groups, first)
        del self._groups[count:]
        del self._numbers[count * len(self._ARRAYS) :]
        if self.bounds is not None:
            self.bounds.cut(count)

    def draft(self, groups: int, group_rows: list[int]) -> ColumnDraft:
        table = np.frombuffer(self._numbers, np.uint64).reshape(-1, len(self._ARRAYS))
        arrays = {array: table[:, number] for number, array in enumerate(self._ARRAYS)}
        heap = b""
        if self.bounds is not None:
            arrays |= self.bounds.keys()
            lengths, heap = self.bounds.heap()
        if len(self._groups) < groups:
            arrays = {array: self._spread(values, array, groups, group_rows) for array, values in arrays.items()}
        if heap:
            if len(self._groups) < groups:
                wide = np.zeros((groups, 2), np.uint64)
                wide[np.array(self._groups)] = lengths
                lengths = wide
            ends = np.cumsum(lengths.sum(axis=1), dtype=np.uint64)
            arrays |= {Array.LOW_END: ends - lengths[:, 1], Array.HIGH_END: ends}
        return ColumnDraft(arrays, heap)

    def _spread(self, values: U64, array: Array, groups: int, group_rows: list[int]) -> U64:
        """Over all row groups, of which some files lack this column."""
        if array is Array.VALUES:
            spread = np.array(group_rows, np.uint64)
        else:
            spread = np.full(groups, ABSENT if array is Array.FLAGS else 0, np.uint64)
        spread[np.array(self._groups)] = values
        return spread


@lru_cache(maxsize=64)
def _sorts(order: tuple[Any, ...]) -> dict[int, int]:
    """Of the leaves that the rows of a row group are sorted by, as the footer numbers them."""
    return {
        column.column_index: sort_number(rank, descending=column.descending, nulls_first=column.nulls_first)
        for rank, column in enumerate(order)
    }


@cache
def _encodings_of(names: tuple[str, ...]) -> int:
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

Heap = tuple[npt.NDArray[np.uint64], bytes]


class _NumberBounds:
    """Integers of any kind, dates, booleans, decimals of up to 18 digits, timestamps."""

    def __init__(self, info: ColumnInfo) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: Any, high: Any, whole: bool) -> int:
        """Flags that say what is known. Bounds the wrong way round are somebody's mistake, and say nothing."""
        if low > high:
            self.add_none()
            return 0
        self._lows.append(low)
        self._highs.append(high)
        return HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT

    def add_none(self) -> None:
        self._lows.append(0)
        self._highs.append(0)

    def cut(self, count: int) -> None:
        del self._lows[count:], self._highs[count:]

    def keys(self) -> dict[Array, U64]:
        return {Array.LOW: self._keys(self._lows), Array.HIGH: self._keys(self._highs)}

    def _keys(self, values: list[int]) -> U64:
        return np.array(values, np.int64).view(np.uint64)

    def heap(self) -> Heap:
        return np.zeros((0, 2), np.uint64), b""


class _UnsignedBounds(_NumberBounds):
    """pyarrow hands the physical value over, which is signed."""

    def __init__(self, info: ColumnInfo) -> None:
        super().__init__(info)
        self._mask = 2**32 - 1 if info.physical == _PHYSICAL["INT32"] else 2**64 - 1

    def add(self, low: Any, high: Any, whole: bool) -> int:
        return super().add(low & self._mask, high & self._mask, whole)

    def _keys(self, values: list[int]) -> U64:
        return np.array(values, np.uint64)


class _TimestampBounds(_NumberBounds):
    def __init__(self, info: ColumnInfo) -> None:
        super().__init__(info)
        self._unit = info.scale

    def add(self, low: Any, high: Any, whole: bool) -> int:
        if self._unit == 6:
            return super().add(low, high, whole)
        if self._unit == 9:
            return super().add(low // 1000, -(-high // 1000), whole) & (HAS_MIN | HAS_MAX)
        if low * 1000 in _INT64 and high * 1000 in _INT64:
            return super().add(low * 1000, high * 1000, whole)
        self.add_none()
        return 0


class _FloatBounds(_NumberBounds):
    def add(self, low: Any, high: Any, whole: bool) -> int:
        if not low <= high:  # or one of them is NaN
            self.add_none()
            return 0
        # Which of the two zeros it was, nobody knows.
        flags = HAS_MIN | HAS_MAX | (MIN_EXACT if low else 0) | (MAX_EXACT if high else 0)
        super().add(low or -0.0, high or 0.0, whole)
        return flags

    def _keys(self, values: list[int]) -> U64:
        return np.array(values, np.float64).view(np.uint64)


class _DecimalBounds(_NumberBounds):
    def add(self, low: Any, high: Any, whole: bool) -> int:
        low, high = _unscaled(low), _unscaled(high)
        if low in _INT64 and high in _INT64:
            return super().add(low, high, whole)
        self.add_none()
        return 0


class _ByteBounds(_NumberBounds):
    """Text and binary: keys of the first bytes, and what they do not hold in the heap."""

    def __init__(self, info: ColumnInfo) -> None:
        super().__init__(info)
        self._lengths = array("Q")
        self._parts: list[bytes] = []

    def add(self, low: Any, high: Any, whole: bool) -> int:
        if low > high:
            self.add_none()
            return 0
        exact_low = exact_high = whole
        flags = HAS_MIN | HAS_MAX
        if len(low) > BOUND_BYTES_MAX:
            low, exact_low = low[:BOUND_BYTES_MAX], False
        if len(high) > BOUND_BYTES_MAX:
            high, exact_high = high[:BOUND_BYTES_MAX].rstrip(b"\xff"), False
            if high:
                high = high[:-1] + bytes([high[-1] + 1])
            else:
                flags = HAS_MIN
        self._put(low, high)
        return flags | (MIN_EXACT if exact_low else 0) | (MAX_EXACT if exact_high else 0)

    def _put(self, low: bytes, high: bytes) -> None:
        self._lows.append(bytes_key(low))
        self._highs.append(bytes_key(high))
        for value in (low, high):
            fits = len(value) <= KEY_BYTES and not value.endswith(b"\0")
            self._lengths.append(0 if fits else len(value))
            if not fits:
                self._parts.append(value)

    def add_none(self) -> None:
        self._put(b"", b"")

    def cut(self, count: int) -> None:
        super().cut(count)
        del self._lengths[2 * count :]
        del self._parts[sum(1 for length in self._lengths if length) :]

    def _keys(self, values: list[int]) -> U64:
        return np.array(values, np.uint64)

    def heap(self) -> Heap:
        return np.frombuffer(self._lengths, np.uint64).reshape(-1, 2), b"".join(self._parts)


class _WideDecimalBounds(_ByteBounds):
    def add(self, low: Any, high: Any, whole: bool) -> int:
        try:
            low, high = wide_decimal_bytes(_unscaled(low)), wide_decimal_bytes(_unscaled(high))
        except OverflowError:
            low, high = b"\1", b""
        if low > high:
            self.add_none()
            return 0
        self._lows.append(bytes_key(low))
        self._highs.append(bytes_key(high))
        self._lengths.extend((len(low), len(high)))
        self._parts += (low, high)
        return HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT


def _unscaled(value: int | bytes) -> int:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value


_BOUNDS: dict[Kind, type[_NumberBounds] | Callable[[ColumnInfo], None]] = {
    Kind.UNSIGNED: _UnsignedBounds,
    Kind.FLOAT: _FloatBounds,
    Kind.TIMESTAMP: _TimestampBounds,
    Kind.TIMESTAMP_UTC: _TimestampBounds,
    Kind.TEXT: _ByteBounds,
    Kind.BINARY: _ByteBounds,
    Kind.DECIMAL: _DecimalBounds,
    Kind.WIDE_DECIMAL: _WideDecimalBounds,
    Kind.OTHER: lambda info: None,
}
