"""Values as JSON and as text in a terminal cell.

JSON has fewer types than a table: dates and times become ISO text, decimals text (all digits kept), binary base64,
integers beyond 2^53 text (a double would round them), NaN and infinities text. `lithify write` reads the same
spellings back.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

SAFE_INTEGER_MAX = 2**53
CELL_WIDTH_MAX = 60


def jsonable(value: Any) -> Any:
    """The JSON spelling of any value that a table, a report or an error can hold."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return jsonable(value.value)
        case int():
            return value if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else str(value)
        case float():
            return value if math.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        case Decimal() | Path():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode("ascii")
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Mapping():
            return {str(name): jsonable(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            items = sorted(value) if isinstance(value, set | frozenset) else value
            return [jsonable(item) for item in items]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)


def dumps(document: Any, *, indent: int | None = None) -> str:
    return json.dumps(jsonable(document), ensure_ascii=False, allow_nan=False, indent=indent)


def cell(value: Any, width_max: int = CELL_WIDTH_MAX) -> str:
    """One line of text for a terminal table; control characters cannot reach the terminal."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
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
