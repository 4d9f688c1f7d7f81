"""What Spark pushes down to a data source, as a predicate that pruning understands.

Spark evaluates every filter again after the scan, so a predicate may promise less than its filter, and never more:
filters are ANDed, and one that is not understood drops out. Spark has cast each literal to its column's type already.
NOT is pushed down to the comparison; in Spark's order of values, NaN included, the opposite of < is >=.

Only whole columns of flat types are understood: the parts of a struct have no statistics of their own, and text that
ends with or contains something has no range.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark

from lithify.core.predicates import UNKNOWN, Compare, In, IsNull, Op, Predicate, Prefix, both, either

_COMPARISONS: dict[type[spark.Filter], Op] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_OPPOSITE: dict[Op, Op] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_LITERALS = (bool, int, float, Decimal, str, bytes, date, datetime)
# PySpark hands decimals over through arithmetic that keeps 28 digits: with so many, the last may have been rounded.
DECIMAL_DIGITS_LESS_THAN = 28


def predicate_of(filters: Sequence[spark.Filter], schema: pa.Schema) -> Predicate:
    """All filters together, on a table with these columns."""
    return both(_one(each, schema, negated=False) for each in filters)


def _one(given: spark.Filter, schema: pa.Schema, negated: bool) -> Predicate:
    if isinstance(given, spark.Not):
        return _one(given.child, schema, not negated)
    column = _column(getattr(given, "attribute", ()), schema)
    if column is None:
        return UNKNOWN
    match given:
        case spark.IsNull():
            return IsNull(column, negated)
        case spark.IsNotNull():
            return IsNull(column, not negated)
        case spark.EqualNullSafe(value=None):
            return IsNull(column, negated)
        case spark.EqualNullSafe(value=value) if _is_literal(value):
            # NULL differs from every value here.
            return either([Compare(column, "<>", value), IsNull(column)]) if negated else Compare(column, "=", value)
        case spark.In(value=values) if values and all(each is None or _is_literal(each) for each in values):
            return In(column, tuple(values), negated)
        case spark.StringStartsWith(value=str(prefix)) if not negated:
            return Prefix(column, prefix)
    op = _COMPARISONS.get(type(given))
    value = getattr(given, "value", None)
    if op is None or not _is_literal(value):
        return UNKNOWN
    return Compare(column, _OPPOSITE[op] if negated else op, value)


def _column(path: Any, schema: pa.Schema) -> str | None:
    if len(path) != 1 or schema.get_field_index(path[0]) < 0 or pa.types.is_nested(schema.field(path[0]).type):
        return None
    return str(path[0])


def _is_literal(value: Any) -> bool:
    if isinstance(value, Decimal) and len(value.as_tuple().digits) >= DECIMAL_DIGITS_LESS_THAN:
        return False
    return type(value) in _LITERALS
