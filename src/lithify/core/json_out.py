"""The JSON spelling of single values that a report, an error or a row can hold.

JSON has fewer types than a table: dates and times become ISO text, decimals text (all digits kept), binary base64,
integers beyond 2^53 text (a double would round them), NaN and infinities text. Columns of tables are spelled alike, all
values at once, by `column_types`, which reads these spellings too.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

SAFE_INTEGER_MAX = 2**53
NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


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
            return value if math.isfinite(value) else NOT_FINITE[str(value)]
        case Decimal():
            return f"{value:f}" if value.is_finite() else str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode("ascii")
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC).isoformat().removesuffix("+00:00") + "Z"
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


def parsed(text: bytes | str) -> Any:
    """What a document of ours says; None: it is torn, or no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
