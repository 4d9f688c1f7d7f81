"""How Lithify writes and reads Parquet: one physical layout for every file of every table.

ZSTD, page checksums (written and verified), microsecond timestamps, delta encoding where it makes keys and times an
order of magnitude cheaper to read, dictionaries where values repeat, bloom filters where one is looked up. `Layout`
holds what a table's options say; whoever writes a file, in this process or on Spark's executors, does it through
`encode` or `PartWriter`. The statistics that go into the Delta log come from the footer just written, which is handed
on for the table's index. Parquet's statistics say nothing of NaN, so the footer names the float columns that have none
(`NAN_FREE`).

All row groups of a file are cut to one size, chosen when the first is written: small ones for a file that fits into
one large one, else large ones. A bloom filter is as large as that size needs, and files of few rows have none.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import socket
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.core.column_types import Family, type_of
from lithify.core.schema import TableSchema
from lithify.errors import Unavailable
from lithify.files.addresses import BucketPath, is_remote
from lithify.files.local_files import draft, upload
from lithify.files.modes import follow_folder
from lithify.files.open_parquet import corrupt, footer_in, footer_of, open_file, read_footer
from lithify.files.os_errors import translated
from lithify.files.statistics import stats_json

P = TypeVar("P", bound=PurePath)

GROUP_ROWS_SMALL, GROUP_ROWS_LARGE = 32_768, 131_072
# Small pages, so that a lookup decodes little; a dictionary that has grown beyond this costs more than it saves.
PAGE_ROWS = 4_096
DICTIONARY_BYTES_MAX = 65_536
BLOOM_ROWS_MIN = 8_192
ONE_THREAD_ROWS_MAX = 16_384
BLOOM_NDV_MAX = 1_048_576
NAN_FREE = "lithify.nan_free"


@dataclass(frozen=True)
class Layout:
    """What the writer needs to know of a table."""

    columns: pa.Schema
    compact_columns: tuple[str, ...] = ()
    stats_columns: tuple[str, ...] = ()
    row_group_rows: int | None = None  # None: by the size of the file
    compression_level: int = 3
    bloom_columns: tuple[str, ...] = ()
    bloom_fpp: float = 0.01
    sorted_by: tuple[str, ...] = ()  # what the rows of this file are known to be sorted by, nulls last

    @classmethod
    def of(cls, schema: TableSchema) -> Layout:
        options = schema.options
        special = list(
            dict.fromkeys([*schema.key, *schema.order_columns, *filter(None, (schema.time,)), *schema.partition_by])
        )
        told_by = (schema.expiry.column,) if schema.expiry is not None else ()
        ordered = list(dict.fromkeys((*special, *schema.sort_columns, *told_by)))
        rest = [name for name in schema.names if name not in ordered][: options["stats_columns_max"]]
        blooms = options["bloom_columns"]
        return cls(
            schema.columns,
            tuple(special),
            tuple(ordered + rest),
            options["row_group_rows"],
            options["compression_level"],
            _usual_bloom_columns(schema) if blooms is None else tuple(blooms),
            options["bloom_fpp"],
        )

    @property
    def buffer_rows(self) -> int:
        """Rows to gather before they are written: whole row groups, and enough to see whether the file is small."""
        size = self.row_group_rows or GROUP_ROWS_LARGE
        return size * math.ceil(BLOOM_ROWS_MIN / size)

    def group_rows(self, rows: int) -> int:
        """Rows of each row group of a file that gets `rows` rows, or more if these fill the buffer."""
        return self.row_group_rows or (GROUP_ROWS_SMALL if rows < GROUP_ROWS_LARGE else GROUP_ROWS_LARGE)


def _usual_bloom_columns(schema: TableSchema) -> tuple[str, ...]:
    named = (f.name for f in schema.columns if f.name.endswith(("_id", "_key")) and type_of(f.type).is_text)
    return tuple(n for n in dict.fromkeys([*schema.key, *named]) if can_have_bloom(schema.columns.field(n).type))


def can_have_bloom(kind: pa.DataType) -> bool:
    """Plain values; of true and false, statistics tell everything."""
    return type_of(kind).family not in (Family.NESTED, Family.BOOLEAN)


@dataclass(frozen=True)
class Written:
    """A finished Parquet file: what its log entry needs, and its footer as it stands in the file."""

    path: str
    size_bytes: int
    rows: int
    stats: str
    footer: bytes = field(default=b"", repr=False)


def encode(table: pa.Table, layout: Layout) -> tuple[bytes, str]:
    """A small table as Parquet bytes, with its statistics."""
    sink = io.BytesIO()
    writer = open_writer(sink, table.schema, layout, table.num_rows)
    writer.write_table(table, layout.group_rows(table.num_rows))
    _note_nan_free(writer, nan_free(table, float_columns(table.schema)))
    writer.close()
    data = sink.getvalue()
    return data, stats_json(footer_of(footer_in(data), "a file in memory"), table.schema, layout.stats_columns)


def float_columns(schema: pa.Schema) -> list[str]:
    return [column.name for column in schema if type_of(column.type).family is Family.FLOAT]


def nan_free(table: pa.Table, candidates: Collection[str]) -> list[str]:
    """Those of the float columns that hold no NaN."""
    return [name for name in candidates if not pc.any(pc.is_nan(table.column(name))).as_py()]


def _note_nan_free(writer: pq.ParquetWriter, columns: Collection[str]) -> None:
    if columns:
        writer.add_key_value_metadata({NAN_FREE: json.dumps(list(columns), ensure_ascii=False)})


def open_writer(sink: Path | BinaryIO, schema: pa.Schema, layout: Layout, rows: int) -> pq.ParquetWriter:
    """`rows`: how many are waiting, which are all of them if they do not fill the buffer."""
    blooms: dict[str, Any] = {}
    if rows >= BLOOM_ROWS_MIN:
        shape = {"ndv": min(rows, layout.group_rows(rows), BLOOM_NDV_MAX), "fpp": layout.bloom_fpp}
        blooms = {name: shape for name in layout.bloom_columns if name in schema.names}
    delta = [f.name for f in schema if f.name in layout.compact_columns and type_of(f.type).is_counted]
    return pq.ParquetWriter(
        sink,
        schema.remove_metadata(),
        compression="zstd",
        compression_level=layout.compression_level,
        use_dictionary=[f.name for f in schema if f.name not in delta],
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
        write_page_checksum=True,
        store_schema=False,
        write_page_index=True,
        max_rows_per_page=PAGE_ROWS,
        dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
        coerce_timestamps="us",
        bloom_filter_options=blooms or None,
        sorting_columns=_sorting_columns(schema, layout.sorted_by),
        version="2.6",
    )


def _sorting_columns(schema: pa.Schema, names: tuple[str, ...]) -> tuple[pq.SortingColumn, ...] | None:
    order = [(name, "ascending") for name in names]
    return pq.SortingColumn.from_ordering(schema, order, null_placement="at_end") if order else None


def read(
    path: PurePath, columns: pa.Schema, constants: dict[str, Any] | None = None, size_bytes: int | None = None
) -> pa.Table:
    """Read the wanted columns; one that the file lacks is `constants`' value, or null (it was added later)."""
    batches = list(batches_of(path, columns, constants, size_bytes))
    return pa.concat_tables([columns.empty_table(), *batches])


def batches_of(
    path: PurePath, columns: pa.Schema, constants: dict[str, Any] | None = None, size_bytes: int | None = None
) -> Iterator[pa.Table]:
    """The same by row group, to keep memory bounded by one of them."""
    file = open_file(path, size_bytes)
    known = set(file.schema_arrow.names)
    present = [name for name in columns.names if name in known]
    for group in range(file.num_row_groups):
        try:
            # Waking other threads takes longer than to decode a few rows.
            many = file.metadata.row_group(group).num_rows > ONE_THREAD_ROWS_MAX
            table = file.read_row_group(group, columns=present, use_threads=many)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise corrupt(path, error) from error
        yield completed(table, columns, constants or {})


def completed(table: pa.Table, columns: pa.Schema, constants: dict[str, Any]) -> pa.Table:
    arrays = []
    found = dict(zip(table.column_names, table.columns, strict=True))
    for column in columns:
        values = found.get(column.name)
        if values is not None and column.name not in constants:
            # Files of other writers hold INT96, milliseconds or nanoseconds, which Arrow reads as other types.
            arrays.append(values if values.type == column.type else values.cast(column.type, safe=False))
        else:
            arrays.append(pa.repeat(pa.scalar(constants.get(column.name), column.type), table.num_rows))
    return pa.table(arrays, schema=columns)


def part_path(root: str, folder: str, name: str) -> PurePath:
    """Where a task writes: below the job's folder, the first part of `folder`, which whoever started the job has made.
    Where it is missing, this machine does not see the lake, or the job was given up: then nothing is created. In a
    bucket there are no folders.
    """
    if is_remote(root):
        return BucketPath(root) / folder / name
    job = Path(root, Path(folder).parts[0])
    with translated(job):
        is_there = job.is_dir()
    if not is_there:
        raise Unavailable(
            f"{job} is not there on {socket.gethostname()}: if that is another machine, mount the lake's folder on it",
            host=socket.gethostname(),
            path=str(job),
        )
    path = Path(root, folder, name)
    with translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for made in [parent for parent in path.parents if parent != job and parent.is_relative_to(job)]:
            follow_folder(made, job)
    return path


class PartWriter:
    """Writes sorted batches into one file; `close` makes it durable and says what was written.

    Spark may try a task again, or twice at once. The first attempt at a file has the name that was asked for, others
    another one, and so has every attempt in a bucket, where it is a local file until it is whole: what counts is the
    path that `close` tells.
    """

    def __init__(self, path: PurePath, schema: pa.Schema, layout: Layout) -> None:
        self._schema, self._layout = schema, layout
        self.path, self._file = path, Path(path)
        if is_remote(path):
            self.path, self._file = _another(path), draft()
        with translated(self._file):
            try:
                self._sink = self._file.open("xb")
            except FileExistsError:
                self.path = self._file = _another(self._file)
                self._sink = self._file.open("xb")
            if self.path == self._file:
                follow_folder(self._file, self._file.parent)
        self._writer: pq.ParquetWriter | None = None
        self._group_rows = 0
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._nan_free = float_columns(schema)

    @property
    def bytes_written(self) -> int:
        """Of the row groups written so far."""
        return self._sink.tell()

    def write(self, table: pa.Table) -> None:
        self._pending.append(table)
        self._pending_rows += table.num_rows
        while self._pending_rows >= self._layout.buffer_rows:
            self._flush(self._layout.buffer_rows)

    def _flush(self, rows: int) -> None:
        whole = pa.concat_tables(self._pending)
        with translated(self._file):
            if self._writer is None:
                self._group_rows = self._layout.group_rows(self._pending_rows)
                self._writer = open_writer(self._sink, self._schema, self._layout, self._pending_rows)
            self._writer.write_table(whole.slice(0, rows), self._group_rows)
        self._nan_free = nan_free(whole.slice(0, rows), self._nan_free)
        rest = whole.slice(rows)
        self._pending, self._pending_rows = ([rest] if rest.num_rows else []), rest.num_rows

    def close(self, relative_to: PurePath) -> Written:
        if self._pending_rows or self._writer is None:
            self._pending.append(self._schema.empty_table())
            self._flush(self._pending_rows)
        assert self._writer is not None
        with translated(self._file):
            _note_nan_free(self._writer, self._nan_free)
            self._writer.close()
            self._sink.flush()
            if self.path == self._file:
                os.fsync(self._sink.fileno())
            self._sink.close()
            footer = read_footer(self._file)
            size = self._file.stat().st_size
        known = footer_of(footer, self.path)
        if self.path != self._file:
            upload(self._file, self.path)
            self._discard()
        stats = stats_json(known, self._schema, self._layout.stats_columns)
        return Written(self.path.relative_to(relative_to).as_posix(), size, known.metadata.num_rows, stats, footer)

    def abandon(self) -> None:
        """What it is given up for says more than what stops this; recovery removes the folder of a job."""
        with contextlib.suppress(OSError, pa.ArrowException):  # what is still buffered does not matter any more
            if self._writer is not None and not self._sink.closed:
                self._writer.close()  # or it would be tried when it is forgotten, on a file that is gone
        with contextlib.suppress(OSError):
            self._sink.close()
        self._discard()

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


def _another(path: P) -> P:
    return path.with_stem(f"{path.stem}-{uuid.uuid4().hex[:8]}")
