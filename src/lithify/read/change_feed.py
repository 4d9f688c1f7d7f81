"""What happened to a table's rows between two seqs: each commit's exact effect, row by row.

The files of the original commits are read, whatever folds, merges and compactions made of them since, and beside them
the rows that the changed keys had at the beginning, from the snapshot as of it. `merge/change_feed.py` decides what
each change did. Applied one after the other to the state at `since`, the rows lead through every state up to `until`.

The Arrow way decides on line numbers and then takes the rows. The Spark way scans the same files where they lie; what
is little is decided here and handed over, which spares a shuffle.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join, take
from lithify.core.column_changes import ColumnChange, Reshape, after, as_called_now, stood_as
from lithify.core.names import NTH, OP, SEQ, quoted
from lithify.core.ops import DELETES, Change, Op
from lithify.core.partial_rows import PATCH_FIELDS
from lithify.core.position import Position, seq_of
from lithify.core.read_plan import Source
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest, LimitExceeded, NotFound
from lithify.files.addresses import path_of
from lithify.files.local_files import bring
from lithify.files.parquet import completed
from lithify.files.read_proof import Vanished, check_whole, look_again
from lithify.merge.change_feed import (
    BEFORE,
    BY,
    KIND,
    ChangeFile,
    event_columns,
    feed_schema,
    feed_sql,
    is_partial,
    row_keys_of,
)
from lithify.merge.late import without_late
from lithify.merge.newer import ranked_sql
from lithify.read.history import PAGE_COMMIT_ROWS_MAX, ChangesPage, Originals, originals, read_as_now, rows_of

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
    before: bool = False  # with the rows before updates
    forgetting: tuple[int, ...] = ()
    later: tuple[ColumnChange, ...] = ()  # how the columns have changed after `since`

    @property
    def pieces(self) -> tuple[_Span, ...]:
        """One behind the other, with no moment inside of any at which deletes were forgotten."""
        edges = (self.since, *self.forgetting, self.until)
        return tuple(
            replace(
                self,
                since=low,
                until=high,
                forgetting=(),
                later=after(self.later, low),
                files=tuple(file for file in self.files if low < file.seq <= high),
            )
            for low, high in itertools.pairwise(edges)
        )

    @property
    def partial(self) -> bool:
        return is_partial(self.files)

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

    def is_told_of_erased(self, since: PositionLike, until: PositionLike) -> bool:
        """Whether all deletes are among the changes: those of rows that were erased from the past are not."""
        return not self._originals(since, until).erased

    def rows(
        self,
        since: PositionLike,
        until: PositionLike | None,
        columns: Sequence[str] | None,
        *,
        before: bool = False,
    ) -> pa.Table:
        """`before`: each update comes with the row before it."""

        def read() -> pa.Table:
            span = self._span(since, until, before=before)
            return self._rows(span, _checked(span.schema, str(self._handles.name), columns))

        return look_again(read)

    def page(
        self,
        since: PositionLike,
        until: PositionLike | None,
        columns: Sequence[str] | None,
        rows_max: int,
        *,
        before: bool = False,
    ) -> ChangesPage:
        """Whole commits of about so many changes; never less than one, which is refused if it is huge."""
        found = self._originals(since, until, rows_max)
        written = sum(rows_of(add) for _, add in found.adds)
        if written > max(rows_max, PAGE_COMMIT_ROWS_MAX):
            raise LimitExceeded(
                f"write {found.until} of table {self._handles.name} makes {written:,} changes, more than an answer "
                f"holds: read the table as of seq {found.until} instead, then go on with the feed since {found.until}",
                limit="rows",
            )
        newest = found.newest if until is None else min(found.newest, self.seq_of(until))
        upto = max(found.since, min(found.until, newest))
        return ChangesPage(self.rows(found.since, upto, columns, before=before), upto, more=upto < newest)

    def keys(self, since: PositionLike, until: PositionLike, rows_max: int) -> tuple[pa.Table | None, int]:
        """Each key that a commit names, whatever it did to it, and of how many changes; None if they are too many."""
        span = self._span(since, until)
        if (changes := sum(file.rows for file in span.files)) > rows_max:
            return None, changes
        events = self._events(span, span.schema.key, [])
        return _distinct(events, span.schema.key).cast(span.schema.select(span.schema.key)), changes

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
        if schema.order_by or span.partial:
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
        self,
        spark: SparkSession,
        since: PositionLike,
        until: PositionLike | None,
        *,
        ordered: bool,
        before: bool = False,
    ) -> DataFrame:
        return look_again(lambda: self._frame(spark, self._span(since, until, before=before), ordered))

    def _frame(self, spark: SparkSession, span: _Span, ordered: bool) -> DataFrame:
        from lithify.spark.change_feed import feed_frame, frame_of_rows
        from lithify.spark.s3a import chosen

        settings = self._handles.runtime.settings
        rows, size = sum(file.rows for file in span.files), sum(file.size_bytes for file in span.files)
        if rows <= settings.feed_rows_max and size <= HERE_BYTES_MAX:
            return frame_of_rows(spark, self._rows(span, None))
        if span.forgetting:
            parts = [self._frame(spark, piece, ordered) for piece in span.pieces if piece.files]
            return reduce(lambda one, other: one.unionAll(other), parts)
        before, tombstones = self._frame_before(spark, span), self._remembered(span)
        with chosen(settings.s3a):
            return feed_frame(
                spark,
                span.schema,
                span.files,
                span.since,
                before,
                ordered=ordered,
                with_before=span.before,
                tombstones=tombstones,
            )

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

    def _span(self, since: PositionLike, until: PositionLike | None, *, before: bool = False) -> _Span:
        found = self._originals(since, until)
        folder = self._handles.changes.log.path
        files = []
        for seq, add in found.adds:
            op, later = Op(add["partitionValues"][OP]), after(found.history, seq)
            by = tuple(sorted(as_called_now(_tombstone_columns(add), later))) if op is Op.DELETE else ()
            files.append(ChangeFile(seq, op, f"{folder}/{add['path']}", rows_of(add), int(add["size"]), by, later))
        files.sort(key=lambda file: (file.seq, file.op, file.path))
        until, later = max(found.since, found.until), after(found.history, found.since)
        return _Span(found.since, until, found.schema, tuple(files), before, found.forgetting, later)

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
        if span.forgetting and self._meets_a_delete(span):
            return pa.concat_tables([self._rows(piece, columns) for piece in span.pieces])
        deciding = event_columns(schema, span.row_keys)
        names = [name for name in schema.names if name in {*target.names, *deciding}]
        if span.partial:
            return self._partial_rows(span, target, names)
        changes = self._events(span, names, span.row_keys, self._remembered(span))
        events = pa.concat_tables([self._before(span, changes, names), changes])
        lines = events.select([*deciding, SEQ, OP, BY]).append_column(LINE, pa.array(np.arange(events.num_rows)))
        query = feed_sql(schema, "datafusion.public.events", [*schema.key, LINE], span.row_keys, before=span.before)
        order = ", ".join([SEQ, *map(quoted, schema.key), LINE])
        found = self._questions.over({"events": lines}, f"SELECT * FROM ({query}) f ORDER BY {order}")
        rows = take(events.select(target.names[:-2]), found.column(LINE).to_numpy())
        rows = rows.append_column(SEQ, found.column(SEQ)).append_column(KIND, found.column(KIND))
        return rows.cast(target)

    def _partial_rows(self, span: _Span, target: pa.Schema, names: Sequence[str]) -> pa.Table:
        """A row may come from several lines, so that it cannot be told by the number of one."""
        schema = span.schema
        changes = self._events(span, names, span.row_keys, self._remembered(span))
        events = pa.concat_tables([self._before(span, changes, names), changes])
        query = feed_sql(schema, "datafusion.public.events", names, before=span.before, partial=True)
        shown = ", ".join([*map(quoted, target.names[:-2]), SEQ, KIND])
        # "update_before" comes behind "update_after" in the alphabet.
        order = ", ".join([SEQ, *map(quoted, schema.key), f"{KIND} DESC"])
        found = self._questions.over({"events": events}, f"SELECT {shown} FROM ({query}) f ORDER BY {order}")
        return found.cast(target)

    def _remembered(self, span: _Span) -> pa.Table | None:
        """Of deletes up to `since`: what keeps late events out."""
        if not span.schema.order_by:
            return None
        with self._start_again():
            snapshot = self._handles.snapshot_before(span.since + 1, look=self._look)
            try:
                return self._reader.remembered(snapshot, snapshot.seq)
            except Vanished as error:
                raise NotFound(f"{error.details['path']} is gone") from error

    def _meets_a_delete(self, span: _Span) -> bool:
        """Whether a change came after a delete of its key that is newer, so that it matters how long that was known."""
        key = [quoted(name) for name in span.schema.key]
        names = event_columns(span.schema, span.row_keys)
        events = self._events(span, names, span.row_keys).select([*names, SEQ, OP])
        if (known := self._remembered(span)) is not None:
            before = _as_events(known, span.since, Op.DELETE_AT.value, None).select([*names, SEQ, OP])
            events = pa.concat_tables([before.cast(events.schema), events])
        ranked, order = ranked_sql(span.schema, "datafusion.public.events", quoted)
        window = f"PARTITION BY {', '.join(key)} ORDER BY {SEQ} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        latest = f"max(CASE WHEN {OP} IN ('delete_at', 'gone_at') THEN {order} END) OVER ({window})"
        late = f"{OP} IN ('upsert', 'update', 'delete_at') AND _lithify_gone IS NOT NULL AND ({order} IS NULL OR "
        query = (
            f"SELECT 1 FROM (SELECT *, {latest} AS _lithify_gone FROM {ranked}) w "
            f"WHERE {late} {order} < _lithify_gone) LIMIT 1"
        )
        return bool(self._questions.over({"events": events}, query).num_rows)

    def _events(
        self,
        span: _Span,
        names: Sequence[str],
        row_keys: Sequence[Sequence[str]],
        tombstones: pa.Table | None = None,
    ) -> pa.Table:
        columns = pa.schema([f.with_nullable(True) for f in span.schema.select(names)])
        parts = [_as_events(columns.empty_table(), 0, Op.UPSERT.value, None)]
        with self._start_again():
            if tombstones is not None:
                found = [Change(file.seq, file.op, _read(file, _inside(file, columns))) for file in span.files]
                for change in without_late(span.schema, found, tombstones):
                    parts.append(_as_events(change.rows, change.seq, change.op.value, None))
                return _all_given(parts) if span.partial else pa.concat_tables(parts)
            for file in span.files:
                by = row_keys.index(tuple(sorted(file.columns))) if file.columns and not span.schema.keyed else None
                parts.append(_as_events(_read(file, _inside(file, columns)), file.seq, file.op.value, by))
        return _all_given(parts) if span.partial else pa.concat_tables(parts)

    def _before(self, span: _Span, changes: pa.Table, names: Sequence[str]) -> pa.Table:
        """Rows as of `since` that the changes can meet. Unless rows before updates are asked for, only a delete shows
        the row that it met: of the others it is enough to know that it was there, and its order value.
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
                shown = pa.schema([columns.field(name) for name in wanted])
                shape = Reshape.of(shown, span.later).among(snapshot.schema.names)
                keys = [_known(lines, snapshot.schema, span.later) for lines in keys]
                plan = self._reader.plan_for(snapshot, keys)
                _check_present((*plan.clean, *plan.touched, *plan.changes))
                found = shape.apply(self._questions.matching(plan, keys, shape.stored.names))
                parts.append(_as_events(completed(found, columns, {}), span.since, BEFORE, None))
        return _all_given(parts) if span.partial else pa.concat_tables(parts)

    # -- the Spark way

    def _frame_before(self, spark: SparkSession, span: _Span) -> DataFrame | None:
        from lithify.spark.change_feed import as_now
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
        index = self._handles.folder / "index"
        frame = frame_of(spark, plan, index, runtime.owner.label, runtime.settings.s3a)
        return as_now(frame, span.schema.columns, span.later) if span.later else frame


def _inside(file: ChangeFile, columns: pa.Schema) -> pa.Schema:
    return columns if file.op is not Op.UPDATE else pa.schema([*columns, *PATCH_FIELDS])


def _read(file: ChangeFile, columns: pa.Schema) -> pa.Table:
    try:
        return read_as_now(path_of(file.path), columns, file.size_bytes, file.later)
    except Vanished as error:  # of the past: no other version of the table has its rows as they were written
        raise NotFound(f"{file.path} is gone") from error


def _all_given(parts: Sequence[pa.Table]) -> pa.Table:
    """Lines that do not say which columns they give, give all."""
    events = pa.concat_tables(parts, promote_options="default")
    return events.set_column(events.column_names.index(NTH), PATCH_FIELDS[1], pc.fill_null(events.column(NTH), 0))


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
    ends = pc.is_in(changes.column(OP), pa.array([op.value for op in DELETES]))
    deletes = take(changes, np.flatnonzero(ends.to_numpy()))
    if not span.schema.keyed:
        numbers = deletes.column(BY).to_numpy()
        lines = [take(deletes, np.flatnonzero(numbers == number)) for number in range(len(span.row_keys))]
        yield [_distinct(part, by) for part, by in zip(lines, span.row_keys, strict=True)], names
        return
    key = span.schema.key
    gone = _distinct(changes if span.before or span.partial else deletes, key)
    written = anti_join(_distinct(changes, key), gone, key)
    target = span.schema.select(key)
    yield [written.cast(target)], event_columns(span.schema, span.row_keys)
    yield [gone.cast(target)], names


def _distinct(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return rows.select(list(by)).group_by(list(by)).aggregate([])


def _known(keys: pa.Table, schema: TableSchema, later: Sequence[ColumnChange] = ()) -> pa.Table:
    """The keys that a row of these columns can have, as they are called there: a column that was added later is null in
    it, and one that was widened holds no value that it could not hold then.
    """
    for name in keys.column_names:
        origin = stood_as(keys.schema.field(name), later)
        if origin is None or origin.name not in schema.names:
            keys = keys.filter(pc.is_null(keys.column(name))).drop_columns([name])
        elif origin != keys.schema.field(name):
            values = keys.column(name)
            narrow = values.cast(origin.type, safe=False)
            same = pc.or_kleene(pc.is_null(values), pc.equal(narrow.cast(values.type), values))
            keys = keys.set_column(keys.column_names.index(name), origin, narrow).filter(same)
    return keys


def _check_present(files: Sequence[ChangeFile | Source]) -> None:
    try:
        bring((file.path, file.size_bytes) for file in files)
    except Vanished as error:
        raise NotFound(f"{error.details['path']} is gone") from None
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
