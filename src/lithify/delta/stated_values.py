"""The values that a commit states in text: bounds in the statistics of a file, and what a partition's files share.

A commit is JSON, where a date is text and a decimal a number, so each is read by the type of its column. A bound that
does not fit says nothing of its file. A partition value that does not fit is another matter, as it stands for all of
the file's rows: `Unfamiliar`, and whoever meets it leaves the commit to deltalake.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lithify.core.column_types import Family, type_of

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?")
Read = Callable[[Any], Any]


class Unfamiliar(Exception):
    """A commit says something that is not known here. Internal: deltalake is asked then."""


def bound(kind: pa.DataType, value: Any) -> Any:
    """A bound of the statistics, or None where it is none for this type."""
    try:
        return None if value is None else _bounds(kind)(value)
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        return None


def partition_value(kind: pa.DataType, text: Any) -> Any:
    """Delta spells a null as nothing, or as empty text."""
    if text is None or text == "":
        return None
    try:
        return _partitions(kind)(text)
    except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
        raise Unfamiliar(f"{text!r} is no {kind}") from error


@lru_cache(256)
def _bounds(kind: pa.DataType) -> Read:
    match type_of(kind).family:
        case Family.BOOLEAN:
            return _exactly(bool)
        case Family.INTEGER:
            return lambda value: pa.scalar(_exactly(int)(value), kind).as_py()
        case Family.FLOAT:
            return lambda value: pa.scalar(float(_exactly(int, float, Decimal)(value)), kind).as_py()
        case Family.DECIMAL:
            return lambda value: _decimal(kind, _exactly(int, float, Decimal)(value))
        case Family.TEXT:
            return _exactly(str)
        case Family.DATE:
            return lambda value: dt.date.fromisoformat(_exactly(str)(value))
        case Family.TIMESTAMP:
            return lambda value: _moment(kind, _exactly(str)(value))
        case _:
            return lambda value: None


@lru_cache(256)
def _partitions(kind: pa.DataType) -> Read:
    match type_of(kind).family:
        case Family.BOOLEAN:
            return lambda text: {"true": True, "false": False}[text] if text in ("true", "false") else _none(text)
        case Family.INTEGER:
            return lambda text: pa.scalar(_whole(text), kind).as_py()
        case Family.DECIMAL:
            return lambda text: _decimal(kind, _digits(kind, text))
        case Family.TEXT:
            return _exactly(str)
        case Family.DATE:
            return dt.date.fromisoformat
        case Family.TIMESTAMP:
            return lambda text: _moment(kind, text if kind.tz or "T" not in text else _none(text))
        case _:
            return _none


def _exactly(*kinds: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError
        return value

    return read


def _none(text: Any) -> Any:
    raise ValueError(text)


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text, re.ASCII):
        raise ValueError
    return int(text)


def _digits(kind: pa.DataType, text: str) -> Decimal:
    """As many behind the point as the type has: deltalake takes no others."""
    value = Decimal(text)
    return value if value.is_finite() and value.as_tuple().exponent == -kind.scale else _none(text)


def _decimal(kind: pa.DataType, value: Any) -> Decimal:
    """With all its digits, or not at all."""
    found: Decimal = pa.scalar(Decimal(str(value)), kind).as_py()
    return found


def _moment(kind: pa.DataType, text: str) -> dt.datetime:
    """Without a zone it is UTC, as Delta has it; more than microseconds are cut off, as times were that lie between."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError
    day, time, fraction, zone = found.groups()
    micros = ((fraction or ".0")[1:7]).ljust(6, "0")
    moment = dt.datetime.fromisoformat(f"{day}T{time}.{micros}{zone or 'Z'}").astimezone(dt.UTC)
    return moment if kind.tz is not None else moment.replace(tzinfo=None)
