"""Deletes that say when: keys with a value of the column that tells what is newer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lithify.core.rows import as_arrow, conform
from lithify.core.schema import TableSchema, nullable
from lithify.errors import InvalidRequest


def deletes_at(table: str, keys: pa.Table, at: Any, schema: TableSchema) -> pa.Table:
    """Keys and order values, of `at`: one value for all of them, or one for each."""
    order_by = schema.order_by
    if order_by is None:
        raise InvalidRequest(
            f"table {table} has no order_by, so a delete has no place in an order: leave `at` out, or create the table "
            "with order_by"
        )
    wanted = nullable(schema.select([order_by]))
    rows = as_arrow([{order_by: value} for value in _values(at, keys.num_rows, order_by)], wanted)
    column = conform(rows, wanted).column(0)
    if column.null_count:
        raise InvalidRequest(
            f"`at` is null for some keys: give each a value of {order_by!r}, or delete those without `at`, whatever "
            "their rows say"
        )
    return keys.append_column(schema.columns.field(order_by), column)


def check_count(at: Sequence[Any], count: int) -> None:
    if len(at) != count:
        raise InvalidRequest(
            f"`at` has {len(at):,} values for {count:,} keys: give one value for all of them, or one for each"
        )


def _values(at: Any, count: int, order_by: str) -> Sequence[Any]:
    if isinstance(at, Mapping):
        raise InvalidRequest(f"`at` is a value of {order_by!r}, or a list with one for each key, not a mapping")
    if isinstance(at, pa.Scalar):
        at = at.as_py()
    elif hasattr(at, "to_pylist"):
        at = at.to_pylist()
    if isinstance(at, str | bytes) or not isinstance(at, Iterable):
        return [at] * count
    values = list(at)
    check_count(values, count)
    return values
