"""What a maintenance cycle did: values only, as they are shown, logged and kept in the history of cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from lithify.core.fields import Bytes, Count, Example, OfTable, Seconds
from lithify.core.html import Shown
from lithify.maintenance.backoff import Waiting

DONE, FAILED, REPLANNED, CANCELLED = "done", "failed", "replanned", "cancelled"
# A cycle over thousands of tables must still fit a line of the history.
LISTED_MAX = 100


@dataclass(frozen=True)
class JobOutcome(Shown):
    """One job of a cycle."""

    table: OfTable
    kind: Annotated[str, "fold, minor, compact or vacuum.", Example("fold")]
    tier: Annotated[str | None, "The tier of a compaction."] = None
    partition: Annotated[str, "The partition of a compaction."] = ""
    why: Annotated[str, "What called for it."] = ""
    outcome: Annotated[str, "done, failed, replanned or cancelled.", Example("done")] = DONE
    seconds: Annotated[Seconds, "How long it took."] = 0.0
    bytes_in: Annotated[Bytes, "Bytes that it read."] = 0
    bytes_out: Annotated[Bytes, "Bytes that it wrote."] = 0
    reason: Annotated[str | None, "Why it failed, was cancelled or planned again."] = None


@dataclass(frozen=True)
class Skipped(Shown):
    """A table that was not looked at, or work that was not tried."""

    table: OfTable
    why: Annotated[str, "Why not."]
    damaged: Annotated[bool, "Whether the table, or its options, cannot be used; else it waits."] = False


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
        """As `PastCycle`, in plain values: counts are complete; lists are cut to what fits, failures first."""
        jobs = sorted(self.jobs, key=lambda job: job.outcome != FAILED)
        past = PastCycle(
            cycle=self.id,
            what=self.what,
            owner=self.owner,
            started_ms=self.started_ms,
            seconds=round(self.seconds, 3),
            done=self.done,
            failed=len(self.failures),
            replanned=self.replanned,
            cancelled=len(self.with_outcome(CANCELLED)),
            not_started=self.not_started,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            stopped=self.stopped,
            jobs=jobs[:LISTED_MAX],
            skipped=list(self.skipped[:LISTED_MAX]),
            recovered=list(self.recovered[:LISTED_MAX]),
            problems=list(self.problems[:LISTED_MAX]),
            waiting=list(self.waiting),
        )
        return asdict(past)


@dataclass(kw_only=True)
class PastCycle(Shown):
    """A cycle that ended. Counts are complete; lists are cut to what fits."""

    cycle: Annotated[str, "Its id.", Example("3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a")]
    what: Annotated[str, "What it was for: policies, vacuum, or tiers.", Example("policies")]
    owner: Annotated[str, "The process that ran it: host and PID."] = ""
    started_ms: Annotated[int, "When it began, in milliseconds since 1970."]
    seconds: Annotated[Seconds, "How long it took."]
    done: Annotated[Count, "Jobs that were done."] = 0
    failed: Annotated[Count, "Jobs that failed."] = 0
    replanned: Annotated[Count, "Jobs whose inputs changed under them, left to the next cycle."] = 0
    cancelled: Annotated[Count, "Jobs that were cancelled."] = 0
    not_started: Annotated[Count, "Jobs that were due and not begun."] = 0
    bytes_in: Annotated[Bytes, "Bytes that its jobs read."] = 0
    bytes_out: Annotated[Bytes, "Bytes that its jobs wrote."] = 0
    stopped: Annotated[str | None, "Why it ended early, if it did."] = None
    jobs: Annotated[list[JobOutcome], "Its jobs, failures first."] = field(default_factory=list)
    skipped: Annotated[list[Skipped], "What it did not look at, or not try."] = field(default_factory=list)
    recovered: Annotated[list[str], "What was recovered that dead processes had left behind."] = field(
        default_factory=list
    )
    problems: Annotated[list[str], "What went wrong besides jobs."] = field(default_factory=list)
    waiting: Annotated[list[Waiting], "Work that failed and waits to be tried again."] = field(default_factory=list)


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
class EndedJob(Shown):
    """A job that ended, whoever ran it."""

    id: Annotated[str, "Its id."]
    table: OfTable
    kind: Annotated[str, "fold, minor, bulk, pack, cluster or a tier.", Example("fold")]
    outcome: Annotated[str, "done, failed, cancelled, given up, recovered or table dropped."]
    why: Annotated[str | None, "What called for it."] = None
    reason: Annotated[str | None, "Why it ended so."] = None
    started_ms: Annotated[int | None, "When it began, in milliseconds since 1970."] = None
    ended_ms: Annotated[int | None, "When it ended, in milliseconds since 1970."] = None
    bytes_in: Annotated[int | None, "Bytes that it read, where that is known."] = None
    bytes_out: Annotated[int | None, "Bytes that it wrote, where that is known."] = None


@dataclass(frozen=True)
class RunningJob(Shown):
    """A job that is under way, or was left behind."""

    id: Annotated[str, "Its id."]
    table: OfTable
    kind: Annotated[str, "fold, minor, bulk, pack, cluster or a tier.", Example("fold")]
    state: Annotated[str, "writing, committing or cleaning.", Example("writing")]
    owner: Annotated[str, "The process that runs it: host and PID.", Example("node1-4711")]
    alive: Annotated[bool, "Whether that process may still live; if not, recovery clears up."]
    age_s: Annotated[Seconds, "How long ago it began."]
    files: Annotated[Count, "Files that it takes."]
    why: Annotated[str, "What called for it."]
    files_done: Annotated[int | None, "Files that it is done with; null where that is not known."] = None
    files_total: Annotated[int | None, "Of how many."] = None
    rows_done: Annotated[int | None, "Rows that it has read."] = None
    rows_total: Annotated[int | None, "Of how many."] = None
    bytes_done: Annotated[int | None, "Bytes of the files that it is done with."] = None
    bytes_total: Annotated[int | None, "Of how many."] = None
    cancelled: Annotated[bool, "Whether somebody has asked for its end, which comes at its next step."] = False
