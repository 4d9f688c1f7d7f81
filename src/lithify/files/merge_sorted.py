"""Merging many files into few, in the table's order, with memory for a row group of each at most.

The order is that of `MergeTask.by`, the key unless the table's options say otherwise, with nulls last. Inputs that
are sorted by it are merged like runs of a merge sort, a batch at a time: everything below the smallest
"last key read so far" is complete and can go out. A file is opened only when its lowest key is reached, so files with
disjoint ranges simply follow each other. An input that is not sorted is sorted in memory if it is small; otherwise,
and on tables whose rows have no order, the files follow each other as they are. Footers of sorted outputs say so.

The same rows come out. Each task counts and fingerprints what it read and, from the finished files, what it wrote;
whoever commits compares the two. Tasks depend on pyarrow and NumPy alone, so they run here or on Spark's executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.core.arrow_rows import sort_by
from lithify.core.column_types import Family, type_of
from lithify.core.distinct import distinct
from lithify.errors import Corruption
from lithify.files.addresses import path_of
from lithify.files.examine import check_foreign
from lithify.files.key_checksum import added, fingerprint, fingerprint_of_file
from lithify.files.local_files import bring
from lithify.files.open_parquet import open_file
from lithify.files.parquet import Layout, PartWriter, Written, batches_of, part_path
from lithify.files.statistics import ranges_of
from lithify.metrics.progress import advance, done_again

SORT_ROWS_MAX = 4_000_000
SLACK = 1.1


@dataclass(frozen=True)
class MergeSource:
    path: str
    rows: int
    size_bytes: int
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OrderTask:
    """Write `sources` anew in order of `by`, to files `folder`/`name`-<n>.parquet below `root`, each of about
    `target_bytes`.
    """

    sources: tuple[MergeSource, ...]
    by: tuple[str, ...]
    check: tuple[str, ...]
    layout: Layout
    root: str
    folder: str
    name: str
    target_bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class MergeTask(OrderTask):
    """`window`: (time column, microseconds): rows of different windows go to different files."""

    window: tuple[str, int] | None = None


@dataclass(frozen=True)
class MergeResult:
    written: tuple[Written, ...]
    partition: Mapping[str, str | None]
    rows_read: int
    fingerprint_read: int
    fingerprint_written: int

    @property
    def rows_written(self) -> int:
        return sum(file.rows for file in self.written)


def merge_files(task: MergeTask) -> MergeResult:
    files = [(source.path, source.size_bytes) for source in task.sources]
    bring(files)
    check_foreign(files)
    runs = [_Run(source, task) for source in task.sources]
    while True:
        try:
            with done_again():
                return _merge(task, runs)
        except _NotInOrder as error:
            error.run.in_order, error.run.low = False, None


def _merge(task: MergeTask, runs: Sequence[_Run]) -> MergeResult:
    in_order = bool(task.by) and not any(run.too_large_to_sort for run in runs)
    writers = _Writers(task, sum(run.rows for run in runs), task.by if in_order else ())
    rows, sums = 0, 0
    try:
        for table in _merged(task, runs) if in_order else _one_after_the_other(runs):
            rows += table.num_rows
            sums = added((sums, fingerprint(table, task.check)))
            writers.write(table)
        written = writers.close()
    except BaseException:
        writers.abandon()
        raise
    columns = pa.schema([task.layout.columns.field(name) for name in task.check])
    root = path_of(task.root)
    again = added(fingerprint_of_file(root / file.path, columns, size_bytes=file.size_bytes) for file in written)
    return MergeResult(written, task.partition, rows, sums, again)


# -- reading


def _one_after_the_other(runs: Sequence[_Run]) -> Iterator[pa.Table]:
    for run in runs:
        yield from run.batches()


def _merged(task: MergeTask, runs: Sequence[_Run]) -> Iterator[pa.Table]:
    waiting = sorted(runs, key=lambda run: (run.low is not None, run.low))
    active: list[_Cursor] = []
    while waiting or active:
        # Files that reach into what is read already are opened together: one by one, each would cut off a sliver.
        while waiting and (waiting[0].low is None or not active or waiting[0].low <= min(c.last for c in active)):
            active.append(_Cursor(waiting.pop(0), task.by))
        bounds = [cursor.last for cursor in active if not cursor.exhausted]
        if waiting and waiting[0].low is not None:
            bounds.append(waiting[0].low)
        bound = min(bounds, default=None)
        parts = [part for cursor in active if (part := cursor.take_below(bound)).num_rows]
        if parts:
            yield parts[0] if len(parts) == 1 else sort_by(pa.concat_tables(parts), task.by)
        elif bound is not None:
            stuck = [cursor for cursor in active if not cursor.exhausted and cursor.last == bound]
            for cursor in stuck:
                cursor.grow()
        active = [cursor for cursor in active if not cursor.done]


class _Run:
    """One input. `low`: its lowest key as the footer tells it, None where it does not."""

    def __init__(self, source: MergeSource, task: MergeTask) -> None:
        self._source, self.columns, self._by = source, task.layout.columns, task.by
        file = open_file(source.path, source.size_bytes)
        metadata = file.metadata
        if metadata.num_rows != source.rows >= 0:
            raise Corruption(
                f"{source.path} has {metadata.num_rows} rows instead of {source.rows}: restore this file from a copy",
                path=source.path,
            )
        self.rows = metadata.num_rows
        first = task.by[0] if task.by else None
        asked = first is not None and first not in source.constants
        ranges = _ranges(source, file, self.columns.field(first)) if asked else None
        self.in_order = ranges is not None and all(high <= low for (_, high), (low, _) in pairwise(ranges))
        # Footers tell of single columns only: the bound of a composite key starts with the first one.
        self.low: tuple[Any, ...] | None = (ranges[0][0],) if ranges and self.in_order else None

    @property
    def too_large_to_sort(self) -> bool:
        return not self.in_order and self.rows > SORT_ROWS_MAX

    def batches(self) -> Iterator[pa.Table]:
        source = self._source
        for batch in batches_of(path_of(source.path), self.columns, dict(source.constants), source.size_bytes):
            advance(rows=batch.num_rows)
            yield batch
        advance(files=1, bytes=source.size_bytes)

    def sorted_batches(self) -> Iterator[pa.Table]:
        if not self.in_order:
            whole = pa.concat_tables([self.columns.empty_table(), *self.batches()])
            yield sort_by(whole, self._by)
            return
        for batch in self.batches():
            yield batch if _is_sorted(batch, self._by) else sort_by(batch, self._by)


class _NotInOrder(Exception):
    """The footer told of an order by the first column, but a later one breaks it after rows were given out."""

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self.run = run


class _Cursor:
    """The part of a run that was read and not yet given out."""

    def __init__(self, run: _Run, by: Sequence[str]) -> None:
        self._run, self._by = run, by
        self._given: tuple[_Value, ...] | None = None
        self._batches = run.sorted_batches()
        self._buffer = run.columns.empty_table()
        self._next = next(self._batches, None)
        self.last: tuple[Any, ...] = ()
        self.grow()

    @property
    def exhausted(self) -> bool:
        return self._next is None

    @property
    def done(self) -> bool:
        return self.exhausted and not self._buffer.num_rows

    def grow(self) -> None:
        if self._next is None:
            return
        batch, self._next = self._next, next(self._batches, None)
        if self._given is not None and batch.num_rows and _key_at(batch, 0, self._by) < self._given:
            raise _NotInOrder(self._run)
        parts = [part for part in (self._buffer, batch) if part.num_rows]
        if len(parts) == 2 and _key_at(parts[1], 0, self._by) < _key_at(parts[0], -1, self._by):
            parts = [sort_by(pa.concat_tables(parts), self._by)]
        self._buffer = pa.concat_tables(parts) if parts else batch
        if self._buffer.num_rows:
            self.last = _key_at(self._buffer, -1, self._by)

    def take_below(self, bound: tuple[Any, ...] | None) -> pa.Table:
        count = self._buffer.num_rows if bound is None else _count_below(self._buffer, self._by, bound)
        taken, self._buffer = self._buffer.slice(0, count), self._buffer.slice(count)
        if count:
            self._given = _key_at(taken, -1, self._by)
        if not self._buffer.num_rows:
            self.grow()
        return taken


_Value = tuple[bool, Any]  # a value of the order: whether it is null, and what it is if it is not


def _ranges(source: MergeSource, file: pq.ParquetFile, column: pa.Field) -> list[tuple[_Value, _Value]] | None:
    """The lowest and highest value of a column in each row group, or None where the footer does not say.

    A file of another writer may spell the type differently: its bounds do not compare with the table's values then.
    """
    found = file.schema_arrow.get_field_index(column.name)
    if found < 0 or file.schema_arrow.field(found).type != column.type or not file.num_row_groups:
        return None
    ranges = ranges_of(path_of(source.path), column.name, source.size_bytes)
    if ranges is None:
        return None
    return [
        (
            (False, _comparable(low, column.type)),
            (True, None) if column.nullable and nulls != 0 else (False, _comparable(high, column.type)),
        )
        for low, high, nulls in ranges
    ]


def _comparable(value: Any, kind: pa.DataType) -> Any:
    return _value(pa.scalar(value, kind)) if pa.types.is_temporal(kind) else value


def _value(scalar: pa.Scalar) -> Any:
    """Moments as numbers: Arrow has some that Python's calendar has not."""
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()


def _in_order(scalar: pa.Scalar) -> _Value:
    return (False, _value(scalar)) if scalar.is_valid else (True, None)


def _key_at(table: pa.Table, line: int, by: Sequence[str]) -> tuple[_Value, ...]:
    row = line % table.num_rows
    return tuple(_in_order(table.column(name)[row]) for name in by)


def _is_sorted(table: pa.Table, by: Sequence[str]) -> bool:
    """Lexicographically non-decreasing, nulls last."""
    if table.num_rows < 2:
        return True
    undecided = None
    for name in by:
        values = type_of(table.schema.field(name).type).ordered(table.column(name))
        before, after = values.slice(0, len(values) - 1), values.slice(1)
        wrong, equal = pc.greater(before, after), pc.equal(before, after)
        if values.null_count:
            gone, stays = before.is_null(), after.is_null()
            wrong = pc.or_(pc.fill_null(wrong, False), pc.and_not(gone, stays))
            equal = pc.or_(pc.fill_null(equal, False), pc.and_(gone, stays))
        if undecided is not None:
            wrong = pc.and_(wrong, undecided)
        if pc.any(wrong).as_py():
            return False
        undecided = equal if undecided is None else pc.and_(undecided, equal)
        if not pc.any(undecided).as_py():
            return True
    return True


def _count_below(table: pa.Table, by: Sequence[str], bound: tuple[Any, ...]) -> int:
    """How many rows of a sorted table come before `bound`, which may name only the first columns of the key."""
    low, high = 0, table.num_rows
    columns = [table.column(name) for name in by[: len(bound)]]
    while low < high:
        middle = (low + high) // 2
        if tuple(_in_order(column[middle]) for column in columns) < bound:
            low = middle + 1
        else:
            high = middle
    return low


# -- writing


class _Writers:
    """One file at a time, or one per window. A file ends at its share of the rows, or at the target size."""

    def __init__(self, task: MergeTask, rows: int, sorted_by: tuple[str, ...]) -> None:
        self._task, self._layout = task, replace(task.layout, sorted_by=sorted_by)
        self._open: dict[int, PartWriter] = {}
        self._rows: dict[int, int] = {}
        self._done: list[Written] = []
        self._count = 0
        files = max(1, round(sum(source.size_bytes for source in task.sources) / task.target_bytes))
        # Even shares: no small rest at the end.
        self._rows_max = rows if task.window else -(-rows // files)

    def write(self, table: pa.Table) -> None:
        for window, part in self._by_window(table):
            while part.num_rows:
                writer = self._open.get(window) or self._start(window)
                room = max(1, self._rows_max - self._rows[window])
                head, part = part.slice(0, room), part.slice(room)
                writer.write(head.cast(self._task.layout.columns))
                self._rows[window] += head.num_rows
                full = writer.bytes_written >= self._task.target_bytes * SLACK
                if full or (self._rows[window] >= self._rows_max and not self._task.window):
                    self._finish(window)

    def _by_window(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        if self._task.window is None:
            yield 0, table
            return
        name, length_us = self._task.window
        times = table.column(name)
        if type_of(times.type).family is not Family.TIMESTAMP:
            yield 0, table
            return
        numbers = pc.fill_null(times.cast(pa.int64()), -1).to_numpy() // length_us
        windows = distinct(numbers)
        for window in windows:
            yield int(window), table if len(windows) == 1 else table.filter(pa.array(numbers == window))

    def _start(self, window: int) -> PartWriter:
        task = self._task
        path = part_path(task.root, task.folder, f"{task.name}-{self._count:05d}.parquet")
        self._count += 1
        self._rows[window] = 0
        writer = self._open[window] = PartWriter(path, task.layout.columns, self._layout)
        return writer

    def _finish(self, window: int) -> None:
        self._done.append(self._open.pop(window).close(path_of(self._task.root)))

    def close(self) -> tuple[Written, ...]:
        for window in list(self._open):
            self._finish(window)
        return tuple(self._done)

    def abandon(self) -> None:
        for writer in self._open.values():
            writer.abandon()
