"""Documents about a table's state, maintenance and the hot cache, where no result class says them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from lithify.core.fields import Bytes, Count, Seconds
from lithify.core.results import (
    CompactReport,
    FoldPlan,
    FoldReport,
    HistoryEntry,
    PartitionStats,
    PlannedCompaction,
    RecordSetAside,
    SetAside,
    Tag,
)
from lithify.http.documents.tables import AboutTable, AsOf, Document, Order, Text
from lithify.lake.maintenance import Candidate, TableState
from lithify.maintenance.job_slots import JobSlot
from lithify.maintenance.plans import FileCount
from lithify.maintenance.reports import EndedJob, PastCycle, RunningJob, Skipped
from lithify.options.table_options import MissingColumns

HISTORY_MAX = 1_000


# -- a table's state


class TagOrder(Document):
    """Which version gets the name."""

    as_of: AsOf | None = Field(None, description="A seq, a time in ISO 8601, or a tag; default: now.", examples=[42])


class TagsDocument(AboutTable):
    """The named versions of a table."""

    tags: list[Tag] = Field(description="By name.")


class UntaggedDocument(AboutTable):
    """A name was taken away."""

    tag: str = Field(description="The name.", examples=["month-end"])
    untagged: bool = Field(description="True.")


class QuarantineDocument(AboutTable):
    """Records of a table that were set aside, by name."""

    quarantine: list[SetAside] = Field(description="Oldest first.")


class RecordsSetAsideDocument(AboutTable):
    """Some of the records of one name."""

    name: str = Field(description="Their name.", examples=["stream.orders-17"])
    records: list[RecordSetAside] = Field(description="In the order in which they came, at most `limit` of them.")
    more: bool = Field(description="Whether there are more behind them: pass over these with `after`.")


class RetryOrder(Order):
    """How records that were set aside are tried once more."""

    missing: MissingColumns | None = Field(
        None, description="Columns that a record lacks: as for an upsert.", examples=["null"]
    )


class PurgeOrder(Order):
    """Which records go: those of one name, or all; of these, what was set aside so long ago."""

    name: Text | None = Field(None, description="Only these.", max_length=255, examples=["stream.orders-17"])
    older_than_hours: float | None = Field(None, description="Only what is older.", gt=0, examples=[720])


class HistoryDocument(AboutTable):
    """What happened to a table, newest first."""

    history: list[HistoryEntry] = Field(description="Newest first, at most `limit` of them.")


@dataclass(frozen=True)
class PartitionDocument(PartitionStats):
    """One partition of base."""

    time_min: Annotated[str | None, "Earliest value of the time column; null if unknown."]  # type: ignore[assignment]
    time_max: Annotated[str | None, "Latest value of the time column; null if unknown."]  # type: ignore[assignment]


class PartitionsDocument(AboutTable):
    """The partitions of base. Pending changes have none yet."""

    partitions: list[PartitionDocument] = Field(description="In the order of their values, nulls last.")


# -- maintenance of one table


class _DryRunOrder(Order):
    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])


class FoldOrder(_DryRunOrder):
    """Fold now, or only say what that would do."""


TierName = Annotated[Text, Field(min_length=1, max_length=64)]
Tiers = TierName | Annotated[list[TierName], Field(min_length=1, max_length=32)]


class CompactOrder(_DryRunOrder):
    """Compact now what is due, or only say what is."""

    tier: Tiers | None = Field(
        default=None, description="Only this tier's work, or `pack`; or a list of them.", examples=["hourly"]
    )


class OptimizeOrder(_DryRunOrder):
    """Write base anew in z-order, or only say what would be written."""

    by: list[Annotated[Text, Field(min_length=1, max_length=255)]] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Columns to order by; by default the key, then the time.",
        examples=[["customer", "placed"]],
    )


class VacuumOrder(Order):
    """Delete files that no retained version needs. Without `"dry_run": false`, only shows them."""

    dry_run: bool = Field(default=True, description="Show what would be deleted, and delete nothing.", examples=[True])
    retain_hours: float = Field(
        default=168,
        ge=1,
        le=876_000,
        allow_inf_nan=False,
        description="Versions of this many hours stay readable.",
        examples=[168],
    )


@dataclass(frozen=True)
class PlannedFold(FoldPlan):
    """What a fold would do now."""

    dry_run: Annotated[Literal[True], "Nothing was done."] = True


@dataclass(frozen=True)
class DoneFold(FoldReport):
    """What a fold did. Row counts are exact."""

    dry_run: Annotated[Literal[False], "It was done."] = False


class _NotedDocument(AboutTable):
    note: str | None = Field(
        default=None, description="Why the tier has nothing to do on this table, whatever its files."
    )


class PlannedCompactionsDocument(_NotedDocument):
    """What would be compacted, or ordered, now."""

    dry_run: Literal[True] = Field(default=True, description="Nothing was done.")
    planned: list[PlannedCompaction] = Field(description="The jobs that would run; empty if nothing is due.")


class CompactionsDocument(_NotedDocument):
    """What was compacted, or ordered."""

    dry_run: Literal[False] = Field(default=False, description="It was done.")
    done: list[CompactReport] = Field(description="The jobs that ran; empty if nothing was due.")


# -- maintenance of the lake


T = TypeVar("T")


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


class WorkerDocument(Document):
    """The process that heavy work runs in, with Spark. It starts with the first such work."""

    alive: bool = Field(description="Whether it runs now.")
    memory_bytes: Bytes = Field(description="Memory of all its processes at its last sign of life.")
    orders: Count = Field(description="Jobs that it runs now.")
    starts: Count = Field(description="How often it was started since this service began.")
    deaths: Count = Field(description="How often it died.")


class StatusDocument(Document):
    """Whether maintenance runs here, and what it is doing."""

    may_compact: bool = Field(description="Whether this node may run cycles now: `compact` is among its roles.")
    roles: list[str] = Field(description="The setting `roles` of this node.", examples=[["read", "write", "compact"]])
    scheduled: bool = Field(description="Whether this service runs cycles by itself.")
    idle_because: str | None = Field(description="Why this service runs none now, though it is to: its roles.")
    crons: dict[str, str] = Field(description="What runs here at which times, in UTC, by tier (and vacuum).")
    policy_interval_s: Seconds = Field(description="Seconds between two looks at what is due.")
    jobs_max: Count = Field(description="Jobs that run at the same time.")
    cycle: RunningCycleDocument | None = Field(description="The cycle that runs now, in whichever process.")
    last_cycle: PastCycle | None = Field(description="The last one that ended.")
    asked: list[JobSlot] = Field(description="What was asked for by name here and runs now.")
    worker: WorkerDocument | None = Field(description="The Spark worker; null where Spark is somebody else's.")
    tiers: list[TierDocument] = Field(description="All tiers, also those that are off.")


class JobTotalsDocument(Document):
    """What the jobs of one kind came to, as far back as the history goes."""

    done: Count = Field(description="Jobs that ended well.")
    recovered: Count = Field(description="Jobs whose process was gone before they committed, and that were cleaned up.")
    files_in: Count = Field(description="Files that they took.")
    files_out: Count = Field(description="Files that they wrote.")
    bytes_saved: Bytes = Field(description="Bytes by which the files were larger than what came of them.")


class CompactionStatsDocument(Document):
    """State and debt of tables, and their sums."""

    tables: list[TableState] = Field(description="By name, at most `limit` of them.")
    more: bool = Field(description="Whether there are more tables than were looked at.")
    tables_total: Count = Field(
        description="How many there are, also before `after` and without `contains`. It goes by folders: one that was "
        "half dropped counts until that is cleared away."
    )
    base_files: Count = Field(description="Files of base of these tables.")
    base_bytes: Bytes = Field(description="Bytes of base of these tables.")
    pending_files: Count = Field(description="Their change files that are not folded yet.")
    pending_rows: Count = Field(description="Rows in those.")
    debt: FileCount = Field(description="Their files that would be compacted.")
    jobs: dict[str, JobTotalsDocument] = Field(description="What their jobs came to, by tier or kind.")


class CandidatesDocument(Document):
    """What a cycle would do now."""

    candidates: list[Candidate] = Field(description="Table by table, in the order they would be done.")
    more: bool = Field(description="Whether there are more candidates, or more tables, than are shown.")
    skipped: list[Skipped] = Field(description="Tables that cannot be looked at.")


class JobsDocument(Document):
    """Jobs under way, in whichever process."""

    jobs: list[RunningJob] = Field(description="Oldest first.")
    cycle: RunningCycleDocument | None = Field(description="The cycle that runs now.")


class CompactionHistoryDocument(Document):
    """What maintenance did, newest first."""

    cycles: list[PastCycle] = Field(description="Cycles that ended, at most `limit` of them.")
    jobs: list[EndedJob] = Field(description="Jobs that ended, in cycles or not, at most `limit` of them.")


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


class UnpinnedDocument(AboutTable):
    """A table is kept no longer than others."""

    unpinned: bool = Field(description="Whether it was pinned.")


class EvictedDocument(Document):
    """Memory was given back."""

    table: str | None = Field(description="The table that was evicted; null: everything.")
    bytes: Bytes = Field(description="How much was given back.")


def known(kind: type[T], entries: list[dict[str, Any]]) -> list[T]:
    """Lines of a history file as documents. One that does not fit, of another version perhaps, is left out."""
    adapter, found = TypeAdapter(kind), []
    for entry in entries:
        with contextlib.suppress(ValidationError):
            found.append(adapter.validate_python(entry))
    return found
