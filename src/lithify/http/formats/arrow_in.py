"""Arrow IPC streams from strangers, read without spending more memory than the limit.

A stream can promise or hide far more than it weighs: compressed buffers, rows without buffers, a long text in a
dictionary that every row points to. So a stream is looked at before it is read. Each message's own header tells how
many rows it has and how large its buffers are once unpacked (`declared_sizes`); if the sum is over the limit, nothing
is unpacked. Then batches are read one by one, checked from end to end (offsets of a damaged stream may point anywhere),
and what a dictionary or a view stands for is measured before it is written out in full.

A stream must end with its end mark: without it, rows may be missing that nobody would notice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.schema import normalise
from lithify.errors import InvalidRequest, LimitExceeded

DEPTH_MAX = 32
MESSAGES_MAX = 100_000
ROWS_MAX = 10_000_000
_DAMAGED = "the body is no complete Arrow IPC stream: it is damaged or cut off"
END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_DICTIONARY, _BATCH = 2, 3


@dataclass(frozen=True)
class Declared:
    """What the headers of a stream's messages say is in them."""

    rows: int
    bytes: int
    longest: int


def read_stream(data: bytes, columns: pa.Schema, bytes_max: int) -> pa.Table:
    """The rows of a stream, in its own types. `columns`: those of the table that they are meant for."""
    try:
        _check_declared(declared_sizes(data), bytes_max)
        reader = pa.ipc.open_stream(pa.BufferReader(data))
        _check_schema(reader.schema, columns)
        batches, size, rows = [], 0, 0
        for batch in reader:
            batch.validate(full=True)
            rows += batch.num_rows
            size += sum(_full_bytes(column) for column in batch.columns)
            if size > bytes_max:
                raise _too_large("its values take more than", bytes_max)
            if rows > ROWS_MAX:
                raise _too_many_rows()
            batches.append(_plain(batch))
    except (pa.ArrowException, OSError, ValueError, struct.error, UnicodeError, IndexError, OverflowError) as error:
        raise InvalidRequest(_DAMAGED) from error
    if not rows:
        raise InvalidRequest("the batch is empty: give at least one row")
    return pa.Table.from_batches(batches)


def schema_of_stream(data: bytes) -> pa.Schema:
    try:
        return pa.ipc.open_stream(pa.BufferReader(data)).schema
    except (pa.ArrowException, OSError, ValueError, struct.error, UnicodeError, IndexError, OverflowError) as error:
        raise InvalidRequest(_DAMAGED) from error


def declared_sizes(data: bytes) -> Declared:
    """The sum over all messages, without unpacking any."""
    if not data.endswith(END_MARK):
        raise InvalidRequest("the body is no complete Arrow IPC stream: its end mark is missing")
    rows = size = longest = 0
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
    for number, message in enumerate(_messages(reader)):
        if number >= MESSAGES_MAX:
            raise InvalidRequest(f"the stream has more than {MESSAGES_MAX:,} messages: send larger batches")
        header = _Header(message.metadata.to_pybytes(), message.body)
        rows += header.rows
        size += header.unpacked_bytes
        longest = max(longest, header.longest)
    return Declared(rows, size, longest)


def _messages(reader: pa.ipc.MessageReader) -> Iterator[pa.ipc.Message]:
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _check_declared(declared: Declared, bytes_max: int) -> None:
    if declared.bytes > bytes_max:
        raise _too_large("unpacked, it says to take more than", bytes_max)
    # A child of a list may be longer than the batch, but each value takes a bit at least.
    if declared.rows > ROWS_MAX or declared.longest > 8 * bytes_max:
        raise _too_many_rows()


def _too_large(what: str, bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"the Arrow stream is too large: {what} {bytes_max / 2**20:,.0f} MiB (setting body_bytes_max): send fewer rows "
        "at a time",
        limit="size",
    )


def _too_many_rows() -> LimitExceeded:
    return LimitExceeded(
        f"the Arrow stream has more than {ROWS_MAX:,} rows: send fewer rows at a time, or use `lithify ingest`",
        limit="size",
    )


def _check_schema(schema: pa.Schema, columns: pa.Schema) -> None:
    known = set(columns.names)
    for column in schema:
        if column.name not in known:
            raise InvalidRequest(
                f"column {column.name[:60]!r} is not in the table: it has {', '.join(columns.names)}; drop it from the "
                "batch"
            )
        _check_type(column.type, column.name, 0)


def _check_type(kind: pa.DataType, where: str, depth: int) -> None:
    types = pa.types
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"column {where!r} nests more than {DEPTH_MAX} levels deep")
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        raise InvalidRequest(f"column {where!r} is a list view: send plain lists")
    if types.is_dictionary(kind):
        if depth or types.is_nested(kind.value_type) or types.is_dictionary(kind.value_type):
            raise InvalidRequest(f"column {where!r}: dictionaries inside of or made of nested values are not taken")
    elif depth and (types.is_string_view(kind) or types.is_binary_view(kind)):
        raise InvalidRequest(f"column {where!r}: views inside of nested values are not taken: send plain text")
    elif types.is_struct(kind) or types.is_map(kind) or _is_list(kind):
        for number in range(kind.num_fields):
            _check_type(kind.field(number).type, where, depth + 1)
        return
    if not types.is_null(kind):
        normalise(kind, where)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _full_bytes(column: pa.Array) -> int:
    """What a column takes when every row holds its value itself."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        if not len(column.dictionary):
            return 0
        if (width := _width(kind.value_type)) is not None:
            return width * len(column)
        lengths = pc.binary_length(column.dictionary).take(column.indices.cast(pa.int64()))
        return int(pc.sum(lengths).as_py() or 0) + 4 * len(column)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        # Each view takes 16 bytes, the first four of which are the length of its value.
        views = pa.Array.from_buffers(pa.int32(), 4 * (len(column) + column.offset), [None, column.buffers()[1]])
        lengths = views.to_numpy()[4 * column.offset :: 4]
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return int(lengths[valid].sum(dtype="int64")) + 4 * len(column)
    return int(column.nbytes)


def expanded_bytes(rows: pa.Table, columns: pa.Schema) -> int:
    """What these rows take as full rows of the table, columns that they leave out included."""
    left_out = sum(_width(column.type) or 4 for column in columns if column.name not in rows.column_names)
    return int(rows.nbytes + rows.num_rows * left_out)


def check_expanded(rows: pa.Table, columns: pa.Schema, bytes_max: int) -> None:
    if expanded_bytes(rows, columns) > bytes_max:
        raise LimitExceeded(
            f"these {rows.num_rows:,} rows take more than {bytes_max / 2**20:,.0f} MiB with all {len(columns)} columns "
            "of the table: send fewer rows at a time",
            limit="size",
        )


def _width(kind: pa.DataType) -> int | None:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return None


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Dictionaries and views written out, which has been measured before."""
    arrays, fields = [], []
    for column, field in zip(batch.columns, batch.schema, strict=True):
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
            column = _without_views(column)
        arrays.append(column)
        fields.append(pa.field(field.name, column.type, field.nullable))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _without_views(column: pa.Array) -> pa.Array:
    """Validation skips the views of nulls, but the cast follows them wherever they point: they are emptied first."""
    validity, views, *data = column.buffers()
    cleared = np.frombuffer(views, np.uint8)[: 16 * (column.offset + len(column))].reshape(-1, 16).copy()
    cleared[column.offset :][~column.is_valid().to_numpy(zero_copy_only=False)] = 0
    buffers = [validity, pa.py_buffer(cleared), *data]
    safe = pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)
    return safe.cast(pa.string() if pa.types.is_string_view(column.type) else pa.binary())


class _Header:
    """The few fields of a message's flatbuffer that say how large it is. Arrow has verified the flatbuffer before."""

    def __init__(self, metadata: bytes, body: pa.Buffer | None) -> None:
        self._data = metadata
        self.rows = self.unpacked_bytes = self.longest = 0
        message = self._u32(0)
        kind = self._number(message, 1, "<B")
        header = self._child(message, 2)
        if kind == _DICTIONARY and header is not None:
            header = self._child(header, 1)
        elif kind != _BATCH:
            return
        if header is None:
            return
        length = self._number(header, 0, "<q")
        self.rows = length if kind == _BATCH else 0
        nodes = [node_length for node_length, _ in self._pairs(header, 1)]
        if length < 0 or any(node < 0 for node in nodes):
            raise InvalidRequest("the body is no complete Arrow IPC stream: it has a negative length")
        self.longest = max([length, *nodes])
        compressed = self._child(header, 3) is not None
        size = len(body) if body is not None else 0
        for offset, buffer_bytes in self._pairs(header, 2):
            if offset < 0 or buffer_bytes < 0 or offset + buffer_bytes > size:
                raise InvalidRequest("the body is no complete Arrow IPC stream: a buffer reaches beyond its end")
            self.unpacked_bytes += buffer_bytes
            if compressed and buffer_bytes >= 8:
                assert body is not None
                declared = int.from_bytes(body.slice(offset, 8).to_pybytes(), "little", signed=True)
                # -1: this buffer was left as it is.
                if declared < -1:
                    raise InvalidRequest("the body is no complete Arrow IPC stream: it has a negative length")
                self.unpacked_bytes += max(declared, 0)

    def _u32(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self._data, at)[0])

    def _field(self, table: int, number: int) -> int | None:
        vtable = table - int(struct.unpack_from("<i", self._data, table)[0])
        size = int(struct.unpack_from("<H", self._data, vtable)[0])
        slot = 4 + 2 * number
        if slot + 2 > size:
            return None
        offset = int(struct.unpack_from("<H", self._data, vtable + slot)[0])
        return table + offset if offset else None

    def _number(self, table: int, number: int, layout: str) -> int:
        at = self._field(table, number)
        return 0 if at is None else int(struct.unpack_from(layout, self._data, at)[0])

    def _child(self, table: int, number: int) -> int | None:
        at = self._field(table, number)
        return None if at is None else self._u32(at)

    def _pairs(self, table: int, number: int) -> list[tuple[int, int]]:
        """A vector of structs of two int64: field nodes (length, nulls) and buffers (offset, length)."""
        at = self._child(table, number)
        if at is None:
            return []
        count = int(struct.unpack_from("<I", self._data, at)[0])
        numbers = struct.unpack_from(f"<{2 * count}q", self._data, at + 4)
        return list(zip(numbers[::2], numbers[1::2], strict=True))
