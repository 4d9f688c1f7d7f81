"""Changes of columns as ALTER TABLE says them, which is how a client asks a service for them."""

from __future__ import annotations

from lithify.core.column_changes import ColumnChange
from lithify.core.names import quoted
from lithify.errors import InvalidRequest


def alter_text(change: ColumnChange) -> str:
    """What stands behind the name of the table."""
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
            return f"ADD COLUMN {column} {sql_type(change.to)}"


def sql_type(name: str) -> str:
    """A type as SQL calls it, where that is another word."""
    if name != name.lower():  # SQL folds what is not quoted, and fields of a struct are not
        raise InvalidRequest(f"type {name} has fields in capital letters: add the column where the lake is")
    return "timestamptz" if name == "timestamp" else name
