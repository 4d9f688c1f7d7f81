"""The rows of a table at one seq, in memory, and how changes are applied to them without a copy of the rest.

Rows lie in blocks, which are never changed. A segment is a block without some of its rows: a change that replaces a
few rows makes a new segment over the same block, read as slices around them, and puts its own rows into a block of
their own. Where slices would become many, the block is copied without its dead rows; where blocks become small, they
are merged. So a change costs what it touches, and a query sees few and long batches. `HotRows` is immutable: a query
keeps the one it was given.

Rows are found by key in each block: by binary search where the key is one number (blocks of base are sorted by key;
others get an order of two bytes a row), otherwise by a hash of the wanted keys, and only in blocks whose bounds allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import lookup
from lithify.core.column_types import type_of
from lithify.core.ops import Overlay
from lithify.merge.order import older

BLOCK_ROWS_MAX = 65_536
SMALL_BLOCK_ROWS = BLOCK_ROWS_MAX // 4
DEAD_ROWS_MAX = 8
ORDER_BYTES = 2
_NONE_DEAD = np.empty(0, np.int64)
Positions = np.ndarray


class Room(Protocol):
    """Kept free for something that is being made."""

    def keep(self, batch: pa.RecordBatch, beside_bytes: int) -> StoredBatch:
        """What was made takes its place, with so many bytes beside it. Raises if that is larger than there is room for.
        It is paid for as long as anybody reads it.
        """


@dataclass(frozen=True)
class StoredBatch:
    """A batch where it stays, what it takes there, and how another process finds it while `owner` is held."""

    batch: pa.RecordBatch
    bytes: int
    shape: Any
    owner: Any


class Budget(Protocol):
    """Who pays for the memory of blocks."""

    def room(self, size_bytes: int) -> AbstractContextManager[Room]:
        """Raises if there is none."""


class Block:
    """A batch in memory that is paid for, at most BLOCK_ROWS_MAX rows long."""

    def __init__(self, batch: pa.RecordBatch, room: Room) -> None:
        assert 0 < batch.num_rows <= BLOCK_ROWS_MAX
        stored = room.keep(batch, ORDER_BYTES * batch.num_rows)
        self.batch, self.bytes, self.shape, self._owner = stored.batch, stored.bytes, stored.shape, stored.owner
        self._orders: dict[str, _Order] = {}
        self._bounds: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}

    def find(self, wanted: Wanted) -> tuple[Positions, Positions]:
        """Pairs of a line of `wanted` and the place of a row that has its values."""
        name = wanted.by[0]
        column = self.batch.column(name)
        if wanted.numbers is None or column.null_count or not type_of(column.type).is_counted:
            return self._find_by_hash(wanted)
        numbers = _numbers(column)
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = _Order.of(numbers)
        lines, positions = order.find(numbers, wanted.numbers)
        return wanted.numbers_lines[lines], positions

    def _find_by_hash(self, wanted: Wanted) -> tuple[Positions, Positions]:
        near = wanted.lines if wanted.nulls else self._near(wanted)
        if not len(near):
            return _NONE_DEAD, _NONE_DEAD
        keys = wanted.keys if len(near) == wanted.keys.num_rows else wanted.keys.take(near)
        rows = plain(pa.Table.from_batches([self.batch.select(list(wanted.by))]))
        found = lookup(rows, keys, wanted.by)
        positions = np.flatnonzero(found >= 0)
        return near[found[positions]], positions

    def _near(self, wanted: Wanted) -> Positions:
        """Lines whose first value lies within what this block has."""
        name = wanted.by[0]
        if name not in self._bounds:
            both = pc.min_max(plain_array(self.batch.column(name)))
            self._bounds[name] = both["min"], both["max"]
        low, high = self._bounds[name]
        if not low.is_valid:
            return _NONE_DEAD
        values = wanted.keys.column(name)
        if values.type != low.type:
            return wanted.lines
        inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        near: Positions = wanted.lines[inside.to_numpy()]
        return near


@dataclass(frozen=True)
class _Order:
    """How the numbers of a column lie: sorted as they are (`order` is None), or in this order."""

    order: np.ndarray | None
    low: int
    high: int

    @classmethod
    def of(cls, numbers: np.ndarray) -> _Order:
        if len(numbers) < 2 or bool((numbers[1:] >= numbers[:-1]).all()):
            return cls(None, int(numbers[0]), int(numbers[-1]))
        order = np.argsort(numbers, kind="stable").astype(np.uint16)
        return cls(order, int(numbers[order[0]]), int(numbers[order[-1]]))

    def find(self, numbers: np.ndarray, wanted: np.ndarray) -> tuple[Positions, Positions]:
        """`wanted` is sorted. Of equal numbers, all are found."""
        first, last = int(wanted.searchsorted(self.low)), int(wanted.searchsorted(self.high, side="right"))
        if first == last:
            return _NONE_DEAD, _NONE_DEAD
        near = wanted[first:last]
        ordered = numbers if self.order is None else numbers[self.order]
        starts, ends = ordered.searchsorted(near), ordered.searchsorted(near, side="right")
        counts = ends - starts
        lines = np.repeat(np.arange(first, last), counts)
        positions = np.repeat(starts - np.concatenate([[0], counts.cumsum()[:-1]]), counts) + np.arange(counts.sum())
        return lines, positions if self.order is None else self.order[positions].astype(np.int64)


class Wanted:
    """Keys to be found, each once. A key of one number is also kept sorted, with the lines it came from."""

    def __init__(self, keys: pa.Table, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.keys = keys.select(list(by)).combine_chunks()
        self.lines = np.arange(keys.num_rows)
        self.nulls = any(self.keys.column(name).null_count for name in by)
        self.numbers: np.ndarray | None = None
        self.numbers_lines = self.lines
        if len(by) == 1 and type_of(self.keys.schema.field(by[0]).type).is_counted and not self.nulls and keys.num_rows:
            values = _numbers(self.keys.column(by[0]).chunk(0))
            self.numbers_lines = np.argsort(values, kind="stable")
            self.numbers = values[self.numbers_lines]


@dataclass(frozen=True)
class Segment:
    """A block without its dead rows, whose positions are sorted."""

    block: Block
    dead: np.ndarray = field(default_factory=lambda: _NONE_DEAD)

    @property
    def rows(self) -> int:
        return int(self.block.batch.num_rows) - len(self.dead)

    def find(self, wanted: Wanted) -> tuple[Positions, Positions]:
        lines, positions = self.block.find(wanted)
        if len(self.dead) and len(positions):
            alive = ~np.isin(positions, self.dead)
            lines, positions = lines[alive], positions[alive]
        return lines, positions

    def pieces(self) -> Iterator[pa.RecordBatch]:
        start = 0
        for row in (*self.dead.tolist(), self.block.batch.num_rows):
            if row > start:
                yield self.block.batch.slice(start, row - start)
            start = row + 1


class RowsInMemory(Protocol):
    """Hot rows as a query reads them, in the process that holds them or in another."""

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def has_dictionaries(self) -> bool: ...

    def batches(self) -> list[pa.RecordBatch]: ...


@dataclass(frozen=True, eq=False)
class HotRows:
    """`columns` are those that are held, with dictionaries where strings are kept so."""

    columns: pa.Schema
    segments: tuple[Segment, ...]
    budget: Budget = field(repr=False)

    @cached_property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @cached_property
    def bytes(self) -> int:
        return sum(segment.block.bytes for segment in self.segments)

    @cached_property
    def has_dictionaries(self) -> bool:
        return any(pa.types.is_dictionary(f.type) for f in self.columns)

    def batches(self) -> list[pa.RecordBatch]:
        return [piece for segment in self.segments for piece in segment.pieces()]

    def to_arrow(self, names: Sequence[str] | None = None) -> pa.Table:
        """In plain types."""
        table = pa.Table.from_batches(self.batches(), self.columns)
        return plain(table if names is None else table.select(list(names)))

    def row(self, key: pa.Table, by: Sequence[str]) -> pa.Table:
        """The rows with this key, none or one."""
        wanted = Wanted(key, by)
        for segment in self.segments:
            _, positions = segment.find(wanted)
            if len(positions):
                return plain(pa.Table.from_batches([segment.block.batch.slice(int(positions[0]), 1)]))
        return plain(self.columns.empty_table())

    def matching(self, keys: pa.Table, by: Sequence[str]) -> pa.Table:
        """The rows with one of these keys."""
        wanted, found = Wanted(keys, by), [plain(self.columns.empty_table())]
        for segment in self.segments:
            _, positions = segment.find(wanted)
            if len(positions):
                rows = pa.Table.from_batches([segment.block.batch]).take(pa.array(np.unique(positions)))
                found.append(plain(rows))
        return pa.concat_tables(found)

    # -- changing

    def losers(self, contested: pa.Table, by: Sequence[str], order: Sequence[str]) -> pa.Table:
        """Keys of `contested` whose row here is newer, by the columns `order`."""
        wanted, lost = Wanted(contested, by), []
        values = [contested.column(name).combine_chunks() for name in order]
        for segment in self.segments:
            lines, positions = segment.find(wanted)
            if not len(lines):
                continue
            batch = segment.block.batch
            here = [plain_array(batch.column(name)).take(pa.array(positions)) for name in order]
            lost.append(lines[older([each.take(pa.array(lines)) for each in values], here)])
        chosen = np.concatenate(lost) if lost else _NONE_DEAD
        return contested.select(list(by)).take(pa.array(np.sort(chosen)))

    def applied(self, overlay: Overlay, by: Sequence[str]) -> HotRows:
        """Without the rows that the overlay hides, and with those it shows."""
        segments = list(self.segments)
        if by and overlay.hidden.num_rows:
            segments = list(self._without(Wanted(overlay.hidden, by)))
        rows = overlay.rows.select(self.columns.names)
        for start in range(0, rows.num_rows, BLOCK_ROWS_MAX):
            piece = rows.slice(start, BLOCK_ROWS_MAX)
            with self.budget.room(piece.nbytes * 2) as room:
                segments.append(Segment(Block(conformed(piece, self.columns), room)))
        return HotRows(self.columns, tuple(self._packed(segments)), self.budget)

    def _without(self, wanted: Wanted) -> Iterator[Segment]:
        for segment in self.segments:
            _, positions = segment.find(wanted)
            if not len(positions):
                yield segment
                continue
            dead = np.union1d(segment.dead, positions)
            left = Segment(segment.block, dead)
            if len(dead) > DEAD_ROWS_MAX and left.rows:
                left = join([left], self.columns, self.budget)
            if left.rows:
                yield left

    def _packed(self, segments: Sequence[Segment]) -> Iterator[Segment]:
        """Neighbours that are small become one: at the end always two of a size, elsewhere when there are many."""
        total = sum(segment.rows for segment in segments)
        if len(segments) > 2 * (total // BLOCK_ROWS_MAX) + 32:
            yield from self._merged(segments)
            return
        ending = list(segments)
        while len(ending) > 1 and ending[-2].rows <= 2 * ending[-1].rows:
            if ending[-2].rows + ending[-1].rows > SMALL_BLOCK_ROWS:
                break
            ending[-2:] = [join(ending[-2:], self.columns, self.budget)]
        yield from ending

    def _merged(self, segments: Sequence[Segment]) -> Iterator[Segment]:
        waiting: list[Segment] = []
        for segment in segments:
            if waiting and sum(other.rows for other in waiting) + segment.rows > BLOCK_ROWS_MAX:
                yield join(waiting, self.columns, self.budget) if len(waiting) > 1 else waiting[0]
                waiting = []
            waiting.append(segment)
        if waiting:
            yield join(waiting, self.columns, self.budget) if len(waiting) > 1 else waiting[0]


def join(segments: Sequence[Segment], columns: pa.Schema, budget: Budget) -> Segment:
    """A copy of their living rows, as one block."""
    with budget.room(sum(segment.block.bytes for segment in segments)) as room:
        pieces = [piece for segment in segments for piece in segment.pieces()]
        return Segment(Block(_joined(pieces, columns), room))


def _joined(pieces: Sequence[pa.RecordBatch], columns: pa.Schema) -> pa.RecordBatch:
    """One batch that owns its memory and no more than it needs."""
    table = pa.Table.from_batches(pieces, columns)
    if any(pa.types.is_dictionary(f.type) for f in columns):
        table = table.unify_dictionaries()
    arrays = [_whole(column) for column in table.columns]
    return pa.RecordBatch.from_arrays([_compacted(values) for values in arrays], schema=columns)


def _compacted(values: pa.Array) -> pa.Array:
    """Without the strings that only dead rows had, where they may have become many."""
    if not pa.types.is_dictionary(values.type) or len(values.dictionary) <= len(values) // 4 + 64:
        return values
    return values.cast(values.type.value_type).dictionary_encode().cast(values.type)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        # A single slice would be handed on with all the memory behind it.
        return pa.concat_arrays([column.chunk(0), column.chunk(0).slice(0, 0)])
    return pa.concat_arrays(column.chunks)


def conformed(rows: pa.Table, columns: pa.Schema) -> pa.RecordBatch:
    """Rows as one batch with these columns, strings as they are kept here."""
    arrays = []
    for column in columns:
        values = rows.column(column.name)
        if pa.types.is_dictionary(column.type):
            values = values if pa.types.is_dictionary(values.type) else values.cast(column.type.value_type)
            encoded = values.combine_chunks()
            encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
            arrays.append(encoded.cast(column.type))
        else:
            arrays.append(
                _whole(values.cast(column.type)) if rows.num_rows else values.cast(column.type).combine_chunks()
            )
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _numbers(values: pa.Array) -> np.ndarray:
    numbers: np.ndarray = type_of(values.type).ordered(values).to_numpy()
    return numbers


def plain(table: pa.Table) -> pa.Table:
    """Without dictionaries."""
    for number, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            values = table.column(number).cast(column.type.value_type)
            table = table.set_column(number, column.with_type(column.type.value_type), values)
    return table


def plain_array(values: pa.Array) -> pa.Array:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
