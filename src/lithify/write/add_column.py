"""Adding a column that is null in all rows. It commits to base first, then to changes; a fold that sees it plans again.

A crash in between leaves a base with a column that no row has yet, which the next attempt finds and goes on from.

A default is none of base's business: it is a property of changes, which the commit that adds the column sets with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from lithify.core.column_changes import ColumnChange, changed
from lithify.core.column_defaults import stored_defaults
from lithify.core.names import check_column_name
from lithify.core.schema import DEFAULTS_FORMAT, DEFAULTS_PROPERTY, FORMAT_PROPERTY, TableSchema, normalise
from lithify.delta.actions import LogChange
from lithify.delta.changes import plain_types
from lithify.delta.commit import PlannedAgain
from lithify.delta.log import DeltaLog
from lithify.errors import Conflict, InvalidRequest
from lithify.jobs.finish_column_change import dropped_columns, finish_column_change, mend_base
from lithify.tables.handles import Handles

ROUNDS_MAX = 5


def add_column(handles: Handles, column: pa.Field, default: Any = None) -> None:
    """`default`: as JSON spells it."""
    if not isinstance(column, pa.Field):
        raise InvalidRequest(f"a new column is a pyarrow field like pa.field('note', pa.string()), not {column!r}")
    check_column_name(column.name)
    if not column.nullable:
        raise InvalidRequest(
            f"new column {column.name!r} must be nullable: rows that are there already have no value for it"
        )
    column = pa.field(column.name, normalise(column.type, column.name))
    for _ in range(ROUNDS_MAX):
        try:
            _add(handles, column, default)
        except PlannedAgain:
            finish_column_change(handles)
            continue
        mend_base(handles)
        return
    raise Conflict(f"the columns of table {handles.name} are being changed by others: try again in a moment")


def _add(handles: Handles, column: pa.Field, default: Any) -> None:
    info = {
        "operation": "add column",
        "column": f"{column.name} {column.type}",
        "actor": handles.runtime.settings.actor,
    }
    with handles.changes.log.lock:
        for log in (handles.base.log, handles.changes.log):

            def build(log: DeltaLog = log) -> LogChange | None:
                in_base = log is handles.base.log
                if handles.base.generation != handles.changes.schema.generation:
                    raise PlannedAgain
                if is_dropped(handles, column.name):
                    raise Conflict(
                        f"a column {column.name!r} of table {handles.name} was dropped meanwhile, and files still hold "
                        "its values: try again"
                    )
                present = {name.lower(): name for name in log.columns().names}
                if column.name.lower() in present:
                    # Left by an attempt that was interrupted, or by another writer of an adopted base.
                    begun = in_base and column.name not in handles.changes.schema.names
                    if begun and _type_in(log, column.name) == column.type:
                        return None
                    if begun and column.name in log.columns().names:
                        raise Conflict(
                            f"the base of table {handles.name} has a column {column.name!r} of type "
                            f"{_type_in(log, column.name)} already: add it with that type"
                        )
                    raise Conflict(f"table {handles.name} has a column {present[column.name.lower()]!r} already")
                if not in_base:
                    return _counting(handles, {**info, "seq": handles.changes.seq}, column, default)
                return handles.base.with_watermark(LogChange(info, column=column))

            handles.commit(log, f"adding {column.name} to", build, point="add_column")


def _counting(handles: Handles, info: dict[str, Any], column: pa.Field, default: Any) -> LogChange:
    schema = handles.changes.schema
    if default is None:
        return LogChange(info, column=column)
    after = replace(schema.with_column(column), column_defaults={**schema.column_defaults, column.name: default})
    return LogChange(info, columns=after.changes_columns, properties=_with_defaults(handles, after))


def set_default(handles: Handles, change: ColumnChange) -> int:
    """A column gets a default, or loses it. Answers with the seq up to which rows were written without."""
    changes, actor = handles.changes, handles.runtime.settings.actor

    def build() -> LogChange | None:
        before = changes.schema
        after = changed(before, change, str(handles.name))
        if after.column_defaults == before.column_defaults:
            return None
        info = {"operation": "change columns", "column": str(change), "actor": actor, "seq": changes.seq}
        return LogChange(info, properties=_with_defaults(handles, after))

    handles.schema()
    handles.commit(changes.log, "changing the columns of", build, point="set_default")
    return changes.seq


def _with_defaults(handles: Handles, schema: TableSchema) -> dict[str, str]:
    known = int(handles.changes.log.properties.get(FORMAT_PROPERTY, "0"))
    needed = max(known, DEFAULTS_FORMAT) if schema.column_defaults else known
    return {DEFAULTS_PROPERTY: stored_defaults(schema.column_defaults), FORMAT_PROPERTY: str(needed)}


def is_dropped(handles: Handles, name: str) -> bool:
    """Whether files may hold values of an earlier column of this name."""
    return name.lower() in map(str.lower, dropped_columns(handles.changes.log.properties))


def _type_in(log: DeltaLog, name: str) -> pa.DataType | None:
    columns = plain_types(log.columns())
    return columns.field(name).type if name in columns.names else None
