"""A step that reads files: each file once, in portions, each portion with the ledger of what was read in one commit.

A file is known by its path, size and time of change. One that changes after it was read is read again, which upserts
its rows; a target without a key would have them twice, so there it is refused. Files that are gone are of no interest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lithify.core.missing_columns import refuses_missing
from lithify.core.partial_rows import input_columns
from lithify.core.wording import plural
from lithify.errors import InvalidRequest
from lithify.pipelines.answer import check_keys, committed, judged_answer, keep_aside, told
from lithify.pipelines.check import CheckedStep
from lithify.pipelines.checkpoint import DECLARED, LEDGER, FileSeen, Ledgers
from lithify.pipelines.context import Context, Moment, Seen
from lithify.pipelines.declaration import EVERYTHING
from lithify.pipelines.pending import StepWork
from lithify.pipelines.reports import StepReport
from lithify.pipelines.table_step import Tell, check_repeatable
from lithify.streams.messages import target_of
from lithify.tables.handles import Handles
from lithify.text.debezium import OP
from lithify.text.text_rows import Target
from lithify.write.ingest import format_of
from lithify.write.ingest_here import check_footers
from lithify.write.quarantine import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.files.text_tasks import Checked
    from lithify.spark.ingest import TextFiles

FILES_MAX = 10_000


class FilesRun:
    def __init__(self, context: Context, spark: SparkSession, checked: CheckedStep, work: StepWork, tell: Tell):
        self._context, self._runtime, self._spark, self._tell = context, context.runtime, spark, tell
        self._checked, self._work, self._step = checked, work, checked.step
        self._ledgers = Ledgers(self._runtime, checked.step)
        assert checked.source is not None
        self._columns = checked.source

    def run(self, stopped: Callable[[], bool]) -> StepReport:
        """All portions, unless it is stopped between two of them."""
        started, step, work = time.monotonic(), self._step, self._work
        if work.whole:
            check_repeatable(self._checked, work)
        again = [file.path for file in work.files if file.path in work.ledger.files]
        if again and not self._checked.target.keyed:
            raise InvalidRequest(
                f"step {step.label}: {again[0]} has changed after it was read, and {step.target} has no key to replace "
                "its rows by: put new rows into a new file, and this one back as it was"
            )
        total = StepReport(step.label, step.kind, "done", step.source, step.target, work.why)
        files = list(work.files)
        while files:
            portion, files = files[:FILES_MAX], files[FILES_MAX:]
            total = _sum(total, self._portion(portion))
            if stopped():
                break
        return replace(total, seconds=time.monotonic() - started)

    def _portion(self, files: Sequence[FileSeen]) -> StepReport:
        from lithify.spark.transforms import answer

        step, spark = self._step, self._spark
        self._tell(f"reading {plural(len(files), 'file')}")
        with ExitStack() as stack:
            now = Moment(self._context, stack)
            if step.envelope is not None:
                return self._messages(now, step.envelope, files)
            lookups = {name: now.table(name) for name in self._checked.lookups}
            frames = {name: found.frame(spark) for name, found in lookups.items()}
            source, read, bad = self._read(files)
            frame = answer(spark, f"step {step.label}", step.sql, source, frames)
            self._tell("computing")
            judgement = stack.enter_context(judged_answer(step, frame, self._runtime.settings.stream_rows_max))
            self._runtime.store.step("pipeline.computed")
            check_keys(step, judgement, self._checked.target.key, computed=False)
            target = now.created(step.target, self._checked.target)
            name = f"{step.feed}-{1 if self._work.state.number is None else self._work.state.number + 1}"
            quarantined, folder = keep_aside(target.handles, f"{name}-rows", judgement)
            count, records = self._keep_bad(target.handles, f"{name}-records", bad)
            quarantined, folder = quarantined + count, records or folder
            report = StepReport(
                step=step.label,
                kind=step.kind,
                outcome="done",
                source=step.source,
                target=step.target,
                files=len(files),
                read=read,
                quarantined=quarantined,
                quarantine=folder,
                warned=dict(judgement.warned),
                lookups={name: found.snapshot.seq for name, found in lookups.items()},
            )
            return self._commit(target, judgement.rows, files, report)

    def _messages(self, now: Moment, envelope: str, files: Sequence[FileSeen]) -> StepReport:
        """The same of messages, which say themselves what becomes of rows."""
        from lithify.spark.ingest import FILE, MODIFIED, TextFiles

        step, schema, paths = self._step, self._checked.target, [file.path for file in files]
        if (kind := format_of(paths, step.format)) != "json":
            raise InvalidRequest(
                f"step {step.label}: messages in an envelope are JSON, one on each line, not {kind}: say "
                'format = "json" if they are'
            )
        complete = not step.updates and refuses_missing(schema, step.missing)
        wanted = target_of(envelope, schema, complete, whole=not step.updates)
        text = TextFiles(self._spark, paths, kind, wanted, step.encoding)
        found = self._looked_at(text)
        target = now.created(step.target, schema)
        name = f"{step.feed}-{1 if self._work.state.number is None else self._work.state.number + 1}"
        bad, folder = self._keep_bad(target.handles, f"{name}-records", text if found.bad else None)
        report = StepReport(step.label, step.kind, "done", step.source, step.target, files=len(files))
        report = replace(report, read=found.records, quarantined=bad, quarantine=folder)
        return self._commit(target, text.rows(with_origin=True), files, report, OP, (MODIFIED, FILE))

    def _commit(
        self,
        target: Seen,
        rows: pa.Table | DataFrame,
        files: Sequence[FileSeen],
        report: StepReport,
        op_column: str | None = None,
        order: Sequence[str] = (),
    ) -> StepReport:
        from lithify.spark.schemas import columns_to_json

        step, state = self._step, self._work.state
        self._tell(f"writing {step.target}")
        remembered = None if step.schema is not None else columns_to_json(self._columns)
        ledger = self._work.ledger.with_files(files, remembered)
        before = self._ledgers.names()
        number = self._ledgers.write(ledger)
        checkpoint = state.next(step.feed, **{LEDGER: number, DECLARED: self._work.declared})
        facts = {name: getattr(report, name) for name in ("files", "read", "quarantined", "quarantine", "warned")}
        commit = committed(step, target, rows, checkpoint, report.lineage, facts, op_column, order)
        self._ledgers.remove(before)
        after = replace(state, number=checkpoint.after, ledger=number, declared=self._work.declared)
        self._work = replace(self._work, state=after, ledger=ledger)
        return replace(report, written=commit.upserted, deleted=commit.deleted, seq=commit.seq)

    # -- reading

    def _read(self, files: Sequence[FileSeen]) -> tuple[DataFrame, int, TextFiles | None]:
        """The rows, how many records there are, and the files with those that do not fit, if there are any."""
        from lithify.spark.ingest import TextFiles, parquet_rows
        from lithify.spark.partial_files import saying
        from lithify.spark.transforms import counted, source_rows

        step, paths, target = self._step, [file.path for file in files], self._checked.target
        kind, declared = format_of(paths, step.format), step.schema is not None
        # A query of its own says itself which columns its rows have.
        says = step.updates and step.sql == EVERYTHING
        columns = input_columns(self._columns) if says else self._columns
        ordered = len(files) > 1 and target.keyed and target.order_by is None
        if kind == "parquet":
            check_footers(paths)

            def read(some: Sequence[str]) -> DataFrame:
                return parquet_rows(self._spark, some, self._columns, others=declared, with_origin=True)

            frame = saying(paths, self._columns.names, read) if says else read(paths)
            return source_rows(frame, columns, ordered=ordered), counted(frame), None
        text = TextFiles(self._spark, paths, kind, Target(columns, others=declared), step.encoding)
        found = self._looked_at(text)
        rows = source_rows(text.rows(with_origin=True), columns, ordered=ordered)
        return rows, found.records, text if found.bad else None

    def _looked_at(self, text: TextFiles) -> Checked:
        """How many records there are. Those that cannot be read end the step, unless they are to be set aside."""
        step, found = self._step, text.check()
        if found.bad and step.bad_records == "fail":
            examples = "\n  ".join(map(str, found.examples))
            choices = (
                '"quarantine"' if step.schema or step.envelope else '"quarantine", or name the columns with schema'
            )
            raise InvalidRequest(
                f"step {step.label}: {plural(found.bad, 'record')} of the new files cannot be read, so {step.target} "
                f"was left as it was. The first ones:\n  {examples}\nCorrect them, or say bad_records = {choices}",
                public=f"step {step.label}: {plural(found.bad, 'record')} of the new files cannot be read",
            )
        return found

    def _keep_bad(self, handles: Handles, name: str, text: TextFiles | None) -> tuple[int, str | None]:
        return told(handles, set_aside(handles, name, text.write_bad if text is not None else ()))


def _sum(first: StepReport, second: StepReport) -> StepReport:
    counts = ("files", "read", "written", "deleted", "quarantined")
    names = [*first.warned, *second.warned]
    return replace(
        first,
        **{name: getattr(first, name) + getattr(second, name) for name in counts},
        warned={name: first.warned.get(name, 0) + second.warned.get(name, 0) for name in names},
        quarantine=second.quarantine or first.quarantine,
        lookups=second.lookups,
        seq=second.seq,
    )
