"""What is known of one column in many row groups, as arrays that a predicate compares in one pass.

A bound is kept twice: as a sort key of eight bytes, which orders as the values do, and for kinds that do not fit, as
the whole value. Two keys that differ decide which value is the greater; equal keys of such a kind decide nothing, and
the whole values are compared as bytes.

| kind                         | array   | key                                                  |
|------------------------------|---------|------------------------------------------------------|
| SIGNED, BOOLEAN, DECIMAL     | int64   | the number itself, of decimals unscaled              |
| DATE, TIMESTAMP(_UTC)        | int64   | days, microseconds since 1970                        |
| UNSIGNED                     | uint64  | the number itself                                    |
| FLOAT                        | float64 | the number itself, 32 bits widened                   |
| TEXT (as UTF-8), BINARY      | uint64  | the first eight bytes, big-endian, padded with zeros |
| WIDE_DECIMAL                 | uint64  | the first eight bytes of `wide_decimal_bytes`        |

A bound that is not exact is still a bound: every value of the row group that is neither null nor NaN lies within.
The statistics are of columns with one value per row: never of the elements of a list or map, whose nulls are not rows.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

HAS_MIN = 1
HAS_MAX = 2
MIN_EXACT = 4
MAX_EXACT = 8
NULLS_KNOWN = 16
# The file lacks the column, or has two of that name: what a reader puts in its place is not known here.
ABSENT = 32
NAN_FREE = 64
DISTINCT_KNOWN = 128
EXACT = HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT

KEY_BYTES = 8
WIDE_DECIMAL_BYTES = 16
_EPOCH = dt.datetime(1970, 1, 1)
_WIDE_DECIMAL_BIAS = 1 << (8 * WIDE_DECIMAL_BYTES - 1)


class Kind(enum.IntEnum):
    OTHER = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    BOOLEAN = 4
    DATE = 5
    TIMESTAMP = 6
    TIMESTAMP_UTC = 7
    TEXT = 8
    BINARY = 9
    DECIMAL = 10
    WIDE_DECIMAL = 11

    @property
    def keyed_by_bytes(self) -> bool:
        """Whether equal keys decide nothing."""
        return self in (Kind.TEXT, Kind.BINARY, Kind.WIDE_DECIMAL)


# Values that a writer with another calendar means otherwise; it leaves no bounds that count.
CALENDAR = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_UTC})


@dataclass(frozen=True)
class ColumnStats:
    """All arrays hold one item per row group, may be read-only, and may repeat one item with a stride of zero.

    `low` and `high` mean something only where HAS_MIN and HAS_MAX are set. `full_low` and `full_high` give the whole
    bound of a row group, for the kinds whose keys are not the value itself.
    """

    kind: Kind
    scale: int
    rows: NDArray[Any]
    nulls: NDArray[Any]
    flags: NDArray[np.uint8]
    low: NDArray[Any]
    high: NDArray[Any]
    full_low: Callable[[int], bytes]
    full_high: Callable[[int], bytes]


def bytes_key(value: bytes) -> int:
    """The sort key of a value that is ordered by its bytes."""
    return int.from_bytes(value[:KEY_BYTES].ljust(KEY_BYTES, b"\0"), "big")


def wide_decimal_bytes(unscaled: int) -> bytes:
    """Two's complement with the sign bit flipped, so that bytes order as numbers. OverflowError beyond 128 bits."""
    return (unscaled + _WIDE_DECIMAL_BIAS).to_bytes(WIDE_DECIMAL_BYTES, "big")


def value_of(stats: ColumnStats, key: int) -> Any:
    match stats.kind:
        case Kind.BOOLEAN:
            return bool(key)
        case Kind.DATE:
            return _EPOCH.date() + dt.timedelta(days=key)
        case Kind.TIMESTAMP:
            return _EPOCH + dt.timedelta(microseconds=key)
        case Kind.TIMESTAMP_UTC:
            return _EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=key)
        case Kind.DECIMAL:
            return _decimal(key, stats.scale)
        case _:
            return key


def whole_value_of(stats: ColumnStats, value: bytes) -> Any:
    match stats.kind:
        case Kind.TEXT:
            return value.decode()
        case Kind.WIDE_DECIMAL:
            return _decimal(int.from_bytes(value, "big") - (1 << 127), stats.scale)
        case _:
            return value


def _decimal(unscaled: int, scale: int) -> Decimal:
    """Without arithmetic, which would round to the precision of the caller's decimal context."""
    return Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -scale))
