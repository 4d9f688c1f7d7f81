"""Column types as text: `id:int64!`, `amount:decimal(10,2)`, `tags:list<string>`, `place:struct<city:string>`.

    column  = name ":" type
    type    = plain | "decimal(" p "," s ")" | "list<" type ">" | "map<" type "," type ">"
            | "struct<" column {"," column} ">"
    "!" or "not null" after a type: the value is required

`type_name` is the inverse, so that what `describe` prints can be given to `create`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = {
    "bool": "bool",
    "boolean": "bool",
    "int8": "int8",
    "byte": "int8",
    "tinyint": "int8",
    "int16": "int16",
    "short": "int16",
    "smallint": "int16",
    "int32": "int32",
    "int": "int32",
    "integer": "int32",
    "int64": "int64",
    "long": "int64",
    "bigint": "int64",
    "float32": "float32",
    "float": "float32",
    "real": "float32",
    "float64": "float64",
    "double": "float64",
    "string": "string",
    "text": "string",
    "varchar": "string",
    "binary": "binary",
    "bytes": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
KNOWN = (
    "int8, int16, int32, int64, float32, float64 (double), string, binary, bool, date, timestamp, timestamp_ntz, "
    "decimal(p,s), list<…>, struct<name:…,…>, map<…,…>"
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DECIMAL = re.compile(r"\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\)")
_REQUIRED = re.compile(r"\s*(?:!|not\s+null\b)", re.IGNORECASE)
_NAME = re.compile(r"\s*([^:<>!]+?)\s*:")
DEPTH_MAX = 32


def parse_column(text: str) -> pa.Field:
    """`name:type`, with `!` or `not null` for a column that must have a value."""
    reader = _Reader(text)
    column = reader.column(0)
    reader.end()
    return column


def parse_type(text: str) -> pa.DataType:
    reader = _Reader(text)
    kind = reader.type(0)
    reader.end()
    return kind


def type_name(kind: pa.DataType) -> str:
    """The spelling that `parse_type` reads, for every type a table can have."""
    from lithify.core.column_types import type_of

    return type_of(kind).name


class _Reader:
    """A reader over one text with one position: each method takes what it knows and moves on."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def column(self, depth: int) -> pa.Field:
        import pyarrow as pa

        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self._error("write a column as name:type, e.g. amount:decimal(10,2)")
        self._at = name.end()
        kind = self.type(depth)
        return pa.field(name[1], kind, nullable=not self._required())

    def type(self, depth: int) -> pa.DataType:
        import pyarrow as pa

        if depth > DEPTH_MAX:
            raise self._error(f"types nest more than {DEPTH_MAX} levels deep")
        self._blanks()
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise self._error(f"a type is missing: use {KNOWN}")
        name = word[0].lower()
        if name in _PLAIN:
            self._at = word.end()
            return _plain(_PLAIN[name])
        match name:
            case "decimal" | "numeric":
                self._at = word.end()
                return self._decimal()
            case "list" | "array":
                self._at = word.end()
                self._take("<")
                kind, required = self.type(depth + 1), self._required()
                self._take(">")
                return pa.list_(pa.field("element", kind, nullable=not required))
            case "map":
                self._at = word.end()
                self._take("<")
                key = self.type(depth + 1)
                self._take(",")
                value, required = self.type(depth + 1), self._required()
                self._take(">")
                return pa.map_(key, pa.field("value", value, nullable=not required))
            case "struct":
                self._at = word.end()
                self._take("<")
                fields = [self.column(depth + 1)]
                while self._peek(","):
                    self._take(",")
                    fields.append(self.column(depth + 1))
                self._take(">")
                return pa.struct(fields)
        raise self._error(f"{word[0]!r} is no type: use {KNOWN}")

    def _decimal(self) -> pa.DataType:
        import pyarrow as pa

        found = _DECIMAL.match(self._text, self._at)
        if found is None:
            raise self._error("write a decimal with its digits, e.g. decimal(10,2)")
        precision, scale = int(found[1]), int(found[2] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise self._error(
                f"decimal({precision},{scale}) does not exist: 1 to 38 digits, at most as many of them after the point"
            )
        self._at = found.end()
        return pa.decimal128(precision, scale)

    def end(self) -> None:
        self._blanks()
        if self._at < len(self._text):
            raise self._error(f"{self._text[self._at :]!r} is too much")

    def _required(self) -> bool:
        found = _REQUIRED.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found is not None

    def _blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _peek(self, symbol: str) -> bool:
        self._blanks()
        return self._text.startswith(symbol, self._at)

    def _take(self, symbol: str) -> None:
        if not self._peek(symbol):
            raise self._error(f"{symbol!r} is missing")
        self._at += len(symbol)

    def _error(self, problem: str) -> InvalidRequest:
        return InvalidRequest(f"column {self._text!r}, character {self._at + 1}: {problem}")


def _plain(name: str) -> pa.DataType:
    import pyarrow as pa

    match name:
        case "bool":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "timestamp_ntz":
            return pa.timestamp("us")
        case _:
            return getattr(pa, name)()
