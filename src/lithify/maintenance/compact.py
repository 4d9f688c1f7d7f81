"""Compacting: files of one partition of base become fewer, or lie in another order. The same rows come out.

A job with a manifest that names its inputs; merge tasks here or on Spark; verification of row counts and of a
fingerprint of the keys, both from the finished files; one commit with `dataChange=false` that requires every input to
be live still. Inputs that changed meanwhile mean planning again, never failing. A damaged input is left where it is,
reported, and the rest goes on without it. Where memory runs out the files are halved, down to two, four times.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lithify.compute.compute import HereCompute, engine_for, stoppable
from lithify.core.partitioning import output_folder
from lithify.core.read_plan import constants_of
from lithify.core.results import CompactReport
from lithify.core.snapshot import DataFile, Snapshot
from lithify.core.wording import plural
from lithify.delta.actions import Adds, LogChange
from lithify.delta.commit import PlannedAgain
from lithify.errors import Corruption, NotFound, OutOfResources
from lithify.files.key_checksum import added, columns_to_check
from lithify.files.local_files import bring
from lithify.files.merge_sorted import MergeResult, MergeSource, MergeTask, merge_files
from lithify.files.parquet import Layout
from lithify.files.read_proof import Vanished, check_whole
from lithify.files.zorder import ClusterTask, cluster_here
from lithify.jobs import jobs
from lithify.jobs.manifest import Job
from lithify.maintenance.plans import CompactPlan
from lithify.tables.handles import Handles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

HALVINGS_MAX = 4
HERE = HereCompute()


class Compactor:
    def __init__(self, handles: Handles, lease: int | None = None) -> None:
        self._handles, self._lease = handles, lease
        self._runtime = handles.runtime

    def run(self, plan: CompactPlan) -> CompactReport:
        """Raises PlannedAgain if an input is not there any more."""
        started = time.monotonic()
        report = self._run(plan, 0)
        return replace(report, seconds=time.monotonic() - started)

    def _run(self, plan: CompactPlan, depth: int) -> CompactReport:
        report = CompactReport(plan.table, plan.origin, dict(plan.partition), halvings=depth)
        plan, problems = self._without_damaged(plan)
        while len(plan.files) >= (1 if plan.by else 2):
            try:
                report = replace(self._job(plan), halvings=depth)
                break
            except Corruption as error:
                damaged = [file for file in plan.files if self._path(file) == error.details.get("path")]
                if not damaged:
                    raise
                if isinstance(error, Vanished):
                    self._check_inputs(plan, self._handles.snapshot())
                problems.append(error.message)
                plan = replace(plan, files=tuple(file for file in plan.files if file not in damaged))
            except OutOfResources as error:
                if depth >= HALVINGS_MAX or len(plan.files) < 4:
                    raise
                middle = len(plan.files) // 2
                logger.warning("compacting %d files of %s in two halves: %s", len(plan.files), plan.table, error)
                halves = [replace(plan, files=files) for files in (plan.files[:middle], plan.files[middle:])]
                report = _together([self._run(half, depth + 1) for half in halves])
                break
        for problem in problems:
            logger.warning("compacting %s goes on without a damaged file: %s", plan.table, problem)
        return replace(report, problems=(*problems, *report.problems))

    def _without_damaged(self, plan: CompactPlan) -> tuple[CompactPlan, list[str]]:
        """Leave out what can be seen to be damaged without reading it."""
        readable, problems = [], []
        with contextlib.suppress(Corruption):  # which of them, is found below
            bring((self._path(file), file.size_bytes) for file in plan.files)
        for file in plan.files:
            try:
                check_whole(self._path(file), file.size_bytes)
                readable.append(file)
            except Corruption as error:
                problems.append(error.message)
        if problems:
            # Gone because another job took it, and a vacuum after that, is no damage.
            self._check_inputs(plan, self._handles.snapshot())
        return replace(plan, files=tuple(readable)), problems

    def _job(self, plan: CompactPlan) -> CompactReport:
        snapshot = self._handles.snapshot()
        self._check_inputs(plan, snapshot)
        inputs = [file.path for file in plan.files]
        try:
            with jobs.running(
                self._handles, plan.origin, "base", inputs, lease=self._lease, why=plan.why, point="compact"
            ) as run:
                return self._run_job(plan, snapshot, run)
        except NotFound:
            self._check_alive()
            raise

    def _run_job(self, plan: CompactPlan, snapshot: Snapshot, run: jobs.OpenJob) -> CompactReport:
        runtime, root, job = self._runtime, self._handles.base_folder, run.job
        # Unlike a fold, a merge may hold all of its rows in memory, ten times their size on disk.
        engine = engine_for(plan.bytes_in, runtime.settings.local_job_bytes_max // 4, as_query=bool(plan.by))
        run.progress.expect(len(plan.files), sum(max(file.rows, 0) for file in plan.files), plan.bytes_in)
        runtime.store.make_folder(root / job.folder)
        results = (self._cluster if plan.by else self._merge)(plan, snapshot, job, engine)
        runtime.store.step("compact.written")
        self._verify(plan, results)
        adds = [(written, result.partition) for result in results for written in result.written]
        if engine != "local":
            jobs.drop_leftovers(runtime, root, job, [written.path for written, _ in adds])
        jobs.sync_outputs(runtime, root, [written.path for written, _ in adds])
        report = CompactReport(
            plan.table,
            plan.origin,
            dict(plan.partition),
            len(plan.files),
            len(adds),
            sum(result.rows_read for result in results),
            plan.bytes_in,
            sum(written.size_bytes for written, _ in adds),
            engine=engine,
        )
        self._commit(plan, snapshot, run, report, adds)
        run.tell((report.files_read, report.files_written), (report.bytes_read, report.bytes_written), report.rows)
        return report

    def _check_alive(self) -> None:
        """Files that are gone are nothing to wonder about when the table is."""
        self._handles.changes.log.refresh()
        self._handles.check_alive()

    def _check_inputs(self, plan: CompactPlan, snapshot: Snapshot) -> None:
        live = {file.log_path for file in snapshot.base}
        if not all(file.log_path in live for file in plan.files):
            raise PlannedAgain

    def _merge(self, plan: CompactPlan, snapshot: Snapshot, job: Job, engine: str) -> list[MergeResult]:
        """A task for each output of the target size, so that a large plan keeps every core busy."""
        schema = snapshot.schema
        window = (schema.time, plan.window_us) if schema.time and plan.window_us else None
        groups = [list(plan.files)] if window else _shares(plan.files, plan.target_bytes)
        tasks = [
            MergeTask(
                self._sources(group, snapshot),
                schema.sort_columns,
                tuple(columns_to_check(schema.columns, schema.key)),
                Layout.of(schema),
                str(self._handles.base_folder),
                output_folder(job.folder, plan.partition),
                self._part_name(number),
                plan.target_bytes,
                dict(plan.partition),
                window,
            )
            for number, group in enumerate(groups)
        ]
        with stoppable(HERE if engine == "local" else self._runtime.compute) as compute:
            return compute.run(merge_files, tasks)

    def _cluster(self, plan: CompactPlan, snapshot: Snapshot, job: Job, engine: str) -> list[MergeResult]:
        schema = snapshot.schema
        task = ClusterTask(
            self._sources(plan.files, snapshot),
            plan.by,
            tuple(columns_to_check(schema.columns, schema.key)),
            Layout.of(schema),
            str(self._handles.base_folder),
            output_folder(job.folder, plan.partition),
            self._part_name(0),
            plan.target_bytes,
            dict(plan.partition),
        )
        if engine == "local":
            return [cluster_here(task)]
        with stoppable(self._runtime.compute) as compute:
            return [compute.run_on_driver(cluster_on_spark, task)]

    def _sources(self, files: Sequence[DataFile], snapshot: Snapshot) -> tuple[MergeSource, ...]:
        return tuple(
            MergeSource(self._path(file), file.rows, file.size_bytes, dict(constants_of(file, snapshot.schema)))
            for file in files
        )

    def _part_name(self, number: int) -> str:
        return f"part-{number:05d}-{self._runtime.new_id()[:8]}"

    def _path(self, file: DataFile) -> str:
        return f"{self._handles.base_folder}/{file.path}"

    def _verify(self, plan: CompactPlan, results: Sequence[MergeResult]) -> None:
        """Invariant 6: rewriting never changes rows."""
        outputs = [written for result in results for written in result.written]
        jobs.check_outputs(self._runtime, self._handles.base_folder, outputs)
        known = [file.rows for file in plan.files]
        rows_in = sum(result.rows_read for result in results)
        rows_out = sum(result.rows_written for result in results)
        expected = sum(known) if min(known) >= 0 else rows_in
        keys_in = added(result.fingerprint_read for result in results)
        keys_out = added(result.fingerprint_written for result in results)
        if not rows_in == rows_out == expected or keys_in != keys_out:
            raise Corruption(
                f"compacting {len(plan.files)} files of {plan.table} read {rows_in:,} of {expected:,} rows and wrote "
                f"{rows_out:,}, key checksums {keys_in:016x} and {keys_out:016x}: nothing was committed; check the "
                "disk and memory of this machine, then compact again"
            )

    def _commit(
        self, plan: CompactPlan, snapshot: Snapshot, run: jobs.OpenJob, report: CompactReport, adds: Adds
    ) -> None:
        handles = self._handles
        inputs = {file.log_path for file in plan.files}
        info = {
            "operation": f"compact ({plan.origin})",
            "rows": report.rows,
            "detail": f"{plural(report.files_read, 'file')} became {report.files_written}",
            "actor": self._runtime.settings.actor,
        }

        def build() -> LogChange:
            handles.base.check_readable(snapshot.schema)
            live = {file.log_path: file for file in handles.base.files(handles.changes.schema)}
            if not inputs <= live.keys() or not handles.has_columns_of(snapshot.schema):
                raise PlannedAgain
            return handles.base.with_watermark(LogChange(info, adds, [live[path] for path in sorted(inputs)]))

        run.commit("compaction of", build)


def cluster_on_spark(spark: SparkSession, task: ClusterTask) -> MergeResult:
    # Imported where the driver is: this process may have no Spark.
    from lithify.spark.zorder import cluster

    return cluster(spark, task)


def _shares(files: Sequence[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Neighbours together, about `target_bytes` each, none alone."""
    count = max(1, min(round(sum(file.size_bytes for file in files) / target_bytes), len(files) // 2))
    share = sum(file.size_bytes for file in files) / count
    groups: list[list[DataFile]] = [[]]
    size = 0.0
    for number, file in enumerate(files):
        enough = size >= share * len(groups) and len(groups[-1]) >= 2 and len(files) - number >= 2
        if enough and len(groups) < count:
            groups.append([])
        groups[-1].append(file)
        size += file.size_bytes
    return groups


def _together(reports: Sequence[CompactReport]) -> CompactReport:
    first = reports[0]
    return replace(
        first,
        files_read=sum(r.files_read for r in reports),
        files_written=sum(r.files_written for r in reports),
        rows=sum(r.rows for r in reports),
        bytes_read=sum(r.bytes_read for r in reports),
        bytes_written=sum(r.bytes_written for r in reports),
        halvings=max(r.halvings for r in reports),
        problems=tuple(problem for r in reports for problem in r.problems),
    )
