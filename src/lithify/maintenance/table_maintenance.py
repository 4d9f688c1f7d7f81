"""What a table needs now, and doing it.

Plans come from the policies on a fresh snapshot; files that an unfinished job names are nobody else's candidates. A
plan whose inputs changed under it is made again from what is there now, a few times, and then left for later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from lithify.core.results import CompactReport, FoldReport, VacuumReport
from lithify.core.snapshot import Snapshot
from lithify.core.table_methods import OnReport, quietly
from lithify.delta.commit import PlannedAgain
from lithify.errors import Conflict
from lithify.jobs import jobs, recovery
from lithify.jobs.finish_column_change import finish_column_change
from lithify.jobs.manifest import Job
from lithify.maintenance.compact import Compactor
from lithify.maintenance.compact_plan import compactions
from lithify.maintenance.disk_use import DiskUse
from lithify.maintenance.disk_watch import DiskWatch, DiskWatches
from lithify.maintenance.fold import FoldJob
from lithify.maintenance.merge_changes import ChangeMerger, MinorReport
from lithify.maintenance.optimize_plan import cluster_plans, columns_to_cluster
from lithify.maintenance.plans import CompactPlan, Debt, FoldDue, MinorPlan, Plan
from lithify.maintenance.retention_limits import RetentionLimits
from lithify.maintenance.triggers import debt, fold_due, minor_due
from lithify.maintenance.vacuum import Vacuum
from lithify.metrics.log_lines import tell
from lithify.options.policy import MaintenancePolicy
from lithify.options.tiers import TierNames
from lithify.read.reader import Reader
from lithify.tables.handles import Handles
from lithify.tables.pins import HOUR_MS, vacuumed_ms
from lithify.write.options import policy_for
from lithify.write.quarantine import purge

logger = logging.getLogger(__name__)

ROUNDS_MAX = 20
REPLANS_MAX = 3
AGAIN_MS = 600_000
Report = FoldReport | MinorReport | CompactReport


class TableMaintenance:
    def __init__(self, handles: Handles, reader: Reader, lease: int | None = None) -> None:
        self._handles, self._reader, self._lease = handles, reader, lease
        self._runtime = handles.runtime

    # -- deciding

    def policy(self, snapshot: Snapshot) -> MaintenancePolicy:
        return policy_for(self._runtime.settings, snapshot.schema.settings, snapshot.table)

    def plans(self, now_ms: int, tier: TierNames = None) -> list[Plan]:
        """What is due: pending changes first, then base. With `tier`, only what that tier (or these) has to do."""
        snapshot = self._handles.snapshot()
        if tier is not None:
            return list(self.compactions(now_ms, tier, snapshot))
        policy = self.policy(snapshot)
        fold = fold_due(snapshot, policy, now_ms)
        minor = None
        if fold is None and minor_due(snapshot, policy) is not None:
            minor = minor_due(snapshot, policy, self._busy("changes"))
        first: list[Plan] = [plan for plan in (fold, minor) if plan is not None]
        return [*first, *self.compactions(now_ms, None, snapshot)]

    def compactions(self, now_ms: int, tier: TierNames = None, snapshot: Snapshot | None = None) -> list[CompactPlan]:
        """Where there is nothing to do, nobody has to know who is at it."""
        snapshot = snapshot or self._handles.snapshot()
        policy = self.policy(snapshot)
        if not compactions(snapshot, policy, now_ms, tier=tier):
            return []
        return compactions(snapshot, policy, now_ms, self._busy("base"), tier)

    def clusterings(self, by: str | Iterable[str] | None = None) -> list[CompactPlan]:
        """Z-order of all of base by the given columns, partition by partition."""
        snapshot = self._handles.snapshot()
        columns = columns_to_cluster(snapshot.schema, snapshot.table, by)
        return cluster_plans(snapshot, columns, self.policy(snapshot).cluster_target_bytes, self._busy("base"))

    def debt(self, now_ms: int) -> Debt:
        snapshot = self._handles.snapshot()
        return debt(snapshot, self.policy(snapshot), now_ms, self._busy("base"))

    def _busy(self, log: str) -> frozenset[str]:
        """Files that a job under way reads. A fold names change files, and rewrites base files that it does not."""
        found = jobs.under_way(self._runtime, str(self._handles.name))
        return frozenset(path for job in found if _input_log(job) == log for path in job.inputs)

    # -- doing

    def run(self, plan: Plan) -> Report:
        """Raises Conflict if the table kept moving on under it."""
        wanted: Plan | None = plan
        for _ in range(REPLANS_MAX):
            if wanted is None:
                break
            try:
                return self._run(wanted)
            except PlannedAgain:
                finish_column_change(self._handles)
                wanted = self._again(wanted)
        raise Conflict(
            f"{plan.kind} of {plan.table}: other jobs changed its files meanwhile; it is planned again later"
        )

    def _run(self, plan: Plan) -> Report:
        match plan:
            case CompactPlan():
                return Compactor(self._handles, self._lease).run(plan)
            case MinorPlan():
                return ChangeMerger(self._handles, self._reader, self._lease).run(plan)
            case FoldDue():
                return FoldJob(self._handles, self._reader, self._lease, plan.why).run()

    def _again(self, plan: Plan) -> Plan | None:
        """The same work on what is there now."""
        if isinstance(plan, CompactPlan) and plan.by:
            snapshot, busy = self._handles.snapshot(), self._busy("base")
            found = cluster_plans(snapshot, plan.by, plan.target_bytes)
            mine = next((p for p in found if dict(p.partition) == dict(plan.partition)), None)
            return mine if mine and not any(file.path in busy for file in mine.files) else None
        tier = plan.origin if isinstance(plan, CompactPlan) else None
        for other in self.plans(self._runtime.now_ms(), tier):
            same_target = not isinstance(plan, CompactPlan) or (
                isinstance(other, CompactPlan) and dict(other.partition) == dict(plan.partition)
            )
            if other.kind == plan.kind and same_target:
                return other
        return None

    def compact(self, tier: TierNames, on_report: OnReport = quietly) -> list[CompactReport]:
        """All that is due, until nothing is."""
        self._recover()
        reports: list[CompactReport] = []
        for _ in range(ROUNDS_MAX):
            done = self._side_by_side(self.compactions(self._runtime.now_ms(), tier), on_report)
            reports += done
            # A round that wrote nothing would be planned like this for ever, e.g. over a damaged file.
            if not any(report.files_written for report in done):
                break
        return reports

    def optimize(self, by: str | Iterable[str] | None = None, on_report: OnReport = quietly) -> list[CompactReport]:
        """Base in z-order. Where all rows are still pending they are folded first: there would be nothing to order."""
        self._recover()
        snapshot = self._handles.snapshot()
        columns_to_cluster(snapshot.schema, snapshot.table, by)
        if not snapshot.base_rows and snapshot.changes:
            FoldJob(self._handles, self._reader, self._lease, "all rows are pending, and base is to be ordered").run()
        if snapshot.schema.expiry is not None:
            why = "base is to be ordered, without rows that have expired"
            FoldJob(self._handles, self._reader, self._lease, why, drops_all=True).run()
        return self._side_by_side(self.clusterings(by), on_report)

    def _recover(self) -> None:
        recovery.recover(self._runtime, str(self._handles.name))
        finish_column_change(self._handles)

    def _side_by_side(self, plans: Sequence[CompactPlan], on_report: OnReport) -> list[CompactReport]:
        """Partitions in parallel, the plans of one in order."""
        queues: dict[tuple[object, ...], list[CompactPlan]] = {}
        for plan in plans:
            queues.setdefault(tuple(sorted(plan.partition.items(), key=str)), []).append(plan)

        gate, stopped, active = threading.Condition(), threading.Event(), 0

        def work(queue: Sequence[CompactPlan]) -> list[CompactReport]:
            nonlocal active
            with gate:
                if stopped.is_set():
                    return []
                active += 1
            try:
                done = []
                for plan in queue:
                    if stopped.is_set():
                        break
                    report = self.run(plan)
                    assert isinstance(report, CompactReport)
                    on_report(report)
                    done.append(report)
                return done
            finally:
                with gate:
                    active -= 1
                    gate.notify_all()

        pool = ThreadPoolExecutor(self._runtime.settings.jobs_max, thread_name_prefix="lithify-compact")
        try:
            running = [pool.submit(copy_context().run, work, queue) for queue in queues.values()]
            return [report for queue in running for report in queue.result()]
        except BaseException as error:
            # What failed in one queue, or Ctrl-C here, must not let the others go on behind the caller's back.
            with gate:
                stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, Exception):
                self._runtime.compute.cancel_all("interrupted")
            # Counted here, because a pool forgets the thread that it was starting when Ctrl-C came.
            with gate:
                gate.wait_for(lambda: active == 0)
            raise
        finally:
            pool.shutdown()

    def trim(self) -> None:
        """Keep the logs short. The base of an adopted table is its owner's. One that nobody has written to since has
        little more to give away than a few minutes ago.
        """
        logs, now_ms = (self._handles.changes.log, self._handles.base.log), self._runtime.now_ms()
        versions = logs[0].version, logs[1].version
        watch = self._watch()
        self._purge_quarantine(watch, now_ms)
        if watch.trimmed is not None and watch.trimmed[0] == versions and 0 <= now_ms - watch.trimmed[1] < AGAIN_MS:
            return
        self.disk_use()  # before what it is told from goes
        for log in logs:
            log.trim_if_due()
        watch.trimmed = versions, now_ms

    def _purge_quarantine(self, watch: DiskWatch, now_ms: int) -> None:
        """Records that were set aside longer ago than the table keeps them: most do until they are told."""
        hours = self._handles.changes.schema.options["quarantine_retain_hours"]
        if hours is None or 0 <= now_ms - watch.purged_ms < AGAIN_MS:
            return
        watch.purged_ms = now_ms
        for gone in purge(self._handles, older_than_hours=hours):
            tell(logger, "quarantine purged", table=str(self._handles.name), set=gone.name, records=gone.records)

    def vacuum_due(self, now_ms: int) -> bool:
        """Whether a table that looks after itself is to be vacuumed. Not while all that it ever removed is gone."""
        every_ms = self._runtime.settings.vacuum_interval_s * 1000
        if not every_ms:
            return False
        watch = self._watch()
        if now_ms - watch.vacuumed_ms < every_ms:  # or later than that, by others
            return False
        last_ms = watch.vacuumed_ms = vacuumed_ms(self._runtime, self._handles.name)
        if now_ms - last_ms < every_ms:
            return False
        logs = (self._handles.changes.log, self._handles.base.log)
        newest_ms = max(self._runtime.store.modified_ms(log.commit_path(log.version)) for log in logs)
        return newest_ms > last_ms - self.retention().hours * HOUR_MS

    def retention(self) -> RetentionLimits:
        return RetentionLimits.of(self._handles.schema().options)

    def disk_use(self) -> DiskUse:
        return self._watch().look(self._handles, self.retention())

    def _watch(self) -> DiskWatch:
        return self._runtime.shared(DiskWatches).of(self._handles.incarnation)

    def vacuum(self) -> VacuumReport:
        return Vacuum(self._handles).run(self.retention(), dry_run=False)


def _input_log(job: Job) -> str:
    return "changes" if job.kind in ("fold", "minor", "bulk") else "base"
