"""Messages of Debezium as nearly all of them are, opened many at once: a column at a time instead of a row.

Ordinary are upserts whose rows name the same columns, with a value in each that was not left out, and which all have
one schema or none. What their numbers mean is the same for all of them then, and dates and times are counted by Arrow.
Any other message, and each of a batch in which a value cannot be read, is opened by `debezium.Envelope.opened`, which
tells what is wrong with it. The rows are the same either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_types import Misfit, NeedsDigits, type_of
from lithify.core.names import GIVEN, given_text
from lithify.core.ops import Op
from lithify.text.debezium import DECIMALS, NO_MEANING, OP, UPSERTS, Envelope, NotARow, decimal_text, meanings
from lithify.text.text_rows import Target

# As JSON has the values of a column, or as the table has them.
Values: TypeAlias = list[Any] | pa.Array
_NULL = type(None)


@dataclass(frozen=True)
class Ordinary:
    """Rows of the messages `at` these places, and the columns that they name."""

    at: Sequence[int]
    rows: pa.Table
    names: frozenset[str]


def ordinary_rows(messages: Sequence[Any], target: Target) -> Ordinary | None:
    """Of those that are ordinary; None where there is none, or one of them has to be looked at by itself."""
    if target.envelope is None or target.first_bad or (found := _upserts(messages, target.envelope)) is None:
        return None
    at, columns = found
    names = frozenset(columns)
    if GIVEN in names or not names.issuperset(target.named):
        return None
    if not target.others and not names.issubset(target.columns.names):
        return None
    count = len(at)
    columns |= {name: [value] * count for name, value in target.defaults.items() if name not in names}
    if GIVEN in target.columns.names:
        own = (name for name in target.columns.names if name in columns and name != OP)
        columns[GIVEN] = pa.repeat(given_text(own), count)
    columns[OP] = pa.repeat(Op.UPSERT.value, count)
    try:
        arrays = [_array(columns.get(field.name), field.type, count) for field in target.columns]
    except (Misfit, NeedsDigits):
        return None
    rows = pa.table(arrays, schema=pa.schema([pa.field(field.name, field.type) for field in target.columns]))
    if any(rows.column(name).null_count for name in target.required):
        return None
    return Ordinary(at, rows, names | {OP} | ({GIVEN} & set(target.columns.names)))


def _array(values: Values | None, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    return type_of(kind).from_json(values) if isinstance(values, list) else values


def _upserts(messages: Sequence[Any], envelope: Envelope) -> tuple[Sequence[int], dict[str, Values]] | None:
    """Which messages are ordinary, and the values of each column that their rows name."""
    payloads, schema = _payloads(messages)
    at, columns = _all(payloads) or _some(payloads)
    if odd := _left_out(columns, envelope):
        fine = [place for place in range(len(at)) if place not in odd]
        at = [at[place] for place in fine]
        columns = {name: [values[place] for place in fine] for name, values in columns.items()}
    if not at:
        return None
    try:
        _read_values(columns, schema, envelope)
        missing = [name for name in envelope.order if name not in columns]
        if missing:
            sources = [payloads[place].get("source") for place in at]
            columns |= {name: _order_values(name, sources, envelope) for name in missing}
    except (_Unsure, NotARow):
        return None
    return at, columns


class _Unsure(Exception):
    """A value is to be looked at by itself."""


def _payloads(messages: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """What messages say, and the one schema of those that come with it. Others say nothing here."""
    first = next((each for each in messages if type(each) is dict), {})
    if "payload" not in first or "op" in first:
        return messages, None
    schema = first.get("schema")
    return [_payload(each, schema) for each in messages], schema


def _payload(message: Any, schema: Any) -> Any:
    if type(message) is not dict or "op" in message or "payload" not in message:
        return None
    own = message.get("schema")
    return message["payload"] if own is schema or own == schema else None


def _all(payloads: Sequence[Any]) -> tuple[Sequence[int], dict[str, Values]] | None:
    """The rows, if each of them is an upsert and names what the others name."""
    try:
        if not set(map(itemgetter("op"), payloads)) <= UPSERTS:
            return None
        rows = list(map(itemgetter("after"), payloads))
        if set(map(type, rows)) != {dict} or len(set(map(len, rows))) > 1:
            return None
        return range(len(rows)), _columns(rows)
    except (KeyError, TypeError):
        return None


def _some(payloads: Sequence[Any]) -> tuple[Sequence[int], dict[str, Values]]:
    """Rows of upserts that name what the first of them names, and where they stand."""
    at: list[int] = []
    rows: list[dict[str, Any]] = []
    for place, payload in enumerate(payloads):
        row = payload.get("after") if type(payload) is dict else None
        if type(row) is not dict or type(word := payload.get("op")) is not str or word not in UPSERTS:
            continue
        if not rows or row.keys() == rows[0].keys():
            at.append(place)
            rows.append(row)
    return at, _columns(rows)


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, Values]:
    return {name: list(map(itemgetter(name), rows)) for name in rows[0]} if rows else {}


def _left_out(columns: Mapping[str, Values], envelope: Envelope) -> set[int]:
    """Rows in which a value was left out since it did not change."""
    forms, found = envelope.left_out, set[int]()
    texts = frozenset(form for form in forms if type(form) is str)
    for name, values in columns.items():
        if name in envelope.always_there:
            continue
        kinds = set(map(type, values))
        if str in kinds and kinds <= {str, _NULL} and texts.isdisjoint(values):
            continue
        if kinds & {str, list, dict} and any(form in values for form in forms):
            found.update(place for place, value in enumerate(values) if value in forms)
    return found


def _read_values(columns: dict[str, Values], schema: Any, envelope: Envelope) -> None:
    """Numbers in dates and times, and bytes in decimals, as `Envelope.opened` reads them."""
    if schema is None and not envelope.counted:
        return
    named = meanings(schema, "after")
    for name in named if named is not None else envelope.counted:
        values = columns.get(name)
        if not isinstance(values, list):
            continue
        kind, scale = named[name] if named is not None else NO_MEANING
        kinds = set(map(type, values))
        if kinds == {_NULL}:
            continue
        if name in envelope.dates or name in envelope.times:
            if kinds <= {int, _NULL}:
                unit = None if name in envelope.dates else envelope.unit_of(kind)
                columns[name] = _counted(values, envelope.columns.field(name).type, unit)
            elif kind in DECIMALS:
                raise _Unsure
        elif kind in DECIMALS:
            try:
                columns[name] = [None if value is None else decimal_text(value, scale) for value in values]
            except (OverflowError, ValueError, TypeError, KeyError):
                raise _Unsure from None


def _counted(values: list[Any], kind: pa.DataType, unit: str | None) -> pa.Array:
    """Dates and times that are numbers from 1970 on."""
    try:
        numbers = pa.array(values, pa.int64())
        if pa.types.is_date32(kind):
            days = numbers.cast(pa.int32())
            found = days.cast(kind)
        elif unit is not None and pa.types.is_timestamp(kind) and kind.unit == "us":
            found = _micros(numbers, unit).cast(kind)
        else:
            raise _Unsure
    except (pa.ArrowException, OverflowError):
        raise _Unsure from None
    if type_of(kind).beyond_calendar(found) is not None:
        raise _Unsure
    return found


def _micros(numbers: pa.Array, unit: str) -> pa.Array:
    if unit == "us":
        return numbers
    if unit == "ms":
        return pc.multiply_checked(numbers, 1000)
    whole = pc.divide(numbers, 1000)
    if not pc.all(pc.equal(pc.multiply(whole, 1000), numbers), min_count=0).as_py():
        raise _Unsure  # nanoseconds are not rounded
    return whole


def _order_values(name: str, sources: list[Any], envelope: Envelope) -> list[Any]:
    """What orders the rows, from where their sources stand."""
    if set(map(type, sources)) == {dict} and pa.types.is_integer(envelope.columns.field(name).type):
        found = [source.get(name) for source in sources]
        if set(map(type, found)) == {int}:
            return found
    return [envelope.order_value(name, source) for source in sources]
