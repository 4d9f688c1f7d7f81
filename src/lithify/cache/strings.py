"""How strings lie in hot tables: as strings, as dictionaries, or as views.

A view is 16 bytes a row that hold a string of up to 12 bytes whole, so that grouping by short strings and comparing
them takes about half the time that it takes for strings and dictionaries. Long strings that repeat are kept as
dictionaries. Arrow has few functions for views: whatever is not handed to the engine is made plain first. Both are
shown to nobody: answers have the table's own types.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DICTIONARY = pa.dictionary(pa.int32(), pa.string())
VIEW = pa.string_view()
# So many bytes lie within a view.
INLINE_BYTES_MAX = 12


def is_encoded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string_view(kind))


def plain(table: pa.Table) -> pa.Table:
    """With strings as strings."""
    for number, column in enumerate(table.schema):
        if is_encoded(column.type):
            kind = _plain_kind(column.type)
            table = table.set_column(number, column.with_type(kind), table.column(number).cast(kind))
    return table


def plain_array(values: pa.Array) -> pa.Array:
    return values.cast(_plain_kind(values.type)) if is_encoded(values.type) else values


def _plain_kind(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else pa.string()


def as_views(values: pa.Array) -> pa.Array:
    """Strings, or a dictionary of them, as views that keep nothing alive but what they show: long ones lie once beside
    them, short ones nowhere else.
    """
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    encoded = pa.types.is_dictionary(values.type)
    if (pc.max(pc.binary_length(values.dictionary if encoded else values)).as_py() or 0) <= INLINE_BYTES_MAX:
        views = (values.cast(pa.string()) if encoded else values).cast(VIEW)
        whole = views if views.offset == 0 else pa.concat_arrays([views, views.slice(0, 0)])
        return pa.Array.from_buffers(VIEW, len(whole), whole.buffers()[:2], whole.null_count)
    if not encoded:
        values = values.dictionary_encode()
    shown = values.dictionary.cast(VIEW)
    buffers = shown.buffers()
    rows = np.frombuffer(buffers[1], "V16")[shown.offset :][values.indices.fill_null(0).to_numpy()]
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if values.null_count else None
    return pa.Array.from_buffers(VIEW, len(values), [bits, pa.py_buffer(rows), *buffers[2:]], values.null_count)
