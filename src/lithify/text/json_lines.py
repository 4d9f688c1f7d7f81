"""JSON lines, or one JSON array, as typed rows: values are read by `core/json_rows`, all of a block at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core import strict_json
from lithify.core.json_rows import RowMisfit, exact, rows_as_columns
from lithify.core.names import GIVEN
from lithify.errors import InvalidRequest
from lithify.text import one_schema
from lithify.text.debezium import Envelope, NotARow
from lithify.text.inferred_types import json_columns
from lithify.text.json_fields import TWICE, repeated_field, repeated_in_rows, repeating_lines, repeats
from lithify.text.ordinary_messages import ordinary_rows
from lithify.text.text_rows import (
    RECORD_BYTES_MAX,
    UNDECODABLE,
    BadRecord,
    Misfits,
    Target,
    TextBatch,
    empty,
    missing,
    not_named,
    shown,
    with_last,
)

ARRAY_BYTES_MAX = 2**30
NO_INT64 = "numbers that do not fit int64"


@dataclass(frozen=True)
class _Parsed:
    """Rows as JSON has them, how to get them again with all digits, where each stood, and what is no JSON."""

    rows: Sequence[Any]
    again: Callable[[], Sequence[Any]]
    records: Sequence[tuple[int, bytes]]
    bad: Sequence[BadRecord]
    array: bool = False

    def only(self, places: Sequence[int]) -> _Parsed:
        rows, records = [self.rows[at] for at in places], [self.records[at] for at in places]

        def again() -> list[Any]:
            digits = self.again()
            return [digits[at] for at in places]

        return replace(self, rows=rows, again=again, records=records)


def json_batches(blocks: Iterator[bytes], label: str, target: Target, line: int = 1) -> Iterator[TextBatch]:
    """Rows of JSON lines that begin on this `line`; or of one array, if the text begins with a bracket."""
    for parsed in _parsed(blocks, label, line):
        yield _batch(parsed, label, target)


def message_batch(
    messages: Sequence[bytes | None], label: str, target: Target, keys: Sequence[bytes | None] | None = None
) -> TextBatch:
    """Rows of messages in an envelope, each a JSON text; a message that is null is the end of its key. A record's line
    is the number of its message, from 1 on.
    """
    parsed = _lines([(at, text) for at, text in enumerate(messages, 1) if text is not None], label)
    return _batch(parsed, label, target, keys)


def _batch(parsed: _Parsed, label: str, target: Target, keys: Sequence[bytes | None] | None = None) -> TextBatch:
    ordinary = ordinary_rows(parsed.rows, target)
    if ordinary is None:
        return one_by_one(parsed, label, target, keys)[0]
    if len(ordinary.at) == len(parsed.rows):
        return TextBatch(ordinary.rows, _in_order(parsed.bad), ordinary.names)
    done = set(ordinary.at)
    others = parsed.only([at for at in range(len(parsed.rows)) if at not in done])
    batch, numbers = one_by_one(others, label, target, keys)
    rows, names = ordinary.rows, ordinary.names | batch.names
    if batch.rows.num_rows:
        places = [*(parsed.records[at][0] for at in ordinary.at), *numbers]
        rows = pa.concat_tables([rows, batch.rows]).take(np.argsort(places))
    return TextBatch(rows, batch.bad, names)


def one_by_one(
    parsed: _Parsed, label: str, target: Target, keys: Sequence[bytes | None] | None = None
) -> tuple[TextBatch, Sequence[int]]:
    """The rows, each looked at by itself where that is needed, and the numbers of their records."""
    if target.envelope is not None:
        parsed = _opened(parsed, label, target.envelope, keys)
    if not parsed.rows:
        return TextBatch(empty(target.columns.names, target), parsed.bad, frozenset()), []
    rows, fine, bad = _judged(parsed, label, target)
    if parsed.array:
        bad = [replace(each, file=f"{label}, row {each.line}", line=None) for each in bad]
    named = frozenset[str]().union(*(row for row in parsed.rows if isinstance(row, dict)))
    named |= {GIVEN} & set(target.columns.names)
    batch = TextBatch(rows, _in_order([*parsed.bad, *bad]), named)
    return batch, [parsed.records[at][0] for at in fine]


def _in_order(bad: Sequence[BadRecord]) -> list[BadRecord]:
    return sorted(bad, key=lambda each: each.line or 0)


def _opened(parsed: _Parsed, label: str, envelope: Envelope, keys: Sequence[bytes | None] | None) -> _Parsed:
    """Messages as the rows that they are about; what is about none is left out, what cannot be one is bad."""
    rows, places, bad = [], [], list(parsed.bad)
    for at, message in enumerate(parsed.rows):
        number, text = parsed.records[at]
        try:
            row = envelope.opened(message, _key(keys, number))
        except NotARow as error:
            file, line = (f"{label}, row {number}", None) if parsed.array else (label, number)
            bad.append(BadRecord(file, line, error.column, error.why, shown(text.strip())))
            continue
        if row is not None:
            rows.append(row)
            places.append(at)

    def again() -> list[Any]:
        digits = parsed.again()
        return [
            _opened_again(envelope, digits[at], _key(keys, parsed.records[at][0]), row)
            for at, row in zip(places, rows, strict=True)
        ]

    return replace(parsed, rows=rows, again=again, records=[parsed.records[at] for at in places], bad=bad)


def _opened_again(envelope: Envelope, message: Any, key: Any, row: dict[str, Any]) -> Any:
    """With all digits. Where a number has too many to be opened, which was no whole number at first: the row as it was,
    for its column to refuse.
    """
    try:
        return envelope.opened(message, key)
    except NotARow:
        return {name: Decimal(repr(value)) if type(value) is float else value for name, value in row.items()}


def _key(keys: Sequence[bytes | None] | None, number: int) -> Any:
    text = keys[number - 1] if keys is not None else None
    if text is None:
        return None
    try:
        return strict_json.loads(text)
    except strict_json.JSONDecodeError:
        return None


def json_types(blocks: Iterator[bytes], label: str) -> pa.Schema:
    """The columns that the rows have, by their values."""
    return json_columns(_types(parsed, label) for parsed in _parsed(blocks, label, 1))


def _types(parsed: _Parsed, label: str) -> pa.Schema:
    names = dict.fromkeys(name for row in parsed.rows if isinstance(row, dict) for name in row)
    return pa.schema([(name, _type(parsed, name, label)) for name in names])


def _type(parsed: _Parsed, name: str, label: str) -> pa.DataType:
    def values(rows: Sequence[Any]) -> list[Any]:
        return [row.get(name) for row in rows if isinstance(row, dict)]

    try:
        found = pa.array(values(parsed.rows))
        if _has_large_float(found) and _has_large_integer(values(parsed.again())):
            raise OverflowError(NO_INT64)  # it was read as a float, and has lost digits
        return found.type
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        types = f"values of several types ({str(error).splitlines()[0]})"
        raise InvalidRequest(
            f"{label}: column {name!r} holds {NO_INT64 if isinstance(error, OverflowError) else types}: create the "
            "table with the columns that you want, or name them (--column)"
        ) from error


def _has_large_float(values: pa.Array) -> bool:
    if pa.types.is_floating(values.type):
        return bool(pc.any(pc.greater_equal(pc.abs(values), 2.0**63)).as_py())
    if pa.types.is_struct(values.type) or pa.types.is_list(values.type):
        inner = values.flatten()
        return any(map(_has_large_float, inner if isinstance(inner, list) else [inner]))
    return False


def _has_large_integer(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(_has_large_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _parsed(blocks: Iterator[bytes], label: str, line: int) -> Iterator[_Parsed]:
    buffer = b""
    began = line > 1
    pairs = with_last(blocks)
    for block, last in pairs:
        buffer = buffer + block if buffer else block
        if not began and (first := buffer.lstrip()[:1]):
            if first == b"[":
                yield _array(_all(buffer, (block for block, _ in pairs), label), label)
                return
            began = True
        used = len(buffer) if last else buffer.rfind(b"\n") + 1
        lines = buffer[:used].split(b"\n")
        numbered = [(line + at, text) for at, text in enumerate(lines) if text.strip()]
        line += len(lines) - 1
        buffer = buffer[used:]
        if numbered:
            yield _lines(numbered, label)
        if len(buffer) > RECORD_BYTES_MAX:
            raise InvalidRequest(f"{label}, line {line}: the line has more than {RECORD_BYTES_MAX // 2**20} MiB")


def _array(text: bytes, label: str) -> _Parsed:
    try:
        rows = strict_json.loads(text)
    except strict_json.JSONDecodeError as error:
        return _Parsed([], list, [], [BadRecord(label, error.lineno, None, _why_not(text, error), shown(text))])
    records = [(number, strict_json.dumps(row)) for number, row in enumerate(rows, 1)]
    parsed = _Parsed(rows, lambda: list(exact(text)), records, [], array=True)
    if not repeats(text, rows):
        return parsed
    if not (twice := repeated_in_rows(text)):
        return _Parsed([], list, [], [BadRecord(label, None, repeated_field(text), TWICE, shown(text))])
    return _without(parsed, twice, label)


def _lines(lines: Sequence[tuple[int, bytes]], label: str) -> _Parsed:
    messages = one_schema.messages_of([text for _, text in lines])
    return lines_as_they_are(lines, label) if messages is None else _parsed_of(messages, lines)


def _parsed_of(rows: Sequence[Any], lines: Sequence[tuple[int, bytes]], bad: Sequence[BadRecord] = ()) -> _Parsed:
    return _Parsed(rows, lambda: [exact(text) for _, text in lines], lines, bad)


def lines_as_they_are(lines: Sequence[tuple[int, bytes]], label: str) -> _Parsed:
    """Each a text of its own."""
    texts, bad = [text for _, text in lines], list[BadRecord]()
    try:
        rows = strict_json.loads_all(texts)
    except strict_json.JSONDecodeError:
        bad = _not_json(lines, label)
        wrong = {each.line for each in bad}
        lines = [(number, text) for number, text in lines if number not in wrong]
        texts = [text for _, text in lines]
        rows = strict_json.loads_all(texts)
    parsed = _parsed_of(rows, lines, bad)
    twice = {at: repeated_field(texts[at]) for at in repeating_lines(texts, rows)}
    return _without(parsed, twice, label) if twice else parsed


def _not_json(lines: Sequence[tuple[int, bytes]], label: str) -> list[BadRecord]:
    bad = []
    for number, text in lines:
        try:
            strict_json.loads(text)
        except strict_json.JSONDecodeError as error:
            bad.append(BadRecord(label, number, None, _why_not(text, error), shown(text.strip())))
    return bad


def _without(parsed: _Parsed, twice: Mapping[int, str | None], label: str) -> _Parsed:
    """Rows that give a field twice are bad records."""
    remaining = [at for at in range(len(parsed.rows)) if at not in twice]
    bad = list(parsed.bad)
    for at, field in twice.items():
        number, text = parsed.records[at]
        file, line = (f"{label}, row {number}", None) if parsed.array else (label, number)
        bad.append(BadRecord(file, line, field, TWICE, shown(text.strip())))

    return replace(parsed.only(remaining), bad=bad)


def _all(buffer: bytes, blocks: Iterator[bytes], label: str) -> bytes:
    pieces, size = [buffer], len(buffer)
    for block in blocks:
        pieces.append(block)
        size += len(block)
        if size > ARRAY_BYTES_MAX:
            raise InvalidRequest(
                f"{label} is a JSON array of more than {ARRAY_BYTES_MAX // 2**30} GiB: write JSON lines, "
                "one object per line"
            )
    return b"".join(pieces)


def _why_not(text: bytes, error: strict_json.JSONDecodeError) -> str:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return UNDECODABLE
    return f"no JSON: {error.msg.partition(':')[0]}"


def _judged(parsed: _Parsed, label: str, target: Target) -> tuple[pa.Table, Sequence[int], list[BadRecord]]:
    """All rows at once; only if one of them does not fit, each by itself. Those that fit, which these are, others."""
    columns, rows, again = target.columns, parsed.rows, parsed.again
    if target.others:
        known = set(columns.names)
        rows, again = _only(rows, known), lambda: _only(parsed.again(), known)
    if target.defaults:
        rows, again = _defaulted(rows, target), _defaulted_again(again, target)
    bad: Misfits = {}
    try:
        table = _filled(rows, columns, again)
        numbers = np.arange(len(rows))
    except RowMisfit as misfit:
        if target.first_bad:
            table, numbers = empty(columns.names, target), np.empty(0, np.int64)
            bad[misfit.index] = (misfit.column, misfit.why, None)
        else:
            table, numbers, bad = _one_by_one(rows, again(), target)
    if target.named and len(numbers):
        unnamed = not_named(table, target, [parsed.rows[at] for at in numbers.tolist()])
        bad |= {int(numbers[at]): said for at, said in unnamed.items()}
    bad |= {int(numbers[at]): said for at, said in missing(table, target).items()}
    if not bad:
        return table, numbers.tolist(), []
    fine = np.isin(numbers, sorted(bad), invert=True)
    found = []
    for at in sorted(bad):
        number, text = parsed.records[at]
        column, why, value = bad[at]
        found.append(BadRecord(label, number, column, why, shown(text.strip()), value))
    return table.filter(pa.array(fine)), numbers[fine].tolist(), found


def _one_by_one(rows: Sequence[Any], digits: Sequence[Any], target: Target) -> tuple[pa.Table, np.ndarray, Misfits]:
    tables, numbers = [], []
    bad: Misfits = {}
    for at, row in enumerate(rows):
        try:
            tables.append(_filled([row], target.columns, lambda at=at: [digits[at]]))  # type: ignore[misc]
            numbers.append(at)
        except RowMisfit as misfit:
            value = None if misfit.top is None else strict_json.dumps(row[misfit.top]).decode()
            bad[at] = (misfit.column, misfit.why.removeprefix("the value ") if value else misfit.why, value)
    table = pa.concat_tables(tables) if tables else empty(target.columns.names, target)
    return table, np.array(numbers, np.int64), bad


def _only(rows: Sequence[Any], known: set[str]) -> list[Any]:
    return [
        {name: value for name, value in row.items() if name in known} if isinstance(row, dict) else row for row in rows
    ]


def _defaulted(rows: Sequence[Any], target: Target) -> list[Any]:
    """With the values of columns that a row does not name."""
    return [{**target.defaults, **row} if isinstance(row, dict) else row for row in rows]


def _defaulted_again(again: Callable[[], Sequence[Any]], target: Target) -> Callable[[], Sequence[Any]]:
    return lambda: _defaulted(again(), target)


def _filled(rows: Sequence[Any], columns: pa.Schema, again: Callable[[], Sequence[Any]]) -> pa.Table:
    """With all columns, in their order: null where no row has one."""
    if GIVEN not in columns.names and all(isinstance(row, dict) and not row for row in rows):
        return _nulls(columns, len(rows))
    table = rows_as_columns(rows, columns, again)
    return pa.table(
        [table.column(f.name) if f.name in table.column_names else pa.nulls(table.num_rows, f.type) for f in columns],
        schema=pa.schema([pa.field(f.name, f.type) for f in columns]),
    )


def _nulls(columns: pa.Schema, count: int) -> pa.Table:
    return pa.table(
        [pa.nulls(count, f.type) for f in columns], schema=pa.schema([pa.field(f.name, f.type) for f in columns])
    )
