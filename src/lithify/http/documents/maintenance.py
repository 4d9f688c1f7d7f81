"""Documents about background work and the hot cache, as they stand in answers: what each field means."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from lithify.http.documents.table_maintenance import Bytes, Count, Document, Order, Seconds
from lithify.http.documents.tables import Text


class TierDocument(Document):
    """A tier: when and how files of one window of time are merged."""

    name: str = Field(description="Its name.", examples=["hourly"])
    window: str = Field(description="The length of its windows.", examples=["hour"])
    age_min_s: Count = Field(description="Seconds after its end from which a window is compacted.")
    files_min: Count = Field(description="Files of a window from which that is worth it.")
    target_bytes: Bytes = Field(description="Size of the files that it writes.")
    cron: str = Field(description="When it runs, in UTC.", examples=["5 * * * *"])
    enabled: bool = Field(description="Whether it is on.")


class RunningCycleDocument(Document):
    """The cycle that runs now, in whichever process."""

    cycle: str = Field(description="Its id.", examples=["3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a"])
    what: str = Field(description="What it is for: policies, vacuum, or tiers.", examples=["policies"])
    owner: str = Field(description="The process that runs it: host and PID.", examples=["node1-4711"])
    since: str = Field(description="When it began.", examples=["2026-11-15 12:00:00 UTC"])
    started_ms: int = Field(description="The same in milliseconds since 1970.")


class WaitingDocument(Document):
    """Work that failed and is tried less and less often."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    kind: str = Field(description="fold, minor, vacuum, or the tier of a compaction.")
    place: str = Field(description="Which of several batches.")
    reason: str = Field(description="Why it failed the last time.")
    failures: Count = Field(description="How often it failed for that reason.")
    turns_left: Count = Field(description="How many turns it sits out.")
    failed_ms: int = Field(description="When it failed last, in milliseconds since 1970.")


class CycleJobDocument(Document):
    """One job of a cycle."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    kind: str = Field(description="fold, minor, compact or vacuum.", examples=["fold"])
    tier: str | None = Field(default=None, description="The tier of a compaction.")
    partition: str = Field(default="", description="The partition of a compaction.")
    why: str = Field(default="", description="What called for it.")
    outcome: str = Field(description="done, failed, replanned or cancelled.", examples=["done"])
    seconds: Seconds = Field(default=0.0, description="How long it took.")
    bytes_in: Bytes = Field(default=0, description="Bytes that it read.")
    bytes_out: Bytes = Field(default=0, description="Bytes that it wrote.")
    reason: str | None = Field(default=None, description="Why it failed, was cancelled or planned again.")


class SkippedDocument(Document):
    """A table that was not looked at, or work that was not tried."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    why: str = Field(description="Why not.")
    damaged: bool = Field(
        default=False, description="Whether the table, or its options, cannot be used; else it waits."
    )


class PastCycleDocument(Document):
    """A cycle that ended. Counts are complete; lists are cut to what fits."""

    cycle: str = Field(description="Its id.", examples=["3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a"])
    what: str = Field(description="What it was for: policies, vacuum, or tiers.", examples=["policies"])
    owner: str = Field(default="", description="The process that ran it: host and PID.")
    started_ms: int = Field(description="When it began, in milliseconds since 1970.")
    seconds: Seconds = Field(description="How long it took.")
    done: Count = Field(default=0, description="Jobs that were done.")
    failed: Count = Field(default=0, description="Jobs that failed.")
    replanned: Count = Field(default=0, description="Jobs whose inputs changed under them, left to the next cycle.")
    cancelled: Count = Field(default=0, description="Jobs that were cancelled.")
    not_started: Count = Field(default=0, description="Jobs that were due and not begun.")
    bytes_in: Bytes = Field(default=0, description="Bytes that its jobs read.")
    bytes_out: Bytes = Field(default=0, description="Bytes that its jobs wrote.")
    stopped: str | None = Field(default=None, description="Why it ended early, if it did.")
    jobs: list[CycleJobDocument] = Field(default=[], description="Its jobs, failures first.")
    skipped: list[SkippedDocument] = Field(default=[], description="What it did not look at, or not try.")
    recovered: list[str] = Field(default=[], description="What was settled that dead processes had left behind.")
    problems: list[str] = Field(default=[], description="What went wrong besides jobs.")
    waiting: list[WaitingDocument] = Field(default=[], description="Work that failed and waits to be tried again.")


class EndedJobDocument(Document):
    """A job that ended, whoever ran it."""

    model_config = ConfigDict(from_attributes=True, extra="ignore")

    id: str = Field(description="Its id.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    kind: str = Field(description="fold, minor, bulk, pack, cluster or a tier.", examples=["fold"])
    outcome: str = Field(description="done, failed, cancelled, given up, recovered or table dropped.")
    why: str | None = Field(default=None, description="What called for it.")
    reason: str | None = Field(default=None, description="Why it ended so.")
    started_ms: int | None = Field(default=None, description="When it began, in milliseconds since 1970.")
    ended_ms: int | None = Field(default=None, description="When it ended, in milliseconds since 1970.")
    bytes_in: int | None = Field(default=None, description="Bytes that it read, where that is known.")
    bytes_out: int | None = Field(default=None, description="Bytes that it wrote, where that is known.")


class JobDocument(Document):
    """A job that is under way, or was left behind."""

    id: str = Field(description="Its id.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    kind: str = Field(description="fold, minor, bulk, pack, cluster or a tier.", examples=["fold"])
    state: str = Field(description="writing, committing or cleaning.", examples=["writing"])
    owner: str = Field(description="The process that runs it: host and PID.", examples=["node1-4711"])
    alive: bool = Field(description="Whether that process may still live; if not, recovery clears up.")
    age_s: Seconds = Field(description="How long ago it began.")
    files: Count = Field(description="Files that it takes.")
    why: str = Field(description="What called for it.")


class TurnDocument(Document):
    """A fold, compact, optimize or vacuum that somebody asked this service for."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    kind: str = Field(description="fold, compact, optimize or vacuum.", examples=["fold"])
    started_ms: int = Field(description="When it began, in milliseconds since 1970.")


class WorkerDocument(Document):
    """The process that heavy work runs in, with Spark. It starts with the first such work."""

    alive: bool = Field(description="Whether it runs now.")
    memory_bytes: Bytes = Field(description="Memory of all its processes at its last sign of life.")
    orders: Count = Field(description="Jobs that it runs now.")
    starts: Count = Field(description="How often it was started since this service began.")
    deaths: Count = Field(description="How often it died.")


class StatusDocument(Document):
    """Whether background work runs here, and what it is doing."""

    may_compact: bool = Field(description="Whether this node may run cycles now: `compact` is among its roles.")
    roles: list[str] = Field(description="The setting `roles` of this node.", examples=[["read", "write", "compact"]])
    scheduled: bool = Field(description="Whether this service runs cycles by itself.")
    idle_because: str | None = Field(description="Why this service runs none now, though it is to: its roles.")
    crons: dict[str, str] = Field(description="What runs here at which times, in UTC, by tier (and vacuum).")
    policy_interval_s: Seconds = Field(description="Seconds between two looks at what is due.")
    jobs_max: Count = Field(description="Jobs that run at the same time.")
    cycle: RunningCycleDocument | None = Field(description="The cycle that runs now, in whichever process.")
    last_cycle: PastCycleDocument | None = Field(description="The last one that ended.")
    asked: list[TurnDocument] = Field(description="What was asked for by name here and runs now.")
    worker: WorkerDocument | None = Field(description="The Spark worker; null where Spark is somebody else's.")
    tiers: list[TierDocument] = Field(description="All tiers, also those that are off.")


class FileCountDocument(Document):
    """So many files."""

    files: Count = Field(description="How many.")
    bytes: Bytes = Field(description="Their bytes.")


class TableUpkeepDocument(Document):
    """State and debt of one table."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    error: str | None = Field(default=None, description="Why the table cannot be looked at; then all else is empty.")
    seq: Count = Field(default=0, description="The write counter.")
    watermark: Count = Field(default=0, description="The seq up to which base holds everything.")
    base_files: Count = Field(default=0, description="Files of base.")
    base_rows: int = Field(default=0, description="Rows of base.")
    base_bytes: Bytes = Field(default=0, description="Bytes of base.")
    pending_files: Count = Field(default=0, description="Change files that are not folded yet.")
    pending_rows: Count = Field(default=0, description="Rows in them.")
    pending_bytes: Bytes = Field(default=0, description="Bytes in them.")
    origins: dict[str, FileCountDocument] = Field(
        default={}, description="Files of base by what wrote them, tiers among it."
    )
    read_overhead: float = Field(default=1.0, description="Expected time of a read, relative to a folded table.")
    removed_files: int = Field(default=0, description="Files that only versions of the past need.")
    removed_bytes: int = Field(default=0, description="Bytes in them.")
    reclaimable_bytes: int = Field(default=0, description="Those of them that the next vacuum takes.")
    write_amplification: float | None = Field(
        default=None, description="Bytes that upkeep writes per byte of changes; null before there was one."
    )
    debt: FileCountDocument = Field(
        default=FileCountDocument(files=0, bytes=0), description="Files that would be compacted."
    )
    due: list[str] = Field(default=[], description="What is due, and why.")
    last_job: EndedJobDocument | None = Field(default=None, description="Its last job that ended.")
    waiting: list[WaitingDocument] = Field(default=[], description="Its work that failed and waits to be tried again.")


class JobTotalsDocument(Document):
    """What the jobs of one kind came to, as far back as the history goes."""

    done: Count = Field(description="Jobs that ended well.")
    recovered: Count = Field(description="Jobs whose process was gone before they committed, and that were cleaned up.")
    files_in: Count = Field(description="Files that they took.")
    files_out: Count = Field(description="Files that they wrote.")
    bytes_saved: Bytes = Field(description="Bytes by which the files were larger than what came of them.")


class CompactionStatsDocument(Document):
    """State and debt of tables, and their sums."""

    tables: list[TableUpkeepDocument] = Field(description="By name, at most `limit` of them.")
    more: bool = Field(description="Whether there are more tables than were looked at.")
    base_files: Count = Field(description="Files of base of these tables.")
    base_bytes: Bytes = Field(description="Bytes of base of these tables.")
    pending_files: Count = Field(description="Their change files that are not folded yet.")
    pending_rows: Count = Field(description="Rows in those.")
    debt: FileCountDocument = Field(description="Their files that would be compacted.")
    jobs: dict[str, JobTotalsDocument] = Field(description="What their jobs came to, by tier or kind.")


class CandidateDocument(Document):
    """One job that a cycle would run now."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    kind: str = Field(description="fold, minor or compact.", examples=["compact"])
    tier: str | None = Field(description="The tier of a compaction, or pack.", examples=["hourly"])
    partition: dict[str, str | None] = Field(description="The partition of a compaction.")
    files: Count = Field(description="Files that it would take.")
    bytes_in: Bytes = Field(description="Their bytes.")
    bytes_out: Bytes = Field(description="Bytes that it would write.")
    why: str = Field(description="What calls for it.")
    gain: str = Field(description="What it would gain.")
    paths: list[str] = Field(description="Its files, below base or changes; at most 500 are named.")
    window_s: Seconds | None = Field(description="Rows are divided by windows of the time column this long.")
    batch: Count = Field(description="Which of the batches of its partition and tier this is, from 1.")
    batches: Count = Field(description="How many there are.")


class CandidatesDocument(Document):
    """What a cycle would do now."""

    candidates: list[CandidateDocument] = Field(description="Table by table, in the order they would be done.")
    more: bool = Field(description="Whether there are more candidates, or more tables, than are shown.")
    skipped: list[SkippedDocument] = Field(description="Tables that cannot be looked at.")


class JobsDocument(Document):
    """Jobs under way, in whichever process."""

    jobs: list[JobDocument] = Field(description="Oldest first.")
    cycle: RunningCycleDocument | None = Field(description="The cycle that runs now.")


class CompactionHistoryDocument(Document):
    """What background work did, newest first."""

    cycles: list[PastCycleDocument] = Field(description="Cycles that ended, at most `limit` of them.")
    jobs: list[EndedJobDocument] = Field(description="Jobs that ended, in cycles or not, at most `limit` of them.")


class TriggeredDocument(Document):
    """A cycle has begun."""

    cycle: str = Field(description="Its id.", examples=["3f0c9a4e5b7d4c1e8a2b6d9f0e1c2b3a"])
    tier: str | None = Field(description="The tier that was asked for, if it was one.")
    tiers: list[str] = Field(description="All tiers that were asked for; none: whatever is due.")
    tables: Count = Field(description="How many tables it looks at.")


# -- the hot cache


class PinOrder(Order):
    """Load a table, or some columns of it, and keep it in memory."""

    table: Text = Field(description="The table: namespace.table", max_length=257, examples=["shop.orders"])
    columns: list[Text] | None = Field(
        default=None,
        min_length=1,
        max_length=10_000,
        description="Only these columns; by default all.",
        examples=[["id"]],
    )


class UnpinOrder(Order):
    """Keep a table no longer than others."""

    table: Text = Field(description="The table: namespace.table", max_length=257, examples=["shop.orders"])


class EvictOrder(Order):
    """Give memory back."""

    table: Text | None = Field(
        default=None, max_length=257, description="The table; without one, everything.", examples=["shop.orders"]
    )


class HotTableDocument(Document):
    """A table, or some of its columns, in memory."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    rows: Count = Field(description="Its rows.")
    bytes: Bytes = Field(description="Memory that it takes.")
    age_s: Seconds = Field(description="How long ago it was loaded.")
    pinned: bool = Field(description="Whether it stays until it is evicted.")
    seq: Count = Field(description="The write counter up to which it is fresh.")
    columns: list[str] = Field(description="The columns that are in memory.")
    hits: Count = Field(description="Queries that it served.")


class AnswersDocument(Document):
    """Answers that are kept for the same query on unchanged tables."""

    count: Count = Field(description="How many.")
    bytes: Bytes = Field(description="Memory that they take.")
    hits: Count = Field(description="Queries that were answered by them.")
    misses: Count = Field(description="Queries that were not.")


class CacheDocument(Document):
    """The hot cache of this service."""

    bytes_max: Bytes = Field(description="Memory that it may take; 0: there is no cache.")
    bytes: Bytes = Field(description="Memory that it takes now.")
    hits: Count = Field(description="Tables of queries that were read from memory.")
    misses: Count = Field(description="Tables of queries that were read from files.")
    loads: Count = Field(description="How often a table was loaded.")
    refreshes: Count = Field(description="How often a loaded table took changes in.")
    evictions: Count = Field(description="How often a table was given up.")
    answers: AnswersDocument = Field(description="Kept answers.")
    tables: list[HotTableDocument] = Field(description="What is in memory.")


class UnpinnedDocument(Document):
    """A table is kept no longer than others."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    unpinned: bool = Field(description="Whether it was pinned.")


class EvictedDocument(Document):
    """Memory was given back."""

    table: str | None = Field(description="The table that was evicted; null: everything.")
    bytes: Bytes = Field(description="How much was given back.")


def known(kind: type[Document], entries: list[dict[str, Any]]) -> list[Any]:
    """Lines of a history file as documents. One that does not fit, of another version perhaps, is left out."""
    from pydantic import ValidationError

    found = []
    for entry in entries:
        try:
            found.append(kind.model_validate(entry))
        except ValidationError:
            continue
    return found
