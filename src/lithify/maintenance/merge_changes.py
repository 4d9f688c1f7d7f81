"""Merging change files: a contiguous run of small changes becomes one file per operation, with one row per key.

The new files carry the run's highest seq. A reader that takes them instead of the run sees the same rows, and a fold
that has already taken a part of the run in applies that part twice without effect. The commit requires that every
input is live still and that no other live file has a seq inside the run. Rows do not change, so the commit says
`dataChange=false`: incremental reads go on with the original changes, and reads as of a seq inside the run with the
versions that had them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lithify.core.html import Shown
from lithify.core.names import OP, SEQ
from lithify.core.ops import Op
from lithify.core.snapshot import DataFile, Snapshot
from lithify.core.wording import plural
from lithify.delta.actions import LogChange
from lithify.delta.commit import PlannedAgain
from lithify.errors import InvalidRequest
from lithify.files.open_parquet import footer_in
from lithify.files.parquet import Layout, Written, encode
from lithify.files.read_proof import Vanished
from lithify.jobs import jobs
from lithify.maintenance.plans import MinorPlan
from lithify.merge.resolve import compose
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
        check_run(plan.files, snapshot.changes)
        inputs = [file.path for file in plan.files]
        try:
            with jobs.running(self._handles, "minor", "changes", inputs, lease=self._lease, why=plan.why) as run:
                files = self._write(plan, snapshot, run.job)
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
            check_run(plan.files, self._handles.snapshot().changes)
            raise
        return report

    def _write(self, plan: MinorPlan, snapshot: Snapshot, job: jobs.Job) -> list[tuple[Written, Op]]:
        schema, store = snapshot.schema, self._runtime.store
        root = self._handles.changes.log.path
        ordered = sorted(plan.files, key=lambda file: file.seq)
        parts = compose(schema, [self._reader.change(file, snapshot) for file in ordered])
        store.make_folder(root / job.folder)
        files = []
        for op, rows in parts.items():
            layout = Layout.of(schema)
            if op is Op.DELETE:
                layout = replace(layout, stats_columns=schema.key)
            data, stats = encode(rows, layout)
            name = f"{job.folder}/part-{op.value}.parquet"
            store.create(root / name, data)
            files.append((Written(name, len(data), rows.num_rows, stats, footer_in(data)), op))
        jobs.sync_outputs(self._runtime, root, [written.path for written, _ in files])
        store.step("minor.written")
        return files

    def _commit(
        self, plan: MinorPlan, snapshot: Snapshot, run: jobs.RunningJob, files: Sequence[tuple[Written, Op]]
    ) -> None:
        changes = self._handles.changes
        inputs = {file.log_path for file in plan.files}
        seq = max(file.seq for file in plan.files)
        adds = [(written, {SEQ: str(seq), OP: op.value}) for written, op in files]

        def build() -> LogChange:
            live = changes.files()
            check_run(plan.files, live)
            if changes.schema.columns != snapshot.schema.columns:
                raise PlannedAgain
            info = {
                "operation": "merge changes",
                "detail": f"{plural(len(inputs), 'file')} became {len(files)}",
                "actor": self._runtime.settings.actor,
                "seq": changes.seq,
            }
            removes = [file for file in live if file.log_path in inputs]
            return LogChange(info, adds, removes, time_ms=min(file.time_ms for file in removes))

        run.commit("merging changes of", build)


def check_run(run: Sequence[DataFile], live: Sequence[DataFile]) -> None:
    """The run is whole: all of it live, and nobody else's file inside it."""
    inputs = {file.log_path for file in run}
    low, high = min(file.seq for file in run), max(file.seq for file in run)
    inside = {file.log_path for file in live if low <= file.seq <= high}
    if inside != inputs:
        raise PlannedAgain
