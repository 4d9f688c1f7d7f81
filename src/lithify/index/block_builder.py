"""Blocks from arrays: what the entries of new files and the merging of old blocks have in common.

An array that is 0 everywhere is left out, one that is the same everywhere becomes a constant of the directory, and any
other takes as few bytes per element as its largest value needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lithify.index.block import Block, ColumnInfo, Numbers, constant, path_hash
from lithify.index.format import (
    BLOCK,
    BLOCK_HEAD_BYTES,
    BLOCK_MAGIC,
    CHUNK_ARRAYS,
    COLUMN,
    CONSTANT,
    ENTRY,
    GROUPS_MAX,
    HEAP,
    NESTED,
    OF_NO_COLUMN,
    Array,
    aligned,
    crc32,
)
from lithify.index.stats import ABSENT

U64 = npt.NDArray[np.uint64]
FEW = 256


@dataclass
class ColumnDraft:
    """Arrays of one element per row group; those left out are 0."""

    arrays: Mapping[Array, U64]
    bounds: bytes = b""


@dataclass
class Draft:
    paths: list[str]
    sizes: Sequence[int] | Numbers
    footer_bytes: Sequence[int] | Numbers
    group_end: Sequence[int] | Numbers
    group_rows: U64
    group_bytes: U64
    group_raw_bytes: U64
    columns: dict[ColumnInfo, ColumnDraft] = field(default_factory=dict)
    tags: Sequence[int] | Numbers = ()
    entry_offsets: Sequence[int] | Numbers = ()
    entry_bytes: Sequence[int] | Numbers = ()


def assemble(draft: Draft) -> bytes:
    layout = _Layout()
    texts = [path.encode() for path in draft.paths]
    layout.put(OF_NO_COLUMN, Array.PATH_END, np.cumsum([len(text) for text in texts], dtype=np.uint64))
    layout.put_heap(OF_NO_COLUMN, Array.PATHS, b"".join(texts))
    layout.put(OF_NO_COLUMN, Array.SIZE, np.asarray(draft.sizes, np.uint64))
    layout.put(OF_NO_COLUMN, Array.FOOTER_BYTES, np.asarray(draft.footer_bytes, np.uint64))
    layout.put(OF_NO_COLUMN, Array.GROUP_END, np.asarray(draft.group_end, np.uint64))
    layout.put(OF_NO_COLUMN, Array.PATH_HASH, np.array([path_hash(path) for path in draft.paths], np.uint64))
    layout.put(OF_NO_COLUMN, Array.TAG, np.asarray(draft.tags, np.uint64))
    layout.put(OF_NO_COLUMN, Array.GROUP_ROWS, draft.group_rows)
    layout.put(OF_NO_COLUMN, Array.GROUP_BYTES, draft.group_bytes)
    layout.put(OF_NO_COLUMN, Array.GROUP_RAW_BYTES, draft.group_raw_bytes)
    layout.put(OF_NO_COLUMN, Array.ENTRY_OFFSET, np.asarray(draft.entry_offsets, np.uint64))
    layout.put(OF_NO_COLUMN, Array.ENTRY_BYTES, np.asarray(draft.entry_bytes, np.uint64))
    for number, column in enumerate(draft.columns.values()):
        for array, values in column.arrays.items():
            if array is Array.VALUES:
                if not np.array_equal(values, draft.group_rows):
                    layout.put(number, array, values, zero_is_absent=False)
            else:
                layout.put(number, array, values)
        if column.bounds:
            layout.put_heap(number, Array.BOUNDS, column.bounds)
    return layout.finish(len(draft.paths), len(draft.group_rows), list(draft.columns))


class _Layout:
    """Lays arrays out one after the other, from 0; `finish` moves them behind the head."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, int, int]] = []  # column, array, width, crc, offset
        self._parts: list[bytes] = []
        self._offset = 0

    def put(self, column: int, array: Array, values: U64, *, zero_is_absent: bool = True) -> None:
        if not len(values):
            return
        # Few numbers are compared faster one by one.
        few = values.tolist() if len(values) <= FEW else None
        least, most = (min(few), max(few)) if few else (int(values.min()), int(values.max()))
        if least == most:
            if most or not zero_is_absent:
                self._entries.append((column, array, CONSTANT, 0, most))
            return
        width = 8 if array in (Array.LOW, Array.HIGH) else _width(most)
        self._add(column, array, width, values.astype(f"<u{width}", copy=False).tobytes())

    def put_heap(self, column: int, array: Array, data: bytes) -> None:
        self._add(column, array, HEAP, len(data).to_bytes(8, "little") + data)

    def _add(self, column: int, array: Array, width: int, data: bytes) -> None:
        self._entries.append((column, array, width, crc32(data), self._offset))
        padded = data + bytes(-len(data) % 8)
        self._parts.append(padded)
        self._offset += len(padded)

    def finish(self, files: int, groups: int, columns: Sequence[ColumnInfo]) -> bytes:
        assert groups <= GROUPS_MAX
        names = [column.name.encode() for column in columns]
        described = np.array(
            [
                (c.kind, c.physical, c.scale, NESTED if c.nested else 0, len(name), c.precision)
                for c, name in zip(columns, names, strict=True)
            ],
            COLUMN,
        ).tobytes()
        text = b"".join(names)
        directory_offset = aligned(BLOCK_HEAD_BYTES + len(described) + len(text))
        head = directory_offset + len(self._entries) * ENTRY.itemsize
        directory = np.array(
            [
                (array, width, column, crc, offset if width == CONSTANT else head + offset)
                for column, array, width, crc, offset in sorted(self._entries)
            ],
            ENTRY,
        ).tobytes()
        gap = bytes(directory_offset - BLOCK_HEAD_BYTES - len(described) - len(text))
        rest = described + text + gap + directory
        length = head + self._offset
        counts = (head, files, groups, len(columns), len(self._entries), len(text), 0)
        start = BLOCK.pack(BLOCK_MAGIC, 0, length, *counts)
        start = BLOCK.pack(BLOCK_MAGIC, crc32(start[8:], rest), length, *counts)
        return b"".join([start, rest, *self._parts])


def _width(largest: int) -> int:
    return 1 if largest < 2**8 else 2 if largest < 2**16 else 4 if largest < 2**32 else 8


def merge(parts: Sequence[tuple[Block, npt.NDArray[np.bool_] | None]]) -> bytes:
    """One block of the live files of several; None: all of them are live."""
    live_parts = [_LivePart(block, live) for block, live in parts]
    counts = np.concatenate([part.groups_per_file for part in live_parts]) if live_parts else np.zeros(0, np.uint64)
    columns = dict.fromkeys(column for part in live_parts for column in part.block.columns)
    return assemble(
        Draft(
            [path for part in live_parts for path in part.paths],
            _joined(part.of_files(part.block.sizes) for part in live_parts),
            _joined(part.of_files(part.block.footer_bytes) for part in live_parts),
            np.cumsum(counts, dtype=np.uint64),
            _joined(part.of_groups(part.block.group_rows) for part in live_parts),
            _joined(part.of_groups(part.block.group_bytes) for part in live_parts),
            _joined(part.of_groups(part.block.group_raw_bytes) for part in live_parts),
            {column: _merged(column, live_parts) for column in columns},
            _joined(part.of_files(part.block.tags) for part in live_parts),
            _joined(part.of_groups(part.block.entry_offsets) for part in live_parts),
            _joined(part.of_groups(part.block.entry_bytes) for part in live_parts),
        )
    )


class _LivePart:
    def __init__(self, block: Block, live: npt.NDArray[np.bool_] | None) -> None:
        self.block = block
        self.files = None if live is None or bool(live.all()) else live
        self.groups = None if self.files is None else self.files[block.file_of_group]
        self.number_of = {column: number for number, column in enumerate(block.columns)}
        self.group_count = block.groups if self.groups is None else int(self.groups.sum())

    @property
    def paths(self) -> list[str]:
        paths: list[str] = self.block.paths.to_pylist()
        return paths if self.files is None else [p for p, live in zip(paths, self.files, strict=True) if live]

    @property
    def groups_per_file(self) -> Numbers:
        first = self.block.first_group.astype(np.uint64)
        return self.of_files(first[1:] - first[:-1])

    def of_files(self, values: Numbers) -> Numbers:
        return values if self.files is None else values[self.files]

    def of_groups(self, values: Numbers) -> Numbers:
        return values if self.groups is None else values[self.groups]

    def bounds_of(self, number: int) -> tuple[Numbers, Numbers, bytes]:
        """Lengths of lower and upper bounds in the heap, and the heap, of the groups that stay."""
        lows, highs, heap = self.block.heap_of(number)
        if not len(heap):
            nothing = constant(0, self.group_count)
            return nothing, nothing, b""
        lows, highs = lows.astype(np.int64), highs.astype(np.int64)
        starts = np.concatenate([[0], highs[:-1]])
        if self.groups is None:
            return lows - starts, highs - lows, bytes(heap[: highs[-1] if len(highs) else 0])
        chosen = np.flatnonzero(self.groups)
        data = b"".join(heap[starts[group] : highs[group]] for group in chosen)
        return (lows - starts)[chosen], (highs - lows)[chosen], data


def _merged(column: ColumnInfo, parts: Sequence[_LivePart]) -> ColumnDraft:
    arrays: dict[Array, U64] = {}
    for array in CHUNK_ARRAYS:
        pieces = []
        for part in parts:
            number = part.number_of.get(column)
            if number is not None:
                pieces.append(part.of_groups(part.block.chunk_array(number, array)))
            elif array is Array.VALUES:  # as many as rows, which takes no space
                pieces.append(part.of_groups(part.block.group_rows))
            else:
                value = ABSENT if array is Array.FLAGS else 0
                pieces.append(constant(value, part.group_count))
        arrays[array] = _joined(pieces)
    low_lengths, high_lengths, heaps = [], [], []
    for part in parts:
        number = part.number_of.get(column)
        nothing = constant(0, part.group_count)
        lows, highs, heap = part.bounds_of(number) if number is not None else (nothing, nothing, b"")
        low_lengths.append(lows)
        high_lengths.append(highs)
        heaps.append(heap)
    bounds = b"".join(heaps)
    if bounds:
        lows, highs = _joined(low_lengths), _joined(high_lengths)
        ends = np.cumsum(lows + highs, dtype=np.uint64)
        arrays[Array.LOW_END], arrays[Array.HIGH_END] = ends - highs, ends
    return ColumnDraft(arrays, bounds)


def _joined(pieces: Iterable[Numbers]) -> U64:
    pieces = list(pieces)
    if len(pieces) == 1:
        return pieces[0].astype(np.uint64, copy=False)
    values = {int(p[0]) for p in pieces if len(p)} if all(p.strides == (0,) for p in pieces if len(p)) else set()
    if len(values) == 1:
        return constant(values.pop(), sum(len(p) for p in pieces))
    return np.concatenate([np.zeros(0, np.uint64), *(piece.astype(np.uint64, copy=False) for piece in pieces)])
