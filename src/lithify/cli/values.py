"""Values as text in a terminal cell, and sizes, times and counts as people say them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from lithify.core.json_out import dumps, jsonable
from lithify.core.time_text import seconds_within
from lithify.errors import InvalidRequest

CELL_WIDTH_MAX = 60
WORDS = {None: "", True: "true", False: "false"}


def cell(value: Any, width_max: int = CELL_WIDTH_MAX) -> str:
    """One line of text for a terminal table; control characters cannot reach the terminal."""
    match value:
        case None | bool():
            return WORDS[value]
        case str():
            text = value
        case dt.datetime():
            text = value.isoformat(sep=" ")
        case list() | tuple() | set() | Mapping():
            text = dumps(value)
        case int() | float() | Decimal():
            text = str(value)
        case _:
            text = str(jsonable(value))
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= width_max else text[: width_max - 1] + "…"


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(iB|B)?", re.IGNORECASE)


def parse_bytes(text: str) -> int | None:
    """Bytes of a size with a unit, e.g. 64MiB, 1.5 GiB or 2G; MB and its like count in thousands. None for others."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    base = 1000 if (found[3] or "").lower() == "b" else 1024
    return int(Decimal(found[1]) * base ** ("KMGT".index(found[2].upper()) + 1))


def seconds_of_every(text: str, least: str, most: str) -> float:
    """Seconds of --every: 500ms, 10s, 1m or 2h; a bare number is seconds."""
    seconds = seconds_within(text, least, most)
    if seconds is None:
        raise InvalidRequest(f"--every {text!r} is no time from {least} to {most}: write it like 30s, 5m or 1h")
    return seconds


def human_seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def count_cell(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def bytes_cell(value: int | None) -> str:
    return "" if value is None else human_bytes(value)


def seconds_cell(value: float | None) -> str:
    return "" if value is None else human_seconds(value)
