"""Keys as requests spell them, and the key of a request itself: values, objects, lists, or plain text in an address.

Keys to delete are checked each by itself, so that one bad key does not keep the others from being deleted. All of them
are tried at once first; only if that fails are they halved until the bad ones stand alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from lithify.core.column_types import type_of
from lithify.core.json_rows import NAME_SHOWN_MAX, Body, table_of, typed
from lithify.core.ordered_deletes import check_count, places_in
from lithify.core.rows import keys_of
from lithify.core.schema import TableSchema, nullable
from lithify.delta.batch_txns import BoundId
from lithify.errors import InvalidRequest
from lithify.http.auth import Caller
from lithify.text.json_fields import RepeatedField, once

REFUSED_MAX = 1_000


@dataclass(frozen=True)
class Refused:
    index: int
    error: InvalidRequest


def checked_keys(
    values: Sequence[Any], definition: TableSchema, exact: Callable[[], Sequence[Any]]
) -> tuple[pa.Table | None, list[Refused]]:
    """Those that can be deleted, in one table, and those that cannot, in their order. `exact`: the values once more,
    their numbers with all digits.
    """
    shaped: list[tuple[int, Mapping[str, Any]]] = []
    refused: list[Refused] = []
    for index, value in enumerate(values):
        try:
            shaped.append((index, _shaped(value, definition, shaped[0][1] if shaped else None)))
        except InvalidRequest as error:
            _refuse(refused, Refused(index, InvalidRequest(f"key {index}: {error.public}")))
    accepted: list[pa.Table] = []
    waiting = [shaped] if shaped else []
    while waiting:
        part = waiting.pop()
        try:
            accepted.append(_table(part, definition, exact))
        except InvalidRequest as error:
            if len(part) == 1:
                _refuse(refused, Refused(part[0][0], error))
                continue
            half = len(part) // 2
            waiting += [part[half:], part[:half]]
    refused.sort(key=lambda one: one.index)
    return (pa.concat_tables(accepted) if accepted else None), refused


def key_of_text(text: str, definition: TableSchema) -> pa.Table:
    """A key in an address: plain text for one column, a JSON object for several."""
    value: Any = text
    if len(definition.key) > 1 or (text.lstrip().startswith("{") and not _is_text_key(definition)):
        try:
            value = json.loads(text, parse_float=Decimal, object_pairs_hook=once)
        except RepeatedField as repeated:
            raise InvalidRequest(f"the key: {repeated}") from None
        except (ValueError, RecursionError):
            raise InvalidRequest(f"the key is no JSON object with a value for {', '.join(definition.key)}") from None
    else:
        value = typed(text, definition.columns.field(definition.key[0]).type)
    shaped = _shaped(value, definition, None)
    return table_of(Body([shaped], lambda index: "the key", lambda: [shaped]), definition.select(definition.key))


def bound(idempotency_key: str | None, caller: Caller, operation: str, body: bytes) -> BoundId | None:
    """The key of a write, bound to the token, to what is done and to the bytes that were sent. The table is that whose
    log remembers it.
    """
    if idempotency_key is None:
        return None
    digest = blake2b(digest_size=8, person=b"lithify write")
    for part in (caller.token.id.encode(), operation.encode(), body):
        digest.update(len(part).to_bytes(8, "little") + part)
    return BoundId(idempotency_key, int.from_bytes(digest.digest(), "little") >> 1)


def exact_keys(body: bytes) -> Sequence[Any]:
    """`keys` of a request, its numbers with all digits. It has been read once before."""
    found: Sequence[Any] = json.loads(body, parse_float=Decimal)["keys"]
    return found


def exact_at(body: bytes, refused: Collection[int], definition: TableSchema) -> Any:
    """`at` of a request, as the table spells it: a place for all keys, or one for each that was not refused."""
    document = json.loads(body, parse_float=Decimal)
    at, order = document["at"], definition.order_columns
    if not order:
        return at
    places = places_in(at, order)
    each = isinstance(places, list)
    rows = places if isinstance(places, list) else [places]
    if each:
        check_count(rows, len(document["keys"]))
        rows = [place for index, place in enumerate(rows) if index not in refused]
    columns = nullable(definition.select(order))
    found = table_of(Body(rows, lambda index: f"at {index}" if each else "at", lambda: rows), columns)
    if len(order) == 1:
        return found.column(0) if each else found.column(0)[0]
    return found if each else found.to_pylist()[0]


def _is_text_key(definition: TableSchema) -> bool:
    return len(definition.key) == 1 and type_of(definition.columns.field(definition.key[0]).type).is_text


def _refuse(refused: list[Refused], one: Refused) -> None:
    refused.append(one)
    if len(refused) > REFUSED_MAX:
        raise InvalidRequest(f"more than {REFUSED_MAX:,} keys are not accepted, among them: {one.error.public}")


def _shaped(value: Any, definition: TableSchema, first: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A mapping of exactly the right columns, whatever their values."""
    key = definition.key
    if not isinstance(value, Mapping):
        if not key:
            raise InvalidRequest('the table has no key: say which columns to delete by, like {"user_id": 7}')
        given = value if isinstance(value, list) else [value]
        if len(given) != len(key):
            raise InvalidRequest(f"the key has {len(key)} columns ({', '.join(key)}), not {len(given)}")
        return dict(zip(key, given, strict=True))
    allowed = key or definition.names
    if unknown := next((name for name in value if name not in allowed), None):
        raise InvalidRequest(f"{unknown[:NAME_SHOWN_MAX]!r} is no key column: keys take {', '.join(allowed)}")
    if missing := [name for name in key if name not in value]:
        raise InvalidRequest(f"{', '.join(map(repr, missing))} is missing: give every key column")
    if not value:
        raise InvalidRequest("it names no column")
    if not key and first is not None and set(first) != set(value):
        raise InvalidRequest(f"all keys of one request go by the same columns ({', '.join(first)})")
    return value


def _table(
    part: Sequence[tuple[int, Mapping[str, Any]]], definition: TableSchema, exact: Callable[[], Sequence[Any]]
) -> pa.Table:
    def again() -> list[Any]:
        values = exact()
        return [_shaped(values[index], definition, None) for index, _ in part]

    columns = definition.select(definition.key) if definition.keyed else definition.columns
    body = Body([value for _, value in part], lambda at: f"key {part[at][0]}", again)
    return keys_of(table_of(body, columns), definition)
