"""The rows of a table at one seq, in memory, and how changes are applied to them without a copy of the rest.

Rows lie in blocks, which are never changed. A segment is a block without some of its rows: a change that replaces a
few rows makes a new segment over the same block, with a bit for each row that says whether it is alive, and puts its
own rows into a block of their own. Where more than one row in eight is dead, the block is copied without them; where
blocks become small, they are merged. So a change costs what it touches, and a query sees few and long batches.
`HotRows` is immutable: a query keeps the one it was given.

A query reads the blocks as they lie, with the bits as a column beside the others (`ALIVE`) that it filters by: so only
columns that it reads are copied, batch by batch, as it goes. `batches` shows that column wherever a row is dead;
whoever is given rows to keep is given the living ones.

Rows are found by key in each block: by binary search (`key_search`) where the types of the key have an order, otherwise
by a hash of the wanted keys, and only in blocks whose bounds allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.cache.key_search import NOWHERE, BlockKeys, Positions, Wanted
from lithify.cache.strings import as_views, is_encoded, plain, plain_array
from lithify.core.arrow_rows import lookup
from lithify.core.distinct import distinct
from lithify.core.names import RESERVED_PREFIX
from lithify.core.ops import Overlay
from lithify.merge.newer import older

BLOCK_ROWS_MAX = 65_536
SMALL_BLOCK_ROWS = BLOCK_ROWS_MAX // 4
# A block is copied where more than one row in so many is dead: until then, passing over them costs less.
DEAD_SHARE = 8
# Of each row: its place in an order by key, and its bit.
BESIDE_BYTES = 3
ALIVE = f"{RESERVED_PREFIX}_alive"


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
        stored = room.keep(batch, BESIDE_BYTES * batch.num_rows)
        self.batch, self.bytes, self.shape, self._owner = stored.batch, stored.bytes, stored.shape, stored.owner
        self._orders: dict[tuple[str, ...], BlockKeys] = {}
        self._bounds: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}

    def find(self, wanted: Wanted) -> tuple[Positions, Positions]:
        """Pairs of a line of `wanted` and the place of a row that has its values."""
        order = self._orders.get(wanted.by)
        if order is None:
            order = self._orders[wanted.by] = BlockKeys.of([self.batch.column(name) for name in wanted.by])
        return order.find(wanted) if wanted.is_searchable_in(order) else self._find_by_hash(wanted)

    def _find_by_hash(self, wanted: Wanted) -> tuple[Positions, Positions]:
        near = wanted.lines if wanted.nulls else self._near(wanted)
        if not len(near):
            return NOWHERE, NOWHERE
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
            return NOWHERE
        values = wanted.keys.column(name)
        if values.type != low.type:
            return wanted.lines
        inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        near: Positions = wanted.lines[inside.to_numpy()]
        return near


@dataclass(frozen=True)
class Segment:
    """A block without its dead rows. `alive` has a bit for each row, the first one lowest, as Arrow has them; None: no
    row is dead.
    """

    block: Block
    alive: bytes | None = None
    dead: int = 0

    @property
    def rows(self) -> int:
        return int(self.block.batch.num_rows) - self.dead

    def find(self, wanted: Wanted) -> tuple[Positions, Positions]:
        lines, positions = self.block.find(wanted)
        if self.alive is not None and len(positions):
            bits = np.frombuffer(self.alive, np.uint8)
            living = (bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).astype(bool)
            lines, positions = lines[living], positions[living]
        return lines, positions

    def without(self, positions: Positions) -> Segment:
        """`positions` are those of living rows."""
        count = self.block.batch.num_rows
        bits = np.frombuffer(all_alive(count) if self.alive is None else self.alive, np.uint8)
        living = np.unpackbits(bits, count=count, bitorder="little")
        living[positions] = 0
        return Segment(self.block, np.packbits(living, bitorder="little").tobytes(), count - int(living.sum()))

    def living(self, names: Sequence[str]) -> pa.RecordBatch:
        """As they are kept, but for views, which Arrow cannot pick rows of."""
        whole = plain_views(self.block.batch.select(list(names)))
        return whole if self.alive is None else whole.filter(bits_column(self.alive, whole.num_rows))


def all_alive(rows: int) -> bytes:
    return b"\xff" * -(-rows // 8)


def bits_column(alive: bytes, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(alive)])


def told_alive(blocks: Iterable[tuple[pa.RecordBatch, bytes | None]]) -> list[pa.RecordBatch]:
    """Blocks with their bits as a last column; without, where no row of any of them is dead."""
    blocks = list(blocks)
    if all(alive is None for _, alive in blocks):
        return [batch for batch, _ in blocks]
    return [
        batch.append_column(ALIVE, bits_column(alive or all_alive(batch.num_rows), batch.num_rows))
        for batch, alive in blocks
    ]


@dataclass(frozen=True, eq=False)
class HotRows:
    """`columns` are those that are held, with dictionaries or views where strings are kept so."""

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
    def is_encoded(self) -> bool:
        return any(is_encoded(f.type) for f in self.columns)

    @cached_property
    def has_dead(self) -> bool:
        return any(segment.dead for segment in self.segments)

    def batches(self) -> list[pa.RecordBatch]:
        return told_alive((segment.block.batch, segment.alive) for segment in self.segments)

    def to_arrow(self, names: Sequence[str] | None = None) -> pa.Table:
        """In plain types."""
        names = self.columns.names if names is None else list(names)
        pieces = (plain(pa.Table.from_batches([segment.living(names)])) for segment in self.segments)
        return pa.concat_tables([plain(self.columns.empty_table().select(names)), *pieces])

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
                rows = pa.Table.from_batches([plain_views(segment.block.batch)])
                found.append(plain(rows.take(pa.array(distinct(positions)))))
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
        chosen = np.concatenate(lost) if lost else NOWHERE
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
            left = segment.without(positions)
            if left.rows and left.dead * DEAD_SHARE > left.block.batch.num_rows:
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
        return Segment(Block(_joined([segment.living(columns.names) for segment in segments], columns), room))


def _joined(pieces: Sequence[pa.RecordBatch], columns: pa.Schema) -> pa.RecordBatch:
    """One batch that owns its memory and no more than it needs."""
    table = pa.concat_tables(pa.Table.from_batches([piece]) for piece in pieces)
    if any(pa.types.is_dictionary(f.type) for f in columns):
        table = table.unify_dictionaries()
    arrays = [_compacted(_whole(column)) for column in table.columns]
    arrays = [as_views(a) if pa.types.is_string_view(f.type) else a for a, f in zip(arrays, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def plain_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Views as strings, and dictionaries as they are."""
    for number, column in enumerate(batch.schema):
        if pa.types.is_string_view(column.type):
            batch = batch.set_column(number, column.with_type(pa.string()), batch.column(number).cast(pa.string()))
    return batch


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
        elif pa.types.is_string_view(column.type):
            arrays.append(as_views(values.combine_chunks()))
        else:
            arrays.append(
                _whole(values.cast(column.type)) if rows.num_rows else values.cast(column.type).combine_chunks()
            )
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
