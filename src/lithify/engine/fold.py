"""Folding: pending changes become part of base.

First the oldest change files that stand beside base as they are get linked, without writing a byte of data. The
rest is resolved to one winner per key; only base files that can hold a changed key are rewritten, each by one task,
in this process or on Spark.

The commit order is the safety: base first, with the watermark, on exactly the watermark and inputs that were
planned; then fsync; then the changes are removed. A crash before the base commit leaves a folder for recovery; a
crash after it leaves changes that every reader ignores.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lithify.engine import jobs
from lithify.engine.attempts import swap_with_retries
from lithify.engine.compute import HereCompute
from lithify.engine.handles import Handles
from lithify.engine.reader import Reader
from lithify.errors import Conflict, Corruption
from lithify.log.base import FOLDED_TXN
from lithify.model.fold_plan import Distribution, distribute, linkable, partition_of_file
from lithify.model.merge import lookup
from lithify.model.names import DAY
from lithify.model.plans import constants_of
from lithify.model.pruning import solid_prefix, split_by_keys
from lithify.model.snapshot import DataFile, Snapshot
from lithify.store.parquet import Layout, Written, check_whole, footer_rows
from lithify.store.rewrite import SHOWN, RewriteResult, RewriteTask, Slice, rewrite, write_slices

logger = logging.getLogger(__name__)

REPLANS_MAX = 5
HERE = HereCompute()


@dataclass(frozen=True)
class FoldPlan:
    """What a fold would do now, without doing it."""

    table: str
    watermark: int
    seq: int
    change_files: int
    change_rows: int
    files_linked: int
    files_rewritten: int
    files_kept: int
    bytes_read: int
    engine: str


@dataclass(frozen=True)
class FoldReport:
    """What a fold did. Row counts are exact; bytes count data files."""

    table: str
    seq: int
    base_rows: int = 0
    change_rows: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    final_rows: int = 0
    files_read: int = 0
    files_written: int = 0
    files_linked: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    engine: str = "none"


class Planned(Exception):
    """The table moved on under the plan. Internal: plan again."""


@dataclass(frozen=True)
class _Step:
    """One commit to base."""

    seq: int
    change_files: tuple[DataFile, ...]


class Folder:
    def __init__(self, handles: Handles, reader: Reader) -> None:
        self._handles, self._reader = handles, reader
        self._runtime = handles.runtime

    # -- deciding

    def _link_step(self, snapshot: Snapshot) -> tuple[_Step, Mapping[str, Mapping[str, str | None]]] | None:
        solid = linkable(solid_prefix(snapshot.schema, snapshot.base, snapshot.changes)[0])
        partitions: dict[str, Mapping[str, str | None]] = {}
        linked: list[DataFile] = []
        for seq in sorted({file.seq for file in solid}):
            group = [file for file in solid if file.seq == seq]
            found = {file.path: partition_of_file(snapshot.schema, file) for file in group}
            if any(partition is None for partition in found.values()):
                break
            partitions.update({path: partition for path, partition in found.items() if partition is not None})
            linked += group
        if not linked:
            return None
        return _Step(max(file.seq for file in linked), tuple(linked)), partitions

    def _rewrite_step(self, snapshot: Snapshot) -> _Step:
        """As long a prefix of the changes as fits this process's memory, at least one commit."""
        chosen: list[DataFile] = []
        rows = 0
        for seq in sorted({file.seq for file in snapshot.changes}):
            group = [file for file in snapshot.changes if file.seq == seq]
            rows += sum(file.rows for file in group)
            if chosen and rows > self._runtime.settings.resolve_rows_max:
                break
            chosen += group
        return _Step(max(file.seq for file in chosen), tuple(chosen))

    def plan(self) -> FoldPlan:
        snapshot = self._handles.snapshot()
        linked = self._link_step(snapshot)
        linked_files = linked[0].change_files if linked else ()
        rest = [file for file in snapshot.changes if file not in linked_files]
        overlay = self._reader.overlay(snapshot, rest, self._reader.base_sources(snapshot))
        touched, kept = split_by_keys([*snapshot.base, *linked_files], overlay.hidden)
        read = sum(file.size_bytes for file in (*touched, *rest))
        return FoldPlan(
            self._handles.name.__str__(),
            snapshot.watermark,
            snapshot.seq,
            len(snapshot.changes),
            snapshot.pending_rows,
            len(linked_files),
            len(touched),
            len(kept),
            read,
            self._engine(read),
        )

    def _engine(self, bytes_read: int) -> str:
        return "local" if bytes_read < self._runtime.settings.local_job_bytes_max else "spark"

    # -- doing

    def run(self) -> FoldReport:
        started = time.monotonic()
        jobs.recover(self._runtime, str(self._handles.name))
        self._forget_folded()
        goal = self._handles.snapshot().seq
        total: FoldReport | None = None
        replans = 0
        while True:
            snapshot = self._handles.snapshot()
            if not any(file.seq <= goal for file in snapshot.changes):
                break
            snapshot = replace(snapshot, changes=tuple(f for f in snapshot.changes if f.seq <= goal))
            try:
                report = self._run_step(snapshot)
            except Planned:
                replans += 1
                if replans > REPLANS_MAX:
                    raise Conflict(
                        f"fold of {self._handles.name} was overtaken {REPLANS_MAX} times by other folds or schema "
                        "changes: try again later"
                    ) from None
                continue
            total = report if total is None else _added(total, report)
        if total is None:
            snapshot = self._handles.snapshot()
            total = FoldReport(
                str(self._handles.name), snapshot.watermark, snapshot.base_rows, final_rows=snapshot.base_rows
            )
        return replace(total, seconds=time.monotonic() - started)

    def _run_step(self, snapshot: Snapshot) -> FoldReport:
        runtime = self._runtime
        link = self._link_step(snapshot)
        job = jobs.begin(runtime, str(self._handles.name), "fold", "base")
        base = self._handles.base.log
        try:
            if link is not None:
                report, adds, removes = self._link(snapshot, job, *link)
            else:
                report, adds, removes = self._rewrite(snapshot, job, self._rewrite_step(snapshot))
            self._commit(snapshot, job, report, adds, removes)
        except BaseException as error:
            jobs.give_up(runtime, job, base, error)
            raise
        self._forget_folded()
        runtime.store.step("fold.removed")
        jobs.finish(runtime, job)
        runtime.store.step("fold.done")
        return report

    def _link(
        self,
        snapshot: Snapshot,
        job: jobs.Job,
        step: _Step,
        partitions: Mapping[str, Mapping[str, str | None]],
    ) -> tuple[FoldReport, list[tuple[Written, Mapping[str, str | None]]], list[DataFile]]:
        store = self._runtime.store
        root = self._handles.base_folder
        adds: list[tuple[Written, Mapping[str, str | None]]] = []
        folders: set[Path] = set()
        stats = self._stats_of(step.change_files)
        for number, file in enumerate(step.change_files):
            partition = partitions[file.path]
            target = _target(job, partition, f"part-{number:05d}.parquet")
            folder = (root / target).parent
            if folder not in folders:
                store.make_folder(folder)
                folders.add(folder)
            source = self._handles.changes.log.path / file.path
            check_whole(str(source), file.size_bytes)
            if (found := footer_rows(source)) != file.rows:
                raise Corruption(f"{source} has {found} rows instead of {file.rows}: restore this file from a copy")
            store.link(source, root / target)
            adds.append((Written(target, file.size_bytes, file.rows, stats[file.log_path]), partition))
        for folder in folders:
            store.sync_folder(folder)
        store.sync_folder(root)
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
        )
        return report, adds, []

    def _stats_of(self, files: Sequence[DataFile]) -> dict[str, str]:
        """The statistics that the changes log holds for these files, word for word."""
        wanted = {file.log_path for file in files}
        found: dict[str, str] = {}
        for seq in sorted({file.seq for file in files}):
            for add in self._handles.changes.record_of_seq(seq).adds:
                if add["path"] in wanted:
                    found[add["path"]] = add.get("stats") or "{}"
        return found

    def _rewrite(
        self, snapshot: Snapshot, job: jobs.Job, step: _Step
    ) -> tuple[FoldReport, list[tuple[Written, Mapping[str, str | None]]], list[DataFile]]:
        schema, store = snapshot.schema, self._runtime.store
        sources = self._reader.base_sources(snapshot)
        overlay = self._reader.overlay(snapshot, step.change_files, sources)
        by = schema.key or tuple(overlay.hidden.column_names)
        distribution = distribute(schema, snapshot.base, overlay, by)
        root = self._handles.base_folder
        scratch = root / job.folder / "_scratch"
        store.make_folder(scratch)
        tasks = self._tasks(snapshot, job, distribution, by, scratch)
        store.step("fold.staged")
        read = sum(share.file.size_bytes for share in distribution.shares if share.file) + sum(
            f.size_bytes for f in step.change_files
        )
        engine = self._engine(read)
        results = self._run_tasks(tasks, engine)
        store.step("fold.written")
        # A fold that only deletes has no output: then nothing of its folder is left to clean up later.
        wrote = any(result.written for result in results)
        store.remove_folder(scratch if wrote else root / job.folder)
        self._sync_outputs(results, root)
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
        )
        self._verify(snapshot, report, adds, removes)
        return report, adds, removes

    def _tasks(
        self,
        snapshot: Snapshot,
        job: jobs.Job,
        distribution: Distribution,
        by: tuple[str, ...],
        scratch: Path,
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
                    target=_target(job, share.partition, f"part-{number:05d}-{self._runtime.new_id()[:8]}.parquet"),
                    partition=dict(share.partition),
                )
            )
        return [task for task in tasks if task.source is not None or (task.rows and task.rows.length)]

    def _run_tasks(self, tasks: Sequence[RewriteTask], engine: str) -> list[RewriteResult]:
        return (HERE if engine == "local" else self._runtime.compute).run(rewrite, tasks)

    def _sync_outputs(self, results: Sequence[RewriteResult], root: Path) -> None:
        """The files were fsynced by whoever wrote them; their directory entries are ours to make durable."""
        folders = {(root / result.written.path).parent for result in results if result.written}
        for folder in folders | {parent for f in folders for parent in f.parents if parent.is_relative_to(root)}:
            self._runtime.store.sync_folder(folder)

    def _verify(
        self,
        snapshot: Snapshot,
        report: FoldReport,
        adds: Sequence[tuple[Written, object]],
        removes: Sequence[DataFile],
    ) -> None:
        """Rewriting never changes rows: outputs must add up against inputs."""
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
        self,
        snapshot: Snapshot,
        job: jobs.Job,
        report: FoldReport,
        adds: Sequence[tuple[Written, Mapping[str, str | None]]],
        removes: Sequence[DataFile],
    ) -> None:
        runtime, handles = self._runtime, self._handles
        planned = {file.log_path for file in snapshot.base}
        info = {
            "operation": "fold",
            "rows": report.change_rows,
            "detail": f"{report.inserted} inserted, {report.updated} updated, {report.deleted} deleted",
            "actor": runtime.settings.actor,
        }
        write_id = runtime.new_id()

        def attempt() -> None:
            jobs.check_not_fenced(job, handles.base.log)
            handles.changes.log.refresh()
            handles.check_alive()
            # A watermark over a change that a power cut takes back would swallow the write that gets its seq next.
            handles.changes.log.sync_commits()
            handles.base.check_readable(snapshot.schema)
            live = {file.log_path for file in handles.base.files(snapshot.schema)}
            # Not only its inputs: a file that another writer added could hold a key that this fold takes for new.
            moved = handles.base.watermark != snapshot.watermark or live != planned
            if moved or handles.changes.schema.columns != snapshot.schema.columns:
                raise Planned
            txns = {FOLDED_TXN: report.seq, **job.txn}
            runtime.store.step("fold.commit")
            handles.base.commit(adds, removes, txns, info, write_id, data_change=True)

        with handles.changes.log.lock:
            handles.base.log.refresh()
            swap_with_retries(runtime, handles.base.log, f"fold of {handles.name}", attempt)
            runtime.store.step("fold.committed")
            handles.base.log.make_durable()
            runtime.store.step("fold.durable")
            handles.base.log.checkpoint_if_due()

    def _forget_folded(self) -> None:
        """Remove changes that base holds durably. Anyone may do this, any number of times."""
        handles, runtime = self._handles, self._runtime
        with handles.changes.log.lock:
            handles.changes.log.refresh()
            handles.check_alive()
            handles.base.log.refresh()
            watermark = handles.base.watermark
            if not any(file.seq <= watermark for file in handles.changes.files()):
                return
            handles.base.log.make_durable()
            write_id = runtime.new_id()
            swap_with_retries(
                runtime,
                handles.changes.log,
                f"removing folded changes of {handles.name}",
                lambda: handles.changes.remove_folded(watermark, write_id),
            )
            handles.changes.log.make_durable()
            handles.changes.log.checkpoint_if_due()


def _target(job: jobs.Job, partition: Mapping[str, str | None], name: str) -> str:
    if DAY not in partition:
        return f"{job.folder}/{name}"
    # Some readers take partition values from the path, so null has its folder too, by the name that all of them know.
    return f"{job.folder}/{DAY}={partition[DAY] or '__HIVE_DEFAULT_PARTITION__'}/{name}"


def _added(first: FoldReport, second: FoldReport) -> FoldReport:
    return replace(
        second,
        base_rows=first.base_rows,
        **{
            name: getattr(first, name) + getattr(second, name)
            for name in (
                "change_rows",
                "inserted",
                "updated",
                "deleted",
                "files_read",
                "files_written",
                "files_linked",
                "bytes_read",
                "bytes_written",
            )
        },
    )
