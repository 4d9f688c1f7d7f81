"""Which row groups may hold what a query asks for, by their bloom filters: `False` only with proof.

Asked are lists of values of which a row must hold one, under AND and OR (`prune.equalities`). Parquet's split-block
filters lie in the files themselves; the index only tells where, so one value costs one read of 32 bytes. A filter
that is not there, or not of the one kind that the format defines, or a value that is not sure to be spelled as in the
file, answers "perhaps".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from lithify.core.predicates import And, In, Or, Predicate
from lithify.errors import LithifyError
from lithify.files.open_parquet import ranges_of
from lithify.index.block import Block, ColumnInfo
from lithify.index.sort_keys import point_of
from lithify.index.stats import ABSENT, CALENDAR, HAS_MIN, ColumnStats, Kind

# Each value is a small read at a random offset; beyond so many of them, row groups are read without asking.
LOOKS_MAX = 512
_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_BLOCK_BYTES = 32
_HEADER_BYTES_MAX = 32
# Of the header, after its first field: algorithm, hash and compression, each a union whose first member is set.
_BLOCK_XXHASH_PLAIN = b"\x1c\x1c\x00\x00" * 3 + b"\x00"
_INT32, _INT64, _BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY = 1, 2, 6, 7
_DECIMAL_BYTES_MAX = 16
_MICROSECONDS = 6  # digits of a second
_OFFSET_MAX = 2**48  # more than any file has; far from what the operating system takes for an offset at all

Flags = NDArray[np.bool_]


class Blooms:
    """The bloom filters of some row groups of one block; `path_of` gives the file of each by its index in `groups`."""

    def __init__(
        self,
        block: Block,
        stats_of: Callable[[str], ColumnStats | None],
        groups: Sequence[int],
        path_of: Callable[[int], str],
    ) -> None:
        self._block, self._stats_of, self._groups, self._path_of = block, stats_of, groups, path_of
        self._infos = {info.name: info for info in block.columns}
        self._looks_left = LOOKS_MAX

    def may_hold(self, asked: Predicate, among: Flags) -> Flags:
        """Which of these row groups may hold a row that is asked for."""
        match asked:
            case And(parts):
                # The shortest list says the most for its price.
                for part in sorted(parts, key=_values_in):
                    among = self.may_hold(part, among)
                return among
            case Or(parts):
                found = np.zeros(len(among), np.bool_)
                for part in parts:
                    found |= self.may_hold(part, among & ~found)
                return found
            case In(column, values, False):
                return self._may_hold_one(column, values, among)
            case _:
                return among

    def _may_hold_one(self, column: str, values: tuple[Any, ...], among: Flags) -> Flags:
        stats, chunks, info = self._stats_of(column), self._block.chunks(column), self._infos.get(column)
        if stats is None or chunks is None or info is None or stats.kind is Kind.FLOAT:
            return among
        numbers = np.flatnonzero(among).tolist()
        if len(numbers) * len(values) > self._looks_left:
            return among
        spelled = [bloom_bytes(info, value) for value in values]
        wanted = [code for codes in spelled for code in codes or ()]
        if None in spelled:
            return among
        self._looks_left -= len(numbers) * len(values)
        # Without bounds, days and times are perhaps those of another calendar.
        needed = HAS_MIN if stats.kind in CALENDAR else 0
        keep = among.copy()
        for number in numbers:
            group = self._groups[number]
            offset, flags = int(chunks.bloom_offset[group]), int(stats.flags[group])
            if offset and not flags & ABSENT and flags & needed == needed:
                keep[number] = _may_hold(self._path_of(number), offset, wanted)
        return keep


def _values_in(asked: Predicate) -> int:
    match asked:
        case And(parts) | Or(parts):
            return sum(map(_values_in, parts))
        case In(_, values, _):
            return len(values)
        case _:
            return 0


def _may_hold(path: str, offset: int, values: Sequence[bytes]) -> bool:
    try:
        return may_hold(path, offset, values)
    except LithifyError:  # whoever reads the file says what is wrong with it
        return True


# -- one filter


def may_hold(path: PurePath | str, offset: int, values: Sequence[bytes]) -> bool:
    """Whether the filter at `offset` of a file may hold one of the values, each as `bloom_bytes` spells it."""
    if offset >= _OFFSET_MAX:
        return True
    with ranges_of(path) as read:
        start = _filter_of(read(offset, _HEADER_BYTES_MAX))
        if start is None:
            return True
        header_bytes, filter_bytes = start
        for value in values:
            hashed = xxhash.xxh64_intdigest(value)
            block_number = ((hashed >> 32) * (filter_bytes // _BLOCK_BYTES)) >> 32
            block = read(offset + header_bytes + block_number * _BLOCK_BYTES, _BLOCK_BYTES)
            if len(block) < _BLOCK_BYTES or _in_block(block, hashed & 0xFFFFFFFF):
                return True
        return False


def _filter_of(header: bytes) -> tuple[int, int] | None:
    """(bytes of the header, bytes of the filter), or None if it is none that we know."""
    if not header.startswith(b"\x15"):
        return None
    number = shift = 0
    position = 1
    while position < len(header):
        byte = header[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    size = number >> 1  # zigzag, and never negative
    known = header[position:].startswith(_BLOCK_XXHASH_PLAIN) and not number & 1
    if not known or size % _BLOCK_BYTES or not 0 < size <= 2**31:
        return None
    return position + len(_BLOCK_XXHASH_PLAIN), size


def _in_block(block: bytes, key: int) -> bool:
    words = struct.unpack("<8I", block)
    return all(word >> (((key * salt) & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALT, strict=True))


def bloom_bytes(column: ColumnInfo, value: Any) -> tuple[bytes, ...] | None:
    """A value as Parquet hashes it: its plain encoding, or each that it may have. None where that is not sure."""
    try:
        match column.kind:
            case Kind.TEXT if isinstance(value, str):
                return (value.encode(),)
            case Kind.BINARY if isinstance(value, bytes) and column.physical == _BYTE_ARRAY:
                return (value,)
            case Kind.SIGNED | Kind.UNSIGNED if isinstance(value, int) and not isinstance(value, bool):
                return _integer(column, value, signed=column.kind is Kind.SIGNED)
            case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMP_UTC if column.physical in (_INT32, _INT64):
                point = point_of(column.kind, 0, value)
                number = None if point is None else _in_unit(column, point.floor)
                return None if number is None else _integer(column, number)
            case Kind.DECIMAL | Kind.WIDE_DECIMAL:
                point = point_of(Kind.DECIMAL, column.scale, value)
                return None if point is None else _decimal(column, point.floor) if point.exact else ()
            case _:
                return None
    except (struct.error, OverflowError):  # beyond the column's range: not in it, which the bounds say as well
        return None


def _integer(column: ColumnInfo, number: int, *, signed: bool = True) -> tuple[bytes, ...]:
    code = "i" if column.physical == _INT32 else "q"
    return (struct.pack("<" + (code if signed else code.upper()), number),)


def _in_unit(column: ColumnInfo, number: int) -> int | None:
    """Days, or microseconds in the unit of the file. A file of milliseconds holds no others, one of nanoseconds some
    that are the same microsecond.
    """
    if column.kind is Kind.DATE or column.scale == _MICROSECONDS:
        return number
    return None


def _decimal(column: ColumnInfo, unscaled: int) -> tuple[bytes, ...] | None:
    """Bytes of a fixed length are as many as the digits need, or more, as the writer likes."""
    if column.physical in (_INT32, _INT64):
        return _integer(column, unscaled)
    if column.physical != _FIXED_LEN_BYTE_ARRAY:
        return None
    least = (10**column.precision).bit_length() // 8 + 1
    return tuple(unscaled.to_bytes(size, "big", signed=True) for size in range(least, _DECIMAL_BYTES_MAX + 1))
