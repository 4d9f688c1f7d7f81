"""Many rows of Arrow into a table by this process alone: as a stream, into several files, with one commit.

Rows that come in the order of their keys are encoded as they come; a look at each batch tells. As soon as one does not
follow the ones before it, runs are gathered and sorted, on disk where they do not fit, and merged
(`files/sorted_runs.py`); files that were written until then are one of the runs. Several threads encode
(`files/encoders.py`). The files are laid out as base wants them, so a fold into an empty range of keys links them.

Memory that this takes at most, beside what the caller holds itself (`Bounds`): a run as it comes and once more while it
is sorted, or what waits to be encoded, a file for each thread, and a few ranges that are sorted ahead: about 0.8 GiB
with two threads. The rows of a table in memory that lie in no order are sorted where they are; if they lie in many
pieces, they are put together first, 1 GiB at most.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from lithify.core.arrow_rows import lies_in_order
from lithify.core.ops import Op
from lithify.core.results import Commit
from lithify.core.rows import rows_of
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest
from lithify.files.addresses import is_remote, path_of
from lithify.files.encoders import Encoders
from lithify.files.parquet import Written, batches_of
from lithify.files.part_files import PartFiles
from lithify.files.scratch import Scratch
from lithify.files.sorted_runs import KeyOrder, Run, merged, spill_path
from lithify.tables.handles import Handles
from lithify.write.bulk import Files, write_files
from lithify.write.conditions import Write

# Fewer rows are one file of the table's writer thread, and may share its commits. A job costs some syncs more, which
# pays where a second core can help.
LOAD_ROWS_MIN = 400_000
LOAD_BYTES_MIN = 64 * 2**20
SLICE_ROWS = 131_072

Batches = Iterable[pa.RecordBatch | pa.Table]


@dataclass(frozen=True)
class Bounds:
    """How much of the rows, as they are in memory: goes into one file, is sorted at once, in one range of all runs, or
    where it is if the caller holds it.
    """

    file_bytes: int = 96 * 2**20
    run_bytes: int = 256 * 2**20
    range_bytes: int = 32 * 2**20
    held_bytes_max: int = 2**30


USUAL = Bounds()


class Many:
    """So many rows that they are loaded: a table, or batches that come one after the other."""

    def __init__(self, rows: pa.Table | Iterator[pa.Table]) -> None:
        self.rows = rows


def looked_at(data: Any) -> Any:
    """`Many`, or what was given. Of a stream as much is read as it takes to tell, and handed back if that is all."""
    if isinstance(data, pa.Table):
        return Many(data) if _is_much(data.num_rows, data.nbytes) else data
    stream = _stream(data)
    if stream is None:
        return data
    begun: list[Any] = []
    rows = size = 0
    for batch in stream:
        begun.append(batch)
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            return chain(begun, stream)  # rows one by one, or a mistake
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if _is_much(rows, size):
            return Many(map(_table, chain(begun, stream)))
    return begun if begun or not isinstance(data, pa.RecordBatchReader) else data.schema.empty_table()


def _stream(data: Any) -> Iterator[Any] | None:
    """What hands its rows over batch by batch."""
    return iter(data) if isinstance(data, pa.RecordBatchReader | Iterator) else None


def _is_much(rows: int, size_bytes: int) -> bool:
    return rows >= LOAD_ROWS_MIN or size_bytes >= LOAD_BYTES_MIN


def _table(batch: Any) -> pa.Table:
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    raise InvalidRequest(f"a {type(batch).__name__} stands among record batches: give one or the other")


def load(
    handles: Handles, data: pa.Table | Batches, write: Write, *, distinct: bool = False, bounds: Bounds = USUAL
) -> Commit:
    """One commit of the rows. Of several rows for one key the last one counts, or the newest by order_by; `distinct`:
    they are refused.
    """

    def produce(schema: TableSchema, root: str, folder: str) -> Files:
        loading = _Load(schema, root, folder, distinct, bounds)
        if isinstance(data, pa.Table) and data.schema.types == [_type_in(schema, name) for name in data.column_names]:
            rows = rows_of(data, schema, complete=write.complete)
            written = loading.held(rows)
        else:
            batches = _sliced(data) if isinstance(data, pa.Table) else data
            written = loading.streamed(_fitting(batches, schema, write.complete))
        return [(file, Op.UPSERT) for file in written]

    return write_files(handles, write, produce)


def _type_in(schema: TableSchema, name: str) -> pa.DataType | None:
    return schema.columns.field(name).type if name in schema.names else None


def _sliced(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, SLICE_ROWS):
        yield table.slice(start, SLICE_ROWS)


def _fitting(batches: Batches, schema: TableSchema, complete: bool) -> Iterator[pa.Table]:
    """The batches as rows of the table. An error tells which row the batch begins with."""
    start = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        try:
            yield rows_of(batch, schema, complete=complete)
        except InvalidRequest as error:
            if not start:
                raise
            counted = f" (counted from row {start:,} of all)"
            raise InvalidRequest(error.message + counted, public=error.public + counted) from error
        start += batch.num_rows


class _Load:
    def __init__(self, schema: TableSchema, root: str, folder: str, distinct: bool, bounds: Bounds) -> None:
        self._schema, self._root, self._folder, self._bounds = schema, root, folder, bounds
        self._order = KeyOrder.of(schema, distinct=distinct)

    def held(self, rows: pa.Table) -> list[Written]:
        """Rows that are in memory anyway."""
        size, as_they_lie = rows.nbytes, not self._schema.keyed or lies_in_order(rows, self._order.key)
        if not as_they_lie and size > self._bounds.held_bytes_max:
            return self.streamed(_sliced(rows))
        with self._writing(math.ceil(size / math.ceil(size / self._bounds.file_bytes))) as (files, encoders):
            if as_they_lie:
                pieces = _sliced(rows)
            else:
                pieces = merged([Run.of(rows, self._order)], self._order, self._bounds.range_bytes, encoders)
            for piece in pieces:
                files.write(piece)
            return files.close()

    def streamed(self, tables: Iterator[pa.Table]) -> list[Written]:
        """Rows that come one batch after the other, and are not kept."""
        with contextlib.ExitStack() as stack:
            rest: Iterator[pa.Table] = iter(())
            with self._writing() as (files, _):
                last: pa.Table | None = None
                for table in tables:
                    if self._schema.keyed:
                        keys = table.select(list(self._order.key))
                        if not lies_in_order(keys if last is None else pa.concat_tables([last, keys]), self._order.key):
                            rest = chain([table], tables)
                            break
                        last = keys.slice(keys.num_rows - 1)
                    for piece in _sliced(table):
                        files.write(piece)
                written = files.close()
            if (first := next(rest, None)) is None:
                return written
            spill = stack.enter_context(Scratch("load")) if is_remote(self._root) else self._own_folder
            runs = list(self._runs(chain(self._again(written), [first], rest), spill))
            with self._writing() as (files, encoders):
                for piece in merged(runs, self._order, self._bounds.range_bytes, encoders):
                    files.write(piece)
                return files.close()

    @property
    def _own_folder(self) -> PurePath:
        """Of the job: what lies there and is not reported is removed before the commit, or by recovery."""
        return path_of(self._root) / self._folder

    def _again(self, files: list[Written]) -> Iterator[pa.Table]:
        """What was written while the rows still came in order."""
        for file in files:
            yield from batches_of(path_of(self._root) / file.path, self._schema.columns, size_bytes=file.size_bytes)

    def _runs(self, tables: Iterator[pa.Table], folder: PurePath) -> Iterator[Run]:
        """Sorted runs, all but the last one on disk."""
        gathered: list[pa.Table] = []
        size = number = 0
        for table in tables:
            if gathered and size + table.nbytes > self._bounds.run_bytes:
                yield Run.of(pa.concat_tables(gathered), self._order).spilled(spill_path(folder, number))
                gathered, size, number = [], 0, number + 1
            gathered.append(table)
            size += table.nbytes
        yield Run.of(pa.concat_tables(gathered), self._order)

    @contextlib.contextmanager
    def _writing(self, file_bytes: int | None = None) -> Iterator[tuple[PartFiles, Encoders]]:
        encoders = Encoders(self._bounds.file_bytes)
        size = file_bytes or self._bounds.file_bytes
        files = PartFiles(self._schema, self._root, self._folder, bytes_max=size, encoders=encoders)
        try:
            with encoders:
                yield files, encoders
        except BaseException:
            files.abandon()
            raise
