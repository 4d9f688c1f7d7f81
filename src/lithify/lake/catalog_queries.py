"""DESCRIBE and SHOW: questions about tables, answered from what their logs say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.names import parse_table_name
from lithify.core.sql_text import Token, positioned_tokens
from lithify.core.type_text import type_name
from lithify.errors import Forbidden, InvalidRequest
from lithify.read.history import history_of
from lithify.sql.isolated.cage import MayRead
from lithify.sql.statements.first_word import first_word

if TYPE_CHECKING:
    from lithify.lake.internals import LakeInternals

HISTORY_ROWS = 100
_KNOWN = "SHOW TABLES [FROM namespace], SHOW COLUMNS FROM table, SHOW HISTORY FROM table [LIMIT n], DESCRIBE table"


def catalog_answer(lake: LakeInternals, query: str, may_read: MayRead | None = None) -> pa.Table | None:
    """None for a text that is no such question."""
    if first_word(query) not in ("describe", "desc", "show"):
        return None
    tokens = positioned_tokens(query)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        raise InvalidRequest(f"this is not known: {_KNOWN}")
    words = [token.word for token in tokens]
    if words[0] != "show":
        return _columns(lake, _name(tokens[2 if words[1:2] == ["table"] else 1 :]), may_read)
    match words[1:]:
        case ["tables"]:
            return _tables(lake, None, may_read)
        case ["tables", "from" | "in", namespace]:
            return _tables(lake, namespace, may_read)
        case ["columns", "from" | "in", _, *_]:
            return _columns(lake, _name(tokens[3:]), may_read)
        case ["history", "from" | "in" | "for", _, *_]:
            limit = HISTORY_ROWS
            if len(words) > 5 and words[-2] == "limit" and words[-1].isdecimal():
                limit, tokens = int(words[-1]), tokens[:-2]
            return _history(lake, _name(tokens[3:]), limit, may_read)
    raise InvalidRequest(f"this is not known: {_KNOWN}")


def _name(tokens: list[Token]) -> str:
    """Words with dots between them."""
    if any((token.text == ".") is (number % 2 == 0) for number, token in enumerate(tokens)):
        raise InvalidRequest(f"this is not known: {_KNOWN}")
    parts = (token.text[1:-1] if token.kind == "quoted" else token.word for token in tokens)
    return str(parse_table_name("".join(parts)))


def _check(name: str, may_read: MayRead | None) -> None:
    if may_read is not None and not may_read(name):
        raise Forbidden(f"this token may not read table {name}: use one that may", table=name)


def _tables(lake: LakeInternals, namespace: str | None, may_read: MayRead | None) -> pa.Table:
    names = [
        name
        for name in lake.catalog.tables()
        if namespace in (None, name.namespace) and (may_read is None or may_read(str(name)))
    ]
    parts = {"namespace": [name.namespace for name in names], "table": [name.table for name in names]}
    return pa.table(parts, schema=pa.schema([("namespace", pa.string()), ("table", pa.string())]))


def _columns(lake: LakeInternals, name: str, may_read: MayRead | None) -> pa.Table:
    _check(name, may_read)
    schema = lake.table(name).handles.schema()
    roles = {
        **{name: str(rule) for name, rule in schema.rules.items()},
        **dict.fromkeys(schema.partition_by, "partition_by"),
        **{column: "time" for column in [schema.time] if column},
        **dict.fromkeys(schema.order_columns, "order_by"),
        **dict.fromkeys(schema.key, "key"),
    }
    rows = [
        {"column": f.name, "type": type_name(f.type), "nullable": f.nullable, "role": roles.get(f.name)}
        for f in schema.columns
    ]
    kinds = [("column", pa.string()), ("type", pa.string()), ("nullable", pa.bool_()), ("role", pa.string())]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _history(lake: LakeInternals, name: str, limit: int, may_read: MayRead | None) -> pa.Table:
    _check(name, may_read)
    entries = history_of(lake.table(name).handles, limit)
    kinds = [
        *(("time", pa.timestamp("us", "UTC")), ("operation", pa.string()), ("seq", pa.int64()), ("rows", pa.int64())),
        *(("actor", pa.string()), ("reason", pa.string()), ("batch_id", pa.string()), ("detail", pa.string())),
    ]
    rows = [{column: getattr(entry, column) for column, _ in kinds} for entry in entries]
    return pa.Table.from_pylist(rows, pa.schema(kinds))
