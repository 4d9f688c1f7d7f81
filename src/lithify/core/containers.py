"""What callers hand over as data: Arrow tables, batches, readers and arrays, pandas, polars, and lists of batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lithify.errors import InvalidRequest


def is_arrow(data: Any) -> bool:
    """Whether something holds columns, and no rows one by one."""
    return (
        isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader | pa.Array | pa.ChunkedArray)
        or type(data).__module__.split(".")[0] == "pandas"
        or hasattr(data, "__arrow_c_stream__")
    )


def arrow_table(data: Any) -> pa.Table:
    """Raises whatever Arrow and its friends do: `not_rows` says what that means."""
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
    if one_column(data) is None and hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise TypeError


def one_column(data: Any) -> pa.Array | pa.ChunkedArray | None:
    """Values without column names: an Arrow array, or a pandas or polars series."""
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return None if pa.types.is_struct(data.type) else data
    library = type(data).__module__.split(".")[0]
    if library in ("pandas", "polars") and type(data).__name__ in ("Series", "Index"):
        return pa.array(data.to_list())
    return None


def not_rows(data: Any) -> InvalidRequest:
    if isinstance(data, list):
        return InvalidRequest("the record batches do not have the same columns: give them one schema")
    if one_column(data) is not None:
        return InvalidRequest(
            f"{type(data).__name__} is one column without a name: give rows, or a table like pa.table({{'id': values}})"
        )
    return InvalidRequest(
        f"cannot take rows from {type(data).__name__}: give dicts, pyarrow, pandas, polars or a PySpark DataFrame"
    )
