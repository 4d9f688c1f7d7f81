"""Sidecars as plain values: everything that can be read of one, file by file; and bytes with their checksums put right.

Two sidecars say the same if and only if these values are equal, however their files lie in blocks.
"""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import Corruption, NotFound
from lithify.files.open_parquet import Footer, footer_in, footer_of
from lithify.index.block import Block
from lithify.index.footers import entry_of
from lithify.index.format import Array
from lithify.index.reader import Sidecar, View
from lithify.index.stats import ABSENT

TABLE_ID = "5f1c3a52-8d64-4f5e-9a6b-0c1d2e3f4a5b"

# Size, footer bytes, rows, and per row group its figures and those of its columns.
Entry = tuple[Any, ...]
State = dict[str, Entry]


# -- reading everything


def entries(block: Block, live: Sequence[bool] | None = None) -> State:
    """What a block says of each of its (live) files."""
    columns = []
    for number, info in enumerate(block.columns):
        stats, chunks = block.stats_of(number), block.chunks_of(number)
        arrays = [
            stats.flags,
            stats.low.view(np.uint64),
            stats.high.view(np.uint64),
            stats.nulls,
            chunks.offset,
            chunks.bytes,
            chunks.raw_bytes,
            chunks.values,
            chunks.distinct,
            chunks.codec,
            chunks.encodings,
            chunks.bloom_offset,
            chunks.bloom_bytes,
            block.chunk_array(number, Array.SORT),
        ]
        figures = list(zip(*(array.tolist() for array in arrays), strict=True))
        columns.append((info, [(f, stats.full_low(i), stats.full_high(i)) for i, f in enumerate(figures)]))
    groups = list(
        zip(block.group_rows.tolist(), block.group_bytes.tolist(), block.group_raw_bytes.tolist(), strict=True)
    )
    first, found = block.first_group.tolist(), {}
    sizes, footers, rows = block.sizes.tolist(), block.footer_bytes.tolist(), block.rows.tolist()
    for file, path in enumerate(block.paths.to_pylist()):
        if live is not None and not live[file]:
            continue
        assert path not in found
        of_groups = tuple(
            (groups[i], {info: chunks[i] for info, chunks in columns if not chunks[i][0][0] & ABSENT})
            for i in range(first[file], first[file + 1])
        )
        found[path] = (sizes[file], footers[file], rows[file], of_groups)
    return found


def state(view: View) -> State:
    found: State = {}
    for live in view.blocks:
        of_block = entries(live.block, live.live.tolist())
        assert not of_block.keys() & found.keys()
        found |= of_block
    assert view.files == len(found)
    assert view.groups == sum(len(entry[-1]) for entry in found.values())
    return found


def states(sidecar: Sidecar) -> dict[int, State]:
    """Every version of the chain."""
    return {version: state(sidecar.view(version)) for version in sidecar.versions()}


def readable_states(path: Path, table_id: str = TABLE_ID) -> list[tuple[int, State]]:
    """Every version that a damaged file still gives away. Whatever is raised but Corruption and NotFound gets out."""
    found = []

    def attempt(view: Callable[[], View]) -> None:
        try:
            seen = view()
            found.append((seen.version, state(seen)))
        except (Corruption, NotFound):
            pass

    try:
        sidecar = Sidecar.open(path, table_id)
    except (Corruption, NotFound):
        return []
    attempt(sidecar.view)
    try:
        versions = sidecar.versions()[1:]
    except Corruption:
        versions = []
    for version in versions:
        attempt(functools.partial(sidecar.view, version))
    return found


# -- small Parquet files


def footer(table: pa.Table, **options: Any) -> tuple[Footer, int]:
    """The footer of a table as a Parquet file, and the file's size."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()
    return footer_of(footer_in(data), "a footer"), len(data)


def raw_footer(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def entry(path: str, table: pa.Table, **options: Any) -> bytes:
    metadata, size = footer(table, **options)
    return entry_of(metadata, path, size)


@functools.cache
def _sample(kind: int) -> tuple[Footer, int]:
    match kind % 4:
        case 0:
            return footer(pa.table({"id": range(kind, kind + 6), "name": [f"name {i} of many" for i in range(6)]}))
        case 1:
            table = pa.table({"id": range(kind, kind + 9), "at": pa.array(range(9), pa.timestamp("us"))})
            return footer(table, row_group_size=3)
        case 2:
            return footer(pa.table({"id": [str(i) for i in range(kind)], "f": [float(i) for i in range(kind)]}))
        case _:
            return footer(pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())}))


def sample_entry(path: str, kind: int) -> bytes:
    """One of several small files: other schemas, other types of one name, several row groups or none."""
    metadata, size = _sample(kind)
    return entry_of(metadata, path, size + kind)


# -- bytes


def offsets(data: bytes | bytearray, magic: bytes) -> Iterator[int]:
    """Where an aligned structure seems to begin."""
    offset = data.find(magic)
    while offset >= 0:
        if offset % 8 == 0:
            yield offset
        offset = data.find(magic, offset + 1)


def repaired(data: bytes) -> bytes:
    """The same bytes with every checksum made right, so that what lies behind the checksums is put to the test too."""
    out = bytearray(data)
    for offset in offsets(out, b"PMBK"):
        _repair_block(out, offset)
    for offset in offsets(out, b"PMFT"):
        _repair_footer(out, offset)
    if out.startswith(b"LITHPM") and len(out) >= 64:
        struct.pack_into("<I", out, 12, zlib.crc32(out[16:56], zlib.crc32(out[:12])))
    return bytes(out)


def _repair_block(out: bytearray, offset: int) -> None:
    if offset + 48 > len(out):
        return
    length, head, files, groups, columns, arrays, names = struct.unpack_from("<QIIIIII", out, offset + 8)
    directory = (48 + 8 * columns + names + 7) & ~7
    if offset + length > len(out) or head > length or directory + 16 * arrays != head:
        return
    for number in range(arrays):
        at = offset + directory + 16 * number
        array, width, _, _, start = struct.unpack_from("<BBHIQ", out, at)
        if width == 255 and start <= length - 8:
            size = 8 + int.from_bytes(out[offset + start : offset + start + 8], "little")
        else:
            size = width * (files if array < 16 else groups)
        if width and start + size <= length:
            crc = zlib.crc32(memoryview(out)[offset + start : offset + start + size])
            struct.pack_into("<I", out, at + 4, crc)
    struct.pack_into("<I", out, offset + 4, zlib.crc32(memoryview(out)[offset + 8 : offset + head]))


def _repair_footer(out: bytearray, offset: int) -> None:
    if offset + 72 > len(out):
        return
    length, count = *struct.unpack_from("<I", out, offset + 4), *struct.unpack_from("<I", out, offset + 48)
    if length != 72 + 40 * count or offset + length > len(out):
        return
    for at in range(offset + 64, offset + length - 8, 40):
        block, _, mask = struct.unpack_from("<QQQ", out, at)
        if block + 48 > len(out):
            continue
        files = int.from_bytes(out[block + 20 : block + 24], "little")
        if mask:
            struct.pack_into("<I", out, at + 28, zlib.crc32(memoryview(out)[mask : mask + (files + 7) // 8]))
        out[at + 32 : at + 36] = out[block + 4 : block + 8]
    end = offset + length
    struct.pack_into("<I4s", out, end - 8, zlib.crc32(memoryview(out)[offset : end - 8]), b"PMFE")
