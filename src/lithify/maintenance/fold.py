"""Folding: pending changes become part of base.

First the oldest change files that stand beside base as they are get linked, without writing a byte of data. The
rest is resolved to one winner per key; only base files that can hold a changed key are rewritten, each by one task,
in this process or on Spark.

The commit order is the safety: base first, with the watermark, on exactly the watermark and inputs that were
planned; then fsync; then the changes are removed. A crash before the base commit leaves a folder for recovery; a
crash after it leaves changes that every reader ignores.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import pyarrow as pa

from lithify.compute.compute import HereCompute, engine_for, stoppable
from lithify.core.arrow_rows import lookup
from lithify.core.ops import DELETES
from lithify.core.partitioning import output_folder
from lithify.core.read_plan import constants_of
from lithify.core.results import FoldPlan, FoldReport, added
from lithify.core.snapshot import DataFile, Snapshot
from lithify.delta.actions import Adds, LogChange
from lithify.delta.base import WATERMARK_TXN
from lithify.delta.commit import PlannedAgain
from lithify.errors import Conflict, Corruption, LithifyError, NotFound, OutOfResources
from lithify.files.examine import check_foreign
from lithify.files.local_files import bring
from lithify.files.open_parquet import footer_of, read_footer
from lithify.files.parquet import Layout, Written
from lithify.files.read_proof import Damaged, check_whole
from lithify.files.rewrite import SHOWN, RewriteResult, RewriteTask, Slice, rewrite, write_slices
from lithify.files.scratch import Scratch
from lithify.files.statistics import stats_json
from lithify.index.key_ranges import split_by_keys
from lithify.jobs import jobs, recovery
from lithify.jobs.finish_column_change import finish_column_change
from lithify.jobs.manifest import Job
from lithify.maintenance.expire import drop_expired
from lithify.maintenance.fold_plan import Distribution, FoldStep, distribute, next_step
from lithify.maintenance.merge_changes import merge_remembered
from lithify.maintenance.read_cost import read_overhead
from lithify.maintenance.triggers import fold_due
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from lithify.write.options import policy_for

logger = logging.getLogger(__name__)

REPLANS_MAX = 5
HALVINGS_MAX = 4
HERE = HereCompute()


class FoldJob:
    """`drops_all`: rows that have expired are dropped from all files, whatever has to be rewritten for that."""

    def __init__(
        self,
        handles: Handles,
        reader: Reader,
        lease: int | None = None,
        why: str = "asked for",
        *,
        drops_all: bool = False,
    ) -> None:
        self._handles, self._reader, self._drops_all = handles, reader, drops_all
        self._lease, self._why = lease, why
        self._runtime = handles.runtime
        self._mended: set[str] = set()  # files of which a damaged copy was taken away

    # -- deciding

    def plan(self) -> FoldPlan:
        snapshot = self._handles.snapshot()
        step = next_step(snapshot, self._runtime.settings.resolve_rows_max) if snapshot.changes else None
        linked_files = step.change_files if step is not None and step.partitions is not None else ()
        rest = [file for file in snapshot.changes if file not in linked_files]
        overlay = self._reader.overlay(snapshot, rest, self._reader.base_sources(snapshot))
        touched = [
            *self._reader.touched(snapshot, overlay.hidden),
            *split_by_keys(linked_files, overlay.hidden)[0],
        ]
        unchanged = len(snapshot.base) + len(linked_files) - len(touched)
        read = sum(file.size_bytes for file in (*touched, *rest))
        due = fold_due(
            snapshot,
            policy_for(self._runtime.settings, snapshot.schema.settings, snapshot.table),
            self._runtime.now_ms(),
        )
        return FoldPlan(
            str(self._handles.name),
            snapshot.watermark,
            snapshot.seq,
            len(snapshot.changes),
            snapshot.pending_rows,
            len(linked_files),
            len(touched),
            unchanged,
            read,
            # A row that is replaced is written once, and so is a new one: at most what was read.
            read,
            self._engine(read),
            due.why if due is not None else f"{self._why}; no policy calls for it yet",
            f"reads {read_overhead(snapshot):.1f}× → 1.0×",
        )

    def _engine(self, bytes_read: int) -> str:
        return engine_for(bytes_read, self._runtime.settings.local_job_bytes_max)

    # -- doing

    def run(self) -> FoldReport:
        """Fold what is pending now, in as many commits as it takes."""
        started = time.monotonic()
        recovery.recover(self._runtime, str(self._handles.name))
        self._handles.snapshot()
        finish_column_change(self._handles)
        snapshot, expired_rows = self._handles.snapshot(look=False), 0
        if snapshot.schema.expiry is not None:
            expired_rows = drop_expired(self._handles, self._reader, everywhere=self._drops_all)
            snapshot = self._handles.snapshot()
        jobs.forget_folded(self._handles)
        goal, rows_max = snapshot.seq, self._runtime.settings.resolve_rows_max
        total: FoldReport | None = None
        replans = halvings = 0
        problem = ""
        while pending := tuple(file for file in snapshot.changes if file.seq <= goal):
            self._handles.base.check_foldable(snapshot.schema)
            snapshot = replace(snapshot, changes=pending)
            step = next_step(snapshot, rows_max)
            try:
                report = self._run_step(snapshot, step)
            except PlannedAgain:
                finish_column_change(self._handles)
                replans += 1
                if replans > REPLANS_MAX:
                    raise Conflict(
                        f"fold of {self._handles.name} was overtaken {REPLANS_MAX} times by other folds or schema "
                        "changes: try again later"
                    ) from None
            except Corruption as error:
                # Nothing folds past a change that cannot be read: what came after it may build on it.
                damaged = self._seq_of(error, pending)
                if damaged is None or damaged == pending[0].seq:
                    if damaged is None or total is None:
                        raise
                    problem = error.message
                    break
                problem, goal = error.message, damaged - 1
            except OutOfResources as error:
                halvings += 1
                if halvings > HALVINGS_MAX or len({file.seq for file in step.change_files}) < 2:
                    raise
                rows_max = sum(file.rows for file in step.change_files) // 2
                logger.warning("folding %s in steps of %d changes: %s", self._handles.name, rows_max, error)
            else:
                total = report if total is None else added(total, report)
                if len(step.change_files) == len(pending):
                    break
            snapshot = self._handles.snapshot()
        if total is not None and snapshot.schema.order_by:
            merge_remembered(self._handles, self._reader, self._lease)
        if total is None:
            total = FoldReport(
                str(self._handles.name), snapshot.watermark, snapshot.base_rows, final_rows=snapshot.base_rows
            )
        if problem:
            logger.warning("fold of %s stopped at seq %d: %s", self._handles.name, total.seq, problem)
        return replace(total, seconds=time.monotonic() - started, problem=problem, expired_rows=expired_rows)

    def _seq_of(self, error: Corruption, pending: Sequence[DataFile]) -> int | None:
        """The seq of the change file that the error is about."""
        folder = self._handles.changes.log.path
        return next((file.seq for file in pending if str(folder / file.path) == error.details.get("path")), None)

    def _run_step(self, snapshot: Snapshot, step: FoldStep) -> FoldReport:
        inputs = [file.path for file in step.change_files]
        try:
            with jobs.running(self._handles, "fold", "base", inputs, lease=self._lease, why=self._why) as run:
                make = self._link if step.partitions is not None else self._rewrite
                report, adds, removes = make(snapshot, run, step)
                self._commit(snapshot, run, report, adds, removes)
                run.clean_up(jobs.forget_folded)
                self._runtime.store.step("fold.removed")
                run.tell(
                    (report.files_read + report.files_linked, report.files_written + report.files_linked),
                    (report.bytes_read, report.bytes_written),
                    report.change_rows,
                    change_files=report.change_files,
                    tombstones=report.tombstones,
                )
        except (Corruption, NotFound) as error:
            if self._moved(snapshot, step) or self._may_mend(error):
                raise PlannedAgain from error
            raise
        return report

    def _may_mend(self, error: LithifyError) -> bool:
        """Whether a copy was damaged, in whose place another is brought. Each gets one chance."""
        path = str(error.details.get("path"))
        if not isinstance(error, Damaged) or path in self._mended:
            return False
        self._mended.add(path)
        return True

    def _moved(self, snapshot: Snapshot, step: FoldStep) -> bool:
        """Files that others have replaced since may be gone: that is no damage."""
        now = self._handles.snapshot()
        return now.base != snapshot.base or not set(step.change_files) <= set(now.changes)

    def _link(
        self,
        snapshot: Snapshot,
        run: jobs.OpenJob,
        step: FoldStep,
    ) -> tuple[FoldReport, list[tuple[Written, Mapping[str, str | None]]], list[DataFile]]:
        store, job = self._runtime.store, run.job
        root = self._handles.base_folder
        run.progress.expect(
            len(step.change_files), sum(f.rows for f in step.change_files), sum(f.size_bytes for f in step.change_files)
        )
        adds: list[tuple[Written, Mapping[str, str | None]]] = []
        folders: set[PurePath] = set()
        copies: dict[PurePath, PurePath] = {}
        layout = Layout.of(snapshot.schema)
        assert step.partitions is not None
        for number, file in enumerate(step.change_files):
            partition = step.partitions[file.path]
            target = f"{output_folder(job.folder, partition)}/part-{number:05d}.parquet"
            folder = (root / target).parent
            if folder not in folders:
                store.make_folder(folder)
                folders.add(folder)
            source = self._handles.changes.log.path / file.path
            if not store.remote:  # else the request for the footer tells
                check_whole(str(source), file.size_bytes)
            footer = read_footer(source, file.size_bytes)
            known = footer_of(footer, source)
            if (rows := known.metadata.num_rows) != file.rows:
                raise Corruption(
                    f"{source} has {rows} rows instead of {file.rows}: restore this file from a copy",
                    path=str(source),
                )
            copies[source] = root / target
            stats = stats_json(known, snapshot.schema.columns, layout.stats_columns)
            adds.append((Written(target, file.size_bytes, file.rows, stats, footer), partition))
            run.progress.advance(1, file.rows, file.size_bytes)
        store.copy_all(copies)
        jobs.sync_outputs(self._runtime, root, [written.path for written, _ in adds])
        rows = sum(file.rows for file in step.change_files)
        report = FoldReport(
            str(self._handles.name),
            step.seq,
            base_rows=snapshot.base_rows,
            change_rows=rows,
            inserted=rows,
            final_rows=snapshot.base_rows + rows,
            files_linked=len(adds),
            engine="link",
            change_files=len(step.change_files),
        )
        return report, adds, []

    def _rewrite(
        self, snapshot: Snapshot, run: jobs.OpenJob, step: FoldStep
    ) -> tuple[FoldReport, list[tuple[Written, Mapping[str, str | None]]], list[DataFile]]:
        schema, store, job = snapshot.schema, self._runtime.store, run.job
        sources = self._reader.base_sources(snapshot)
        overlay = self._reader.overlay(snapshot, step.change_files, sources)
        by = schema.key or tuple(overlay.hidden.column_names)
        distribution = distribute(schema, self._reader.touched(snapshot, overlay.hidden), overlay, by)
        root = self._handles.base_folder
        inputs = [share.file for share in distribution.shares if share.file]
        run.progress.expect(len(inputs), sum(max(f.rows, 0) for f in inputs), sum(f.size_bytes for f in inputs))
        engine = self._engine(sum(file.size_bytes for file in (*inputs, *step.change_files)))
        with self._scratch(root / job.folder / "_scratch", engine) as scratch:
            tasks = self._tasks(snapshot, job, distribution, by, scratch)
            store.step("fold.staged")
            if engine == "local":
                bring((root / file.path, file.size_bytes) for file in inputs)
            results = self._run_tasks(tasks, engine)
        store.step("fold.written")
        # A fold that only deletes has no output: then nothing of its folder is left to clean up later.
        if not any(result.written for result in results):
            store.delete_folder(root / job.folder)
        if engine != "local":
            jobs.drop_leftovers(self._runtime, root, job, [result.written.path for result in results if result.written])
        jobs.sync_outputs(self._runtime, root, [result.written.path for result in results if result.written])
        by_path = {f"{root}/{share.file.path}": share.file for share in distribution.shares if share.file}
        adds = [(result.written, result.partition) for result in results if result.written]
        removes = [by_path[result.source] for result in results if result.source and not result.unchanged]
        updated, deleted = sum(r.updated for r in results), sum(r.deleted for r in results)
        inserted = overlay.rows.num_rows - updated
        report = FoldReport(
            str(self._handles.name),
            step.seq,
            base_rows=snapshot.base_rows,
            change_rows=sum(file.rows for file in step.change_files),
            inserted=inserted,
            updated=updated,
            deleted=deleted,
            final_rows=snapshot.base_rows + inserted - deleted,
            files_read=len(removes) + len(step.change_files),
            files_written=len(adds),
            bytes_read=sum(r.bytes_read for r in results) + sum(f.size_bytes for f in step.change_files),
            bytes_written=sum(written.size_bytes for written, _ in adds),
            engine=engine,
            change_files=len(step.change_files),
            tombstones=sum(file.rows for file in step.change_files if file.op in DELETES),
        )
        self._verify(snapshot, report, adds, removes)
        return report, adds, removes

    @contextlib.contextmanager
    def _scratch(self, folder: PurePath, engine: str) -> Iterator[PurePath]:
        """Where all tasks find their shares: in the job's folder, unless that is far away and they run here."""
        store = self._runtime.store
        if store.remote and engine == "local":
            with Scratch("fold") as here:
                yield here
            return
        store.make_folder(folder)
        yield folder
        store.delete_folder(folder)

    def _tasks(
        self,
        snapshot: Snapshot,
        job: Job,
        distribution: Distribution,
        by: tuple[str, ...],
        scratch: PurePath,
    ) -> list[RewriteTask]:
        schema, root = snapshot.schema, self._handles.base_folder
        hidden = distribution.hidden
        if hidden.num_rows:
            shown = (
                lookup(hidden, distribution.rows, by) >= 0
                if schema.keyed and distribution.rows.num_rows
                else [False] * hidden.num_rows
            )
            write_slices(scratch / "hidden.arrow", hidden.append_column(SHOWN, pa.array(shown, pa.bool_())))
        write_slices(scratch / "rows.arrow", distribution.rows)
        layout = Layout.of(schema)
        tasks = []
        for number, share in enumerate(distribution.shares):
            tasks.append(
                RewriteTask(
                    source=f"{root}/{share.file.path}" if share.file else None,
                    source_rows=share.file.rows if share.file else 0,
                    source_bytes=share.file.size_bytes if share.file else 0,
                    constants=dict(constants_of(share.file, schema)) if share.file else {},
                    hidden=Slice(str(scratch / "hidden.arrow"), *share.hidden)
                    if hidden.num_rows and share.file
                    else None,
                    rows=Slice(str(scratch / "rows.arrow"), *share.rows),
                    by=by,
                    layout=layout,
                    root=str(root),
                    target=f"{output_folder(job.folder, share.partition)}/part-{number:05d}-"
                    f"{self._runtime.new_id()[:8]}.parquet",
                    partition=dict(share.partition),
                )
            )
        return [task for task in tasks if task.source is not None or (task.rows and task.rows.length)]

    def _run_tasks(self, tasks: Sequence[RewriteTask], engine: str) -> list[RewriteResult]:
        check_foreign((task.source, task.source_bytes) for task in tasks if task.source is not None)
        with stoppable(HERE if engine == "local" else self._runtime.compute) as compute:
            return compute.run(rewrite, tasks)

    def _verify(
        self,
        snapshot: Snapshot,
        report: FoldReport,
        adds: Sequence[tuple[Written, object]],
        removes: Sequence[DataFile],
    ) -> None:
        """Rewriting never changes rows: outputs must be whole, and add up against inputs."""
        jobs.check_outputs(self._runtime, self._handles.base_folder, [written for written, _ in adds])
        if any(file.rows < 0 for file in snapshot.base):
            return
        removed = {file.path for file in removes}
        after = sum(f.rows for f in snapshot.base if f.path not in removed) + sum(written.rows for written, _ in adds)
        if after != report.final_rows:
            raise Conflict(
                f"fold of {report.table} would leave {after} rows instead of {report.final_rows}: nothing was "
                "committed; "
                "was base changed by hand? read it with another engine, then fold again"
            )

    def _commit(
        self, snapshot: Snapshot, run: jobs.OpenJob, report: FoldReport, adds: Adds, removes: Sequence[DataFile]
    ) -> None:
        handles = self._handles
        planned = {file.log_path for file in snapshot.base}
        info = {
            "operation": "fold",
            "rows": report.change_rows,
            "detail": f"{report.inserted} inserted, {report.updated} updated, {report.deleted} deleted",
            "actor": self._runtime.settings.actor,
            **({"linked": True} if report.files_linked else {}),
        }

        def build() -> LogChange:
            # A watermark over a change that a power cut takes back would swallow the write that gets its seq next.
            handles.changes.log.sync_commits()
            handles.base.check_readable(snapshot.schema)
            handles.base.check_foldable(snapshot.schema)
            live = {file.log_path for file in handles.base.files(snapshot.schema)}
            # Not only its inputs: a file that another writer added could hold a key that this fold takes for new.
            moved = handles.base.watermark != snapshot.watermark or live != planned
            if moved or not handles.has_columns_of(snapshot.schema):
                raise PlannedAgain
            change = LogChange(info, adds, removes, {WATERMARK_TXN: report.seq}, data_change=True)
            return handles.base.with_watermark(change)

        run.commit("fold of", build)
