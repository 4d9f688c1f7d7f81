"""The one way to commit to a log.

`build` says what to change, as a function of the log as it stands; `commit` does the rest:

1. It holds the log still for other threads and moves to its head.
2. `build` validates everything that the commit relies on, and answers with the change, or with None where there is
   nothing to commit, or raises.
3. It swaps. If that was lost to another writer it moves to the new head and goes back to 2; bounded. Meanwhile it takes
   turns with others, or waits a moment where that is not possible (`turns`).
4. It fsyncs, also where there was nothing to commit: whoever answers by what the log says acknowledges that.
5. It writes a checkpoint if one is due, and tells the log's index what came and went.

`commit_outcome` says when files that a commit names may be deleted, and it is only here that this is decided. `build`
runs while the commit is known not to stand, so it may replace what it staged for an earlier attempt. `discard` runs
once, at the end, if the log was read and says that the commit is not there. And whatever goes wrong while it may be
there is told as `CommitUnknown`: any other error means that nothing was committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict

from lithify.delta.actions import TURN_OF, LogChange
from lithify.delta.commit_outcome import Intent, Lost
from lithify.delta.log import DeltaLog
from lithify.errors import CommitUnknown, Conflict
from lithify.files.storage import Storage
from lithify.settings import Settings

Build = Callable[[], LogChange | None]


class Patience(Protocol):
    """How long to go on trying, and how to wait meanwhile."""

    @property
    def settings(self) -> Settings: ...

    @property
    def store(self) -> Storage: ...

    @property
    def pause(self) -> Callable[[float], None]: ...

    @property
    def new_id(self) -> Callable[[], str]: ...


@dataclass(frozen=True)
class Committed:
    version: int
    change: LogChange


class PlannedAgain(Exception):
    """The table moved on under a job's plan: plan again. Internal: never leaves the engine."""


class Besides(TypedDict, total=False):
    """What `commit` takes besides, and whoever calls it on behalf of others hands on."""

    discard: Callable[[], None]
    point: str


def commit(
    patience: Patience,
    log: DeltaLog,
    what: str,
    build: Build,
    *,
    discard: Callable[[], None] = lambda: None,
    point: str = "log",
    look: bool = True,
) -> Committed | None:
    """None: `build` found nothing to commit. `point` names the steps at which crash tests stop it. Without `look` the
    first attempt is at the version that the handle has: it finds out by losing, which is rare for a log's only writer.
    """
    intent, step = Intent(patience.new_id()), patience.store.step
    try:
        with log.lock:
            if look:
                log.refresh()
            done = _swapped(patience, log, what, build, intent, point)
            if done is not None:
                step(f"{point}.committed")
            log.make_durable()
            if done is not None:
                step(f"{point}.durable")
                log.checkpoint_if_due()
        if done is not None:
            log.after_commit(done.version, [file for file, _ in done.change.adds], done.change.removes)
    except Exception as error:
        if intent.may_stand and not isinstance(error, CommitUnknown):
            raise CommitUnknown(f"{what} is committed, but what follows failed ({error}): read the table") from error
        raise
    finally:
        if not intent.may_stand:
            discard()
    return done


def _swapped(
    patience: Patience, log: DeltaLog, what: str, build: Build, intent: Intent, point: str
) -> Committed | None:
    settings = patience.settings
    deadline = time.monotonic() + settings.commit_wait_s_max
    for number in range(settings.commit_attempts_max):
        try:
            if not log.turns.are_taken:
                return _attempt(patience, log, build, intent, point)
            if not number and build() is None:  # what it stages, it stages before its turn
                return None
            with log.turns.turn(log, patience.pause):
                return _attempt(patience, log, build, intent, point)
        except Lost:
            if time.monotonic() > deadline:
                break
            log.turns.lost()
            if not log.turns.are_taken:
                # Spread rivals out, or they keep meeting at the same version.
                patience.pause(random.uniform(0, min(0.002 * 2 ** min(number, 6), 0.1)))
                log.refresh()
    raise Conflict(
        f"{what} lost the race against other writers {settings.commit_attempts_max} times or for "
        f"{settings.commit_wait_s_max:.0f} s; nothing was written: try again, or raise commit_attempts_max and "
        "commit_wait_s_max"
    )


def _attempt(patience: Patience, log: DeltaLog, build: Build, intent: Intent, point: str) -> Committed | None:
    change = build()
    if change is None:
        return None
    if name := log.turns.name:
        change = replace(change, info={**change.info, TURN_OF: name})
    patience.store.step(f"{point}.commit")
    return Committed(log.try_commit(change, intent), change)
