"""Lengths of time as people type them: 500ms, 10s, 1m, 2h; a bare number is seconds. Pure."""

from __future__ import annotations

import re

_TIME = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(ms|s|m|h|)")
_UNIT_S = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> float | None:
    """None: it is no length of time."""
    found = _TIME.fullmatch(text.strip().lower())
    return None if found is None else float(found[1]) * _UNIT_S[found[2]]


def seconds_within(text: str, least: str, most: str) -> float | None:
    """None also where it is shorter or longer than may be."""
    seconds = seconds_of(text)
    return None if seconds is None or not (seconds_of(least) or 0) <= seconds <= (seconds_of(most) or 0) else seconds
