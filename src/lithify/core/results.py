"""What a lake answers with, here and through a service: each class says what its fields mean."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from lithify.core.fields import Bytes, Count, Example, OfTable, Seconds
from lithify.core.html import Shown

Log = Literal["changes", "base"]


@dataclass(frozen=True)
class Commit(Shown):
    """A durable write."""

    table: Annotated[str, "The table.", Example("shop.orders")]
    seq: Annotated[int, "Its number; reads and `changes` take it.", Example(42)]
    operation: Annotated[str, "append, upsert, replace, update, delete, delete where or restore.", Example("upsert")]
    rows: Annotated[int, "Rows written and keys deleted; -1 if a repeated write is too old to tell."]
    upserted: Annotated[int, "Rows written, one per key.", Example(2)] = 0
    deleted: Annotated[int, "Keys deleted, whether they were there or not.", Example(0)] = 0
    batch_id: Annotated[str | None, "The Idempotency-Key.", Example("feed-2026-11-15")] = None
    replayed: Annotated[bool, "This key had been written before; nothing was changed now."] = False
    skipped: Annotated[int, "Rows that were there already, with if_changed: they were not written."] = 0


@dataclass(frozen=True)
class RestorePlan(Shown):
    """What a restore would do now."""

    table: OfTable
    to: Annotated[Count, "The seq whose rows would come back.", Example(40)]
    seq: Annotated[Count, "The newest seq, from which they would.", Example(42)]
    upserted: Annotated[Count, "Rows that would be written."]
    deleted: Annotated[Count, "Rows that would go."]


@dataclass(frozen=True)
class Executed(Shown):
    """What a statement that writes did. Its rows are counted as the statement says it."""

    statement: Annotated[
        str, "insert, update, delete, merge, create table, alter table or drop table.", Example("update")
    ]
    table: Annotated[str, "The table that it writes to.", Example("shop.orders")]
    seq: Annotated[int, "The number of its commit; of one that wrote nothing, that of the table as it saw it."]
    inserted: Annotated[int, "Rows that came; -1 if a repeated statement is too old to tell, here and below."] = 0
    updated: Annotated[int, "Rows that were there and were written anew."] = 0
    deleted: Annotated[int, "Rows that went."] = 0
    batch_id: Annotated[str | None, "The Idempotency-Key.", Example("feed-2026-11-15")] = None
    replayed: Annotated[bool, "This key had been written before; nothing was changed now."] = False
    dry_run: Annotated[bool, "Nothing was written: this is what would be."] = False


@dataclass(frozen=True)
class HistoryEntry(Shown):
    """One write, schema change, fold or other commit."""

    time: Annotated[dt.datetime, "When it was committed.", Example("2026-11-15T12:00:00Z")]
    log: Annotated[Log, "The log that it stands in."]
    version: Annotated[Count, "Its version in that log."]
    operation: Annotated[str, "What was done.", Example("upsert")]
    seq: Annotated[int | None, "The seq that it was given; of a fold, the watermark it reached."]
    rows: Annotated[int | None, "How many rows it wrote or deleted, where that is known."]
    actor: Annotated[str | None, "Who did it: for writes over HTTP, the token's name.", Example("ingest")]
    reason: Annotated[str | None, "Why, as a delete was given it."]
    batch_id: Annotated[str | None, "The write's Idempotency-Key."]
    detail: Annotated[str | None, "More about it, e.g. the condition of a delete-where."]


@dataclass(frozen=True)
class TableStats(Shown):
    """Size of a table, and how much of it is not folded yet."""

    table: OfTable
    seq: Annotated[Count, "The write counter: every write up to this one is counted in.", Example(42)] = 0
    watermark: Annotated[Count, "The seq up to which base holds everything.", Example(40)] = 0
    base_files: Annotated[Count, "Files of base."] = 0
    base_rows: Annotated[int, "Rows of base, before pending changes are applied."] = 0
    base_bytes: Annotated[Bytes, "Bytes of base."] = 0
    pending_files: Annotated[Count, "Change files that are not folded yet."] = 0
    pending_rows: Annotated[Count, "Rows in them, tombstones included."] = 0
    pending_bytes: Annotated[Bytes, "Bytes in them."] = 0


@dataclass(frozen=True, kw_only=True)
class SnapshotStats(TableStats):
    """One version of a table. Its rows are those of `as_of=seq`, for as long as vacuum keeps its files."""

    table_id: Annotated[str, "Another one if the table was dropped and created anew."]
    changes_version: Annotated[Count, "Version of the changes log."]
    base_version: Annotated[Count, "Version of the base log, which other Delta readers know too."]


@dataclass(frozen=True)
class Tag(Shown):
    """A named version of a table."""

    name: Annotated[str, "What `as_of` takes.", Example("month-end")]
    table: OfTable
    seq: Annotated[Count, "The version's seq."]
    created: Annotated[dt.datetime, "When it got the name.", Example("2026-11-15T12:00:00Z")]
    actor: Annotated[str, "Who gave it.", Example("ingest")]
    bytes: Annotated[Bytes, "Bytes of its files, which may be those of other versions too."]


@dataclass(frozen=True)
class SetAside(Shown):
    """Records that a load, a stream or a pipeline has set aside together: they lie in the table's quarantine."""

    name: Annotated[str, "What shows, retries and purges them.", Example("stream.orders-17")]
    records: Annotated[Count, "How many there are."]
    bytes: Annotated[Bytes, "Bytes of their files."]
    created: Annotated[dt.datetime, "When they were set aside.", Example("2026-11-15T12:00:00Z")]


@dataclass(frozen=True)
class RecordSetAside(Shown):
    """One of them, and why it is no row."""

    why: Annotated[str, "What did not fit.", Example("'x' is no int64")]
    record: Annotated[str, "As it came.", Example('{"id": "x"}')]
    file: Annotated[str | None, "Where it stood, if that was a file."] = None
    line: Annotated[int | None, "The line where it begins there."] = None
    column: Annotated[str | None, "The column that is to blame; null where the whole record is."] = None


@dataclass(frozen=True)
class Retried(Shown):
    """Records of one name were tried once more: what fits by now is written and no longer set aside."""

    name: Annotated[str, "Of the records.", Example("stream.orders-17")]
    written: Annotated[Count, "Records that became rows, in one commit."]
    left: Annotated[Count, "Records that still do not fit, and stay."]
    seq: Annotated[int | None, "The commit's seq; null where nothing fits."] = None
    why: Annotated[str | None, "Why the first of those that stay does not fit."] = None


Time = dt.date | dt.datetime


@dataclass(frozen=True)
class PartitionStats(Shown):
    """One partition of base."""

    values: Annotated[
        Mapping[str, Any], "By partition column; empty for a table without any.", Example({"_day": "2026-11-15"})
    ]
    files: Annotated[Count, "Its files."]
    rows: Annotated[Count | None, "Its rows; null if a file of another writer does not say."]
    size_bytes: Annotated[Bytes, "Its bytes."]
    time_min: Annotated[Time | None, "Earliest value of the time column; null if unknown."]
    time_max: Annotated[Time | None, "Latest value of the time column; null if unknown."]


@dataclass(frozen=True)
class FoldPlan(Shown):
    """What a fold would do now."""

    table: OfTable
    watermark: Annotated[Count, "The seq up to which base holds everything now."]
    seq: Annotated[Count, "The seq up to which it would."]
    change_files: Annotated[Count, "Change files that would be folded."]
    change_rows: Annotated[Count, "Rows in them."]
    files_linked: Annotated[Count, "Files that become base files as they are."]
    files_rewritten: Annotated[Count, "Base files that would be written anew."]
    files_kept: Annotated[Count, "Base files that stay as they are."]
    bytes_read: Annotated[Bytes, "Bytes that would be read."]
    bytes_written: Annotated[Bytes, "Bytes that would be written, at most."]
    engine: Annotated[str, "Where it would run: none, local or spark.", Example("local")]
    why: Annotated[str, "What calls for it."]
    gain: Annotated[str, "What it would gain."]


@dataclass(frozen=True)
class FoldReport(Shown):
    """What a fold did. Row counts are exact."""

    table: OfTable
    seq: Annotated[Count, "The seq up to which base holds everything now."]
    base_rows: Annotated[int, "Rows of base before."] = 0
    change_rows: Annotated[Count, "Rows of the changes that were folded."] = 0
    inserted: Annotated[Count, "Rows that came."] = 0
    updated: Annotated[Count, "Rows that were replaced."] = 0
    deleted: Annotated[Count, "Rows that went."] = 0
    final_rows: Annotated[int, "Rows of base now."] = 0
    files_read: Annotated[Count, "Files that were read."] = 0
    files_written: Annotated[Count, "Files that were written."] = 0
    files_linked: Annotated[Count, "Files that became base files as they were."] = 0
    bytes_read: Annotated[Bytes, "Bytes that were read."] = 0
    bytes_written: Annotated[Bytes, "Bytes that were written."] = 0
    seconds: Annotated[Seconds, "How long it took."] = 0.0
    engine: Annotated[str, "Where it ran: none, local or spark.", Example("local")] = "none"
    problem: Annotated[str, "A change that nothing folds past, or empty."] = ""
    change_files: Annotated[Count, "Change files that were merged into base."] = 0
    tombstones: Annotated[Count, "Rows of them that say that a row is deleted."] = 0
    expired_rows: Annotated[Count, "Rows that it dropped because they had expired, of those that went."] = 0


def added(first: FoldReport, second: FoldReport) -> FoldReport:
    return replace(
        second,
        base_rows=first.base_rows,
        **{
            name: getattr(first, name) + getattr(second, name)
            for name in (
                "change_rows",
                "inserted",
                "updated",
                "deleted",
                "files_read",
                "files_written",
                "files_linked",
                "bytes_read",
                "bytes_written",
                "change_files",
                "tombstones",
            )
        },
    )


@dataclass(frozen=True)
class PlannedCompaction(Shown):
    """One job that would be run."""

    table: OfTable
    origin: Annotated[str, "The tier, pack or cluster: also the tier of the files it writes."]
    partition: Annotated[Mapping[str, str | None], "The partition whose files it takes."]
    files: Annotated[Count, "How many files it takes."]
    bytes_in: Annotated[Bytes, "Their bytes."]
    bytes_out: Annotated[Bytes, "Bytes that it would write."]
    gain: Annotated[str, "What it would gain."]
    why: Annotated[str, "What calls for it."]

    @property
    def file_count(self) -> int:
        return self.files

    def summary(self) -> PlannedCompaction:
        return self


@dataclass(frozen=True)
class CompactReport(Shown):
    """One job that was run. The same rows came out, in fewer files or in another order."""

    table: OfTable
    origin: Annotated[str, "The tier, pack or cluster."]
    partition: Annotated[Mapping[str, str | None], "The partition whose files it took."]
    files_read: Annotated[Count, "How many files it took."] = 0
    files_written: Annotated[Count, "How many they became."] = 0
    rows: Annotated[Count, "Rows in them."] = 0
    bytes_read: Annotated[Bytes, "Bytes that were read."] = 0
    bytes_written: Annotated[Bytes, "Bytes that were written."] = 0
    seconds: Annotated[Seconds, "How long it took."] = 0.0
    engine: Annotated[str, "Where it ran: none, local or spark.", Example("local")] = "none"
    halvings: Annotated[Count, "How often it was halved because memory ran out."] = 0
    problems: Annotated[tuple[str, ...], "Damaged files that were left out, and why."] = field(default=())


@dataclass(frozen=True)
class VacuumReport(Shown):
    """What went, or would go in a dry run."""

    table: OfTable
    dry_run: Annotated[bool, "True: nothing was deleted."]
    retain_hours: Annotated[float, "Versions of this many hours stay readable."]
    files: Annotated[Count, "Files that went, or would go."] = 0
    bytes_freed: Annotated[Bytes, "Their bytes; those with two names count with the last of them."] = 0
    orphans: Annotated[Count, "Those of them that no commit ever named."] = 0
    orphan_bytes: Annotated[Bytes, "Their bytes."] = 0
    kept_by_pins: Annotated[Count, "Files that a pinned snapshot keeps."] = 0
    kept_by_jobs: Annotated[Count, "Files that a running job keeps."] = 0
    paths: Annotated[tuple[str, ...], "Some of the files that went, or would go, below the table's folder."] = ()
    seconds: Annotated[Seconds, "How long it took."] = 0.0


@dataclass(frozen=True)
class ResultCacheStats(Shown):
    """Answers that are kept for the same query on unchanged tables."""

    count: Annotated[Count, "How many."]
    bytes: Annotated[Bytes, "Memory that they take."]
    hits: Annotated[Count, "Queries that were answered by them."]
    misses: Annotated[Count, "Queries that were not."]


@dataclass(frozen=True)
class HotTableStats(Shown):
    """A table, or some of its columns, in memory."""

    table: OfTable
    rows: Annotated[Count, "Its rows."]
    bytes: Annotated[Bytes, "Memory that it takes."]
    age_s: Annotated[Seconds, "How long ago it was loaded."]
    pinned: Annotated[bool, "Whether it stays until it is evicted."]
    seq: Annotated[Count, "The write counter up to which it is fresh."]
    columns: Annotated[tuple[str, ...], "The columns that are in memory."]
    hits: Annotated[Count, "Queries that it served."]


@dataclass(frozen=True)
class CacheStats(Shown):
    """The hot cache of this service."""

    bytes_max: Annotated[Bytes, "Memory that it may take; 0: there is no cache."]
    bytes: Annotated[Bytes, "Memory that it takes now."]
    hits: Annotated[Count, "Tables of queries that were read from memory."]
    misses: Annotated[Count, "Tables of queries that were read from files."]
    loads: Annotated[Count, "How often a table was loaded."]
    refreshes: Annotated[Count, "How often a loaded table took changes in."]
    evictions: Annotated[Count, "How often a table was given up."]
    answers: Annotated[ResultCacheStats, "Kept answers."]
    tables: Annotated[tuple[HotTableStats, ...], "What is in memory."]


@dataclass(frozen=True)
class Condition(Shown):
    """A condition, and what it is good for."""

    text: Annotated[str, "The condition.", Example("id = 7")]
    groups_ruled_out: Annotated[int, "Row groups that its bounds rule out.", Example(11)]


@dataclass(frozen=True)
class TableExplanation(Shown):
    """What a query would read of one table."""

    table: Annotated[str, "The table.", Example("shop.orders")]
    seq: Annotated[int, "The state that it would see.", Example(42)]
    changes_version: Annotated[int, "Version of the changes log."]
    base_version: Annotated[int, "Version of base."]
    files_total: Annotated[int, "Files there are."]
    files_read: Annotated[int, "Files that would be read."]
    groups_total: Annotated[int, "Row groups there are."]
    groups_read: Annotated[int, "Row groups that would be read."]
    bytes_total: Annotated[int, "Bytes of those files."]
    bytes_read: Annotated[int, "Bytes of the row groups that would be read."]
    files_unknown: Annotated[int, "Files that the index does not know; they count as one row group."]
    conditions: Annotated[tuple[Condition, ...], "Conditions of the query on this table."]
    otherwise_ruled_out: Annotated[int, "Row groups ruled out by bloom filters or partition values, at least."]
    note: Annotated[str | None, "Why nothing could be ruled out, or that the table is not read at all."]
    pending_files: Annotated[int, "Files of pending changes."]
    pending_rows: Annotated[int, "Pending changes."]
    pending_beside: Annotated[int, "Change files that stand beside base as they are."]
    resolved: Annotated[bool | None, "Pending changes are resolved already; null: too many for memory."]
    from_sidecar: Annotated[bool, "The index alone answers it."]
    hot: Annotated[bool, "Its rows are in memory, and no file is read."]


@dataclass(frozen=True)
class ErasurePlan(Shown):
    """What an erasure would do now."""

    table: OfTable
    keys: Annotated[int, "Keys that would be erased."]
    rows: Annotated[int, "Rows that have them now; the past may have others."]
    files: Annotated[int, "Files of rows in the table, all of which are looked at."]
    files_to_rewrite: Annotated[int, "Files that would be written anew without the rows, of all kept versions."]
    bytes_to_rewrite: Annotated[Bytes, "How large these are."]
    blocked_by: Annotated[tuple[str, ...], "Pins and tags that it would wait for, or break with `break_pins`."]
    oldest_after: Annotated[str, "What can be read afterwards."]


@dataclass(frozen=True)
class Verified(Shown):
    """What a look at a receipt says."""

    id: Annotated[str, "The erasure that it is about."]
    table: Annotated[str, "The table, as it was called then."]
    genuine: Annotated[bool, "Nothing in it was changed since it was signed."]
    by: Annotated[str, "The public key that signed it."]
    known_signer: Annotated[bool | None, "Whether that is the key that was expected; None: none was named."]
    subject: Annotated[bool | None, "Whether it is about the key that was named; None: none was."]
    problems: Annotated[tuple[str, ...], "What is wrong with it."]

    @property
    def ok(self) -> bool:
        return not self.problems
