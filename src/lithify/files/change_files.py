"""Change files: the lines of one operation as Parquet, with the statistics that the log needs of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lithify.core.names import GIVEN, NTH, names_given
from lithify.core.ops import DELETES, Op
from lithify.core.schema import TableSchema
from lithify.files.parquet import Layout, encode


def encoded_changes(schema: TableSchema, op: Op, rows: pa.Table) -> tuple[bytes, str]:
    """The bytes of a change file, and its statistics."""
    layout = Layout.of(schema)
    if op in DELETES:
        # The log must say by which columns a tombstone goes, whichever they are.
        layout = replace(layout, stats_columns=tuple(rows.column_names))
    elif op is Op.UPDATE:
        rows = _without_absent(schema, rows)
        # What is null because it is not given says nothing of its column.
        layout = replace(layout, stats_columns=(*schema.key, *schema.order_columns))
    return encode(rows, layout)


def _without_absent(schema: TableSchema, rows: pa.Table) -> pa.Table:
    """Columns that some line gives, and the order of the lines, which an engine that scans the file cannot see."""
    given = {name for text in rows.column(GIVEN).unique().to_pylist() for name in names_given(text)}
    there = [name for name in schema.names if name in given or name in schema.key]
    return rows.select([*there, GIVEN]).append_column(NTH, pa.array(range(rows.num_rows), pa.int32()))
