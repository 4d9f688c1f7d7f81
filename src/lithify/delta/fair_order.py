"""Whose turn it is at a log that many write to and nobody can lock, told from the log alone.

Who has just committed knows the head, and is the first to try again; who has lost has to read first, and would lose
again: left alone, some get almost nothing. So whoever has lost puts its name into its commits for a while, as does
everyone who meets such a commit, and these let each other go first: next is the one whose last commit lies furthest
back. One that has none yet need not wait for anybody.

Names in commits tell the order, but not who still has something to write. So nobody waits for ever: each of those
before us has the time of a few requests, to see the head and to commit, and when the head stood still for as long as
all of them have, it is our turn. And whoever let a turn pass, so that somebody else came twice, is not waited for.

Nothing relies on it: the commit decides, whatever is waited for. Times are those of one process only, between two
moments that it has seen itself. Pure: it is told what happens and when, and says what to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

CONTENDED_S = 1.0  # since somebody was in the way,
CONTENDED_TURNS = 8  # or for so many turns, where they take long
REMEMBERED = 256
NOT_BEFORE = 0.75  # looks not quite one after the other: whoever nobody waits for has to get in between
FIRST_S, TOOK_S_MAX = 0.02, 2.0  # of a request, until it is measured, and what counts of one
WEIGHT = 0.2


class FairOrder:
    """What one process knows of the others at one log."""

    def __init__(self, us: str) -> None:
        self.us = us
        self._look_s = self._commit_s = FIRST_S
        self._names: deque[str] = deque(maxlen=REMEMBERED)
        self._moved_s = self._at_head_s = self._contended_until_s = 0.0
        self._has_lost = False

    # -- what happens

    def committed(self, name: str, now_s: float) -> None:
        """The next commit of the log, by `name`, or by one that is in nobody's way ("")."""
        self._names.append(name)
        self._moved_s = now_s
        if name == self.us:
            self._has_lost, self._at_head_s = False, now_s
        elif name:
            self._contend(now_s)

    def lost(self, now_s: float) -> None:
        """And has read what came first."""
        if not self._has_lost:
            self._at_head_s = now_s  # most probably: one that loses again looks
        self._has_lost = True
        self._contend(now_s)

    def looked(self, at_head: bool, took_s: float, now_s: float) -> None:
        """Whether it is known that nothing more has come, and how long a request took."""
        self._look_s += WEIGHT * (_bounded(took_s) - self._look_s)
        if at_head:
            self._at_head_s = now_s

    def swapped(self, took_s: float) -> None:
        self._commit_s += WEIGHT * (_bounded(took_s) - self._commit_s)

    def _contend(self, now_s: float) -> None:
        self._contended_until_s = now_s + max(CONTENDED_S, CONTENDED_TURNS * self.turn_s)

    # -- what to do

    @property
    def turn_s(self) -> float:
        """To see the head, to commit, and to be seen."""
        return 2 * self._look_s + self._commit_s

    def is_contended(self, now_s: float) -> bool:
        return now_s < self._contended_until_s

    @property
    def before_us(self) -> int:
        return before(self.us, self._names)

    def is_near(self, now_s: float) -> bool:
        """Whether at most a few can have come since the head was seen."""
        return now_s - self._at_head_s <= self.turn_s

    def pause_s(self, now_s: float) -> float | None:
        """How long to wait before the next look at the log; None: it is our turn."""
        if before_us := self.before_us:
            left_s = before_us * self.turn_s - (now_s - self._moved_s)
            return None if left_s <= 0 else min(left_s, (before_us - NOT_BEFORE) * self._commit_s)
        return None if self.is_near(now_s) else 0.0


def _bounded(took_s: float) -> float:
    return min(max(took_s, 0.0), TOOK_S_MAX)


def before(us: str, names: Iterable[str]) -> int:
    """How many are to go before `us`, by who made the last commits, the newest last: those who came before our last one
    and have not been passed over since.
    """
    since = set[str]()
    count = 0
    for name in filter(None, reversed(list(names))):
        if name in since:
            break  # whoever has not come since has let a turn pass
        count += us in since
        since.add(name)
    return count
