"""One moment for a whole query.

A query is planned twice, first to see what it asks of its tables and then to run. `now()` would be two different
moments, and what the first rules out could belong to the second's answer. So functions of the clock are replaced by
what they say at one moment. Texts with anything that makes it unsure where such a word stands are left alone, and
then nothing may be ruled out.
"""

from __future__ import annotations

import datetime as dt
import re

_CLOCK = re.compile(
    r"\b(now|today|current_date|current_time|current_timestamp|localtime|localtimestamp)\b", re.IGNORECASE
)
_UNSURE = re.compile(r"[\"`\\$]|--|/\*")
_TOKEN = re.compile(
    r"(?P<text>'(?:[^']|'')*')"
    r"|(?<![\w.])(?:(?P<now>now\s*\(\s*\)|current_timestamp(?:\s*\(\s*\))?)"
    r"|(?P<day>(?:current_date|today)(?:\s*\(\s*\))?))(?![\w.])",
    re.IGNORECASE,
)


def asks_the_clock(query: str) -> bool:
    return _CLOCK.search(query) is not None


def at(query: str, moment: dt.datetime) -> str | None:
    """The same query with the clock standing still, or None if that cannot be written for sure."""
    if _UNSURE.search(query):
        return None
    utc = moment.astimezone(dt.UTC)
    now = f"arrow_cast('{utc:%Y-%m-%dT%H:%M:%S.%f}Z', 'Timestamp(Nanosecond, Some(\"UTC\"))')"
    day = f"arrow_cast('{utc:%Y-%m-%d}', 'Date32')"

    def still(found: re.Match[str]) -> str:
        return found[0] if found["text"] is not None else now if found["now"] is not None else day

    fixed = _TOKEN.sub(still, query)
    outside = _TOKEN.sub("", fixed)
    return None if asks_the_clock(outside) else fixed
