"""The changes log: where every write lands, and the only giver of seqs.

`txn("lithify.seq", n)` is the newest seq; the next write is n+1, read at the version being swapped. Never from the
files that happen to be there: after a fold there may be none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify.errors import Corruption, NotFound
from lithify.log.delta import CommitRecord, DeltaLog
from lithify.model.merge import Op
from lithify.model.names import OP, SEQ
from lithify.model.schema import TableSchema, from_properties
from lithify.model.snapshot import DataFile
from lithify.store.local import Store
from lithify.store.parquet import Written

SEQ_TXN = "lithify.seq"
EPOCH_TXN = "lithify.vacuum"
DROPPED = "lithify.dropped"
CREATED_AT_SEQ = "lithify.created_at_seq"
CREATED_AT_VERSION = "lithify.created_at_version"
BASE_PATH = "lithify.base_path"


def batch_txn(batch_id: str) -> str:
    return f"lithify.batch.{batch_id}"


def job_txn(job_id: str) -> str:
    return f"lithify.job.{job_id}"


class ChangesLog:
    def __init__(self, log: DeltaLog, table: str) -> None:
        self.log, self.table = log, table
        self._schema: tuple[int, TableSchema] | None = None

    @classmethod
    def open(cls, path: Path, store: Store, table: str, checkpoint_every: int) -> ChangesLog:
        return cls(DeltaLog.open(path, store, checkpoint_every=checkpoint_every), table)

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
    def schema(self) -> TableSchema:
        if self._schema is None or self._schema[0] != self.log.version:
            columns = plain_types(self.log.columns())
            schema = from_properties(columns, self.log.properties, f"table {self.table}")
            self._schema = (self.log.version, schema)
        return self._schema[1]

    @property
    def created_at_seq(self) -> int:
        return int(self.log.properties.get(CREATED_AT_SEQ, "0"))

    def files(self) -> list[DataFile]:
        schema = self.schema
        return self.log.files([*schema.key, *filter(None, (schema.time,)), *schema.partition_by])

    def commit(
        self,
        files: Sequence[tuple[Written, Op]],
        txns: Mapping[str, int],
        info: Mapping[str, Any],
        write_id: str,
    ) -> int:
        """Add files under the next seq, which is returned. Raises Lost."""
        seq = self.seq + 1
        adds = [(file, {SEQ: str(seq), OP: op.value}) for file, op in files]
        self.log.commit(adds, (), {SEQ_TXN: seq, **txns}, {**info, "seq": seq}, write_id, data_change=True)
        return seq

    def remove_folded(self, watermark: int, write_id: str) -> int:
        """Forget changes that base holds. Returns how many files. Raises Lost."""
        folded = [file for file in self.files() if file.seq <= watermark]
        if folded:
            info = {"operation": "remove folded", "seq": self.seq, "watermark": watermark}
            self.log.commit((), folded, {}, info, write_id, data_change=False)
        return len(folded)

    # -- time travel

    def record_of_seq(self, seq: int) -> CommitRecord:
        """The commit that gave out `seq`, found by bisection: seqs grow with versions."""
        versions = self._versions()
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            if self._seq_at(versions, middle) < seq:
                low = middle + 1
            else:
                high = middle
        if low < len(versions):
            record = self.log.commit_record(versions[low])
            if record.info.get("seq") == seq or seq == 0:
                return record
        raise NotFound(f"seq {seq} of table {self.table} is no longer in its log: choose a newer one")

    def seq_at_time(self, moment: dt.datetime) -> int:
        """The newest seq committed at or before `moment`."""
        wanted = int(moment.timestamp() * 1000)
        versions = self._versions()
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            if self.log.commit_record(versions[middle]).timestamp_ms <= wanted:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            raise NotFound(f"table {self.table} has no state as of {moment.isoformat()}: it is older than its log")
        return self._seq_at(versions, low - 1)

    def _versions(self) -> list[int]:
        """Versions of this table: not those of one that was dropped at the same path before."""
        first = int(self.log.properties.get(CREATED_AT_VERSION, "0"))
        return [v for v in self.log.versions() if first <= v <= self.log.version]

    def _seq_at(self, versions: Sequence[int], place: int) -> int:
        while place >= 0:
            seq = self.log.commit_record(versions[place]).info.get("seq")
            if isinstance(seq, int):
                return seq
            place -= 1
        raise Corruption(
            f"the changes log of table {self.table} has commits that Lithify did not write: restore it from a copy"
        )


def plain_types(columns: pa.Schema) -> pa.Schema:
    """deltalake spells some Arrow types in its own way; bring them back to ours."""
    from lithify.model.schema import normalise

    return pa.schema([pa.field(f.name, normalise(f.type, f.name), f.nullable) for f in columns])
