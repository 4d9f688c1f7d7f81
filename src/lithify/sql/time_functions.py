"""`date_trunc` and `date_bin` of every time that there is, from year 1 to 9999, in microseconds.

The engine's own go through nanoseconds, which end in 1677 and 2262: beyond, one of them fails and the other answers
NULL. These are exact, and keep the type of the time that they are given; which of them a call means is found out by
`far_times`, since each takes times of one type alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import ScalarUDF, SessionContext, udf

PREFIX = "lithify_"
# Behind the name: what it is given.
UTC = "_utc"
KINDS: dict[str, pa.DataType] = {"": pa.timestamp("us"), "_day": pa.date32(), UTC: pa.timestamp("us", "UTC")}
FROM = "_from"
UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")

_PLAIN = pa.timestamp("us")
_MONTH = np.dtype("datetime64[M]")
_TIME = np.dtype("datetime64[us]")


def register(ctx: SessionContext) -> None:
    for function in _functions():
        ctx.register_udf(function)


@cache
def _functions() -> list[ScalarUDF]:
    made = []
    text, stride = pa.string(), pa.month_day_nano_interval()
    for suffix, kind in KINDS.items():
        answer = _PLAIN if pa.types.is_date(kind) else kind
        for name, given, function in (
            (f"date_trunc{suffix}", [text, kind], truncated),
            (f"date_bin{suffix}", [stride, kind], binned),
            (f"date_bin{FROM}{suffix}", [stride, kind, _PLAIN], binned),
        ):
            made.append(udf(_answering(function, answer), given, answer, "immutable", f"{PREFIX}{name}"))
    return made


def _answering(function: Callable[..., pa.Array], kind: pa.DataType) -> Callable[..., pa.Array]:
    """Zones are those of UTC, so that the time that is shown is the same with and without."""

    def answer(how: pa.Array, times: pa.Array, *more: pa.Array) -> pa.Array:
        return function(how, times.cast(_PLAIN), *more).cast(kind)

    return answer


def truncated(units: pa.Array, times: pa.Array) -> pa.Array:
    """The beginning of the unit that a time is in."""
    found = pa.nulls(len(times), _PLAIN)
    for unit in pc.unique(units).to_pylist():
        if unit is None:
            continue
        if unit.lower() not in UNITS:
            raise ValueError(f"date_trunc knows no {unit!r}: it takes {', '.join(UNITS)}")
        begins = pc.floor_temporal(times, unit=unit.lower())
        found = pc.if_else(pc.fill_null(pc.equal(units, unit), False), begins, found)
    return found


def binned(strides: pa.Array, times: pa.Array, origins: pa.Array | None = None) -> pa.Array:
    """The beginning of the bin that a time is in, counted from the origin, which is 1970."""
    found = pa.nulls(len(times), _PLAIN)
    if not len(times):
        return found
    # They are constants of the query, given for every row.
    stride, origin = strides[0].as_py(), 0 if origins is None else origins.cast(pa.int64())[0].as_py()
    if stride is None or origin is None:
        return found
    if not _is_one(strides) or (origins is not None and len(pc.unique(origins)) > 1):
        raise ValueError("date_bin takes one interval, and one origin, for all rows")
    values = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    begins = _month_bins(values, stride.months, origin) if _in_months(stride) else _bins(values, stride, origin)
    return pa.array(begins, pa.int64(), mask=times.is_null().to_numpy(zero_copy_only=False)).cast(_PLAIN)


def _is_one(strides: pa.Array) -> bool:
    """Whether all are the same; each is of 16 bytes."""
    data = np.frombuffer(strides.buffers()[1], np.uint8)[strides.offset * 16 :][: len(strides) * 16]
    each = data.reshape(len(strides), 16)
    return strides.null_count == 0 and bool((each == each[0]).all())


def _in_months(stride: pa.MonthDayNano) -> bool:
    if stride.months and (stride.days or stride.nanoseconds):
        raise ValueError("date_bin takes an interval of months, or one of days and less, and not of both")
    return bool(stride.months)


def _bins(values: np.ndarray, stride: pa.MonthDayNano, origin: int) -> np.ndarray:
    nanoseconds = stride.days * 86_400_000_000_000 + stride.nanoseconds
    if nanoseconds <= 0 or nanoseconds % 1_000:
        raise ValueError("date_bin takes an interval of at least a microsecond, in whole ones")
    width = nanoseconds // 1_000
    return np.asarray(origin + (values - origin) // width * width)


def _month_bins(values: np.ndarray, months: int, origin: int) -> np.ndarray:
    start = np.int64(origin).view(_TIME)
    if months <= 0 or start != start.astype(_MONTH):
        raise ValueError("date_bin takes intervals of at least a month from an origin at the beginning of one")
    first = start.astype(_MONTH).astype(np.int64)
    found = values.view(_TIME).astype(_MONTH).astype(np.int64)
    return np.asarray((first + (found - first) // months * months).view(_MONTH).astype(_TIME).astype(np.int64))
