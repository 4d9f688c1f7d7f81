"""When a row expires, as it is declared: `placed`, or `placed + interval '90 days'`. Pure.

No more than a column and a length of time that never varies: so every engine decides to the microsecond alike, and the
index can tell which files hold nothing but expired rows. Months and years are refused, because they differ in length.
"""

from __future__ import annotations

import re

from lithify.errors import InvalidRequest

EXPIRES = "expires"
FORM = "a column of times, or such a column + interval 'N days' (weeks, hours, minutes, seconds)"
_SECOND_US = 1_000_000
_UNITS_US = {
    "week": 7 * 86_400 * _SECOND_US,
    "day": 86_400 * _SECOND_US,
    "hour": 3_600 * _SECOND_US,
    "minute": 60 * _SECOND_US,
    "second": _SECOND_US,
}
_UNEVEN = frozenset({"month", "year", "quarter", "decade", "century"})
# Further back than a thousand years there is nothing to keep, and calendars end.
AFTER_US_MAX = 365_250 * 86_400 * _SECOND_US
_TEXT = re.compile(
    r"""\s*(?: "(?P<quoted>(?:[^"]|"")+)" | (?P<plain>[^\W\d]\w*) )
        (?: \s*\+\s* interval \s* (?: '\s*(?P<count>\d{1,18}) \s* (?P<unit>[a-z]+)? \s*' \s* (?P<unit_after>[a-z]+)?
                                    | (?P<count_bare>\d{1,18}) \s+ (?P<unit_bare>[a-z]+) ) )? \s*""",
    re.VERBOSE | re.IGNORECASE,
)
_PLAIN = re.compile(r"[^\W\d]\w*")


def parse_expiry(text: str) -> tuple[str, int]:
    """The column, and the microseconds that a row lives after its time."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"option {EXPIRES} cannot be {text!r}: it is {FORM}")
    column = found["plain"] or found["quoted"].replace('""', '"')
    count = found["count"] or found["count_bare"]
    if count is None:
        return column, 0
    units = [unit for unit in (found["unit"], found["unit_after"], found["unit_bare"]) if unit]
    if len(units) != 1:
        raise InvalidRequest(f"option {EXPIRES} cannot be {text!r}: say the unit of {count} once, as in '90 days'")
    unit = units[0].lower()
    single = unit.removesuffix("s")
    if single in _UNEVEN or unit == "centuries":
        raise InvalidRequest(
            f"option {EXPIRES} cannot be {text!r}: a {single} has no fixed length, and engines differ in it; give days"
        )
    if single not in _UNITS_US:
        raise InvalidRequest(f"option {EXPIRES} cannot be {text!r}: {unit!r} is none of {', '.join(_UNITS_US)}")
    after_us = int(count) * _UNITS_US[single]
    if after_us > AFTER_US_MAX:
        raise InvalidRequest(
            f"option {EXPIRES} cannot be {text!r}: rows live at most {AFTER_US_MAX // _UNITS_US['day']:,} days; "
            "leave the option out for rows that never expire"
        )
    return column, after_us


def expiry_text(column: str, after_us: int) -> str:
    """The one way in which it is stored and told."""
    name = column if _PLAIN.fullmatch(column) else '"' + column.replace('"', '""') + '"'
    if not after_us:
        return name
    unit = next(unit for unit, length_us in _UNITS_US.items() if unit != "week" and after_us % length_us == 0)
    count = after_us // _UNITS_US[unit]
    return f"{name} + interval '{count} {unit}{'' if count == 1 else 's'}'"
