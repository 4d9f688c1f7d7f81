"""Which rows in memory can satisfy a predicate: `False` only with proof, as for row groups.

The query itself decides afterwards which rows do. So NaN is kept wherever an order is asked for, zeros of both signs
count as one, and a constant that does not fit the column exactly keeps everything. None stands for a mask that keeps
every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Family, type_of
from lithify.core.predicates import And, Compare, In, IsNull, Or, Predicate, Prefix

_TESTS: dict[str, Callable[[Any, Any], pa.ChunkedArray]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WITH_EQUAL = {"<": "<=", ">": ">="}


def rows_that_may_match(predicate: Predicate, rows: pa.Table) -> pa.ChunkedArray | None:
    """True, or false or null where the predicate is not TRUE. `rows` has every column of the predicate."""
    match predicate:
        case And(parts):
            known = [mask for part in parts if (mask := rows_that_may_match(part, rows)) is not None]
            return _joined(known, pc.and_kleene)
        case Or(parts):
            masks = [rows_that_may_match(part, rows) for part in parts]
            understood = [mask for mask in masks if mask is not None]
            return _joined(understood, pc.or_kleene) if len(understood) == len(masks) else None
        case Compare(column, op, value):
            return _compared(rows.column(column), op, value)
        case In(column, values, negated=False):
            return _among(rows.column(column), values)
        case IsNull(column, negated):
            return pc.is_valid(rows.column(column)) if negated else pc.is_null(rows.column(column))
        case Prefix(column, prefix):
            return _prefixed(rows.column(column), prefix)
        case _:
            return None


def _joined(masks: Sequence[pa.ChunkedArray], join: Callable[[Any, Any], Any]) -> pa.ChunkedArray | None:
    whole = None
    for mask in masks:
        whole = mask if whole is None else join(whole, mask)
    return whole


def _compared(column: pa.ChunkedArray, op: str, value: Any) -> pa.ChunkedArray | None:
    constant = _constant(column.type, value)
    if constant is None:
        return None
    if type_of(column.type).family is not Family.FLOAT:
        return _TESTS[op](column, constant)
    if op == "<>":
        return None
    column = column.cast(pa.float64())
    test = _TESTS[op if value else _WITH_EQUAL.get(op, op)](column, constant)
    return test if op == "=" else pc.or_kleene(test, pc.is_nan(column))


def _among(column: pa.ChunkedArray, values: Sequence[Any]) -> pa.ChunkedArray | None:
    # NULL is equal to nothing, not even to itself.
    given = [value for value in values if value is not None]
    known = [constant for value in given if (constant := _constant(column.type, value)) is not None]
    if len(known) < len(given) or type_of(column.type).family is Family.FLOAT:
        return None
    return pc.is_in(column, value_set=pa.array([constant.as_py() for constant in known], column.type))


def _prefixed(column: pa.ChunkedArray, prefix: str | bytes) -> pa.ChunkedArray | None:
    return pc.starts_with(column, pattern=prefix) if type_of(column.type).python is type(prefix) else None


def _constant(kind: pa.DataType, value: Any) -> pa.Scalar | None:
    """The very value in the column's type (floats: in 64 bits), or None if there is no such thing."""
    known, given = type_of(kind), type(value)
    if known.family is Family.FLOAT:
        fits = given in (int, float) and not math.isnan(value) and _is_double(value)
        return pa.scalar(float(value), pa.float64()) if fits else None
    decimal = known.family is Family.DECIMAL
    if given is not known.python and not (decimal and given is int):
        return None
    if known.family is Family.TIMESTAMP and (value.tzinfo is None) != (kind.tz is None):
        return None
    try:
        return pa.scalar(Decimal(value) if decimal else value, kind)
    except (pa.ArrowException, ValueError, OverflowError):  # out of range, or more digits than the column has
        return None


def _is_double(value: float) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False
