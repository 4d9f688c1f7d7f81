"""What the service did over the last hours: a bounded ring of points in memory, one every few seconds.

A point is made of what the process holds anyway; no log of a table is looked at. What only goes up (queries, rows
written, bytes rewritten) is told as what it came to per second since the point before: a chart needs no arithmetic.
So that the lines outlive a restart, a coarser point goes to a bounded journal of the lake while anything happens: once
a minute, in a bucket every ten. Who wants years scrapes /metrics.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lithify.errors import LithifyError
from lithify.jobs.past_jobs import Journal
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.metrics.latencies import quantile

logger = logging.getLogger(__name__)

INTERVAL_S = 10.0
SAMPLES_MAX = 6 * 360  # six hours
JOURNAL_S, JOURNAL_REMOTE_S = 60.0, 600.0
PAST_MAX = 7 * 24 * 60  # a week of minutes
JOURNAL_BYTES_MAX = 4 << 20
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
    query_times: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """What holds at a time, or held since the point before. A name that it lacks was not told then."""

    time_s: float
    values: Mapping[str, float | None]


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
        query_times=done.answer_times,
    )


def point_of(now: Sample, before: Sample | None) -> Point:
    return Point(now.time_s, {name: value(now, before) for name, _, _, value in LINES})


def lines_of(points: Sequence[Point]) -> list[Line]:
    return [Line(name, what, unit, [point.values.get(name) for point in points]) for name, what, unit, _ in LINES]


Value = Callable[[Sample, Sample | None], float | None]


def _level(name: str) -> Value:
    """With no table open nothing is known, which is not the same as nothing there."""
    return lambda now, _: getattr(now, name) if now.tables_open else None


def _rate(of: str, by: str = "time_s") -> Value:
    def value(now: Sample, before: Sample | None) -> float | None:
        divisor = 0 if before is None else getattr(now, by) - getattr(before, by)
        return (getattr(now, of) - getattr(before, of)) / divisor if divisor > 0 else None

    return value


def _time_of(share: float) -> Value:
    return lambda now, before: None if before is None else quantile(share, now.query_times, before.query_times)


LINES: tuple[tuple[str, str, Unit, Value], ...] = (
    ("pending_rows", "Rows of changes that are not folded yet.", "rows", _level("pending_rows")),
    ("pending_files", "Files of changes that are not folded yet.", "files", _level("pending_files")),
    ("base_files", "Files of base.", "files", _level("base_files")),
    ("base_bytes", "Bytes of base.", "bytes", _level("base_bytes")),
    ("rows_written_s", "Rows written or deleted.", "rows per second", _rate("rows_written")),
    ("bytes_rewritten_s", "Bytes that maintenance wrote.", "bytes per second", _rate("bytes_rewritten")),
    ("queries_s", "Queries that were answered.", "per second", _rate("queries")),
    (
        "query_seconds",
        "How long a query took on average; null where there was none.",
        "seconds",
        _rate("query_seconds", by="queries"),
    ),
    ("query_p50_s", "Half of the queries took no longer; null where there was none.", "seconds", _time_of(0.5)),
    ("query_p99_s", "Of 100 queries, 99 took no longer; null where there was none.", "seconds", _time_of(0.99)),
    ("cache_bytes", "Memory that the hot cache takes.", "bytes", _level("cache_bytes")),
)


class Series:
    """`take` is called by one thread, `since` by any."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._points: deque[Point] = deque(maxlen=SAMPLES_MAX)
        self._past: deque[Point] = deque(maxlen=PAST_MAX)
        self._last: Sample | None = None
        self._noted: Sample | None = None
        self._journal: Journal | None = None

    def take(self, lake: Lake) -> None:
        now = sampled(lake, self.clock())
        if self._journal is None:
            self._restore(lake, now)
        self._points.append(point_of(now, self._last))
        self._last = now
        self._note(lake, now)

    def since(self, time_s: float) -> list[Point]:
        """Of the hours before the ring begins, the coarser points."""
        points = list(self._points)
        begins_s = points[0].time_s if points else float("inf")
        past = [point for point in list(self._past) if point.time_s < begins_s]
        return [point for point in (*past, *points) if point.time_s > time_s]

    def _restore(self, lake: Lake, now: Sample) -> None:
        """What earlier processes have noted, and this one from now on."""
        runtime = internals(lake).runtime
        self._journal = Journal(runtime.store, runtime.control / "history" / "series.jsonl", JOURNAL_BYTES_MAX)
        self._noted = now
        found = (_noted_point(record) for record in reversed(self._journal.read(PAST_MAX)))
        self._past.extend(point for point in found if point is not None and point.time_s < now.time_s)

    def _note(self, lake: Lake, now: Sample) -> None:
        before, every_s = self._noted, JOURNAL_REMOTE_S if internals(lake).runtime.store.remote else JOURNAL_S
        if self._journal is None or before is None or now.time_s - before.time_s < every_s:
            return
        self._noted = now
        if now == replace(before, time_s=now.time_s):
            return  # nothing has happened
        point = point_of(now, before)
        self._past.append(point)
        try:
            self._journal.append({"time_s": round(point.time_s, 3), "values": dict(point.values)})
        except LithifyError as error:
            logger.warning("what was done is not remembered beyond this process: %s", error)


def _noted_point(record: Mapping[str, Any]) -> Point | None:
    """None: another version wrote it otherwise."""
    time_s, values = record.get("time_s"), record.get("values")
    if not isinstance(time_s, int | float) or not isinstance(values, dict):
        return None
    known = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    return Point(float(time_s), known)
