"""From columns that a query answers with to rows of a table, as an assignment in SQL means it.

What fits is what fits every other way in (`core/rows.py: conform`): no text becomes a number, no digit is lost. On top
of that go the conversions that a written constant needs: an integer is a decimal of any precision that holds it, a text
may be a moment, and a moment with no zone is one of UTC, as everywhere in SQL (docs/sql.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, type_of
from lithify.core.partial_rows import partial_rows_of, patch_columns
from lithify.core.rows import check_rows, conform, fitted
from lithify.core.schema import TableSchema, nullable
from lithify.core.type_text import type_name
from lithify.errors import InvalidRequest
from lithify.sql.statements.model import Constant
from lithify.sql.statements.value_rows import places_of


def assigned(
    rows: pa.Table,
    columns: Sequence[str],
    schema: TableSchema,
    defaults: Collection[str] = (),
    *,
    marked: bool = False,
) -> pa.Table:
    """Rows of the table, of which `columns` come in this order; the others have their default, else they are null. So
    have `defaults`, whatever comes for them. `marked`: a last column says where else DEFAULT was written.
    """
    arrays = _arrays(rows.select(list(range(len(columns)))), columns, schema, defaults)
    if marked:
        arrays = _with_defaults(arrays, rows.column(len(columns)), columns, schema)
    table = fitted(pa.table(arrays, names=list(columns)), schema)
    check_rows(table, schema)
    return table


def lines_assigned(
    rows: pa.Table, columns: Sequence[str], schema: TableSchema, defaults: Collection[str] = ()
) -> pa.Table:
    """Lines that give these columns alone, the key among them: the others stay as they are."""
    arrays = _arrays(rows, columns, schema, defaults)
    parts = tuple(name for name in schema.partition_by if name in columns)
    some = replace(schema, columns=schema.select(columns), partition_by=parts)
    table = conform(pa.table(arrays, names=list(columns)), some.columns)
    check_rows(table, some)
    return partial_rows_of(table, schema) if table.num_rows else patch_columns(schema).empty_table()


def _arrays(
    rows: pa.Table, columns: Sequence[str], schema: TableSchema, defaults: Collection[str]
) -> list[pa.ChunkedArray]:
    return [
        pa.chunked_array([pa.repeat(_default(name, schema), rows.num_rows)])
        if name in defaults
        else _converted(values, schema.columns.field(name))
        for values, name in zip(rows.columns, columns, strict=True)
    ]


def _with_defaults(
    arrays: Sequence[pa.ChunkedArray], marks: pa.ChunkedArray, columns: Sequence[str], schema: TableSchema
) -> list[pa.ChunkedArray]:
    """With what each row has for DEFAULT; each distinct mark is looked at once."""
    places = {mark: places_of(mark) for mark in marks.unique().to_pylist()}
    found = []
    for place, (values, name) in enumerate(zip(arrays, columns, strict=True)):
        marked = [mark for mark in places if place in places[mark]]
        if marked:
            given = conform(pa.table([values], names=[name]), nullable(schema.select([name]))).column(name)
            values = pc.if_else(pc.is_in(marks, pa.array(marked, marks.type)), _default(name, schema), given)
        found.append(values)
    return found


def _default(name: str, schema: TableSchema) -> pa.Scalar:
    return schema.default_values.get(name, pa.scalar(None, schema.columns.field(name).type))


def constant_of(written: Constant, column: pa.Field) -> Any:
    """A constant as a value of a column, by the same rules; what does not fit comes back as it is, to be refused."""
    match written.kind:
        case "bytes":
            return bytes.fromhex(written.text)
        case "bool":
            return written.text == "true"
        case "number":
            try:
                return int(written.text) if written.text.lstrip("-").isdecimal() else Decimal(written.text)
            except (ValueError, ArithmeticError):
                raise InvalidRequest(
                    f"column {column.name!r} is {type_name(column.type)}: {written.text[:60]} has too many digits"
                ) from None
    if type_of(column.type).family in (Family.INTEGER, Family.FLOAT, Family.DECIMAL, Family.BINARY):
        raise InvalidRequest(
            f"column {column.name!r} is {type_name(column.type)}, and '{written.text[:60]}' is text: write it without "
            "quotes, or bytes as X'00ff'"
        )
    found = _converted(pa.chunked_array([pa.array([written.text])]), column)
    return found[0].as_py()


def keys_assigned(rows: pa.Table, columns: Sequence[str], schema: TableSchema) -> pa.Table:
    """The same of some columns alone."""
    wanted = schema.select(columns)
    return conform(rows.rename_columns(list(columns)), wanted)


def check_columns(columns: Sequence[str], schema: TableSchema, table: str) -> None:
    """Columns that are written to: there, and each once."""
    for name in columns:
        if name not in schema.names:
            near = next((known for known in schema.names if known.lower() == name.lower()), None)
            hint = f'did you mean "{near}", in quotes?' if near else f"it has {', '.join(schema.names)}"
            raise InvalidRequest(f"column {name!r} is not in table {table}: {hint}")
        if columns.count(name) > 1:
            raise InvalidRequest(f"column {name!r} is written to twice in one statement: once is enough")


def _converted(values: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    kind = values.type
    if kind == column.type or pa.types.is_null(kind):
        return values
    given, wanted = type_of(kind).family, type_of(column.type).family
    try:
        if given is Family.INTEGER and wanted is Family.DECIMAL:
            return values.cast(pa.decimal128(38, column.type.scale))
        if wanted is Family.TIMESTAMP and given is Family.TEXT:
            return _moments(values, column.type)
        if given is wanted is Family.TIMESTAMP and (kind.tz is None) != (column.type.tz is None):
            return values.cast(pa.timestamp(kind.unit, column.type.tz))
        if given is Family.DATE and wanted is Family.TIMESTAMP:
            return values.cast(pa.timestamp("us")).cast(column.type)
    except (pa.ArrowException, ValueError):
        return values  # what is wrong with them is said by whoever takes them
    return values


def _moments(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Of texts with a zone or without one."""
    try:
        moments = texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        moments = texts.cast(pa.timestamp("us", "UTC"))
    return moments.cast(kind) if moments.type.tz == kind.tz else moments.cast(pa.timestamp("us", kind.tz))


def first_double(rows: pa.Table, by: Sequence[str]) -> pa.Table | None:
    """One key that stands in more than one row, or None."""
    if rows.num_rows < 2:
        return None
    if len(by) == 1 and pc.count_distinct(rows.column(by[0]), mode="all").as_py() == rows.num_rows:
        return None
    counted = rows.select(list(by)).append_column("_lithify_one", pa.array([1] * rows.num_rows, pa.int8()))
    grouped = counted.group_by(list(by)).aggregate([("_lithify_one", "count")])
    twice = grouped.filter(pc.greater(grouped.column("_lithify_one_count"), 1))
    return twice.select(list(by)).slice(0, 1) if twice.num_rows else None


def shown_key(key: pa.Table) -> str:
    """A key as messages name it."""
    row = key.slice(0, 1).to_pylist()[0]
    said = ", ".join(f"{name} = {value!r}" for name, value in row.items())
    return said if len(said) <= 200 else said[:197] + "..."
