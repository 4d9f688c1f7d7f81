"""Taking turns, so that of many processes that write to one log every one comes to it.

Who has just committed knows the head and is the first to try again; who has lost has to read first, and would lose
again. So whoever loses takes turns for a while, as does everyone who then loses against it: each waits until it is its
own, reads what has come, and commits. A log with one writer is never asked for a turn.

Where the storage has locks, a turn is one, and nobody commits in between. Where it has none, the commits themselves
tell whose turn it is (`fair_order`). Nothing relies on either: the swap decides. Where somebody keeps its lock (a
process that was stopped, say), writers go on without, and spread out by chance.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from lithify.delta.commit_files import Commits
from lithify.delta.fair_order import FairOrder
from lithify.delta.folder import TURN
from lithify.errors import LithifyError

logger = logging.getLogger(__name__)

TAKEN_S = 1.0  # since somebody was in the way
TURN_S_MAX = 2.0
AWAY_S = 30.0  # once somebody has kept its turn
WAIT_S_MAX = 20.0


class Followed(Protocol):
    """A log, as one who waits for a turn sees it."""

    def refresh(self) -> None:
        """Move to the head."""

    def look(self, count: int, *, once: bool) -> None:
        """Move on by what has come, and ask for so many at first. `once`: and not for more."""


class Turns(ABC):
    """Of one log, through one handle on it."""

    @property
    @abstractmethod
    def are_taken(self) -> bool: ...

    @abstractmethod
    def lost(self) -> None: ...

    @abstractmethod
    def turn(self, log: Followed, pause: Callable[[float], None]) -> AbstractContextManager[None]:
        """Ours while the block lasts, or nobody's; at the head, as far as is known."""

    @property
    def name(self) -> str:
        """What a commit is to tell the others of us."""
        return ""

    def committed(self, name: object) -> None:  # noqa: B027 (only those who wait by what the log says have to know)
        """The log moves on, by a commit that tells this name."""

    def looked(self, at_head: bool, took_s: float) -> None:  # noqa: B027
        """Whether it is known that nothing more has come, and how long a request took."""

    def swapped(self, took_s: float) -> None:  # noqa: B027
        """How long a commit took."""


def turns_of(commits: Commits) -> Turns:
    return LockedTurns(commits) if commits.store.locks else AwaitedTurns()


class LockedTurns(Turns):
    def __init__(self, commits: Commits, clock: Callable[[], float] = time.monotonic) -> None:
        self._commits, self._clock = commits, clock
        self._taken_until_s = self._away_until_s = 0.0

    def lost(self) -> None:
        self._taken_until_s = self._clock() + TAKEN_S

    @property
    def are_taken(self) -> bool:
        return self._away_until_s <= self._clock() < self._taken_until_s

    @contextlib.contextmanager
    def turn(self, log: Followed, pause: Callable[[float], None]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                lock = self._commits.store.lock(
                    self._commits.live / TURN, TURN_S_MAX, f"a turn at {self._commits.live}", often=True
                )
                stack.enter_context(lock)
            except LithifyError as error:
                logger.info("%s is written to without turns: %s", self._commits.table, error)
                self._away_until_s = self._clock() + AWAY_S
            log.refresh()
            yield


class AwaitedTurns(Turns):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._order = FairOrder(uuid.uuid4().hex[:12])

    def lost(self) -> None:
        self._order.lost(self._clock())

    @property
    def are_taken(self) -> bool:
        return self._order.is_contended(self._clock())

    @property
    def name(self) -> str:
        return self._order.us if self.are_taken else ""

    def committed(self, name: object) -> None:
        self._order.committed(name if isinstance(name, str) else "", self._clock())

    def looked(self, at_head: bool, took_s: float) -> None:
        self._order.looked(at_head, took_s, self._clock())

    def swapped(self, took_s: float) -> None:
        self._order.swapped(took_s)

    @contextlib.contextmanager
    def turn(self, log: Followed, pause: Callable[[float], None]) -> Iterator[None]:
        order, until_s = self._order, self._clock() + WAIT_S_MAX
        while (pause_s := order.pause_s(now_s := self._clock())) is not None and now_s < until_s:
            if pause_s:
                pause(pause_s)
            log.look(max(1, order.before_us), once=order.is_near(self._clock()))
        yield
