"""What the service did over the last hours: a bounded ring of samples in memory, one every few seconds.

A sample is read from what the process holds anyway; no log and no file is looked at. What only goes up (queries, rows
written, bytes rewritten) is told as what it came to per second between two samples, so a chart needs no arithmetic. The
ring begins empty with the process: who wants years scrapes /metrics.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from lithify.lake.internals import internals
from lithify.lake.lake import Lake

INTERVAL_S = 10.0
SAMPLES_MAX = 6 * 360  # six hours
Unit = Literal["rows", "files", "bytes", "seconds", "per second", "rows per second", "bytes per second"]


@dataclass(frozen=True)
class Sample:
    """`queries` and what follows it only go up."""

    time_s: float
    tables_open: int
    pending_rows: int
    pending_files: int
    base_files: int
    base_bytes: int
    cache_bytes: int
    queries: int
    query_seconds: float
    rows_written: int
    bytes_rewritten: int


@dataclass(frozen=True)
class Line:
    """One thing over time; None where there was nothing to tell."""

    name: str
    what: str
    unit: Unit
    values: list[float | None]


def sampled(lake: Lake, time_s: float) -> Sample:
    """Of open tables, as this process saw them last."""
    runtime, seen = internals(lake).runtime, internals(lake).open_tables.last_seen()
    done = runtime.activity.totals()
    rewritten = sum(
        sample.value
        for metric in runtime.counters.job_bytes.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["direction"] == "out"
    )
    return Sample(
        time_s,
        tables_open=len(seen),
        pending_rows=sum(table.pending_rows for table in seen),
        pending_files=sum(table.pending_files for table in seen),
        base_files=sum(table.base_files for table in seen),
        base_bytes=sum(table.base_bytes for table in seen),
        cache_bytes=lake.cache.stats().bytes,
        queries=sum(done.answered.values()),
        query_seconds=sum(done.answer_seconds.values()),
        rows_written=done.rows_written,
        bytes_rewritten=int(rewritten),
    )


@dataclass
class Series:
    clock: Callable[[], float] = time.time
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX), repr=False)

    def take(self, lake: Lake) -> None:
        self._samples.append(sampled(lake, self.clock()))

    def since(self, time_s: float) -> list[Sample]:
        return [sample for sample in list(self._samples) if sample.time_s > time_s]


def lines_of(samples: Sequence[Sample]) -> list[Line]:
    def level(name: str, what: str, unit: Unit) -> Line:
        # With no table open nothing is known, which is not the same as nothing there.
        return Line(name, what, unit, [getattr(sample, name) if sample.tables_open else None for sample in samples])

    def rate(name: str, of: str, what: str, unit: Unit) -> Line:
        return Line(name, what, unit, [None, *_per(samples, of, lambda a, b: b.time_s - a.time_s)][: len(samples)])

    took = [None, *_per(samples, "query_seconds", lambda a, b: b.queries - a.queries)][: len(samples)]
    return [
        level("pending_rows", "Rows of changes that are not folded yet.", "rows"),
        level("pending_files", "Files of changes that are not folded yet.", "files"),
        level("base_files", "Files of base.", "files"),
        level("base_bytes", "Bytes of base.", "bytes"),
        rate("rows_written_s", "rows_written", "Rows written or deleted.", "rows per second"),
        rate("bytes_rewritten_s", "bytes_rewritten", "Bytes that maintenance wrote.", "bytes per second"),
        rate("queries_s", "queries", "Queries that were answered.", "per second"),
        Line("query_seconds", "How long a query took on average; null where there was none.", "seconds", took),
        level("cache_bytes", "Memory that the hot cache takes.", "bytes"),
    ]


def _per(samples: Sequence[Sample], name: str, by: Callable[[Sample, Sample], float]) -> Iterable[float | None]:
    for before, after in pairwise(samples):
        divisor = by(before, after)
        yield (getattr(after, name) - getattr(before, name)) / divisor if divisor > 0 else None
