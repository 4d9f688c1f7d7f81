"""Adding a column. It commits to base first, then to changes; a fold that sees it plans again.

A crash in between leaves a base with a column that no row has yet, which the next attempt finds and goes on from.
"""

from __future__ import annotations

import pyarrow as pa

from lithify.core.names import check_column_name
from lithify.core.schema import normalise
from lithify.delta.changes import plain_types
from lithify.delta.commit import swap_with_retries
from lithify.delta.commit_outcome import Intent
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
    info = {
        "operation": "add column",
        "column": f"{column.name} {column.type}",
        "actor": runtime.settings.actor,
    }
    with handles.changes.log.lock:
        handles.changes.log.refresh()
        for log, extra in ((handles.base.log, {}), (handles.changes.log, {"seq": 0})):
            intent = Intent(runtime.new_id())

            def attempt(log=log, extra=extra, intent=intent) -> None:  # type: ignore[no-untyped-def]
                handles.check_alive()
                present = {name.lower(): name for name in log.columns().names}
                if column.name.lower() in present:
                    # Left by an attempt that was interrupted, or by another writer of an adopted base.
                    begun = log is handles.base.log and column.name not in handles.changes.schema.names
                    if begun and _type_in(log, column.name) == column.type:
                        return
                    if begun and column.name in log.columns().names:
                        raise Conflict(
                            f"the base of table {handles.name} has a column {column.name!r} of type "
                            f"{_type_in(log, column.name)} already: add it with that type"
                        )
                    raise Conflict(f"table {handles.name} has a column {present[column.name.lower()]!r} already")
                numbers = {"seq": handles.changes.seq} if extra else {"watermark": handles.base.watermark}
                log.add_column(column, {**info, **numbers}, intent)

            log.refresh()
            swap_with_retries(runtime, log, f"adding {column.name} to {handles.name}", attempt)
            log.make_durable()
            runtime.store.step("add_column.committed")


def _type_in(log: DeltaLog, name: str) -> pa.DataType | None:
    columns = plain_types(log.columns())
    return columns.field(name).type if name in columns.names else None
