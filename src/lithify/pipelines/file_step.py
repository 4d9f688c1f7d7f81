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

from lithify.core.wording import plural
from lithify.errors import InvalidRequest
from lithify.pipelines.answer import check_keys, judged_answer, keep_aside, told
from lithify.pipelines.check import CheckedStep
from lithify.pipelines.checkpoint import DECLARED, LEDGER, FileSeen, Ledgers
from lithify.pipelines.pending import Work
from lithify.pipelines.reports import StepReport, lineage
from lithify.pipelines.table_step import Tell, check_ours, check_repeatable, target_of
from lithify.streams.apply import apply_batch
from lithify.tables.inside import inside
from lithify.text.text_rows import Target
from lithify.write.ingest import format_of
from lithify.write.quarantine import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lithify.lake.lake import Lake
    from lithify.lake.table import Table
    from lithify.spark.ingest import TextFiles

FILES_MAX = 10_000


class FilesRun:
    def __init__(self, lake: Lake, spark: Callable[[], SparkSession], checked: CheckedStep, work: Work, tell: Tell):
        self._lake, self._spark, self._tell = lake, spark, tell
        self._checked, self._work, self._step = checked, work, checked.step
        self._ledgers = Ledgers(inside(lake).runtime, checked.step)
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

        step, spark, lake = self._step, self._spark(), self._lake
        self._tell(f"reading {plural(len(files), 'file')}")
        with ExitStack() as held:
            pins = {name: held.enter_context(lake.table(name).pin()) for name in self._checked.lookups}
            lookups = {name: lake.table(name).to_spark(spark, as_of=snapshot) for name, snapshot in pins.items()}
            source, read, bad = self._read(files)
            frame = answer(spark, f"step {step.label}", step.sql, source, lookups)
            self._tell("computing")
            judgement = held.enter_context(judged_answer(step, frame, inside(lake).runtime.settings.stream_rows_max))
            inside(lake).runtime.store.step("pipeline.computed")
            check_keys(step, judgement, self._checked.target.key, computed=False)
            target = target_of(lake, self._checked)
            self._checked = replace(self._checked, exists=True)
            name = f"{step.feed}-{1 if self._work.state.number is None else self._work.state.number + 1}"
            quarantined, folder = keep_aside(inside(target).handles, f"{name}-rows", judgement)
            count, records = self._keep_bad(target, f"{name}-records", bad)
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
                lookups={name: snapshot.seq for name, snapshot in pins.items()},
            )
            return self._commit(target, judgement.rows, files, report)

    def _commit(
        self, target: Table, rows: pa.Table | DataFrame, files: Sequence[FileSeen], report: StepReport
    ) -> StepReport:
        from lithify.spark.types import columns_to_json

        step, state = self._step, self._work.state
        self._tell(f"writing {step.target}")
        remembered = None if step.schema is not None else columns_to_json(self._columns)
        ledger = self._work.ledger.with_files(files, remembered)
        before = self._ledgers.names()
        number = self._ledgers.write(ledger)
        checkpoint = state.next(step.feed, **{LEDGER: number, DECLARED: self._work.declared})
        facts = {"step": step.label, "source": step.source, "files": len(files), "read": report.read}
        facts |= {"quarantined": report.quarantined, "quarantine": report.quarantine, "warned": dict(report.warned)}
        commit = apply_batch(
            target,
            rows,
            checkpoint=checkpoint,
            mode="upsert" if target.definition.keyed else "append",
            operation="pipeline",
            info={"detail": f"{step.label}: {lineage(step.source, None, None, len(files))}", "pipeline": facts},
        )
        check_ours(step, commit)
        inside(self._lake).runtime.store.step("pipeline.committed")
        self._ledgers.remove(before)
        after = replace(state, number=checkpoint.after, ledger=number, declared=self._work.declared)
        self._work = replace(self._work, state=after, ledger=ledger)
        return replace(report, written=commit.upserted, deleted=commit.deleted, seq=commit.seq)

    # -- reading

    def _read(self, files: Sequence[FileSeen]) -> tuple[DataFrame, int, TextFiles | None]:
        """The rows, how many records there are, and the files with those that do not fit, if there are any."""
        from lithify.spark.ingest import TextFiles, parquet_rows
        from lithify.spark.transforms import counted, source_rows

        step, paths, target = self._step, [file.path for file in files], self._checked.target
        kind = format_of(paths, step.format)
        ordered = len(files) > 1 and target.keyed and target.order_by is None
        if kind == "parquet":
            frame = parquet_rows(self._spark(), paths, self._columns, others=True, places=True)
            return source_rows(frame, self._columns, ordered=ordered), counted(frame), None
        text = TextFiles(self._spark(), paths, kind, Target(self._columns, others=True), step.encoding)
        found = text.check()
        if found.bad and step.bad_records == "fail":
            examples = "\n  ".join(map(str, found.examples))
            raise InvalidRequest(
                f"step {step.label}: {plural(found.bad, 'record')} of the new files cannot be read, so {step.target} "
                f'was left as it was. The first ones:\n  {examples}\nCorrect them, or say bad_records = "quarantine"',
                public=f"step {step.label}: {plural(found.bad, 'record')} of the new files cannot be read",
            )
        rows = source_rows(text.rows(places=True), self._columns, ordered=ordered)
        return rows, found.records, text if found.bad else None

    def _keep_bad(self, target: Table, name: str, text: TextFiles | None) -> tuple[int, str | None]:
        handles = inside(target).handles
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
