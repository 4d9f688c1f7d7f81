"""Rewriting one base file: drop the hidden rows, put the new ones in their place, keep the order.

One task reads one file, row group by row group, and writes one file. An updated row stays where it was; a new row
goes to its place if the file is sorted by key, else to the end. A file that holds none of the hidden keys and gets
no new row is left as it is. Tasks depend on pyarrow and NumPy alone, so the same code runs in this process and on
Spark's executors.

The hidden keys and new rows of all tasks lie in two Arrow files, sorted so that each task's share is one slice,
read by memory map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import lookup, sort_by, take
from lithify.errors import Corruption
from lithify.files.addresses import is_remote, path_of
from lithify.files.local_files import draft, upload, use
from lithify.files.open_parquet import open_file
from lithify.files.os_errors import translated
from lithify.files.parquet import Layout, PartWriter, Written, batches_of, part_path
from lithify.files.read_proof import check_whole
from lithify.files.statistics import ranges_of
from lithify.metrics.progress import advance

SHOWN = "_lithify_shown"


@dataclass(frozen=True)
class Slice:
    """Lines of an Arrow IPC file."""

    path: str
    start: int
    length: int

    def read(self) -> pa.Table:
        def rows(local: str) -> pa.Table:
            with pa.memory_map(local) as source:
                return pa.ipc.open_file(source).read_all().slice(self.start, self.length)

        with translated(self.path):
            return use(self.path, None, rows)


@dataclass(frozen=True)
class RewriteTask:
    """Rewrite `source` (None: only write `rows`) into `folder`/`name` below `root`."""

    source: str | None
    source_rows: int
    source_bytes: int
    constants: Mapping[str, Any]
    hidden: Slice | None
    rows: Slice | None
    by: tuple[str, ...]
    layout: Layout
    root: str
    target: str
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RewriteResult:
    written: Written | None
    partition: Mapping[str, str | None]
    source: str | None
    rows_read: int
    updated: int
    deleted: int
    bytes_read: int

    @property
    def unchanged(self) -> bool:
        return self.source is not None and self.written is None and not self.updated and not self.deleted


def write_slices(path: PurePath, table: pa.Table) -> None:
    file = draft() if is_remote(path) else Path(path)
    with translated(file), pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    if is_remote(path):
        upload(file, path)
        file.unlink()


def rewrite(task: RewriteTask) -> RewriteResult:
    rows = task.rows.read() if task.rows and task.rows.length else None
    if task.source is None:
        assert rows is not None
        written = _write_all(task, iter([rows]))
        return RewriteResult(written, task.partition, None, 0, 0, 0, 0)
    source = path_of(task.source)
    check_whole(task.source, task.source_bytes)
    hidden = task.hidden.read() if task.hidden and task.hidden.length else None
    if rows is None and (hidden is None or not _holds_any(task, source, hidden)):
        advance(1, max(task.source_rows, 0), task.source_bytes)
        return RewriteResult(None, task.partition, task.source, task.source_rows, 0, 0, 0)
    merge = _Merge(task, hidden, rows)
    written = _write_all(task, merge.batches(source))
    if merge.rows_read != task.source_rows >= 0:
        raise Corruption(
            f"{source} has {merge.rows_read} rows instead of {task.source_rows}: restore this file from a copy",
            path=task.source,
        )
    expected = merge.rows_read - merge.updated - merge.deleted + (rows.num_rows if rows is not None else 0)
    if (written.rows if written else 0) != expected:
        raise Corruption(
            f"rewriting {source} gave {written.rows if written else 0} rows instead of {expected}: nothing was "
            "committed; "
            "check the disk, then fold again"
        )
    advance(files=1, bytes=task.source_bytes)
    return RewriteResult(
        written, task.partition, task.source, merge.rows_read, merge.updated, merge.deleted, task.source_bytes
    )


def _write_all(task: RewriteTask, tables: Iterator[pa.Table]) -> Written | None:
    """The output file, or None where nothing is left to write."""
    writer: PartWriter | None = None
    folder, _, name = task.target.rpartition("/")
    try:
        for table in tables:
            if not table.num_rows:
                continue
            if writer is None:
                writer = PartWriter(part_path(task.root, folder, name), task.layout.columns, task.layout)
            writer.write(table.cast(task.layout.columns))
        return writer.close(path_of(task.root)) if writer else None
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


def _holds_any(task: RewriteTask, source: PurePath, hidden: pa.Table) -> bool:
    """Read the key columns alone: cheaper than rewriting a file for nothing."""
    columns = pa.schema([task.layout.columns.field(name) for name in task.by])
    batches = batches_of(source, columns, dict(task.constants), task.source_bytes)
    return any((lookup(keys, hidden, task.by) >= 0).any() for keys in batches)


def _groups_ascend(source: PurePath, task: RewriteTask) -> bool:
    """Whether no row group can hold a smaller key than one before it. Elsewhere a row that looks like a new one may
    turn out, row groups later, to take the place of another.
    """
    name = task.by[0]
    if name in task.constants or open_file(source, task.source_bytes).num_row_groups < 2:
        return True
    ranges = ranges_of(source, name, task.source_bytes)
    return ranges is not None and all(before.high <= after.low for before, after in pairwise(ranges))


class _Merge:
    def __init__(self, task: RewriteTask, hidden: pa.Table | None, rows: pa.Table | None) -> None:
        self._task, self._hidden = task, hidden
        self._rows = rows if rows is not None else task.layout.columns.empty_table()
        self._written = np.zeros(self._rows.num_rows, bool)
        # For each hidden key the new row that takes its place here, or -1.
        self._row_of_hidden = (
            lookup(hidden, self._rows, task.by)
            if hidden is not None and self._rows.num_rows
            else np.full(hidden.num_rows if hidden else 0, -1)
        )
        self._shown = hidden.column(SHOWN).to_numpy() if hidden is not None else np.zeros(0, bool)
        self._last: Any = None
        self.rows_read = self.updated = self.deleted = 0

    def batches(self, source: PurePath) -> Iterator[pa.Table]:
        task = self._task
        in_order = not self._rows.num_rows or _groups_ascend(source, task)
        pending: pa.Table | None = None
        for batch in batches_of(source, task.layout.columns, dict(task.constants), task.source_bytes):
            if pending is not None:
                yield self._with_new(pending) if in_order else pending
            self.rows_read += batch.num_rows
            advance(rows=batch.num_rows)
            in_order = in_order and self._continues(batch)
            pending = self._merged(batch)
        rest = self._rows.filter(pa.array(~self._written))
        if pending is not None and pending.num_rows and in_order and rest.num_rows:
            self._written[:] = True
            yield sort_by(pa.concat_tables([pending, rest]), task.by)
            return
        if pending is not None:
            yield pending
        yield self._rows.filter(pa.array(~self._written))

    def _continues(self, batch: pa.Table) -> bool:
        if not batch.num_rows or not self._rows.num_rows:
            return True
        keys = batch.column(self._task.by[0])
        ordered = self._last is None or pc.less_equal(self._last, keys[0]).as_py() is True
        self._last = keys[len(keys) - 1]
        if ordered and len(keys) > 1:
            ordered = bool(pc.all(pc.less_equal(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py())
        return ordered

    def _merged(self, batch: pa.Table) -> pa.Table:
        """The batch with hidden rows dropped, or replaced where they stood."""
        if self._hidden is None:
            return batch
        line = lookup(batch, self._hidden, self._task.by)
        hit = line >= 0
        if not hit.any():
            return batch
        shown = self._shown[line[hit]]
        self.updated += int(shown.sum())
        self.deleted += int((~shown).sum())
        replacement = np.where(hit, self._row_of_hidden[line], -1)
        self._written[replacement[replacement >= 0]] = True
        replaced = replacement >= 0
        order = np.arange(batch.num_rows)
        order[replaced] = batch.num_rows + np.arange(replaced.sum())
        instead = take(self._rows, replacement[replaced]).cast(batch.schema)
        return take(pa.concat_tables([batch, instead]), order[~hit | replaced])

    def _with_new(self, merged: pa.Table) -> pa.Table:
        """New rows whose place is in or before this batch, in order."""
        waiting = np.flatnonzero(~self._written)
        if not len(waiting) or not merged.num_rows:
            return merged
        name = self._task.by[0]
        last = merged.column(name)[merged.num_rows - 1]
        fitting = waiting[pc.less(self._rows.column(name), last).to_numpy()[waiting]]
        if not len(fitting):
            return merged
        self._written[fitting] = True
        return sort_by(pa.concat_tables([merged, take(self._rows, fitting).cast(merged.schema)]), self._task.by)
