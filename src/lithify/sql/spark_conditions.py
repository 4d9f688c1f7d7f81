"""Conditions in Spark's SQL, as far as both dialects agree on what they mean.

DataFusion serves as a mere parser: its plan is taken before any optimiser touches it, so no constant is folded and no
type is matched by its rules. Texts with anything that the dialects read differently (quotes in quotes, escapes,
comments, operators of one of them) are not understood at all. Constants count only beside columns where both agree:
integers with integers, text with text, a day with a date, numbers of at most 15 digits with decimals and floats. A time
without a zone is read in Spark's session time zone, which is not known here, so such a bound is moved by more than any
zone could move it. Everything else is UNKNOWN.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from datafusion import SessionContext
from datafusion.expr import Expr

from lithify.core.column_types import Family, type_of
from lithify.core.names import RESERVED_PREFIX, quoted
from lithify.core.predicates import UNKNOWN, Compare, Op, Predicate, both
from lithify.sql.expressions import NEVER, Part, predicate_of

# Offsets reach 18 hours in Spark; the rest is for what a change of the clocks may add.
ZONE_HOURS_MAX = 26
TEXT_CHARACTERS_MAX = 100_000

_FOREIGN = re.compile(r"[\"`\\#@$?;{}\[\]]|''|--|/\*|!(?!=)")
_LONG_NUMBER = re.compile(r"[\d.]*\.[\d.]*")
_EXPONENT = re.compile(r"\d[eE]|\.[eE]")
_NUMBER_DIGITS_MAX = 15
_WHOLE_DIGITS_MAX = 20  # of a 64-bit integer as a decimal
_DECIMAL_DIGITS_MAX = 38
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?))?Z?")
_TYPED = re.compile(r"CAST\(.* AS (Date32|Timestamp\(.*\))\)")
# No user can name it, so that no column is taken for a field of a column, or the other way round.
_ROWS = f"{RESERVED_PREFIX}rows_of_spark"

_log = logging.getLogger(__name__)


def spark_predicate(where: str, schema: pa.Schema) -> Predicate:
    """What is sure to hold for every row that Spark finds with this condition."""
    if len(where) > TEXT_CHARACTERS_MAX or _FOREIGN.search(where):
        return UNKNOWN
    ctx = SessionContext()
    ctx.register_record_batches(_ROWS, [[pa.RecordBatch.from_pylist([], schema=schema)]])
    try:
        plan = ctx.sql(f"SELECT 1 FROM {quoted(_ROWS)} WHERE ({where}\n)").logical_plan()
        inputs = plan.inputs()
        if len(inputs) != 1 or not inputs[0].display().startswith("Filter:"):
            return UNKNOWN
        return predicate_of(inputs[0].to_variant().predicate(), _Agreed(schema, where))
    except Exception as error:  # not SQL for DataFusion: Spark decides alone
        _log.debug("a condition for Spark is not understood: %s", error)
        return UNKNOWN


class _Agreed:
    def __init__(self, schema: pa.Schema, where: str) -> None:
        self._schema = schema
        digits = max((sum(c.isdigit() for c in found) for found in _LONG_NUMBER.findall(where)), default=0)
        self._plain_numbers = digits <= _NUMBER_DIGITS_MAX and not _EXPONENT.search(where)

    def column(self, expr: Expr) -> pa.Field | None:
        if expr.variant_name() != "Column":
            return None
        number = self._schema.get_field_index(expr.to_variant().name())
        return None if number < 0 else self._schema.field(number)

    def value(self, column: pa.Field, expr: Expr) -> tuple[Any] | None:
        kind = column.type
        text = _text_of(expr, "Date32")
        if text is not None:
            return _day(text) if type_of(kind).family is Family.DATE else None
        if expr.variant_name() != "Literal":
            return None
        scalar = expr.python_value()
        if not scalar.is_valid:
            return (None,)
        return self._plain(kind, scalar.as_py())

    def _plain(self, kind: pa.DataType, value: Any) -> tuple[Any] | None:
        match value, type_of(kind).family:
            case bool(), family:
                return (value,) if family is Family.BOOLEAN else None
            case int(), Family.INTEGER:
                # Beyond 64 bits Spark makes comparisons TRUE, also for NULL.
                return (value,) if value.bit_length() < 64 else None
            case ((int() | float() | Decimal()), _):
                return self._number(kind, value)
            case str(), Family.TEXT:
                return (value,)
            case str(), Family.DATE:
                return _day(value)
            case _:
                return None

    def _number(self, kind: pa.DataType, value: float | Decimal) -> tuple[Any] | None:
        if not self._plain_numbers:
            return None
        # The shortest text of a float of at most 15 digits is the very text that was parsed. An integer of so many
        # digits that it became a float has lost some of them.
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if len(exact.as_tuple().digits) > _NUMBER_DIGITS_MAX or exact.adjusted() >= _NUMBER_DIGITS_MAX:
            return None
        if type_of(kind).family is Family.DECIMAL:
            return (exact,) if _compared_exactly(kind, exact) else None
        if type_of(kind).family is not Family.FLOAT:
            return None
        number = float(exact)
        # Beside 32 bits only what they hold too, so that it does not matter which side is converted.
        return (number,) if kind.bit_width == 64 or float(np.float32(number)) == number else None

    def compare(self, column: pa.Field, op: Op, expr: Expr) -> Part:
        if type_of(column.type).family is Family.TIMESTAMP:
            return _about(column, op, expr)
        value = self.value(column, expr)
        if value is None:
            return UNKNOWN
        return NEVER if value[0] is None else Compare(column.name, op, value[0])


def _compared_exactly(kind: pa.DataType, number: Decimal) -> bool:
    """Spark converts both sides to one decimal type, and rounds digits away where 38 are not enough for all of them."""
    exponent = number.as_tuple().exponent
    decimals = -exponent if isinstance(exponent, int) else _DECIMAL_DIGITS_MAX
    whole = max(kind.precision - kind.scale, _WHOLE_DIGITS_MAX)
    return bool(whole + max(kind.scale, decimals) <= _DECIMAL_DIGITS_MAX)


def _text_of(expr: Expr, target: str) -> str | None:
    """The text of a typed literal such as DATE '2024-01-31'."""
    if expr.variant_name() != "Cast":
        return None
    inner = expr.to_variant().expr()
    found = _TYPED.fullmatch(expr.canonical_name())
    if found is None or not found[1].startswith(target) or inner.variant_name() != "Literal":
        return None
    value = inner.python_value().as_py()
    return value if isinstance(value, str) else None


def _day(text: str) -> tuple[dt.date] | None:
    try:
        return (dt.date.fromisoformat(text),) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _about(column: pa.Field, op: Op, expr: Expr) -> Part:
    """A comparison with a time, wide enough for any session time zone."""
    text = _text_of(expr, "Timestamp")
    if text is None and expr.variant_name() == "Literal":
        text = expr.python_value().as_py()
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None or op == "<>":
        return UNKNOWN
    zone = dt.UTC if column.type.tz else None
    try:
        moment = dt.datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00:00'}").replace(tzinfo=zone)
        early, late = moment - dt.timedelta(hours=ZONE_HOURS_MAX), moment + dt.timedelta(hours=ZONE_HOURS_MAX)
    except (ValueError, OverflowError):
        return UNKNOWN
    after, before = Compare(column.name, ">=", early), Compare(column.name, "<=", late)
    return {"=": both([after, before]), ">": after, ">=": after, "<": before, "<=": before}[op]
