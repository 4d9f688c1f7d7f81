"""Types of plain values: truth, numbers, text, binary, dates and times.

A number with a point is no integer, also where nothing stands behind the point: beyond 2^53 a double has lost digits
already. A decimal takes every number whose digits it can hold, a float the nearest one that it has. A number is no
date: nobody can see what it counts, and from when. What has a zone is no time without one, and the other way round:
which moment a time without a zone is depends on who reads it.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import functools
import math
import operator
import re
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import NULL, TEXT, ColumnType, Family, Misfit, NeedsDigits, type_of
from lithify.core.json_out import NOT_FINITE, SAFE_INTEGER_MAX, jsonable

_DAY_US = 86_400_000_000
_HALF = re.compile("[\ud800-\udfff]")


class Boolean(ColumnType):
    family, python = Family.BOOLEAN, bool
    json = natives = frozenset({bool, NULL})
    wanted = "true or false"
    _WORDS: ClassVar[dict[str, str]] = dict.fromkeys(("true", "t", "yes", "y", "1"), "true") | dict.fromkeys(
        ("false", "f", "no", "n", "0"), "false"
    )

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        return pa.array(values, self.arrow)

    def trimmed(self, texts: pa.Array) -> pa.Array:
        found = super().trimmed(texts).to_pylist()
        return pa.array([None if t is None else self._WORDS.get(t.lower(), t) for t in found], TEXT)

    def ordered(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.int8())

    def to_json(self, array: pa.Array) -> list[Any]:
        return list(array.to_pylist())

    def literal(self, value: pa.Scalar) -> str:
        return str(value.as_py())


class _Number(ColumnType):
    def from_object(self, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, str):
            return str.__str__(value)
        return float(value) if isinstance(value, float) else operator.index(value)

    def trimmed(self, texts: pa.Array) -> pa.Array:
        return pc.replace_substring_regex(super().trimmed(texts), r"^\+(\d|\.)", r"\1")


class Integer(_Number):
    family, python = Family.INTEGER, int
    json = natives = frozenset({int, str, NULL})
    _DIGITS: ClassVar[re.Pattern[str]] = re.compile(r"[+-]?[0-9]{1,20}")

    @functools.cached_property
    def wanted(self) -> str:  # type: ignore[override]
        half = 1 << (self.arrow.bit_width - 1)
        return f"whole numbers without a point, from {-half} to {half - 1}"

    def from_object(self, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError
        return str.__str__(value) if isinstance(value, str) else operator.index(value)

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        if str in set(map(type, values)):
            for index, value in enumerate(values):
                if type(value) is str and not self._DIGITS.fullmatch(value):
                    raise Misfit(index, self.wanted)
            values = [int(value) if type(value) is str else value for value in values]
        try:
            return pa.array(values, self.arrow)
        except (pa.ArrowInvalid, OverflowError):
            half = 1 << (self.arrow.bit_width - 1)
            outside = (i for i, value in enumerate(values) if value is not None and not -half <= value < half)
            raise Misfit(next(outside), self.wanted) from None

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        found = super().parsed(texts)
        # Arrow would read 0x10.
        return None if pc.any(pc.match_substring_regex(texts, "[xX]")).as_py() else found

    def to_json(self, array: pa.Array) -> list[Any]:
        if array.type.bit_width > 32:
            ends = pc.min_max(array)
            low, high = ends["min"].as_py(), ends["max"].as_py()
            if low is not None and (low < -SAFE_INTEGER_MAX or high > SAFE_INTEGER_MAX):
                return list(map(jsonable, array.to_pylist()))
        return _numbers(array)

    def literal(self, value: pa.Scalar) -> str:
        return str(value.as_py())


class Floating(_Number):
    """A number is the nearest one that the type has, as everywhere; not what is beyond its range."""

    family, python = Family.FLOAT, float
    json = natives = frozenset({int, float, Decimal, str, NULL})
    wanted = 'numbers within its range, "NaN", "Infinity" or "-Infinity"'
    _WORDS: ClassVar[dict[str, float]] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        if not set(map(type, values)) <= {float, NULL}:
            values = [self._double(index, value) for index, value in enumerate(values)]
        doubles = pa.array(values, pa.float64())
        found = doubles.cast(self.arrow)
        if self.arrow != pa.float64() and not pc.is_inf(doubles).equals(pc.is_inf(found)):
            raise Misfit(pc.index(pc.not_equal(pc.is_inf(doubles), pc.is_inf(found)), True).as_py(), self.wanted)
        return found

    def _double(self, index: int, value: Any) -> float | None:
        if value is None or type(value) is float:
            return value
        if type(value) is str:
            number = self._WORDS.get(value)
        else:
            try:
                number = float(value)
            except OverflowError:
                number = None
            if number is not None and math.isinf(number):
                number = None
        if number is None:
            raise Misfit(index, self.wanted)
        return number

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        found = super().parsed(texts)
        if found is not None and pc.any(pc.is_inf(found)).as_py():
            written = pc.match_substring_regex(texts, "[iI][nN][fF]")
            if not pc.all(pc.equal(pc.is_inf(found), written)).as_py():
                return None
        return found

    @property
    def name(self) -> str:
        return {"float": "float32", "double": "float64", "halffloat": "float16"}[str(self.arrow)]

    def to_json(self, array: pa.Array) -> list[Any]:
        values = _numbers(array)
        return list(map(jsonable, values)) if pc.all(pc.is_finite(array)).as_py() is False else values

    def to_text(self, array: pa.Array) -> pa.Array:
        text = array.cast(TEXT)
        if pc.all(pc.is_finite(array)).as_py() is False:
            return pa.array([NOT_FINITE.get(value, value) for value in text.to_pylist()], TEXT)
        return text


class DecimalNumber(_Number):
    family, python = Family.DECIMAL, Decimal
    json = natives = frozenset({int, float, Decimal, str, NULL})
    _NUMBER: ClassVar[re.Pattern[str]] = re.compile(
        r"[+-]?([0-9]{1,80}(\.[0-9]{0,80})?|\.[0-9]{1,80})([eE][+-]?[0-9]{1,3})?"
    )

    @functools.cached_property
    def wanted(self) -> str:  # type: ignore[override]
        whole = self.arrow.precision - self.arrow.scale
        return f"numbers or text with at most {whole} digits before and {self.arrow.scale} after the point"

    @property
    def name(self) -> str:
        return f"decimal({self.arrow.precision},{self.arrow.scale})"

    @functools.cached_property
    def sql_name(self) -> str:  # type: ignore[override]
        return f"Decimal128({self.arrow.precision}, {self.arrow.scale})"

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        """A float of Python's has the digits that it is written with: 9.9 is 9.90, and 0.1 + 0.2 has too many."""
        kinds = set(map(type, values))
        if float in kinds and not objects:
            raise NeedsDigits
        if kinds <= {Decimal, NULL}:
            try:
                return pa.array(values, self.arrow)
            except pa.ArrowException:
                pass
        texts = [None if value is None else value if type(value) is str else str(value) for value in values]
        for index, text in enumerate(texts):
            if text is not None and not self._NUMBER.fullmatch(text):
                raise Misfit(index, self.wanted)
        return _cast(self, texts)

    def to_text(self, array: pa.Array) -> pa.Array:
        text = array.cast(TEXT)
        if self.arrow.scale > 6 and pc.any(pc.match_substring(text, "E")).as_py():
            # Very small values: plain digits instead of 1E-10.
            return pa.array([jsonable(value) for value in array.to_pylist()], TEXT)
        return text

    def literal(self, value: pa.Scalar) -> str:
        return f"arrow_cast('{value.as_py():f}', '{self.sql_name}')"  # with no exponent, which the engine does not read


class Text(ColumnType):
    family, python = Family.TEXT, str
    json = natives = frozenset({str, NULL})
    wanted = "text"

    def from_object(self, value: Any) -> Any:
        return str.__str__(value)

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        return _texts(values, "text of whole characters")

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        return texts

    def to_json(self, array: pa.Array) -> list[Any]:
        return list(array.to_pylist())


class Binary(ColumnType):
    family, python = Family.BINARY, bytes
    json = frozenset({str, NULL})
    natives = frozenset({str, bytes, NULL})
    wanted = "base64 text"

    def from_object(self, value: Any) -> Any:
        return str.__str__(value) if isinstance(value, str) else bytes(memoryview(value))

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        if str not in set(map(type, values)):
            return pa.array(values, self.arrow)
        decoded: list[bytes | None] = []
        for index, value in enumerate(values):
            try:
                decoded.append(base64.b64decode(value, validate=True) if type(value) is str else value)
            except (binascii.Error, ValueError):
                raise Misfit(index, self.wanted) from None
        return pa.array(decoded, self.arrow)

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        try:
            return self.array(texts.to_pylist(), False)
        except Misfit:
            return None

    def to_text(self, array: pa.Array) -> pa.Array:
        return pa.array([jsonable(value) for value in array.to_pylist()], TEXT)

    def literal(self, value: pa.Scalar) -> str:
        return f"X'{value.as_py().hex()}'"


class _Moment(ColumnType):
    """Dates and times: ISO 8601 text; of Python's objects those that say the same."""

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        if str not in (kinds := set(map(type, values))):
            try:
                return pa.array(values, self.arrow)
            except (pa.ArrowException, OverflowError):
                values, kinds = [None if value is None else self.iso(value) for value in values], {str}
        if kinds <= {str, NULL}:
            return _cast(self, values)
        return _cast(self, [value if value is None or type(value) is str else self.iso(value) for value in values])

    def iso(self, value: Any) -> str:
        return str(value.isoformat())

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        found = super().parsed(texts)
        return None if found is None or self.beyond_calendar(found) is not None else found

    def beyond_calendar(self, values: pa.Array) -> int | None:
        """Arrow counts on where Delta, Spark and Python end, and no value has a text any more."""
        numbers = self.ordered(values)
        ends = pc.min_max(numbers)
        low, high = self.years
        if not ends["min"].is_valid or (low <= ends["min"].as_py() and ends["max"].as_py() <= high):
            return None
        return int(pc.index(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)), True).as_py())

    years: tuple[int, int]


class Date(_Moment):
    family, python = Family.DATE, dt.date
    name = "date"
    json = frozenset({str, NULL})
    natives = frozenset({str, dt.date, NULL})
    wanted = "a date as text, like 2026-11-15"
    sql_name = "Date32"
    years = (dt.date.min - dt.date(1970, 1, 1)).days, (dt.date.max - dt.date(1970, 1, 1)).days

    def from_object(self, value: Any) -> Any:
        """A datetime is a date if it has neither a time of day nor a zone."""
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, dt.datetime) and (value != value or value.tzinfo or value.time() != dt.time()):
            raise ValueError
        if not isinstance(value, dt.date):
            raise ValueError
        return dt.date(value.year, value.month, value.day)

    def ordered(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.date32()).cast(pa.int32())

    def to_text(self, array: pa.Array) -> pa.Array:
        return array.cast(pa.date32()).cast(TEXT)


class Timestamp(_Moment):
    """With a zone (kept as UTC) or without one: what has a zone is none without, and the other way round."""

    family, python = Family.TIMESTAMP, dt.datetime
    json = frozenset({str, NULL})
    natives = frozenset({str, dt.datetime, NULL})
    years = Date.years[0] * _DAY_US, (Date.years[1] + 1) * _DAY_US - 1
    _FRACTION_DIGITS: ClassVar[dict[str, int]] = {"s": 0, "ms": 3, "us": 6, "ns": 9}
    _ZONED: ClassVar[str] = r"\d\d?:\d\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"

    @functools.cached_property
    def wanted(self) -> str:  # type: ignore[override]
        zoned = "a time with its zone as text, like 2026-11-15T12:00:00Z"
        return zoned if self.arrow.tz else "a time without a zone, like 2026-11-15T12:00:00"

    @property
    def name(self) -> str:
        return "timestamp" if self.arrow.tz else "timestamp_ntz"

    @functools.cached_property
    def sql_name(self) -> str:  # type: ignore[override]
        return 'Timestamp(Microsecond, Some("UTC"))' if self.arrow.tz else "Timestamp(Microsecond, None)"

    def from_object(self, value: Any) -> Any:
        if isinstance(value, str):
            return str.__str__(value)
        if not isinstance(value, dt.datetime) or value != value or getattr(value, "nanosecond", False):
            raise ValueError
        return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        naive = self.arrow.tz is None
        wrong = (i for i, v in enumerate(values) if isinstance(v, dt.datetime) and (v.tzinfo is None) is not naive)
        if objects and (index := next(wrong, None)) is not None:
            raise Misfit(index, self.wanted)
        return super().array(values, objects)

    def iso(self, value: Any) -> str:
        return str(jsonable(value))

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        """In CSV a time without a zone is UTC."""
        if self.arrow.tz is None:
            return super().parsed(texts)
        plain = type_of(pa.timestamp("us"))
        for guess in (super().parsed(texts), plain.parsed(texts)):
            if guess is not None:
                return guess.cast(self.arrow)
        zoned = pc.match_substring_regex(texts, self._ZONED)
        null = pa.scalar(None, TEXT)
        first = super().parsed(pc.if_else(zoned, texts, null))
        second = plain.parsed(pc.if_else(zoned, null, texts))
        return None if first is None or second is None else pc.coalesce(first, second.cast(self.arrow))

    def trimmed(self, texts: pa.Array) -> pa.Array:
        """Zeros at the end of a fraction do not matter."""
        return pc.replace_substring_regex(super().trimmed(texts), r"(\.\d{6})0+", r"\1")

    def ordered(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.int64())

    def to_text(self, array: pa.Array) -> pa.Array:
        """ISO 8601: a T between date and time, Z for UTC, no fraction where there is none."""
        kind = array.type
        if kind.tz is not None and kind.tz != "UTC":
            array = array.cast(pa.timestamp(kind.unit, "UTC"))
        text = pc.replace_substring(array.cast(TEXT), " ", "T", max_replacements=1)
        digits = self._FRACTION_DIGITS[kind.unit]
        return pc.replace_substring(text, "." + digits * "0", "") if digits else text


PLAIN: Sequence[tuple[Callable[[pa.DataType], bool], type[ColumnType]]] = (
    (pa.types.is_integer, Integer),
    (pa.types.is_floating, Floating),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), Text),
    (pa.types.is_boolean, Boolean),
    (pa.types.is_decimal, DecimalNumber),
    (pa.types.is_date, Date),
    (pa.types.is_timestamp, Timestamp),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t), Binary),
    (pa.types.is_fixed_size_binary, Binary),
)


def _numbers(array: pa.Array) -> list[Any]:
    # Without nulls NumPy makes Python numbers several times faster. A client need not have it.
    quick = not array.null_count and "numpy" in sys.modules
    return list(array.to_numpy(zero_copy_only=False).tolist() if quick else array.to_pylist())


def _cast(kind: ColumnType, texts: list[Any]) -> pa.Array:
    strings = _texts(texts, kind.wanted)
    try:
        found = strings.cast(kind.arrow)
        bad = kind.beyond_calendar(found)
    except pa.ArrowException:
        bad = next(number for number in range(len(texts)) if not _casts(strings.slice(number, 1), kind.arrow))
    if bad is not None:
        raise Misfit(bad, kind.wanted)
    return found


def _casts(texts: pa.Array, kind: pa.DataType) -> bool:
    try:
        texts.cast(kind)
    except pa.ArrowException:
        return False
    return True


def _texts(values: list[Any], wanted: str) -> pa.Array:
    """Half a surrogate pair is legal in JSON, and no text anywhere else."""
    try:
        return pa.array(values, TEXT)
    except UnicodeEncodeError:
        halves = (index for index, value in enumerate(values) if value is not None and _HALF.search(value))
        raise Misfit(next(halves, 0), wanted) from None
