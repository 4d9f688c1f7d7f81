"""A checksum of rows that does not depend on their order: the sum of a 64-bit hash per row.

A rewrite that loses, doubles or mixes up keys changes it, even where the number of rows stays the same. Every byte of
every value goes into the hash; all of it is NumPy over Arrow's buffers, without a Python object per value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from lithify.core.column_types import Family, type_of
from lithify.files.parquet import batches_of
from lithify.metrics.progress import advance

_MASK = (1 << 64) - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL = np.uint64(0x27D4EB2F165667C5)


def fingerprint(table: pa.Table, columns: Sequence[str]) -> int:
    """Sum over all rows, modulo 2^64. No columns: the number of rows."""
    hashes = np.full(table.num_rows, 1, np.uint64)
    for name in columns:
        hashes = _mixed(hashes * _STEP + _hashes(table.column(name)))
    return int(hashes.sum(dtype=np.uint64)) & _MASK if table.num_rows else 0


def fingerprint_of_file(
    path: PurePath, columns: pa.Schema, constants: dict[str, Any] | None = None, size_bytes: int | None = None
) -> int:
    sums = []
    for table in batches_of(path, columns, constants, size_bytes):
        advance()  # what is cancelled meanwhile ends here
        sums.append(fingerprint(table, columns.names))
    return added(sums)


def added(sums: Iterable[int]) -> int:
    return sum(sums) & _MASK


def columns_to_check(schema: pa.Schema, key: Sequence[str], others_max: int = 4) -> list[str]:
    """The key; on a table with no key, its first plain columns."""
    if key:
        return list(key)
    return [f.name for f in schema if type_of(f.type).is_comparable][:others_max]


def _mixed(values: np.ndarray) -> np.ndarray:
    folded: np.ndarray = (values ^ (values >> np.uint64(29))) * _ODD
    mixed: np.ndarray = folded ^ (folded >> np.uint64(32))
    return mixed


def _hashes(column: pa.ChunkedArray) -> np.ndarray:
    parts = [_hashes_of(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hashes_of(array: pa.Array) -> np.ndarray:
    kind = type_of(array.type)
    if kind.family in (Family.TEXT, Family.BINARY):
        found = _hashes_of_bytes(array)
    elif kind.family is Family.DECIMAL:
        words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        found = _mixed(words[:, 0] * _STEP + words[:, 1])
    else:
        numbers = kind.ordered(array)
        plain = numbers.view(_plain(numbers.type)).fill_null(0).to_numpy(zero_copy_only=False)
        found = _mixed(plain.astype(np.int64).view(np.uint64))
    if array.null_count:
        found = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, found)
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]


def _hashes_of_bytes(array: pa.Array) -> np.ndarray:
    """Eight bytes at a time: a view of the bytes as overlapping words turns each step into one gather."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = array.buffers()[2]
    # Of a slice only its own bytes; and eight more, so that the last word can be read whole.
    own = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
    raw = np.concatenate([own, np.zeros(8, np.uint8)])
    offsets -= offsets[0]
    words = np.lib.stride_tricks.as_strided(raw.view(), (len(raw) - 7, 8), (1, 1)).reshape(-1, 8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    found = _mixed(lengths.astype(np.uint64) + _STEP)
    lines = np.flatnonzero(lengths > 0)
    done = 0
    while len(lines):
        word = np.ascontiguousarray(words[starts[lines] + done]).view(np.uint64).ravel()
        left = lengths[lines] - done
        keep = np.where(
            left >= 8, np.uint64(_MASK), (np.uint64(1) << (np.minimum(left, 7) * 8).astype(np.uint64)) - np.uint64(1)
        )
        found[lines] = _mixed(found[lines] * _STEP + (word & keep))
        done += 8
        lines = lines[left > 8]
    return found
