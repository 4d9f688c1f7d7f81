"""Statements about tables: each does what the method of the lake or the table does.

CREATE TABLE … AS reads its rows first; the commit by which the table comes into being holds them, so that nobody sees
it without, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.column_changes import ColumnChange
from lithify.core.column_defaults import default_of
from lithify.core.merge_rules import rules_in
from lithify.core.names import TableName, parse_table_name
from lithify.core.order_groups import groups_in
from lithify.core.results import Executed
from lithify.core.rows import check_rows, conform
from lithify.core.schema import TableSchema, define, normalise
from lithify.core.struct_fields import has_column
from lithify.core.type_text import parse_type, type_name
from lithify.dml.assign import constant_of, first_double, shown_key
from lithify.dml.attempt import Reading, bounded
from lithify.errors import Conflict, InvalidRequest
from lithify.lake.columns import add_column, change_column
from lithify.sql.statements.model import AddColumn, AlterColumn, Column, CreateTable, DropTable, SetOptions, Value
from lithify.write.conditions import Write
from lithify.write.first_write import FirstWrite
from lithify.write.options import set_options

if TYPE_CHECKING:
    from lithify.lake.internals import LakeInternals

_ROLES = ("key", "order_by", "time", "partition_by")


def define_by(
    lake: LakeInternals,
    statement: CreateTable | AddColumn | AlterColumn | SetOptions | DropTable,
    reading: Reading,
    info: Mapping[str, Any],
) -> Executed:
    name = parse_table_name(statement.name)
    match statement:
        case CreateTable(source=None):
            defaults = {column.name: _default(column) for column in statement.columns if column.default is not None}
            columns = pa.schema([_field(column) for column in statement.columns])
            _create(lake, name, statement, columns, defaults)
            return Executed("create table", str(name), _seq(lake, name))
        case CreateTable():
            return _create_as(lake, name, statement, reading, info)
        case AddColumn():
            table = lake.table(statement.name)
            if not statement.if_not_exists or not has_column(table.handles.schema().columns, statement.column.name):
                add_column(table, _field(statement.column), _default(statement.column))
            return Executed("alter table", str(name), _seq(lake, name))
        case AlterColumn():
            table = lake.table(statement.name)
            if statement.if_exists and not has_column(table.handles.schema().columns, statement.column):
                return Executed("alter table", str(name), _seq(lake, name))
            return Executed("alter table", str(name), change_column(table, _change(statement, table.handles.schema())))
        case SetOptions():
            set_options(lake.table(statement.name).handles, _options(statement.settings))
            return Executed("alter table", str(name), _seq(lake, name))
        case DropTable():
            if statement.if_exists and not lake.catalog.exists(name):
                return Executed("drop table", str(name), 0)
            seq = _seq(lake, name)
            lake.drop(name)
            return Executed("drop table", str(name), seq)


def _create(
    lake: LakeInternals,
    name: TableName,
    statement: CreateTable,
    columns: pa.Schema,
    defaults: Mapping[str, Any] | None = None,
    first: FirstWrite | None = None,
) -> None:
    settings = dict(statement.settings)
    if len(settings) < len(statement.settings):
        raise InvalidRequest("WITH names an option twice: once is enough")
    roles = {role: settings.pop(role, None) for role in _ROLES}
    key = _names(roles["key"]) or statement.key
    if statement.key and tuple(key) != statement.key:
        raise InvalidRequest("PRIMARY KEY and WITH (key = …) name two keys: say one")
    order_by, time = _names(roles["order_by"]), _one("time", roles["time"])
    partition_by, rules = _names(roles["partition_by"]), _rules(settings.pop("merge_rules", None))
    groups = _groups(settings.pop("order_groups", None))
    definition = define(columns, key or None, order_by, time, partition_by, rules, groups, defaults)
    options = _options(tuple(settings.items()))
    if lake.catalog.create(name, definition, if_not_exists=statement.if_not_exists, options=options, first=first):
        lake.open_tables.forget(name)  # one whose folder was lost may still be open


def _create_as(
    lake: LakeInternals, name: TableName, statement: CreateTable, reading: Reading, info: Mapping[str, Any]
) -> Executed:
    assert statement.source is not None
    if (there := is_there(lake, name, statement)) is not None:
        return there
    rows = bounded(reading, statement.source, lambda ref: reading.table_of(*ref), str(name))
    return create_with(lake, name, statement, rows, info)


def is_there(lake: LakeInternals, name: TableName, statement: CreateTable) -> Executed | None:
    """The answer where the table is there already, and that is fine."""
    if not lake.catalog.exists(name):
        return None
    if statement.if_not_exists:
        return Executed("create table", str(name), _seq(lake, name))
    raise Conflict(f"table {name} is there already: drop it, or INSERT INTO {name} SELECT …")


def create_with(
    lake: LakeInternals, name: TableName, statement: CreateTable, rows: pa.Table, info: Mapping[str, Any]
) -> Executed:
    """The rows of its query, and the table, in one commit."""
    for column in rows.schema:
        if pa.types.is_null(column.type):
            raise InvalidRequest(f"column {column.name!r} is NULL in all rows and has no type: write cast(NULL AS …)")
    columns = pa.schema([pa.field(f.name, normalise(f.type, f.name)) for f in rows.schema])
    fresh = CreateTable(name=statement.name, columns=(), key=statement.key, settings=statement.settings)
    definition = _checked(fresh, columns)
    rows = conform(rows, definition.columns)
    check_rows(rows, definition)
    if definition.keyed and (twice := first_double(rows, definition.key)) is not None:
        raise Conflict(
            f"two rows of the query have the key {shown_key(twice)}; nothing was created: give each key once",
            public="two rows of the query have the same key; nothing was created: give each key once",
        )
    if not rows.num_rows:
        _create(lake, name, fresh, columns)
        return Executed("create table", str(name), _seq(lake, name))
    first = FirstWrite(lake.runtime, name, definition, rows, Write("insert", info))
    _create(lake, name, fresh, columns, first=first)
    first.tell()
    return Executed("create table", str(name), first.seq, inserted=rows.num_rows)


def _checked(statement: CreateTable, columns: pa.Schema) -> TableSchema:
    """What it would be, before there is anything of it."""
    settings = dict(statement.settings)
    key = _names(settings.get("key")) or statement.key
    return define(
        columns,
        key or None,
        _names(settings.get("order_by")),
        _one("time", settings.get("time")),
        _names(settings.get("partition_by")),
        _rules(settings.get("merge_rules")),
        _groups(settings.get("order_groups")),
    )


def _seq(lake: LakeInternals, name: TableName) -> int:
    return lake.table(str(name)).handles.snapshot().seq


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, parse_type(column.type), column.nullable)


def _default(column: Column) -> Any:
    """As it is kept."""
    if column.default is None:
        return None
    field = pa.field(column.name, normalise(parse_type(column.type), column.name))
    return default_of(constant_of(column.default, field), field)


def _change(statement: AlterColumn, schema: TableSchema) -> ColumnChange:
    to = statement.to
    if statement.default is not None and statement.column in schema.names:
        default = constant_of(statement.default, schema.columns.field(statement.column))
        return ColumnChange("default", statement.column, default=default)
    if statement.kind == "widen":
        to = type_name(normalise(parse_type(to), statement.column))
    return ColumnChange(statement.kind, statement.column, to)


def _options(settings: tuple[tuple[str, Value], ...]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings}


def _names(value: Value) -> tuple[str, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else tuple(part.strip() for part in str(value).split(","))


def _rules(value: Value) -> dict[str, str] | None:
    if value is None:
        return None
    texts = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("merge_rules is a text, or a list of them: WITH (merge_rules = 'total=sum, seen=max')")
    return rules_in(map(str, texts))


def _groups(value: Value) -> dict[str, list[str]] | None:
    if value is None:
        return None
    texts = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(
            "order_groups is a text, or a list of them: WITH (order_groups = 'price_ts=price,currency; stock_ts=stock')"
        )
    return groups_in(map(str, texts))


def _one(role: str, value: Value) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{role} is the name of one column")
    return value
