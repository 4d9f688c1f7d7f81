"""Row groups as plain lists of values, the statistics a writer would keep of them, and SQL's answer row by row.

Nothing here is shared with the code under test: keys, orders and truth are worked out anew, in the slowest way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lithify.core.predicates import And, Compare, In, IsNull, Or, Predicate, Prefix, Unknown
from lithify.index.stats import (
    ABSENT,
    HAS_MAX,
    HAS_MIN,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    ColumnStats,
    Kind,
)

SCALE = 2
NAN, NEGATIVE_NAN = math.nan, struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
FULL_TRUST = HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT | NULLS_KNOWN
# Few values that lie close together, so that literals meet bounds; and the ends of every range.
EAST = timezone(timedelta(hours=5, minutes=30))
STEMS = ["", "a", "a\0", "ab", "abcdefgh", "abcdefghi", "abcdefgh\0", "abcdefghij", "abcdefgi", "b", "é", "\U0010ffff"]
POOLS: dict[Kind, list[Any]] = {
    Kind.SIGNED: [-(2**63), -(2**63) + 1, -2, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1],
    Kind.UNSIGNED: [0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1],
    Kind.FLOAT: [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.0, 2.0**53, math.inf, NAN, NEGATIVE_NAN],
    Kind.BOOLEAN: [False, True],
    Kind.DATE: [date.min, date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2), date(2024, 2, 29), date.max],
    Kind.TIMESTAMP: [
        datetime.min,
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1),
        datetime(1970, 1, 1, 0, 0, 0, 1),
        datetime(2024, 2, 29, 12),
        datetime.max,
    ],
    Kind.TIMESTAMP_UTC: [
        datetime.min.replace(tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 5, 30, tzinfo=EAST),
        datetime(1970, 1, 1, tzinfo=EAST),
        datetime(2024, 2, 29, 12, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    ],
    Kind.TEXT: STEMS,
    Kind.BINARY: [*(stem.encode() for stem in STEMS), b"\xff", b"\xff" * 9, b"ab\xff", b"ab\xff\xff", b"\xff\xff\xff"],
    Kind.DECIMAL: [Decimal(n).scaleb(-SCALE) for n in (-(10**18) + 1, -101, -100, -1, 0, 1, 99, 100, 101, 10**18 - 1)],
    Kind.WIDE_DECIMAL: [
        Decimal(n).scaleb(-SCALE)
        for n in (-(10**27), -(2**64), -101, -100, -1, 0, 1, 100, 101, 2**63, 2**64, 2**64 + 1, 2**65, 10**27)
    ],
}
KINDS = sorted(POOLS)
# None of these belongs to a column of any kind's own values; some fit by their type.
STRANGERS = [
    *(None, True, 0, 1, 2**53 + 1, -(2**64), 2**64, 2**70, -(2**200), 2**200, 0.0, -0.0, 1.0, 0.1, NAN, math.inf),
    *(Decimal("1.005"), Decimal("-1.005"), Decimal("0.1"), Decimal("1"), Decimal("1E+50"), Decimal("-1E+50")),
    *(Decimal("NaN"), Decimal("Infinity"), Decimal("1E+999999"), Decimal("1E-999999")),
    *("1", "", b"1", b"", "\ud800", date(1970, 1, 1), datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)),
]


@dataclass(frozen=True)
class Column:
    kind: Kind
    groups: tuple[tuple[Any, ...], ...]
    stats: ColumnStats


def order_key(kind: Kind, value: Any) -> Any:
    """Where a value that is not NaN stands among those of its kind."""
    match kind:
        case Kind.TEXT:
            return value.encode()
        case Kind.DATE:
            return (value - date(1970, 1, 1)).days
        case Kind.TIMESTAMP | Kind.TIMESTAMP_UTC:
            since = value - datetime(1970, 1, 1, tzinfo=value.tzinfo and UTC)
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        case Kind.DECIMAL | Kind.WIDE_DECIMAL:
            return int(Fraction(value) * 10**SCALE)
        case Kind.BOOLEAN:
            return int(value)
        case _:
            return value


def stored(kind: Kind, bound: Any) -> tuple[Any, bytes]:
    """(sort key, whole value) of a bound given by its place in the order."""
    if kind is Kind.WIDE_DECIMAL:
        bound = (bound % 2**128 ^ 2**127).to_bytes(16, "big")
    if isinstance(bound, bytes):
        return struct.unpack(">Q", bound[:8] + b"\0" * max(0, 8 - len(bound)))[0], bound
    return bound, b""


def stats_of(
    kind: Kind,
    groups: Sequence[Sequence[Any]],
    trusts: Sequence[int],
    loosened: Callable[[int, Any, Any], tuple[Any, Any]] = lambda _, low, high: (low, high),
) -> ColumnStats:
    """`loosened` may move the bounds of a row group outward; then they are not exact."""
    flags, lows, highs = [], [], []
    for number, (values, trust) in enumerate(zip(groups, trusts, strict=True)):
        ordered = sorted(order_key(kind, v) for v in values if v is not None and v == v)
        bounds: Any = None
        if ordered:
            low, high = loosened(number, ordered[0], ordered[-1])
            if low != ordered[0]:
                trust &= ~MIN_EXACT
            if high != ordered[-1]:
                trust &= ~MAX_EXACT
            bounds = stored(kind, low), stored(kind, high)
        else:
            trust &= ~(HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT)
        if any(v is not None and v != v for v in values):
            trust &= ~NAN_FREE
        flags.append(trust)
        lows.append(bounds[0] if trust & HAS_MIN else stored(kind, _nothing(kind)))
        highs.append(bounds[1] if trust & HAS_MAX else stored(kind, _nothing(kind)))
    unsigned = (Kind.UNSIGNED, Kind.TEXT, Kind.BINARY, Kind.WIDE_DECIMAL)
    dtype = np.float64 if kind is Kind.FLOAT else np.uint64 if kind in unsigned else np.int64
    arrays = [
        np.array([len(values) for values in groups], np.uint64),
        np.array([sum(v is None for v in values) for values in groups], np.uint64),
        np.array(flags, np.uint8),
        np.array([low for low, _ in lows], dtype),
        np.array([high for high, _ in highs], dtype),
    ]
    for array in arrays:
        array.flags.writeable = False
    return ColumnStats(
        kind,
        SCALE if kind in (Kind.DECIMAL, Kind.WIDE_DECIMAL) else 0,
        *arrays,
        full_low=lambda group: lows[group][1],
        full_high=lambda group: highs[group][1],
    )


def _nothing(kind: Kind) -> Any:
    """What stands where there is no bound: any value at all."""
    return b"abc" if kind in (Kind.TEXT, Kind.BINARY) else 1


@st.composite
def columns(draw: st.DrawFn, kind: Kind, sizes: Sequence[int]) -> Column:
    """With bounds that may be missing, loose, cut off, or of the other zero's sign. `sizes`: rows per row group."""
    values = st.one_of(st.none(), *[st.sampled_from(POOLS[kind])] * 3)
    several = [draw(st.lists(values, min_size=size, max_size=size)) for size in sizes]
    groups = len(sizes)
    trusts = [
        FULL_TRUST | NAN_FREE if draw(st.booleans()) else draw(st.integers(0, 127)) & ~ABSENT for _ in range(groups)
    ]
    loose = draw(st.lists(st.integers(0, 3), min_size=groups, max_size=groups))
    stats = stats_of(kind, several, trusts, lambda group, low, high: _loosened(kind, loose[group], low, high))
    return Column(kind, tuple(map(tuple, several)), stats)


def _loosened(kind: Kind, how: int, low: Any, high: Any) -> tuple[Any, Any]:
    if how == 0:
        return low, high
    if kind in (Kind.TEXT, Kind.BINARY):
        return low[: how * 3], _cut_upward(high, how * 3)
    if kind is Kind.FLOAT:
        if how == 1:
            # The same numbers with the other sign of zero, which a writer may leave as it is.
            return (-low if low == 0 else low), (-high if high == 0 else high)
        return (math.nan if how == 2 else math.nextafter(low, -math.inf)), math.nextafter(high, math.inf)
    if kind is Kind.WIDE_DECIMAL:
        return low - how, high + how
    least, most = (0, 2**64 - 1) if kind is Kind.UNSIGNED else (-(2**63), 2**63 - 1)
    return max(least, low - how), min(most, high + how)


def _cut_upward(value: bytes, length: int) -> bytes:
    head = value[:length].rstrip(b"\xff")
    return value if len(value) <= length or not head else head[:-1] + bytes([head[-1] + 1])


@st.composite
def predicates(draw: st.DrawFn, kinds: dict[str, Kind], depth: int = 2) -> Predicate:
    if depth and draw(st.integers(0, 3)) == 0:
        parts = tuple(draw(st.lists(predicates(kinds, depth - 1), max_size=3)))
        return draw(st.sampled_from([And, Or]))(parts)
    name = draw(st.sampled_from(sorted(kinds)))
    pool = POOLS[kinds[name]]
    own = st.sampled_from(pool)
    literals = st.one_of(own, own, own, st.sampled_from(STRANGERS))
    match draw(st.integers(0, 6)):
        case 0:
            return IsNull(name, draw(st.booleans()))
        case 1:
            return In(name, tuple(draw(st.lists(literals, max_size=4))), draw(st.booleans()))
        case 2:
            prefix = draw(literals)
            return Prefix(name, prefix if isinstance(prefix, str | bytes) else "ab")
        case _:
            return Compare(name, draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])), draw(literals))


Order = Callable[[float], Any]


def spark_order(value: float) -> Any:
    """NaN equals NaN and is the greatest; zero has no sign."""
    return (1, 0.0) if math.isnan(value) else (0, value + 0.0)


def total_order(value: float) -> Any:
    """IEEE 754 totalOrder, as Arrow's kernels compare."""
    bits = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF


ORDERS: list[Order] = [spark_order, total_order]


def is_true(predicate: Predicate, row: dict[str, Any], kinds: dict[str, Kind], order: Order) -> bool:
    """Whether SQL could make the predicate TRUE for this row. A literal that does not fit may do anything."""
    match predicate:
        case And(parts):
            return all(is_true(part, row, kinds, order) for part in parts)
        case Or(parts):
            return not parts or any(is_true(part, row, kinds, order) for part in parts)
        case Unknown():
            return True
    kind, value = kinds[predicate.column], row[predicate.column]
    match predicate:
        case IsNull(_, negated):
            return (value is None) is not negated
        case _ if value is None:
            return False
        case Prefix(_, prefix):
            return misfit(kind, prefix) or value.startswith(prefix)
        case In(_, literals, False):
            return any(_compare(kind, value, "=", literal, order) for literal in literals)
        case In(_, literals, True):
            return all(_compare(kind, value, "<>", literal, order) for literal in literals)
        case Compare(_, op, literal):
            return _compare(kind, value, op, literal, order)
    raise AssertionError(predicate)


def _compare(kind: Kind, value: Any, op: str, literal: Any, order: Order) -> bool:
    if literal is None:
        return False
    if misfit(kind, literal):
        return True
    left: Any
    right: Any
    if kind is Kind.FLOAT:
        left, right = order(value), order(float(literal))
    elif kind in (Kind.DECIMAL, Kind.WIDE_DECIMAL):
        left, right = Fraction(value), Fraction(literal)
    elif kind is Kind.TEXT:
        left, right = value.encode(), literal.encode()
    else:
        left, right = value, literal
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def misfit(kind: Kind, literal: Any) -> bool:
    """Whether engines would have to cast the literal, or the column, to compare them."""
    if isinstance(literal, Decimal) and (not literal.is_finite() or abs(literal.adjusted()) > 1000):
        return True
    if kind is Kind.FLOAT and type(literal) in (int, Decimal):
        return abs(literal) > 10**30 or Fraction(float(np.float32(float(literal)))) != Fraction(literal)
    if kind is Kind.TEXT and type(literal) is str:
        return "\ud800" in literal
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_UTC):
        return type(literal) is not datetime or (literal.tzinfo is None) is not (kind is Kind.TIMESTAMP)
    fitting: dict[Kind, tuple[type, ...]] = {
        Kind.SIGNED: (int,),
        Kind.UNSIGNED: (int,),
        Kind.FLOAT: (float,),
        Kind.BOOLEAN: (bool,),
        Kind.DATE: (date,),
        Kind.TEXT: (str,),
        Kind.BINARY: (bytes,),
        Kind.DECIMAL: (int, Decimal),
        Kind.WIDE_DECIMAL: (int, Decimal),
    }
    return type(literal) not in fitting[kind]
