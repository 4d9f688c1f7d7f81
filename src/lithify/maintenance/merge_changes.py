"""Merging change files: a contiguous run of small changes becomes one file per operation, with one row per key.

The new files carry the run's highest seq. A reader that takes them instead of the run sees the same rows, and a fold
that has already taken a part of the run in applies that part twice without effect; with merge rules it would not be
without effect, so those tables are left to the fold. The commit requires that every
input is live still and that no other live file has a seq inside the run. Rows do not change, so the commit says
`dataChange=false`: incremental reads go on with the original changes, and reads as of a seq inside the run with the
versions that had them.

Deletes with an order value that are kept after their fold (`merge/late.py`) are merged the same way, apart from what is
pending: of them, and of the barriers between them, only what ends something is taken over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lithify.core.html import Shown
from lithify.core.names import OP, SEQ
from lithify.core.ops import Op
from lithify.core.snapshot import DataFile, Snapshot
from lithify.core.wording import plural
from lithify.delta.actions import LogChange
from lithify.delta.commit import PlannedAgain
from lithify.errors import InvalidRequest
from lithify.files.change_files import encoded_changes
from lithify.files.open_parquet import footer_in
from lithify.files.parquet import Written
from lithify.files.read_proof import Vanished
from lithify.jobs import jobs
from lithify.jobs.manifest import Job
from lithify.maintenance.plans import MinorPlan
from lithify.merge.late import ends_of, worth_merging
from lithify.merge.winners import compose
from lithify.read.reader import Reader
from lithify.tables.handles import Handles


@dataclass(frozen=True)
class MinorReport(Shown):
    table: str
    seq: int
    files_read: int
    files_written: int
    rows_read: int
    rows: int
    bytes_read: int
    bytes_written: int
    seconds: float


class ChangeMerger:
    def __init__(self, handles: Handles, reader: Reader, lease: int | None = None) -> None:
        self._handles, self._reader, self._lease = handles, reader, lease
        self._runtime = handles.runtime

    def run(self, plan: MinorPlan) -> MinorReport:
        """Raises PlannedAgain if the run is not there any more."""
        started = time.monotonic()
        snapshot = self._handles.snapshot()
        if not snapshot.schema.keyed:
            raise InvalidRequest(
                f"table {plan.table} has no key: its changes are told apart by nothing but their order"
            )
        if snapshot.schema.adds_up:
            raise InvalidRequest(
                f"table {plan.table} has merge rules: each of its changes counts once, and a fold may have counted "
                "some of them already; fold it instead"
            )
        check_run(plan.files, (*snapshot.remembered, *snapshot.changes))
        inputs = [file.path for file in plan.files]
        try:
            with jobs.running(self._handles, "minor", "changes", inputs, lease=self._lease, why=plan.why) as run:
                amounts = len(plan.files), sum(file.rows for file in plan.files), plan.bytes_in
                run.progress.expect(*amounts)
                files = self._write(plan, snapshot, run.job)
                run.progress.advance(*amounts)
                self._commit(plan, snapshot, run, files)
                report = MinorReport(
                    plan.table,
                    max(file.seq for file in plan.files),
                    len(plan.files),
                    len(files),
                    sum(file.rows for file in plan.files),
                    sum(written.rows for written, _ in files),
                    plan.bytes_in,
                    sum(written.size_bytes for written, _ in files),
                    time.monotonic() - started,
                )
                run.tell((len(plan.files), len(files)), (report.bytes_read, report.bytes_written), report.rows)
        except Vanished:
            # Gone because a fold took it, and a vacuum after that, is no damage.
            now = self._handles.snapshot()
            check_run(plan.files, (*now.remembered, *now.changes))
            raise
        return report

    def _write(self, plan: MinorPlan, snapshot: Snapshot, job: Job) -> list[tuple[Written, Op]]:
        schema, store = snapshot.schema, self._runtime.store
        root = self._handles.changes.log.path
        ordered = sorted(plan.files, key=lambda file: file.seq)
        changes = self._reader.changes(ordered, snapshot)
        parts = compose(schema, ends_of(schema, changes) if _is_folded(plan, snapshot) else changes)
        store.make_folder(root / job.folder)
        files = []
        for op, rows in parts.items():
            data, stats = encoded_changes(schema, op, rows)
            name = f"{job.folder}/part-{op.value}.parquet"
            store.create(root / name, data)
            files.append((Written(name, len(data), rows.num_rows, stats, footer_in(data)), op))
        jobs.sync_outputs(self._runtime, root, [written.path for written, _ in files])
        store.step("minor.written")
        return files

    def _commit(
        self, plan: MinorPlan, snapshot: Snapshot, run: jobs.OpenJob, files: Sequence[tuple[Written, Op]]
    ) -> None:
        changes = self._handles.changes
        inputs = {file.log_path for file in plan.files}
        seq = max(file.seq for file in plan.files)
        adds = [(written, {SEQ: str(seq), OP: op.value}) for written, op in files]

        def build() -> LogChange:
            live = changes.files()
            check_run(plan.files, live)
            if not changes.schema.has_columns_of(snapshot.schema):
                raise PlannedAgain
            info = {
                "operation": "merge changes",
                "detail": f"{plural(len(inputs), 'file')} became {len(files)}",
                "actor": self._runtime.settings.actor,
                "seq": changes.seq,
            }
            removes = [file for file in live if file.log_path in inputs]
            # Pending changes are as old as the oldest of them, what is remembered stays as long as the youngest.
            oldest = max if _is_folded(plan, snapshot) else min
            return LogChange(info, adds, removes, time_ms=oldest(file.time_ms for file in removes))

        run.commit("merging changes of", build)


def merge_remembered(handles: Handles, reader: Reader, lease: int | None = None) -> MinorReport | None:
    """Files that keep late events out become fewer, if there are many. None: nothing to do, or others do it."""
    snapshot = handles.snapshot()
    late_ms = round(snapshot.schema.options["late_hours"] * 3_600_000)
    files = worth_merging(snapshot.remembered, late_ms, handles.runtime.settings.resolve_rows_max)
    if not files:
        return None
    why, gain = f"{len(files)} files of folded deletes", f"{plural(len(files), 'file')} → up to 3"
    plan = MinorPlan(snapshot.table, files, why, gain, sum(file.size_bytes for file in files))
    try:
        return ChangeMerger(handles, reader, lease).run(plan)
    except PlannedAgain:
        return None


def _is_folded(plan: MinorPlan, snapshot: Snapshot) -> bool:
    return all(file.seq <= snapshot.watermark for file in plan.files)


def check_run(run: Sequence[DataFile], live: Sequence[DataFile]) -> None:
    """The run is whole: all of it live, and nobody else's file inside it."""
    inputs = {file.log_path for file in run}
    low, high = min(file.seq for file in run), max(file.seq for file in run)
    inside = {file.log_path for file in live if low <= file.seq <= high}
    if inside != inputs:
        raise PlannedAgain
