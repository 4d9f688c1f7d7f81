"""The JSON spelling of single values that a report, an error or a row can hold.

JSON has fewer types than a table: dates and times become ISO text, decimals text (all digits kept), binary base64,
integers beyond 2^53 text (a double would round them), NaN and infinities text. The same spellings are read back. Whole
tables are spelled column by column elsewhere; this is for documents.
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
        case Decimal():
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
