"""JSON as RFC 8259 has it: no NaN, no lone surrogates, whole numbers of up to 64 bits.

orjson does that, quickly. Spark's executors need not have it, and do the same with what Python brings along.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

try:
    import orjson
except ModuleNotFoundError:
    QUICK = False
else:
    QUICK = True

JSONDecodeError = json.JSONDecodeError
_LEAST, _MOST = -(2**63), 2**64 - 1


def loads(text: bytes) -> Any:
    """Raises JSONDecodeError."""
    return orjson.loads(text) if QUICK else plain_loads(text)


def loads_all(texts: Sequence[bytes]) -> list[Any]:
    """Raises JSONDecodeError if one of them is none."""
    return list(map(orjson.loads if QUICK else plain_loads, texts))


def dumps(value: Any) -> bytes:
    if QUICK:
        return orjson.dumps(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def plain_loads(text: bytes) -> Any:
    try:
        known = text.decode()
    except UnicodeDecodeError as error:
        raise JSONDecodeError("str is not valid UTF-8: surrogates not allowed", "", 0) from error
    value = json.loads(known, parse_constant=_refuse, parse_int=_whole, parse_float=_number)
    if "\\u" in known:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise JSONDecodeError("no low surrogate in string", known, 0) from error
    return value


def _refuse(word: str) -> Any:
    raise JSONDecodeError(f"unexpected {word}", word, 0)


def _whole(digits: str) -> int | float:
    number = int(digits) if len(digits) <= 20 else None
    return number if number is not None and _LEAST <= number <= _MOST else _number(digits)


def _number(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)
