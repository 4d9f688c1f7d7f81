"""Deletes that say when: keys with a place in the order of their table, by the columns that tell what is newer.

On a table with one such column a place is a value of it. With several it is a value for each, in their order (a tuple,
a list) or by their names (a mapping). No value is a list or a mapping itself, so that one place for all keys and a list
with one for each cannot be mistaken for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lithify.core.rows import as_arrow, conform
from lithify.core.schema import TableSchema, nullable
from lithify.errors import InvalidRequest


def deletes_at(table: str, keys: pa.Table, at: Any, schema: TableSchema) -> pa.Table:
    """Keys and their places, of `at`: one for all of them, or one for each."""
    if not schema.order_by:
        raise InvalidRequest(
            f"table {table} has no order_by, so a delete has no place in an order: leave `at` out, or create the table "
            "with order_by"
        )
    wanted = nullable(schema.select(schema.order_columns))
    places = places_in(at, schema.order_columns)
    if isinstance(places, list):
        check_count(places, keys.num_rows)
    else:
        places = [places] * keys.num_rows
    found = conform(as_arrow(places, wanted), wanted)
    for name in schema.order_columns:
        if found.column(name).null_count:
            raise InvalidRequest(
                f"`at` is null for some keys: give each a value of {name!r}, or delete those without `at`, whatever "
                "their rows say"
            )
        keys = keys.append_column(schema.columns.field(name), found.column(name))
    return keys


def places_in(at: Any, order: Sequence[str]) -> dict[str, Any] | list[dict[str, Any]]:
    """One place for all keys, or a list with one for each, by the names of the order columns."""
    if isinstance(at, pa.Scalar):
        at = at.as_py()
    elif hasattr(at, "to_pylist"):
        at = at.to_pylist()
    if len(order) > 1:
        if hasattr(at, "__arrow_c_stream__") and hasattr(at, "columns"):
            at = pa.table(at).to_pylist()  # a frame, which Python walks through by its columns
        if isinstance(at, Mapping) or not _is_many(at):
            return _place(at, order)
        places = list(at)
        if any(isinstance(each, Mapping) or _is_many(each) for each in places):
            return [_place(each, order) for each in places]
        return _place(places, order)
    (name,) = order
    if isinstance(at, Mapping):
        raise InvalidRequest(f"`at` is a value of {name!r}, or a list with one for each key, not a mapping")
    return [{name: value} for value in at] if _is_many(at) else {name: at}


def check_count(at: Sequence[Any], count: int) -> None:
    if len(at) != count:
        raise InvalidRequest(
            f"`at` has {len(at):,} values for {count:,} keys: give one value for all of them, or one for each"
        )


def _place(given: Any, order: Sequence[str]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        if set(given) == set(order):
            return {name: given[name] for name in order}
        said = f"`at` has {', '.join(map(str, given)) or 'nothing'}"
    elif _is_many(given):
        if len(values := list(given)) == len(order):
            return dict(zip(order, values, strict=True))
        said = f"`at` has {len(values):,} values"
    else:
        said = "`at` is a single value"
    raise InvalidRequest(
        f"{said}, and the table is ordered by {len(order)} columns: give a value for each of {', '.join(order)}, as a "
        "tuple in this order or by their names, or a list with such a one for each key"
    )


def _is_many(at: Any) -> bool:
    return isinstance(at, Iterable) and not isinstance(at, str | bytes | Mapping)
