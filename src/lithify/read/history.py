"""What happened to a table, told from its two logs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from heapq import merge
from typing import Any, TypeVar

import pyarrow as pa

from lithify.core.names import OP, SEQ
from lithify.core.ops import Op
from lithify.core.results import HistoryEntry, Log, TableStats
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.delta.log import CommitRecord
from lithify.errors import InvalidRequest, LimitExceeded, NotFound
from lithify.files.open_parquet import open_file
from lithify.files.parquet import read
from lithify.files.read_proof import Vanished
from lithify.tables.handles import Handles

# Of one commit that a page of changes has to hold as a whole.
PAGE_COMMIT_ROWS_MAX = 2_000_000
Stats = TypeVar("Stats", bound=TableStats)


def history_of(handles: Handles, limit: int | None) -> list[HistoryEntry]:
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit must be at least 1, not {limit}")
    handles.changes.log.refresh()
    handles.check_alive()
    handles.base.log.refresh()
    entries = merge(
        _entries(handles, "changes", limit),
        _entries(handles, "base", limit),
        key=lambda e: (e.time, e.log == "changes"),
        reverse=True,
    )
    shown = [entry for entry in entries if entry.operation != "remove folded"]
    return shown[:limit] if limit else shown


def _entries(handles: Handles, which: Log, limit: int | None) -> list[HistoryEntry]:
    log = handles.changes.log if which == "changes" else handles.base.log
    # Not those of a table that was dropped at the same path before.
    versions = handles.changes.versions() if which == "changes" else [v for v in log.versions() if v <= log.version]
    # Removals of folded changes are not shown, so a few more commits than `limit` may be needed.
    chosen = versions[-2 * limit - 10 :] if limit else versions
    found = [entry for v in reversed(chosen) for entry in _of_commit(log.commit_record(v), which)]
    if which == "base":
        found = [entry for entry in found if entry.operation not in ("create table", "add column", "drop table")]
    return found


def _of_commit(record: CommitRecord, which: Log) -> list[HistoryEntry]:
    """One entry per write, newest first: several writers may have shared the commit."""
    writes = record.info.get("writes")
    if not writes:
        return [_entry(record, which, record.info)]
    return [_entry(record, which, {"seq": record.info.get("seq"), **write}) for write in reversed(writes)]


def _entry(record: CommitRecord, which: Log, info: Mapping[str, Any]) -> HistoryEntry:
    return HistoryEntry(
        time=dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC),
        log=which,
        version=record.version,
        operation=info.get("operation", "foreign commit"),
        seq=info.get("seq", info.get("watermark")),
        rows=info.get("rows"),
        actor=info.get("actor"),
        reason=info.get("reason"),
        batch_id=info.get("batch_id"),
        detail=info.get("condition") or info.get("column") or info.get("detail"),
    )


def incremental(handles: Handles, since: int) -> pa.Table:
    """The original adds of the changes log after `since`: folds and compactions contribute nothing."""
    found = incremental_up_to(handles, since, None)
    assert found is not None
    return found


def incremental_up_to(handles: Handles, since: int, rows_max: int | None) -> pa.Table | None:
    """None if there are more rows than that."""
    found = originals(handles, since)
    tables, total = [found.columns.empty_table()], 0
    for seq, add in found.adds:
        try:
            rows = load(handles, found, seq, add, rows_max=None if rows_max is None else rows_max - total)
        except LimitExceeded:
            return None
        total += rows.num_rows
        tables.append(rows)
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class ChangesPage:
    """Changes up to the seq `next`, from which to go on. `more`: there are some already."""

    rows: pa.Table
    next: int
    more: bool


def changes_page(handles: Handles, since: int, rows_max: int) -> ChangesPage:
    """Whole commits, as many as it takes for `rows_max` rows; never less than one, which is refused if it is huge."""
    found = originals(handles, since)
    tables, total, last = [found.columns.empty_table()], 0, since
    for seq, add in found.adds:
        if total >= rows_max and seq > last:
            return ChangesPage(pa.concat_tables(tables), last, more=True)
        rows = load(handles, found, seq, add, rows_max=PAGE_COMMIT_ROWS_MAX)
        tables.append(rows)
        total, last = total + rows.num_rows, seq
    return ChangesPage(pa.concat_tables(tables), found.newest, more=False)


@dataclass(frozen=True)
class Originals:
    """The files of the original commits after `since` up to `until`, oldest first, and the columns that their rows have
    today. `newest` is the seq of the table.
    """

    since: int
    until: int
    newest: int
    schema: TableSchema
    adds: list[tuple[int, Mapping[str, Any]]]

    @cached_property
    def columns(self) -> pa.Schema:
        user = self.schema.columns.remove_metadata()
        columns = [*user, pa.field(SEQ, pa.int64()), pa.field(OP, pa.string())]
        return pa.schema([f.with_nullable(True) for f in columns])

    @property
    def names(self) -> list[str]:
        return self.schema.names


def originals(
    handles: Handles, since: int, until: int | None = None, rows_enough: int | None = None, *, look: bool = True
) -> Originals:
    """Whole commits. With `rows_enough`, no more of them than it takes for so many rows: `until` then says how far.
    Without `look` they are those that the handles know.
    """
    with handles.changes.log.lock:
        if look:
            handles.schema()
        schema, newest = handles.changes.schema, handles.changes.seq
        if isinstance(since, bool) or not isinstance(since, int) or since > newest or since < 0:
            raise InvalidRequest(f"since is a seq from 0 to {newest} of table {handles.name}, not {since!r}")
        since = max(since, handles.changes.created_at_seq)
        last = newest if until is None else until
        records: Iterator[CommitRecord] = iter(())
        if since < last:
            first = handles.changes.record_of_seq(since + 1).version
            records = handles.changes.log.commit_records(first - 1)
        adds: list[tuple[int, Mapping[str, Any]]] = []
        rows = 0
        for record in records:
            seq = record.info.get("seq")
            if not isinstance(seq, int) or seq <= since or not add_is_original(record):
                continue
            if seq > last:
                break
            adds += [(seq, add) for add in record.adds]
            if rows_enough is None:
                continue
            rows += sum(rows_of(add) for add in record.adds)
            if rows >= rows_enough:
                last = seq
                break
    return Originals(since, last, newest, schema, adds)


def rows_of(add: Mapping[str, Any]) -> int:
    return int(json.loads(add["stats"])["numRecords"])


def load(handles: Handles, found: Originals, seq: int, add: Mapping[str, Any], rows_max: int | None = None) -> pa.Table:
    path = handles.changes.log.path / add["path"]
    op = Op(add["partitionValues"][OP])
    try:
        file = open_file(path, int(add["size"]))
        count = file.metadata.num_rows
        if rows_max is not None and count > rows_max:
            raise LimitExceeded(
                f"write {seq} of table {handles.name} has {count:,} rows, more than {rows_max:,}: read the table as of "
                f"seq {seq} instead, then go on with changes since {seq}",
                limit="rows",
            )
        inside = file.schema_arrow.names
        columns = pa.schema([found.columns.field(n) for n in found.names if n in inside])
        rows = read(path, columns, size_bytes=int(add["size"]))
    except Vanished:
        raise NotFound(
            f"changes of table {handles.name} after seq {found.since} are no longer complete: vacuum has removed "
            f"{path.name}; start again from a full read, then from seq {found.newest}"
        ) from None
    rows = rows.append_column(SEQ, pa.repeat(pa.scalar(seq, pa.int64()), rows.num_rows))
    rows = rows.append_column(OP, pa.repeat(pa.scalar(op.value), rows.num_rows))
    return pa.concat_tables([found.columns.empty_table(), rows], promote_options="default")


def add_is_original(record: CommitRecord) -> bool:
    """A write adds with dataChange; a rewrite of changes does not."""
    return all(add.get("dataChange", True) for add in record.adds)


def stats_of(snapshot: Snapshot, kind: type[Stats]) -> Stats:
    """What a snapshot says by the same names."""
    return kind(**{each.name: getattr(snapshot, each.name) for each in fields(kind)})
