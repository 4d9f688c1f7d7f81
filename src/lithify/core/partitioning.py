"""Partitions of base: which one a row belongs to, how the log spells its values, where its files lie."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import lookup
from lithify.core.names import DAY
from lithify.core.schema import TableSchema


def output_folder(folder: str, partition: Mapping[str, str | None]) -> str:
    """Where a job's files of one partition lie. Some readers take partition values from the path, so null has its
    folder too, by the name that all of them know.
    """
    return f"{folder}/{DAY}={partition[DAY] or '__HIVE_DEFAULT_PARTITION__'}" if DAY in partition else folder


def partition_rows(schema: TableSchema, rows: pa.Table) -> tuple[list[dict[str, str | None]], np.ndarray]:
    """Distinct partition values of the rows, and the number of each row's."""
    if not schema.partitions:
        return [{}], np.zeros(rows.num_rows, np.int64)
    if not rows.num_rows:
        return [], np.zeros(0, np.int64)
    columns = {
        name: day_of(rows.column(schema.time)) if name == DAY else rows.column(name)
        for name in schema.partitions
        if schema.time or name != DAY
    }
    values = pa.table(columns)
    groups = values.group_by(schema.partitions, use_threads=False).aggregate([])
    group_of = lookup(values, groups, schema.partitions)
    return [partition_strings(schema, row) for row in groups.to_pylist()], group_of


def partition_strings(schema: TableSchema, values: Mapping[str, Any]) -> dict[str, str | None]:
    """Partition values as Delta's log spells them."""
    return {name: partition_string(values.get(name)) for name in schema.partitions}


def day_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The UTC date of a time column."""
    return times if pa.types.is_date32(times.type) else times.cast(pa.timestamp("us")).cast(pa.date32(), safe=False)


def partition_string(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)
