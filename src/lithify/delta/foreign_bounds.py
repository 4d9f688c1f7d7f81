"""What the statistics of another writer in a Delta log are worth.

The log holds them as JSON, and writers shorten what they put there: times to milliseconds, texts to a prefix with a
character added to the upper one, decimals to what a double can hold. Days of the old calendar are written as one reader
finds them and mean others to the next. Bounds are widened where that makes them safe, and dropped where it does not.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

from lithify.core.snapshot import UNKNOWN, Bounds

TEXT_UNITS_MAX = 32
DECIMAL_DIGITS_MAX = 15
FIRST_DAY = dt.date(1582, 10, 15)
FIRST_YEAR = 1900
_SHORTENED = dt.timedelta(milliseconds=1)


def believed(low: Any, high: Any, nulls: int | None) -> Bounds:
    """Bounds that hold whoever wrote them; unknown where nothing can be said."""
    unknown = UNKNOWN._replace(nulls=nulls)
    if low is None or high is None:
        return unknown
    match high:
        case dt.datetime():
            if low.year < FIRST_YEAR:
                return unknown
            low, high = low - _SHORTENED, _later(high)
        case dt.date():
            if low < FIRST_DAY:
                return unknown
        case Decimal():
            if max(len(value.as_tuple().digits) for value in (low, high)) > DECIMAL_DIGITS_MAX:
                return unknown
        case float():
            if not (math.isfinite(low) and math.isfinite(high)):
                return unknown
        case str():
            high = _longest(high)
        case _:
            pass
    return unknown if high is None or low > high else Bounds(low, high, nulls)


def _later(bound: dt.datetime) -> dt.datetime:
    try:
        return bound + _SHORTENED
    except OverflowError:  # the last moment there is: what it was cut from cannot be later
        return dt.datetime.max.replace(tzinfo=bound.tzinfo)


def _longest(bound: str) -> str | None:
    """What no text that was cut to this one can exceed; None: nothing is that large.

    One as long as the limit may have been cut, within a pair of surrogates even, and completed by a character that is
    not the largest there is. All before its last two characters is what the text begins with.
    """
    if len(bound.encode("utf-16-le", "surrogatepass")) // 2 < TEXT_UNITS_MAX:
        return bound
    start = bound[:-2]
    while start:
        code = ord(start[-1]) + 1
        if code <= 0x10FFFF:
            return start[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)
        start = start[:-1]
    return None
