"""What a process that serves a lake can tell of itself without looking at a log: values it holds in memory anyway.

So they may be asked for every few seconds, however many tables the lake has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lithify.app.cache import CacheStats
from lithify.app.lake import Lake
from lithify.engine.activity import ActivityTotals
from lithify.engine.worker import WorkerCompute, WorkerStatus

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
class Measures:
    """`pending`: of the open tables, most rows first. `worker`: None where Spark is somebody else's."""

    activity: ActivityTotals
    pending: tuple[Pending, ...]
    worker: WorkerStatus | None
    cache: CacheStats
    queries: dict[str, int]


def measures(lake: Lake) -> Measures:
    runtime = lake._runtime
    compute = runtime.compute
    seen = lake._loaded.last_seen()
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
    )


def background_registry(lake: Lake) -> CollectorRegistry:
    """Counters of background work and of indexes, which the engine keeps itself."""
    return lake._runtime.counters.registry
