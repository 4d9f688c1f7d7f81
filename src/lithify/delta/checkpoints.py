"""Checkpoints, written beside the writers.

A checkpoint keeps opening a log fast, and what comes before it can be moved out of the way (`trim`). Both are derived
from commits: a failure costs time later, never an answer. So whoever commits the version that is to have one only says
so; it is written by a thread of this process, with a handle of deltalake's of its own, which the log may then go on
from. Of one log only the newest version that waits counts. Every commit up to it was fsynced by whoever says so:
that is what others trust a checkpoint of ours for.

A log that is written to all the time gets fewer of them: one that took long leaves the log alone for longer, whichever
process wrote it, until very many commits have come since. What waits is written when the lake is closed; a process that
ends without that drops it, and waits only for one that is under way.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify.compute.background import Latest
from lithify.delta.archive import LogLimits
from lithify.delta.commit_files import Commits
from lithify.delta.folder import HINT, checkpoint_name, hinted_checkpoint
from lithify.delta.forget import checkpoint_without, forgotten_at
from lithify.delta.fsync import sync_checkpoint
from lithify.delta.open_log import open_table
from lithify.delta.trim import trim
from lithify.errors import LithifyError, NotFound

logger = logging.getLogger(__name__)

TRIM_EVERY_CHECKPOINTS, TRIM_EVERY_COMMITS = 16, 320  # whichever comes first
TRIM_FILES_MAX = 2_000  # more is left to maintenance and to the next time
REST = 9  # times as long as a checkpoint took
REST_COMMITS_MAX = 100
FLUSH_S_MAX = EXIT_S_MAX = 5.0

beside = Latest("lithify-checkpoints")
# A thread of deltalake's must not meet the end of the interpreter.
atexit.register(beside.drop, EXIT_S_MAX)
os.register_at_fork(after_in_child=beside.forget)


def wait_for_checkpoints(timeout_s: float = FLUSH_S_MAX) -> None:
    """Until those that are due in this process are written."""
    beside.flush(timeout_s)


@dataclass(frozen=True)
class Due:
    """A version that is to have a checkpoint, and lasts. `log_ms`: when it was committed, by the log's times."""

    version: int
    log_ms: int
    limits: LogLimits
    now_ms: Callable[[], int]


def trim_every(limits: LogLimits) -> int:
    """How many checkpoints from one trim to the next."""
    return max(1, min(TRIM_EVERY_CHECKPOINTS, TRIM_EVERY_COMMITS // limits.checkpoint_every))


class Checkpoints:
    """Of one log, through one handle on it."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._took_s = 0.0
        self._newest = -1
        self._trim_due = False
        self._opened: DeltaTable | None = None

    def write(self, due: Due, *, trim: bool) -> None:
        """Soon. `trim`: and what the log need not remember any more goes."""
        self._trim_due |= trim
        far = due.version - self._newest >= REST_COMMITS_MAX
        beside.do(self._commits.live, lambda hurried: self._write(due, hurried), anew=far)

    def take_opened(self) -> DeltaTable | None:
        """deltalake's handle on a version that this log's handle has seen, if there is a newer one."""
        if self._opened is None:
            return None
        opened, self._opened = self._opened, None
        return opened

    def _write(self, due: Due, hurried: bool) -> float:
        try:
            if not hurried and (rest_s := self._rest_s(due)) > 0:
                return rest_s
            trimming, self._trim_due = self._trim_due and due.limits.is_ours, False
            if self._is_wanted(due.version):
                self._write_now(due, forget=trimming)
            if trimming:
                trim(self._commits, due.now_ms(), due.limits, TRIM_FILES_MAX)
        except Exception as error:
            logger.warning("the log of %s could not be shortened: %s", self._commits.table, error)
        return 0.0

    def _rest_s(self, due: Due) -> float:
        """For how long the log is to be left alone since its last checkpoint."""
        commits, store = self._commits, self._commits.store
        hinted = hinted_checkpoint(commits.live, store)
        if hinted is None or not 0 < due.version - hinted < REST_COMMITS_MAX:
            return 0.0
        self._newest = hinted
        try:
            age_s = (due.now_ms() - store.modified_ms(commits.live / HINT)) / 1000
        except NotFound:
            return 0.0
        return self._took_s * REST - age_s if age_s >= 0 else 0.0

    def _is_wanted(self, version: int) -> bool:
        commits, store = self._commits, self._commits.store
        if not store.exists(commits.live_path(version)):
            return False  # others have gone on so far that it is in the archive, or the table is gone
        hinted = hinted_checkpoint(commits.live, store)
        return hinted is None or hinted < version or not store.exists(commits.live / checkpoint_name(hinted))

    def _write_now(self, due: Due, *, forget: bool) -> None:
        commits, version, started_s = self._commits, due.version, time.monotonic()
        try:
            commits.store.step("log.checkpoint")
            names = forgotten_at(commits, due.log_ms) if forget else frozenset()
            if names or commits.store.remote:
                table = checkpoint_without(commits, version, names)
            else:
                table = open_table(commits.table, commits.store, version)
                table.create_checkpoint()
            sync_checkpoint(commits, version)
            self._opened = table
        except (LithifyError, DeltaError, OSError) as error:
            logger.warning("no checkpoint of %s at version %s: %s", commits.table, version, error)
        self._took_s = time.monotonic() - started_s
