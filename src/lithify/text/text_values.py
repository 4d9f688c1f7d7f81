"""Values written as text, read by the type of their column: a whole column at once, strictly.

A value that is there fits as it is or is named: nothing is rounded, cut or guessed. Around everything but text blanks
do not matter, and empty text is no value. How each type is spelled is told by its record in `core/column_types.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import ColumnType, type_of

_LEAF = 32


def holds_text(kind: pa.DataType) -> bool:
    """Whether a type has a spelling as text."""
    return not pa.types.is_nested(kind)


def parse_values(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    """The values, and the places of those that do not fit, which are null."""
    known = type_of(kind)
    found = known.parsed(texts)
    if found is None:
        texts = known.trimmed(texts)
        found = known.parsed(texts)
    if found is not None:
        return found, np.empty(0, np.int64)
    bad = np.array(list(_misfits(texts, known, 0)), np.int64)
    mask = np.zeros(len(texts), bool)
    mask[bad] = True
    values = known.parsed(pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), texts))
    assert values is not None, "what remains fits"
    return values, bad


def _misfits(texts: pa.Array, kind: ColumnType, offset: int) -> Iterator[int]:
    """By halves: they are few in many."""
    if kind.parsed(texts) is not None:
        return
    if len(texts) == 1:
        yield offset
        return
    step = max(1, len(texts) // 2) if len(texts) > _LEAF else 1
    for start in range(0, len(texts), step):
        yield from _misfits(texts.slice(start, step), kind, offset + start)
