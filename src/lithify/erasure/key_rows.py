"""Rows of a Parquet file by their keys, whatever a log or an index says of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.errors import Corruption
from lithify.files.open_parquet import corrupt


class Keys:
    """The keys that are looked for: one row each."""

    def __init__(self, columns: Sequence[str], keys: pa.Table) -> None:
        self.columns, self.rows = tuple(columns), keys
        self._values = [keys[name].combine_chunks() for name in self.columns]
        self._known = {tuple(row) for row in zip(*(values.to_pylist() for values in self._values), strict=True)}

    def mask(self, batch: pa.RecordBatch | pa.Table) -> pa.ChunkedArray | pa.Array:
        """Which rows have one of the keys."""
        found: Any = None
        for name, values in zip(self.columns, self._values, strict=True):
            column = batch.column(name)
            if column.type != values.type:
                column = column.cast(values.type)
            one = pc.is_in(column, value_set=values)
            found = one if found is None else pc.and_(found, one)
        if len(self.columns) == 1 or not pc.any(found).as_py():
            return found
        told = zip(*(batch.column(name).to_pylist() for name in self.columns), strict=True)
        return pa.array([row in self._known for row in told], pa.bool_())

    def stand_in(self, file: pq.ParquetFile) -> bool:
        """Whether the file has the columns of the key."""
        return set(self.columns) <= set(file.schema_arrow.names)


def rows_with(keys: Keys, file: pq.ParquetFile, path: PurePath | str) -> Iterator[dict[str, Any]]:
    """All columns of the rows that have one of the keys."""
    try:
        for group in range(file.num_row_groups):
            if not pc.any(keys.mask(file.read_row_group(group, columns=list(keys.columns)))).as_py():
                continue
            rows = file.read_row_group(group)
            yield from rows.filter(keys.mask(rows)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(path, error) from error


def check_has_key(keys: Keys, file: pq.ParquetFile, path: PurePath | str) -> None:
    if not keys.stand_in(file):
        raise Corruption(
            f"{path} has not all columns of the key ({', '.join(keys.columns)}), so its rows cannot be told apart: "
            "compact the table, then resume",
            path=str(path),
        )
