"""A write that was committed before gets the answer that it got then: sent again with its batch id, or as a portion of
a feed that has come already.

All of it is asked of the log at the version that would be swapped, so whoever finds nothing here may commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lithify.core.results import Commit
from lithify.delta.batch_ids import InLane, fingerprint_of, in_lane
from lithify.delta.changes import ChangesLog, batch_txn, bound_txn, lane_txn
from lithify.errors import Conflict, NotFound
from lithify.tables.handles import Handles


class Portion(Protocol):
    """A part of something that comes in parts, each of which is committed once and after the one before."""

    def admitted(self, changes: ChangesLog) -> int | None:
        """None: it may be committed on this version. Else the seq of the commit that has already brought it."""
        ...

    def txns(self, seq: int) -> dict[str, int]:
        """What a commit with this seq has to remember."""
        ...


def committed_before(handles: Handles, operation: str, batch_id: str | None, portion: Portion | None) -> Commit | None:
    """The answer that a write got the first time; None: it has not been committed."""
    if batch_id is not None and (answer := replayed(handles, operation, batch_id)) is not None:
        return answer
    return None if portion is None else arrived(handles, operation, portion)


def replayed(handles: Handles, operation: str, batch_id: str) -> Commit | None:
    """The answer that this batch id got the first time, if it was committed."""
    changes = handles.changes
    seq = changes.log.txn(batch_txn(batch_id))
    if seq is None or seq <= changes.created_at_seq:
        return None
    info = _said_at(changes, seq)
    writes = info.get("writes", (info,))
    mine = next((write for write in writes if write.get("batch_id") == batch_id), None)
    place = in_lane(batch_id)
    if mine is None and place is not None and _goes_up(place, changes.log.txn(lane_txn(place.lane))):
        return None
    known, given = changes.log.txn(bound_txn(batch_id)), fingerprint_of(batch_id)
    if known is not None and given is not None and known != given:
        raise bound_elsewhere(handles)
    return _answer(handles, seq, operation, info if mine is None else mine, batch_id)


def arrived(handles: Handles, operation: str, portion: Portion) -> Commit | None:
    """The answer to a portion that was committed before; an error where it does not follow the last."""
    seq = portion.admitted(handles.changes)
    return None if seq is None else _answer(handles, seq, operation, _said_at(handles.changes, seq))


def bound_elsewhere(handles: Handles) -> Conflict:
    return Conflict(
        f"this batch id was used for another write to table {handles.name}, by another token or with other rows; "
        "nothing was changed: use an id of its own for each write"
    )


def _said_at(changes: ChangesLog, seq: int) -> Mapping[str, Any]:
    """What the commit of a seq says of itself, as far as the log still tells."""
    # A rival may have committed this and died before its fsync: our answer acknowledges it too.
    changes.log.make_durable()
    try:
        return changes.record_of_seq(seq).info
    except NotFound:
        return {}


def _answer(handles: Handles, seq: int, operation: str, said: Mapping[str, Any], batch_id: str | None = None) -> Commit:
    rows, upserted, deleted = (said.get(name, -1) for name in ("rows", "upserted", "deleted"))
    operation = said.get("operation", operation)
    return Commit(str(handles.name), seq, operation, rows, upserted, deleted, batch_id, replayed=True)


def _goes_up(place: InLane, last: int | None) -> bool:
    """Whether the last write of the lane was an earlier one. If it was a later one, that is a mistake."""
    if last is not None and last > place.number:
        raise Conflict(
            f"batch {place} comes after {place.lane}.{last}: the ids of a lane only go up, and whether an earlier one "
            "was written is no longer known; use a new lane, or an ordinary batch id"
        )
    return last is None or last < place.number
