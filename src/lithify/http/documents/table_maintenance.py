"""Documents about a table's state and upkeep, as they stand in requests and answers: what each field means."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lithify.http.documents.tables import AsOf, Text

Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
HISTORY_MAX = 1_000


class Document(BaseModel):
    """An answer, made from a value with the same fields."""

    model_config = ConfigDict(from_attributes=True)


class Order(BaseModel):
    """A request's body. A field that nobody knows is refused: it is most likely misspelled."""

    model_config = ConfigDict(extra="forbid", strict=True)


# -- a table's state


class SnapshotDocument(Document):
    """One version of a table. Its rows are those of `as_of=seq`, for as long as vacuum keeps its files."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    table_id: str = Field(description="Another one if the table was dropped and created anew.")
    seq: Count = Field(description="The write counter: every write up to this one is in the snapshot.", examples=[42])
    watermark: Count = Field(description="The seq up to which base holds everything.", examples=[40])
    changes_version: Count = Field(description="Version of the changes log.")
    base_version: Count = Field(description="Version of the base log, which other Delta readers know too.")
    base_files: Count = Field(description="Files of base.")
    base_rows: int = Field(description="Rows of base, before pending changes are applied.")
    base_bytes: Bytes = Field(description="Bytes of base.")
    pending_files: Count = Field(description="Change files that are not folded yet.")
    pending_rows: Count = Field(description="Rows in them, tombstones included.")
    pending_bytes: Bytes = Field(description="Bytes in them.")


class StatsDocument(Document):
    """Size of a table, and how much of it is not folded yet."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    seq: Count = Field(description="The write counter.")
    watermark: Count = Field(description="The seq up to which base holds everything.")
    base_files: Count = Field(description="Files of base.")
    base_rows: int = Field(description="Rows of base, before pending changes are applied.")
    base_bytes: Bytes = Field(description="Bytes of base.")
    pending_files: Count = Field(description="Change files that are not folded yet.")
    pending_rows: Count = Field(description="Rows in them, tombstones included.")
    pending_bytes: Bytes = Field(description="Bytes in them.")


class TagOrder(Document):
    """Which version gets the name."""

    as_of: AsOf | None = Field(None, description="A seq, a time in ISO 8601, or a tag; default: now.", examples=[42])


class TagDocument(Document):
    """A named version of a table."""

    name: str = Field(description="What `as_of` takes.", examples=["month-end"])
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    seq: Count = Field(description="The version's seq.")
    created: dt.datetime = Field(description="When it got the name.", examples=["2026-11-15T12:00:00Z"])
    actor: str = Field(description="Who gave it.", examples=["ingest"])
    bytes: Bytes = Field(description="Bytes of its files, which may be those of other versions too.")


class TagsDocument(Document):
    """The named versions of a table."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    tags: list[TagDocument] = Field(description="By name.")


class UntaggedDocument(Document):
    """A name was taken away."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    tag: str = Field(description="The name.", examples=["month-end"])
    untagged: bool = Field(description="True.")


class HistoryEntryDocument(Document):
    """One write, schema change, fold or other commit."""

    time: dt.datetime = Field(description="When it was committed.", examples=["2026-11-15T12:00:00Z"])
    log: Literal["changes", "base"] = Field(description="The log that it stands in.")
    version: Count = Field(description="Its version in that log.")
    operation: str = Field(description="What was done.", examples=["upsert"])
    seq: int | None = Field(description="The seq that it was given; of a fold, the watermark it reached.")
    rows: int | None = Field(description="How many rows it wrote or deleted, where that is known.")
    actor: str | None = Field(description="Who did it: for writes over HTTP, the token's name.", examples=["ingest"])
    reason: str | None = Field(description="Why, as a delete was given it.")
    batch_id: str | None = Field(description="The write's Idempotency-Key.")
    detail: str | None = Field(description="More about it, e.g. the condition of a delete-where.")


class HistoryDocument(Document):
    """What happened to a table, newest first."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    history: list[HistoryEntryDocument] = Field(description="Newest first, at most `limit` of them.")


class PartitionDocument(Document):
    """One partition of base."""

    values: dict[str, Any] = Field(
        description="By partition column; empty for a table without any.", examples=[{"_day": "2026-11-15"}]
    )
    files: Count = Field(description="Its files.")
    rows: Count | None = Field(description="Its rows; null if a file of another writer does not say.")
    size_bytes: Bytes = Field(description="Its bytes.")
    time_min: str | None = Field(description="Earliest value of the time column; null if unknown.")
    time_max: str | None = Field(description="Latest value of the time column; null if unknown.")


class PartitionsDocument(Document):
    """The partitions of base. Pending changes have none yet."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    partitions: list[PartitionDocument] = Field(description="In the order of their values, nulls last.")


# -- upkeep of one table


class FoldOrder(Order):
    """Fold now, or only say what that would do."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])


TierName = Annotated[Text, Field(min_length=1, max_length=64)]
Tiers = TierName | Annotated[list[TierName], Field(min_length=1, max_length=32)]


class CompactOrder(Order):
    """Compact now what is due, or only say what is."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])
    tier: Tiers | None = Field(
        default=None, description="Only this tier's work, or `pack`; or a list of them.", examples=["hourly"]
    )


class OptimizeOrder(Order):
    """Write base anew in z-order, or only say what would be written."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])
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


class FoldPlanDocument(Document):
    """What a fold would do now."""

    dry_run: Literal[True] = Field(default=True, description="Nothing was done.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    watermark: Count = Field(description="The seq up to which base holds everything now.")
    seq: Count = Field(description="The seq up to which it would.")
    change_files: Count = Field(description="Change files that would be folded.")
    change_rows: Count = Field(description="Rows in them.")
    files_linked: Count = Field(description="Files that become base files as they are.")
    files_rewritten: Count = Field(description="Base files that would be written anew.")
    files_kept: Count = Field(description="Base files that stay as they are.")
    bytes_read: Bytes = Field(description="Bytes that would be read.")
    bytes_written: Bytes = Field(description="Bytes that would be written, at most.")
    engine: str = Field(description="Where it would run: none, local or spark.", examples=["local"])
    why: str = Field(description="What calls for it.")
    gain: str = Field(description="What it would gain.")


class FoldReportDocument(Document):
    """What a fold did. Row counts are exact."""

    dry_run: Literal[False] = Field(default=False, description="It was done.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    seq: Count = Field(description="The seq up to which base holds everything now.")
    base_rows: int = Field(description="Rows of base before.")
    change_rows: Count = Field(description="Rows of the changes that were folded.")
    inserted: Count = Field(description="Rows that came.")
    updated: Count = Field(description="Rows that were replaced.")
    deleted: Count = Field(description="Rows that went.")
    final_rows: int = Field(description="Rows of base now.")
    files_read: Count = Field(description="Files that were read.")
    files_written: Count = Field(description="Files that were written.")
    files_linked: Count = Field(description="Files that became base files as they were.")
    bytes_read: Bytes = Field(description="Bytes that were read.")
    bytes_written: Bytes = Field(description="Bytes that were written.")
    seconds: Seconds = Field(description="How long it took.")
    engine: str = Field(description="Where it ran: none, local or spark.", examples=["local"])
    problem: str = Field(description="A change that nothing folds past, or empty.")
    change_files: Count = Field(description="Change files that were merged into base.")
    tombstones: Count = Field(description="Rows of them that say that a row is deleted.")


class PlannedCompactionDocument(Document):
    """One job that would be run."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    origin: str = Field(description="The tier, pack or cluster: also the tier of the files it writes.")
    partition: dict[str, str | None] = Field(description="The partition whose files it takes.")
    files: Count = Field(description="How many files it takes.")
    bytes_in: Bytes = Field(description="Their bytes.")
    bytes_out: Bytes = Field(description="Bytes that it would write.")
    gain: str = Field(description="What it would gain.")
    why: str = Field(description="What calls for it.")


class CompactionDocument(Document):
    """One job that was run. The same rows came out, in fewer files or in another order."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    origin: str = Field(description="The tier, pack or cluster.")
    partition: dict[str, str | None] = Field(description="The partition whose files it took.")
    files_read: Count = Field(description="How many files it took.")
    files_written: Count = Field(description="How many they became.")
    rows: Count = Field(description="Rows in them.")
    bytes_read: Bytes = Field(description="Bytes that were read.")
    bytes_written: Bytes = Field(description="Bytes that were written.")
    seconds: Seconds = Field(description="How long it took.")
    engine: str = Field(description="Where it ran: none, local or spark.", examples=["local"])
    halvings: Count = Field(description="How often it was halved because memory ran out.")
    problems: list[str] = Field(description="Damaged files that were left out, and why.")


class PlannedCompactionsDocument(Document):
    """What would be compacted, or ordered, now."""

    dry_run: Literal[True] = Field(default=True, description="Nothing was done.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    planned: list[PlannedCompactionDocument] = Field(description="The jobs that would run; empty if nothing is due.")
    note: str | None = Field(
        default=None, description="Why the tier has nothing to do on this table, whatever its files."
    )


class CompactionsDocument(Document):
    """What was compacted, or ordered."""

    dry_run: Literal[False] = Field(default=False, description="It was done.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    done: list[CompactionDocument] = Field(description="The jobs that ran; empty if nothing was due.")
    note: str | None = Field(
        default=None, description="Why the tier has nothing to do on this table, whatever its files."
    )


class VacuumDocument(Document):
    """What went, or would go in a dry run."""

    dry_run: bool = Field(description="True: nothing was deleted.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    retain_hours: float = Field(description="Versions of this many hours stay readable.")
    files: Count = Field(description="Files that went, or would go.")
    bytes_freed: Bytes = Field(description="Their bytes; those with two names count with the last of them.")
    orphans: Count = Field(description="Those of them that no commit ever named.")
    orphan_bytes: Bytes = Field(description="Their bytes.")
    kept_by_pins: Count = Field(description="Files that a pinned snapshot keeps.")
    kept_by_jobs: Count = Field(description="Files that a running job keeps.")
    paths: list[str] = Field(description="Some of the files that went, or would go, below the table's folder.")
    seconds: Seconds = Field(description="How long it took.")
