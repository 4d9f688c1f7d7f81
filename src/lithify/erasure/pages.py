"""The pages of a Parquet file, decompressed, whatever rows point into them.

Readers of rows skip what no row uses: an entry of a dictionary, say. So the pages are walked here one after the other,
by their headers. These are Thrift structures in the compact protocol, of which only numbers and nested structures are
needed; everything else is stepped over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import Corruption

_DATA_V2 = 3
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4": "lz4_raw"}


def pages(data: bytes, metadata: pq.FileMetaData, name: str) -> Iterator[bytes]:
    """Raises Corruption where a page cannot be taken apart: it was not looked at."""
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            begins = [column.data_page_offset]
            if column.dictionary_page_offset:
                begins.append(column.dictionary_page_offset)
            try:
                yield from _of_chunk(data, min(begins), column.total_compressed_size, column.compression)
            except (IndexError, KeyError, ValueError, pa.ArrowException, RecursionError) as error:
                raise Corruption(f"the pages of column {column.path_in_schema} of {name} cannot be read") from error


def _of_chunk(data: bytes, begin: int, size: int, compression: str) -> Iterator[bytes]:
    place, end = begin, begin + size
    while place < end:
        header, body = _structure(data, place)
        packed_size, plain_size = header[3], header[2]
        packed = data[body : body + packed_size]
        if len(packed) < packed_size or packed_size < 0:
            raise ValueError("a page ends behind its file")
        levels, is_packed = 0, compression != "UNCOMPRESSED"
        if header[1] == _DATA_V2:
            levels = header[8].get(5, 0) + header[8].get(6, 0)
            is_packed = is_packed and header[8].get(7, True)
        yield packed[:levels] + (
            _plain(packed[levels:], plain_size - levels, compression) if is_packed else packed[levels:]
        )
        place = body + packed_size


def _plain(packed: bytes, size: int, compression: str) -> bytes:
    if not packed or not size:
        return b""
    found: bytes = pa.Codec(_CODECS[compression]).decompress(packed, decompressed_size=size, asbytes=True)
    return found


def _structure(data: bytes, place: int) -> tuple[dict[int, Any], int]:
    found: dict[int, Any] = {}
    field = 0
    while kind := data[place]:
        place += 1
        if kind >> 4:
            field += kind >> 4
        else:
            number, place = _varint(data, place)
            field = _signed(number)
        found[field], place = _value(data, place, kind & 15)
    return found, place + 1


def _value(data: bytes, place: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, place
    if kind == _BYTE:
        return data[place], place + 1
    if kind == _DOUBLE:
        return None, place + 8
    if kind == _STRUCT:
        return _structure(data, place)
    if kind in (_LIST, _SET, _MAP):
        raise ValueError("no header of a page has a list")
    number, place = _varint(data, place)
    return (None, place + number) if kind == _BINARY else (_signed(number), place)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place, number, shift = place + 1, number | (byte & 127) << shift, shift + 7
        if byte < 128:
            return number, place


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)
