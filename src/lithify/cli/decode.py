"""JSON values, and values typed on a command line, read by the type of their column: the inverse of `jsonable`.

JSON has no dates, decimals or binary, and arguments are only text. What does not fit is refused with its place, or left
as it is, so that the table's own checks have the last word.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lithify.core.types import type_name
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS_MAX = 76
_INTEGER = re.compile(r"[+-]?\d+")


def decode_row(row: Any, columns: pa.Schema, place: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InvalidRequest(f"{place}: a row is a JSON object, not {_shown(row)}")
    known = set(columns.names)
    return {
        name: decode(value, columns.field(name).type, f"{place}, column {name!r}") if name in known else value
        for name, value in row.items()
    }


def decode(value: Any, kind: pa.DataType, place: str, nested: bool = False) -> Any:
    """A JSON value by its column's type: the inverse of `json_values.jsonable`."""
    import pyarrow as pa

    types = pa.types
    if value is None:
        return None
    if types.is_struct(kind) and isinstance(value, Mapping):
        fields = {f.name: f.type for f in kind}
        unknown = [name for name in value if name not in fields]
        if unknown:
            raise InvalidRequest(f"{place}: field {unknown[0]!r} is not in {type_name(kind)}")
        return {name: decode(item, fields[name], f"{place}.{name}", nested=True) for name, item in value.items()}
    if types.is_list(kind) and isinstance(value, list):
        return [decode(item, kind.value_type, f"{place}[{number}]", nested=True) for number, item in enumerate(value)]
    if types.is_map(kind) and isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else _pairs(value, place)
        return [
            (_map_key(k, kind.key_type, place), decode(v, kind.item_type, f"{place}[{k!r}]", nested=True))
            for k, v in pairs
        ]
    if isinstance(value, str):
        return _decode_text(value, kind, place, nested)
    if isinstance(value, Decimal):
        return _decode_number(value, kind, place)
    if types.is_floating(kind) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def value_of_text(text: str, column: pa.Field) -> Any:
    """A value as somebody types it, by its column's type."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) and _INTEGER.fullmatch(text.strip()):
        return int(text)
    if pa.types.is_boolean(kind) and text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    if pa.types.is_binary(kind):
        return _base64(text, f"column {column.name!r}")
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        raise InvalidRequest(f"column {column.name!r}: {text!r} does not fit {type_name(kind)}")
    return text


def _decode_number(value: Decimal, kind: pa.DataType, place: str) -> Any:
    """A number with a point or an exponent. Its size comes first: 1e999999999 has few letters and many digits."""
    import pyarrow as pa

    if pa.types.is_decimal(kind) and abs(value.adjusted()) <= DIGITS_MAX:
        return value
    if pa.types.is_integer(kind) and abs(value.adjusted()) <= DIGITS_MAX and value == value.to_integral_value():
        return int(value)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or math.isinf(float(value)):
        raise InvalidRequest(f"{place}: {value} does not fit {type_name(kind)}")
    return float(value)


def _decode_text(text: str, kind: pa.DataType, place: str, nested: bool) -> Any:
    import pyarrow as pa

    if pa.types.is_binary(kind):
        return _base64(text, place)
    if pa.types.is_floating(kind) and text in ("NaN", "Infinity", "-Infinity"):
        return float(text)
    if pa.types.is_integer(kind) and _INTEGER.fullmatch(text):
        return int(text)
    if nested and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
        try:
            return pa.scalar(text).cast(kind).as_py()
        except pa.ArrowException as error:
            raise InvalidRequest(f"{place}: {text!r} does not fit {type_name(kind)}") from error
    return text


def _map_key(key: Any, kind: pa.DataType, place: str) -> Any:
    import pyarrow as pa

    return value_of_text(key, pa.field(place, kind)) if isinstance(key, str) else decode(key, kind, place, nested=True)


def _pairs(value: list[Any], place: str) -> list[tuple[Any, Any]]:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise InvalidRequest(f"{place}: a map is a JSON object, or a list of [key, value] pairs")
    return [(pair[0], pair[1]) for pair in value]


def _base64(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{place}: binary values are written in base64, which {_shown(text)} is not") from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
