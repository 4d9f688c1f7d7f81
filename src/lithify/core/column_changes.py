"""Columns that change: what a change makes of a table's definition, and where a value of today stood in an older file.

Files are never touched by the name of a column that they do not have. A table counts the changes of its columns (its
*generation*), and each change has a seq of its own in the log. So a file of a write knows which changes came after it
by its seq alone, and each column of today is followed back through them: renamed, it has the older name there; widened,
the older type; dropped or renamed away since, what stood under its name was another column, and it is not there at all.
That is how a column that is dropped and added again never brings old values back. Fields inside of structs are followed
in the same way, by their paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from lithify.core.column_defaults import checked_defaults, default_of
from lithify.core.names import check_column_name
from lithify.core.schema import TableSchema
from lithify.core.struct_fields import path_in, spelled, with_added, with_dropped, with_fields, with_renamed
from lithify.core.type_text import parse_type, type_name
from lithify.errors import Conflict, InvalidRequest, NotFound

Kind = Literal[
    "add", "add_field", "default", "drop", "drop_field", "move", "relax", "rename", "rename_field", "require", "widen"
]
# Digits that an integer can have.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Options whose value can name columns.
_NAMING = re.compile(r"columns|sort|order|merge|rule|expire|tie")


@dataclass(frozen=True)
class ColumnChange:
    """`to`: the new name, or the new type, or the column that it comes behind ("": first). `was`: its type before.
    `inside`: the path of a field within the column (`add_field`, `rename_field`, `drop_field`).
    `seq`: of the commit that made it, once there is one. `default`: of a new column, or the new one of a column, as
    JSON spells it (`column_defaults`); None: none.
    """

    kind: Kind
    column: str
    to: str = ""
    was: str = ""
    seq: int = 0
    default: Any = None
    inside: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        return (self.column, *(self.inside.split(".") if self.inside else ()))

    @property
    def of_field(self) -> bool:
        return self.kind in ("add_field", "rename_field", "drop_field")

    def __str__(self) -> str:
        match self.kind:
            case "rename":
                return f"{self.column} is called {self.to}"
            case "widen":
                return f"{self.column} is {self.to}, was {self.was}"
            case "move":
                return f"{self.column} comes after {self.to}" if self.to else f"{self.column} comes first"
            case "relax":
                return f"{self.column} may be null"
            case "require":
                return f"{self.column} may not be null"
            case "rename_field":
                return f"{self.column}.{self.inside} is called {self.to}"
            case "add_field":
                return f"{self.column}.{self.inside} {self.to} is new"
            case "drop_field":
                return f"{self.column}.{self.inside} is gone"
            case "add":
                return f"{self.column} {self.to} is new"
            case "default" if self.default is None:
                return f"{self.column} has no default"
            case "default":
                return f"{self.column} has a default"
        return f"{self.column} is gone"

    @property
    def rewrites(self) -> bool:
        """Whether files have to be written anew before they can be read under the new columns."""
        return self.kind in ("rename", "widen", "add") or self.of_field

    def document(self) -> dict[str, Any]:
        said = {name: value for name, value in asdict(self).items() if value}
        return said if self.default is None else {**said, "default": self.default}


def history_of(text: str | None) -> tuple[ColumnChange, ...]:
    """The changes that a log says its table has been through, oldest first."""
    return tuple(ColumnChange(**said) for said in json.loads(text)) if text else ()


def history_text(changes: Iterable[ColumnChange]) -> str:
    return json.dumps([change.document() for change in changes], separators=(",", ":"))


# -- what a change makes of a table


def changed(schema: TableSchema, change: ColumnChange, table: str) -> TableSchema:
    """The definition after the change, or a refusal that says why."""
    columns, defaults = schema.columns, dict(schema.column_defaults)
    if change.kind == "add":
        check_column_name(change.column)
        _check_free(schema, change.column, table)
        column = pa.field(change.column, parse_type(change.to))
        if change.default is not None:
            defaults[column.name] = default_of(change.default, column)
        return replace(schema, columns=columns.append(column), column_defaults=defaults)
    field = _field(schema, change.column, table)
    at = columns.get_field_index(field.name)
    match change.kind:
        case "rename":
            _check_no_role(schema, field.name, "renamed", table)
            check_column_name(change.to)
            if change.to.lower() != field.name.lower() or change.to == field.name:
                _check_free(schema, change.to, table)
            columns = columns.set(at, field.with_name(change.to))
            if field.name in defaults:
                defaults[change.to] = defaults.pop(field.name)
        case "drop":
            _check_no_role(schema, field.name, "dropped", table)
            if len(columns) == 1:
                raise InvalidRequest(f"column {field.name!r} is the only one of table {table}: drop the table instead")
            columns = columns.remove(at)
            defaults.pop(field.name, None)
        case "add_field" | "rename_field" | "drop_field":
            _check_no_role(schema, field.name, "changed inside", table)
            spelled(field, table)
            match change.kind:
                case "add_field":
                    field = with_added(field, change.inside, change.to, table)
                case "rename_field":
                    field = with_renamed(field, change.inside, change.to, table)
                case _:
                    field = with_dropped(field, change.inside, table)
            spelled(field, table)
            columns = columns.set(at, field)
        case "default":
            defaults.pop(field.name, None)
            roles = {"key": schema.key, "order_by": schema.order_columns, "partition_by": schema.partition_by}
            defaults |= checked_defaults({field.name: change.default}, columns, roles, schema.rules)
        case "widen":
            wanted = parse_type(change.to)
            if wanted == field.type:
                raise InvalidRequest(f"column {field.name!r} of table {table} is {change.to} already")
            _check_no_role(schema, field.name, "given another type", table)
            if not is_wider(field.type, wanted):
                raise InvalidRequest(
                    f"column {field.name!r} of table {table} is {type_name(field.type)}: {change.to} does not hold "
                    "all of its values. A column can become a larger integer, a double (from float, or integers of up "
                    "to 32 bits), a decimal with as many digits on both sides, or, from a date, a timestamp_ntz; write "
                    "anything else into a new column"
                )
            columns = columns.set(at, field.with_type(wanted))
            if field.name in defaults:
                widened = schema.default_values[field.name].cast(wanted)
                defaults[field.name] = default_of(widened, columns.field(at))
        case "relax" | "require":
            nullable = change.kind == "relax"
            if nullable and field.name in schema.key:
                raise InvalidRequest(f"column {field.name!r} is part of the key of table {table}: it is never null")
            if field.nullable == nullable:
                said = "may be null" if nullable else "is NOT NULL"
                raise InvalidRequest(f"column {field.name!r} of table {table} {said} already")
            if not nullable and (rule := schema.rules.get(field.name)) is not None and rule.by:
                raise InvalidRequest(
                    f"column {field.name!r} of table {table} is in the order group of {rule.by!r}: it has nothing in "
                    "rows of which its source has not said anything yet, so it stays nullable"
                )
            columns = columns.set(at, field.with_nullable(nullable))
        case "move":
            rest = columns.remove(at)
            place = 0
            if change.to:
                behind = _field(schema, change.to, table)
                if behind.name == field.name:
                    raise InvalidRequest(f"column {field.name!r} cannot come behind itself: name another one")
                place = rest.get_field_index(behind.name) + 1
            columns = rest.insert(place, field)
    return replace(schema, columns=columns, column_defaults=defaults)


def is_wider(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of the other, the same one."""
    types = pa.types
    if kind in _INTEGERS:
        if wanted in _INTEGERS:
            return _INTEGERS.index(wanted) > _INTEGERS.index(kind)
        if types.is_decimal(wanted):
            return bool(wanted.precision - wanted.scale >= _DIGITS[kind])
        return bool(wanted == pa.float64() and kind != pa.int64())
    if kind == pa.float32():
        return bool(wanted == pa.float64())
    if types.is_decimal(kind):
        return bool(
            types.is_decimal(wanted)
            and wanted != kind
            and wanted.scale >= kind.scale
            and wanted.precision - wanted.scale >= kind.precision - kind.scale
        )
    return bool(kind == pa.date32() and wanted == pa.timestamp("us"))


def _field(schema: TableSchema, name: str, table: str) -> pa.Field:
    if not isinstance(name, str):
        raise InvalidRequest(f"a column is told by its name, not by {type(name).__name__}")
    if name in schema.names:
        return schema.columns.field(name)
    if path_in(schema.columns, name) is not None:
        raise InvalidRequest(
            f"column {name!r}: fields inside of a column can be added, renamed and dropped; for anything else write it "
            "as you want it into a new column"
        )
    raise NotFound(f"column {name!r} is not in table {table}: it has {', '.join(schema.names)}")


def _check_free(schema: TableSchema, name: str, table: str) -> None:
    taken = {other.lower(): other for other in schema.names}
    if (other := taken.get(name.lower())) is not None:
        raise Conflict(f"table {table} has a column {other!r} already: choose another name")


def _check_no_role(schema: TableSchema, name: str, done: str, table: str) -> None:
    roles = {
        "its key": schema.key,
        "its order_by": schema.order_columns,
        "its time": (schema.time,),
        "its partition_by": schema.partition_by,
    }
    for role, names in roles.items():
        if name in names:
            raise InvalidRequest(
                f"column {name!r} cannot be {done}: table {table} has it in {role}, and rows are told apart or laid "
                "out by it; write the rows into a new table instead"
            )
    if name in schema.merge_rules:
        raise InvalidRequest(
            f"column {name!r} cannot be {done}: table {table} adds it up by the merge rule "
            f"{schema.merge_rules[name]!r}, which stands for the life of the table; write the rows into a new one"
        )
    if (rule := schema.rules.get(name)) is not None:
        raise InvalidRequest(
            f"column {name!r} cannot be {done}: table {table} has it in the order group of {rule.by!r}, which stands "
            "for the life of the table; write the rows into a new one"
        )
    for option, text in schema.settings.items():
        if _NAMING.search(option) and _names(text, name):
            raise InvalidRequest(
                f"column {name!r} cannot be {done}: option {option.removeprefix('lithify.')} of table {table} names "
                "it; set that to something else first"
            )


def _names(text: str, name: str) -> bool:
    """Whether the value of an option names a column, in a list or in an expression."""
    return re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text) is not None


# -- what files hold


def stood_as(column: pa.Field, later: Sequence[ColumnChange]) -> pa.Field | None:
    """A column of today as a file has it that was written before these changes, oldest first; None: it has it not."""
    found: pa.Field = column
    for change in reversed(later):
        match change.kind:
            case "rename" if found.name == change.to:
                found = found.with_name(change.column)
            case "rename" | "drop" | "add" if found.name == change.column:
                return None
            case "widen" | "add_field" | "rename_field" | "drop_field" if found.name == change.column:
                found = found.with_type(parse_type(change.was))
    return found


def stood_at(path: tuple[str, ...], later: Sequence[ColumnChange]) -> tuple[str, ...] | None:
    """The path of a field of today in a file that was written before these changes; None: it was not there."""
    for change in reversed(later):
        if change.kind not in ("add", "drop", "rename") and not change.of_field:
            continue
        old = change.path
        if change.kind in ("rename", "rename_field"):
            new = (*old[:-1], change.to)
            if path[: len(new)] == new:
                path = (*old, *path[len(new) :])
                continue
        if path[: len(old)] == old:
            return None
    return path


def with_path(change: ColumnChange, columns: pa.Schema) -> ColumnChange:
    """A change of a column that is told by the path of a field, as one of that field."""
    if change.kind not in ("add", "rename", "drop") or change.column in columns.names:
        return change
    found = path_in(columns, change.column) if isinstance(change.column, str) else None
    if found is None:
        return change
    if change.default is not None:
        raise InvalidRequest(f"field {change.column!r} has no default: a default is one plain value of a column")
    kinds: dict[str, Kind] = {"add": "add_field", "rename": "rename_field", "drop": "drop_field"}
    return replace(change, kind=kinds[change.kind], column=found[0], inside=found[1])


def after(changes: Sequence[ColumnChange], seq: int) -> tuple[ColumnChange, ...]:
    """Those that came after the write with this seq."""
    return tuple(change for change in changes if change.seq > seq)


@dataclass(frozen=True)
class Reshape:
    """How rows of older columns become rows of others: for each new one the older it comes from, None if from none."""

    columns: pa.Schema
    origins: tuple[pa.Field | None, ...]
    later: tuple[ColumnChange, ...] = ()

    @classmethod
    def of(cls, columns: pa.Schema, later: Sequence[ColumnChange]) -> Reshape:
        return cls(columns, tuple(stood_as(column, later) for column in columns), tuple(later))

    def among(self, names: Iterable[str]) -> Reshape:
        """The same where only these older columns are there."""
        there = set(names)
        return replace(self, origins=tuple(f if f is not None and f.name in there else None for f in self.origins))

    @property
    def stored(self) -> pa.Schema:
        """What to read."""
        return pa.schema([origin.with_nullable(True) for origin in self.origins if origin is not None])

    def apply(self, rows: pa.Table) -> pa.Table:
        """`rows` have the columns `stored`."""
        arrays = []
        for column, origin in zip(self.columns, self.origins, strict=True):
            if origin is None:
                arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, column.type)], column.type))
            else:
                arrays.append(self.values(column, rows.column(origin.name)))
        return pa.table(arrays, schema=self.columns)

    def values(self, column: pa.Field, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Those of a column, which was another one then, in its type."""
        if pa.types.is_struct(column.type) and any(change.of_field for change in self.later):
            return with_fields(values, column.type, (column.name,), self._stood)
        return values if values.type == column.type else values.cast(column.type)

    def _stood(self, path: tuple[str, ...]) -> str | None:
        then = stood_at(path, self.later)
        return None if then is None else then[-1]


def given_since(text: str, later: Sequence[ColumnChange]) -> str:
    """Names of columns that a line gives (`names.given_text`), as they are called after these changes."""
    for change in later:
        if change.kind == "rename":
            text = text.replace(f",{change.column},", f",{change.to},")
        elif change.kind == "drop":
            text = text.replace(f",{change.column},", ",")
    return text


def as_called_now(names: Mapping[str, Any] | Iterable[str], later: Sequence[ColumnChange]) -> list[str]:
    """Older names as they are called now; what is gone is left out."""
    found: list[str] = []
    for name in names:
        now: str | None = name
        for change in later:
            if now == change.column and change.kind in ("rename", "drop"):
                now = change.to if change.kind == "rename" else None
        if now is not None:
            found.append(now)
    return found
