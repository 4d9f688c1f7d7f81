"""What a write depends on besides its rows, the same for small and bulk writes.

A condition is asked at the version that the commit would swap, on every attempt: may the write go ahead (None), was it
committed before (a `Replay`: it gets the answer that it got then), or must it not be (an error). What it has to be
known by later it records in the commit, together with the rows. Whoever commits treats all conditions alike:

| condition                             | the write goes ahead                                           |
|---------------------------------------|----------------------------------------------------------------|
| `batch_ids.py: BatchId`               | once; sent again with its id, it is answered as the first time |
| `AtSeq`                               | if nothing was written since its rows were chosen              |
| `SameSchema`                          | if columns and key are those that its rows were made for       |
| `streams/exactly_once.py: Checkpoint` | once, and after the portion of the feed that comes before it   |

They are asked in the order given, and the first answer counts: a batch that was written before is answered as then,
whatever has become of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from lithify.core.results import Commit
from lithify.delta.changes import ChangesLog
from lithify.errors import NotFound


class Replay(NamedTuple):
    """The commit that has already brought a write, and what it says of it, as far as the log still tells."""

    seq: int
    said: Mapping[str, Any]

    @classmethod
    def of(cls, changes: ChangesLog, seq: int) -> Replay:
        # A rival may have committed this and died before its fsync: our answer acknowledges it too.
        changes.log.make_durable()
        try:
            return cls(seq, changes.record_of_seq(seq).info)
        except NotFound:
            return cls(seq, {})


class Condition:
    @property
    def alone(self) -> bool:
        """Whether the write must not share its commit with others: it relies on one exact state."""
        return False

    @property
    def may_be_empty(self) -> bool:
        """Whether the write is worth a commit even without rows."""
        return False

    @property
    def info(self) -> Mapping[str, Any]:
        """What the commit says of it."""
        return {}

    def check(self, changes: ChangesLog) -> Replay | None:
        return None

    def txns(self, seq: int) -> Mapping[str, int]:
        """What a commit with this seq has to remember."""
        return {}


@dataclass(frozen=True)
class AtSeq(Condition):
    seq: int

    @property
    def alone(self) -> bool:
        return True

    def check(self, changes: ChangesLog) -> None:
        if changes.seq != self.seq:
            raise SeqMoved


class SeqMoved(Exception):
    """The table changed since the rows were chosen. Internal: the caller chooses again."""


@dataclass(frozen=True)
class SameSchema(Condition):
    fingerprint: str

    def check(self, changes: ChangesLog) -> None:
        changes.schema.check_fingerprint(self.fingerprint, changes.table)


@dataclass(frozen=True)
class Write:
    """A write without its rows: what it is called, what its commit says besides, and what it depends on. `complete`:
    its rows were made to give all columns, so it is refused where the table has got another one since.
    """

    operation: str
    info: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    complete: bool = False

    def before(self, changes: ChangesLog) -> Commit | None:
        """The answer that this write got the first time; None: it may be committed on the version that the log handle
        has. Raises where it may not.
        """
        for condition in self.conditions:
            if (replay := condition.check(changes)) is not None:
                rows, upserted, deleted = (replay.said.get(name, -1) for name in ("rows", "upserted", "deleted"))
                did, id = replay.said.get("operation", self.operation), self._batch_id
                skipped = replay.said.get("skipped", 0)
                return Commit(changes.table, replay.seq, did, rows, upserted, deleted, id, True, skipped)
        return None

    def txns(self, seq: int) -> dict[str, int]:
        return {name: value for condition in self.conditions for name, value in condition.txns(seq).items()}

    @cached_property
    def remembered_as(self) -> frozenset[str]:
        return frozenset(self.txns(0))

    @property
    def alone(self) -> bool:
        return any(condition.alone for condition in self.conditions)

    @property
    def relies_on_seq(self) -> bool:
        """Whether its rows were chosen at one state of the table."""
        return any(isinstance(condition, AtSeq) for condition in self.conditions)

    @property
    def may_be_empty(self) -> bool:
        return any(condition.may_be_empty for condition in self.conditions)

    def said(self, upserted: int, deleted: int, actor: str) -> dict[str, Any]:
        """What the commit says, which is what history and replays tell."""
        numbers = {"rows": upserted + deleted, "upserted": upserted, "deleted": deleted}
        return {"operation": self.operation, **numbers, "actor": actor, **self._of_conditions, **self.info}

    def commit(self, table: str, seq: int, upserted: int, deleted: int) -> Commit:
        """The answer to it."""
        skipped = self.info.get("skipped", 0)
        return Commit(
            table, seq, self.operation, upserted + deleted, upserted, deleted, self._batch_id, skipped=skipped
        )

    @property
    def _of_conditions(self) -> Mapping[str, Any]:
        return {name: value for condition in self.conditions for name, value in condition.info.items()}

    @property
    def _batch_id(self) -> str | None:
        return self._of_conditions.get("batch_id")
