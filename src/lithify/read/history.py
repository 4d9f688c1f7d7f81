"""What happened to a table, told from its two logs."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from heapq import merge
from pathlib import PurePath
from typing import Any, TypeVar

import pyarrow as pa

from lithify.core.column_changes import ColumnChange, Reshape, after, given_since, stood_as
from lithify.core.names import GIVEN, OP, SEQ, names_given
from lithify.core.ops import Op
from lithify.core.results import HistoryEntry, Log, TableStats
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Snapshot
from lithify.delta.changes import ERASURE_TXN, FORGOTTEN
from lithify.delta.log import CommitRecord
from lithify.errors import InvalidRequest, LimitExceeded, NotFound
from lithify.files.local_files import bring
from lithify.files.open_parquet import open_file
from lithify.files.parquet import read
from lithify.files.read_proof import Vanished
from lithify.tables.handles import Handles

# Of one commit that a page of changes has to hold as a whole.
PAGE_COMMIT_ROWS_MAX = 2_000_000
SHOWN_GIVEN = "_given"
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
        found = [
            entry
            for entry in found
            if entry.operation not in ("create table", "add column", "change columns", "drop table")
        ]
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
    """The original adds of the changes log after `since`: folds and compactions contribute nothing. Where updates are
    among them, `_given` lists the columns that each of those gives.
    """
    found = incremental_up_to(handles, since, None)
    assert found is not None
    return _shown(found)


def _shown(changes: pa.Table) -> pa.Table:
    if GIVEN not in changes.column_names:
        return changes
    texts = changes.column(GIVEN).combine_chunks().dictionary_encode()
    lists = pa.array([names_given(text) for text in texts.dictionary.to_pylist()], pa.list_(pa.string()))
    return changes.drop_columns([GIVEN]).append_column(SHOWN_GIVEN, lists.take(texts.indices))


def incremental_up_to(handles: Handles, since: int, rows_max: int | None) -> pa.Table | None:
    """None if there are more rows than that."""
    found = originals(handles, since)
    tables, total = [found.columns.empty_table()], 0
    _bring(handles, found, rows_max)
    for seq, add in found.adds:
        try:
            rows = load(handles, found, seq, add, rows_max=None if rows_max is None else rows_max - total)
        except LimitExceeded:
            return None
        total += rows.num_rows
        tables.append(rows)
    return pa.concat_tables(tables, promote_options="default")


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
    _bring(handles, found, rows_max)
    for seq, add in found.adds:
        if total >= rows_max and seq > last:
            return ChangesPage(_page(tables), last, more=True)
        rows = load(handles, found, seq, add, rows_max=PAGE_COMMIT_ROWS_MAX)
        tables.append(rows)
        total, last = total + rows.num_rows, seq
    return ChangesPage(_page(tables), found.newest, more=False)


def _page(tables: list[pa.Table]) -> pa.Table:
    return _shown(pa.concat_tables(tables, promote_options="default"))


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
    forgetting: tuple[int, ...] = ()  # seqs after which deletes with an order value were forgotten
    erased: tuple[int, ...] = ()  # seqs of deletes that an erasure has taken out of the past, with their rows
    history: tuple[ColumnChange, ...] = ()  # of the columns

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
        schema, newest, history = handles.changes.schema, handles.changes.seq, handles.changes.column_history
        if isinstance(since, bool) or not isinstance(since, int) or since > newest or since < 0:
            raise InvalidRequest(f"since is a seq from 0 to {newest} of table {handles.name}, not {since!r}")
        since = max(since, handles.changes.created_at_seq)
        last = newest if until is None else until
        records: Iterator[CommitRecord] = iter(())
        if since < last:
            first = handles.changes.record_of_seq(since + 1).version
            records = handles.changes.log.commit_records(first - 1)
        adds: list[tuple[int, Mapping[str, Any]]] = []
        forgetting: list[int] = []
        erased: list[int] = []
        rows = 0
        for record in records:
            seq = record.info.get("seq")
            if isinstance(seq, int) and since < seq < last and FORGOTTEN in record.info:
                forgetting.append(seq)
            if not isinstance(seq, int) or seq <= since or not add_is_original(record):
                continue
            if seq > last:
                break
            if not record.adds and any(name.startswith(ERASURE_TXN) for name in record.txns):
                erased.append(seq)
            adds += [(seq, add) for add in record.adds]
            if rows_enough is None:
                continue
            rows += sum(rows_of(add) for add in record.adds)
            if rows >= rows_enough:
                last = seq
                break
    cuts = tuple(sorted({seq for seq in forgetting if seq < last}))
    return Originals(since, last, newest, schema, adds, cuts, tuple(erased), history)


def _bring(handles: Handles, found: Originals, rows_max: int | None) -> None:
    """Fetch the files of the first so many rows together, where they lie far away."""
    if not handles.runtime.store.remote:
        return
    wanted, rows = [], 0
    for _, add in found.adds:
        wanted.append((handles.changes.log.path / add["path"], int(add["size"])))
        rows += rows_of(add)
        if rows_max is not None and rows >= rows_max:
            break
    with contextlib.suppress(Vanished):  # whoever reads it says what that means
        bring(wanted)


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
        inside, later = file.schema_arrow.names, after(found.history, seq)
        columns = pa.schema([f for f in found.columns if f.name in found.names and _is_in(inside, f, later)])
        if op is Op.UPDATE:
            columns = columns.append(pa.field(GIVEN, pa.string()))
        rows = read_as_now(path, columns, int(add["size"]), later)
    except Vanished:
        raise NotFound(
            f"changes of table {handles.name} after seq {found.since} are no longer complete: vacuum has removed "
            f"{path.name}; start again from a full read, then from seq {found.newest}"
        ) from None
    rows = rows.append_column(SEQ, pa.repeat(pa.scalar(seq, pa.int64()), rows.num_rows))
    rows = rows.append_column(OP, pa.repeat(pa.scalar(op.value), rows.num_rows))
    return pa.concat_tables([found.columns.empty_table(), rows], promote_options="default")


def _is_in(inside: Sequence[str], column: pa.Field, later: Sequence[ColumnChange]) -> bool:
    origin = stood_as(column, later)
    return origin is not None and origin.name in inside


def read_as_now(path: PurePath, columns: pa.Schema, size_bytes: int, later: Sequence[ColumnChange]) -> pa.Table:
    """A change file in these columns of today; `later`: how the columns have changed since it was written."""
    if not later:
        return read(path, columns, size_bytes=size_bytes)
    reshape = Reshape.of(columns, later)
    rows = reshape.apply(read(path, reshape.stored, size_bytes=size_bytes))
    if GIVEN in rows.column_names:
        coded = rows.column(GIVEN).combine_chunks().dictionary_encode()
        texts = [given_since(text, later) for text in coded.dictionary.to_pylist()]
        given = pa.array(texts, pa.string()).take(coded.indices)
        rows = rows.set_column(rows.column_names.index(GIVEN), columns.field(GIVEN), given)
    return rows


def add_is_original(record: CommitRecord) -> bool:
    """A write adds with dataChange; a rewrite of changes does not."""
    return all(add.get("dataChange", True) for add in record.adds)


def stats_of(snapshot: Snapshot, kind: type[Stats]) -> Stats:
    """What a snapshot says by the same names."""
    return kind(**{each.name: getattr(snapshot, each.name) for each in fields(kind)})
