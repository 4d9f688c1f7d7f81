"""Rows in the order of their keys as the files of a job, laid out as base wants them: one partition in each.

Rows of one partition come in bits and pieces, because they come in the order of their keys. They are gathered before a
file is opened, so that a table with many partitions gets one file for each instead of thousands.
"""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from lithify.core.partitioning import partition_rows
from lithify.core.schema import TableSchema
from lithify.files.addresses import path_of
from lithify.files.encoders import Encoders, QueuedWriter
from lithify.files.parquet import Layout, PartWriter, Written, part_path

OPEN_WRITERS_MAX = 64
WAITING_BYTES_MAX = 256 * 2**20
FILE_ROWS_MAX = 4_000_000

_Values = tuple[Any, ...]


class PartFiles:
    """The files of one job below `root`/`folder`, written here or, given `encoders`, by their threads. A file ends when
    it has got `bytes_max` bytes of rows, as they are in memory.
    """

    def __init__(
        self,
        schema: TableSchema,
        root: str,
        folder: str,
        *,
        bytes_max: int | None = None,
        encoders: Encoders | None = None,
    ) -> None:
        self._schema, self._root, self._folder = schema, root, folder
        self._bytes_max, self._encoders = bytes_max, encoders
        self._layout = Layout.of(schema)
        self._waiting: dict[_Values, list[pa.Table]] = {}
        self._waiting_bytes = 0
        self._writers: dict[_Values, PartWriter | QueuedWriter] = {}
        self._rows: dict[_Values, int] = {}
        self._bytes: dict[_Values, int] = {}
        self._ended: list[Written | Future[Written]] = []
        self._closing: list[QueuedWriter] = []

    def write(self, table: pa.Table) -> None:
        """Rows that come after those before, in the order of the keys."""
        if not table.num_rows:
            return
        partitions, group_of = partition_rows(self._schema, table)
        for number, partition in enumerate(partitions):
            values = tuple(partition.values())
            part = table if len(partitions) == 1 else table.filter(pa.array(group_of == number))
            parts = self._waiting.setdefault(values, [])
            parts.append(part)
            self._waiting_bytes += part.nbytes
            if sum(each.num_rows for each in parts) >= self._layout.buffer_rows:
                self._flush(values)
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._flush(max(self._waiting, key=lambda p: sum(each.nbytes for each in self._waiting[p])))

    def close(self) -> list[Written]:
        """All files are whole and durable but for their entries in folders."""
        for values in list(self._waiting):
            self._flush(values)
        for values in list(self._writers):
            self._end(values)
        return self.ended

    @property
    def ended(self) -> list[Written]:
        """The files that have ended so far."""
        encoders = self._encoders
        return [
            encoders.result(file) if encoders is not None and isinstance(file, Future) else file  # type: ignore[misc]
            for file in self._ended
        ]

    def abandon(self) -> None:
        """Give up files that have not ended. No thread is at work any more."""
        for writer in (*self._writers.values(), *self._closing):
            writer.abandon()

    def _flush(self, values: _Values) -> None:
        parts = self._waiting.pop(values)
        size = sum(part.nbytes for part in parts)
        self._waiting_bytes -= size
        writer = self._writers.get(values)
        if writer is None:
            if len(self._writers) >= OPEN_WRITERS_MAX:
                self._end(next(iter(self._writers)))
            writer = self._writers[values] = self._opened()
            self._rows[values] = self._bytes[values] = 0
        for part in parts:
            writer.write(part)
            self._rows[values] += part.num_rows
        self._bytes[values] += size
        full = self._bytes_max is not None and self._bytes[values] >= self._bytes_max
        if full or self._rows[values] >= FILE_ROWS_MAX:
            self._end(values)

    def _opened(self) -> PartWriter | QueuedWriter:
        path = part_path(self._root, self._folder, f"part-{uuid.uuid4().hex}.parquet")
        writer = PartWriter(path, self._layout.columns, self._layout)
        return writer if self._encoders is None else QueuedWriter(writer, self._encoders)

    def _end(self, values: _Values) -> None:
        writer = self._writers.pop(values)
        if isinstance(writer, QueuedWriter):
            self._closing.append(writer)
        self._ended.append(writer.close(path_of(self._root)))
