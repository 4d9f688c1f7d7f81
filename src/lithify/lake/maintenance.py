"""Maintenance of one lake, put together: its cycle, its scheduler, and what an operator wants to see of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeVar

from lithify.compute.worker import WorkerCompute, WorkerStatus
from lithify.core.arguments import check_count
from lithify.core.fields import Bytes, Count, Example, OfTable, Seconds
from lithify.core.html import Shown
from lithify.core.names import parse_table_name
from lithify.core.optional import installed, missing
from lithify.core.results import HotTableStats, TableStats
from lithify.erasure.records import begun
from lithify.errors import Cancelled, Conflict, InvalidRequest, LithifyError, NotFound
from lithify.jobs import jobs, leases
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.lake.table import Table
from lithify.maintenance.backoff import Waiting
from lithify.maintenance.compact_plan import PACK
from lithify.maintenance.cycle import OnEvent
from lithify.maintenance.cycle_lease import LEASE, Cycle, check_may_compact, cycle_history
from lithify.maintenance.disk_use import DiskUse
from lithify.maintenance.job_slots import JobSlot, JobSlots
from lithify.maintenance.plans import CompactPlan, FileCount, Plan
from lithify.maintenance.reports import CANCELLED, DONE, FAILED, CycleReport, EndedJob, Skipped
from lithify.maintenance.scheduler import STOP_GRACE_S, Scheduler, cron_trigger, tier_is_off
from lithify.maintenance.table_maintenance import TableMaintenance
from lithify.maintenance.triggers import idle_tier
from lithify.options.tiers import Tier, TierNames, declared, tier_named, tier_names
from lithify.read.reader import Reader
from lithify.tables.handles import not_found
from lithify.write.options import policy_for

logger = logging.getLogger(__name__)

PINS_MAX = 4
PATHS_MAX = 500
T = TypeVar("T")


class Maintenance:
    """One per lake and process: it counts what was done."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._runtime = lake, internals(lake).runtime
        self._own_tiers: dict[str, tuple[Tier, ...]] | None = None
        self._slots, self._pins = JobSlots(self._runtime.settings.jobs_max), JobSlots(PINS_MAX)
        self.counters = self._runtime.counters
        self.cycle = Cycle(
            self._runtime,
            lake.tables,
            self._work_of,
            notify=lambda name: internals(lake).open_tables.notify(parse_table_name(name)),
            counters=self.counters,
            check_tier=self._check_tier,
            finish_drops=self._finish,
        )

    def _finish(self, problem: Callable[[str], None], there: Collection[str] = ()) -> list[str]:
        """What was begun and not ended before this cycle: drops, and erasures."""
        inside = internals(self._lake)
        done = inside.catalog.finish_drops(problem, there)
        if not begun(inside.runtime):
            return done
        if not installed("erase"):
            problem(f"an erasure is not done: {missing('cryptography').message}")
            return done
        from lithify.erasure.erasure import resume_open

        return done + resume_open(inside.erasures, problem)

    def check_role(self) -> None:
        """Raises `InvalidRequest` if this node may not do maintenance now."""
        check_may_compact(self._runtime)

    def scheduler(
        self,
        *,
        every_s: float | None = None,
        only_tier: TierNames = None,
        on_event: OnEvent | None = None,
        on_report: Callable[[CycleReport], None] = lambda report: None,
    ) -> Scheduler:
        for name in tier_names(only_tier):
            self._check_tier(name)
        return Scheduler(
            self.cycle, self.tiers, every_s=every_s, only_tier=only_tier, on_event=on_event, on_report=on_report
        )

    def stop(self) -> None:
        """End the cycle that runs, if any, as a scheduler does, and start no other."""
        self.cycle.stop(STOP_GRACE_S)

    # -- what somebody asks for

    def trigger(self, tier: TierNames = None, tables: Sequence[str] | None = None) -> str:
        """Start a cycle in the background; answers its id. Raises `Conflict` with the running cycle's id if there is
        one, and also where this node may not run any: the request is right, but not here.
        """
        try:
            check_may_compact(self._runtime)
        except InvalidRequest as error:
            raise Conflict(error.message, roles=list(self._runtime.settings.roles)) from error
        return self.cycle.start(tier, tables)

    def asked(self, name: str, kind: str, work: Callable[[Table], T]) -> T:
        """Do this on a table now and wait for it, counted as a job. One at a time per table, `jobs_max` in all."""
        table = self._lake.table(name)
        with self._slots.take(JobSlot(table.name, kind, self._runtime.now_ms())):
            started_s, outcome = time.monotonic(), FAILED
            try:
                result = work(table)
                outcome = DONE
            except Cancelled:
                outcome = CANCELLED
                raise
            finally:
                self.counters.jobs.labels(kind, outcome).inc()
                self.counters.job_seconds.labels(kind).observe(time.monotonic() - started_s)
        return result

    def pin(self, name: str, columns: Sequence[str] | None = None) -> HotTableStats:
        """Load a table into the hot cache and keep it, as `lake.cache.pin` does; one load per table, a few in all."""
        with self._pins.take(JobSlot(self._lake.table(name).name, "pin", self._runtime.now_ms())):
            return self._lake.cache.pin(name, columns)

    def turns(self) -> list[JobSlot]:
        """What was asked for here and runs now."""
        return self._slots.running()

    def candidates(self, tables: Sequence[str], tier: TierNames = None) -> tuple[list[Candidate], list[Skipped]]:
        """What a cycle would do now, table by table, and the tables that cannot be looked at. Nothing is done."""
        tier = tier_names(tier) or None
        for name in tier or ():
            self._check_tier(name)
        found: list[Candidate] = []
        skipped: list[Skipped] = []
        for name in tables:
            try:
                found += _candidates(self._work_of(name, 0).plans(self._runtime.now_ms(), tier))
            except LithifyError as error:
                if name in self._lake.tables():  # not if it was dropped meanwhile
                    skipped.append(Skipped(name, error.message, damaged=True))
        return found, skipped

    def worker(self) -> WorkerStatus | None:
        """The Spark worker, if heavy work goes to one."""
        compute = self._runtime.compute
        return compute.status() if isinstance(compute, WorkerCompute) else None

    # -- tiers

    def tiers(self) -> list[Tier]:
        """The lake's tiers, and those that only tables declare or turn on, as the last cycle saw them."""
        found = {tier.name: tier for tier in declared(self._runtime.settings.tiers)}
        if self._own_tiers is None:
            self._own_tiers = {}
            for name in self._lake.tables():
                try:
                    self._work_of(name, 0)
                except LithifyError as error:
                    logger.debug("the tiers of %s are left out: %s", name, error)
        for name, tiers in list(self._own_tiers.items()):
            for tier in tiers:
                if tier.enabled and not (tier.name in found and found[tier.name].enabled):
                    try:
                        cron_trigger(tier.cron, f"tier {tier.name} of table {name}")
                        found[tier.name] = tier
                    except InvalidRequest as error:
                        logger.warning("%s", error)
        return list(found.values())

    def _work_of(self, name: str, lease: int) -> TableMaintenance:
        handles = internals(self._lake).open_tables.background(parse_table_name(name))
        if self._own_tiers is not None:
            self._own_tiers[name] = policy_for(self._runtime.settings, handles.changes.schema.settings, name).tiers
        return TableMaintenance(handles, Reader(handles), lease)

    def _check_tier(self, name: str) -> None:
        if name != PACK:
            tier = tier_named(self.tiers(), name, besides=(PACK,))
            if not tier.enabled:
                raise tier_is_off(name)


def maintenance_of(lake: Lake) -> Maintenance:
    """Of this lake in this process: made when it is first asked for."""
    inside = internals(lake)
    with inside.making:
        inside.open_tables.check_open()
        if inside.maintenance is None:
            inside.maintenance = Maintenance(lake)
        return inside.maintenance


# -- what an operator sees


@dataclass(frozen=True)
class Candidate(Shown):
    """One job that a cycle would run now."""

    table: OfTable
    kind: Annotated[str, "fold, minor or compact.", Example("compact")]
    tier: Annotated[str | None, "The tier of a compaction, or pack.", Example("hourly")]
    partition: Annotated[Mapping[str, str | None], "The partition of a compaction."]
    files: Annotated[Count, "Files that it would take."]
    bytes_in: Annotated[Bytes, "Their bytes."]
    bytes_out: Annotated[Bytes, "Bytes that it would write."]
    why: Annotated[str, "What calls for it."]
    gain: Annotated[str, "What it would gain."]
    paths: Annotated[tuple[str, ...], "Its files, below base or changes; at most 500 are named."] = ()
    window_s: Annotated[Seconds | None, "Rows are divided by windows of the time column this long."] = None
    batch: Annotated[Count, "Which of the batches of its partition and tier this is, from 1."] = 1
    batches: Annotated[Count, "How many there are."] = 1


def _candidates(plans: Sequence[Plan]) -> list[Candidate]:
    keys = [
        (plan.kind, plan.origin, sorted(plan.partition.items())) if isinstance(plan, CompactPlan) else plan.kind
        for plan in plans
    ]
    return [
        _candidate(plan, keys[: number + 1].count(keys[number]), keys.count(keys[number]))
        for number, plan in enumerate(plans)
    ]


def _candidate(plan: Plan, batch: int, batches: int) -> Candidate:
    tier, partition, window_us = None, dict[str, str | None](), None
    if isinstance(plan, CompactPlan):
        tier, partition, window_us = plan.origin, dict(plan.partition), plan.window_us
    return Candidate(
        plan.table,
        plan.kind,
        tier,
        partition,
        len(plan.files),
        plan.bytes_in,
        plan.bytes_out,
        plan.why,
        plan.gain,
        tuple(file.path for file in plan.files[:PATHS_MAX]),
        None if window_us is None else window_us / 1_000_000,
        batch,
        batches,
    )


def chosen_tables(lake: Lake, table: str | None = None, namespace: str | None = None) -> list[str]:
    """All tables, those of a namespace, or one; raises `NotFound` if there are none of that name."""
    present = lake.tables()
    if table is not None:
        named = parse_table_name(table)
        table = str(named)
        if table not in present:
            raise not_found(named)
        if namespace is not None and namespace != table.partition(".")[0]:
            raise InvalidRequest(f"table {table} is not in namespace {namespace}: give one of them")
        return [table]
    if namespace is None:
        return present
    found = [name for name in present if name.partition(".")[0] == namespace]
    if not found:
        raise no_namespace(namespace)
    return found


def no_namespace(namespace: str) -> NotFound:
    return NotFound(f"there is no table in a namespace {namespace!r}: `lithify tables` lists what does exist")


def why_idle(table: Table, tiers: TierNames) -> list[str]:
    """Why none of these tiers ever has work on this table; nothing if one of them may have some."""
    runtime, definition = internals(table).runtime, table.definition
    policy = policy_for(runtime.settings, definition.settings, table.name)
    found = [idle_tier(definition, policy, tier) for tier in tier_names(tiers)]
    return list(dict.fromkeys(why for why in found if why)) if all(found) else []


def ended_jobs(lake: Lake, limit: int | None = None, table: str | None = None) -> list[dict[str, Any]]:
    """Newest first."""
    check_count("limit", limit)
    found = jobs.job_history(internals(lake).runtime, limit if table is None else None)
    return [entry for entry in found if table is None or entry.get("table") == table][:limit]


def running_cycle(lake: Lake) -> dict[str, Any] | None:
    lease = leases.current(internals(lake).runtime, LEASE)
    if lease is None:
        return None
    return {
        "cycle": lease.id,
        "what": lease.what,
        "owner": lease.owner.label,
        "since": leases.shown_time(lease.started_ms),
        "started_ms": lease.started_ms,
    }


def past_cycles(lake: Lake, limit: int | None = None) -> list[dict[str, Any]]:
    """Newest first."""
    return cycle_history(internals(lake).runtime, limit)


@dataclass(frozen=True)
class TableState(DiskUse, TableStats):
    """State and debt of one table."""

    error: Annotated[str | None, "Why the table cannot be looked at; then all else is empty."] = None
    origins: Annotated[Mapping[str, FileCount], "Files of base by what wrote them, tiers among it."] = field(
        default_factory=dict
    )
    read_overhead: Annotated[float, "Expected time of a read, relative to a folded table."] = 1.0
    debt: Annotated[FileCount, "Files that would be compacted."] = field(default_factory=FileCount)
    due: Annotated[tuple[str, ...], "What is due, and why."] = ()
    last_job: Annotated[EndedJob | None, "Its last job that ended."] = None
    waiting: Annotated[tuple[Waiting, ...], "Its work that failed and waits to be tried again."] = ()


def table_maintenance(lake: Lake, name: str) -> dict[str, Any]:
    """A table's numbers, what is due on it, its last job, and what failed and waits to be tried again."""
    table = lake.table(name)
    handles = internals(table).handles
    work = TableMaintenance(handles, Reader(handles))
    debt, disk = asdict(work.debt(internals(lake).runtime.now_ms())), asdict(work.disk_use())
    last = next(iter(past_cycles(lake, 1)), {})
    waiting = [entry for entry in last.get("waiting") or () if entry.get("table") == name]
    return {
        **asdict(table.stats()),
        "origins": debt["origins"],
        "read_overhead": round(debt["read_overhead"], 3),
        **disk,
        "debt": debt["waiting"],
        "due": list(debt["due"]),
        "last_job": next(iter(ended_jobs(lake, 1, name)), None),
        "waiting": waiting,
    }
