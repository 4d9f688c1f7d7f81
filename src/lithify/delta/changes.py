"""The changes log: where every write lands, and the only giver of seqs.

`txn("lithify.seq", n)` is the newest seq; the next write is n+1, read at the version being swapped. Never from the
files that happen to be there: after a fold there may be none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from lithify.core.column_changes import ColumnChange, history_of
from lithify.core.names import OP, SEQ
from lithify.core.ops import Op
from lithify.core.schema import COLUMN_HISTORY, TableSchema, from_properties
from lithify.core.snapshot import DataFile
from lithify.delta.actions import LogChange
from lithify.delta.archive import LogLimits
from lithify.delta.head import Definition
from lithify.delta.log import CommitRecord, DeltaLog
from lithify.delta.own_commits import SEQ_TXN as SEQ_TXN
from lithify.errors import Corruption, NotFound
from lithify.files.parquet import Written
from lithify.files.storage import Storage

EPOCH_TXN = "lithify.vacuum"
ERASURE_TXN = "lithify.erase."  # of the delete that an erasure begins with: its id follows
DROPPED = "lithify.dropped"
CLAIMED = "lithify.claimed"  # dropped, because it is being created: by whom
CREATED_AT_SEQ = "lithify.created_at_seq"
CREATED_AT_VERSION = "lithify.created_at_version"
BASE_PATH = "lithify.base_path"
FORGOTTEN = "forgotten"  # in a commit: how many deletes with an order value keep nothing out any more
LIVE_COMMITS_MIN, LIVE_COMMITS_MAX = 200, 500


def job_txn(job_id: str) -> str:
    return f"lithify.job.{job_id}"


class ChangesLog:
    def __init__(self, log: DeltaLog, table: str, defaults: Mapping[str, Any] | None = None) -> None:
        """`defaults`: the lake's values for options that the table does not set."""
        self.log, self.table, self._defaults = log, table, defaults or {}
        self._schema: tuple[Definition, TableSchema] | None = None
        self._limits: tuple[TableSchema, LogLimits] | None = None

    @classmethod
    def open(
        cls,
        path: PurePath,
        store: Storage,
        table: str,
        checkpoint_every: int,
        defaults: Mapping[str, Any] | None = None,
        listed: Callable[[], object] = lambda: None,
    ) -> ChangesLog:
        log = DeltaLog.open(path, store, checkpoint_every=checkpoint_every, listed=listed)
        changes = cls(log, table, defaults)
        changes.log.limits = changes.limits
        return changes

    def limits(self) -> LogLimits:
        """How short this log is kept. Every write is a commit here, and nobody else reads it: old ones are archived."""
        schema, known = self.schema, self._limits
        if known is None or known[0] is not schema:
            found = self.base_limits(ours=True)
            known = schema, replace(found, live_commits_min=LIVE_COMMITS_MIN, live_commits_max=LIVE_COMMITS_MAX)
            self._limits = known
        return known[1]

    def base_limits(self, *, ours: bool) -> LogLimits:
        """How short the log of base is kept. One that is not `ours` alone is not trimmed."""
        options = self.schema.options
        retain_hours = options["log_retain_hours"] if ours else None
        return LogLimits(options["checkpoint_every"], retain_hours, options["log_commits_max"])

    @property
    def seq(self) -> int:
        return max(self.log.txn(SEQ_TXN) or 0, self.created_at_seq)

    @property
    def epoch(self) -> int:
        return self.log.txn(EPOCH_TXN) or 0

    @property
    def dropped(self) -> bool:
        return self.log.properties.get(DROPPED) == "true"

    @property
    def claimed(self) -> bool:
        return bool(self.log.properties.get(CLAIMED))

    @property
    def schema(self) -> TableSchema:
        said, known = self.log.definition, self._schema
        if known is None or known[0] is not said:
            schema = from_properties(plain_types(said.columns), said.properties, f"table {self.table}")
            known = self._schema = (said, replace(schema, defaults=self._defaults))
        return known[1]

    @property
    def column_history(self) -> tuple[ColumnChange, ...]:
        """How the columns came to be what they are, oldest change first."""
        return history_of(self.log.properties.get(COLUMN_HISTORY))

    @property
    def created_at_seq(self) -> int:
        return int(self.log.properties.get(CREATED_AT_SEQ, "0"))

    def files(self) -> tuple[DataFile, ...]:
        schema = self.schema
        return self.log.files([*schema.key, *schema.order_columns, *filter(None, (schema.time,)), *schema.partition_by])

    def added(self, files: Sequence[tuple[Written, Op]], txns: Mapping[str, int], info: Mapping[str, Any]) -> LogChange:
        """Files under the next seq."""
        seq = self.seq + 1
        adds = [(file, {SEQ: str(seq), OP: op.value}) for file, op in files]
        return LogChange({**info, "seq": seq}, adds, txns={SEQ_TXN: seq, **txns}, data_change=True)

    # -- time travel

    def record_of_seq(self, seq: int) -> CommitRecord:
        """The commit that gave out `seq`, found by bisection: seqs grow with versions, and often by one with each."""
        versions = self.versions()
        if (near := self.log.version - (self.seq - seq)) in versions:
            record = self.log.commit_record(near)
            if record.txns.get(SEQ_TXN) == seq:
                return record
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            if self._seq_at(versions, middle) < seq:
                low = middle + 1
            else:
                high = middle
        if low < len(versions):
            record = self.log.commit_record(versions[low])
            # Later commits repeat the seq: where the log was trimmed, one of those may come first.
            created = record.version == self._first_version and seq == self.created_at_seq
            if record.txns.get(SEQ_TXN) == seq or created:
                return record
        raise NotFound(f"seq {seq} of table {self.table} is no longer in its log: choose a newer one")

    def seq_at_time(self, moment: dt.datetime) -> int:
        """The newest seq committed at or before `moment`."""
        wanted = int(moment.timestamp() * 1000)
        versions = self.versions()
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            if self._time_ms_at(versions[middle]) <= wanted:
                low = middle + 1
            else:
                high = middle
        seq = self._seq_at(versions, low - 1) if low else -1
        if seq < 0:
            raise NotFound(f"table {self.table} has no state as of {moment.isoformat()}: it is older than its log")
        return seq

    def versions(self) -> range:
        """Versions of this table: not those of one that was dropped at the same path before."""
        there = self.log.versions()
        return range(max(there.start, self._first_version), min(there.stop, self.log.version + 1))

    @property
    def _first_version(self) -> int:
        return int(self.log.properties.get(CREATED_AT_VERSION, "0"))

    def _seq_at(self, versions: Sequence[int], position: int) -> int:
        """The seq as of a version; -1 where the log no longer tells."""
        while position >= 0:
            try:
                seq = self.log.commit_record(versions[position]).info.get("seq")
            except NotFound:  # trimmed a moment ago: older than all that is left
                return -1
            if isinstance(seq, int):
                return seq
            position -= 1
        if not versions or versions[0] > self._first_version:
            return -1
        raise Corruption(
            f"the changes log of table {self.table} has commits that Lithify did not write: restore it from a copy"
        )

    def _time_ms_at(self, version: int) -> int:
        try:
            return self.log.commit_record(version).timestamp_ms
        except NotFound:  # trimmed a moment ago: older than all that is left
            return -1


def plain_types(columns: pa.Schema) -> pa.Schema:
    """deltalake spells some Arrow types in its own way; bring them back to ours."""
    from lithify.core.schema import normalise

    return pa.schema([pa.field(f.name, normalise(f.type, f.name), f.nullable) for f in columns])
