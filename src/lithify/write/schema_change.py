"""Adding a column. It commits to base first, then to changes; a fold that sees it plans again.

A crash in between leaves a base with a column that no row has yet, which the next attempt finds and goes on from.
"""

from __future__ import annotations

import pyarrow as pa

from lithify.core.names import check_column_name
from lithify.core.schema import normalise
from lithify.delta.actions import LogChange
from lithify.delta.changes import plain_types
from lithify.delta.log import DeltaLog
from lithify.errors import Conflict, InvalidRequest
from lithify.tables.handles import Handles


def add_column(handles: Handles, column: pa.Field) -> None:
    if not isinstance(column, pa.Field):
        raise InvalidRequest(f"a new column is a pyarrow field like pa.field('note', pa.string()), not {column!r}")
    check_column_name(column.name)
    if not column.nullable:
        raise InvalidRequest(
            f"new column {column.name!r} must be nullable: rows that are there already have no value for it"
        )
    column = pa.field(column.name, normalise(column.type, column.name))
    runtime = handles.runtime
    info = {"operation": "add column", "column": f"{column.name} {column.type}", "actor": runtime.settings.actor}
    with handles.changes.log.lock:
        for log in (handles.base.log, handles.changes.log):

            def build(log: DeltaLog = log) -> LogChange | None:
                in_base = log is handles.base.log
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
                numbers = {"watermark": handles.base.watermark} if in_base else {"seq": handles.changes.seq}
                return LogChange({**info, **numbers}, column=column)

            handles.commit(log, f"adding {column.name} to", build, point="add_column")


def _type_in(log: DeltaLog, name: str) -> pa.DataType | None:
    columns = plain_types(log.columns())
    return columns.field(name).type if name in columns.names else None
