"""What happened to a table's rows between two seqs: each commit's exact effect, row by row.

The files of the original commits are read, whatever folds, merges and compactions made of them since, and beside them
the rows that the changed keys had at the beginning, from the snapshot as of it. `merge/change_feed.py` decides what
each change did. Applied one after the other to the state at `since`, the rows lead through every state up to `until`.

The Arrow way decides on line numbers and then takes the rows. The Spark way scans the same files where they lie; what
is little is decided here and handed over, which spares a shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join, take
from lithify.core.names import OP, SEQ, quoted
from lithify.core.ops import Op
from lithify.core.position import Position, seq_of
from lithify.core.read_plan import Source
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest, NotFound
from lithify.files.parquet import completed, read
from lithify.files.read_proof import Vanished, check_whole, look_again
from lithify.merge.change_feed import BEFORE, BY, KIND, ChangeFile, event_columns, feed_schema, feed_sql, row_keys_of
from lithify.read.history import Originals, originals, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.read.reader import Reader

LINE = "_lithify_line"
# So much of a feed is decided in this process rather than by Spark, beside the setting `feed_rows_max`.
HERE_BYTES_MAX = 64 * 2**20

PositionLike = int | str


@dataclass(frozen=True)
class Net:
    """The last effect on each key: rows as they are at `until`, and keys that are gone. A key may be among the deleted
    that was not there before.
    """

    rows: pa.Table
    deleted: pa.Table
    until: int


@dataclass(frozen=True)
class _Span:
    """What is asked for: the files after `since` up to `until`, and the columns that their rows have today."""

    since: int
    until: int
    schema: TableSchema
    files: tuple[ChangeFile, ...]

    @property
    def row_keys(self) -> tuple[tuple[str, ...], ...]:
        return row_keys_of(self.schema, self.files)


class Feed:
    """The feed of one table, as one reader of it sees it."""

    def __init__(self, reader: Reader, *, look: bool = True) -> None:
        """Without `look` of what its handles know, who have been moved to the head before; what was asked for last is
        then known still.
        """
        self._reader, self._handles, self._look = reader, reader.handles, look
        self._questions = self._handles.runtime.serving.key_queries
        self._last: Originals | None = None

    def position(self, seq: int) -> str:
        return str(Position(str(self._handles.name), self._handles.incarnation, seq))

    def seq_of(self, position: PositionLike) -> int:
        return seq_of(position, str(self._handles.name), self._handles.incarnation)

    def until(self, since: PositionLike, rows_max: int) -> int:
        """How far a batch of about so many rows goes, in whole commits: further than `since` if there is anything."""
        if isinstance(rows_max, bool) or not isinstance(rows_max, int) or rows_max < 1:
            raise InvalidRequest(f"rows_max must be a number of rows from 1 on, not {rows_max!r}")
        return self._originals(since, None, rows_max).until

    def more_than(self, rows_max: int, since: PositionLike, until: PositionLike) -> bool:
        """Whether more rows were written than so many, told by the log; the last commit alone may be all of them."""
        found = self._originals(since, until, rows_max + 1)
        return sum(rows_of(add) for _, add in found.adds) > rows_max

    def rows(self, since: PositionLike, until: PositionLike | None, columns: Sequence[str] | None) -> pa.Table:
        def read() -> pa.Table:
            span = self._span(since, until)
            return self._rows(span, _checked(span.schema, str(self._handles.name), columns))

        return look_again(read)

    def net(self, since: PositionLike, until: PositionLike | None) -> Net:
        return look_again(lambda: self._net(since, until))

    def _net(self, since: PositionLike, until: PositionLike | None) -> Net:
        span = self._span(since, until)
        schema = span.schema
        if not schema.keyed:
            raise InvalidRequest(
                f"table {self._handles.name} has no key, so its changes have no net effect per key: use feed"
            )
        key = list(schema.key)
        if schema.order_by:
            events, kinds = self._rows(span, None), (KIND, "delete")
        else:
            names = [*schema.names, SEQ, OP]
            events, kinds = self._events(span, schema.names, []).select(names), (OP, Op.DELETE.value)
        lines = events.select([*key, kinds[0]]).append_column(LINE, pa.array(np.arange(events.num_rows)))
        last = lines.group_by(key).aggregate([(LINE, "max")]).column(f"{LINE}_max").to_numpy()
        events = take(events, np.sort(last))
        gone = np.asarray(events.column(kinds[0]).to_pylist(), object) == kinds[1]
        return Net(
            take(events.select(schema.names), np.flatnonzero(~gone)),
            take(events.select(key), np.flatnonzero(gone)),
            span.until,
        )

    def frame(
        self, spark: SparkSession, since: PositionLike, until: PositionLike | None, *, ordered: bool
    ) -> DataFrame:
        return look_again(lambda: self._frame(spark, since, until, ordered=ordered))

    def _frame(
        self, spark: SparkSession, since: PositionLike, until: PositionLike | None, *, ordered: bool
    ) -> DataFrame:
        from lithify.spark.change_feed import feed_frame, frame_of_rows

        span = self._span(since, until)
        rows, size = sum(file.rows for file in span.files), sum(file.size_bytes for file in span.files)
        if rows <= self._handles.runtime.settings.feed_rows_max and size <= HERE_BYTES_MAX:
            return frame_of_rows(spark, self._rows(span, None))
        before = self._frame_before(spark, span)
        return feed_frame(spark, span.schema, span.files, span.since, before, ordered=ordered)

    # -- what is to be read

    def _originals(self, since: PositionLike, until: PositionLike | None, rows_enough: int | None = None) -> Originals:
        handles, first = self._handles, self.seq_of(since)
        last = None if until is None else self.seq_of(until)
        if last is not None and first > last:
            raise InvalidRequest(f"since {since} comes after until {until}: swap them")
        if (known := self._last) is not None and (known.since, known.until) == (first, last):
            return known
        with self._start_again():
            found = originals(handles, first, last, rows_enough, look=self._look)
        if last is not None and last > found.newest:
            raise InvalidRequest(f"until {until} lies ahead of table {handles.name}: its newest seq is {found.newest}")
        if not self._look and found.until == last:
            self._last = found
        return found

    def _span(self, since: PositionLike, until: PositionLike | None) -> _Span:
        found = self._originals(since, until)
        folder = self._handles.changes.log.path
        files = []
        for seq, add in found.adds:
            op = Op(add["partitionValues"][OP])
            by = _tombstone_columns(add) if op is Op.DELETE else ()
            files.append(ChangeFile(seq, op, f"{folder}/{add['path']}", rows_of(add), int(add["size"]), by))
        files.sort(key=lambda file: (file.seq, file.op, file.path))
        return _Span(found.since, max(found.since, found.until), found.schema, tuple(files))

    @contextmanager
    def _start_again(self) -> Iterator[None]:
        """Whatever is missing of the past, the way on is the same."""
        try:
            yield
        except NotFound as error:
            self._handles.schema()  # a table that was dropped says so itself
            raise NotFound(
                f"the changes of table {self._handles.name} from there on are no longer complete: vacuum or the limits "
                f"of its log have removed some ({error}). Start again: read the whole table as of its position, now "
                f"{self.position(self._handles.changes.seq)}, then go on from there"
            ) from error

    # -- the Arrow way

    def _rows(self, span: _Span, columns: Sequence[str] | None) -> pa.Table:
        schema, target = span.schema, feed_schema(span.schema, columns)
        if not span.files:
            return target.empty_table()
        deciding = event_columns(schema, span.row_keys)
        names = [name for name in schema.names if name in {*target.names, *deciding}]
        changes = self._events(span, names, span.row_keys)
        events = pa.concat_tables([self._before(span, changes, names), changes])
        lines = events.select([*deciding, SEQ, OP, BY]).append_column(LINE, pa.array(np.arange(events.num_rows)))
        query = feed_sql(schema, "datafusion.public.events", [*schema.key, LINE], span.row_keys)
        order = ", ".join([SEQ, *map(quoted, schema.key), LINE])
        found = self._questions.over({"events": lines}, f"SELECT * FROM ({query}) f ORDER BY {order}")
        rows = take(events.select(target.names[:-2]), found.column(LINE).to_numpy())
        rows = rows.append_column(SEQ, found.column(SEQ)).append_column(KIND, found.column(KIND))
        return rows.cast(target)

    def _events(self, span: _Span, names: Sequence[str], row_keys: Sequence[Sequence[str]]) -> pa.Table:
        columns = pa.schema([f.with_nullable(True) for f in span.schema.select(names)])
        parts = [_as_events(columns.empty_table(), 0, Op.UPSERT.value, None)]
        with self._start_again():
            for file in span.files:
                by = row_keys.index(tuple(sorted(file.columns))) if file.columns and not span.schema.keyed else None
                rows = _read(file, columns)
                parts.append(_as_events(rows, file.seq, file.op.value, by))
        return pa.concat_tables(parts)

    def _before(self, span: _Span, changes: pa.Table, names: Sequence[str]) -> pa.Table:
        """Rows as of `since` that the changes can meet. Only a delete shows the row that it met: of the others it is
        enough to know that it was there, and its order value.
        """
        parts = [changes.slice(0, 0)]
        if not span.row_keys:
            return parts[0]
        columns = pa.schema([changes.schema.field(name) for name in names])
        with self._start_again():
            snapshot = self._handles.snapshot_before(span.since + 1, look=self._look)
            if not snapshot.base and not snapshot.changes:
                return parts[0]
            for keys, wanted in _met(span, changes, names):
                known = [name for name in wanted if name in snapshot.schema.names]
                keys = [_known(lines, snapshot.schema) for lines in keys]
                plan = self._reader.plan_for(snapshot, keys)
                _check_present((*plan.clean, *plan.touched, *plan.changes))
                found = self._questions.matching(plan, keys, known)
                parts.append(_as_events(completed(found, columns, {}), span.since, BEFORE, None))
        return pa.concat_tables(parts)

    # -- the Spark way

    def _frame_before(self, spark: SparkSession, span: _Span) -> DataFrame | None:
        from lithify.spark.read import frame_of

        with self._start_again():
            _check_present(span.files)
            if not span.row_keys:
                return None
            snapshot = self._handles.snapshot_before(span.since + 1, look=self._look)
            if not snapshot.base and not snapshot.changes:
                return None
            self._handles.check_present(snapshot)
            plan = self._reader.plan(snapshot)
        runtime = self._handles.runtime
        return frame_of(spark, plan, self._handles.folder / "index", runtime.owner_label)


def _read(file: ChangeFile, columns: pa.Schema) -> pa.Table:
    try:
        return read(PurePath(file.path), columns, size_bytes=file.size_bytes)
    except Vanished as error:  # of the past: no other version of the table has its rows as they were written
        raise NotFound(f"{file.path} is gone") from error


def _as_events(rows: pa.Table, seq: int, op: str, by: int | None) -> pa.Table:
    count = rows.num_rows
    rows = rows.append_column(SEQ, pa.repeat(pa.scalar(seq, pa.int64()), count))
    rows = rows.append_column(OP, pa.repeat(pa.scalar(op, pa.string()), count))
    return rows.append_column(BY, pa.repeat(pa.scalar(by, pa.int32()), count))


def _tombstone_columns(add: Mapping[str, Any]) -> tuple[str, ...]:
    """Its statistics are of every column that a tombstone goes by, and of no other."""
    return tuple(sorted(json.loads(add["stats"])["nullCount"]))


def _met(span: _Span, changes: pa.Table, names: Sequence[str]) -> Iterator[tuple[list[pa.Table], Sequence[str]]]:
    """What tells the rows that are met, and the columns to read of them."""
    deletes = take(changes, np.flatnonzero(pc.equal(changes.column(OP), Op.DELETE.value).to_numpy()))
    if not span.schema.keyed:
        numbers = deletes.column(BY).to_numpy()
        lines = [take(deletes, np.flatnonzero(numbers == number)) for number in range(len(span.row_keys))]
        yield [_distinct(part, by) for part, by in zip(lines, span.row_keys, strict=True)], names
        return
    key, gone = span.schema.key, _distinct(deletes, span.schema.key)
    written = anti_join(_distinct(changes, key), gone, key)
    target = span.schema.select(key)
    yield [written.cast(target)], event_columns(span.schema, span.row_keys)
    yield [gone.cast(target)], names


def _distinct(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return rows.select(list(by)).group_by(list(by)).aggregate([])


def _known(keys: pa.Table, schema: TableSchema) -> pa.Table:
    """The keys that a row of these columns can have: a column that was added later is null in it."""
    for name in [name for name in keys.column_names if name not in schema.names]:
        keys = keys.filter(pc.is_null(keys.column(name))).drop_columns([name])
    return keys


def _check_present(files: Sequence[ChangeFile | Source]) -> None:
    for file in files:
        try:
            check_whole(file.path, file.size_bytes)
        except Vanished:
            raise NotFound(f"{file.path} is gone") from None


def _checked(schema: TableSchema, table: str, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    wanted = [columns] if isinstance(columns, str) else list(dict.fromkeys(columns))
    if not wanted:
        raise InvalidRequest(f"columns names none of table {table}: leave it out for all of them")
    for name in wanted:
        if name not in schema.names:
            raise InvalidRequest(f"column {name!r} is not in table {table}: it has {', '.join(schema.names)}")
    return wanted
