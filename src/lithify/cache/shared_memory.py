"""Batches in memory that other processes can map: what hot tables are made of.

Memory comes in segments of a gibibyte, each an anonymous file that is mapped once, so that thousands of batches hold a
handful of descriptors and nothing is left behind by a process that dies. A batch takes whole pages of a segment; when
its last reader in this process lets go, the pages go back to the system and their place is free for others. Every
column lies there buffer by buffer as Arrow has it in memory, so mapping one takes no copy; columns of lists, structs
and maps lie there as an Arrow stream. `Shape` is what another process needs to find a batch again. It must not look
there after it was told that the reader on whose behalf it looks has let go.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from lithify.cache.extents import Extents, in_pages
from lithify.files.os_errors import translated

SEGMENT_BYTES = 2**30
# As Arrow wants buffers to lie; decimals must not lie any closer.
ALIGNMENT = 64

Part = tuple[int, int] | None


class ColumnShape(NamedTuple):
    """Where a column's buffers lie, from the start of its batch, and its dictionary; or, where it is nested, its
    stream.
    """

    rows: int
    nulls: int
    buffers: tuple[Part, ...]
    dictionary: ColumnShape | None = None
    is_stream: bool = False


class Shape(NamedTuple):
    """A batch in a segment. Its types are told elsewhere: they are the same for all batches of a table."""

    segment: int
    start: int
    size_bytes: int
    rows: int
    columns: tuple[ColumnShape, ...]


class Extent:
    """Pages of a segment that are in use as long as this is referred to."""

    def __init__(self, segment: _Segment) -> None:
        self.segment = segment


@dataclass(frozen=True)
class Shared:
    """A batch that lies in shared memory. This keeps it there, and so does whatever is made of it."""

    batch: pa.RecordBatch
    shape: Shape
    extent: Extent


class _Segment:
    def __init__(self, number: int, size_bytes: int) -> None:
        self.number, self.free = number, Extents(size_bytes)
        self.fd, self.read_only_fd = _anonymous(self.free.size_bytes)
        self.map = mmap.mmap(self.fd, self.free.size_bytes)
        self.address = int(pa.py_buffer(self.map).address)

    def discard(self, start: int, size_bytes: int) -> None:
        """Give the pages back to the system."""
        if hasattr(mmap, "MADV_REMOVE"):
            with contextlib.suppress(OSError):  # no such thing for files on this disk
                self.map.madvise(mmap.MADV_REMOVE, start, size_bytes)

    def close(self) -> None:
        for fd in (self.fd, self.read_only_fd):
            os.close(fd)


class SharedMemory:
    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._segment_bytes = segment_bytes
        self._segments: dict[int, _Segment] = {}
        self._numbers = 0
        self._lock = threading.Lock()
        # What was let go of and is not given back yet: a reader may let go in the middle of anything, also of this.
        self._gone: deque[tuple[_Segment, int, int]] = deque()

    @property
    def segments(self) -> tuple[int, ...]:
        return tuple(self._segments)

    @property
    def bytes(self) -> int:
        """In use now."""
        self._clear_up()
        return sum(s.free.size_bytes - s.free.free_bytes for s in list(self._segments.values()))

    def put(self, layout: Layout, on_release: Callable[[], object] = lambda: None) -> Shared:
        """A copy of a batch. `on_release` is called when nobody refers to it any more, by whichever thread; not if this
        fails.
        """
        segment, start = self._take(layout.size_bytes)
        try:
            with translated("shared memory"):
                for offset, buffer in layout.parts:
                    _write(segment.fd, buffer, start + offset)
        except BaseException:
            self._release(segment, start, layout.size_bytes, lambda: None)
            raise
        extent = Extent(segment)
        weakref.finalize(extent, self._release, segment, start, layout.size_bytes, on_release).atexit = False
        shape = Shape(segment.number, start, layout.size_bytes, layout.rows, layout.columns)
        whole = pa.foreign_buffer(segment.address + start, layout.size_bytes, base=extent)
        return Shared(batch_in(whole, shape, layout.schema), shape, extent)

    def descriptor(self, segment: int) -> int:
        """By which another process can map a segment, and not write to it."""
        return self._segments[segment].read_only_fd

    def _take(self, size_bytes: int) -> tuple[_Segment, int]:
        try:
            with self._lock:
                return self._taken(size_bytes)
        finally:
            self._clear_up()

    def _taken(self, size_bytes: int) -> tuple[_Segment, int]:
        self._give_back()
        for segment in self._segments.values():
            if (start := segment.free.take(size_bytes)) is not None:
                return segment, start
        self._numbers += 1
        with translated("shared memory"):
            segment = _Segment(self._numbers, max(self._segment_bytes, size_bytes))
        self._segments[segment.number] = segment
        start = segment.free.take(size_bytes)
        assert start is not None
        return segment, start

    def _release(self, segment: _Segment, start: int, size_bytes: int, told: Callable[[], object]) -> None:
        self._gone.append((segment, start, size_bytes))
        self._clear_up()
        told()

    def _clear_up(self) -> None:
        """Whoever holds the lock does this again afterwards."""
        while self._gone and self._lock.acquire(blocking=False):
            try:
                self._give_back()
            finally:
                self._lock.release()

    def _give_back(self) -> None:
        while self._gone:
            segment, start, size_bytes = self._gone.popleft()
            segment.discard(start, in_pages(size_bytes))
            segment.free.give_back(start, size_bytes)
            if segment.free.is_empty:
                del self._segments[segment.number]
                segment.close()


class MappedSegment:
    """A segment of another process, to read."""

    def __init__(self, fd: int) -> None:
        size_bytes = os.fstat(fd).st_size
        self._buffer = pa.py_buffer(mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ))

    def batch(self, shape: Shape, schema: pa.Schema) -> pa.RecordBatch:
        return batch_in(self._buffer.slice(shape.start, shape.size_bytes), shape, schema)


def batch_in(whole: pa.Buffer, shape: Shape, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of this shape that lies in a buffer, without a copy."""
    arrays = [_array(whole, column, kind) for column, kind in zip(shape.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(whole: pa.Buffer, shape: ColumnShape, kind: pa.DataType) -> pa.Array:
    buffers = [None if part is None else whole.slice(*part) for part in shape.buffers]
    if shape.is_stream:
        table = pa.ipc.open_stream(buffers[0]).read_all()
        return table.column(0).chunk(0) if table.num_rows else pa.array([], kind)
    if shape.dictionary is not None:
        dictionary = _array(whole, shape.dictionary, kind.value_type)
        return pa.DictionaryArray.from_buffers(kind, shape.rows, buffers, dictionary, shape.nulls)
    return pa.Array.from_buffers(kind, shape.rows, buffers, shape.nulls)


class Layout:
    """Where the buffers of a batch will lie."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.size_bytes = 0
        self.parts: list[tuple[int, pa.Buffer]] = []
        self.schema, self.rows = batch.schema, batch.num_rows
        self.columns = tuple(self._column(values) for values in batch.columns)

    def _column(self, values: pa.Array) -> ColumnShape:
        kind = values.type
        if pa.types.is_dictionary(kind):
            values = _from_its_start(values)
            dictionary = self._column(values.dictionary)
            buffers = self._add_all(values.buffers()[:2])
            return ColumnShape(len(values), values.null_count, buffers, dictionary)
        if kind.num_fields or pa.types.is_null(kind):
            sink = pa.BufferOutputStream()
            batch = pa.record_batch([values], ["values"])
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            return ColumnShape(len(values), 0, self._add_all([sink.getvalue()]), is_stream=True)
        values = _from_its_start(values)
        return ColumnShape(len(values), values.null_count, self._add_all(values.buffers()))

    def _add_all(self, buffers: Sequence[pa.Buffer | None]) -> tuple[Part, ...]:
        return tuple(None if buffer is None else self._add(buffer) for buffer in buffers)

    def _add(self, buffer: pa.Buffer) -> tuple[int, int]:
        offset = -(-self.size_bytes // ALIGNMENT) * ALIGNMENT
        self.parts.append((offset, buffer))
        self.size_bytes = offset + buffer.size
        return offset, buffer.size


def _from_its_start(values: pa.Array) -> pa.Array:
    """Without rows of other arrays before and behind its own."""
    if values.offset == 0:
        return values
    return pa.concat_arrays([values, values.slice(0, 0)])


def _write(fd: int, buffer: pa.Buffer, offset: int) -> None:
    view = memoryview(buffer)
    while view.nbytes:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _anonymous(size_bytes: int) -> tuple[int, int]:
    """A file without a name, to write and to read."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("lithify-hot", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{fd}"
    else:
        fd, path = tempfile.mkstemp(prefix="lithify-hot-")
    try:
        os.ftruncate(fd, size_bytes)
        return fd, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        os.close(fd)
        raise
    finally:
        if not hasattr(os, "memfd_create"):
            os.unlink(path)
