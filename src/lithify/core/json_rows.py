"""Rows of JSON, or of Python, as columns of the table's own types, and back: one codec for every door.

A row is an object of column names to values, each read by the type of its column (`column_types`). A JSON number in a
decimal column is read a second time, with all its digits, because a double would round them. What does not fit is a
`RowMisfit` with its row, column and the expected type. The value itself is left to whoever may show it: it may be
somebody's secret, and answers and logs are read by others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lithify.core.column_types import Misfit, NeedsDigits, type_of
from lithify.core.names import GIVEN, RESERVED_PREFIX, given_text
from lithify.core.plain_column_types import Boolean
from lithify.core.type_text import type_name
from lithify.errors import InvalidRequest, LimitExceeded

VALUES_MAX = 4_000_000
NAME_SHOWN_MAX = 60


@dataclass
class RowMisfit(Exception):
    """The row at `index` is none of the table's: why, and the path of the value that is to blame and its column."""

    index: int
    column: str | None
    why: str
    top: str | None = None

    def said(self, name: str) -> str:
        return f"{name}: {self.why}" if self.column is None else f"{name}, column {self.column!r}: {self.why}"


@dataclass(frozen=True)
class Body:
    """Rows as they came, how to call one of them in an error, and how to read them again with exact numbers."""

    rows: Sequence[Any]
    name_of: Callable[[int], str]
    exact: Callable[[], Sequence[Any]]


def check_values(data: bytes) -> None:
    """Refuse a body whose many small values would take many times its size in memory."""
    if sum(data.count(mark) for mark in (b",", b"{", b"[", b"\n")) > VALUES_MAX:
        raise LimitExceeded(
            f"the body holds more than {VALUES_MAX:,} JSON values: send fewer rows at a time, or send Arrow",
            limit="size",
        )


def rows_of_document(document: Any, data: bytes) -> Body:
    """JSON: an array of objects, one object, or {"rows": [...]}."""
    return Body(_listed(document), lambda index: f"row {index}", lambda: _listed(exact(data)))


def table_of(body: Body, columns: pa.Schema) -> pa.Table:
    """Columns that no row has are left out: the table decides what becomes of them."""
    try:
        return rows_as_columns(body.rows, columns, body.exact)
    except RowMisfit as misfit:
        raise InvalidRequest(misfit.said(body.name_of(misfit.index))) from None


def rows_as_columns(rows: Sequence[Any], columns: pa.Schema, exact: Callable[[], Sequence[Any]]) -> pa.Table:
    """Raises `RowMisfit`. `exact`: the same rows with all digits of their numbers."""
    try:
        return columns_of(rows, columns)
    except NeedsDigits:
        return columns_of(exact(), columns)


def _listed(document: Any) -> Sequence[Any]:
    if isinstance(document, dict) and set(document) == {"rows"} and isinstance(document["rows"], list):
        return document["rows"]
    return document if isinstance(document, list) else [document]


def exact(data: bytes) -> Any:
    """Parsed again, numbers with a point as decimals."""
    try:
        return json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise InvalidRequest("a number in the body has too many digits: write it as text") from None


def columns_of(rows: Sequence[Any], columns: pa.Schema, objects: bool = False) -> pa.Table:
    """The columns that some row has. `objects`: rows and values may be Python's own. Raises RowMisfit, NeedsDigits.

    If `GIVEN` is among the columns, it tells which of them each row names.
    """
    if not rows:
        raise InvalidRequest("the batch is empty: give at least one row")
    names = [name for name in columns.names if name != GIVEN]
    known = set(names)
    alike = _columns_alike(rows)
    present: set[str] = set(alike)
    for index, row in enumerate(rows if not alike or not present <= known else ()):
        if not isinstance(row, dict) and not (objects and isinstance(row, Mapping)):
            what = f"is {type(row).__name__}, not a dict" if objects else "no JSON object"
            raise RowMisfit(index, None, f"{what} of column names to values")
        if not row.keys() <= known:
            name = next(name for name in row if name not in known)
            shown = name[:NAME_SHOWN_MAX] if isinstance(name, str) else name
            raise RowMisfit(index, None, f"column {shown!r} is not in the table: it has {', '.join(names)}")
        present.update(row)
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        if column.name not in present:
            continue
        try:
            values = alike[column.name] if alike else [row.get(column.name) for row in rows]
            arrays[column.name] = type_of(column.type).from_json(values, objects)
        except Misfit as misfit:
            why = f"the value does not fit {type_name(column.type)}: it takes {misfit.wanted}"
            raise RowMisfit(misfit.index, column.name + misfit.path, why, column.name) from None
    if not arrays:
        raise InvalidRequest(f"the rows have no column: the table has {', '.join(names)}")
    if GIVEN in columns.names:
        arrays[GIVEN] = _given(rows, names)
    return pa.table(arrays)


def _columns_alike(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of each column, where all rows name the same ones in the same order, as those of one writer do."""
    if set(map(type, rows)) != {dict}:
        return {}
    names = tuple(rows[0])
    if not all(map(names.__eq__, map(tuple, rows))):
        return {}
    return dict(zip(names, map(list, zip(*map(dict.values, rows), strict=True)), strict=True))


def _given(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pa.Array:
    own = [name for name in names if not name.startswith(RESERVED_PREFIX)]  # what an event does is no column of its row
    if min(map(len, rows)) == len(names):
        return pa.repeat(pa.scalar(given_text(own), pa.string()), len(rows))
    texts: dict[tuple[str, ...], str] = {}  # rows of one writer name their columns in one order
    found = []
    for row in rows:
        said = tuple(row)
        if said not in texts:
            texts[said] = given_text(name for name in own if name in row)
        found.append(texts[said])
    return pa.array(found, pa.string())


def typed(text: str, kind: pa.DataType) -> Any:
    """A value as somebody types it: as JSON spells it, without quotes."""
    known = type_of(kind)
    if known.is_text:
        return text
    word = text.strip()
    return {"true": True, "false": False}.get(word.lower(), word) if isinstance(known, Boolean) else word


def value_of(value: Any, kind: pa.DataType) -> Any:
    """One value that `to_json` has spelled, as Python has it."""
    return type_of(kind).from_json([value])[0].as_py()


def records(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Each row as an object of values that JSON has."""
    names = rows.schema.names
    columns = [
        type_of(column.type).to_json(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        for column in rows.columns
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
