"""Columns that rows bring and a table does not have yet: `evolve=True` adds them before the rows are written. The rows
have to fit the table as it will be, or no column is added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lithify.core.names import GIVEN, check_column_name
from lithify.core.rows import check_convertible
from lithify.core.schema import TableSchema, normalise
from lithify.errors import InvalidRequest


def new_columns(data: Any, schema: TableSchema) -> list[pa.Field]:
    """With the types that the data has, or that its values call for."""
    return _told(_columns(data, {*schema.names, GIVEN}))


def columns_besides(rows: Sequence[Mapping[str, Any]], known: Collection[str]) -> list[pa.Field]:
    """Of rows, one by one, the columns that are not known."""
    return _told(_columns(rows, set(known)))


def _told(found: list[pa.Field]) -> list[pa.Field]:
    for column in found:
        if pa.types.is_null(column.type):
            raise untold(column.name)
    return [pa.field(column.name, normalise(column.type, column.name)) for column in found]


def untold(column: str) -> InvalidRequest:
    return InvalidRequest(
        f"column {column!r} is new, and null in all rows: nothing tells its type; add it with add_column"
    )


def evolved(
    data: Any, schema: TableSchema, fit: Callable[[Any, TableSchema], object]
) -> tuple[list[pa.Field], TableSchema]:
    """The new columns, and the table with them, which the rows fit. `fit` refuses rows that do not. Of what can be read
    only once the types are looked at, and its values when they are written.
    """
    columns = new_columns(data, schema)
    there = {name.lower(): name for name in schema.names}
    for column in columns:
        check_column_name(column.name)
        if (other := there.setdefault(column.name.lower(), column.name)) != column.name:
            raise InvalidRequest(f"columns {other!r} and {column.name!r} differ only in case: rename one")
        schema = schema.with_column(column)
    if columns and isinstance(data, pa.RecordBatchReader):
        check_convertible(data.schema, schema.columns, schema.column_defaults)
    elif columns:
        fit(data, schema)
    return columns, schema


def _columns(data: Any, known: set[str]) -> list[pa.Field]:
    if isinstance(data, Mapping):
        data = [data]
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        data = pa.table(data)  # polars, pandas and others, whose columns stay where they are
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return [column for column in data.schema if column.name not in known]
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row if name not in known)
        return [pa.field(name, _type_of(name, [row.get(name) for row in data])) for name in names]
    raise InvalidRequest(
        f"evolve=True looks at the rows before they are written: give a list of dicts or a table, not a "
        f"{type(data).__name__}"
    )


def _type_of(name: Any, values: list[Any]) -> pa.DataType:
    if not isinstance(name, str):
        raise InvalidRequest(f"a column is told by its name, not by {name!r}")
    try:
        return pa.array(values).type
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidRequest(
            f"column {name!r} is new, and its values are of no one type ({error}): add it with add_column"
        ) from error
