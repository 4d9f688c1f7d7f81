"""What Prometheus reads of a lake in this process: queries, writes, cache, maintenance, pipelines, and the process.

Everything is read at a scrape from what the process holds in memory: no log is looked at. Tables and pipelines are a
label in few places only, and there at most `TABLES_MAX` of them; of pending changes the rest is summed up as "other".
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lithify.compute.worker import WorkerCompute, WorkerStatus
from lithify.core.results import CacheStats, TableStats
from lithify.core.snapshot import Snapshot
from lithify.files.addresses import is_remote
from lithify.files.disk_space import disk_space
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.maintenance.disk_use import DiskUse
from lithify.maintenance.disk_watch import DiskWatches
from lithify.metrics.activity import ActivityTotals
from lithify.pipelines.run_tally import RunTally, Tallied

TABLES_MAX = 50
OTHER = "other"


def lake_registry(lake: Lake, version: str) -> CollectorRegistry:
    """What this process does with a lake, and what it takes of the machine."""
    registry = CollectorRegistry()
    registry.register(_Collected(lake, version))
    registry.register(Joined(internals(lake).runtime.counters.registry))
    ProcessCollector(registry=registry)
    return registry


class Joined(Collector):
    """Another registry's metrics among ours, without the times at which its series began: one more for each of them,
    and of use to nobody here.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    def describe(self) -> Iterable[Metric]:
        return ()


class _Collected(Collector):
    """What is only known when somebody asks: values that the process holds in memory anyway."""

    def __init__(self, lake: Lake, version: str) -> None:
        self._lake, self._version = lake, version

    def collect(self) -> Iterator[Metric]:
        runtime, seen = internals(self._lake).runtime, internals(self._lake).open_tables.last_seen()
        yield from _activity(runtime.activity.totals())
        yield _gauge("lithify_build_info", "1, with the version of Lithify.", {self._version: 1}, "version")
        yield from _free(runtime.root)
        queries: dict[str, float] = {"running": 0, "waiting": 0}
        queries |= Tally(query.state for query in self._lake.queries())
        yield _gauge("lithify_queries_under_way", "Queries under way.", queries, "state")
        yield from _pending(seen)
        yield from _oldest(seen, runtime.now_ms())
        yield from _disk([runtime.shared(DiskWatches).last(snapshot.table_id) for snapshot in seen])
        if isinstance(runtime.compute, WorkerCompute):  # else Spark is somebody else's
            yield from _worker(runtime.compute.status())
        yield from _cache(self._lake.cache.stats())
        yield from _pipelines(runtime.shared(RunTally).seen())

    def describe(self) -> Iterable[Metric]:
        return ()


def _activity(done: ActivityTotals) -> Iterator[Metric]:
    yield _counter("lithify_write_commits", "Commits of writes; several writes may share one.", done.commits)
    yield _counter("lithify_writes", "Writes that were acknowledged.", done.writes)
    yield _counter("lithify_written_rows", "Rows written or deleted by them.", done.rows_written)
    yield _counter("lithify_queries", "Queries answered, by where from.", done.answered, "source")
    yield _counter("lithify_query_seconds", "Time that they took.", done.answer_seconds, "source")
    yield _counter("lithify_query_rows", "Rows in their answers.", done.rows_answered)
    yield _counter("lithify_queries_cut", "Answers that were cut at the limit of rows.", done.cut)
    yield _counter("lithify_queries_stopped", "Queries that met a limit, by which.", done.stopped, "limit")
    yield _counter("lithify_queries_failed", "Queries that were refused or failed otherwise.", done.failed)


def _pending(seen: Sequence[Snapshot | TableStats]) -> Iterator[Metric]:
    """Those with the most rows by name, the others as one."""
    ordered = sorted(seen, key=lambda table: (-table.pending_rows, table.table))
    shown, rest = ordered[:TABLES_MAX], ordered[TABLES_MAX:]
    for what in ("rows", "files", "bytes"):
        help_text = f"{what.capitalize()} of changes that are not folded yet, of open tables."
        values = {table.table: getattr(table, f"pending_{what}") for table in shown}
        if rest:
            values[OTHER] = sum(getattr(table, f"pending_{what}") for table in rest)
        yield _gauge(f"lithify_pending_{what}", help_text, values, "table")
    yield _gauge("lithify_tables_open", "Tables that are open in this process.", len(seen))


def _oldest(seen: Sequence[Snapshot], now_ms: int) -> Iterator[Metric]:
    """How far behind base is: the tables where it is the most by name, the others as one."""
    ages = {s.table: (now_ms - min(f.time_ms for f in s.changes)) / 1000 for s in seen if s.changes}
    ordered = sorted(ages, key=lambda table: (-ages[table], table))
    shown = {table: max(0.0, ages[table]) for table in ordered[:TABLES_MAX]}
    if rest := ordered[TABLES_MAX:]:
        shown[OTHER] = max(0.0, ages[rest[0]])
    yield _gauge("lithify_pending_oldest_seconds", "Age of the oldest change that is not folded yet.", shown, "table")
    live = sum(snapshot.base_bytes + snapshot.pending_bytes for snapshot in seen)
    yield _gauge("lithify_live_bytes", "Bytes of the files that open tables are made of now.", live)


def _free(root: PurePath) -> Iterator[Metric]:
    if is_remote(root) or (space := disk_space(root)) is None:
        return
    yield _gauge("lithify_disk_bytes", "Size of the disk that the lake lies on.", space.bytes)
    yield _gauge("lithify_disk_free_bytes", "What is free on it.", space.free_bytes)


def _disk(uses: Sequence[DiskUse | None]) -> Iterator[Metric]:
    """As maintenance saw it last: nothing is listed for it."""
    found = [use for use in uses if use is not None]
    removed = "Files of open tables that only versions of the past need."
    yield _gauge("lithify_removed_files", removed, sum(use.removed_files for use in found))
    yield _gauge("lithify_removed_bytes", "Bytes in them.", sum(use.removed_bytes for use in found))
    reclaimable = sum(use.reclaimable_bytes for use in found)
    yield _gauge("lithify_reclaimable_bytes", "Those of them that the next vacuum takes.", reclaimable)
    most = max((use.write_amplification or 0.0 for use in found), default=0.0)
    amplified = "Bytes that maintenance writes per byte of changes, of the open table where it is the most."
    yield _gauge("lithify_write_amplification", amplified, most)


def _worker(worker: WorkerStatus) -> Iterator[Metric]:
    yield _gauge("lithify_worker_alive", "1 while the Spark worker runs.", int(worker.pid is not None))
    yield _gauge("lithify_worker_memory_bytes", "Memory of the Spark worker's processes.", worker.rss_bytes)
    yield _gauge("lithify_worker_orders", "Jobs that the Spark worker runs.", len(worker.orders))
    yield _counter("lithify_worker_starts", "Times that the Spark worker was started.", worker.starts)
    yield _counter("lithify_worker_deaths", "Times that the Spark worker died.", worker.deaths)


def _cache(cache: CacheStats) -> Iterator[Metric]:
    yield _gauge("lithify_cache_bytes_max", "Memory that the hot cache may take.", cache.bytes_max)
    yield _gauge("lithify_cache_bytes", "Memory that the hot cache takes.", cache.bytes)
    yield _gauge("lithify_cache_tables", "Tables in the hot cache.", len(cache.tables))
    yield _gauge("lithify_cache_pinned", "Those of them that are pinned.", sum(t.pinned for t in cache.tables))
    yield _counter("lithify_cache_hits", "Tables of queries that were read from memory.", cache.hits)
    yield _counter("lithify_cache_misses", "Tables of queries that were read from files.", cache.misses)
    yield _counter("lithify_cache_loads", "Times that a table was loaded.", cache.loads)
    yield _counter("lithify_cache_refreshes", "Times that a loaded table took changes in.", cache.refreshes)
    yield _counter("lithify_cache_evictions", "Times that a table was given up.", cache.evictions)
    yield _gauge("lithify_answers_bytes", "Memory that kept answers take.", cache.answers.bytes)
    yield _gauge("lithify_answers", "Answers that are kept.", cache.answers.count)
    yield _counter("lithify_answers_hits", "Queries answered by a kept answer.", cache.answers.hits)
    yield _counter("lithify_answers_misses", "Queries that no kept answer fitted.", cache.answers.misses)


def _pipelines(known: Mapping[str, Tallied]) -> Iterator[Metric]:
    """Those that are the worst off: a sum of the others would say nothing."""
    worst = dict(sorted(known.items(), key=lambda each: (-each[1].failures, -(each[1].lag or 0), each[0]))[:TABLES_MAX])
    lags = {name: each.lag for name, each in worst.items() if each.lag is not None}
    yield _gauge("lithify_pipeline_lag_seqs", "Seqs that a pipeline is behind its sources.", lags, "pipeline")
    failures = {name: each.failures for name, each in worst.items()}
    in_a_row = "How often in a row a pipeline or stream failed."
    yield _gauge("lithify_pipeline_failures", in_a_row, failures, "pipeline")
    succeeded = {name: each.succeeded_ms / 1000 for name, each in worst.items() if each.succeeded_ms is not None}
    ended_well = "When a run of a pipeline or stream last ended well."
    yield _gauge("lithify_pipeline_succeeded_seconds", ended_well, succeeded, "pipeline")


def _metric(
    family: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    help_text: str,
    value: float | Mapping[str, float],
    label: str | None = None,
) -> Metric:
    """With a `label`, a series for each of its values."""
    found = family(name, help_text, labels=[label] if label is not None else [])
    for key, each in value.items() if isinstance(value, Mapping) else [(None, value)]:
        found.add_metric([key] if key is not None else [], each)
    return found


_counter, _gauge = partial(_metric, CounterMetricFamily), partial(_metric, GaugeMetricFamily)
