"""Messages of Debezium, as its connectors write them, opened to rows of a table and what each does.

A message has the row `before` and `after` a change, `op` and the `source`, its position in the database's log; all of
that may lie in a `payload` beside its `schema`. What becomes of it:

    c, u, r     upsert of `after`          m           nothing: it is about no row
    d           delete of the key in       t           no row: a table is not emptied by a stream
                `before`, or in the        other       no row: the operation is not known
                message's own key          null        nothing: the tombstone that follows a delete

The order_by column, where `after` has no such column, is the field of `source` by its name (lsn, scn, ts_ms, …), or
else the position that the connector orders by (`position`).

Numbers in date and timestamp columns count from 1970. Their unit, and the scale of decimals in bytes, stands in the
schema; without one, dates are days and `time_unit` tells the unit of timestamps. A column whose value was left out
because it did not change (TOAST) has a placeholder, in the form of its type. It is taken from `before`; or, where rows
need not be whole, left out here too; or else the message is no row.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa

from lithify.core.ops import WORDS, Op
from lithify.errors import InvalidRequest

# What a message does, beside the table's columns. It is not stored.
OP = "_lithify_op"
UNAVAILABLE = "__debezium_unavailable_value"
_BYTES = UNAVAILABLE.encode()
_BASE64 = base64.b64encode(_BYTES).decode()  # which has no letter that base64-url-safe writes otherwise
_MAP = {UNAVAILABLE: UNAVAILABLE}
# What stands in the place of such a value: texts, bytes as base64 and hex, an hstore as JSON; and where a table has
# columns of lists or maps, of texts, bytes, UUIDs and, byte by byte, numbers.
_LEFT_OUT_TEXTS = (UNAVAILABLE, _BASE64, _BYTES.hex(), f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}')
_LEFT_OUT_NESTED = (
    [UNAVAILABLE],
    [_BASE64],
    [_BYTES.hex()],
    ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],  # the UUID of version 3 of these bytes
    list(_BYTES),
    _MAP,
    [[UNAVAILABLE, UNAVAILABLE]],
    [{"key": UNAVAILABLE, "value": UNAVAILABLE}],
)
TimeUnit = Literal["ms", "us", "ns"]
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS: Mapping[str, TimeUnit] = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
DECIMALS = ("org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal")
NO_MEANING: tuple[str, int | None] = ("", None)
_SAID = {op: op.value for op in Op}
UPSERTS = frozenset(word for word, op in WORDS.items() if op is Op.UPSERT)
_NO_VALUE = (
    "its value was left out because it did not change, and is not in before: let the database tell it "
    "(REPLICA IDENTITY FULL), or write with mode update, which leaves what is there"
)
_EPOCH, _FIRST_DAY = dt.datetime(1970, 1, 1), dt.date(1970, 1, 1)


class NotARow(Exception):
    """Why a message is none of the table's rows; the column that is to blame, where it is one."""

    def __init__(self, why: str, column: str | None = None) -> None:
        super().__init__(why)
        self.why, self.column = why, column


@dataclass(frozen=True)
class Envelope:
    """What opens messages for one table. `columns` are those of the table; `optional`: those that a row may lack."""

    columns: pa.Schema
    key: tuple[str, ...]
    order: tuple[str, ...] = ()
    time_unit: TimeUnit | None = None
    optional: frozenset[str] = frozenset()

    @cached_property
    def dates(self) -> frozenset[str]:
        return frozenset(f.name for f in self.columns if pa.types.is_date(f.type))

    @cached_property
    def times(self) -> Mapping[str, bool]:
        """Timestamp columns, and whether they have a zone."""
        return {f.name: f.type.tz is not None for f in self.columns if pa.types.is_timestamp(f.type)}

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """Columns whose values may come as numbers from 1970 on."""
        return (*self.dates, *self.times)

    @cached_property
    def always_there(self) -> frozenset[str]:
        """Columns of types in which nothing can stand in the place of a value."""
        plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
        return frozenset(f.name for f in self.columns if any(kind(f.type) for kind in plain))

    @cached_property
    def left_out(self) -> tuple[Any, ...]:
        """What stands in the place of a value that did not change."""
        nested = any(pa.types.is_nested(f.type) for f in self.columns)
        return _LEFT_OUT_TEXTS + _LEFT_OUT_NESTED if nested else _LEFT_OUT_TEXTS

    def _lacks_values(self, row: Mapping[str, Any]) -> bool:
        values = row.values()
        for form in self.left_out:  # noqa: SIM110  this is asked of every message
            if form in values:
                return True
        return False

    def _with_values(self, row: dict[str, Any], before: Any) -> dict[str, Any]:
        """With what was left out since it did not change, or without these columns."""
        found = {}
        for name, value in row.items():
            if value in self.left_out:
                value = before.get(name, UNAVAILABLE) if isinstance(before, dict) else UNAVAILABLE
                if value in self.left_out:
                    if name in self.optional:
                        continue
                    raise NotARow(_NO_VALUE, name)
            found[name] = value
        return found

    def opened(self, message: Any, key: Any = None) -> dict[str, Any] | None:
        """The row with its operation under `OP`; None where the message is about no row. Raises NotARow."""
        message, schema = _payload(message)
        if message is None:
            return None
        op = _operation(message)
        if op is None:
            return None
        side = "before" if op is Op.DELETE else "after"
        image = message.get(side)
        if image is None and op is Op.DELETE:
            image, _ = _payload(key)
        if not isinstance(image, dict):
            raise NotARow(f"it has no row {side} the change" + (", and no key" if op is Op.DELETE else ""))
        if op is Op.DELETE:
            row = {name: image.get(name) for name in self.key}
            row |= {name: image[name] for name in self.order if name in image and name not in row}
        else:
            row = dict(image)
        if self._lacks_values(row):
            row = self._with_values(row, message.get("before"))
        if schema is not None or self.counted:
            self._read_values(row, schema, side)
        for name in self.order:
            if op is Op.DELETE or name not in row:
                self._order(name, row, message.get("source"), image)
        row[OP] = _SAID[op]
        return row

    def _read_values(self, row: dict[str, Any], schema: Any, side: str) -> None:
        named = meanings(schema, side)
        for name in named if named is not None else self.counted:
            value = row.get(name)
            if value is None or (named is None and type(value) is not int):
                continue
            kind, scale = named[name] if named is not None else NO_MEANING
            try:
                if name in self.dates and type(value) is int:
                    row[name] = (_FIRST_DAY + dt.timedelta(days=value)).isoformat()
                elif name in self.times and type(value) is int:
                    row[name] = self._moment(name, value, self.unit_of(kind))
                elif kind in DECIMALS:
                    row[name] = decimal_text(value, scale)
            except (OverflowError, ValueError, TypeError, KeyError):
                raise NotARow("the value cannot be read as its schema says", name) from None

    def unit_of(self, kind: str) -> TimeUnit | None:
        """Of timestamps of this meaning."""
        return _UNITS.get(kind, self.time_unit) if isinstance(kind, str) else self.time_unit

    def _moment(self, name: str, value: int, unit: TimeUnit | None) -> str:
        if unit is None:
            raise NotARow(
                "a number in a timestamp column, and no schema tells its unit: say it, envelope='debezium:ms' (or us, "
                "ns), or let the connector write schemas",
                name,
            )
        micros, rest = divmod(value * 10**6, _PER_SECOND[unit])
        if rest:
            raise NotARow("nanoseconds do not fit a column of microseconds", name)
        moment = (_EPOCH + dt.timedelta(microseconds=micros)).isoformat()
        return moment + "+00:00" if self.times[name] else moment

    def _order(self, name: str, row: dict[str, Any], source: Any, image: Mapping[str, Any]) -> None:
        """By the log's position, unless the rows themselves have the column, as those of a delete may have it."""
        if name in image and name in row:
            return
        row[name] = self.order_value(name, source)

    def order_value(self, name: str, source: Any) -> Any:
        """Where a source stands, as a value of this column. Raises NotARow."""
        try:
            return self._order_value(name, source if isinstance(source, dict) else {})
        except (ValueError, TypeError):
            raise NotARow("the position of its source cannot be read", name) from None

    def _order_value(self, name: str, source: Mapping[str, Any]) -> Any:
        found = source.get(name)
        if found is None and (found := position(source)) is None:
            raise NotARow("the message has neither this column nor a source position to order by", name)
        kind = self.columns.field(name).type
        if pa.types.is_timestamp(kind) and type(found) is int:
            return self._moment(name, found, _unit_named(name))
        if pa.types.is_integer(kind) and isinstance(found, str):
            if not found.isdecimal():
                raise NotARow("this connector's position is a text: make the order_by column a text", name)
            return int(found)
        if not pa.types.is_integer(kind) and type(found) is int and not pa.types.is_floating(kind):
            return f"{found:020d}"  # texts are compared from the left
        return found


def _unit_named(name: str) -> TimeUnit:
    """Of a field of a source, by its name: ts_ms, ts_us, ts_ns."""
    return "ns" if name.endswith("_ns") else "us" if name.endswith("_us") else "ms"


def envelope_of(
    text: str | None,
    columns: pa.Schema,
    key: tuple[str, ...],
    order: tuple[str, ...],
    optional: frozenset[str] = frozenset(),
) -> Envelope | None:
    """Of "debezium", or "debezium:ms" with the unit of timestamps that no schema tells."""
    if text is None:
        return None
    unit = unit_of(text)
    if not key:
        raise InvalidRequest("the table has no key, so messages with deletes cannot be applied: give it one")
    return Envelope(columns, key, order, unit, optional)


def unit_of(text: str) -> TimeUnit | None:
    """What an envelope says of timestamps; InvalidRequest if it is none."""
    name, _, unit = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name != "debezium" or (unit and unit not in get_args(TimeUnit)) or text.endswith(":"):
        raise InvalidRequest(
            f"envelope {text!r} is not known: use debezium, or debezium:ms (us, ns) to tell the unit of timestamps"
        )
    return unit or None  # type: ignore[return-value]


def position(source: Mapping[str, Any]) -> int | str | None:
    """Where in its log a database made a change, by what its connector tells: a value that only grows."""
    for name in ("lsn", "scn", "change_lsn", "commit_lsn"):
        if source.get(name) is not None:
            value = source[name]
            return int(value) if isinstance(value, str) and value.isdecimal() else value
    file, place = source.get("file"), source.get("pos")
    if isinstance(file, str) and type(place) is int:
        number = file.rpartition(".")[2]
        if number.isdecimal():
            return (int(number) << 48) | (place << 16) | min(int(source.get("row") or 0), 2**16 - 1)
    moment = source.get("ts_ms")
    return moment if type(moment) is int else None


def _payload(message: Any) -> tuple[Any, Any]:
    """What a message says, and its schema if it brings one."""
    if message is None:
        return None, None
    if not isinstance(message, dict):
        raise NotARow("no JSON object with before, after and op")
    if "payload" in message and "op" not in message:
        payload = message["payload"]
        if payload is not None and not isinstance(payload, dict):
            raise NotARow("its payload is no JSON object")
        return payload, message.get("schema")
    return message, None


def _operation(message: Mapping[str, Any]) -> Op | None:
    word = message.get("op")
    if word == "m":
        return None
    if word == "t":
        raise NotARow(
            "a truncate, and a table is not emptied by a stream: delete the rows (delete_where), and let the connector "
            "skip truncates (skipped.operations=t)"
        )
    op = WORDS.get(word) if isinstance(word, str) else None
    if op is None:
        raise NotARow("its operation (op) is missing" if word is None else f"its operation {word!r:.40} is not known")
    return op


def meanings(schema: Any, side: str) -> dict[str, tuple[str, int | None]] | None:
    """Of each field that has one its meaning and scale; None without a schema. Raises NotARow."""
    if not isinstance(schema, dict):
        return None
    try:
        for part in schema.get("fields") or ():
            if part.get("field") == side:
                found = {}
                for each in part.get("fields") or ():
                    if (name := each.get("name")) is not None:
                        scale = (each.get("parameters") or {}).get("scale")
                        found[each.get("field")] = name, None if scale is None else int(scale)
                return found
    except (AttributeError, TypeError, ValueError):
        raise NotARow("its schema is none of Kafka Connect's") from None
    return None


def decimal_text(value: Any, scale: int | None) -> str:
    if isinstance(value, dict):
        value, scale = value["value"], int(value["scale"])
    number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    return str(Decimal(number).scaleb(-(scale or 0)))
