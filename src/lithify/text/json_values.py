"""JSON rows as Arrow columns of the table's own types: the inverse of `json_out`, and the one way in for JSON.

Every value is read by the type of its column, a whole column at a time. Nothing is guessed: a number is no text, a
number with a point is no integer, text is a date only in a date column. A decimal may come as a number too: the body is
then read a second time, with all its digits, because a double would round them.

What does not fit is refused with its row, its column and the expected type. The value itself is never repeated: it may
be somebody's secret, and answers and logs are read by others.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lithify.core.types import type_name
from lithify.errors import InvalidRequest, LimitExceeded

VALUES_MAX = 4_000_000
NAME_SHOWN_MAX = 60
_FLOAT32_MAX = 3.4028235677973366e38
_INTEGER = re.compile(r"[+-]?\d{1,20}")
_DECIMAL = re.compile(r"[+-]?(\d{1,80}(\.\d{0,80})?|\.\d{1,80})([eE][+-]?\d{1,3})?")
_HALF = re.compile("[\ud800-\udfff]")
_FLOAT_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGER_HINT = "whole numbers without a point, or text of digits"


@dataclass
class _Misfit(Exception):
    """The value at `index` does not fit, because it should be `wanted`; `path` leads into nested values."""

    index: int
    wanted: str
    path: str = ""


class _NeedsDigits(Exception):
    """A number stands where all its digits count."""


@dataclass
class RowMisfit(Exception):
    """The row at `index` is none of the table's: why, and the path of the value that is to blame and its column."""

    index: int
    column: str | None
    why: str
    top: str | None = None

    def said(self, place: str) -> str:
        return f"{place}: {self.why}" if self.column is None else f"{place}, column {self.column!r}: {self.why}"


@dataclass(frozen=True)
class Body:
    """Rows as they came, how to call one of them in an error, and how to read them again with exact numbers."""

    rows: Sequence[Any]
    place: Callable[[int], str]
    exact: Callable[[], Sequence[Any]]


def check_values(data: bytes) -> None:
    """Refuse a body whose many small values would take many times its size in memory."""
    if sum(data.count(mark) for mark in (b",", b"{", b"[", b"\n")) > VALUES_MAX:
        raise LimitExceeded(
            f"the body holds more than {VALUES_MAX:,} JSON values: send fewer rows at a time, or send Arrow",
            limit="size",
        )


def rows_of_document(document: Any, data: bytes) -> Body:
    """JSON: an array of objects, one object, or {"rows": [...]}."""
    return Body(_listed(document), lambda index: f"row {index}", lambda: _listed(exact(data)))


def table_of(body: Body, columns: pa.Schema) -> pa.Table:
    """Columns that no row has are left out: the table decides what becomes of them."""
    try:
        return rows_as_columns(body.rows, columns, body.exact)
    except RowMisfit as misfit:
        raise InvalidRequest(misfit.said(body.place(misfit.index))) from None


def rows_as_columns(rows: Sequence[Any], columns: pa.Schema, exact: Callable[[], Sequence[Any]]) -> pa.Table:
    """Raises `RowMisfit`. `exact`: the same rows with all digits of their numbers."""
    try:
        return _table(rows, columns)
    except _NeedsDigits:
        return _table(exact(), columns)


def _listed(document: Any) -> Sequence[Any]:
    if isinstance(document, dict) and set(document) == {"rows"} and isinstance(document["rows"], list):
        return document["rows"]
    return document if isinstance(document, list) else [document]


def exact(data: bytes) -> Any:
    """Parsed again, numbers with a point as decimals."""
    try:
        return json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise InvalidRequest("a number in the body has too many digits: write it as text") from None


def _table(rows: Sequence[Any], columns: pa.Schema) -> pa.Table:
    if not rows:
        raise InvalidRequest("the batch is empty: give at least one row")
    known = set(columns.names)
    present: set[str] = set()
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RowMisfit(index, None, "no JSON object of column names to values")
        if not row.keys() <= known:
            name = next(name for name in row if name not in known)
            raise RowMisfit(
                index, None, f"column {name[:NAME_SHOWN_MAX]!r} is not in the table: it has {', '.join(columns.names)}"
            )
        present.update(row)
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        if column.name not in present:
            continue
        try:
            arrays[column.name] = _array([row.get(column.name) for row in rows], column.type)
        except _Misfit as misfit:
            why = f"the value does not fit {type_name(column.type)}: it takes {misfit.wanted}"
            raise RowMisfit(misfit.index, column.name + misfit.path, why, column.name) from None
    if not arrays:
        raise InvalidRequest(f"the rows have no column: the table has {', '.join(columns.names)}")
    return pa.table(arrays)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_integer(kind):
        return _integers(values, kind)
    if types.is_floating(kind):
        return _floats(values, kind)
    if types.is_boolean(kind):
        _expect(values, {bool}, "true or false")
        return pa.array(values, kind)
    if types.is_string(kind):
        _expect(values, {str}, "text")
        return _texts(values, "text of whole characters")
    if types.is_decimal(kind):
        return _decimals(values, kind)
    if types.is_binary(kind):
        return _binary(values, kind)
    if types.is_date(kind):
        return _parsed(values, kind, "a date as text, like 2026-11-15")
    if types.is_timestamp(kind):
        with_zone = "a time with its zone as text, like 2026-11-15T12:00:00Z"
        return _parsed(values, kind, with_zone if kind.tz else "a time without a zone, like 2026-11-15T12:00:00")
    if types.is_list(kind):
        return _lists(values, kind)
    if types.is_struct(kind):
        return _structs(values, kind)
    if types.is_map(kind):
        return _maps(values, kind)
    raise InvalidRequest(f"columns of type {kind} cannot be written as JSON: send Arrow")


def _expect(values: list[Any], allowed: set[type], wanted: str) -> None:
    """Exactly these types: True is an int to Python, and no number here."""
    if not set(map(type, values)) <= allowed | {type(None)}:
        raise _Misfit(next(i for i, v in enumerate(values) if v is not None and type(v) not in allowed), wanted)


def _integers(values: list[Any], kind: pa.DataType) -> pa.Array:
    _expect(values, {int, str}, _INTEGER_HINT)
    if str in set(map(type, values)):
        for index, value in enumerate(values):
            if isinstance(value, str) and not _INTEGER.fullmatch(value):
                raise _Misfit(index, _INTEGER_HINT)
        values = [int(value) if isinstance(value, str) else value for value in values]
    half = 1 << (kind.bit_width - 1)
    outside = (i for i, value in enumerate(values) if value is not None and not -half <= value < half)
    if (bad := next(outside, None)) is not None:
        raise _Misfit(bad, f"whole numbers from {-half} to {half - 1}")
    return pa.array(values, kind)


def _floats(values: list[Any], kind: pa.DataType) -> pa.Array:
    wanted = 'numbers, "NaN", "Infinity" or "-Infinity"'
    _expect(values, {int, float, Decimal, str}, wanted)
    numbers: list[float | None] = []
    for index, value in enumerate(values):
        if isinstance(value, str):
            if value not in _FLOAT_WORDS:
                raise _Misfit(index, wanted)
            numbers.append(_FLOAT_WORDS[value])
            continue
        number = None if value is None else float(value)
        if number is not None and (math.isinf(number) or (kind.bit_width == 32 and abs(number) > _FLOAT32_MAX)):
            raise _Misfit(index, wanted + " within its range")
        numbers.append(number)
    return pa.array(numbers, kind)


def _decimals(values: list[Any], kind: pa.DataType) -> pa.Array:
    whole = kind.precision - kind.scale
    wanted = f"numbers or text with at most {whole} digits before and {kind.scale} after the point"
    _expect(values, {int, float, Decimal, str}, wanted)
    if float in set(map(type, values)):
        raise _NeedsDigits
    texts = [None if value is None else str(value) for value in values]
    for index, text in enumerate(texts):
        if text is not None and not _DECIMAL.fullmatch(text):
            raise _Misfit(index, wanted)
    return _cast(texts, kind, wanted)


def _binary(values: list[Any], kind: pa.DataType) -> pa.Array:
    wanted = "base64 text"
    _expect(values, {str}, wanted)
    decoded: list[bytes | None] = []
    for index, value in enumerate(values):
        try:
            decoded.append(None if value is None else base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            raise _Misfit(index, wanted) from None
    return pa.array(decoded, kind)


def _parsed(values: list[Any], kind: pa.DataType, wanted: str) -> pa.Array:
    _expect(values, {str}, wanted)
    return _cast(values, kind, wanted)


def _cast(texts: list[Any], kind: pa.DataType, wanted: str) -> pa.Array:
    strings = _texts(texts, wanted)
    try:
        return strings.cast(kind)
    except pa.ArrowException:
        pass
    for index, text in enumerate(texts):
        try:
            pa.scalar(text, pa.string()).cast(kind)
        except pa.ArrowException:
            raise _Misfit(index, wanted) from None
    raise _Misfit(0, wanted)


def _texts(values: list[Any], wanted: str) -> pa.Array:
    """Half a surrogate pair is legal in JSON, and no text anywhere else."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        halves = (index for index, value in enumerate(values) if value is not None and _HALF.search(value))
        raise _Misfit(next(halves, 0), wanted) from None


def _lists(values: list[Any], kind: pa.DataType) -> pa.Array:
    _expect(values, {list}, "a list")
    items, offsets, mask = _flattened(values)
    inner = _inner(items, kind.value_field, offsets, "[]")
    return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=mask)


def _maps(values: list[Any], kind: pa.DataType) -> pa.Array:
    wanted = "an object, or a list of [key, value] pairs"
    _expect(values, {dict, list}, wanted)
    pairs: list[Any] = []
    for index, value in enumerate(values):
        if isinstance(value, list) and not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            raise _Misfit(index, wanted)
        pairs.append(list(value.items()) if isinstance(value, Mapping) else value)
    entries, offsets, mask = _flattened(pairs)
    keys = _inner([key for key, _ in entries], kind.key_field, offsets, ".key")
    items = _inner([item for _, item in entries], kind.item_field, offsets, ".value")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


def _flattened(values: list[Any]) -> tuple[list[Any], pa.Array, pa.Array | None]:
    """All items one after the other, where each list starts in them, and which lists are null."""
    lengths = (0 if value is None else len(value) for value in values)
    offsets = pa.array(list(itertools.accumulate(lengths, initial=0)), pa.int32())
    missing = [value is None for value in values]
    items = [item for value in values if value is not None for item in value]
    return items, offsets, pa.array(missing, pa.bool_()) if any(missing) else None


def _inner(items: list[Any], field: pa.Field, offsets: pa.Array, step: str) -> pa.Array:
    try:
        return _required(items, field)
    except _Misfit as misfit:
        parent = bisect.bisect_right(offsets.to_pylist(), misfit.index) - 1
        raise _Misfit(parent, misfit.wanted, step + misfit.path) from None


def _structs(values: list[Any], kind: pa.DataType) -> pa.Array:
    _expect(values, {dict}, "an object")
    fields = list(kind)
    names = {field.name for field in fields}
    for index, value in enumerate(values):
        if value is not None and not value.keys() <= names:
            raise _Misfit(index, f"no other fields than {', '.join(field.name for field in fields)}")
    missing = [value is None for value in values]
    arrays = []
    for field in fields:
        inside = [None if value is None else value.get(field.name) for value in values]
        try:
            arrays.append(_array(inside, field.type))
            if not field.nullable:
                _refuse_null([0 if gone else item for gone, item in zip(missing, inside, strict=True)])
        except _Misfit as misfit:
            raise _Misfit(misfit.index, misfit.wanted, f".{field.name}{misfit.path}") from None
    return pa.StructArray.from_arrays(
        arrays, fields=fields, mask=pa.array(missing, pa.bool_()) if any(missing) else None
    )


def _required(values: list[Any], field: pa.Field) -> pa.Array:
    if not field.nullable:
        _refuse_null(values)
    return _array(values, field.type)


def _refuse_null(values: Sequence[Any]) -> None:
    if None in values:
        raise _Misfit(next(i for i, value in enumerate(values) if value is None), "a value, and no null")
