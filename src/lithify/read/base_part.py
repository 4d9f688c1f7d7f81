"""What a read needs of base, kept for as long as base stands still: writes come and go much more often than it moves.

Where there is no index to ask, few keys are looked up in all files at once, in Arrow; many are better looked up file by
file (`split_by_keys`).
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.read_plan import Source, source_of
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile
from lithify.index.key_ranges import split_by_keys
from lithify.index.lookup import Coverage, Files

KEYS_AT_ONCE_MAX = 64


class BasePart:
    def __init__(
        self, files: tuple[DataFile, ...], folder: str, schema: TableSchema, before: BasePart | None = None
    ) -> None:
        """`before`: of the same folder, whose sources of files that are still there are taken over."""
        self.files, self._partition_by = files, schema.partition_by
        same = before is not None and before._partition_by == schema.partition_by
        known = {id(entry[0]): entry for entry in before.sources} if before is not None and same else {}
        self.sources: tuple[tuple[DataFile, Source], ...] = tuple(
            known.get(id(file)) or (file, source_of(file, folder, schema)) for file in files
        )
        self._bounds: dict[tuple[str, pa.DataType], tuple[pa.Array, pa.Array]] = {}
        # What the index says of these files, once somebody has asked.
        self.coverage: Coverage | None = None

    @cached_property
    def arrays(self) -> Files:
        return Files(self.sources)

    def is_of(self, files: tuple[DataFile, ...], schema: TableSchema) -> bool:
        return files is self.files and schema.partition_by == self._partition_by

    def touched(self, keys: pa.Table) -> list[tuple[DataFile, Source]]:
        """Files that can hold one of the keys."""
        if not keys.num_rows:
            return []
        first = keys.column(0)
        if keys.num_rows > KEYS_AT_ONCE_MAX or first.null_count:
            paths = {file.path for file in split_by_keys(self.files, keys)[0]}
            return [entry for entry in self.sources if entry[0].path in paths]
        lows, highs = self._bounds_of(keys.column_names[0], first.type)
        numbers: set[int] = set()
        for value in first.unique():
            inside = pc.and_(pc.less_equal(lows, value), pc.greater_equal(highs, value)).fill_null(True)
            numbers.update(pc.indices_nonzero(inside).to_pylist())
        likely = [self.sources[number] for number in sorted(numbers)]
        paths = {file.path for file in split_by_keys([file for file, _ in likely], keys)[0]}
        return [entry for entry in likely if entry[0].path in paths]

    def _bounds_of(self, column: str, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Null on both sides where one is not known."""
        found = self._bounds.get((column, kind))
        if found is None:
            bounds = [file.bound(column) for file in self.files]
            lows = pa.array([b.low if b.known else None for b in bounds], kind)
            found = self._bounds[column, kind] = lows, pa.array([b.high if b.known else None for b in bounds], kind)
        return found
