"""Values written as text, read by the type of their column: a whole column at once, strictly.

A value that is there fits as it is or is named: nothing is rounded, cut or guessed. Around everything but text blanks
do not matter, and empty text is no value. Spellings:

| type            | text                                                                              |
|-----------------|-----------------------------------------------------------------------------------|
| int             | digits with or without a sign                                                     |
| float           | 1.5, -2e10, NaN, Infinity; not what is beyond its range                           |
| decimal         | as a float; every digit behind the point must fit its scale                       |
| bool            | true, false, t, f, yes, no, y, n, 1, 0, in letters of any case                    |
| date            | 2026-11-15                                                                        |
| timestamp       | 2026-11-15T12:00:00Z, 2026-11-15 12:00:00.123456+01:00; without a zone it is UTC  |
| timestamp_ntz   | the same without a zone                                                           |
| binary          | base64                                                                            |
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.types import type_name

_TRUE, _FALSE = frozenset(("true", "t", "yes", "y", "1")), frozenset(("false", "f", "no", "n", "0"))
_ZONED = r"\d\d?:\d\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_FIRST_DAY = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
_LEAF = 32


def holds_text(kind: pa.DataType) -> bool:
    """Whether a type has a spelling as text."""
    return not pa.types.is_nested(kind)


def parse_values(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    """The values, and the places of those that do not fit, which are null."""
    if pa.types.is_string(kind):
        return texts, np.empty(0, np.int64)
    found = _whole(texts, kind)
    if found is None:
        texts = _plain(texts, kind)
        found = _whole(texts, kind)
    if found is not None:
        return found, np.empty(0, np.int64)
    bad = np.array(list(_misfits(texts, kind, 0)), np.int64)
    mask = np.zeros(len(texts), bool)
    mask[bad] = True
    fitting = pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), texts)
    values = _whole(fitting, kind)
    assert values is not None, "what remains fits"
    return values, bad


def wanted(kind: pa.DataType) -> str:
    """What a column of this type takes, for the message about a value that does not fit."""
    types = pa.types
    if types.is_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return f"whole numbers from {-half} to {half - 1}"
    if types.is_decimal(kind):
        whole = kind.precision - kind.scale
        return f"numbers with at most {whole} digits before and {kind.scale} after the point"
    if types.is_floating(kind):
        return "numbers within its range"
    if types.is_boolean(kind):
        return "true or false"
    if types.is_date(kind):
        return "a date like 2026-11-15"
    if types.is_timestamp(kind):
        return "a time like 2026-11-15T12:00:00Z" if kind.tz else "a time without a zone, like 2026-11-15T12:00:00"
    return "base64 text" if types.is_binary(kind) else type_name(kind)


def _misfits(texts: pa.Array, kind: pa.DataType, offset: int) -> Iterator[int]:
    """By halves: they are few in many."""
    if _whole(texts, kind) is not None:
        return
    if len(texts) == 1:
        yield offset
        return
    step = max(1, len(texts) // 2) if len(texts) > _LEAF else 1
    for start in range(0, len(texts), step):
        yield from _misfits(texts.slice(start, step), kind, offset + start)


def _whole(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """All values, or None if one does not fit as it is written."""
    types = pa.types
    if types.is_binary(kind):
        return _base64(texts)
    try:
        found = _times(texts, kind) if types.is_timestamp(kind) else texts.cast(kind)
    except pa.ArrowException:
        return None
    if types.is_integer(kind) and pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        return None  # Arrow would read 0x10
    if types.is_floating(kind) and pc.any(pc.is_inf(found)).as_py():
        written = pc.match_substring_regex(texts, "[iI][nN][fF]")
        if not pc.all(pc.equal(pc.is_inf(found), written)).as_py():
            return None
    if (types.is_date(kind) or types.is_timestamp(kind)) and not _in_calendar(found):
        return None
    return found


def _in_calendar(values: pa.Array) -> bool:
    """Arrow reads the year 0 too, which no other part of this knows."""
    first = pc.min(values.cast(pa.timestamp("us") if pa.types.is_timestamp(values.type) else values.type))
    if not first.is_valid:
        return True
    low = first.cast(pa.int64()).as_py() if pa.types.is_timestamp(first.type) else first.cast(pa.int32()).as_py()
    return bool(low >= _FIRST_DAY * (86_400_000_000 if pa.types.is_timestamp(first.type) else 1))


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind.tz is None:
        return texts.cast(kind)
    plain = pa.timestamp("us")
    for guess in (kind, plain):
        try:
            return texts.cast(guess).cast(kind)
        except pa.ArrowException:
            continue
    zoned = pc.match_substring_regex(texts, _ZONED)
    null = pa.scalar(None, pa.string())
    return pc.coalesce(pc.if_else(zoned, texts, null).cast(kind), pc.if_else(zoned, null, texts).cast(plain).cast(kind))


def _plain(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Without what does not matter: blanks around a value, a plus before it, zeros at the end of a fraction."""
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    types = pa.types
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind):
        return pc.replace_substring_regex(texts, r"^\+(\d|\.)", r"\1")
    if types.is_timestamp(kind):
        return pc.replace_substring_regex(texts, r"(\.\d{6})0+", r"\1")
    if types.is_boolean(kind):
        words = dict.fromkeys(_TRUE, "true") | dict.fromkeys(_FALSE, "false")
        return pa.array([None if t is None else words.get(t.lower(), t) for t in texts.to_pylist()], pa.string())
    return texts


def _base64(texts: pa.Array) -> pa.Array | None:
    try:
        return pa.array(
            [None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()], pa.binary()
        )
    except (binascii.Error, ValueError):
        return None
