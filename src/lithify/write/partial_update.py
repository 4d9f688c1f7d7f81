"""Updates that say some columns of a row alone, and on a table with merge rules every contribution.

Blind ones (`missing="insert"`) are one commit that looks at nothing: what the row has in its other columns is found by
whoever reads. The others first look which keys are there, on one snapshot, and are committed only if nothing was
written since; they are decided again when they lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import lookup, take
from lithify.core.missing_columns import check_frame, refuses_missing
from lithify.core.ops import Op
from lithify.core.partial_rows import check_insertable, partial_rows_of_newest
from lithify.core.results import Commit
from lithify.core.rows import rows_of_newest
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.core.table_methods import OnMissing, is_spark_frame
from lithify.errors import InvalidRequest, LimitExceeded
from lithify.merge.rules import contributions, retractions, whole_lines
from lithify.options.table_options import MissingColumns
from lithify.write.allow_updates import allow_updates
from lithify.write.conditions import Write
from lithify.write.decided import Decision, rows_with_keys, write_decided
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lithify.lake.internals import TableInternals

MISSING = ("insert", "skip", "refuse")


def update(table: TableInternals, data: Any, missing: OnMissing, write: Write) -> Commit:
    if missing not in MISSING:
        raise InvalidRequest(f"missing is one of {', '.join(map(repr, MISSING))}, not {missing!r}")
    schema = table.known_schema
    if is_spark_frame(data):
        rows = _fetched(table, data, missing)
        if rows is None:
            from lithify.write.bulk import write_events

            return write_events(table.handles, data, write, None, partial=True)
        data = rows
    lines = partial_rows_of_newest(data, schema, lambda: table.handles.schema())
    schema = table.known_schema
    lines = contributions(lines, schema)
    if missing == "insert":
        check_insertable(lines, schema)
        allow_updates(table.handles)
        return table.write(Request(write, {Op.UPDATE: lines}))
    return _update_known(table, schema, lines, missing, write)


def contribute(table: TableInternals, data: Any, write: Write, missing: MissingColumns | None = None) -> Commit:
    """Whole rows, of which each column becomes what its merge rule makes of it. `missing`: what becomes of columns that
    they lack.
    """
    if is_spark_frame(data):
        if write.complete:
            check_frame(data.columns, table.known_schema)
        rows = _fetched(table, data, "insert")
        if rows is None:
            from lithify.write.bulk import write_events

            return write_events(table.handles, data, write, None)
        data = rows
    known = table.known_schema if not table.known_schema.column_defaults else table.handles.schema()
    rows = rows_of_newest(data, known, lambda: table.handles.schema(), lambda schema: refuses_missing(schema, missing))
    return table.write(Request(write, {Op.UPDATE: whole_lines(rows, table.known_schema)}))


def retract(table: TableInternals, data: Any, write: Write) -> Commit:
    """Take back what rows said to sums and counts."""
    if is_spark_frame(data):
        raise InvalidRequest(
            "retract does not take a Spark DataFrame: pass frame.toArrow(), or upsert negative numbers to sums"
        )
    lines = partial_rows_of_newest(data, table.known_schema, lambda: table.handles.schema())
    lines = retractions(lines, table.known_schema)
    check_insertable(lines, table.known_schema)
    return table.write(Request(write, {Op.UPDATE: lines}))


def _fetched(table: TableInternals, frame: DataFrame, missing: OnMissing) -> pa.Table | None:
    """The rows of a DataFrame, if they are few; None: Spark writes them."""
    from lithify.spark.micro_batch import fetched

    table.runtime.session(frame.sparkSession)
    rows_max = table.runtime.settings.stream_rows_max
    rows = fetched(frame, rows_max)
    if rows is None and missing != "insert":
        raise LimitExceeded(
            f"the DataFrame has more than {rows_max:,} rows, and missing={missing!r} looks each key up here: update "
            "them in portions, raise the setting stream_rows_max, or say missing='insert'",
            limit="rows",
        )
    return rows


def _update_known(
    table: TableInternals, schema: TableSchema, lines: pa.Table, missing: OnMissing, write: Write
) -> Commit:
    """Update the keys that are there; of the others none is made."""
    key = list(schema.key)
    wanted = lines.select(key).group_by(key).aggregate([]).select(key).cast(schema.select(key))

    def decide(snapshot: Snapshot) -> Decision:
        known = rows_with_keys(table.reader, snapshot, wanted, key)
        there = lookup(lines, known, key) >= 0
        if missing == "refuse" and not there.all():
            raise _refused(str(table.name), lines.select(key), there, wanted.num_rows - known.num_rows)
        return Decision({Op.UPDATE: take(lines, np.flatnonzero(there))})

    return write_decided(table, write, decide)


def _refused(table: str, keys: pa.Table, there: np.ndarray, count: int) -> InvalidRequest:
    first = keys.slice(int(np.flatnonzero(~there)[0]), 1).to_pylist()[0]
    shown = ", ".join(f"{name} {value!r}" for name, value in first.items())
    many = f"{count:,} key{'s are' if count != 1 else ' is'} not in table {table}"
    hint = "nothing was written: insert them first, or say missing='insert' or missing='skip'"
    return InvalidRequest(f"{many}, the first is {shown}; {hint}", public=f"{many}; {hint}")
