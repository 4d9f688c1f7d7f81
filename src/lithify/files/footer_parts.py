"""Some row groups of a footer, without parsing the others.

A footer describes every column of every row group: 2.6 MB for 200 columns and 100 row groups, which take Arrow 50 ms to
parse, to read one of them. It is one Thrift structure, and its row groups are a list in the middle of it. What one of
them says is the same wherever it stands, so the beginning of a footer, a list of some of its row groups and its end are
a footer too: of the same file, with these row groups only.

`group_extents` finds where each row group lies. It does not walk through the columns, which in Python would take longer
than to parse them all: it looks for the numbers that each row group ends with, and believes an offset only where what
follows is the end of a row group and the beginning of the next. The index keeps the offsets (docs/format.md), and
`read_part` fetches the bytes from the file itself: the index says where to look, never what is there. Where anything is
not as it must be, there is no part, and the whole footer tells.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.core.read_plan import FooterPart
from lithify.files.local_files import use
from lithify.files.open_parquet import parsed, varint
from lithify.files.read_proof import tag_of

# A smaller footer is parsed in less time than it takes to put a part of it together.
FOOTER_BYTES_MIN = 16 * 2**10
_MAGIC = b"PAR1"
# Thrift's compact protocol: the next field, which is a list of structures, or a number of 64 bits.
_LIST, _I64 = 0x19, b"\x16"
_STOP, _STRUCT = 0, 12
# Of values that take the same room each: booleans (in lists), bytes, doubles.
_WIDTHS = {1: 1, 2: 1, 3: 1, 7: 8}


def group_extents(raw: bytes, metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """Begin and length of each row group in a footer; none where that is of no use, or cannot be told."""
    groups = metadata.num_row_groups
    if len(raw) < FOOTER_BYTES_MIN or groups < 2:
        return []
    columns = _list_head(metadata.num_columns)
    before = _I64 + _zigzag(metadata.num_rows) + _list_head(groups)
    try:
        at = raw.index(before + columns) + len(before)
        extents = []
        for number in range(groups):
            group = metadata.row_group(number)
            end = _end_of_group(raw, at, group, columns if number < groups - 1 else None)
            extents.append((at, end - at))
            at = end
    except (ValueError, IndexError, RecursionError):  # another writer's way to write it
        return []
    return extents


def _end_of_group(raw: bytes, at: int, group: pq.RowGroupMetaData, following: bytes | None) -> int:
    """`following`: what the next row group begins with; None: this is the last, and the rest of the footer follows."""
    numbers = _I64 + _zigzag(group.total_byte_size) + _I64 + _zigzag(group.num_rows)
    end = _end_of_structure(raw, raw.index(numbers, at) + len(numbers))
    if raw.startswith(following, end) if following is not None else _end_of_structure(raw, end) == len(raw):
        return end
    raise ValueError("the same bytes with another meaning")


def read_part(path: str, size_bytes: int, part: FooterPart) -> pq.FileMetaData | None:
    """A footer of some row groups of the file. None if the file is not the one that the index describes."""
    try:
        raw = _bytes_of(path, size_bytes, part)
        if raw is None:
            return None
        metadata = parsed(raw)
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    except (OSError, ValueError, pa.ArrowException):
        return None
    return metadata if rows == [group.rows for group in part.groups] else None


def _bytes_of(path: str, size_bytes: int, part: FooterPart) -> bytes | None:
    begin = size_bytes - 8 - part.footer_bytes
    fd = use(path, size_bytes, lambda local: os.open(local, os.O_RDONLY | os.O_CLOEXEC))
    try:
        found = os.fstat(fd)
        if found.st_size != size_bytes or tag_of(path, found) != part.tag:
            return None
        head = os.pread(fd, part.first, begin)
        groups = [os.pread(fd, group.length, begin + group.begin) for group in part.groups]
        # From the last byte of the last row group, which ends it, to the end of the file.
        tail = os.pread(fd, part.footer_bytes - part.end + 9, begin + part.end - 1)
    finally:
        os.close(fd)
    before, ending = _list_head(part.groups_all), part.footer_bytes.to_bytes(4, "little") + _MAGIC
    if not head.endswith(before) or tail[:1] != b"\0" or not tail.endswith(ending):
        return None
    return b"".join((head[: -len(before)], _list_head(len(groups)), *groups, tail[1:-8]))


# -- Thrift


def _list_head(count: int) -> bytes:
    return bytes((_LIST, count << 4 | _STRUCT)) if count < 15 else bytes((_LIST, 0xF0 | _STRUCT)) + varint(count)


def _zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _end_of_structure(raw: bytes, at: int) -> int:
    """From a field of it, or from its end."""
    while (head := raw[at]) != _STOP:
        at += 1
        if not head >> 4:
            _, at = _varint_at(raw, at)
        at = _end_of_value(raw, at, head & 15)
    return at + 1


def _end_of_value(raw: bytes, at: int, kind: int) -> int:
    match kind:
        case 1 | 2:  # a boolean, whose value is its type
            return at
        case 3 | 7:
            return at + _WIDTHS[kind]
        case 4 | 5 | 6:
            return _varint_at(raw, at)[1]
        case 8:
            length, at = _varint_at(raw, at)
            return at + length
        case 9 | 10:
            head, at = raw[at], at + 1
            count, at = (head >> 4, at) if head >> 4 != 15 else _varint_at(raw, at)
            inside = head & 15
            if inside in _WIDTHS:
                return at + count * _WIDTHS[inside]
            for _ in range(count):
                at = _end_of_value(raw, at, inside)
            return at
        case 12:
            return _end_of_structure(raw, at)
    raise ValueError(f"type {kind} does not occur in footers")


def _varint_at(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while raw[at] > 0x7F:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | raw[at] << shift, at + 1
