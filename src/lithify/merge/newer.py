"""What is newer: places in the order of a key, by the columns of order_by in turn.

Two places compare by the first column, where that is equal by the second, and so on; null is below every value, and
equal to null. Places that are equal in all columns are told apart by arrival, which is not decided here.

In SQL one column is compared as it is. Several become a number first (`ranked_sql`): engines do not agree on whether
structs have a maximum, and a number has one in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.schema import TableSchema

Quote = Callable[[str], str]
_RANK = "_lithify_place"


def ascending(places: pa.Table) -> np.ndarray:
    """The lines of `places` from the lowest to the highest, of equal ones in their order."""
    line = "_lithify_line"
    keys = [(name, "ascending", "at_start") for name in places.column_names]
    lines = places.append_column(line, pa.array(np.arange(places.num_rows)))
    return np.asarray(pc.sort_indices(lines, sort_keys=[*keys, (line, "ascending")]).to_numpy(), np.int64)


def ranks(places: pa.Table) -> np.ndarray:
    """A number for each line, from 1 on: higher for a higher place, the same for equal ones."""
    order = ascending(places)
    differs = np.zeros(len(order), np.int64)
    differs[:1] = 1
    for column in places.columns:
        ordered = column.take(pa.array(order)).combine_chunks()
        differs[1:] |= ~_same(ordered.slice(0, max(len(ordered) - 1, 0)), ordered.slice(1))
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(differs)
    return found


def older(places: Sequence[pa.Array], others: Sequence[pa.Array]) -> np.ndarray:
    """For each line whether the one place is below the other. One array per order column."""
    count = len(places[0])
    below, same = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    for place, other in zip(places, others, strict=True):
        less = pc.fill_null(pc.less(place, other), False)
        below |= same & _flags(pc.or_(less, pc.and_(pc.is_null(place), pc.is_valid(other))))
        same &= _same(place, other)
    return below


def _same(left: pa.Array, right: pa.Array) -> np.ndarray:
    equal = pc.fill_null(pc.equal(left, right), False)
    return _flags(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))))


def _flags(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    flags = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.asarray(flags.to_numpy(zero_copy_only=False), np.bool_)


def older_sql(places: Sequence[str], others: Sequence[str]) -> str:
    """The same as an expression that is never null."""
    place, other = places[0], others[0]
    below = f"({other} IS NOT NULL AND ({place} IS NULL OR {place} < {other}))"
    if len(places) == 1:
        return below
    rest = older_sql(places[1:], others[1:])
    return f"({below} OR (({place} IS NOT DISTINCT FROM {other}) AND {rest}))"


def newest_first_sql(schema: TableSchema, q: Quote) -> list[str]:
    """For ORDER BY."""
    return [f"{q(name)} DESC NULLS LAST" for name in schema.order_columns]


def ranked_sql(schema: TableSchema, lines: str, q: Quote) -> tuple[str, str]:
    """Lines of a table with order_by, and what in them says how new each is among those of its key: one expression,
    nulls lowest.
    """
    if len(schema.order_columns) == 1:
        return lines, q(schema.order_columns[0])
    by = ", ".join(q(name) for name in schema.key)
    order = ", ".join(f"{q(name)} ASC NULLS FIRST" for name in schema.order_columns)
    rank = f"dense_rank() OVER (PARTITION BY {by} ORDER BY {order}) AS {_RANK}"
    return f"(SELECT *, {rank} FROM {lines}) n", _RANK
