"""What a maintenance cycle did: values only, as they are shown, logged and kept in the history of cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lithify.core.html import Shown
from lithify.maintenance.backoff import Waiting

DONE, FAILED, REPLANNED, CANCELLED = "done", "failed", "replanned", "cancelled"
# A cycle over thousands of tables must still fit a line of the history.
LISTED_MAX = 100


@dataclass(frozen=True)
class JobOutcome:
    """`outcome`: done, failed, replanned (its inputs changed under it: the next cycle looks again) or cancelled."""

    table: str
    kind: str
    tier: str | None
    partition: str
    why: str
    outcome: str
    seconds: float
    bytes_in: int = 0
    bytes_out: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class Skipped:
    """What was not looked at, or not tried. `damaged`: the table, or its options, cannot be used; else it waits."""

    table: str
    why: str
    damaged: bool = False


@dataclass(frozen=True)
class CycleReport(Shown):
    """`stopped` says why a cycle ended early; `not_started` counts the jobs that it left to the next."""

    id: str
    what: str
    started_ms: int
    seconds: float
    jobs: tuple[JobOutcome, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    recovered: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    problems: tuple[str, ...] = ()
    stopped: str | None = None
    not_started: int = 0
    owner: str = ""

    def with_outcome(self, outcome: str) -> tuple[JobOutcome, ...]:
        return tuple(job for job in self.jobs if job.outcome == outcome)

    @property
    def done(self) -> int:
        return len(self.with_outcome(DONE))

    @property
    def failures(self) -> tuple[JobOutcome, ...]:
        return self.with_outcome(FAILED)

    @property
    def replanned(self) -> int:
        return len(self.with_outcome(REPLANNED))

    @property
    def bytes_in(self) -> int:
        return sum(job.bytes_in for job in self.jobs)

    @property
    def bytes_out(self) -> int:
        return sum(job.bytes_out for job in self.jobs)

    @property
    def healthy(self) -> bool:
        """Nothing needs a person's attention."""
        return not self.failures and not self.problems and not any(skipped.damaged for skipped in self.skipped)

    def document(self) -> dict[str, Any]:
        """Counts are complete; lists are cut to what fits, failures first."""
        jobs = sorted(self.jobs, key=lambda job: job.outcome != FAILED)
        return {
            "cycle": self.id,
            "what": self.what,
            "owner": self.owner,
            "started_ms": self.started_ms,
            "seconds": round(self.seconds, 3),
            "done": self.done,
            "failed": len(self.failures),
            "replanned": self.replanned,
            "cancelled": len(self.with_outcome(CANCELLED)),
            "not_started": self.not_started,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "stopped": self.stopped,
            "jobs": [asdict(job) for job in jobs[:LISTED_MAX]],
            "skipped": [asdict(skipped) for skipped in self.skipped[:LISTED_MAX]],
            "recovered": list(self.recovered[:LISTED_MAX]),
            "problems": list(self.problems[:LISTED_MAX]),
            "waiting": [entry.document() for entry in self.waiting],
        }


def job_totals(ended: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By tier or kind, what jobs that ended came to."""
    totals: dict[str, dict[str, int]] = {}
    for entry in ended:
        total = totals.setdefault(
            str(entry.get("kind")), {"done": 0, "recovered": 0, "files_in": 0, "files_out": 0, "bytes_saved": 0}
        )
        if (outcome := entry.get("outcome")) in ("done", "recovered"):
            total[outcome] += 1
        for name in ("files_in", "files_out"):
            total[name] += int(entry.get(name) or 0)
        total["bytes_saved"] += max(int(entry.get("bytes_in") or 0) - int(entry.get("bytes_out") or 0), 0)
    return dict(sorted(totals.items()))


@dataclass(frozen=True)
class RunningJob(Shown):
    """`alive` is a hint: whether its process is surely gone can be told on its own host only."""

    id: str
    table: str
    kind: str
    state: str
    owner: str
    alive: bool
    age_s: float
    files: int
    why: str
