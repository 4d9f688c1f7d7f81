"""Moving old commits out of the log's folder, and deleting them when nobody may ask for them any more.

The log keeps everything from a checkpoint B on. B is never the newest checkpoint, and at least `live_commits_min` commits
lie behind it; it is read and fsynced before anything goes. Everything below B is moved to the archive, version by
version and oldest first, its checkpoint before its commit: cut off at any file, the log still opens at its head, and
archive and log together still hold every version. Of the checkpoints, one in about `CHECKPOINT_DISTANCE` versions comes
along, and the others go. The archive's folder is fsynced before the log's, so that a power cut loses no commit: at worst
it brings one back into the log.

Only the archive's oldest end is deleted, up to a checkpoint that all younger versions can be rebuilt from. Both halves
run under the lock of `trim`.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from lithify.errors import NotFound
from lithify.log.commits import Commits
from lithify.log.listing import HINT, LOCK, checkpoint_name, commit_name, hinted_checkpoint
from lithify.log.torn import is_parquet

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
LOCK_WAIT_S_MAX = 30
CHECKPOINT_DISTANCE = 500
VERSIONED_NAME = re.compile(r"(\d{20})\.(?:json|crc|checkpoint.*\.parquet)")


@dataclass(frozen=True)
class LogLimits:
    """`retain_hours` None: the log is not ours to trim. With `live_commits_max`, a log of more commits is archived down to
    about `live_commits_min`; None: there is no archive.
    """

    checkpoint_every: int = 20
    retain_hours: float | None = None
    commits_max: int = 10_000
    live_commits_min: int = 200
    live_commits_max: int | None = None

    @property
    def checkpoint_distance(self) -> int:
        return min(CHECKPOINT_DISTANCE, self.commits_max // 4)

    def may_go(self, age_ms: float, newer: int) -> bool:
        """Whether a commit is no longer to be kept."""
        retain_ms = max((self.retain_hours or 0) * HOUR_MS, HOUR_MS)
        return age_ms > retain_ms or (newer > self.commits_max and age_ms > HOUR_MS)


class Archiver:
    def __init__(self, commits: Commits, now_ms: int, limits: LogLimits) -> None:
        self._commits, self._store = commits, commits.store
        self._now_ms, self._limits = now_ms, limits
        self._listing = commits.listing()
        self._run = self._listing.run()

    # -- from the log to the archive

    def move(self, files_max: int | None) -> int:
        """Returns how many commits were moved. It costs a listing of the log if there is nothing to do."""
        boundary = self._boundary()
        if boundary is None:
            return 0
        store, commits = self._store, self._commits
        store.sync_file(commits.live / checkpoint_name(boundary))
        store.sync_folder(commits.live)
        if not commits.archive.exists():
            store.make_folder(commits.archive)
        hinted = hinted_checkpoint(commits.live, store)
        if hinted is not None and hinted < boundary:
            # Left by a process that was late. Readers do without a hint, but not with one that points at nothing.
            store.remove(commits.live / HINT)
        found = [(int(match.group(1)), name) for name in self._listing.names if (match := VERSIONED_NAME.fullmatch(name))]
        old = sorted(entry for entry in found if entry[0] < boundary)[:files_max]
        moved = self._move_all(old)
        store.sync_folder(commits.archive)
        store.sync_folder(commits.live)
        return moved

    def _boundary(self) -> int | None:
        """The checkpoint that the log will begin with; None: nothing is due."""
        limits, run = self._limits, self._run
        if limits.live_commits_max is None or not run:
            return None
        cut_off = run[0] not in self._listing.checkpoints and self._commits.is_archived(run[0] - 1)
        if len(run) <= limits.live_commits_max and not cut_off:
            return None
        for version in reversed(self._listing.checkpoints[:-1]):
            behind = run[-1] - version + 1
            if run[0] < version and behind >= limits.live_commits_min:
                if is_parquet(self._commits.live / checkpoint_name(version)):
                    return version
        return None

    def _move_all(self, old: list[tuple[int, str]]) -> int:
        commits, store, first = self._commits, self._store, self._run[0]
        oldest = commits.oldest(first)
        anchor = commits.checkpoint_up_to(first - 1, oldest) if oldest < first else None
        kept = anchor[0] if anchor else None
        moved = 0
        for version, name in old:
            source, target = commits.live / name, commits.archive / name
            if name == commit_name(version):
                if target.exists() or version < oldest:
                    self._drop_double(name)
                else:
                    store.move(source, target)
                    moved += 1
            elif name == checkpoint_name(version) and version >= first and self._is_wanted(version, kept):
                store.move(source, target)
                kept = version
            else:
                store.remove(source)
        return moved

    def _is_wanted(self, version: int, kept: int | None) -> bool:
        return kept is None or version - kept >= self._limits.checkpoint_distance

    def _drop_double(self, name: str) -> None:
        """A commit that a power cut brought back, or one that came too late. Whoever put the latter is about to find out;
        it is only taken away after an hour.
        """
        source, target = self._commits.live / name, self._commits.archive / name
        try:
            same = target.exists() and self._store.read(source) == self._store.read(target)
            if same:
                self._store.sync_file(target)
                self._store.sync_folder(self._commits.archive)
            if same or self._now_ms - self._store.modified_ms(source) > HOUR_MS:
                self._store.remove(source)
        except NotFound:
            logger.debug("%s was taken back by whoever put it there", source)

    # -- out of the archive

    def expire(self, files_max: int | None) -> tuple[int, int]:
        """Delete what may go. Returns how many commits and checkpoints did."""
        if not self._run or not self._commits.is_archived(self._run[0] - 1):
            return 0, 0
        commits, store, first = self._commits, self._store, self._run[0]
        oldest = commits.oldest(first)
        start = self._start(oldest, first if files_max is None else min(first, oldest + files_max))
        gone = [0, 0]
        for version in range(oldest, min(start, first)):
            for kind, name in ((1, checkpoint_name(version)), (0, commit_name(version))):
                if (commits.archive / name).exists():
                    store.remove(commits.archive / name)
                    gone[kind] += 1
        return gone[0], gone[1]

    def is_empty(self) -> bool:
        return not self._run or not self._commits.is_archived(self._run[0] - 1)

    def _start(self, oldest: int, end: int) -> int:
        """The checkpoint that the archive will begin with, proven to be readable and durable."""
        commits, head = self._commits, self._run[-1]
        kept = next((v for v in range(oldest, end) if not self._may_go(v, head - v)), end)
        found = commits.checkpoint_up_to(kept, oldest + 1)
        if found is None:
            return oldest
        self._store.sync_file(found[1])
        self._store.sync_folder(found[1].parent)
        return found[0]

    def _may_go(self, version: int, newer: int) -> bool:
        modified_ms = self._store.modified_ms(self._commits.archive / commit_name(version))
        return self._limits.may_go(self._now_ms - modified_ms, newer)


def forget_archive(commits: Commits) -> None:
    """Of a dropped table, oldest first: what is left, should this be cut off, is still a run of versions."""
    store = commits.store
    with store.lock(commits.live / LOCK, LOCK_WAIT_S_MAX, f"clean-up of {commits.table}"):
        for name in store.names(commits.archive):
            store.remove(commits.archive / name)
        store.remove_empty_folder(commits.archive)
