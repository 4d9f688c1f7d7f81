"""Changes of columns as ALTER TABLE says them, which is how a client asks a service for them."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pyarrow as pa

from lithify.core.column_changes import ColumnChange
from lithify.core.column_types import Family, type_of
from lithify.core.names import quoted
from lithify.core.type_text import parse_type
from lithify.errors import InvalidRequest, NotFound


def alter_text(change: ColumnChange, columns: pa.Schema) -> str:
    """What stands behind the name of the table, which has these columns."""
    column = quoted(change.column)
    match change.kind:
        case "rename":
            return f"RENAME COLUMN {column} TO {quoted(change.to)}"
        case "drop":
            return f"DROP COLUMN {column}"
        case "relax":
            return f"ALTER COLUMN {column} DROP NOT NULL"
        case "require":
            return f"ALTER COLUMN {column} SET NOT NULL"
        case "move":
            return f"ALTER COLUMN {column} AFTER {quoted(change.to)}" if change.to else f"ALTER COLUMN {column} FIRST"
        case "widen":
            return f"ALTER COLUMN {column} TYPE {sql_type(change.to)}"
        case "add":
            default = "" if change.default is None else f" DEFAULT {_constant(change.default, parse_type(change.to))}"
            return f"ADD COLUMN {column} {sql_type(change.to)}{default}"
        case "default" if change.default is None:
            return f"ALTER COLUMN {column} DROP DEFAULT"
        case "default":
            if change.column not in columns.names:
                raise NotFound(f"column {change.column!r} is not in the table: it has {', '.join(columns.names)}")
            return f"ALTER COLUMN {column} SET DEFAULT {_constant(change.default, columns.field(change.column).type)}"
        case _:
            raise AssertionError("a field is told by its path, as a column")


def _constant(value: Any, kind: pa.DataType) -> str:
    """A default, as JSON spells it, in SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or type_of(kind).family is Family.DECIMAL:
        return str(value)
    if type_of(kind).family is Family.BINARY:
        return f"X'{b64decode(value).hex()}'"
    return "'" + value.replace("'", "''") + "'"


def sql_type(name: str) -> str:
    """A type as SQL calls it, where that is another word."""
    if name != name.lower():  # SQL folds what is not quoted, and fields of a struct are not
        raise InvalidRequest(f"type {name} has fields in capital letters: add the column where the lake is")
    return "timestamptz" if name == "timestamp" else name
