"""What a process that serves a lake can tell of itself without looking at a log: values it holds in memory anyway.

So they may be asked for every few seconds, however many tables the lake has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lithify.compute.worker import WorkerCompute, WorkerStatus
from lithify.core.results import CacheStats
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.maintenance.disk_use import DiskUse
from lithify.maintenance.disk_watch import DiskWatches
from lithify.metrics.activity import ActivityTotals

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True)
class Pending:
    """Changes of an open table that are not folded yet, as this process saw it last."""

    table: str
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Disk:
    """What the open tables take beside what is live, together, and the most that upkeep writes for one of them."""

    removed_files: int
    removed_bytes: int
    reclaimable_bytes: int
    write_amplification: float


@dataclass(frozen=True)
class Measures:
    """`pending`: of the open tables, most rows first. `worker`: None where Spark is somebody else's."""

    activity: ActivityTotals
    pending: tuple[Pending, ...]
    worker: WorkerStatus | None
    cache: CacheStats
    queries: dict[str, int]
    disk: Disk


def measures(lake: Lake) -> Measures:
    runtime = internals(lake).runtime
    compute = runtime.compute
    seen = internals(lake).open_tables.last_seen()
    pending = [Pending(s.table, s.pending_rows, len(s.changes), s.pending_bytes) for s in seen]
    queries = {"running": 0, "waiting": 0}
    for query in lake.queries():
        queries[query.state] += 1
    return Measures(
        runtime.activity.totals(),
        tuple(sorted(pending, key=lambda table: (-table.rows, table.table))),
        compute.status() if isinstance(compute, WorkerCompute) else None,
        lake.cache.stats(),
        queries,
        _disk([runtime.shared(DiskWatches).last(snapshot.table_id) for snapshot in seen]),
    )


def _disk(uses: Sequence[DiskUse | None]) -> Disk:
    found = [use for use in uses if use is not None]
    return Disk(
        sum(use.removed_files for use in found),
        sum(use.removed_bytes for use in found),
        sum(use.reclaimable_bytes for use in found),
        max((use.write_amplification or 0.0 for use in found), default=0.0),
    )


def background_registry(lake: Lake) -> CollectorRegistry:
    """Counters of background work and of indexes, which the engine keeps itself."""
    return internals(lake).runtime.counters.registry
