"""The write path: rows → one winner per key → one Parquet file per operation → one commit with the next seq → fsync
→ acknowledge.

Everything a commit relies on is validated at the version it swaps, on every attempt: the table's incarnation and
columns, the batch id, the vacuum epoch, the pending row key, and for `delete_where` the seq its keys were found at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lithify.engine.attempts import swap_with_retries
from lithify.engine.handles import Handles
from lithify.errors import CommitUnknown, InvalidRequest, LithifyError, NotFound
from lithify.log.changes import batch_txn
from lithify.model.batch import conform, latest_per_key
from lithify.model.merge import Op
from lithify.model.schema import TableSchema
from lithify.store.parquet import Layout, Written, encode

BATCH_ID_LENGTH_MAX = 256


@dataclass(frozen=True)
class Commit:
    """An acknowledged write. `replayed`: the batch id had been committed before, and this is that answer."""

    table: str
    seq: int
    operation: str
    rows: int
    upserted: int = 0
    deleted: int = 0
    batch_id: str | None = None
    replayed: bool = False


@dataclass(frozen=True)
class Request:
    """What to write: at most one table of rows per operation, keys disjoint between them."""

    operation: str
    parts: Mapping[Op, pa.Table]
    batch_id: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    txns: Mapping[str, int] = field(default_factory=dict)
    only_at_seq: int | None = None

    def __post_init__(self) -> None:
        check_batch_id(self.batch_id)


def check_batch_id(batch_id: str | None) -> None:
    if batch_id is not None and not 0 < len(batch_id) <= BATCH_ID_LENGTH_MAX:
        raise InvalidRequest(f"batch_id must have 1 to {BATCH_ID_LENGTH_MAX} characters")


class SeqMoved(Exception):
    """The table changed since the request was prepared. Internal: the caller evaluates again."""


def one_row_per_key(schema: TableSchema, rows: pa.Table, op: Op) -> pa.Table:
    if schema.keyed:
        return latest_per_key(rows, schema.key, schema.order_by if op is not Op.DELETE else None)
    return latest_per_key(rows, rows.column_names) if op is Op.DELETE else rows


class Writer:
    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._runtime = handles.runtime

    def write(self, request: Request) -> Commit:
        handles, runtime = self._handles, self._runtime
        changes, store = handles.changes, runtime.store
        with changes.log.lock:
            parts = {op: one_row_per_key(changes.schema, rows, op) for op, rows in request.parts.items()}
            prepared = replace(request, parts=parts)
            staged = _Staged()
            try:
                commit = swap_with_retries(
                    runtime,
                    changes.log,
                    f"{request.operation} on {handles.name}",
                    lambda: self._attempt(prepared, staged),
                )
            except CommitUnknown:
                raise
            except (LithifyError, SeqMoved):
                # Surely not committed, so nothing refers to the files. After anything else they stay:
                # the commit may stand.
                self._discard(staged)
                raise
            if commit.replayed:
                self._discard(staged)
                return commit
            store.step("write.committed")
            changes.log.make_durable()
            store.step("write.durable")
            changes.log.checkpoint_if_due()
            return commit

    def _attempt(self, request: Request, staged: _Staged) -> Commit:
        handles = self._handles
        changes = handles.changes
        handles.check_alive()
        if request.batch_id is not None and (replayed := self.replay(request.operation, request.batch_id)) is not None:
            return replayed
        if request.only_at_seq is not None and request.only_at_seq != changes.seq:
            raise SeqMoved
        self._check_row_key(request)
        if staged.epoch != changes.epoch or staged.columns != changes.schema.columns:
            self._stage(request, staged)
        counts = {op: rows.num_rows for op, rows in request.parts.items()}
        upserted = sum(count for op, count in counts.items() if op is not Op.DELETE)
        deleted = counts.get(Op.DELETE, 0)
        info = {
            "operation": request.operation,
            "rows": upserted + deleted,
            "upserted": upserted,
            "deleted": deleted,
            "actor": self._runtime.settings.actor,
            **({"batch_id": request.batch_id} if request.batch_id else {}),
            **request.info,
        }
        txns = dict(request.txns)
        if request.batch_id is not None:
            txns[batch_txn(request.batch_id)] = changes.seq + 1
        self._runtime.store.step("write.staged")
        seq = changes.commit(staged.files, txns, info, staged.write_id)
        return Commit(
            str(handles.name), seq, request.operation, upserted + deleted, upserted, deleted, request.batch_id
        )

    def _stage(self, request: Request, staged: _Staged) -> None:
        """Write the files, or write them again: the columns or the vacuum epoch moved since."""
        changes, store = self._handles.changes, self._runtime.store
        schema = changes.schema
        self._discard(staged)
        staged.epoch, staged.columns = changes.epoch, schema.columns
        staged.write_id = self._runtime.new_id()
        for op, rows in request.parts.items():
            wanted, layout = schema.columns, Layout.of(schema)
            if op is Op.DELETE:
                # The log must say by which columns a tombstone goes, whichever they are.
                wanted = schema.select(rows.column_names)
                layout = replace(layout, stats_columns=tuple(rows.column_names))
            data, stats = encode(rows if rows.schema == wanted else conform(rows, wanted), layout)
            name = f"write-{self._runtime.new_id()}.parquet"
            store.write_new(changes.log.path / name, data)
            staged.files.append((Written(name, len(data), rows.num_rows, stats), op))
        store.sync_folder(changes.log.path)
        store.step("write.files")

    def _discard(self, staged: _Staged) -> None:
        for file, _ in staged.files:
            with contextlib.suppress(LithifyError):
                self._runtime.store.remove(self._handles.changes.log.path / file.path)
        staged.files.clear()

    def _check_row_key(self, request: Request) -> None:
        """On a table with no key, pending tombstones all go by the same columns."""
        changes = self._handles.changes
        if changes.schema.keyed or Op.DELETE not in request.parts:
            return
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

    def replay(self, operation: str, batch_id: str) -> Commit | None:
        """The answer that this batch id got the first time, if it was committed."""
        changes = self._handles.changes
        seq = changes.log.txn(batch_txn(batch_id))
        if seq is None or seq <= changes.created_at_seq:
            return None
        # A rival may have committed this batch and died before its fsync: our answer acknowledges it too.
        changes.log.make_durable()
        try:
            info = changes.record_of_seq(seq).info
        except NotFound:
            info = {}
        return Commit(
            str(self._handles.name),
            seq,
            info.get("operation", operation),
            info.get("rows", -1),
            info.get("upserted", -1),
            info.get("deleted", -1),
            batch_id,
            replayed=True,
        )


@dataclass
class _Staged:
    files: list[tuple[Written, Op]] = field(default_factory=list)
    epoch: int = -1
    columns: pa.Schema | None = None
    write_id: str = ""
