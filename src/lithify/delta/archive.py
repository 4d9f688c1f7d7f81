"""Moving old commits out of the log's folder, and deleting them when nobody may ask for them any more.

The log keeps everything from a checkpoint B on. B is never the newest checkpoint, and at least `live_commits_min`
commits lie behind it; it is read and fsynced before anything goes. What lies below B is linked into the archive, whose
folder is then fsynced, and only then taken out of the log: version by version and oldest first, the checkpoint before
the commit. So every commit is in one of the two at any moment, whatever dies; cut off at any file, the log opens at its
head, and the next to come takes it up where it ended. Of the checkpoints, one in about `CHECKPOINT_DISTANCE` versions
comes along, and the others go.

Only the archive's oldest end is deleted, up to a checkpoint that all younger versions can be rebuilt from. Both halves
run under the lock of `trim`.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from lithify.delta.commit_files import Commits
from lithify.delta.folder import HINT, LOCK, checkpoint_name, commit_name, hinted_checkpoint
from lithify.delta.torn_log import is_parquet
from lithify.errors import NotFound

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
LOCK_WAIT_S_MAX = 30
CHECKPOINT_DISTANCE = 500
VERSIONED_NAME = re.compile(r"(\d{20})\.(?:json|crc|checkpoint.*\.parquet)")


@dataclass(frozen=True)
class LogLimits:
    """`retain_hours` None: the log is not ours to trim. A log of more than `live_commits_max` commits is archived down
    to about `live_commits_min`; None: it has no archive.
    """

    checkpoint_every: int = 20
    retain_hours: float | None = None
    commits_max: int = 10_000
    live_commits_min: int = 200
    live_commits_max: int | None = None

    @property
    def is_ours(self) -> bool:
        return self.retain_hours is not None

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
        store.make_folder(commits.archive)
        hinted = hinted_checkpoint(commits.live, store)
        if hinted is not None and hinted < boundary:
            # Left by a process that was late. Readers do without a hint, but not with one that points at nothing.
            store.delete(commits.live / HINT)
        old = self._older_than(boundary)[:files_max]
        linked = self._link_all(old)
        store.sync_folder(commits.archive)
        moved = sum(self._take_out(version, name, name in linked) for version, name in old)
        store.sync_folder(commits.live)
        return moved

    def _older_than(self, boundary: int) -> list[tuple[int, str]]:
        """Version by version; the checkpoint's name comes before the commit's."""
        matches = filter(None, map(VERSIONED_NAME.fullmatch, self._listing.names))
        found = ((int(match.group(1)), match.group(0)) for match in matches)
        return sorted(entry for entry in found if entry[0] < boundary)

    def _boundary(self) -> int | None:
        """The checkpoint that the log will begin with; None: nothing is due."""
        limits, run = self._limits, self._run
        if limits.live_commits_max is None or not run:
            return None
        archived = self._commits.is_archived
        cut_off = archived(run[0]) or (archived(run[0] - 1) and run[0] not in self._listing.checkpoints)
        if len(run) <= limits.live_commits_max and not cut_off:
            return None
        for version in reversed(self._listing.checkpoints[:-1]):
            enough = run[0] < version and run[-1] - version + 1 >= limits.live_commits_min
            path = self._commits.live / checkpoint_name(version)
            if enough and not self._store.is_doubted(path) and is_parquet(path, self._store):
                return version
        return None

    def _link_all(self, old: list[tuple[int, str]]) -> set[str]:
        """Give the archive what it is to hold. Returns the names that it did not have before."""
        commits, first = self._commits, self._run[0]
        oldest = commits.oldest(first)
        anchor = commits.checkpoint_up_to(first - 1, oldest) if oldest < first else None
        last = anchor[0] if anchor else None
        linked = set()
        for version, name in old:
            source, target = commits.live / name, commits.archive / name
            if version < oldest or name.endswith(".crc"):
                continue
            if name != commit_name(version):
                close = last is not None and version - last < self._limits.checkpoint_distance
                if close or self._store.is_doubted(source):
                    continue
                last = version
            if not self._store.exists(target):
                if not self._store.link(source, target):
                    self._store.move(source, target, sync=False)
                linked.add(name)
        return linked

    def _take_out(self, version: int, name: str, linked: bool) -> bool:
        """Take a file out of the log if the archive has it, or nobody needs it. Another commit of a version that the
        archive has came too late: whoever put it will find out and take it back, so it only goes after an hour.
        """
        source, target, store = self._commits.live / name, self._commits.archive / name, self._store
        is_commit = name == commit_name(version)
        try:
            gone = linked or not is_commit or (store.exists(target) and store.read(source) == store.read(target))
            if gone or self._now_ms - store.modified_ms(source) > HOUR_MS:
                store.delete(source)
        except NotFound:
            logger.debug("%s was taken back by whoever put it there", source)
            return False
        return is_commit and gone

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
                if store.exists(commits.archive / name):
                    store.delete(commits.archive / name)
                    gone[kind] += 1
        return gone[0], gone[1]

    def is_empty(self) -> bool:
        return not self._run or not self._commits.is_archived(self._run[0] - 1)

    def _start(self, oldest: int, end: int) -> int:
        """The checkpoint that the archive will begin with, proven to be readable and durable."""
        commits, head = self._commits, self._run[-1]
        retained = next((v for v in range(oldest, end) if not self._may_go(v, head - v)), end)
        found = commits.checkpoint_up_to(retained, oldest + 1)
        if found is None or self._store.is_doubted(found[1]):
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
            store.delete(commits.archive / name)
        store.delete_empty_folder(commits.archive)
