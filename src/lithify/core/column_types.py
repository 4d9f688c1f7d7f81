"""What is known of each column type, once: what it takes, how JSON, CSV and SQL spell its values.

`type_of` gives the record of an Arrow type. Values are read and written a whole column at a time, and strictly: one
fits as it is or is a `Misfit` with its position; nothing is rounded, cut or guessed. docs/values.md is this as a table.

JSON has fewer types than a table: integers beyond 2^53, decimals, dates, times and binary (base64) are text, NaN and
infinities "NaN", "Infinity" and "-Infinity". Rows that come from Python may hold Python's own objects as well
(`objects`). What `to_json` writes `from_json` reads.

Plain types are in `plain_column_types`; lists, structs and maps here. All values of all rows of a nested column are
one column of the inner type, so that nesting costs no loop per row.
"""

from __future__ import annotations

import bisect
import datetime as dt
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core import strict_json
from lithify.core.json_out import jsonable
from lithify.errors import InvalidRequest

NULL = type(None)
TEXT = pa.string()


class Family(Enum):
    """Types whose values compare with each other."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    TEXT = "text"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    NESTED = "nested"
    OTHER = "other"


@dataclass
class Misfit(Exception):
    """The value at `index` does not fit, because it should be `wanted`; `path` leads into nested values."""

    index: int
    wanted: str
    path: str = ""


class NeedsDigits(Exception):
    """A number of a JSON text stands where all its digits count: it has to be read again, not as a double."""


class ColumnType:
    """`json`: the classes, exactly, of JSON values that it takes; `natives`: of Python's objects too; `python`: of what
    Arrow gives back.
    """

    family = Family.OTHER
    json: ClassVar[frozenset[type]] = frozenset()
    natives: ClassVar[frozenset[type]] = frozenset()
    python: ClassVar[type] = object
    wanted: str = ""

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow

    @property
    def name(self) -> str:
        """As `describe` prints it and `create` reads it (`core/type_text.py`)."""
        return str(self.arrow)

    @property
    def is_number(self) -> bool:
        return self.family in (Family.INTEGER, Family.FLOAT, Family.DECIMAL)

    @property
    def is_text(self) -> bool:
        return self.family is Family.TEXT

    @property
    def is_counted(self) -> bool:
        """Whether `ordered` gives whole numbers of up to 64 bits."""
        return self.family in (Family.INTEGER, Family.DATE, Family.TIMESTAMP)

    @property
    def is_comparable(self) -> bool:
        """Whether equality of two values is reliable, as a key needs it."""
        return self.family not in (Family.FLOAT, Family.NESTED, Family.OTHER)

    def ordered(self, values: pa.Array) -> pa.Array:
        """The same values in the same order, as numbers where they are kept as numbers."""
        return values

    # -- in

    def from_json(self, values: list[Any], objects: bool = False) -> pa.Array:
        """The column of these values. Raises Misfit, or NeedsDigits."""
        allowed = self.natives if objects else self.json
        if not set(map(type, values)) <= allowed:
            values = self._allowed(values, allowed, objects)
        return self.array(values, objects)

    def _allowed(self, values: list[Any], allowed: frozenset[type], objects: bool) -> list[Any]:
        """Exactly these types: True is an int to Python, and no number here."""
        found = list(values)
        for index, value in enumerate(values):
            if type(value) in allowed:
                continue
            if not objects:
                raise Misfit(index, self.wanted)
            value = _unwrapped(value)
            try:
                found[index] = value if type(value) in allowed else self.from_object(value)
            except (ValueError, TypeError):
                raise Misfit(index, self.wanted) from None
        return found

    def from_object(self, value: Any) -> Any:
        """An object of Python's as one of `natives`. Raises ValueError."""
        raise ValueError

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        """The column of values whose classes are right."""
        raise InvalidRequest(f"columns of type {self.arrow} cannot be written as JSON: send Arrow")

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        """All values of a column of text as CSV has it, or None if one does not fit as it is written."""
        try:
            return texts.cast(self.arrow)
        except pa.ArrowException:
            return None

    def trimmed(self, texts: pa.Array) -> pa.Array:
        """Without what does not matter: blanks around a value; empty text is none."""
        texts = pc.utf8_trim_whitespace(texts)
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, TEXT), texts)

    # -- out

    def to_json(self, array: pa.Array) -> list[Any]:
        """A column's values as JSON spells them, one per row."""
        return list(self.to_text(array).to_pylist())

    def to_text(self, array: pa.Array) -> pa.Array:
        """A column as text: what a CSV cell holds, and how JSON spells what it has no type for."""
        return array.cast(TEXT)

    def literal(self, value: pa.Scalar) -> str:
        """A value in SQL."""
        text = str(value.cast(TEXT).as_py()).replace("'", "''")
        return f"arrow_cast('{text}', '{self.sql_name}')"

    sql_name: str = "Utf8"

    def beyond_calendar(self, values: pa.Array) -> int | None:
        """The position of a date or time outside of the years 1 to 9999, which every engine knows."""
        return None


class _Nested(ColumnType):
    family = Family.NESTED

    def parsed(self, texts: pa.Array) -> pa.Array | None:
        raise NotImplementedError("CSV holds no nested values")

    def to_text(self, array: pa.Array) -> pa.Array:
        spelled = (None if value is None else strict_json.dumps(value).decode() for value in self.to_json(array))
        return pa.array(spelled, pa.string())


class List(_Nested):
    python = list
    json = natives = frozenset({list, NULL})
    wanted = "a list"

    @property
    def name(self) -> str:
        return f"list<{_required(self.arrow.value_field)}>"

    def from_object(self, value: Any) -> Any:
        return _items(value)

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        items, offsets, mask = _flattened(values)
        inner = _inner(items, self.arrow.value_field, offsets, "[]", objects)
        return pa.ListArray.from_arrays(offsets, inner, type=self.arrow, mask=mask)

    def to_json(self, array: pa.Array) -> list[Any]:
        offsets, start = _offsets(array)
        values = type_of(array.type.value_type).to_json(array.values.slice(start, offsets[-1] - start))
        return [
            values[low - start : high - start] if valid else None
            for low, high, valid in zip(offsets, offsets[1:], _valid(array), strict=False)
        ]


class Struct(_Nested):
    python = dict
    json = natives = frozenset({dict, NULL})
    wanted = "an object"

    @property
    def name(self) -> str:
        return f"struct<{','.join(f'{f.name}:{_required(f)}' for f in self.arrow)}>"

    def from_object(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError
        return dict(value)

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        fields = list(self.arrow)
        names = {field.name for field in fields}
        for index, value in enumerate(values):
            if value is not None and not value.keys() <= names:
                raise Misfit(index, f"no other fields than {', '.join(field.name for field in fields)}")
        missing = [value is None for value in values]
        arrays = []
        for field in fields:
            inside = [None if value is None else value.get(field.name) for value in values]
            try:
                arrays.append(type_of(field.type).from_json(inside, objects))
                if not field.nullable:
                    _refuse_null([0 if gone else item for gone, item in zip(missing, inside, strict=True)])
            except Misfit as misfit:
                raise Misfit(misfit.index, misfit.wanted, f".{field.name}{misfit.path}") from None
        mask = pa.array(missing, pa.bool_()) if any(missing) else None
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def to_json(self, array: pa.Array) -> list[Any]:
        names = [field.name for field in array.type]
        columns = [type_of(column.type).to_json(column) for column in array.flatten()]
        rows = zip(*columns, strict=True)
        return [
            dict(zip(names, row, strict=True)) if valid else None
            for row, valid in zip(rows, _valid(array), strict=True)
        ]


class Map(_Nested):
    python = list
    json = natives = frozenset({dict, list, NULL})
    wanted = "an object, or a list of [key, value] pairs"

    @property
    def name(self) -> str:
        return f"map<{type_of(self.arrow.key_type).name},{_required(self.arrow.item_field)}>"

    def from_object(self, value: Any) -> Any:
        return dict(value) if isinstance(value, Mapping) else _items(value)

    def array(self, values: list[Any], objects: bool) -> pa.Array:
        pairs: list[Any] = []
        for index, value in enumerate(values):
            if isinstance(value, list) and not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
                raise Misfit(index, self.wanted)
            pairs.append(list(value.items()) if isinstance(value, dict) else value)
        entries, offsets, mask = _flattened(pairs)
        keys = _inner([key for key, _ in entries], self.arrow.key_field, offsets, ".key", objects)
        items = _inner([item for _, item in entries], self.arrow.item_field, offsets, ".value", objects)
        return pa.MapArray.from_arrays(offsets, keys, items, type=self.arrow, mask=mask)

    def to_json(self, array: pa.Array) -> list[Any]:
        offsets, start = _offsets(array)
        length = offsets[-1] - start
        key_type = type_of(array.type.key_type)
        keys = key_type.to_json(array.keys.slice(start, length))
        items = type_of(array.type.item_type).to_json(array.items.slice(start, length))
        found: list[Any] = []
        for low, high, valid in zip(offsets, offsets[1:], _valid(array), strict=False):
            inside = slice(low - start, high - start)
            if not valid:
                found.append(None)
                continue
            entries = dict(zip(keys[inside], items[inside], strict=True)) if key_type.is_text else {}
            # An object would drop a key that stands twice.
            pairs = [[key, item] for key, item in zip(keys[inside], items[inside], strict=True)]
            found.append(entries if key_type.is_text and len(entries) == high - low else pairs)
        return found


class Encoded(ColumnType):
    """Dictionaries and extensions, which only answers of queries have: their values are those of another type."""

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow)
        self._plain = type_of(arrow.value_type if pa.types.is_dictionary(arrow) else arrow.storage_type)
        self.family = self._plain.family

    def to_json(self, array: pa.Array) -> list[Any]:
        return self._plain.to_json(_decoded(array))

    def to_text(self, array: pa.Array) -> pa.Array:
        return self._plain.to_text(_decoded(array))


class Other(ColumnType):
    """What no table has, and answers of queries may have: durations, times of day, lists of a fixed size."""

    def to_text(self, array: pa.Array) -> pa.Array:
        if pa.types.is_time(self.arrow) or pa.types.is_null(self.arrow):
            return array.cast(TEXT)
        plain = pa.types.is_duration(self.arrow) or pa.types.is_interval(self.arrow)
        spelled = str if plain else lambda value: strict_json.dumps(jsonable(value)).decode()
        return pa.array([None if value is None else spelled(value) for value in array.to_pylist()], TEXT)


_OTHERS: Sequence[tuple[Callable[[pa.DataType], bool], type[ColumnType]]] = (
    (lambda t: pa.types.is_list(t) or pa.types.is_large_list(t), List),
    (pa.types.is_struct, Struct),
    (pa.types.is_map, Map),
    (lambda t: pa.types.is_dictionary(t) or isinstance(t, pa.BaseExtensionType), Encoded),
)


@functools.lru_cache(4096)
def type_of(kind: pa.DataType) -> ColumnType:
    """The record of an Arrow type."""
    from lithify.core.plain_column_types import PLAIN

    made = next((made for fits, made in (*PLAIN, *_OTHERS) if fits(kind)), Other)
    return made(kind)


def _decoded(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array.dictionary_decode()


def _unwrapped(value: Any) -> Any:
    """Scalars of Arrow and NumPy as what they stand for."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if not _is_numpy(value, "generic"):
        return value
    if value.dtype.kind != "M":
        return value.item()
    micros = value.astype("M8[us]")
    return value if micros != value else value.item() if isinstance(value.item(), dt.date) else micros.item()


def _is_numpy(value: Any, kind: str) -> bool:
    """Without importing it: a client need not have it, and then nothing is of its kinds."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, kind))


def _required(field: pa.Field) -> str:
    return type_of(field.type).name + ("" if field.nullable else "!")


def _items(value: Any) -> list[Any]:
    """Of what Python has besides lists."""
    if _is_numpy(value, "ndarray"):
        return list(value) if value.dtype.kind in "mM" else list(value.tolist())
    if not isinstance(value, list | tuple | set | frozenset | pa.Array | pa.ChunkedArray):
        raise ValueError
    return list(value)


def _flattened(values: list[Any]) -> tuple[list[Any], pa.Array, pa.Array | None]:
    """All items one after the other, where each list starts in them, and which lists are null."""
    lengths = (0 if value is None else len(value) for value in values)
    offsets = pa.array(list(itertools.accumulate(lengths, initial=0)), pa.int32())
    missing = [value is None for value in values]
    items = [item for value in values if value is not None for item in value]
    return items, offsets, pa.array(missing, pa.bool_()) if any(missing) else None


def _inner(items: list[Any], field: pa.Field, offsets: pa.Array, step: str, objects: bool) -> pa.Array:
    try:
        if not field.nullable:
            _refuse_null(items)
        return type_of(field.type).from_json(items, objects)
    except Misfit as misfit:
        parent = bisect.bisect_right(offsets.to_pylist(), misfit.index) - 1
        raise Misfit(parent, misfit.wanted, step + misfit.path) from None


def _refuse_null(values: Sequence[Any]) -> None:
    if (at := next((i for i, value in enumerate(values) if value is None), None)) is not None:
        raise Misfit(at, "a value, and no null")


def _offsets(array: pa.Array) -> tuple[list[int], int]:
    offsets = array.offsets.to_pylist() if len(array) else [0]
    return offsets, offsets[0]


def _valid(array: pa.Array) -> list[bool]:
    return [True] * len(array) if not array.null_count else list(array.is_valid().to_pylist())
