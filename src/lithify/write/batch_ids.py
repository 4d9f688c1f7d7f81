"""A batch that is sent again with its id is recognised, and answered as the first time: it is written once.

The id is a transaction of the commit that brought the rows (`delta/batch_txns.py` spells it), and is looked for at the
version that each attempt would swap. Its commit tells what was answered then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lithify.core.arguments import check_batch_id
from lithify.delta.batch_txns import InLane, batch_txn, bound_txn, fingerprint_of, in_lane, lane_txn
from lithify.delta.changes import ChangesLog
from lithify.errors import Conflict
from lithify.write.conditions import Condition, Replay, SameSchema


@dataclass(frozen=True)
class BatchId(Condition):
    id: str

    def __post_init__(self) -> None:
        check_batch_id(self.id)

    @property
    def info(self) -> Mapping[str, Any]:
        return {"batch_id": self.id}

    def check(self, changes: ChangesLog) -> Replay | None:
        seq = changes.log.txn(batch_txn(self.id))
        if seq is None or seq <= changes.created_at_seq:
            return None
        found = Replay.of(changes, seq)
        writes = found.said.get("writes", (found.said,))
        mine = next((write for write in writes if write.get("batch_id") == self.id), None)
        laned = in_lane(self.id)
        if mine is None and laned is not None and _goes_up(laned, changes.log.txn(lane_txn(laned.lane))):
            return None
        known, given = changes.log.txn(bound_txn(self.id)), fingerprint_of(self.id)
        if known is not None and given is not None and known != given:
            raise Conflict(
                f"this batch id was used for another write to table {changes.table}, by another token or with other "
                "rows; nothing was changed: use an id of its own for each write"
            )
        return found if mine is None else Replay(seq, mine)

    def txns(self, seq: int) -> Mapping[str, int]:
        found = {batch_txn(self.id): seq}
        if (fingerprint := fingerprint_of(self.id)) is not None:
            found[bound_txn(self.id)] = fingerprint
        if (laned := in_lane(self.id)) is not None:
            found[lane_txn(laned.lane)] = laned.number
        return found


def _goes_up(laned: InLane, last: int | None) -> bool:
    """Whether the last write of the lane was an earlier one. If it was a later one, that is a mistake."""
    if last is not None and last > laned.number:
        raise Conflict(
            f"batch {laned} comes after {laned.lane}.{last}: the ids of a lane only go up, and whether an earlier one "
            "was written is no longer known; use a new lane, or an ordinary batch id"
        )
    return last is None or last < laned.number


def conditions_of(batch_id: str | None = None, schema_fingerprint: str | None = None) -> tuple[Condition, ...]:
    once = () if batch_id is None else (BatchId(batch_id),)
    return once if schema_fingerprint is None else (*once, SameSchema(schema_fingerprint))
