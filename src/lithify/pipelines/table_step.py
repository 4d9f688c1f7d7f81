"""One step, run once: read what changed, ask the query, judge the answer, and bring it into the target in one commit.

The target's rows are a function of the source's. After a step its target equals the query over the whole source as of
`until`, whichever way it went:

- rows: for the keys that changed between two seqs, rows that come out are written, and those that come out no more
  are deleted.
- groups: as of `until`, the groups that have a changed row in them, before or after the change, are computed anew; rows
  that these groups had in the target and have no more are deleted.
- whole: everything is computed, and what differs from the target is written or deleted.

Files, and rows of a table without a key, *arrive* instead: what came is added or upserted, and nothing is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.missing_columns import refuses_missing
from lithify.core.restriction import restriction
from lithify.core.snapshot import Snapshot
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, NotFound
from lithify.files.read_proof import look_again
from lithify.pipelines.answer import (
    Judged,
    check_keys,
    check_passed_through,
    committed,
    gone_from,
    judged_answer,
    keep_aside,
    key_twice,
    keys_of_answer,
    told,
)
from lithify.pipelines.check import CheckedStep
from lithify.pipelines.checkpoint import DECLARED, READ
from lithify.pipelines.context import Moment, Seen
from lithify.pipelines.pending import CHANGES_ROWS_MAX, StepWork
from lithify.pipelines.reports import StepReport, lineage
from lithify.streams.messages import Opening, target_of
from lithify.text.debezium import OP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.core.results import Commit

GROUPS_MAX = 200_000
HERE_ROWS_MAX = 200_000
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Input:
    """What the query is run over, and which rows of the target its answer replaces: those whose columns of these names
    are among `affected`; None: all of them.
    """

    source: DataFrame | None
    read: int
    affected: pa.Table | None = None


class StepRun:
    """A step that reads a table, on its way through one run. `now`: when it begins; it reads what was pinned then."""

    def __init__(self, now: Moment, spark: SparkSession, checked: CheckedStep, work: StepWork, tell: Tell):
        self._now, self._runtime, self._spark, self._tell = now, now.context.runtime, spark, tell
        self._checked, self._work, self._step = checked, work, checked.step
        assert self._step.table is not None
        self._source = now.table(self._step.table)

    def run(self) -> StepReport:
        started, step, work = time.monotonic(), self._step, self._work
        if work.whole and not self._checked.computed:
            check_repeatable(self._checked, work)
        until, whole, why = self._source.snapshot.seq, work.whole, work.why
        given = None
        if not whole:
            try:
                given = self._changes(until)
            except NotFound as error:
                why = f"the past is no longer all there ({error})"
        if given is None:
            whole = True
            given = self._everything()
        since = None if whole else work.since
        lookups = {name: self._now.table(name) for name in self._checked.lookups}
        commit, facts = self._bring(given, lookups, since, until, whole=whole)
        return StepReport(
            step=step.label,
            kind=step.kind,
            outcome="done",
            source=str(step.table),
            target=step.target,
            why=why,
            since=since,
            until=until,
            read=given.read,
            written=commit.upserted,
            deleted=commit.deleted,
            lookups={name: found.snapshot.seq for name, found in lookups.items()},
            seq=commit.seq,
            seconds=time.monotonic() - started,
            **facts,
        )

    # -- what goes in

    def _everything(self) -> Input:
        self._tell(f"reading {self._step.table}")
        return Input(self._source.frame(self._spark), self._source.count())

    def _changes(self, until: int) -> Input | None:
        """None: so much changed that the whole source is the shorter way."""
        since = self._work.since
        assert since is not None
        self._tell(f"reading changes of {self._step.table}")
        if self._step.kind == "groups":
            return self._groups(since, until)
        if self._checked.computed:
            net = self._source.feed.net(since, until)
            keys = pa.concat_tables([net.rows.select(net.deleted.column_names), net.deleted])
            return Input(self._frame(net.rows), keys.num_rows, keys)
        events = self._source.feed.rows(since, until, None)
        kinds = events.column("_kind").to_pylist()
        if "delete" in kinds:
            raise InvalidRequest(
                f"step {self._step.label}: rows of {self._step.table} were deleted, and it has no key to find what "
                "came of them by: say by = […] or full = true, and give the target a key"
            )
        rows = events.drop_columns(["_seq", "_kind"])
        return Input(self._frame(rows), rows.num_rows)

    def _groups(self, since: int, until: int) -> Input | None:
        by, source = list(self._step.by), self._source
        if source.schema.keyed:
            net = source.feed.net(since, until)
            keys = pa.concat_tables([net.rows.select(net.deleted.column_names), net.deleted])
            changed = keys.num_rows
            if set(by) <= set(keys.column_names):
                found = keys.select(by)
            else:
                found = pa.concat_tables([net.rows.select(by), look_again(lambda: self._before(since, keys, by))])
        else:
            found = source.feed.rows(since, until, by).select(by)
            changed = found.num_rows
        groups = with_both_zeros(found).group_by(by).aggregate([]).select(by)
        if groups.num_rows > GROUPS_MAX:
            return None
        if not groups.num_rows:
            return Input(None, changed, groups)
        self._tell(f"reading {plural(groups.num_rows, 'group')} of {self._step.table}")
        return Input(self._rows_of(groups), changed, groups)

    def _before(self, since: int, keys: pa.Table, by: Sequence[str]) -> pa.Table:
        """What the groups of these rows were."""
        snapshot = self._source.handles.snapshot(since, look=False)
        self._source.handles.check_present(snapshot)
        return matching(self._source, snapshot, keys, by)

    def _rows_of(self, groups: pa.Table) -> DataFrame:
        """The rows of these groups. Few are read here, which is faster than a scan by Spark."""
        from lithify.spark.change_feed import frame_of_rows
        from lithify.spark.transforms import restricted

        source, limit = self._source, restriction(groups)
        rows = None if limit.where is None else source.rows(limit.where, HERE_ROWS_MAX)
        frame = source.frame(self._spark, limit.where) if rows is None else frame_of_rows(self._spark, rows)
        return frame if limit.exact else restricted(frame, frame_of_rows(self._spark, groups))

    def _frame(self, rows: pa.Table) -> DataFrame | None:
        """None: no rows, of which a query that goes row by row makes none."""
        from lithify.spark.change_feed import frame_of_rows

        return frame_of_rows(self._spark, rows) if rows.num_rows else None

    # -- what comes out

    def _bring(
        self, given: Input, lookups: Mapping[str, Seen], since: int | None, until: int, *, whole: bool
    ) -> tuple[Commit, dict[str, Any]]:
        from lithify.spark.transforms import answer

        step = self._step
        if step.envelope is not None:
            return self._messages(step.envelope, given, since, until)
        with ExitStack() as stack:
            if given.source is None:
                judgement = Judged(self._checked.target.columns.empty_table())
            else:
                frames = {name: found.frame(self._spark) for name, found in lookups.items()}
                frame = answer(self._spark, f"step {step.label}", step.sql, given.source, frames)
                self._tell("computing")
                judgement = stack.enter_context(judged_answer(step, frame, self._runtime.settings.stream_rows_max))
            self._runtime.store.step("pipeline.computed")
            check_keys(step, judgement, self._checked.target.key, computed=self._checked.computed)
            target = self._now.created(step.target, self._checked.target)
            data, operation = self._operations(target, judgement, given, whole=whole)
            checkpoint = self._work.state.next(step.feed, **{READ: until, DECLARED: self._work.declared})
            quarantined, folder = keep_aside(target.handles, f"{step.feed}-{checkpoint.after}-rows", judgement)
            facts = {"quarantined": quarantined, "quarantine": folder, "warned": dict(judgement.warned)}
            self._tell(f"writing {step.target}")
            told = {"since": since, "until": until, "read": given.read, **facts}
            origin = lineage(step.source, since, until, 0)
            return committed(step, target, data, checkpoint, origin, told, operation), facts

    def _messages(self, envelope: str, given: Input, since: int | None, until: int) -> tuple[Commit, dict[str, Any]]:
        """Messages say themselves what becomes of rows."""
        step, schema, rows_max = self._step, self._checked.target, self._runtime.settings.stream_rows_max
        target = self._now.created(step.target, schema)
        checkpoint = self._work.state.next(step.feed, **{READ: until, DECLARED: self._work.declared})
        said: dict[str, Any] = {}
        complete, whole = not step.updates and refuses_missing(schema, step.missing), not step.updates
        opening = Opening(target.handles, envelope, checkpoint, step.bad_records, rows_max, said, complete, whole)
        columns = target_of(envelope, schema, whole=whole).columns
        events = columns.empty_table() if given.source is None else opening.events(given.source)
        quarantined, folder = told(target.handles, said)
        facts: dict[str, Any] = {"quarantined": quarantined, "quarantine": folder, "warned": {}}
        self._tell(f"writing {step.target}")
        origin = lineage(step.source, since, until, 0)
        detail = {"since": since, "until": until, "read": given.read, **facts}
        return committed(step, target, events, checkpoint, origin, detail, OP), facts

    def _operations(
        self, target: Seen, judgement: Judged, given: Input, *, whole: bool
    ) -> tuple[pa.Table | DataFrame, str | None]:
        """Rows with what to do with each, and the column that says so."""
        from lithify.spark.change_feed import frame_of_rows
        from lithify.spark.transforms import OPERATION, differences, keys_twice, upserts_and_deletes

        if not self._checked.computed:
            return judgement.rows, None
        key = target.schema.key
        if whole:
            frame = None
            if not isinstance(judgement.rows, pa.Table):
                frame = judgement.rows
                if (twice := keys_twice(frame, key)) is not None:
                    raise key_twice(self._step, twice)
            if not target.snapshot.base and not target.snapshot.changes:
                return judgement.rows, None
            frame = frame_of_rows(self._spark, judgement.rows) if frame is None else frame
            return differences(frame, target.frame(self._spark), key), OPERATION
        assert given.affected is not None
        came_out = keys_of_answer(self._step, judgement, key, CHANGES_ROWS_MAX)
        told = came_out if judgement.small is None else judgement.small
        if told.num_rows and set(given.affected.column_names) <= set(told.column_names):
            check_passed_through(self._step, told, given.affected)
        gone = self._gone(target, given.affected, came_out)
        if isinstance(judgement.rows, pa.Table):
            return with_operations(judgement.rows, gone), OPERATION
        return upserts_and_deletes(judgement.rows, frame_of_rows(self._spark, gone)), OPERATION

    def _gone(self, target: Seen, affected: pa.Table, came_out: pa.Table) -> pa.Table:
        """Keys of rows that the target has for what was affected, and that did not come out again."""
        key = list(target.schema.key)
        if set(affected.column_names) == set(key):
            # One row for each: only those that did not come out need be looked for.
            affected = gone_from(affected, came_out, key)
        if not affected.num_rows:
            return target.schema.columns.empty_table().select(key)
        return gone_from(matching(target, target.snapshot, affected, key), came_out, key)


def with_both_zeros(groups: pa.Table) -> pa.Table:
    """0.0 and -0.0 are one group to Spark, and two values where bits are compared: where one is, the other is added."""
    for number, column in enumerate(groups.schema):
        if pa.types.is_floating(column.type):
            zeros = groups.filter(pc.equal(groups.column(number), pa.scalar(0, column.type)))
            others = zeros.set_column(number, column, pc.negate(zeros.column(number)))
            groups = pa.concat_tables([groups, others])
    return groups


def with_operations(rows: pa.Table, gone: pa.Table) -> pa.Table:
    from lithify.spark.transforms import DELETE, OPERATION, UPSERT

    written = rows.append_column(OPERATION, pa.repeat(pa.scalar(UPSERT), rows.num_rows))
    deleted = gone.append_column(OPERATION, pa.repeat(pa.scalar(DELETE), gone.num_rows))
    nullable = pa.schema([field.with_nullable(True) for field in written.schema])
    return pa.concat_tables([written.cast(nullable), deleted], promote_options="permissive")


def matching(table: Seen, snapshot: Snapshot, wanted: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns of the rows of a snapshot that are equal to one of `wanted` in all of its columns; files that cannot hold
    one are not read.
    """
    fields = []
    for name in wanted.column_names:
        kind = snapshot.schema.columns.field(name).type
        fields.append(pa.field(name, kind, bool(wanted.column(name).null_count)))
    keys = wanted.cast(pa.schema([f.with_nullable(True) for f in fields])).cast(pa.schema(fields))
    plan = table.opened.reader.plan_for(snapshot, [keys])
    known = [name for name in columns if name in snapshot.schema.names]
    rows = table.handles.runtime.serving.key_queries.matching(plan, [keys], known)
    for name in columns:
        if name not in known:  # it was added later
            rows = rows.append_column(name, pa.nulls(rows.num_rows, table.schema.columns.field(name).type))
    return rows.select(list(columns))


def check_repeatable(checked: CheckedStep, work: StepWork) -> None:
    """Rows without a key that were added once cannot be told from those that would be added again."""
    if work.state.number is not None and not checked.target.keyed:
        raise InvalidRequest(
            f"step {checked.step.label} would add all rows once more ({work.why}), and {checked.step.target} has no "
            "key to find the old ones by: drop it and run again, or give the step another target"
        )
