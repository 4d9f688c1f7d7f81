"""Z-order: one number per row whose bits alternate between the columns, so that rows near in all of them lie together.

Each column is first mapped to its rank among quantiles of a sample, so that skewed values spread evenly. Ranks decide
the order of rows and nothing else: they may be coarse (text is ranked by eight bytes after the common prefix).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, type_of

BITS_MAX = 12
BITS_TOTAL = 60


@dataclass(frozen=True)
class Quantiles:
    """Boundaries between the ranks of one column, as numbers; text is taken after `prefix`."""

    column: str
    prefix: bytes
    boundaries: np.ndarray


def quantiles(sample: pa.Table, by: Sequence[str]) -> list[Quantiles]:
    bits = bits_per_column(len(by))
    found = []
    for name in by:
        values = pc.drop_null(sample.column(name))
        prefix = _common_prefix(values)
        numbers = np.sort(_numbers(values, prefix))
        ranks = np.linspace(0, max(len(numbers) - 1, 0), (1 << bits) - 1).astype(np.int64)
        found.append(Quantiles(name, prefix, numbers[ranks] if len(numbers) else numbers))
    return found


def bits_per_column(columns: int) -> int:
    return max(1, min(BITS_MAX, BITS_TOTAL // columns))


def z_values(table: pa.Table, by: Sequence[Quantiles]) -> np.ndarray:
    """The position of each row on the curve. Nulls come first in their column."""
    bits = bits_per_column(len(by))
    ranks = []
    for column in by:
        values = table.column(column.column)
        missing = values.is_null().to_numpy()
        rank = np.searchsorted(column.boundaries, _numbers(values, column.prefix), side="right").astype(np.int64)
        ranks.append(np.where(missing, 0, np.minimum(rank + 1, (1 << bits) - 1)))
    result = np.zeros(table.num_rows, np.int64)
    for bit in reversed(range(bits)):
        for rank in ranks:
            result = (result << 1) | ((rank >> bit) & 1)
    return result


def _is_text(kind: pa.DataType) -> bool:
    return type_of(kind).family in (Family.TEXT, Family.BINARY)


def _common_prefix(values: pa.ChunkedArray) -> bytes:
    if not _is_text(values.type) or not len(values):
        return b""
    ends = pc.min_max(values)
    low, high = (_bytes(ends[name].as_py()) for name in ("min", "max"))
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:same]


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _numbers(values: pa.ChunkedArray, prefix: bytes) -> np.ndarray:
    """Numbers in the order of the values; what stands for a null does not matter."""
    kind = values.type
    if _is_text(kind):
        return _text_numbers(values, prefix)
    known = type_of(kind)
    values = values.cast(pa.float64()) if known.family is Family.DECIMAL else known.ordered(values)
    numbers = pc.fill_null(values, 0).to_numpy()
    return np.where(np.isnan(numbers), np.inf, numbers) if pa.types.is_floating(values.type) else numbers


def _text_numbers(values: pa.ChunkedArray, prefix: bytes) -> np.ndarray:
    """Eight bytes after the prefix, first byte weighing most. Values without the prefix come before or after all."""
    raw = pc.fill_null(values.cast(pa.binary()), b"")
    tail = pc.binary_slice(raw, len(prefix), len(prefix) + 8)
    padded = pc.binary_join_element_wise(tail, pa.scalar(b"\0" * 8), pa.scalar(b""))
    words = pc.binary_slice(padded, 0, 8).combine_chunks()
    data = np.frombuffer(words.buffers()[2] or b"", ">u8", len(words)) if len(words) else np.zeros(0, ">u8")
    numbers = data.astype(np.uint64)
    if prefix:
        head = pc.binary_slice(raw, 0, len(prefix))
        wanted = pa.scalar(prefix, pa.binary())
        numbers = np.where(pc.less(head, wanted).to_numpy(), np.uint64(0), numbers)
        numbers = np.where(pc.greater(head, wanted).to_numpy(), np.uint64(2**64 - 1), numbers)
    return numbers
