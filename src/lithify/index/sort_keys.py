"""Literals and columns of keys, brought into the order of a column's sort keys (see `stats`).

A literal becomes a `Point`: the greatest value of the column's own domain that is not above it, and whether it is that
very value. So `x < 1.005` on a column of cents asks for `x <= 1.00`, and nothing is rounded. A literal that does not
fit the column's kind has no point: engines may cast it in ways of their own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lithify.core.distinct import distinct
from lithify.index.stats import KEY_BYTES, WIDE_DECIMAL_BYTES, Kind, bytes_key, wide_decimal_bytes

EPOCH = datetime(1970, 1, 1)
EPOCH_DAY = EPOCH.toordinal()
MICROSECOND = timedelta(microseconds=1)
# No column's decimal is longer than 76 digits, and exact arithmetic on a literal like 1e999999999 never ends.
DECIMAL_DIGITS_MAX = 200
INT64_MIN, INT64_MAX, UINT64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
SIGN_BIT = np.uint64(1 << 63)


@dataclass(frozen=True)
class Point:
    floor: Any
    exact: bool = True


@dataclass(frozen=True)
class SortedKeys:
    """Distinct values in order. `value` gives the whole value at a position, for kinds keyed by their first bytes."""

    keys: NDArray[Any]
    value: Callable[[int], bytes]


def point_of(kind: Kind, scale: int, literal: Any) -> Point | None:
    """The type must be the very one: a subclass may hold more than its base shows (nanoseconds, for one)."""
    given = type(literal)
    match kind:
        case Kind.SIGNED | Kind.UNSIGNED if given is int:
            return Point(literal)
        case Kind.BOOLEAN if given is bool:
            return Point(int(literal))
        case Kind.FLOAT if given in (float, int, Decimal):
            return _float_point(literal)
        case Kind.DATE if given is date:
            return Point(literal.toordinal() - EPOCH_DAY)
        case Kind.TIMESTAMP if given is datetime and literal.tzinfo is None:
            return Point((literal - EPOCH) // MICROSECOND)
        case Kind.TIMESTAMP_UTC if given is datetime and literal.utcoffset() is not None:
            return Point((literal - EPOCH.replace(tzinfo=UTC)) // MICROSECOND)
        case Kind.TEXT if given is str:
            return _text_point(literal)
        case Kind.BINARY if given is bytes:
            return Point(literal)
        case Kind.DECIMAL | Kind.WIDE_DECIMAL if given in (int, Decimal):
            point = _decimal_point(literal, scale)
            return Point(_wide(point.floor), point.exact) if point and kind is Kind.WIDE_DECIMAL else point
        case _:
            return None


def sorted_literals(kind: Kind, scale: int, literals: Iterable[Any]) -> SortedKeys | None:
    """None when one of them does not fit. Those that no value of the column can equal are left out."""
    points = [point_of(kind, scale, literal) for literal in literals]
    if any(point is None for point in points):
        return None
    values = sorted({point.floor for point in points if point and point.exact})
    if kind.keyed_by_bytes:
        return SortedKeys(np.array([bytes_key(value) for value in values], np.uint64), values.__getitem__)
    if kind is Kind.FLOAT:
        return _numbers(np.array(values, np.float64))
    least, most, dtype = (0, UINT64_MAX, np.uint64) if kind is Kind.UNSIGNED else (INT64_MIN, INT64_MAX, np.int64)
    return _numbers(np.array([value for value in values if least <= value <= most], dtype))


def sorted_column(kind: Kind, scale: int, column: pa.ChunkedArray) -> SortedKeys | None:
    """The same of a column of keys, nulls left out."""
    given = column.type
    try:
        if pa.types.is_dictionary(given):
            column = column.cast(given.value_type)
        elif pa.types.is_string_view(given):
            column = column.cast(pa.large_string())
        return _sorted(kind, scale, column.drop_null())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # A cast that would lose something (nanoseconds, digits, range), or a type that Arrow cannot work with yet.
        return None


def _sorted(kind: Kind, scale: int, values: pa.ChunkedArray) -> SortedKeys | None:
    given = values.type
    is_ = pa.types
    match kind:
        case Kind.SIGNED if is_.is_integer(given):
            if is_.is_uint64(given):
                values = values.filter(pc.less_equal(values, pa.scalar(INT64_MAX, given)))
            return _distinct(values.cast(pa.int64()))
        case Kind.UNSIGNED if is_.is_integer(given):
            if is_.is_signed_integer(given):
                values = values.filter(pc.greater_equal(values, pa.scalar(0, given)))
            return _distinct(values.cast(pa.uint64()))
        case Kind.BOOLEAN if is_.is_boolean(given):
            return _distinct(values.cast(pa.int8()).cast(pa.int64()))
        case Kind.FLOAT if is_.is_floating(given):
            found = _distinct(values.cast(pa.float64()))
            return None if np.isnan(found.keys).any() else found
        case Kind.DATE if is_.is_date32(given):
            return _distinct(values.cast(pa.int32()).cast(pa.int64()))
        case Kind.TIMESTAMP | Kind.TIMESTAMP_UTC if is_.is_timestamp(given):
            if (given.tz is None) is not (kind is Kind.TIMESTAMP):
                return None
            return _distinct(values.cast(pa.timestamp("us", given.tz)).cast(pa.int64()))
        case Kind.TEXT if is_.is_string(given) or is_.is_large_string(given):
            return _distinct_bytes(values)
        case Kind.BINARY if is_.is_binary(given) or is_.is_large_binary(given) or is_.is_fixed_size_binary(given):
            return _distinct_bytes(values)
        case Kind.DECIMAL | Kind.WIDE_DECIMAL if is_.is_decimal128(given):
            return _distinct_decimals(kind, values.cast(pa.decimal128(38, scale)))
        case _:
            return None


def _float_point(literal: float | int | Decimal) -> Point | None:
    """Of numbers that are no floats, those that 32 bits hold: for a column so narrow, engines round the literal."""
    if isinstance(literal, float):
        return None if math.isnan(literal) else Point(literal)
    try:
        value: float = struct.unpack("<f", struct.pack("<f", float(literal)))[0]
        return Point(value) if Fraction(value) == literal else None
    except (OverflowError, ValueError):
        # A number beyond all floats, or a decimal that is no number.
        return None


def _text_point(literal: str) -> Point | None:
    try:
        return Point(literal.encode())
    except UnicodeEncodeError:
        return None


def _decimal_point(literal: int | Decimal, scale: int) -> Point | None:
    if isinstance(literal, Decimal):
        exponent = literal.as_tuple().exponent
        if not isinstance(exponent, int) or max(abs(exponent), abs(literal.adjusted())) > DECIMAL_DIGITS_MAX:
            return None
    unscaled = Fraction(literal) * Fraction(10) ** scale
    floor = math.floor(unscaled)
    return Point(floor, floor == unscaled)


def _wide(unscaled: int) -> bytes:
    """Numbers beyond 128 bits become bytes below or above all others."""
    try:
        return wide_decimal_bytes(unscaled)
    except OverflowError:
        return b"" if unscaled < 0 else b"\xff" * (WIDE_DECIMAL_BYTES + 1)


def _numbers(keys: NDArray[Any]) -> SortedKeys:
    def value(position: int) -> bytes:
        raise AssertionError(f"the key at {position} is the value itself")

    return SortedKeys(keys, value)


def _distinct(values: pa.ChunkedArray) -> SortedKeys:
    return _numbers(distinct(values.to_numpy()))


def _distinct_bytes(values: pa.ChunkedArray) -> SortedKeys:
    distinct = values.cast(pa.large_binary()).unique()
    ordered = distinct.take(pc.sort_indices(distinct))
    heads = np.array(pc.binary_slice(ordered, 0, KEY_BYTES).to_pylist(), f"S{KEY_BYTES}")
    return SortedKeys(heads.view(">u8").astype(np.uint64), lambda position: bytes(ordered[position].as_py()))


def _distinct_decimals(kind: Kind, values: pa.ChunkedArray) -> SortedKeys:
    distinct = values.unique()
    halves = np.frombuffer(distinct.buffers()[1] or b"", "<u8").reshape(-1, 2)
    halves = halves[distinct.offset : distinct.offset + len(distinct)]
    lower, upper = halves[:, 0], halves[:, 1]
    if kind is Kind.DECIMAL:
        numbers = lower.astype(np.int64)
        fits = upper.astype(np.int64) == numbers >> 63
        return _numbers(np.sort(numbers[fits]))
    upper = upper ^ SIGN_BIT
    order = np.lexsort((lower, upper))
    lower, upper = lower[order], upper[order]

    def value(position: int) -> bytes:
        return int(upper[position]).to_bytes(KEY_BYTES, "big") + int(lower[position]).to_bytes(KEY_BYTES, "big")

    return SortedKeys(upper.astype(np.uint64), value)
