"""Batch ids that are more than a name: bound to what they were sent with, or in lanes.

A bound id (`BoundId`) carries a fingerprint of the request that it came with: who sent it, and what. The log remembers
the fingerprint as long as the id, and the same id with another one is refused instead of taken for the same write.

Lanes are for writers that give every write an id.

An ordinary batch id is remembered by itself for 30 days, which is too much memory where each of a million writes has
its own. Ids of a lane, `lane-<32 hex digits>.<number>`, share one: the log remembers the lane's last write only. That
is enough, because a lane is used by one write at a time, with higher and higher numbers, and is given up when the fate
of a write is not known. So an id that is not the lane's last one is either new, which is to say higher, or a mistake.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ID = re.compile(r"(lane-[0-9a-f]{32})\.([0-9]{1,15})")


class BoundId(str):
    """A batch id, and what it stands for: a number below 2^63."""

    fingerprint: int

    def __new__(cls, id: str, fingerprint: int) -> BoundId:
        bound = super().__new__(cls, id)
        bound.fingerprint = fingerprint
        return bound


def fingerprint_of(batch_id: object) -> int | None:
    return batch_id.fingerprint if isinstance(batch_id, BoundId) else None


class InLane(NamedTuple):
    lane: str
    number: int

    def __str__(self) -> str:
        return f"{self.lane}.{self.number}"


def in_lane(batch_id: object) -> InLane | None:
    """None for an ordinary batch id."""
    found = _ID.fullmatch(batch_id) if isinstance(batch_id, str) else None
    return InLane(found[1], int(found[2])) if found is not None else None


def batch_txn(batch_id: str) -> str:
    """What remembers a batch id; those of a lane share it."""
    laned = in_lane(batch_id)
    return f"lithify.batch.{batch_id if laned is None else laned.lane}"


def bound_txn(batch_id: str) -> str:
    """What remembers the fingerprint of a bound batch id."""
    return batch_txn(batch_id).replace("lithify.batch.", "lithify.bound.", 1)


def lane_txn(lane: str) -> str:
    """What remembers the number of a lane's last write, also when its commit has left the log."""
    return f"lithify.{lane.replace('-', '.', 1)}"
