"""What a process did for its users, in plain numbers: rows written, queries answered, and which limits stopped some.

Counting costs a lock and an addition, and needs no library, because it happens on the path of every write and query.
Whoever publishes metrics reads the sums. Names of sources and limits are few, so the sums stay few.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lithify.errors import Cancelled, LimitExceeded
from lithify.metrics.latencies import bucket_of


@dataclass(frozen=True)
class ActivityTotals:
    """Since the process opened the lake. `answered` and `answer_seconds`: by source; `stopped`: by limit;
    `answer_times`: by length (`latencies.py`).
    """

    commits: int
    writes: int
    rows_written: int
    answered: Mapping[str, int]
    answer_seconds: Mapping[str, float]
    rows_answered: int
    cut: int
    stopped: Mapping[str, int]
    failed: int
    answer_times: Mapping[int, int] = field(default_factory=dict)


class Activity:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits = self._writes = self._rows_written = 0
        self._answered: Counter[str] = Counter()
        self._answer_seconds: dict[str, float] = {}
        self._stopped: Counter[str] = Counter()
        self._answer_times: Counter[int] = Counter()
        self._rows_answered = self._cut = self._failed = 0

    def committed(self, writes: int, rows: int) -> None:
        """One commit, in which so many writes shared."""
        with self._lock:
            self._commits += 1
            self._writes += writes
            self._rows_written += rows

    def answered(self, source: str, rows: int, seconds: float, *, cut: bool) -> None:
        with self._lock:
            self._answered[source] += 1
            self._answer_seconds[source] = self._answer_seconds.get(source, 0.0) + seconds
            self._answer_times[bucket_of(seconds)] += 1
            self._rows_answered += rows
            self._cut += cut

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Around a query: one that fails is counted by the limit that stopped it ("cancelled" if somebody did)."""
        try:
            yield
        except (LimitExceeded, Cancelled) as error:
            limit = "cancelled" if isinstance(error, Cancelled) else str(error.details.get("limit", "other"))
            with self._lock:
                self._stopped[limit] += 1
            raise
        except Exception:
            with self._lock:
                self._failed += 1
            raise

    def totals(self) -> ActivityTotals:
        with self._lock:
            return ActivityTotals(
                self._commits,
                self._writes,
                self._rows_written,
                dict(self._answered),
                dict(self._answer_seconds),
                self._rows_answered,
                self._cut,
                dict(self._stopped),
                self._failed,
                dict(self._answer_times),
            )
