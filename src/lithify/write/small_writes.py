"""The write path: rows → one winner per key → one Parquet file per operation → one commit with the next seq → fsync
→ acknowledge.

Many requests may share one commit and its seq. Those of a keyed table are composed in the order they came, so that the
commit still says one thing per key; each request keeps its own numbers, its own conditions and its own answer.

Everything a commit relies on is validated at the version it swaps, on every attempt: the table's incarnation and
columns, the requests' conditions (`conditions.py`), the vacuum epoch, the pending row key and what an adopted base is
known to demand. A request that does not hold drops out with its own error, and the others go on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lithify.core.arrow_rows import lies_in_order, sort_by
from lithify.core.missing_columns import check_frame
from lithify.core.ops import DELETES, Change, Op
from lithify.core.results import Commit
from lithify.core.rows import conform, fitted
from lithify.core.schema import TableSchema
from lithify.delta.actions import LogChange
from lithify.delta.changes import SEQ_TXN
from lithify.delta.commit_outcome import Lost
from lithify.errors import CommitUnknown, Conflict, InvalidRequest, LithifyError, Unavailable
from lithify.files.change_files import encoded_changes
from lithify.files.open_parquet import footer_in
from lithify.files.os_errors import InDoubt
from lithify.files.parquet import Written
from lithify.merge.partial import line_columns
from lithify.merge.winners import compose, latest_per_key
from lithify.metrics.log_lines import tell
from lithify.metrics.recent_events import RecentEvents
from lithify.tables.handles import Handles
from lithify.write.conditions import SeqMoved, Write

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What to write: at most one table of rows per operation, keys disjoint between them."""

    write: Write
    parts: Mapping[Op, pa.Table]

    @cached_property
    def rows(self) -> int:
        return sum(rows.num_rows for rows in self.parts.values())

    @cached_property
    def bytes(self) -> int:
        return sum(rows.nbytes for rows in self.parts.values())

    def alone(self, keyed: bool) -> bool:
        """Whether it must not share a commit: a condition says so, or a delete must not meet appends."""
        return self.write.alone or (not keyed and Op.DELETE in self.parts)


def one_row_per_key(schema: TableSchema, rows: pa.Table, op: Op) -> pa.Table:
    """In the order of the keys, which the file will have: then equal ones are neighbours."""
    if schema.keyed:
        in_order = sort_by(rows, schema.key)
        return in_order if lies_in_order(in_order, schema.key) else latest_per_key(schema, rows, op)
    if op is not Op.DELETE:
        return rows
    names = rows.column_names
    return sort_by(rows.group_by(names).aggregate([]).select(names).cast(rows.schema), names)


class Writer:
    """`on_written` is told the path and rows of each file that is committed and durable."""

    def __init__(self, handles: Handles, on_written: Callable[[str, pa.Table], None] = lambda path, rows: None) -> None:
        self._handles, self._on_written = handles, on_written
        self._runtime = handles.runtime

    def prepare(self, request: Request) -> Request:
        """The part that needs no lock: one row per key."""
        schema = self._handles.changes.schema
        parts = {op: one_row_per_key(schema, rows, op) for op, rows in request.parts.items()}
        return replace(request, parts=parts)

    @property
    def stages_ahead(self) -> bool:
        """Whether it is worth while to stage a group while another is being committed: where files travel."""
        return self._runtime.store.remote

    def stage(self, requests: Sequence[Request]) -> Group:
        """Write the files of prepared requests before their commit can begin, as if all of them will be admitted and
        nothing moves until then. `write_all` looks whether that holds, and else writes them again.
        """
        group, schema = Group.of(requests), self._handles.changes.schema
        try:
            for entry in group.entries:
                entry.fit(schema)
            self._stage(list(group.entries), schema, group.staged)
        except Exception as error:
            logger.info("a group of writes to %s is staged when it is committed: %s", self._handles.name, error)
            self._discard(group.staged)
        return group

    def write_all(self, requests: Sequence[Request], ahead: Group | None = None) -> list[Commit | BaseException]:
        """Prepared requests in one commit: an answer or an error for each, in their order. No two of them are
        remembered by the same name. `ahead`: what was staged for them.
        """
        whole = ahead or Group.of(requests)
        group = whole.entries
        with self._handles.changes.log.lock:
            try:
                self._commit(group, whole.staged)
            except BaseException as error:
                # Nothing is committed yet, so each may be tried alone: one must not fail the others.
                split = len(group) > 1 and isinstance(error, Exception) and not isinstance(error, CommitUnknown)
                for entry in (entry for entry in group if entry.outcome is None):
                    entry.outcome = self.write_all([entry.request])[0] if split else error
        return [entry.answer() for entry in group]

    def _commit(self, group: Sequence[_Entry], staged: _Staged) -> None:
        handles = self._handles
        doing = group[0].write.operation if len(group) == 1 else f"a group of {len(group)} writes"
        done = handles.commit(
            handles.changes.log,
            f"{doing} on",
            lambda: self._build(group, staged),
            discard=lambda: self._discard(staged),
            point="write",
            look=False,
        )
        if done is None:
            return
        seq = done.change.txns[SEQ_TXN]
        for entry in staged.members:
            entry.outcome = entry.write.commit(str(handles.name), seq, entry.upserted, entry.deleted)
        rows = sum(e.upserted + e.deleted for e in staged.members)
        self._runtime.activity.committed(len(staged.members), rows)
        self._runtime.shared(RecentEvents).wrote(str(self._handles.name), seq, rows)
        self._tell(seq, staged)
        for (file, _), rows in zip(staged.files, staged.rows, strict=True):
            self._on_written(file.path, rows)

    def _tell(self, seq: int, staged: _Staged) -> None:
        members = staged.members
        operations = sorted({entry.write.operation for entry in members})
        tell(
            logger,
            "write done",
            table=str(self._handles.name),
            seq=seq,
            operation=",".join(operations),
            writes=len(members),
            upserted=sum(entry.upserted for entry in members),
            deleted=sum(entry.deleted for entry in members),
            bytes=sum(file.size_bytes for file, _ in staged.files),
        )

    def _build(self, group: Sequence[_Entry], staged: _Staged) -> LogChange | None:
        """The commit of those that are admitted at this version, if any."""
        changes = self._handles.changes
        schema = changes.schema
        members = self._admit(group, schema)
        if not members:
            return None
        if (staged.epoch, staged.columns) != (changes.epoch, schema.columns) or staged.members != members:
            self._stage(members, schema, staged)
        txns = {name: value for entry in members for name, value in entry.write.txns(changes.seq + 1).items()}
        return changes.added(staged.files, txns, _info(members, self._runtime.settings.actor))

    def _admit(self, group: Sequence[_Entry], schema: TableSchema) -> list[_Entry]:
        """Who is part of the commit at this version. The others have their answer."""
        members: list[_Entry] = []
        for entry in group:
            if entry.outcome is not None:
                continue
            try:
                entry.outcome = self._check(entry, schema)
            except Lost:
                raise  # what it relies on is no longer in the log: look again at the head
            except Exception as error:
                entry.outcome = error
            if entry.outcome is None:
                members.append(entry)
        return members

    def _check(self, entry: _Entry, schema: TableSchema) -> Commit | None:
        if (answer := entry.write.before(self._handles.changes)) is not None:
            return answer
        self._handles.base.check_writable(schema)
        if Op.DELETE in entry.parts and not schema.keyed:
            self._check_row_key(entry.request)
        entry.fit(schema)
        return None

    def _stage(self, members: list[_Entry], schema: TableSchema, staged: _Staged) -> None:
        """Write the files, or write them again: the members, the columns or the vacuum epoch moved since."""
        changes, store = self._handles.changes, self._runtime.store
        self._discard(staged)
        staged.epoch, staged.columns, staged.members = changes.epoch, schema.columns, members
        for op, rows in _together(schema, members).items():
            data, stats = encoded_changes(schema, op, rows)
            name = f"write-{self._runtime.new_id()}.parquet"
            try:
                store.create(changes.log.path / name, data)
            except InDoubt as error:
                # Nothing names the file before the commit: one that is there after all is an orphan.
                raise Unavailable(f"{error.__cause__ or error}; nothing was written to the table: try again") from error
            staged.files.append((Written(name, len(data), rows.num_rows, stats, footer_in(data)), op))
            staged.rows.append(rows)
        store.sync_folder(changes.log.path)
        store.step("write.files")

    def _discard(self, staged: _Staged) -> None:
        """What cannot be removed now is an orphan, which vacuum takes."""
        for file, _ in staged.files:
            with contextlib.suppress(LithifyError):
                self._runtime.store.delete(self._handles.changes.log.path / file.path)
        staged.files.clear()
        staged.rows.clear()
        staged.members = []

    def _check_row_key(self, request: Request) -> None:
        """On a table with no key, pending tombstones all go by the same columns."""
        changes = self._handles.changes
        by = set(request.parts[Op.DELETE].column_names)
        for file in changes.files():
            if file.op is Op.DELETE and set(file.columns) != by:
                self._handles.base.log.refresh()
                watermark = self._handles.base.watermark
                if file.seq > watermark:
                    raise InvalidRequest(
                        f"table {self._handles.name} has pending deletes by {', '.join(sorted(file.columns))}; a "
                        "delete by "
                        f"{', '.join(sorted(by))} has to wait: fold the table first, or delete by the same columns"
                    )


def _together(schema: TableSchema, members: Sequence[_Entry]) -> Mapping[Op, pa.Table]:
    """The rows of all members, at most one table per operation."""
    if len(members) == 1:
        parts = members[0].parts
        return {op: sort_by(rows, schema.key) for op, rows in parts.items()} if schema.keyed else parts
    if schema.keyed:
        return compose(schema, [Change(0, op, rows) for entry in members for op, rows in entry.parts.items()])
    return {Op.UPSERT: pa.concat_tables([entry.parts[Op.UPSERT] for entry in members])}


def _info(members: Sequence[_Entry], actor: str) -> dict[str, Any]:
    """What history and replay need to know: of one write as it is, of several each in `writes`."""
    writes = [entry.write.said(entry.upserted, entry.deleted, actor) for entry in members]
    if len(writes) == 1:
        return writes[0]
    totals = {name: sum(write[name] for write in writes) for name in ("rows", "upserted", "deleted")}
    return {"operation": "write", **totals, "actor": actor, "writes": writes}


class _Entry:
    """A request on its way through one group."""

    def __init__(self, request: Request) -> None:
        self.request, self.write, self.parts = request, request.write, request.parts
        self.outcome: Commit | BaseException | None = None
        self.deleted = sum(rows.num_rows for op, rows in request.parts.items() if op in DELETES)
        self.upserted = request.rows - self.deleted

    def fit(self, schema: TableSchema) -> None:
        """Bring the rows to the columns that the table has now."""
        parts = {}
        for op, rows in self.parts.items():
            if op is Op.DELETE and (gone := [name for name in rows.column_names if name not in schema.names]):
                raise Conflict(
                    f"column {gone[0]!r} of the table was renamed or dropped while rows were to be deleted by it; "
                    "nothing was deleted: look at the columns, then delete again"
                )
            wanted = schema.select(rows.column_names) if op is Op.DELETE else line_columns(schema, op)
            whole = op in (Op.UPSERT, Op.REPLACE)
            if rows.schema == wanted:
                parts[op] = rows
            elif whole and self.write.relies_on_seq and not schema.column_defaults.keys() <= set(rows.column_names):
                raise SeqMoved  # a default is for new rows, and these may be there already: look again
            else:
                parts[op] = fitted(rows, schema) if whole else conform(rows, wanted)
            if self.write.complete and whole:
                check_frame(rows.column_names, schema, sets=True)  # of lines that give some columns nothing is lost
        self.parts = parts

    def answer(self) -> Commit | BaseException:
        assert self.outcome is not None, "a group that ends has answered everybody"
        return self.outcome


@dataclass
class _Staged:
    """The files of one commit, and for whom and at which state they were written."""

    files: list[tuple[Written, Op]] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    members: list[_Entry] = field(default_factory=list)
    epoch: int = -1
    columns: pa.Schema | None = None


@dataclass(frozen=True)
class Group:
    """Requests that share a commit, and what is staged for it."""

    entries: Sequence[_Entry]
    staged: _Staged = field(default_factory=_Staged)

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Group:
        return cls([_Entry(request) for request in requests])
