"""A block: what is known of some Parquet files, column by column, read in place.

Nothing is copied. The head is checked when a block is parsed, an array when it is first used; both raise `Corruption`.
An array that is the same everywhere takes no space and reads as one value with stride 0.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lithify.errors import Corruption
from lithify.index.format import (
    BLOCK,
    BLOCK_HEAD_BYTES,
    BLOCK_MAGIC,
    COLUMN,
    COLUMNS_MAX,
    CONSTANT,
    ENTRY,
    GROUPS_MAX,
    HEAP,
    NESTED,
    OF_NO_COLUMN,
    Array,
    aligned,
    check_features,
    crc32,
)
from lithify.index.stats import ColumnStats, Kind

assert sys.byteorder == "little", "arrays are mapped as they lie, which is little-endian"

Numbers = npt.NDArray[np.unsignedinteger]
KEY_TYPES = {Kind.UNSIGNED: "<u8", Kind.FLOAT: "<f8", Kind.TEXT: "<u8", Kind.BINARY: "<u8", Kind.WIDE_DECIMAL: "<u8"}
_KINDS = frozenset(Kind)
_FIXED_WIDTHS = {Array.FLAGS: 1, Array.LOW: 8, Array.HIGH: 8}


@dataclass(frozen=True)
class ColumnInfo:
    """A leaf of the Parquet schema; `name` is its dotted path."""

    name: str
    kind: Kind
    physical: int
    scale: int = 0
    precision: int = 0
    nested: bool = False


@dataclass(frozen=True)
class Chunks:
    """Where one column lies in each row group."""

    offset: Numbers
    bytes: Numbers
    raw_bytes: Numbers
    values: Numbers
    distinct: Numbers
    codec: Numbers
    encodings: Numbers
    bloom_offset: Numbers
    bloom_bytes: Numbers


def constant(value: int, count: int, kind: type[np.unsignedinteger] = np.uint64) -> Numbers:
    """One value, `count` times, in the space of one. As `numpy.broadcast_to`, in a tenth of the time."""
    return np.ndarray((count,), kind, (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"), 0, (0,))


def path_hash(path: str) -> int:
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little")


class Block:
    def __init__(self, data: memoryview, what: str) -> None:
        self._data, self._what = data, what
        if len(data) < BLOCK_HEAD_BYTES:
            raise self._damaged("it ends inside its head")
        magic, crc, length, head, files, groups, columns, arrays, names, features = BLOCK.unpack_from(data)
        if magic != BLOCK_MAGIC:
            raise self._damaged("it does not begin like one")
        directory = aligned(BLOCK_HEAD_BYTES + columns * COLUMN.itemsize + names)
        if (
            length != len(data)
            or length % 8
            or head != directory + arrays * ENTRY.itemsize
            or head > length
            or groups > GROUPS_MAX
            or columns > COLUMNS_MAX
            or files > length
        ):
            raise self._damaged("its sizes contradict each other")
        if crc32(data[8:head]) != crc:
            raise self._damaged("its head does not match its checksum")
        check_features(features, what)
        self.crc: int = crc
        self.files: int = files
        self.groups: int = groups
        self._head: int = head
        self._described = np.frombuffer(data, COLUMN, columns, BLOCK_HEAD_BYTES)
        self._names = bytes(data[BLOCK_HEAD_BYTES + columns * COLUMN.itemsize :][:names])
        self._directory = np.frombuffer(data, ENTRY, arrays, directory)
        self._keys = self._directory["column"].astype(np.uint32) << 8 | self._directory["array"]
        if arrays > 1 and not bool((self._keys[1:] > self._keys[:-1]).all()):
            raise self._damaged("its directory is not in order")
        self._read: dict[tuple[int, int], Numbers] = {}
        self._heaps: dict[int, memoryview] = {}
        self._bounds: dict[int, tuple[Numbers, Numbers, memoryview]] = {}

    @property
    def length(self) -> int:
        return len(self._data)

    @property
    def data(self) -> memoryview:
        return self._data

    # -- files

    @cached_property
    def paths(self) -> pa.Array:
        heap = self._heap(OF_NO_COLUMN, Array.PATHS)
        ends = self._ends(Array.PATH_END, min(len(heap), 2**31 - 1))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        texts = pa.Array.from_buffers(pa.binary(), self.files, [None, pa.py_buffer(offsets), pa.py_buffer(heap)])
        try:
            return texts.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise self._damaged("a path in it is no text") from error

    @property
    def sizes(self) -> Numbers:
        return self._file_array(Array.SIZE)

    @property
    def footer_bytes(self) -> Numbers:
        return self._file_array(Array.FOOTER_BYTES)

    @property
    def tags(self) -> Numbers:
        """What told each file from others of its name when it was read; 0 where nobody looked."""
        return self._file_array(Array.TAG)

    @cached_property
    def rows(self) -> Numbers:
        """Of each file."""
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(self.group_rows, dtype=np.uint64)])
        rows: Numbers = total[self.first_group[1:]] - total[self.first_group[:-1]]
        return rows

    @cached_property
    def first_group(self) -> Numbers:
        """The row groups of file i are first_group[i] up to first_group[i + 1]."""
        ends = self._ends(Array.GROUP_END, self.groups)
        if self.groups != (int(ends[-1]) if self.files else 0):
            raise self._damaged("row groups and files do not add up")
        return np.concatenate([np.zeros(1, np.uint32), ends.astype(np.uint32)])

    @cached_property
    def file_of_group(self) -> Numbers:
        first = self.first_group
        return np.repeat(np.arange(self.files, dtype=np.uint32), first[1:] - first[:-1])

    def files_hashed(self, hashes: npt.NDArray[np.uint64]) -> list[int]:
        """Files whose path has one of the hashes: usually those meant, and no others."""
        found: list[int] = np.flatnonzero(np.isin(self._file_array(Array.PATH_HASH), hashes)).tolist()
        return found

    # -- row groups and columns

    @property
    def group_rows(self) -> Numbers:
        return self._group_array(OF_NO_COLUMN, Array.GROUP_ROWS)

    @property
    def group_bytes(self) -> Numbers:
        return self._group_array(OF_NO_COLUMN, Array.GROUP_BYTES)

    @property
    def group_raw_bytes(self) -> Numbers:
        return self._group_array(OF_NO_COLUMN, Array.GROUP_RAW_BYTES)

    @property
    def entry_offsets(self) -> Numbers:
        """Where each row group's entry begins in the footer of its file; 0 where nobody looked."""
        return self._group_array(OF_NO_COLUMN, Array.ENTRY_OFFSET)

    @property
    def entry_bytes(self) -> Numbers:
        return self._group_array(OF_NO_COLUMN, Array.ENTRY_BYTES)

    @cached_property
    def columns(self) -> tuple[ColumnInfo, ...]:
        found, start = [], 0
        for kind, physical, scale, flags, name_bytes, precision in self._described.tolist():
            try:
                name = self._names[start : start + name_bytes].decode()
                known = Kind(kind) if kind in _KINDS else Kind.OTHER
                found.append(ColumnInfo(name, known, physical, scale, precision, bool(flags & NESTED)))
            except UnicodeDecodeError as error:
                raise self._damaged("a column's name in it is no text") from error
            start += name_bytes
        if start != len(self._names):
            raise self._damaged("names and columns do not add up")
        return tuple(found)

    @cached_property
    def _numbers_by_name(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, column in enumerate(self.columns):
            numbers.setdefault(column.name, []).append(number)
        return numbers

    def stats(self, column: str) -> ColumnStats | None:
        """Counts and bounds; None where a name stands for several types, or for part of a nested column."""
        numbers = self._numbers_by_name.get(column, [])
        if len(numbers) != 1 or self.columns[numbers[0]].nested:
            return None
        return self.stats_of(numbers[0])

    def stats_of(self, number: int) -> ColumnStats:
        info = self.columns[number]
        kind = info.kind
        key = KEY_TYPES.get(kind, "<i8")
        low = self._group_array(number, Array.LOW)
        high = self._group_array(number, Array.HIGH)
        return ColumnStats(
            kind,
            info.scale,
            self.group_rows,
            self._group_array(number, Array.NULLS),
            self._group_array(number, Array.FLAGS),
            low.view(key),
            high.view(key),
            self._bound(number, low, Array.LOW_END),
            self._bound(number, high, Array.HIGH_END),
        )

    def chunks(self, column: str) -> Chunks | None:
        numbers = self._numbers_by_name.get(column, [])
        return self.chunks_of(numbers[0]) if len(numbers) == 1 else None

    def chunks_of(self, number: int) -> Chunks:
        get = self._group_array
        return Chunks(
            get(number, Array.OFFSET),
            get(number, Array.BYTES),
            get(number, Array.RAW_BYTES),
            self.chunk_array(number, Array.VALUES),
            get(number, Array.DISTINCT),
            get(number, Array.CODEC),
            get(number, Array.ENCODINGS),
            get(number, Array.BLOOM_OFFSET),
            get(number, Array.BLOOM_BYTES),
        )

    def chunk_array(self, number: int, array: Array) -> Numbers:
        if array is Array.VALUES and self._entry(number, array) is None:
            return self.group_rows
        return self._group_array(number, array)

    def states(self, number: int, array: Array) -> bool:
        """Whether an array is there, and so not 0 everywhere."""
        return self._entry(number, array) is not None

    def heap_of(self, number: int) -> tuple[Numbers, Numbers, memoryview]:
        """Ends of lower and upper bounds in the heap, and the heap."""
        if (known := self._bounds.get(number)) is not None:
            return known
        lows, highs = self._group_array(number, Array.LOW_END), self._group_array(number, Array.HIGH_END)
        heap = self._heap(number, Array.BOUNDS)
        starts = np.concatenate([np.zeros(1, np.uint64), highs[:-1].astype(np.uint64)])
        if len(highs) and (int(highs[-1]) > len(heap) or bool((lows < starts).any()) or bool((highs < lows).any())):
            raise self._damaged("bounds in it lie outside of it")
        self._bounds[number] = lows, highs, heap
        return lows, highs, heap

    def _bound(self, number: int, keys: Numbers, end: Array) -> Callable[[int], bytes]:
        def bound(group: int) -> bytes:
            lows, highs, heap = self.heap_of(number)
            low = int(lows[group])
            first, last = (
                (low, int(highs[group])) if end is Array.HIGH_END else (int(highs[group - 1]) if group else 0, low)
            )
            return bytes(heap[first:last]) or int(keys[group]).to_bytes(8, "big").rstrip(b"\0")

        return bound

    # -- arrays

    @cached_property
    def _entries(self) -> dict[int, tuple[int, int, int]]:
        """(width, crc, offset) of each array."""
        return {
            column << 8 | array: (width, crc, offset) for array, width, column, crc, offset in self._directory.tolist()
        }

    def _entry(self, column: int, array: Array) -> tuple[int, int, int] | None:
        return self._entries.get(column << 8 | array)

    def _file_array(self, array: Array) -> Numbers:
        return self._array(OF_NO_COLUMN, array, self.files)

    def _group_array(self, column: int, array: Array) -> Numbers:
        return self._array(column, array, self.groups)

    def _array(self, column: int, array: Array, count: int) -> Numbers:
        found = self._read.get((column, array))
        if found is None:
            found = self._read[column, array] = self._checked(column, array, count)
        return found

    def _checked(self, column: int, array: Array, count: int) -> Numbers:
        entry = self._entry(column, array)
        if entry is None or entry[0] == CONSTANT:
            return constant(entry[2] if entry else 0, count, np.uint8 if array is Array.FLAGS else np.uint64)
        width, crc, offset = entry
        if width not in (1, 2, 4, 8):
            raise self._damaged(f"array {array.name} has no possible width")
        if width != _FIXED_WIDTHS.get(array, width):
            raise self._damaged(f"array {array.name} has another width than it must have")
        return np.frombuffer(self._slice(offset, width * count, crc, array), f"<u{width}", count)

    def _ends(self, array: Array, limit: int) -> Numbers:
        ends = self._file_array(array)
        if self.files and (int(ends[-1]) > limit or bool((ends[1:] < ends[:-1]).any())):
            raise self._damaged(f"array {array.name} does not go up")
        return ends

    def _heap(self, column: int, array: Array) -> memoryview:
        heap = self._heaps.get(column)
        if heap is None:
            entry = self._entry(column, array)
            if entry is None:
                heap = memoryview(b"")
            else:
                width, crc, offset = entry
                if width != HEAP or offset % 8 or not self._head <= offset <= self.length - 8:
                    raise self._damaged(f"array {array.name} lies outside of it")
                length = int.from_bytes(self._data[offset : offset + 8], "little")
                heap = self._slice(offset, 8 + length, crc, array)[8:]
            self._heaps[column] = heap
        return heap

    def _slice(self, offset: int, length: int, crc: int, array: Array) -> memoryview:
        if offset % 8 or not self._head <= offset <= self.length - length:
            raise self._damaged(f"array {array.name} lies outside of it")
        data = self._data[offset : offset + length]
        if crc32(data) != crc:
            raise self._damaged(f"array {array.name} does not match its checksum")
        return data

    def _damaged(self, why: str) -> Corruption:
        return Corruption(f"{self._what} is damaged: {why} (the sidecar may be deleted, and is built again)")


def parse(data: bytes | memoryview, what: str = "a sidecar's block") -> Block:
    """A block that stands alone."""
    return Block(memoryview(data), what)
