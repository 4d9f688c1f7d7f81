"""Rows that lack a column of a table with a key.

An upsert replaces the row that is there as a whole, so a column that it does not give would become null, whatever stood
there. Nobody can tell that from a writer who does not know the column, or misspelt it in a default. So such rows are
refused, unless who writes says `missing="null"`, or the table does (its option `missing_columns`). `update` leaves what
is there.

Of a frame its columns are compared by name, once. Of rows that come one by one (dicts, JSON) each gives the columns
that it names: they travel as a text beside the rows (`GIVEN`), and each distinct text is looked at once. Columns of
the key are not asked for here, nor those with a merge rule that passes over null, nor those of an order group of which
a row says nothing: nothing is lost there. Nor are those with a default, which says what is meant (`column_defaults`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.names import GIVEN, names_given
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest
from lithify.options.table_options import MissingColumns

_LAST = "last"


def refuses_missing(schema: TableSchema, missing: Any = None) -> bool:
    """Whether rows that lack a column are refused. `missing`: what the writer says; None: as the table says."""
    if missing is not None and missing not in get_args(MissingColumns):
        raise InvalidRequest(
            f"missing says what becomes of columns that rows lack: 'null' (write null there) or 'refuse', not "
            f"{missing!r}"
        )
    return schema.keyed and (missing or schema.missing_columns) == "refuse"


def needed_columns(schema: TableSchema, *, sets: bool = False, given: Collection[str] = ()) -> tuple[str, ...]:
    """Columns that would be lost where rows lack them. `sets`: rows win over what is there, whatever rules say. Of an
    order group, those that give its order column (`given`) need all columns, others none.
    """
    if sets:
        return tuple(name for name in schema.names if name not in schema.key and name not in schema.column_defaults)
    passing = {*schema.column_defaults} | {name for name, rule in schema.merge_rules.items() if rule != _LAST}
    for order, names in schema.order_groups.items():
        passing.update((order, *names) if order not in given else ())
    return tuple(name for name in schema.names if name not in schema.key and name not in passing)


def check_frame(names: Collection[str], schema: TableSchema, *, sets: bool = False) -> None:
    """Refuse a frame without a column that is needed."""
    if lacking := [name for name in needed_columns(schema, sets=sets, given=names) if name not in names]:
        raise refused(lacking)


def check_given(texts: pa.ChunkedArray, schema: TableSchema, *, sets: bool = False) -> None:
    """Refuse rows of which one does not name a column that is needed. `texts`: what each names (`GIVEN`)."""
    lacking, where = dict[str, None](), None
    for text in texts.unique().to_pylist():
        there = set(names_given(text))
        if not_named := [name for name in needed_columns(schema, sets=sets, given=there) if name not in there]:
            lacking |= dict.fromkeys(not_named)
            row = pc.index(texts, pa.scalar(text, texts.type)).as_py()
            where = row if where is None else min(row, where)
    if lacking:
        raise refused([name for name in schema.names if name in lacking], where)


def check_texts(texts: pa.ChunkedArray) -> None:
    """That they say what each row names."""
    if not pa.types.is_string(texts.type) or texts.null_count:
        raise InvalidRequest(f"column {GIVEN!r} lists the columns that a row gives, as text: leave it out to give all")


def with_given(columns: pa.Schema) -> pa.Schema:
    """What to read of rows: columns, and which of them each names."""
    return columns.append(pa.field(GIVEN, pa.string()))


def refused(lacking: Sequence[str], row: int | None = None) -> InvalidRequest:
    named = ", ".join(map(repr, lacking))
    columns, them = ("the column", "it") if len(lacking) == 1 else ("the columns", "them")
    first = "" if row is None else f" (the first one is row {row})"
    return InvalidRequest(
        f"the rows lack {columns} {named}{first}, and would set {them} to null whatever is there; nothing was written: "
        f"give {them} in every row, say missing='null' (--missing null) to write null, or update, which leaves what is "
        "there"
    )
