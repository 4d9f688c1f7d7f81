"""A table as its users see it. Each method translates its arguments and hands over; decisions live in the modules
it names.
"""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.arguments import check_count, check_names, check_path, check_seconds, check_text, who
from lithify.core.column_changes import ColumnChange
from lithify.core.html import Listed, table_html
from lithify.core.missing_columns import refuses_missing
from lithify.core.ops import Op
from lithify.core.optional import need
from lithify.core.ordered_deletes import deletes_at
from lithify.core.results import (
    Commit,
    CompactReport,
    FoldPlan,
    FoldReport,
    HistoryEntry,
    PartitionStats,
    RecordSetAside,
    RestorePlan,
    Retried,
    SetAside,
    TableStats,
    Tag,
    VacuumReport,
)
from lithify.core.rows import rows_of_newest
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot
from lithify.core.table_methods import (
    Columns,
    OnMissing,
    OnReport,
    TableMethods,
    check_keyed,
    is_spark_frame,
    keys_to_delete,
)
from lithify.errors import InvalidRequest
from lithify.files.read_proof import look_again
from lithify.files.sorted_runs import KeyOrder
from lithify.index.partitions import FileFacts, facts_in, partitions_of
from lithify.index.rebuild import IndexBuild, IndexCheck, IndexInspection, Progress, build, check, inspect, quiet
from lithify.lake.internals import TableInternals
from lithify.lake.open_tables import AsOf, OpenTable
from lithify.options.table_options import MissingColumns
from lithify.options.tiers import TierNames
from lithify.read.change_feed import Net, PositionLike
from lithify.read.history import history_of, incremental, stats_of
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from lithify.tables.pins import pinned
from lithify.tables.tags import tag, tags, untag
from lithify.write.batch_ids import conditions_of
from lithify.write.conditions import Write
from lithify.write.load import Many, load, looked_at
from lithify.write.options import set_options
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    from pathlib import Path, PurePath

    from pyspark.sql import DataFrame, SparkSession

    from lithify.maintenance.fold import FoldJob
    from lithify.maintenance.plans import CompactPlan
    from lithify.maintenance.table_maintenance import TableMaintenance
    from lithify.maintenance.vacuum import Vacuum
    from lithify.streams.apply import BatchMode, OnNullKeys
    from lithify.streams.sink import OnBatch, StreamSink
    from lithify.write.detach import DetachReport


class Table(TableMethods["CompactPlan"]):
    """Rows that change. Get one from `Lake.table`."""

    def __init__(self, internals: TableInternals) -> None:
        self._internals = internals

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def _repr_html_(self) -> str:
        definition, snapshot = self.definition, self.snapshot()
        marks = dict.fromkeys(definition.key, "key")
        marks |= dict.fromkeys(definition.order_columns, "order_by")
        marks |= {name: "time" for name in [definition.time] if name}
        marks |= {name: str(rule) for name, rule in definition.rules.items()}
        rows = [(column.name, str(column.type), marks.get(column.name, "")) for column in definition.columns]
        pending = f"{snapshot.pending_rows:,} pending changes" if snapshot.changes else "nothing pending"
        note = f"{snapshot.base_rows:,} rows in base as of seq {snapshot.watermark}; {pending}, seq {snapshot.seq}"
        return table_html(("column", "type", ""), rows, self.name, note)

    @property
    def name(self) -> str:
        """`namespace.table`."""
        return str(self._internals.name)

    @property
    def definition(self) -> TableSchema:
        """Columns, key, order_by, time and partition_by."""
        return self._internals.handles.schema()

    @property
    def base_path(self) -> PurePath:
        """The plain Delta table that every other engine can read: the rows as of the last fold. A `Path`, or an address
        in a bucket.
        """
        folder, store = self._internals.handles.base_folder, self._internals.runtime.store
        return folder if store.remote else store.local(folder)

    # -- writing

    def _put(
        self,
        operation: str,
        data: Any,
        batch_id: str | None,
        actor: str | None,
        schema_fingerprint: str | None,
        if_changed: bool = False,
        missing: MissingColumns | None = None,
    ) -> Commit:
        opened = self._internals.opened
        schema = opened.handles.changes.schema
        check_keyed(self.name, schema, operation)
        self._internals.check_schema(batch_id, schema_fingerprint)
        conditions = conditions_of(batch_id, schema_fingerprint)
        write = Write(operation, who(actor, None), conditions, refuses_missing(schema, missing))
        try:
            return self._put_rows(data, write, opened, if_changed, missing)
        except InvalidRequest:
            # A batch that was written before is answered as then, whatever columns there are now.
            if batch_id is not None and (answer := self._internals.before(write)) is not None:
                return answer
            raise

    def _put_rows(
        self, data: Any, write: Write, opened: OpenTable, if_changed: bool, missing: MissingColumns | None
    ) -> Commit:
        schema, beats = opened.handles.changes.schema, write.operation == "replace"
        if schema.column_defaults:
            schema = opened.handles.schema()  # another process may have changed one
        if schema.rules and not beats and not if_changed:
            from lithify.write.partial_update import contribute

            return contribute(self._internals, data, write, missing)
        if is_spark_frame(data) and if_changed:
            raise InvalidRequest(
                "if_changed does not take a Spark DataFrame: leave out what is there already with a left_anti join "
                "against to_spark(), or pass frame.toArrow() if it is small"
            )
        distinct = False
        if is_spark_frame(data) and not beats:
            from lithify.write.bulk import few_rows, write_frame

            distinct = not schema.has_places(data.columns)  # rows of a frame have no order
            if (fetched := few_rows(opened.handles, data, write)) is None:
                return write_frame(opened.handles, data, write)
            data = fetched
        if not beats and not if_changed:
            data = looked_at(data)
            if isinstance(data, Many):
                return load(opened.handles, data.rows, write, distinct=distinct)
        op = Op.REPLACE if beats and schema.order_by else Op.UPSERT
        rows = rows_of_newest(
            data, schema, lambda: self.definition, lambda found: refuses_missing(found, missing), sets=beats
        )
        if distinct and schema.keyed:
            KeyOrder.of(schema, distinct=True).winners(rows)
        if if_changed:
            from lithify.write.decided import write_changed

            return write_changed(self._internals, write, {op: rows})
        return self._internals.write(Request(write, {op: rows}), opened)

    def _update(
        self,
        data: Any,
        missing: OnMissing,
        batch_id: str | None,
        actor: str | None,
        schema_fingerprint: str | None,
        if_changed: bool,
    ) -> Commit:
        from lithify.write.partial_update import update

        check_keyed(self.name, self._internals.known_schema, "update")
        self._internals.check_schema(batch_id, schema_fingerprint)
        write = Write("update", who(actor, None), conditions_of(batch_id, schema_fingerprint))
        return update(self._internals, data, missing, write, if_changed=if_changed)

    def _retract(self, data: Any, batch_id: str | None, actor: str | None, schema_fingerprint: str | None) -> Commit:
        from lithify.write.partial_update import retract

        check_keyed(self.name, self._internals.known_schema, "retract")
        self._internals.check_schema(batch_id, schema_fingerprint)
        write = Write("retract", who(actor, None), conditions_of(batch_id, schema_fingerprint))
        return retract(self._internals, data, write)

    def _delete(
        self,
        keys: Any,
        at: Any,
        batch_id: str | None,
        actor: str | None,
        reason: str | None,
        schema_fingerprint: str | None,
    ) -> Commit:
        self._internals.check_schema(batch_id, schema_fingerprint)
        write = Write("delete", who(actor, reason), conditions_of(batch_id, schema_fingerprint))
        schema = self._internals.handles.changes.schema
        parts = {Op.DELETE: keys_to_delete(keys, schema)}
        if at is not None:
            from lithify.write.allow_updates import allow_ordered_deletes

            parts = {Op.DELETE_AT: deletes_at(self.name, parts[Op.DELETE], at, schema)}
            allow_ordered_deletes(self._internals.handles, parts)
        return self._internals.write(Request(write, parts))

    def delete_where(
        self,
        condition: str,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Commit:
        """Delete the rows that a SQL condition holds for, as of one exact state of the table."""
        from lithify.write.delete_where import delete_where

        return delete_where(self._internals, condition, batch_id, who(actor, reason))

    def _restore(
        self, to: Any, batch_id: str | None, actor: str | None, reason: str | None, dry_run: bool
    ) -> Commit | RestorePlan:
        from lithify.write.restore import restore, restore_plan

        if dry_run:
            return restore_plan(self._internals, to)
        return restore(self._internals, to, Write("restore", who(actor, reason), conditions_of(batch_id)))

    def detach(
        self, day: dt.date | str, to: Path | str, *, actor: str | None = None, reason: str | None = None
    ) -> DetachReport:
        """Move a day's rows out of the table, into Parquet files in a new folder, with one commit."""
        from lithify.write.detach import detach

        check_path("the folder to detach to", to)
        return detach(self._internals, self._fold_and_drop, day, to, who(actor, reason))

    def attach(
        self,
        folder: Path | str,
        batch_id: str | None = None,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Commit:
        """Take the rows of a folder of Parquet files, as `detach` writes it, into the table with one commit."""
        from lithify.write.detach import attach

        check_path("the folder to attach", folder)
        return attach(self._internals, folder, batch_id, who(actor, reason))

    def stream_writer(
        self,
        mode: BatchMode = "upsert",
        *,
        name: str | None = None,
        op_column: str | None = None,
        envelope: str | None = None,
        if_changed: bool = False,
        missing: MissingColumns | None = None,
        null_keys: OnNullKeys = "fail",
        rows_max: int | None = None,
        first_epoch: int = 0,
        on_batch: OnBatch | None = None,
    ) -> StreamSink:
        """For `writeStream.foreachBatch`: each micro-batch is one commit, exactly once over restarts.

        `op_column` of the events says insert, update or delete. `envelope="debezium"`: the column `value` holds
        messages of Debezium, as Spark's Kafka source hands them over. `if_changed`: rows that are there already are not
        written. `missing`: rows that lack a column are refused, or write null there, as for `upsert`. `null_keys`:
        records with a null in their key, an unknown operation or no row in them fail the batch, or are set aside.
        Batches of more than `rows_max` rows are written by Spark. A query is known by its id, or by `name`, which
        belongs to one checkpoint. `first_epoch`: where it begins on this table.
        """
        from lithify.streams.sink import StreamSink

        return StreamSink(
            self._internals,
            mode,
            name=name,
            op_column=op_column,
            envelope=envelope,
            if_changed=if_changed,
            missing=missing,
            null_keys=null_keys,
            rows_max=rows_max,
            first_epoch=first_epoch,
            on_batch=on_batch,
        )

    def set_options(self, values: Mapping[str, Any]) -> None:
        """Set options of this table; None goes back to the default."""
        set_options(self._internals.handles, values)

    def _add_column(self, column: pa.Field, default: Any) -> None:
        from lithify.lake.columns import add_column

        add_column(self._internals, column, default)

    def _change_column(self, change: ColumnChange) -> int:
        from lithify.lake.columns import change_column

        return change_column(self._internals, change)

    # -- reading

    def snapshot(self, as_of: AsOf = None) -> Snapshot:
        """A view of the table that never changes, now or as of a seq or a time. Vacuum spares its files while this
        process holds it; `pin` spares them from other processes too.
        """
        return self._internals.handles.snapshot(as_of)

    @contextmanager
    def pin(self, as_of: AsOf = None) -> Iterator[Snapshot]:
        """A snapshot whose files no vacuum of any process removes before the block ends: `with table.pin() as
        snapshot: table.to_spark(as_of=snapshot)`.
        """
        with pinned(self._internals.handles, as_of) as snapshot:
            yield snapshot

    def tag(self, name: str, as_of: AsOf = None) -> Tag:
        """Give a version a name: `as_of=name` reads it, however old it is, until `untag`. No vacuum takes its files."""
        return tag(self._internals.handles, name, as_of)

    def tags(self) -> list[Tag]:
        """Versions that have a name."""
        return Listed(tags(self._internals.handles))

    def untag(self, name: str) -> None:
        """Take a name away; the next vacuum may take what only that version needed."""
        untag(self._internals.handles, name)

    # -- records that were set aside

    def quarantine(self) -> list[SetAside]:
        """Records that loads, streams and pipelines have set aside, by name, oldest first."""
        from lithify.write.quarantine import sets_aside

        return Listed(sets_aside(self._internals.handles))

    def quarantined(self, name: str, limit: int = 100, after: int = 0) -> list[RecordSetAside]:
        """Those of one name: each as it came, where it stood, and why it is no row. `after`: pass over so many."""
        from lithify.write.quarantine import records_of

        check_count("limit", limit, least=1, needed=True)
        check_count("after", after, needed=True)
        check_text("name", name)
        return Listed(records_of(self._internals.handles, name, limit, after)[0])

    def retry_quarantine(
        self, name: str, *, missing: MissingColumns | None = None, actor: str | None = None
    ) -> Retried:
        """Try those of one name once more: what fits by now is written in one commit, and no longer set aside. Only
        records that are JSON objects can be tried. `missing`: as for `upsert`.
        """
        from lithify.write.retry_quarantine import Door, retry

        check_text("name", name)
        schema = self.definition
        operation = "upsert" if schema.keyed else "append"

        def write(rows: pa.Table, batch_id: str) -> Commit:
            return self._put(operation, rows, batch_id, actor, None, missing=missing)

        def before(batch_id: str) -> Commit | None:
            return self._internals.before(Write(operation, conditions=conditions_of(batch_id)))

        return retry(self._internals.handles, name, Door(write, before, refuses_missing(schema, missing)))

    def purge_quarantine(self, name: str | None = None, older_than_hours: float | None = None) -> list[SetAside]:
        """Delete those of one name, or all, or of these what was set aside so long ago; says what went. There is no way
        back.
        """
        from lithify.write.quarantine import purge

        if name is not None:
            check_text("name", name)
        check_seconds("older_than_hours", older_than_hours, "hours")
        return Listed(purge(self._internals.handles, name, older_than_hours))

    def get(self, key: Any) -> dict[str, Any] | None:
        """One row by its key, or None."""

        def key_of(schema: TableSchema) -> Any:
            if not schema.keyed:
                raise InvalidRequest(f"table {self.name} has no key: read rows with to_arrow(where=...)")
            return key

        found = self._internals.opened.row(key_of)
        return None if found is None else found.to_pylist()[0]

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None, as_of: AsOf = None) -> pa.Table:
        """Fresh rows through the serving engine."""
        check_names("columns", columns)
        if where is not None:
            check_text("where", where)
        return look_again(
            lambda: self._internals.runtime.serving.read(self._internals.opened.planned(as_of), columns, where)
        )

    def head(self, rows: int = 10, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """Some fresh rows, in no particular order: as many as asked for, where there are so many."""
        check_count("rows", rows, least=1, needed=True)
        check_names("columns", columns)
        if where is not None:
            check_text("where", where)
        return look_again(
            lambda: self._internals.runtime.serving.read(self._internals.opened.planned(), columns, where, limit=rows)
        )

    def count(self, where: str | None = None, as_of: AsOf = None) -> int:
        """How many fresh rows there are, or how many a condition holds for."""
        if where is not None:
            check_text("where", where)
        return look_again(lambda: self._internals.runtime.serving.count(self._internals.opened.planned(as_of), where))

    def to_spark(
        self,
        spark: SparkSession | None = None,
        where: str | None = None,
        as_of: AsOf = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """Fresh rows as a Spark DataFrame over native Parquet scans: the fast path into Spark. `where` also keeps files
        from being listed that can hold no such row; a filter on the DataFrame comes too late for that. `columns`: only
        these; to name them pays where tasks read for Spark (a bucket, on a cluster without s3a).
        """
        need("spark")
        check_names("columns", columns)
        return self._internals.opened.frame(self._internals.runtime.session(spark), as_of, where, columns)

    def changes(self, since: int = 0) -> pa.Table:
        """Every change after the token `since` (a seq), in commit order, with `_seq` and `_op`; folds add nothing."""
        return incremental(self._internals.handles, since)

    def position(self, as_of: AsOf = None) -> str:
        """How far the table has come, now or as of a seq or a time: a text that `feed` and its kin go on from."""
        return self._internals.feed.position(self.snapshot(as_of).seq)

    def feed(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        *,
        before: bool = False,
    ) -> pa.Table:
        """What each commit after `since` up to `until` did to the rows, with `_seq` and `_kind` (insert, update or
        delete), in the order of `_seq`, then key. A deleted row is shown as it was; what changed nothing is left out.
        `before=True`: an update is two rows, update_before as it was, then update_after.
        """
        check_names("columns", columns)
        return self._internals.feed.rows(since, until, columns, before=before)

    def feed_to_spark(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        spark: SparkSession | None = None,
        *,
        ordered: bool = True,
        before: bool = False,
    ) -> DataFrame:
        """As `feed`, at any size. `ordered=False` spares the sort by `_seq` where the order does not matter."""
        session = self._internals.runtime.session(spark)
        return self._internals.feed.frame(session, since, until, ordered=ordered, before=before)

    def feed_until(self, since: PositionLike, rows_max: int) -> int:
        """Use `feed` with `until`: any seq ends a batch of whole commits."""
        warnings.warn("feed_until will go: give feed a seq as until", DeprecationWarning, stacklevel=2)
        return self._internals.feed.until(since, rows_max)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "feed_until"]

    def latest_changes(self, since: PositionLike, until: PositionLike | None = None) -> Net:
        """The last effect on each key after `since`: rows as they are at `until`, and keys that are gone."""
        return self._internals.feed.net(since, until)

    # -- looking at it

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Writes, deletes (who, when, why), schema changes and folds, newest first."""
        check_count("limit", limit)
        return Listed(history_of(self._internals.handles, limit))

    def stats(self) -> TableStats:
        return stats_of(self.snapshot(), TableStats)

    def partitions(self, as_of: AsOf = None) -> list[PartitionStats]:
        """Files, rows, bytes and times of each partition of base, told by log and index: no data file is opened.
        Pending changes have no partition yet.
        """
        snapshot, index = self.snapshot(as_of), self._internals.handles.base_index

        def look_up(files: Sequence[DataFile]) -> Mapping[str, FileFacts]:
            return index.ask(snapshot.base_version, lambda view: facts_in(view, files, snapshot.schema.time)) or {}

        return Listed(partitions_of(snapshot.base, snapshot.schema, look_up))

    # -- the index

    def build_index(self, skip_corrupt: bool = False, progress: Progress = quiet) -> IndexBuild:
        """Complete the index from the footers of files that it does not know yet. Data is never touched; one that was
        interrupted goes on where it stopped. Stops at a file that cannot be read, unless `skip_corrupt`.
        """
        with self._internals.maintaining() as (handles, _):
            return build(handles, skip_corrupt=skip_corrupt, progress=progress)

    def rebuild_index(self, skip_corrupt: bool = False, progress: Progress = quiet) -> IndexBuild:
        """Forget what the index says, and read every footer again."""
        return build(self._internals.handles, skip_corrupt=skip_corrupt, progress=progress, anew=True)

    def check_index(self, progress: Progress = quiet) -> IndexCheck:
        """Compare every entry of the index with the real footer."""
        return check(self._internals.handles, progress)

    def inspect_index(self) -> IndexInspection:
        """What the index holds."""
        return inspect(self._internals.handles)

    # -- folding

    def _fold(self, dry_run: bool) -> FoldReport | FoldPlan:
        if dry_run:
            return _fold_job(self._internals.handles, self._internals.reader).plan()
        with self._internals.maintaining() as (handles, reader):
            return _fold_job(handles, reader).run()

    def _fold_and_drop(self) -> None:
        """So that base holds no row that has expired, in any file."""
        with self._internals.maintaining() as (handles, reader):
            _fold_job(handles, reader, drops_all=True).run()

    def _compact(self, tier: TierNames, dry_run: bool, progress: OnReport) -> list[CompactReport] | list[CompactPlan]:
        if dry_run:
            maintenance = _maintenance(self._internals.handles, self._internals.reader)
            return Listed(maintenance.compactions(self._internals.runtime.now_ms(), tier))
        with self._internals.maintaining() as (handles, reader):
            return Listed(_maintenance(handles, reader).compact(tier, progress))

    def _optimize(self, by: Columns, dry_run: bool, progress: OnReport) -> list[CompactReport] | list[CompactPlan]:
        if dry_run:
            return Listed(_maintenance(self._internals.handles, self._internals.reader).clusterings(by))
        with self._internals.maintaining() as (handles, reader):
            return Listed(_maintenance(handles, reader).optimize(by, progress))

    # -- cleaning up

    def vacuum(self, retain_hours: float = 168, dry_run: bool = True) -> VacuumReport:
        """Delete files that no version of the last `retain_hours` needs, and none that is pinned. Shows them only,
        unless `dry_run=False`.
        """
        if dry_run:
            return _vacuum(self._internals.handles).run(retain_hours)
        with self._internals.maintaining() as (handles, _):
            return _vacuum(handles).run(retain_hours, dry_run=False)


# What reads and writes do not wait for.


def _fold_job(handles: Handles, reader: Reader, *, drops_all: bool = False) -> FoldJob:
    from lithify.maintenance.fold import FoldJob

    return FoldJob(handles, reader, drops_all=drops_all)


def _maintenance(handles: Handles, reader: Reader) -> TableMaintenance:
    from lithify.maintenance.table_maintenance import TableMaintenance

    return TableMaintenance(handles, reader)


def _vacuum(handles: Handles) -> Vacuum:
    from lithify.maintenance.vacuum import Vacuum

    return Vacuum(handles)


__all__ = ["AsOf", "Commit", "Table"]
