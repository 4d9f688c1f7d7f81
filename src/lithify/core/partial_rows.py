"""Rows that say some columns alone, from whatever a caller hands over.

A dict gives the columns that it names; of Arrow, pandas and polars every row gives every column of the frame. Null is a
value, absent is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.missing_columns import check_texts
from lithify.core.names import GIVEN, NTH, given_text, names_given
from lithify.core.rows import as_arrow, check_rows, conform
from lithify.core.schema import TableSchema, nullable
from lithify.errors import InvalidRequest

# What change files have of such lines besides the table's columns.
PATCH_FIELDS = (pa.field(GIVEN, pa.string()), pa.field(NTH, pa.int32()))


def patch_columns(schema: TableSchema) -> pa.Schema:
    """Columns of lines that give some of them: all of the table's, null where they are not given."""
    return nullable(schema.columns).append(pa.field(GIVEN, pa.string()))


def input_columns(columns: pa.Schema) -> pa.Schema:
    """What to read from a text or a stream: the columns of a table, and which of them each record names."""
    return nullable(columns).append(pa.field(GIVEN, pa.string()))


def partial_rows_of(data: Any, schema: TableSchema, besides: Collection[str] = ()) -> pa.Table:
    """Lines of an update, by `patch_columns`. Arrow that tells itself which columns a row gives (`GIVEN`) is believed
    as far as the columns are there. `besides`: what a row may name that is no column.
    """
    arrow = as_arrow(data, input_columns(schema.columns))
    if missing := [name for name in schema.key if name not in arrow.column_names]:
        lacking = ", ".join(map(repr, missing))
        raise InvalidRequest(f"the rows lack the key column {lacking}, which tells the row to update: give it in each")
    texts = arrow.column(GIVEN) if GIVEN in arrow.column_names else None
    if texts is not None:
        arrow = arrow.drop_columns([GIVEN])
    rows = conform(arrow, nullable(schema.columns))
    lines = rows.append_column(GIVEN, _given(texts, arrow, schema, besides))
    check_lines(lines, schema)
    return lines


def _given(texts: pa.ChunkedArray | None, rows: pa.Table, schema: TableSchema, besides: Collection[str]) -> pa.Array:
    """Which columns each row gives, the key left out: all of the frame, unless the row says so itself."""
    there = [name for name in schema.names if name in rows.column_names and name not in schema.key]
    if texts is None:
        return pa.repeat(pa.scalar(given_text(there), pa.string()), rows.num_rows)
    check_texts(texts)
    coded = texts.combine_chunks().dictionary_encode()
    said = [set(names_given(text)) for text in coded.dictionary.to_pylist()]
    for names in said:
        if unknown := sorted(names - {*there, *schema.key, *besides}):
            raise InvalidRequest(f"a row says that it gives the column {unknown[0][:60]!r}, which is not in the batch")
    plain = [given_text(name for name in there if name in names) for names in said]
    return pa.array(plain, pa.string()).take(coded.indices)


def insertable_rows_of(rows: pa.Table, schema: TableSchema, besides: Collection[str] = ()) -> pa.Table:
    """Lines of an update that makes rows of keys that are not there. `besides`: as `partial_rows_of` has it."""
    if not rows.num_rows:
        return patch_columns(schema).empty_table()
    lines = partial_rows_of(rows, schema, besides)
    check_insertable(lines, schema)
    return lines


def check_insertable(lines: pa.Table, schema: TableSchema) -> None:
    """A key that is not there would get a row without a value that it needs."""
    required = [f.name for f in schema.columns if not f.nullable and f.name not in schema.key]
    texts = [set(names_given(text)) for text in lines.column(GIVEN).unique().to_pylist()] if required else []
    if lacking := [name for name in required if any(name not in names for names in texts)]:
        raise InvalidRequest(
            "an update that inserts keys which are not there needs every column that may not be null: give "
            f"{', '.join(map(repr, lacking))}, or, in `update`, say missing='skip' or missing='refuse'"
        )


def partial_rows_of_newest(data: Any, known: TableSchema, newest: Callable[[], TableSchema]) -> pa.Table:
    """Lines for the schema that is known; what that refuses may fit a newer one. `data` is read once."""
    if isinstance(data, pa.RecordBatchReader):
        data = as_arrow(data, known.columns)
    elif isinstance(data, Iterator):
        data = list(data)
    try:
        return partial_rows_of(data, known)
    except InvalidRequest:
        now = newest()
        if now.columns == known.columns:
            raise
        return partial_rows_of(data, now)


def check_lines(lines: pa.Table, schema: TableSchema) -> None:
    """What may not be null, or not be left out."""
    check_rows(lines, schema)
    for text in lines.column(GIVEN).unique().to_pylist():
        names = names_given(text)
        if lacking := [name for name in schema.order_columns if name not in names]:
            raise InvalidRequest(
                f"an update lacks the column {lacking[0]!r}, which tells what is newer (order_by): give it in every row"
            )
        for order, members in schema.order_groups.items():
            lacking = [name for name in (order, *members) if name not in names]
            if lacking and (told := [name for name in (order, *members) if name in names]):
                raise InvalidRequest(
                    f"an update gives {told[0]!r} and lacks {lacking[0]!r}, which come from one line (order_groups): "
                    f"give all of {', '.join((order, *members))}, or none of them"
                )
        required = [name for name in names if not schema.columns.field(name).nullable]
        if required:
            here = lines.filter(pc.equal(lines.column(GIVEN), text))
            for name in required:
                if here.column(name).null_count:
                    raise InvalidRequest(
                        f"column {name!r} is null in an update, and it needs a value: give one, or leave it out"
                    )
