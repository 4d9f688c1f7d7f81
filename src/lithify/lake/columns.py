"""Columns of a table that change, through whichever door it was asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.column_changes import ColumnChange, with_path
from lithify.core.names import quoted
from lithify.core.schema import normalise
from lithify.core.type_text import type_name
from lithify.errors import Conflict, LithifyError
from lithify.files.read_proof import look_again
from lithify.maintenance.change_columns import ColumnJob, require_column
from lithify.write.add_column import add_column as add_null_column
from lithify.write.add_column import is_dropped, set_default

if TYPE_CHECKING:
    from lithify.lake.internals import TableInternals

logger = logging.getLogger(__name__)


def change_column(table: TableInternals, change: ColumnChange) -> int:
    """The seq from which on it counts."""
    change = with_path(change, table.handles.schema().columns)
    if change.kind == "require":
        return require_column(table.handles, change.column, lambda: look_again(lambda: _nulls(table, change.column)))
    if change.kind == "default":
        return set_default(table.handles, change)
    with table.maintaining() as (handles, reader):
        seq = ColumnJob(handles, reader).run(change)
    try:
        table.handles.schema()  # other handles of this process see it at once
    except LithifyError as error:
        logger.warning("the columns of %s were changed, and are looked at with its next use: %s", table.name, error)
    return seq


def foreseen_columns(table: TableInternals, change: ColumnChange) -> tuple[pa.Schema, int, int]:
    """The columns after a change, and how many files and bytes of base are written anew for it. Nothing is done."""
    handles = table.handles
    snapshot = handles.snapshot()
    change = with_path(change, snapshot.schema.columns)
    after = ColumnJob(handles, table.reader).foreseen(change)
    rewrites = change.rewrites and (change.kind != "add" or is_dropped(handles, change.column))
    files = snapshot.base if rewrites else ()
    return after.columns, len(files), sum(file.size_bytes for file in files)


def add_column(table: TableInternals, column: pa.Field, default: Any = None) -> None:
    """One that is null in all rows. Where files still hold a column of this name that was dropped, they are written
    anew first, so that its values do not come back. `default`: as JSON spells it.
    """
    kind = type_name(normalise(column.type, column.name))
    change = with_path(ColumnChange("add", column.name, kind, default=default), table.handles.schema().columns)
    if change.of_field:
        change_column(table, change)
        return
    try:
        add_null_column(table.handles, column, default)
    except Conflict:
        if not is_dropped(table.handles, column.name) or column.name in table.handles.changes.schema.names:
            raise
        change_column(table, change)


def _nulls(table: TableInternals, column: str) -> tuple[int, int]:
    """How many rows are null in a column, and as of which seq."""
    opened = table.opened
    snapshot = opened.handles.snapshot()
    found = table.runtime.serving.count(opened.planned(snapshot), f"{quoted(column)} is null")
    return found, snapshot.seq
