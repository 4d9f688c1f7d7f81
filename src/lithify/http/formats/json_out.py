"""Arrow columns as JSON and as text, column by column.

JSON has fewer types than a table, so a column is first spelled as values that JSON has: integers beyond 2^53, decimals,
dates, times and binary (base64) as text, NaN and infinities as "NaN", "Infinity" and "-Infinity". Arrow does that for a
whole column at once wherever it can; Python objects are made once, at the end. `text/json_values.py` reads the same
spellings.

Maps with text keys are objects, all others lists of [key, value] pairs.
"""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.json_out import SAFE_INTEGER_MAX, jsonable

_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def spelled(array: pa.Array) -> list[Any]:
    """A column's values as orjson writes them, one per row."""
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return spelled(array.storage)
    if types.is_dictionary(kind):
        return spelled(array.dictionary_decode())
    if types.is_boolean(kind) or is_text(kind) or types.is_null(kind):
        return list(array.to_pylist())
    if types.is_integer(kind):
        return _integers(array)
    if types.is_floating(kind):
        return _floats(array)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(array)
    if types.is_struct(kind):
        return _structs(array)
    if types.is_map(kind):
        return _maps(array)
    return list(text_of(array).to_pylist())


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def text_of(array: pa.Array) -> pa.Array:
    """A column as text: what a CSV cell holds, and how JSON spells what it has no type for."""
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return text_of(array.storage)
    if types.is_dictionary(kind):
        return text_of(array.dictionary_decode())
    if is_text(kind):
        return array.cast(pa.string())
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_time(kind) or types.is_null(kind):
        return array.cast(pa.string())
    if types.is_date(kind):
        return array.cast(pa.date32()).cast(pa.string())
    if types.is_timestamp(kind):
        return _timestamps(array)
    if types.is_decimal(kind):
        return _decimals(array)
    if types.is_floating(kind):
        return _float_texts(array)
    if is_bytes(kind):
        encoded = [None if value is None else base64.b64encode(value).decode("ascii") for value in array.to_pylist()]
        return pa.array(encoded, pa.string())
    if types.is_duration(kind) or types.is_interval(kind):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    if types.is_list(kind) or types.is_large_list(kind) or types.is_struct(kind) or types.is_map(kind):
        documents = [None if value is None else orjson.dumps(value).decode() for value in spelled(array)]
        return pa.array(documents, pa.string())
    return pa.array([None if v is None else orjson.dumps(jsonable(v)).decode() for v in array.to_pylist()], pa.string())


def is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    plain = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(plain or types.is_binary_view(kind) or types.is_fixed_size_binary(kind))


def _integers(array: pa.Array) -> list[Any]:
    if array.type.bit_width > 32:
        ends = pc.min_max(array)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and (low < -SAFE_INTEGER_MAX or high > SAFE_INTEGER_MAX):
            return [
                value if value is None or -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else str(value)
                for value in array.to_pylist()
            ]
    return _numbers(array)


def _floats(array: pa.Array) -> list[Any]:
    values = _numbers(array)
    if pc.all(pc.is_finite(array)).as_py() is False:
        return [value if value is None or value - value == 0 else _NOT_FINITE[str(value)] for value in values]
    return values


def _numbers(array: pa.Array) -> list[Any]:
    # Without nulls NumPy makes Python numbers several times faster.
    return list(array.to_pylist() if array.null_count else array.to_numpy(zero_copy_only=False).tolist())


def _float_texts(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    if pc.all(pc.is_finite(array)).as_py() is False:
        return pa.array([_NOT_FINITE.get(value, value) for value in text.to_pylist()], pa.string())
    return text


def _decimals(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    if array.type.scale > 6 and pc.any(pc.match_substring(text, "E")).as_py():
        # Very small values: plain digits instead of 1E-10.
        return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())
    return text


def _timestamps(array: pa.Array) -> pa.Array:
    """ISO 8601: a T between date and time, Z for UTC, no fraction where there is none."""
    kind = array.type
    if kind.tz is not None and kind.tz != "UTC":
        array = array.cast(pa.timestamp(kind.unit, "UTC"))
    text = pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
    digits = _FRACTION_DIGITS[kind.unit]
    return pc.replace_substring(text, "." + digits * "0", "") if digits else text


def _lists(array: pa.Array) -> list[Any]:
    offsets, start = _offsets(array)
    values = spelled(array.values.slice(start, offsets[-1] - start))
    return [
        values[low - start : high - start] if valid else None
        for low, high, valid in zip(offsets, offsets[1:], _valid(array), strict=False)
    ]


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [spelled(column) for column in array.flatten()]
    rows = zip(*columns, strict=True)
    return [
        dict(zip(names, row, strict=True)) if valid else None for row, valid in zip(rows, _valid(array), strict=True)
    ]


def _maps(array: pa.Array) -> list[Any]:
    offsets, start = _offsets(array)
    length = offsets[-1] - start
    keys = spelled(array.keys.slice(start, length))
    items = spelled(array.items.slice(start, length))
    texts = is_text(array.type.key_type)
    found: list[Any] = []
    for low, high, valid in zip(offsets, offsets[1:], _valid(array), strict=False):
        inside = slice(low - start, high - start)
        if not valid:
            found.append(None)
            continue
        entries = dict(zip(keys[inside], items[inside], strict=True)) if texts else {}
        # An object would drop a key that stands twice.
        pairs = [[key, item] for key, item in zip(keys[inside], items[inside], strict=True)]
        found.append(entries if texts and len(entries) == high - low else pairs)
    return found


def _offsets(array: pa.Array) -> tuple[list[int], int]:
    offsets = array.offsets.to_pylist() if len(array) else [0]
    return offsets, offsets[0]


def _valid(array: pa.Array) -> list[bool]:
    return [True] * len(array) if not array.null_count else list(array.is_valid().to_pylist())
