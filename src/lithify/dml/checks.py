"""What a statement may not say of its table, whichever engine reads for it: columns, widths, and what * stands for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from lithify.core.names import quoted
from lithify.core.schema import TableSchema
from lithify.dml.assign import check_columns, shown_key
from lithify.errors import Conflict, InvalidRequest
from lithify.sql.statements.model import Assignment, Insert, Merge, OnConflict, When, defaulted

ONE_EACH = "make the source have one row for each"


def check_conflict(conflict: OnConflict, schema: TableSchema, name: str) -> None:
    if not schema.keyed:
        raise InvalidRequest(f"table {name} has no key, so no row is in conflict with another: leave ON CONFLICT out")
    if (conflict.columns or conflict.assignments is not None) and set(conflict.columns) != set(schema.key):
        raise InvalidRequest(f"rows of {name} are told apart by its key: say ON CONFLICT ({', '.join(schema.key)})")
    if conflict.assignments is not None:
        check_assignments(conflict.assignments, schema, name)


def columns_to_insert(statement: Insert, schema: TableSchema, name: str) -> list[str]:
    """Those that it names, or all; what it says of conflicts is looked at as well."""
    columns = list(statement.columns) if statement.columns is not None else schema.names
    check_columns(columns, schema, name)
    if statement.on_conflict is not None:
        check_conflict(statement.on_conflict, schema, name)
    return columns


def check_width(given: int, columns: Sequence[str], name: str) -> None:
    if given != len(columns):
        raise InvalidRequest(
            f"there are {given} values for {len(columns)} columns of {name} ({', '.join(columns)}): give one for each, "
            f"or name the columns: INSERT INTO {name} (…)"
        )


def check_assignments(assignments: Sequence[Assignment], schema: TableSchema, name: str) -> None:
    columns = [item.column for item in assignments]
    check_columns(columns, schema, name)
    check_defaults(defaulted(assignments), schema, name)
    for column in columns:
        if column in schema.key:
            raise InvalidRequest(
                f"column {column!r} is part of the key of {name}, which tells the row: delete it and insert another one"
            )


def check_defaults(columns: Collection[str], schema: TableSchema, name: str) -> None:
    """Columns that are to have their default have one, or may be null."""
    for column in columns:
        needed = column in schema.key or not schema.columns.field(column).nullable
        if needed and column not in schema.default_values:
            raise InvalidRequest(
                f"column {column!r} of {name} has no DEFAULT and may not be null: write a value, or declare one with "
                "ALTER TABLE … SET DEFAULT"
            )


def check_source(columns: Sequence[str]) -> None:
    names = [column.lower() for column in columns]
    if (twice := next((column for column in columns if names.count(column.lower()) > 1), None)) is not None:
        raise InvalidRequest(f"MERGE: the source has two columns {twice!r}: give one of them another name")


def spelled(when: When, statement: Merge, source: Sequence[str], schema: TableSchema) -> When:
    """With every column named, where it said * or left them out."""
    ref = quoted(statement.source_name)
    if when.action == "update" and when.assignments is None:
        named = [column for column in schema.names if column in source and column not in schema.key]
        _check_star(source, schema)
        return replace(when, assignments=tuple(Assignment(c, f"{ref}.{quoted(c)}") for c in named))
    if when.action == "insert" and when.values is None:
        _check_star(source, schema)
        named = [column for column in schema.names if column in source]
        return replace(when, columns=tuple(named), values=tuple(f"{ref}.{quoted(c)}" for c in named))
    return when


def _check_star(source: Sequence[str], schema: TableSchema) -> None:
    for column in source:
        if column not in schema.names:
            raise InvalidRequest(
                f"MERGE: * writes all columns of the source, and the table has no column {column!r}: leave it out of "
                "the source, or name the columns"
            )


def check_when(when: When, schema: TableSchema, name: str) -> None:
    if when.assignments is not None:
        check_assignments(when.assignments, schema, name)
    if when.action == "insert":
        columns = list(when.columns) if when.columns is not None else schema.names
        check_columns(columns, schema, name)
        check_width(len(when.values or ()), columns, name)
        check_defaults(defaulted_of(when, schema), schema, name)


def defaulted_of(when: When, schema: TableSchema) -> frozenset[str]:
    """Columns that a WHEN gives their default."""
    if when.action == "insert":
        columns = when.columns if when.columns is not None else schema.names
        return frozenset(name for name, value in zip(columns, when.values or (), strict=True) if value is None)
    return defaulted(when.assignments or ())


def check_mergeable(schema: TableSchema, name: str) -> None:
    if not schema.keyed:
        raise InvalidRequest(f"table {name} has no key, so its rows cannot be merged with others: use INSERT or DELETE")


# -- keys that stand in the way


def given_twice(name: str, key: pa.Table) -> Conflict:
    return _refused(f"two of the rows to insert into {name} have the key", key, "give each key once")


def there_already(name: str, key: pa.Table) -> Conflict:
    hint = "say ON CONFLICT DO NOTHING or DO UPDATE SET …, or write with upsert"
    return _refused(f"table {name} has a row already with the key", key, hint)


def changed_twice(name: str, key: pa.Table) -> Conflict:
    return _refused(f"more than one row of the source matches the row of {name} with", key, ONE_EACH)


def inserted_twice(name: str, key: pa.Table) -> Conflict:
    return _refused(f"two rows of the source insert into {name} the key", key, ONE_EACH)


def not_matched(name: str, key: pa.Table) -> Conflict:
    said = f"the source inserts into {name}, and ON did not match, a row that is there with"
    return _refused(said, key, "match by the key")


def _refused(said: str, key: pa.Table, hint: str) -> Conflict:
    """Names the key; not where values must not be told."""
    message = f"{said} {{}}; nothing was written: {hint}"
    return Conflict(message.format(shown_key(key)), public=message.format("(not shown)"))
