"""From whatever a caller hands over to rows of exactly the table's schema, or an error that names the place.

Nothing is guessed and nothing is lost: a value either fits its column or the whole batch is refused. Missing columns
have their default (`column_defaults`); else they are null, where that is wanted (`missing_columns`). Rows are read by
the codec that reads JSON (`json_rows`); columns of Arrow are cast, safely.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.column_defaults import lacking
from lithify.core.column_types import Family, type_of
from lithify.core.json_rows import RowMisfit, columns_of
from lithify.core.missing_columns import check_frame, check_given, check_texts, with_given
from lithify.core.names import GIVEN, given_text
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest

ROW_BYTES_MAX = 64 * 2**20


def rows_of(data: Any, schema: TableSchema, *, complete: bool = False, sets: bool = False) -> pa.Table:
    """Full rows for append and upsert. `complete`: those that lack a column are refused; `sets`: also one whose merge
    rule would pass over null. What a row names may come with it (`GIVEN`).
    """
    arrow = as_arrow(data, with_given(schema.columns) if complete or schema.column_defaults else schema.columns)
    texts = arrow.column(GIVEN) if GIVEN in arrow.column_names else None
    if texts is not None:
        arrow = arrow.drop_columns([GIVEN])
        check_texts(texts)
    table = fitted(arrow, schema, texts)
    check_rows(table, schema)
    if complete:
        check_frame(arrow.column_names, schema, sets=sets)
        if texts is not None:
            check_given(texts, schema, sets=sets)
    return table


def rows_of_newest(
    data: Any,
    known: TableSchema,
    newest: Callable[[], TableSchema],
    complete: Callable[[TableSchema], bool] = lambda schema: False,
    *,
    sets: bool = False,
) -> pa.Table:
    """Rows of the schema that is known; what that refuses may fit a newer one. `data` is read once. `complete`: whether
    rows that lack a column are refused.
    """
    if isinstance(data, pa.RecordBatchReader):
        data = as_arrow(data, known.columns)
    elif isinstance(data, Iterator):
        data = list(data)
    try:
        return rows_of(data, known, complete=complete(known), sets=sets)
    except InvalidRequest:
        now = newest()
        same = now.columns == known.columns and now.column_defaults == known.column_defaults
        if same and complete(now) == complete(known):
            raise
        return rows_of(data, now, complete=complete(now), sets=sets)


def check_rows(table: pa.Table, schema: TableSchema) -> None:
    """What a key and a partition column may not hold."""
    check_keys(table, schema.key)
    for name in schema.partition_by:
        if type_of(table.schema.field(name).type).is_text:
            row = pc.index(table.column(name), "").as_py()
            if row >= 0:
                raise InvalidRequest(
                    f"partition column {name!r} is empty text in row {row}, which Delta cannot tell from null: use null"
                )


def keys_of(data: Any, schema: TableSchema) -> pa.Table:
    """Key rows for delete. A table with one key column also takes bare values, and an array of them."""
    if isinstance(data, pa.Scalar):
        data = data.as_py()
    if isinstance(data, str | bytes | int | Mapping) or (
        not hasattr(data, "__iter__") and not hasattr(data, "__arrow_c_stream__")
    ):
        data = [data]
    if (column := _one_column(data)) is not None:
        if len(schema.key) != 1:
            raise InvalidRequest(f"an array of values says nothing about which columns to delete by: {_how(schema)}")
        data = pa.table({schema.key[0]: column})
    elif isinstance(data, Iterable) and not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "to_arrow"):
        data = list(data)
        if data and not isinstance(data[0], Mapping | pa.RecordBatch | pa.Table):
            data = [_key_mapping(value, schema.key) for value in data]
    target = schema.select(schema.key) if schema.keyed else schema.columns
    arrow = as_arrow(data, target, what="key")
    if not schema.keyed:
        target = schema.select([name for name in schema.names if name in arrow.column_names])
    for name in arrow.column_names:
        if name not in target.names:
            raise InvalidRequest(
                f"{name!r} is no key column: delete takes {', '.join(schema.key or schema.names)}"
                + ("" if schema.keyed else " (any set of them)")
            )
    missing = [name for name in target.names if name not in arrow.column_names]
    if missing:
        raise InvalidRequest(f"the keys to delete lack {', '.join(map(repr, missing))}: give every key column")
    table = conform(arrow, target)
    check_keys(table, schema.key)
    return table


def _how(schema: TableSchema) -> str:
    return f"give rows with {', '.join(schema.key)}" if schema.keyed else "give rows with the columns"


def _key_mapping(value: Any, key: Sequence[str]) -> Mapping[str, Any]:
    if not key:
        raise InvalidRequest("this table has no key: say which columns to delete by, e.g. delete([{'user_id': 7}])")
    values = value if isinstance(value, tuple) else (value,)
    if len(values) != len(key):
        wanted = f"the key has {len(key)} columns ({', '.join(key)}) but"
        raise InvalidRequest(
            f"{wanted} {value!r} gives {len(values)}", public=f"{wanted} a value was given for {len(values)}"
        )
    return dict(zip(key, values, strict=True))


def as_arrow(data: Any, columns: pa.Schema, what: str = "row") -> pa.Table:
    """Any accepted container as an Arrow table, columns still in their own types."""
    if isinstance(data, Mapping):
        return _from_rows([data], columns, what)
    if not _is_arrow(data) and isinstance(data, Iterable) and not isinstance(data, str | bytes):
        rows = list(data)
        if not rows or not isinstance(rows[0], pa.RecordBatch | pa.Table):
            return _from_rows(rows, columns, what)
        if (other := next((row for row in rows if not isinstance(row, pa.RecordBatch | pa.Table)), None)) is not None:
            raise InvalidRequest(f"a {type(other).__name__} stands among record batches: give one or the other")
        data = _saying(rows) if GIVEN in columns.names else rows
    try:
        table = _arrow_table(data)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise _not_rows(data) from error
    if not table.num_rows:
        raise InvalidRequest(f"the batch is empty: give at least one {what}")
    return table


def _saying(parts: Sequence[pa.RecordBatch | pa.Table]) -> list[pa.RecordBatch | pa.Table]:
    """Parts that do not have the same columns, each with those that it has."""
    if all(part.schema.names == parts[0].schema.names or GIVEN in part.schema.names for part in parts):
        return list(parts)
    return [
        part.append_column(GIVEN, pa.repeat(pa.scalar(given_text(part.schema.names), pa.string()), part.num_rows))
        if GIVEN not in part.schema.names
        else part
        for part in parts
    ]


def _is_arrow(data: Any) -> bool:
    """Whether something holds columns, and no rows one by one."""
    return (
        isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader | pa.Array | pa.ChunkedArray)
        or type(data).__module__.split(".")[0] == "pandas"
        or hasattr(data, "__arrow_c_stream__")
    )


def _arrow_table(data: Any) -> pa.Table:
    """Raises whatever Arrow and its friends do: `_not_rows` says what that means."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, list):
        parts = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in data]
        return pa.concat_tables(parts, promote_options="default")
    if isinstance(data, pa.StructArray | pa.ChunkedArray) and pa.types.is_struct(data.type):
        return pa.Table.from_struct_array(data)
    if type(data).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    if _one_column(data) is None and hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise TypeError


def _one_column(data: Any) -> pa.Array | pa.ChunkedArray | None:
    """Values without column names: an Arrow array, or a pandas or polars series."""
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return None if pa.types.is_struct(data.type) else data
    library = type(data).__module__.split(".")[0]
    if library in ("pandas", "polars") and type(data).__name__ in ("Series", "Index"):
        return pa.array(data.to_list())
    return None


def _not_rows(data: Any) -> InvalidRequest:
    if isinstance(data, list):
        return InvalidRequest("the record batches do not have the same columns: give them one schema")
    if _one_column(data) is not None:
        return InvalidRequest(
            f"{type(data).__name__} is one column without a name: give rows, or a table like pa.table({{'id': values}})"
        )
    return InvalidRequest(
        f"cannot take rows from {type(data).__name__}: give dicts, pyarrow, pandas, polars or a PySpark DataFrame"
    )


def _from_rows(rows: Sequence[Any], columns: pa.Schema, what: str) -> pa.Table:
    if not rows:
        raise InvalidRequest(f"the batch is empty: give at least one {what}")
    try:
        return columns_of(rows, columns, objects=True)
    except RowMisfit as misfit:
        if misfit.top is None:
            raise InvalidRequest(f"{what} {misfit.index} {misfit.why}") from None
        said = f"column {misfit.column!r}, {what} {misfit.index}: "
        shown = _shown(rows[misfit.index].get(misfit.top)) + misfit.why.removeprefix("the value")
        raise InvalidRequest(said + shown, public=said + misfit.why) from None


def fitted(rows: pa.Table, schema: TableSchema, texts: pa.ChunkedArray | None = None) -> pa.Table:
    """Rows of exactly the table's columns. Those that they lack have their default, else they are null; so it is row by
    row, where `texts` tell which columns each row names.
    """
    return conform(_with_defaults(rows, schema, texts) if schema.column_defaults else rows, schema.columns)


def _with_defaults(rows: pa.Table, schema: TableSchema, texts: pa.ChunkedArray | None) -> pa.Table:
    for name, value in schema.default_values.items():
        if name not in rows.column_names:
            rows = rows.append_column(pa.field(name, value.type), pa.repeat(value, rows.num_rows))
        elif texts is not None and (not_named := lacking(texts, name)) is not None:
            given = _cast(rows.column(name), schema.columns.field(name))
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, pc.if_else(not_named, value, given))
    return rows


def conform(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Cast to exactly `columns`: order, types, nullability. Safe casts only."""
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"column {twice!r} comes twice in the batch: rename or drop one")
    for name in names:
        if columns.get_field_index(name) < 0:
            raise InvalidRequest(_unknown_column(name, columns))
    arrays: list[pa.ChunkedArray] = []
    for column in columns:
        if column.name in names:
            arrays.append(_cast(table.column(column.name), column))
        else:
            if not column.nullable:
                raise InvalidRequest(
                    f"column {column.name!r} is missing and may not be null: give it a value in every row"
                )
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, column.type)]))
    result = pa.table(arrays, schema=pa.schema([pa.field(f.name, f.type) for f in columns]))
    try:
        result.validate(full=True)
    except pa.ArrowInvalid as error:
        said = f"the batch holds invalid values: {_bad_column(result)}"
        raise InvalidRequest(f"{said}: {_first_line(error)}", public=said) from error
    for column in columns:
        if not column.nullable and result.column(column.name).null_count:
            _refuse_null(result, column.name, "column")
    _check_years(result)
    check_row_sizes(result)
    try:
        return result.cast(pa.schema([pa.field(f.name, f.type, f.nullable) for f in columns]))
    except pa.ArrowInvalid as error:
        # Whole columns have been checked: what is left are nulls deeper inside.
        nested = ", ".join(repr(column.name) for column in columns if pa.types.is_nested(column.type))
        raise InvalidRequest(f"a required value inside of a nested column ({nested}) is null: give it one") from error


def _check_years(table: pa.Table) -> None:
    for name, values in zip(table.column_names, table.columns, strict=True):
        if (row := type_of(values.type).beyond_calendar(values)) is not None:
            raise InvalidRequest(
                f"column {name!r} is not between the years 1 and 9999 in row {row}: use null, or the first or last "
                "moment of them"
            )


def check_convertible(source: pa.Schema, columns: pa.Schema, defaults: Container[str] = ()) -> None:
    """Refuse by types alone what `conform` would refuse for every row. `defaults`: columns that have one."""
    for name in source.names:
        if columns.get_field_index(name) < 0:
            raise InvalidRequest(_unknown_column(name, columns))
        if (unknown := _unknown_field(source.field(name).type, columns.field(name).type)) is not None:
            raise InvalidRequest(f"column {name!r} has a field {name + unknown!r} that the table does not have")
        if not _convertible(source.field(name).type, columns.field(name).type):
            raise InvalidRequest(f"column {name!r}: {source.field(name).type} does not fit {columns.field(name).type}")
    for column in columns:
        if not column.nullable and column.name not in source.names and column.name not in defaults:
            raise InvalidRequest(f"column {column.name!r} is missing and may not be null: give it a value in every row")


class _NotConverted(ValueError):
    """Refused by us, without naming a value."""


def _cast(values: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    if values.type == column.type:
        return values
    try:
        if (unknown := _unknown_field(values.type, column.type)) is not None:
            raise _NotConverted(f"it has a field {column.name + unknown!r} that the table does not have")
        if not _convertible(values.type, column.type):
            raise _NotConverted(f"{values.type} is not converted to {column.type}")
        result = values.cast(column.type, safe=True)
        if not _same_values(values, result):
            raise _NotConverted("some values would lose digits")
        return result
    except (pa.ArrowException, ValueError) as error:
        said = f"column {column.name!r}: {values.type} does not fit {column.type}"
        # Arrow's own words quote the value that it stopped at.
        why = _first_line(error) if isinstance(error, _NotConverted) else "not every value can be converted"
        raise InvalidRequest(f"{said}: {_first_line(error)}", public=f"{said}: {why}") from error


def _same_values(source: pa.ChunkedArray, target: pa.ChunkedArray) -> bool:
    """Where even a safe cast rounds: floats to decimals, times to dates, large doubles to infinite floats."""
    match type_of(source.type).family, type_of(target.type).family:
        case Family.FLOAT, Family.FLOAT:
            return bool(pc.all(pc.equal(pc.is_inf(source), pc.is_inf(target))).as_py() is not False)
        case (Family.FLOAT, Family.DECIMAL) | (Family.TIMESTAMP, Family.DATE):
            return pc.all(pc.equal(target.cast(source.type, safe=False), source)).as_py() is not False
    return True


_FROM_TEXT = (Family.TEXT, Family.DATE, Family.TIMESTAMP, Family.DECIMAL)


def _convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Arrow would parse and print numbers as text silently; a feed that changed its types should be told."""
    if pa.types.is_dictionary(source):
        return _convertible(source.value_type, target)
    if pa.types.is_null(source):
        return True
    given, wanted = type_of(source).family, type_of(target).family
    if given is Family.TEXT:
        return wanted in _FROM_TEXT
    if wanted is Family.TEXT:
        return given is Family.BINARY
    if given is Family.BOOLEAN or wanted is Family.BOOLEAN:
        return given is wanted
    return not given is wanted is Family.TIMESTAMP or (source.tz is None) == (target.tz is None)


def _unknown_field(source: pa.DataType, target: pa.DataType, path: str = "") -> str | None:
    """The path of a field of a struct that the other type does not have, which a cast would leave out silently."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        for field in source:
            if target.get_field_index(field.name) < 0:
                return f"{path}.{field.name}"
            if (found := _unknown_field(field.type, target.field(field.name).type, f"{path}.{field.name}")) is not None:
                return found
    elif pa.types.is_map(source) and pa.types.is_map(target):
        return _unknown_field(source.item_type, target.item_type, f"{path}.value")
    elif pa.types.is_list(target) and _is_list(source):
        return _unknown_field(source.value_type, target.value_type, f"{path}[]")
    return None


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def check_keys(table: pa.Table, key: Sequence[str]) -> None:
    for name in key:
        if table.column(name).null_count:
            _refuse_null(table, name, "key column")


def _refuse_null(table: pa.Table, name: str, what: str) -> None:
    row = pc.index(pc.is_null(table.column(name)), True).as_py()
    raise InvalidRequest(f"{what} {name!r} is null in row {row}: it needs a value in every row")


def check_row_sizes(table: pa.Table, bytes_max: int = ROW_BYTES_MAX) -> None:
    """Find a row over the limit by halving; batches under the limit cost nothing."""
    pending = [(0, table.num_rows)]
    while pending:
        start, length = pending.pop()
        size = table.slice(start, length).nbytes
        if size <= bytes_max:
            continue
        if length == 1:
            raise InvalidRequest(
                f"row {start} has {size / 2**20:.0f} MiB, more than the {bytes_max / 2**20:.0f} MiB a row may have: "
                "store large objects as files and keep their path"
            )
        half = length // 2
        pending += [(start, half), (start + half, length - half)]


def _unknown_column(name: Any, columns: pa.Schema) -> str:
    return (
        f"column {name!r} is not in the table: it has {', '.join(columns.names)}; add it with add_column, or "
        "drop it from the batch"
    )


def _bad_column(table: pa.Table) -> str:
    for name in table.column_names:
        try:
            table.column(name).validate(full=True)
        except pa.ArrowInvalid:
            return f"column {name!r}"
    return "a column"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
