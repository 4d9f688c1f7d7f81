"""Which rows are those that are there already, value for value.

A null is the same as a null, and NaN as NaN; 0.0 and -0.0 are two values. Lists and maps are the same in the same
order. So a row that counts as the same can stay unwritten and nobody could tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import lookup, take
from lithify.core.names import GIVEN, names_given

PIECE_ROWS = 65_536


def same_rows(rows: pa.Table, there: pa.Table, key: Sequence[str]) -> np.ndarray:
    """Which of `rows` stand in `there`, whose keys are unique, with the same value in every column."""
    return _same(rows, there, key, {})


def same_lines(lines: pa.Table, there: pa.Table, key: Sequence[str]) -> np.ndarray:
    """The same of lines that give some columns each (`GIVEN`): the others are as they are. Of a key with several lines
    all are, or none: the second may take back what the first does.
    """
    coded = lines.column(GIVEN).combine_chunks().dictionary_encode()
    said = [set(names_given(text)) for text in coded.dictionary.to_pylist()]
    code, rows = coded.indices.to_numpy(), lines.drop_columns([GIVEN])
    given = {name: np.array([name in names for names in said])[code] for name in rows.column_names}
    same = _same(rows, there, key, given)
    names = list(key)
    apart = lines.select(names).filter(pa.array(~same)).group_by(names).aggregate([]).select(names)
    return same & (lookup(lines, apart, key) < 0) if apart.num_rows else same


def _same(rows: pa.Table, there: pa.Table, key: Sequence[str], given: Mapping[str, np.ndarray]) -> np.ndarray:
    found = np.zeros(rows.num_rows, np.bool_)
    lines = lookup(rows, there, key) if rows.num_rows and there.num_rows else np.full(rows.num_rows, -1)
    known = np.flatnonzero(lines >= 0)
    others = [name for name in rows.column_names if name not in key]
    for start in range(0, len(known), PIECE_ROWS):
        piece = known[start : start + PIECE_ROWS]
        mine, theirs = take(rows.select(others), piece), take(there.select(others), lines[piece])
        same = np.ones(len(piece), np.bool_)
        for name in others:
            value = mine.column(name)
            alike = same_values(_whole(value), _whole(theirs.column(name).cast(value.type)))
            same &= alike | ~given[name][piece] if name in given else alike
        found[piece] = same
    return found


def same_values(a: pa.Array, b: pa.Array) -> np.ndarray:
    """Pair by pair, of two arrays of one type and length."""
    null_a, null_b = _truths(a.is_null()), _truths(b.is_null())
    return np.asarray((null_a & null_b) | (~null_a & ~null_b & _same_beneath(a, b)))


def _same_beneath(a: pa.Array, b: pa.Array) -> np.ndarray:
    """What it says where one of the two is null does not matter."""
    kind = a.type
    if pa.types.is_struct(kind):
        same = np.ones(len(a), np.bool_)
        for number in range(kind.num_fields):
            same &= same_values(pc.struct_field(a, [number]), pc.struct_field(b, [number]))
        return same
    if pa.types.is_nested(kind):
        return _same_lists(a, b)
    if pa.types.is_floating(kind):
        nan = _truths(pc.is_nan(a).fill_null(False)) & _truths(pc.is_nan(b).fill_null(False))
        return np.asarray(nan | (_bits(a) == _bits(b)))
    return _truths(pc.equal(a, b).fill_null(False))


def _same_lists(a: pa.Array, b: pa.Array) -> np.ndarray:
    a, b = _as_list(a), _as_list(b)
    same = np.zeros(len(a), np.bool_)
    lengths = [pc.list_value_length(each).fill_null(-1).to_numpy(zero_copy_only=False) for each in (a, b)]
    lines = np.flatnonzero((lengths[0] == lengths[1]) & (lengths[0] >= 0))
    if not len(lines):
        return same
    flat_a, flat_b = (each.take(pa.array(lines)).flatten() for each in (a, b))
    differing = np.cumsum(np.append(0, ~same_values(flat_a, flat_b)))
    ends = np.cumsum(np.append(0, lengths[0][lines]))
    same[lines] = differing[ends[1:]] == differing[ends[:-1]]
    return same


def _as_list(array: pa.Array) -> pa.Array:
    """A map as the list of entries that it is."""
    if pa.types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_field))
    if not pa.types.is_map(array.type):
        return array
    entries = pa.struct([array.type.key_field, array.type.item_field])
    return array.cast(pa.list_(pa.field("entries", entries, nullable=False)))


def _bits(array: pa.Array) -> np.ndarray:
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _truths(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
