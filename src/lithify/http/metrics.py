"""What Prometheus reads at /metrics: requests, queries, writes, cache, background work, and this process.

Requests are counted as they end, by the template of their route and never by their path, so that no caller can make
series. Everything else is read at a scrape from what the process holds in memory: no log is looked at. Tables are a
label in one place only, for pending changes, and there at most `TABLES_MAX` of them; the rest is summed up as "other".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lithify.core.results import CacheStats
from lithify.http.logs import template
from lithify.http.measures import Disk, Measures, Pending, background_registry, measures
from lithify.lake.lake import Lake

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TABLES_MAX = 50
OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 300)


class Metrics:
    """One per service, with a registry of its own."""

    def __init__(self, lake: Lake) -> None:
        self.registry, counted = CollectorRegistry(), CollectorRegistry()
        self.requests = Counter(
            "lithify_http_requests",
            "Requests by template of the route, method and status.",
            ["route", "method", "status"],
            registry=counted,
        )
        self.seconds = Histogram(
            "lithify_http_request_seconds",
            "Time until a request was answered to the end.",
            ["route", "method"],
            buckets=_SECONDS,
            registry=counted,
        )
        self.under_way = Gauge("lithify_http_requests_under_way", "Requests being answered.", registry=counted)
        self.registry.register(_Collected(lambda: measures(lake)))
        self.registry.register(_Joined(lambda: background_registry(lake)))
        self.registry.register(_Joined(lambda: counted))
        ProcessCollector(registry=self.registry)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        method = method if method in _METHODS else OTHER
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route, method).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class MeasureRequests:
    """ASGI middleware, around all others: what they refuse is counted too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        started_s = time.perf_counter()
        self._metrics.under_way.inc()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.under_way.dec()
            self._metrics.observe(template(scope), scope["method"], status, time.perf_counter() - started_s)


class _Joined(Collector):
    """Another registry's metrics among ours, without the times at which its series began: one more for each of them,
    and of use to nobody here.
    """

    def __init__(self, registry: Callable[[], CollectorRegistry]) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    def describe(self) -> Iterable[Metric]:
        return ()


class _Collected(Collector):
    """What is only known when somebody asks."""

    def __init__(self, look: Callable[[], Measures]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        found = self._look()
        yield from _activity(found)
        yield from _pending(found.pending)
        yield from _disk(found.disk)
        yield from _worker(found)
        yield from _cache(found.cache)

    def describe(self) -> Iterable[Metric]:
        return ()


def _activity(found: Measures) -> Iterator[Metric]:
    done = found.activity
    yield _counter("lithify_write_commits", "Commits of writes; several writes may share one.", done.commits)
    yield _counter("lithify_writes", "Writes that were acknowledged.", done.writes)
    yield _counter("lithify_written_rows", "Rows written or deleted by them.", done.rows_written)
    yield _counters("lithify_queries", "Queries answered, by where from.", "source", done.answered)
    yield _counters("lithify_query_seconds", "Time that they took.", "source", done.answer_seconds)
    yield _counter("lithify_query_rows", "Rows in their answers.", done.rows_answered)
    yield _counter("lithify_queries_cut", "Answers that were cut at the limit of rows.", done.cut)
    yield _counters("lithify_queries_stopped", "Queries that met a limit, by which.", "limit", done.stopped)
    yield _counter("lithify_queries_failed", "Queries that were refused or failed otherwise.", done.failed)
    yield _gauges("lithify_queries_under_way", "Queries under way.", "state", found.queries)


def _pending(tables: Sequence[Pending]) -> Iterator[Metric]:
    """Those with the most rows by name, the others as one."""
    shown = list(tables[:TABLES_MAX])
    if rest := tables[TABLES_MAX:]:
        sums = (sum(t.rows for t in rest), sum(t.files for t in rest), sum(t.bytes for t in rest))
        shown.append(Pending(OTHER, *sums))
    for what in ("rows", "files", "bytes"):
        help_text = f"{what.capitalize()} of changes that are not folded yet, of open tables."
        values = {table.table: getattr(table, what) for table in shown}
        yield _gauges(f"lithify_pending_{what}", help_text, "table", values)
    yield _gauge("lithify_tables_open", "Tables that are open in this process.", len(tables))


def _disk(disk: Disk) -> Iterator[Metric]:
    """As upkeep saw it last: nothing is listed for it."""
    yield _gauge(
        "lithify_removed_files", "Files of open tables that only versions of the past need.", disk.removed_files
    )
    yield _gauge("lithify_removed_bytes", "Bytes in them.", disk.removed_bytes)
    yield _gauge("lithify_reclaimable_bytes", "Those of them that the next vacuum takes.", disk.reclaimable_bytes)
    yield _gauge(
        "lithify_write_amplification",
        "Bytes that upkeep writes per byte of changes, of the open table where it is the most.",
        disk.write_amplification,
    )


def _worker(found: Measures) -> Iterator[Metric]:
    worker = found.worker
    if worker is None:
        return
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


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)


def _counters(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _gauges(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
