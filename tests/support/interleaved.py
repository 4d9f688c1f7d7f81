"""Actors on one storage, one storage call at a time, in an order that a seed decides.

An actor runs on a thread of its own, but only while it has its turn: from one storage call to the next. Any of them may
be left asleep for as long as the others like, and may die instead of its next call. So a schedule that breaks
something is found again by its seed.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from typing import Any

from support.bucket import Bucket

WAIT_S = 60
DIES, STEPS = 0.01, 14
_CALLS = ("create", "put", "delete", "read", "names", "exists", "modified_ms", "look_at", "below", "_put_if")


class Died(BaseException):
    """Of an actor that the schedule has killed."""


class Actor:
    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name, self.error = name, None
        self._work, self._go, self._stopped = work, threading.Event(), threading.Event()
        self.ended = self.waits = self._dies = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        _current.actor = self
        try:
            self.turn()
            self._work()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._stopped.set()

    def turn(self) -> None:
        """Called by the actor: wait for the next turn."""
        self._stopped.set()
        assert self._go.wait(WAIT_S), f"{self.name} never got its turn"
        self._go.clear()
        if self._dies:
            raise Died

    def start(self) -> None:
        self._thread.start()
        assert self._stopped.wait(WAIT_S)

    def run_on(self, *, dies: bool = False) -> None:
        """Called by the schedule: let it come to its next call."""
        self._stopped.clear()
        self._dies = dies
        self._go.set()
        assert self._stopped.wait(WAIT_S), f"{self.name} did not come to its next call"
        if self.error is not None:
            raise self.error


_current = threading.local()


def turn(*, waits: bool = False) -> None:
    """`waits`: it is of no use to go on at once."""
    actor: Actor | None = getattr(_current, "actor", None)
    if actor is not None:
        actor.waits = waits
        actor.turn()


class TurnBucket(Bucket):
    """Each of its calls is a turn of whoever makes it."""


def _with_turn(call: str) -> Callable[..., Any]:
    plain = getattr(Bucket, call)

    def taking_turns(self: TurnBucket, *args: Any, **options: Any) -> Any:
        if not getattr(_current, "inside", False):
            turn()
        before, _current.inside = getattr(_current, "inside", False), True
        try:
            found = plain(self, *args, **options)
            return list(found) if call == "below" else found
        finally:
            _current.inside = before

    return taking_turns


for _call in _CALLS:
    setattr(TurnBucket, _call, _with_turn(_call))


class Schedule:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._actors: list[Actor] = []

    def actor(self, name: str, work: Callable[[], None]) -> None:
        self._actors.append(Actor(name, work))

    def run(self, may_die: Callable[[str], bool], check: Callable[[], None]) -> None:
        """Until all have ended. `check` after every call. One goes on for a while, or for as long as it can, then
        another: few changes between actors, at any place, find more than many of them.
        """
        for actor in self._actors:
            actor.start()
        running, left, actor = list(self._actors), 0.0, self._actors[0]
        while running:
            if left <= 0 or actor.ended or actor.waits:
                others = [each for each in running if each is not actor]
                actor = self.rng.choice(others or running)
                left = self.rng.choice([math.inf, self.rng.randint(1, STEPS)])
            actor.waits, left = False, left - 1
            actor.run_on(dies=may_die(actor.name) and self.rng.random() < DIES)
            check()
            if actor.ended:
                running.remove(actor)
