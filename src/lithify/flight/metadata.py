"""What tools ask about a database before they query it, as the tables that Flight SQL defines for it. Pure.

A lake is one catalog, namespaces are its schemas. Only tables that the caller may read are told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lithify.core.names import CATALOG, TableName

TABLE = "TABLE"


@dataclass(frozen=True)
class Described:
    columns: pa.Schema
    key: tuple[str, ...]


# How a table is described; asked for those only that are told.
Describe = Callable[[TableName], Described]


def _needed(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_text = pa.string()
CATALOGS = pa.schema([_needed("catalog_name", _text)])
SCHEMAS = pa.schema([("catalog_name", _text), _needed("db_schema_name", _text)])
TABLE_TYPES = pa.schema([_needed("table_type", _text)])
TABLES = pa.schema(
    [("catalog_name", _text), ("db_schema_name", _text), _needed("table_name", _text), _needed("table_type", _text)]
)
TABLES_WITH_SCHEMA = TABLES.append(_needed("table_schema", pa.binary()))
PRIMARY_KEYS = pa.schema(
    [
        ("catalog_name", _text),
        ("db_schema_name", _text),
        _needed("table_name", _text),
        _needed("column_name", _text),
        _needed("key_sequence", pa.int32()),
        ("key_name", _text),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        ("pk_catalog_name", _text),
        ("pk_db_schema_name", _text),
        _needed("pk_table_name", _text),
        _needed("pk_column_name", _text),
        ("fk_catalog_name", _text),
        ("fk_db_schema_name", _text),
        _needed("fk_table_name", _text),
        _needed("fk_column_name", _text),
        _needed("key_sequence", pa.int32()),
        ("fk_key_name", _text),
        ("pk_key_name", _text),
        _needed("update_rule", pa.uint8()),
        _needed("delete_rule", pa.uint8()),
    ]
)
TYPES = pa.schema(
    [
        _needed("type_name", _text),
        _needed("data_type", pa.int32()),
        ("column_size", pa.int32()),
        ("literal_prefix", _text),
        ("literal_suffix", _text),
        ("create_params", pa.list_(_needed("item", _text))),
        _needed("nullable", pa.int32()),
        _needed("case_sensitive", pa.bool_()),
        _needed("searchable", pa.int32()),
        ("unsigned_attribute", pa.bool_()),
        _needed("fixed_prec_scale", pa.bool_()),
        ("auto_increment", pa.bool_()),
        ("local_type_name", _text),
        ("minimum_scale", pa.int32()),
        ("maximum_scale", pa.int32()),
        _needed("sql_data_type", pa.int32()),
        ("datetime_subcode", pa.int32()),
        ("num_prec_radix", pa.int32()),
        ("interval_precision", pa.int32()),
    ]
)
# Name of the type, its number in ODBC and JDBC, digits or characters, and what stands around a literal.
_TYPES: tuple[tuple[str, int, int | None, str | None], ...] = (
    ("boolean", -7, 1, None),
    ("tinyint", -6, 3, None),
    ("bigint", -5, 19, None),
    ("varbinary", -3, None, "X'"),
    ("decimal", 3, 38, None),
    ("integer", 4, 10, None),
    ("smallint", 5, 5, None),
    ("float", 7, 7, None),
    ("double", 8, 15, None),
    ("varchar", 12, None, "'"),
    ("date", 91, 10, "DATE '"),
    ("timestamp", 93, 26, "TIMESTAMP '"),
)
_NULLABLE, _SEARCHABLE, _EQUAL_ONLY = 1, 3, 2
_DATE, _TIMESTAMP, _DATETIME = 91, 93, 9


def catalogs() -> pa.Table:
    return pa.table({"catalog_name": [CATALOG]}, schema=CATALOGS)


def schemas(names: Iterable[TableName], catalog: str | None, pattern: str | None) -> pa.Table:
    fits = like(pattern)
    found = sorted({name.namespace for name in names if _is_ours(catalog) and fits(name.namespace)})
    return pa.table({"catalog_name": [CATALOG] * len(found), "db_schema_name": found}, schema=SCHEMAS)


def tables(
    names: Iterable[TableName],
    catalog: str | None,
    namespaces: str | None,
    pattern: str | None,
    types: Sequence[str],
    describe: Describe | None,
) -> pa.Table:
    """With `describe`, their columns too."""
    in_namespace, fits = like(namespaces), like(pattern)
    found = [
        name
        for name in sorted(names, key=lambda name: (name.namespace, name.table))
        if _is_ours(catalog) and (not types or TABLE in types) and in_namespace(name.namespace) and fits(name.table)
    ]
    columns: dict[str, list[Any]] = {
        "catalog_name": [CATALOG] * len(found),
        "db_schema_name": [name.namespace for name in found],
        "table_name": [name.table for name in found],
        "table_type": [TABLE] * len(found),
    }
    if describe is None:
        return pa.table(columns, schema=TABLES)
    columns["table_schema"] = [describe(name).columns.serialize().to_pybytes() for name in found]
    return pa.table(columns, schema=TABLES_WITH_SCHEMA)


def table_types() -> pa.Table:
    return pa.table({"table_type": [TABLE]}, schema=TABLE_TYPES)


def primary_keys(
    names: Iterable[TableName], catalog: str | None, namespace: str | None, table: str, describe: Describe
) -> pa.Table:
    rows = [
        {
            "catalog_name": CATALOG,
            "db_schema_name": name.namespace,
            "table_name": name.table,
            "column_name": column,
            "key_sequence": number,
            "key_name": None,
        }
        for name in names
        if _is_ours(catalog) and namespace in (None, name.namespace) and table == name.table
        for number, column in enumerate(describe(name).key, 1)
    ]
    return pa.Table.from_pylist(rows, PRIMARY_KEYS)


def foreign_keys() -> pa.Table:
    return FOREIGN_KEYS.empty_table()


def types(number: int | None) -> pa.Table:
    rows = [
        {
            "type_name": name,
            "data_type": code,
            "column_size": size,
            "literal_prefix": quote,
            "literal_suffix": "'" if quote else None,
            "nullable": _NULLABLE,
            "case_sensitive": name == "varchar",
            "searchable": _SEARCHABLE if name != "varbinary" else _EQUAL_ONLY,
            "unsigned_attribute": False if size and not quote and name != "boolean" else None,
            "fixed_prec_scale": False,
            "auto_increment": False,
            "local_type_name": name,
            "minimum_scale": 0 if name == "decimal" else None,
            "maximum_scale": 38 if name == "decimal" else None,
            "sql_data_type": _DATETIME if code in (_DATE, _TIMESTAMP) else code,
            "datetime_subcode": {_DATE: 1, _TIMESTAMP: 3}.get(code),
            "num_prec_radix": 10 if size and not quote and name != "boolean" else None,
        }
        for name, code, size, quote in _TYPES
        if number in (None, code)
    ]
    return pa.Table.from_pylist(rows, TYPES)


# -- what the server is


_STRINGS, _LISTS = pa.list_(pa.string()), pa.map_(pa.int32(), pa.list_(pa.int32()))
_VALUES = ("string_value", "bool_value", "bigint_value", "int32_bitmask", "string_list", "int32_to_int32_list_map")
_VALUE_TYPES = (pa.string(), pa.bool_(), pa.int64(), pa.int32(), _STRINGS, _LISTS)
_NO_TRANSACTIONS, _LOWER_CASE = 0, 3


def facts(version: str) -> Mapping[int, str | bool | int | list[str]]:
    """By the numbers that Flight SQL gives them."""
    return {
        0: "Lithify",
        1: version,
        2: pa.__version__,
        3: True,  # read only
        4: True,  # SQL
        5: False,  # Substrait
        8: _NO_TRANSACTIONS,
        9: True,  # queries can be cancelled
        500: False,  # no CREATE of catalogs,
        501: False,  # schemas
        502: False,  # or tables
        503: _LOWER_CASE,
        504: '"',
        506: True,  # all tables that are told can be read
    }


def server_info(version: str, asked: Sequence[int]) -> pa.Table:
    known = facts(version)
    found = {number: value for number, value in known.items() if not asked or number in asked}
    children: list[list[Any]] = [[] for _ in _VALUES]
    codes, offsets = [], []
    for value in found.values():
        code = _code(value)
        codes.append(code)
        offsets.append(len(children[code]))
        children[code].append(value)
    union = pa.UnionArray.from_dense(
        pa.array(codes, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(values, kind) for values, kind in zip(children, _VALUE_TYPES, strict=True)],
        list(_VALUES),
    )
    schema = pa.schema([_needed("info_name", pa.uint32()), pa.field("value", union.type, nullable=False)])
    return pa.Table.from_arrays([pa.array(list(found), pa.uint32()), union], schema=schema)


def _code(value: object) -> int:
    match value:
        case str():
            return 0
        case bool():
            return 1
        case int():
            return 3
    raise AssertionError(f"no value of this kind is told: {type(value).__name__}")


# -- names


def _is_ours(catalog: str | None) -> bool:
    """An empty name asks for tables without a catalog, of which there are none."""
    return catalog in (None, CATALOG)


def like(pattern: str | None) -> Callable[[str], bool]:
    """Whether a name fits a pattern: % for any text, _ for a character, a backslash before those that are meant."""
    if pattern is None:
        return lambda name: True
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    spelled = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    return lambda name: re.fullmatch(spelled, name, re.DOTALL) is not None
