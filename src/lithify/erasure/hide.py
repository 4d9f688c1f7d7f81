"""The commit that hides the rows: a delete that says nothing of why, done once whoever asks for it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lithify.core.ops import Op
from lithify.core.results import Commit
from lithify.delta.changes import ERASURE_TXN, ChangesLog
from lithify.erasure.records import Record
from lithify.write.conditions import Condition, Replay, Write
from lithify.write.small_writes import Request

if TYPE_CHECKING:
    import pyarrow as pa

    from lithify.write.access import TableAccess


@dataclass(frozen=True)
class OfErasure(Condition):
    id: str

    @property
    def _name(self) -> str:
        return f"{ERASURE_TXN}{self.id}"

    @property
    def alone(self) -> bool:
        """Its commit is told from those of others."""
        return True

    @property
    def info(self) -> Mapping[str, Any]:
        return {"reason": f"erasure {self.id}"}

    def check(self, changes: ChangesLog) -> Replay | None:
        seq = changes.log.txn(self._name)
        return None if seq is None else Replay.of(changes, seq)

    def txns(self, seq: int) -> Mapping[str, int]:
        return {self._name: seq}


def hide(table: TableAccess, record: Record, keys: pa.Table) -> Commit:
    write = Write("erase", {"actor": record.actor}, (OfErasure(record.id),))
    return table.write(Request(write, {Op.DELETE: keys}))
