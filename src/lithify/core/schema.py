"""What a table looks like: its columns and the few settings that decide how rows are told apart.

Arrow schemas come in many spellings of the same thing (large_string, dictionary, nanoseconds). `normalise` maps
them to the one spelling that Delta, Spark and DataFusion agree on; everything after that compares types exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from lithify.core.column_defaults import checked_defaults, read_defaults, scalars, stored_defaults
from lithify.core.column_types import Family, type_of
from lithify.core.expiry import Expiry, expiry_of
from lithify.core.merge_rules import Rule, checked_rules, parse_rule, read_rules, stored_rules
from lithify.core.names import DAY, OP, SEQ, check_column_name
from lithify.core.order_groups import checked_groups, group_rules, read_groups, stored_groups
from lithify.core.type_text import type_name
from lithify.errors import Conflict, Corruption, InvalidRequest
from lithify.options.expiry_text import EXPIRES
from lithify.options.table_options import BEFORE, DEFAULTS, MISSING_COLUMNS, PREFIX, chosen_one, effective

# What a table says when it is created, and the newest that is understood: 2 has lines that give some columns alone, 3
# has rows that expire, 4 merge rules, 5 deletes that have an order value, 6 columns that were renamed, dropped or
# widened, 7 several columns that tell what is newer, 8 groups of columns that have an order of their own, 9 columns
# with a default, in whose place a Lithify before would write null, and fields of structs that changed.
FORMAT, FORMAT_MAX = 1, 9
FORMAT_PROPERTY = "lithify.format"
PARTIAL_FORMAT, EXPIRY_FORMAT, RULES_FORMAT, ORDERED_DELETES_FORMAT, COLUMNS_FORMAT = 2, 3, 4, 5, 6
SEVERAL_ORDER_FORMAT, ORDER_GROUPS_FORMAT, DEFAULTS_FORMAT, FIELDS_FORMAT = 7, 8, 9, 9
RULES_PROPERTY, GROUPS_PROPERTY = "lithify.merge_rules", "lithify.order_groups"
# One column is kept by its name, as ever; several as a list, which a Lithify that knows one does not look for.
ORDER_PROPERTY, SEVERAL_ORDER_PROPERTY = "lithify.order_by", "lithify.order_columns"
# How often the columns have changed (of both logs), what those changes were (of changes), which one base is ahead by,
# and names that files may still hold of columns that were dropped.
GENERATION, COLUMN_HISTORY, COLUMN_CHANGE = "lithify.generation", "lithify.column_history", "lithify.column_change"
DROPPED_COLUMNS = "lithify.dropped_columns"
DEFAULTS_PROPERTY = "lithify.column_defaults"
# Properties that the log keeps for itself: facts about the table's life, nothing that a user sets.
BOOKKEEPING = frozenset(
    {
        "lithify.created_at_seq",
        "lithify.created_at_version",
        "lithify.dropped",
        "lithify.claimed",
        GENERATION,
        COLUMN_HISTORY,
        COLUMN_CHANGE,
        DROPPED_COLUMNS,
    }
)
_FIXED: dict[pa.DataType, pa.DataType] = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int8(),
    pa.int16(): pa.int16(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
}


@dataclass(frozen=True)
class TableSchema:
    """Columns plus key, order_by, time and partition_by. Immutable and comparable.

    `order_by` is one name, or several, in the order in which they decide; `order_columns` has them in one form.
    `settings` are the table's own properties; `defaults` the lake's values for options that it does not set;
    `merge_rules` the rules of columns that have one (`core/merge_rules.py`); `order_groups` the columns that go by an
    order of their own, by their order column (`core/order_groups.py`).
    `column_defaults`: defaults of columns, as JSON spells them (`core/column_defaults.py`).
    `generation`: how often columns were renamed, dropped or otherwise changed; an added one does not count.
    """

    columns: pa.Schema
    key: tuple[str, ...] = ()
    order_by: str | tuple[str, ...] | None = None
    time: str | None = None
    partition_by: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    merge_rules: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    order_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    column_defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def order_columns(self) -> tuple[str, ...]:
        """What tells which version of a row is newer: the first of them, of equal ones the next."""
        return _names(self.order_by, "order_by")

    @property
    def order_json(self) -> str | list[str] | None:
        """order_by as JSON spells it."""
        return list(self.order_by) if isinstance(self.order_by, tuple) else self.order_by

    def has_places(self, names: Iterable[str]) -> bool:
        """Whether rows with these columns tell which of them is newer."""
        return bool(self.order_columns) and set(self.order_columns) <= set(names)

    @cached_property
    def place_columns(self) -> pa.Schema:
        """Key and order columns: what says where something stands in the order of its key. A delete may lack what comes
        behind the first order column.
        """
        later = [self.columns.field(name).with_nullable(True) for name in self.order_columns[1:]]
        return pa.schema([*self.select([*self.key, *self.order_columns[:1]]), *later])

    @cached_property
    def rules(self) -> dict[str, Rule]:
        """Merge rules of those columns that have one, those of order groups among them."""
        said = {name: parse_rule(text, name) for name, text in self.merge_rules.items()}
        return {**said, **group_rules(self.order_groups)}

    @cached_property
    def default_values(self) -> dict[str, pa.Scalar]:
        """Defaults of columns, in their types."""
        return scalars(self.column_defaults, self.columns)

    @property
    def adds_up(self) -> bool:
        """Whether a line that is applied twice counts twice."""
        return bool(self.merge_rules)

    @property
    def rules_name(self) -> str:
        """What its rules are called by whoever declared them."""
        return "merge rules" if self.merge_rules else "order groups"

    @property
    def deciding_columns(self) -> tuple[str, ...]:
        """What has to be known of a row, besides its key, to tell what a line does to it."""
        return (*self.order_columns, *self.order_groups)

    def has_columns_of(self, other: TableSchema) -> bool:
        """The same names and types, and the same columns: one that was dropped and added again is another."""
        return self.generation == other.generation and bool(self.columns == other.columns)

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """Every table option with the value that holds for this table."""
        return effective(self.settings, self.defaults)

    @cached_property
    def missing_columns(self) -> str:
        """What becomes of rows that lack a column: refuse, or null."""
        known = DEFAULTS if PREFIX + MISSING_COLUMNS in self.settings else BEFORE
        return str(chosen_one(MISSING_COLUMNS, self.settings) or known[MISSING_COLUMNS])

    @cached_property
    def sort_columns(self) -> tuple[str, ...]:
        """What the rows of a compacted file are sorted by. Partition columns are the same in all of them."""
        chosen = self.options["sort_by"]
        names = (self.key or tuple(filter(None, (self.time,)))) if chosen is None else chosen
        return tuple(name for name in names if name not in self.partition_by)

    @cached_property
    def expiry(self) -> Expiry | None:
        """When rows expire. What is declared and not understood here is refused: rows that are gone would show."""
        text = self.settings.get(PREFIX + EXPIRES, "")
        return expiry_of(text, self.columns) if text else None

    @property
    def keyed(self) -> bool:
        return bool(self.key)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Partition columns of base, in order."""
        return ((DAY,) if self.time else ()) + self.partition_by

    @property
    def names(self) -> list[str]:
        return list(self.columns.names)

    @property
    def fingerprint(self) -> str:
        """A short text that changes with the columns (names, order, types, nullability) and the key, and with nothing
        else: the same in every process and version.
        """
        columns = [[f.name, type_name(f.type), f.nullable] for f in self.columns]
        text = json.dumps({"columns": columns, "key": list(self.key)}, separators=(",", ":"), ensure_ascii=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def check_fingerprint(self, given: str | None, table: str) -> None:
        """Refuse a write that was made for another schema than this one."""
        if given is None:
            return
        if not isinstance(given, str):
            raise InvalidRequest(f"a schema fingerprint is a text of `describe`, not {type(given).__name__}")
        if given != self.fingerprint:
            raise Conflict(
                f"table {table} has the schema {self.fingerprint}, and this write was made for {given[:64]!r}; nothing "
                "was written: look at the columns (describe), make the rows fit, and send the new fingerprint",
                schema_fingerprint=self.fingerprint,
            )

    def select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])

    @property
    def changes_columns(self) -> pa.Schema:
        """The changes log's columns: everything nullable, because a tombstone holds key columns only."""
        user = [pa.field(f.name, f.type) for f in self.columns]
        return pa.schema([*user, pa.field(SEQ, pa.int64()), pa.field(OP, pa.string())])

    @property
    def base_columns(self) -> pa.Schema:
        return self.columns.append(pa.field(DAY, pa.date32())) if self.time else self.columns

    @property
    def _format(self) -> int:
        """What a Lithify has to know to read a table as it is created."""
        several = SEVERAL_ORDER_FORMAT if len(self.order_columns) > 1 else FORMAT
        rules = RULES_FORMAT if self.merge_rules else FORMAT
        groups = ORDER_GROUPS_FORMAT if self.order_groups else FORMAT
        return max(several, rules, groups, DEFAULTS_FORMAT if self.column_defaults else FORMAT)

    def properties(self) -> dict[str, str]:
        settings = {
            FORMAT_PROPERTY: str(self._format),
            "lithify.key": json.dumps(list(self.key)),
            "lithify.partition_by": json.dumps(list(self.partition_by)),
            # Field order and nullability of the user's columns, which the changes log relaxes.
            "lithify.required": json.dumps([f.name for f in self.columns if not f.nullable]),
        }
        if len(self.order_columns) > 1:
            settings[SEVERAL_ORDER_PROPERTY] = json.dumps(list(self.order_columns))
        elif self.order_columns:
            settings[ORDER_PROPERTY] = self.order_columns[0]
        if self.time:
            settings["lithify.time"] = self.time
        if self.merge_rules:
            settings[RULES_PROPERTY] = stored_rules(self.merge_rules)
        if self.order_groups:
            settings[GROUPS_PROPERTY] = stored_groups(self.order_groups)
        if self.column_defaults:
            settings[DEFAULTS_PROPERTY] = stored_defaults(self.column_defaults)
        return settings | dict(self.settings)

    def with_column(self, column: pa.Field) -> TableSchema:
        return replace(self, columns=self.columns.append(column))


def from_properties(columns: pa.Schema, properties: Mapping[str, str], where: str) -> TableSchema:
    """Rebuild from the changes log's own columns and properties."""
    if int(properties.get(FORMAT_PROPERTY, "0")) > FORMAT_MAX:
        raise InvalidRequest(
            f"{where} was written by a newer Lithify (table format {properties[FORMAT_PROPERTY]}): upgrade lithify"
        )
    try:
        required = set(json.loads(properties["lithify.required"]))
        key = tuple(json.loads(properties["lithify.key"]))
        partition_by = tuple(json.loads(properties["lithify.partition_by"]))
        several = tuple(json.loads(properties.get(SEVERAL_ORDER_PROPERTY, "[]")))
    except (KeyError, ValueError) as error:
        raise Corruption(f"{where} has no readable lithify.* table properties: is it a Lithify table?") from error
    user = [pa.field(f.name, f.type, f.name not in required) for f in columns if f.name not in (SEQ, OP)]
    known = {
        FORMAT_PROPERTY,
        "lithify.required",
        "lithify.key",
        "lithify.partition_by",
        ORDER_PROPERTY,
        SEVERAL_ORDER_PROPERTY,
        "lithify.time",
        RULES_PROPERTY,
        GROUPS_PROPERTY,
        DEFAULTS_PROPERTY,
    }
    return TableSchema(
        pa.schema(user),
        key,
        several or properties.get(ORDER_PROPERTY),
        properties.get("lithify.time"),
        partition_by,
        {k: v for k, v in properties.items() if k.startswith("lithify.") and k not in known | BOOKKEEPING},
        merge_rules=read_rules(properties.get(RULES_PROPERTY), where),
        generation=int(properties.get(GENERATION, "0")),
        order_groups=read_groups(properties.get(GROUPS_PROPERTY), where),
        column_defaults=read_defaults(properties.get(DEFAULTS_PROPERTY), pa.schema(user), where),
    )


def define(
    columns: pa.Schema,
    key: str | Iterable[str] | None = None,
    order_by: str | Iterable[str] | None = None,
    time: str | None = None,
    partition_by: str | Iterable[str] = (),
    merge_rules: Mapping[str, str] | None = None,
    order_groups: Mapping[str, str | Iterable[str]] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> TableSchema:
    """Check a user's wishes and turn them into a TableSchema."""
    if not len(columns):
        raise InvalidRequest("a table needs at least one column")
    seen: dict[str, str] = {}
    fields: list[pa.Field] = []
    keys = _names(key, "key")
    for column in columns:
        check_column_name(column.name)
        if (other := seen.get(column.name.lower())) is not None:
            raise InvalidRequest(f"columns {other!r} and {column.name!r} differ only in case or not at all: rename one")
        seen[column.name.lower()] = column.name
        fields.append(
            pa.field(column.name, normalise(column.type, column.name), column.nullable and column.name not in keys)
        )
    schema = pa.schema(fields)
    partitions = _names(partition_by, "partition_by")
    if time is not None and not isinstance(time, str):
        raise InvalidRequest(f"time is the name of a column, not {type(time).__name__}")
    orders = _names(order_by, "order_by")
    roles = {
        "key": keys,
        "order_by": orders,
        "time": _names(time, "time"),
        "partition_by": partitions,
    }
    for role, names in roles.items():
        for name in names:
            if name not in schema.names:
                raise InvalidRequest(f"{role} column {name!r} is not in the schema: it has {', '.join(schema.names)}")
        if len(set(names)) < len(names):
            raise InvalidRequest(f"{role} names a column twice: {', '.join(names)}")
    for name in keys:
        check_key_type(schema.field(name), "key")
    if orders and not keys:
        raise InvalidRequest("order_by chooses between versions of a key: give the table a key, or leave order_by out")
    for name in orders:
        if name in keys:
            raise InvalidRequest(
                f"order_by column {name!r} is part of the key: two versions of a key could never differ in it"
            )
        check_key_type(schema.field(name), "order_by")
    if time and type_of(schema.field(time).type).family not in (Family.TIMESTAMP, Family.DATE):
        raise InvalidRequest(f"time column {time!r} is {schema.field(time).type}: it must be a timestamp or a date")
    for name in partitions:
        check_key_type(schema.field(name), "partition_by")
        if type_of(schema.field(name).type).family is Family.BINARY:
            raise InvalidRequest(f"partition_by column {name!r} is binary: partition by text, numbers or dates")
    rules = checked_rules(merge_rules, schema, roles)
    groups = checked_groups(order_groups, schema, roles, rules)
    for name in groups:
        check_key_type(schema.field(name), "order_groups")
    grouped = (name for order, names in groups.items() for name in (order, *names))
    return TableSchema(
        schema,
        keys,
        one_or_several(orders),
        time,
        partitions,
        merge_rules=rules,
        order_groups=groups,
        column_defaults=checked_defaults(defaults, schema, roles, [*rules, *grouped]),
    )


def one_or_several(names: Sequence[str]) -> str | tuple[str, ...] | None:
    """Order columns as a definition says them: a single one by its name."""
    return tuple(names) if len(names) > 1 else names[0] if names else None


def check_key_type(column: pa.Field, role: str) -> None:
    match type_of(column.type).family:
        case Family.FLOAT:
            raise InvalidRequest(
                f"{role} column {column.name!r} is floating point ({column.type}), which has no reliable equality: "
                "use an integer, decimal or text"
            )
        case Family.NESTED:
            raise InvalidRequest(
                f"{role} column {column.name!r} is {column.type}: only plain values can be compared, not lists, "
                "structs or maps"
            )


def normalise(kind: pa.DataType, where: str) -> pa.DataType:
    """The one spelling of a type that Delta, Spark, DataFusion and Parquet share."""
    if (fixed := _FIXED.get(kind)) is not None:
        return fixed
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_decimal(kind):
        if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
            raise InvalidRequest(
                f"column {where!r}: {kind} does not fit a Delta decimal (precision up to 38, scale from 0 to the "
                "precision)"
            )
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_dictionary(kind):
        return normalise(kind.value_type, where)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        inner = kind.value_field
        return pa.list_(pa.field("element", normalise(inner.type, f"{where}[]"), inner.nullable))
    if types.is_struct(kind):
        if not kind.num_fields:
            raise InvalidRequest(f"column {where!r} is a struct with no fields: give it one, or drop it")
        names = [field.name.lower() for field in kind]
        if twice := next((field.name for field in kind if names.count(field.name.lower()) > 1), None):
            raise InvalidRequest(
                f"column {where!r} is a struct with two fields {twice!r}, which differ only in case or not at all: "
                "rename one"
            )
        return pa.struct([pa.field(f.name, normalise(f.type, f"{where}.{f.name}"), f.nullable) for f in kind])
    if types.is_map(kind):
        return pa.map_(
            normalise(kind.key_type, f"{where}.key"),
            pa.field("value", normalise(kind.item_type, f"{where}.value"), kind.item_field.nullable),
        )
    if kind == pa.uint64():
        raise InvalidRequest(f"column {where!r} is uint64, which Delta does not have: use int64 or decimal(20, 0)")
    raise InvalidRequest(
        f"column {where!r} has type {kind}, which Delta does not have: cast it to a supported type first"
    )


def _names(value: Any, what: str) -> tuple[str, ...]:
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest(f"{what} is the name of a column, or a list of names, not {type(value).__name__}")
    return names


def nullable(columns: pa.Schema) -> pa.Schema:
    """The same columns as files are read: what a file holds is not known before."""
    return pa.schema([f.with_nullable(True) for f in columns])
