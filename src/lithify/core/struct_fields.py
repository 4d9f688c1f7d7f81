"""Fields inside of struct columns: how a change of one changes the column's type, and rows of the older type.

A field is told by its path, `place.city`: the column, then fields of structs. What is inside of lists and maps is not
told apart by names, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lithify.core.names import check_column_name
from lithify.core.type_text import parse_type, type_name
from lithify.errors import Conflict, InvalidRequest, NotFound

Path = tuple[str, ...]
# The name that a field had, by the path that it has; None: it was not there.
Stood = Callable[[Path], str | None]


def path_in(columns: pa.Schema, name: str) -> tuple[str, str] | None:
    """The struct column that a dotted name leads into, and the rest of it; None: it is no such name."""
    column, dot, inside = name.partition(".")  # names of columns have no dots
    inner = dot and column in columns.names and pa.types.is_struct(columns.field(column).type)
    return (column, inside) if inner else None


def has_column(columns: pa.Schema, name: str) -> bool:
    """Whether there is such a column, or a field of this path."""
    if name in columns.names or (found := path_in(columns, name)) is None:
        return name in columns.names
    kind = columns.field(found[0]).type
    for part in found[1].split("."):
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return False
        kind = kind.field(part).type
    return True


def with_added(column: pa.Field, inside: str, kind: str, table: str) -> pa.Field:
    *parents, name = inside.split(".")
    check_column_name(name)

    def add(fields: list[pa.Field]) -> list[pa.Field]:
        _check_free(fields, name, column.name, parents, table)
        return [*fields, pa.field(name, parse_type(kind))]

    return _changed(column, parents, add, table)


def with_renamed(column: pa.Field, inside: str, to: str, table: str) -> pa.Field:
    *parents, name = inside.split(".")
    check_column_name(to)

    def rename(fields: list[pa.Field]) -> list[pa.Field]:
        at = _place(fields, name, column.name, parents, table)
        if to.lower() != name.lower() or to == name:
            _check_free(fields, to, column.name, parents, table)
        return [*fields[:at], fields[at].with_name(to), *fields[at + 1 :]]

    return _changed(column, parents, rename, table)


def with_dropped(column: pa.Field, inside: str, table: str) -> pa.Field:
    *parents, name = inside.split(".")

    def drop(fields: list[pa.Field]) -> list[pa.Field]:
        at = _place(fields, name, column.name, parents, table)
        if len(fields) == 1:
            said = ".".join([column.name, *parents])
            raise InvalidRequest(f"field {name!r} is the only one of {said!r} of table {table}: drop that instead")
        return [*fields[:at], *fields[at + 1 :]]

    return _changed(column, parents, drop, table)


def spelled(column: pa.Field, table: str) -> str:
    """The type of a column as text, from which it can be had again."""
    text = type_name(column.type)
    try:
        if parse_type(text) == column.type:
            return text
    except InvalidRequest:
        pass  # a field has a name that no text holds
    raise InvalidRequest(
        f"column {column.name!r} of table {table} has fields whose names cannot be spelled in {text[:200]!r}: its "
        "fields cannot be changed; write it as you want it into a new column"
    )


def _changed(
    column: pa.Field, parents: Sequence[str], change: Callable[[list[pa.Field]], list[pa.Field]], table: str
) -> pa.Field:
    def within(kind: pa.DataType, path: Path, rest: Sequence[str]) -> pa.DataType:
        if not pa.types.is_struct(kind):
            raise InvalidRequest(
                f"{'.'.join(path)!r} of table {table} is {type_name(kind)}: only structs have fields that change"
            )
        fields = list(kind)
        if not rest:
            return pa.struct(change(fields))
        at = _place(fields, rest[0], path[0], path[1:], table)
        fields[at] = fields[at].with_type(within(fields[at].type, (*path, rest[0]), rest[1:]))
        return pa.struct(fields)

    return column.with_type(within(column.type, (column.name,), parents))


def _place(fields: Sequence[pa.Field], name: str, column: str, parents: Sequence[str], table: str) -> int:
    names = [field.name for field in fields]
    if name not in names:
        said = ".".join([column, *parents])
        raise NotFound(f"field {name!r} is not in {said!r} of table {table}: it has {', '.join(names)}")
    return names.index(name)


def _check_free(fields: Sequence[pa.Field], name: str, column: str, parents: Sequence[str], table: str) -> None:
    taken = {field.name.lower(): field.name for field in fields}
    if (other := taken.get(name.lower())) is not None:
        said = ".".join([column, *parents])
        raise Conflict(f"{said!r} of table {table} has a field {other!r} already: choose another name")


# -- values


def with_fields(values: pa.ChunkedArray, kind: pa.DataType, path: Path, stood: Stood) -> pa.ChunkedArray:
    """Values of an older type of a struct, field by field from where each stood; null where it was not there. `path`:
    of the column, as it is called now.
    """
    return pa.chunked_array([_with_fields(chunk, kind, path, stood) for chunk in values.chunks], kind)


def _with_fields(values: pa.Array, kind: pa.DataType, path: Path, stood: Stood) -> pa.Array:
    arrays = []
    for field in kind:
        here = (*path, field.name)
        name = stood(here)
        at = values.type.get_field_index(name) if name is not None else -1
        if at < 0:
            arrays.append(pa.nulls(len(values), field.type))
        elif pa.types.is_struct(field.type):
            arrays.append(_with_fields(values.field(at), field.type, here, stood))
        else:
            arrays.append(values.field(at).cast(field.type))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
