"""One moment for a whole query.

A query is planned twice, first to see what it asks of its tables and then to run. `now()` would be two different
moments, and what the first rules out could belong to the second's answer. So functions of the clock are replaced by
what they say at one moment, in microseconds, as all times here: those of nanoseconds end in 2262. Texts with anything
that makes it unsure where such a word stands are left alone, and then nothing may be ruled out.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from lithify.core.sql_text import Token, positioned_tokens

_CLOCK = re.compile(
    r"\b(now|today|current_date|current_time|current_timestamp|localtime|localtimestamp)\b", re.IGNORECASE
)
_MOMENTS, _DAYS = ("now", "current_timestamp"), ("today", "current_date")


def asks_the_clock(query: str) -> bool:
    return _CLOCK.search(query) is not None


def at(query: str, moment: dt.datetime) -> str | None:
    """The same query with the clock standing still, or None if that cannot be written for sure."""
    tokens = positioned_tokens(query)
    if tokens is None:
        return None
    utc = moment.astimezone(dt.UTC)
    now = f"arrow_cast('{utc:%Y-%m-%dT%H:%M:%S.%f}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    day = f"arrow_cast('{utc:%Y-%m-%d}', 'Date32')"
    parts, end = [], 0
    for position, token in enumerate(tokens):
        if token.kind not in ("word", "quoted") or not _CLOCK.fullmatch(token.text.strip('"')):
            continue
        call_end = _call_end(tokens, position)
        if token.kind == "quoted" or _is_part_of_name(tokens, position):
            if call_end is not None:
                return None
            continue
        if token.word not in (*_MOMENTS, *_DAYS) or (token.word == "now" and call_end is None):
            return None
        parts += [query[end : token.start], now if token.word in _MOMENTS else day]
        end = call_end or token.end
    return "".join([*parts, query[end:]])


def _call_end(tokens: Sequence[Token], position: int) -> int | None:
    after = tokens[position + 1 : position + 3]
    return after[1].end if [token.text for token in after] == ["(", ")"] else None


def _is_part_of_name(tokens: Sequence[Token], position: int) -> bool:
    around = [*tokens[max(position - 1, 0) : position], *tokens[position + 1 : position + 2]]
    return any(token.text == "." for token in around)
