"""A sidecar's bytes with their meaning, read straight from the tables of docs/format.md and from nothing else.

A second reader, that shares no code with the first: the example in the document is what it prints.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

_LINE_BYTES = 16
_NO_COLUMN = 65_535
_ARRAYS = {
    1: "path end",
    2: "paths",
    3: "size",
    4: "footer bytes",
    5: "group end",
    6: "path hash",
    16: "group rows",
    17: "group bytes",
    18: "group raw bytes",
    32: "flags",
    33: "low",
    34: "high",
    35: "nulls",
    36: "offset",
    37: "bytes",
    38: "raw bytes",
    39: "values",
    40: "distinct",
    41: "codec",
    42: "encodings",
    43: "bloom offset",
    44: "bloom bytes",
    45: "low end",
    46: "high end",
    47: "bounds",
}
_TEXT = 8
_KINDS = {1: "signed", _TEXT: "text"}
_KEYS = (33, 34)
_OF_FILES = range(1, 7)

# (place, length, meaning)
Field = tuple[int, int, str]


def annotated(data: bytes) -> str:
    """Every byte once, in order, field by field."""
    lines, offset = [], 0
    for at, length, meaning in sorted(_fields(data)):
        assert at == offset, f"bytes {offset} to {at} are nobody's"
        offset += length
        for start in range(at, at + length, _LINE_BYTES):
            part = data[start : min(start + _LINE_BYTES, at + length)]
            shown = f"{start:04x}  {part.hex(' '):<{3 * _LINE_BYTES - 1}}  {meaning if start == at else ''}"
            lines.append(shown.rstrip())
    assert offset == len(data)
    return "\n".join(lines) + "\n"


def _number(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


def _fields(data: bytes) -> Iterator[Field]:
    head = _number(data, 56, 8)
    yield 0, 8, "HEADER: magic"
    yield 8, 4, f"version {_number(data, 8, 4)}"
    yield 12, 4, "crc"
    yield 16, 8, "features: tagged"
    yield 24, 16, f"table id {uuid.UUID(bytes=data[24:40])}"
    yield 40, 8, "file id"
    yield 48, 8, "reserved"
    yield 56, 8, f"head: footer at {head:#x}"
    yield from _footer(data, head)


def _footer(data: bytes, at: int) -> Iterator[Field]:
    length, version, previous, _, files, groups, blocks = struct.unpack_from("<IQQQQQI", data, at + 4)
    assert previous == 0, "only a file of one version is shown"
    yield at, 4, "FOOTER: magic"
    yield at + 4, 4, f"length {length}"
    yield at + 8, 8, f"delta version {version}"
    yield at + 16, 8, "previous: none"
    yield at + 24, 8, "file id"
    yield at + 32, 8, f"files: {files}"
    yield at + 40, 8, f"groups: {groups}"
    yield at + 48, 4, f"blocks: {blocks}"
    yield at + 52, 4, "flags"
    yield at + 56, 8, "reserved"
    for number in range(blocks):
        ref = at + 64 + 40 * number
        offset, size, mask, live = struct.unpack_from("<QQQI", data, ref)
        assert mask == 0, "only a file without masks is shown"
        yield ref, 8, f"reference: block at {offset:#x}"
        yield ref + 8, 8, f"length {size}"
        yield ref + 16, 8, "mask: none, all files are live"
        yield ref + 24, 4, f"live files: {live}"
        yield ref + 28, 4, "mask crc"
        yield ref + 32, 4, "block crc"
        yield ref + 36, 4, "reserved"
        yield from _block(data, offset)
    yield at + length - 8, 4, "crc"
    yield at + length - 4, 4, "end"


def _block(data: bytes, at: int) -> Iterator[Field]:
    length, head, files, groups, columns, arrays, names = struct.unpack_from("<QIIIIII", data, at + 8)
    yield at, 4, "BLOCK: magic"
    yield at + 4, 4, "crc"
    yield at + 8, 8, f"length {length}"
    yield at + 16, 4, f"head length {head}"
    yield at + 20, 4, f"files: {files}"
    yield at + 24, 4, f"groups: {groups}"
    yield at + 28, 4, f"columns: {columns}"
    yield at + 32, 4, f"arrays: {arrays}"
    yield at + 36, 4, f"names length {names}"
    yield at + 40, 8, "features: none"
    named, texts, offset = [], set(), at + 48 + 8 * columns
    for number in range(columns):
        kind, physical, _, _, name_length = struct.unpack_from("<BBBBH", data, at + 48 + 8 * number)
        named.append(data[offset : offset + name_length].decode())
        texts |= {number} if kind == _TEXT else set()
        offset += name_length
        meaning = f"column {number}: {_KINDS[kind]}, physical type {physical}, name of {name_length} bytes"
        yield at + 48 + 8 * number, 8, meaning
    names_at = at + 48 + 8 * columns
    directory = at + (48 + 8 * columns + names + 7) // 8 * 8
    yield names_at, names, f"names: {', '.join(named)}"
    if directory > names_at + names:
        yield names_at + names, directory - names_at - names, "up to a multiple of 8"
    for number in range(arrays):
        entry = directory + 16 * number
        array, width, column, _, offset = struct.unpack_from("<BBHIQ", data, entry)
        what = _ARRAYS[array] if column == _NO_COLUMN else f"{_ARRAYS[array]} of {named[column]}"
        if width == 0:
            yield entry, 16, f"{what}: {offset} everywhere"
            continue
        form = "heap" if width == 255 else "1 byte each" if width == 1 else f"{width} bytes each"
        yield entry, 16, f"{what}: {form}, at {at + offset:#x}"
        count = files if array in _OF_FILES else groups
        yield from _array(data, at + offset, width, count, what, text=array in _KEYS and column in texts)


def _array(data: bytes, at: int, width: int, count: int, what: str, *, text: bool) -> Iterator[Field]:
    if width == 255:
        length = 8 + _number(data, at, 8)
        meaning = f"{length - 8} bytes: {data[at + 8 : at + length].decode()}"
    else:
        length = width * count
        numbers = [_number(data, at + width * i, width) for i in range(count)]
        meaning = ", ".join(n.to_bytes(8, "big").rstrip(b"\0").decode() if text else str(n) for n in numbers)
    yield at, length, f"{what}: {meaning}"
    if length % 8:
        yield at + length, -length % 8, "up to a multiple of 8"
