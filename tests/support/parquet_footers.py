"""Parquet files whose footers say what no writer here would write: statistics of old writers, counts that contradict.

A footer is a Thrift structure in the compact protocol. `edited` takes one apart into plain values, lets the test change
them, and puts the file together again. A structure is a dict of field number to (type, value), a list (type, values).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Fields = dict[int, tuple[int, Any]]

# FileMetaData
VERSION, SCHEMA, NUM_ROWS, ROW_GROUPS, NOTES, CREATED_BY, COLUMN_ORDERS, ENCRYPTION = range(1, 9)
# RowGroup
COLUMNS, TOTAL_BYTES, GROUP_ROWS = 1, 2, 3
# ColumnChunk and ColumnMetaData
META_DATA, CRYPTO_META_DATA, STATISTICS = 3, 8, 12
# Statistics
OLD_MAX, OLD_MIN, NULL_COUNT, DISTINCT_COUNT, MAX_VALUE, MIN_VALUE = range(1, 7)


def edited(path: Path, change: Callable[[Fields], None]) -> None:
    """Write the file anew with a changed footer; its pages stay where they are."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = _Reader(data[-8 - length : -8]).structure()
    change(footer)
    written = _structure(footer)
    path.write_bytes(data[: -8 - length] + written + len(written).to_bytes(4, "little") + data[-4:])


def statistics(footer: Fields, column: int) -> list[Fields]:
    """Of one leaf in each row group; an empty one where there were none."""
    found = []
    for group in footer[ROW_GROUPS][1][1]:
        chunk = group[COLUMNS][1][1][column][META_DATA][1]
        found.append(chunk.setdefault(STATISTICS, (STRUCT, {}))[1])
    return found


def as_old_writers_did(
    path: Path, bounds: dict[int, tuple[bytes, bytes]], created_by: str | None = "parquet-mr version 1.8.1 (build 4aba)"
) -> None:
    """Only the deprecated fields, and no column orders. `bounds`: of a leaf in the only row group."""

    def change(footer: Fields) -> None:
        footer.pop(COLUMN_ORDERS, None)
        footer.pop(CREATED_BY, None)
        if created_by is not None:
            footer[CREATED_BY] = BINARY, created_by.encode()
        for column, (low, high) in bounds.items():
            for stats in statistics(footer, column):
                for number in (MIN_VALUE, MAX_VALUE, 7, 8):
                    stats.pop(number, None)
                stats[OLD_MIN], stats[OLD_MAX] = (BINARY, low), (BINARY, high)
        footer.update(sorted(footer.items()))

    edited(path, change)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def structure(self) -> Fields:
        fields: Fields = {}
        number = 0
        while head := self._take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = head & 15, self._value(head & 15)
        return fields

    def _value(self, kind: int, *, inside: bool = False) -> Any:
        match kind:
            case 1 | 2:
                return self._take(1)[0] == 1 if inside else kind == TRUE
            case 3:
                return self._take(1)[0]
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                return struct.unpack("<d", self._take(8))[0]
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                head = self._take(1)[0]
                count = head >> 4 if head >> 4 != 15 else self._varint()
                return head & 15, [self._value(head & 15, inside=True) for _ in range(count)]
            case 12:
                return self.structure()
        raise ValueError(f"type {kind} does not occur in footers")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _structure(fields: Fields) -> bytes:
    out, before = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - before
        shown = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        out += bytes([step << 4 | shown]) if 0 < step < 16 else bytes([shown]) + _zigzag(number)
        out += b"" if kind in (TRUE, FALSE) else _value(kind, value)
        before = number
    return bytes(out) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    match kind:
        case 1 | 2:
            return bytes([TRUE if value else FALSE])
        case 3:
            return bytes([value])
        case 4 | 5 | 6:
            return _zigzag(value)
        case 7:
            return struct.pack("<d", value)
        case 8:
            return _varint(len(value)) + value
        case 9 | 10:
            inner, values = value
            head = (
                bytes([len(values) << 4 | inner]) if len(values) < 15 else bytes([0xF0 | inner]) + _varint(len(values))
            )
            return head + b"".join(_value(inner, one) for one in values)
        case 12:
            return _structure(value)
    raise ValueError(f"type {kind} does not occur in footers")
