"""Keeping a log short, so that neither opening a table nor writing to it gets slower with every write it has seen.

First old commits are moved to the archive, if the log has one (`archive`). Then commits that nobody may ask for any
more are deleted: when they are older than the retention, or when there are more than enough newer ones and they are
older than an hour. They go from the archive first, and from the log itself only when the archive is empty. What stays
in the log begins with a checkpoint C, with all commits from C on, so that every version from C on can be read, and C is
never the newest checkpoint: a torn one always has a predecessor to fall back to. C is read and fsynced before anything
goes. Files go oldest first, so a log whose clean-up was cut off is a valid log.

Trimming frees version numbers that a process may still want: one that slept since it last looked could put its commit
where an old one was. If the archive has that version, it shows. If not, deleting oldest first makes it visible: its
commit stands alone, cannot be read, and is older by number but younger by time than a checkpoint. `lost_to_trim` finds
that, and the commit is taken back unacknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass

from lithify.delta.archive import HOUR_MS, VERSIONED_NAME, Archiver, LogLimits
from lithify.delta.commit_files import Commits
from lithify.delta.folder import CHECKPOINT_NAME, HINT, LOCK, checkpoint_name, commit_name, hinted_checkpoint
from lithify.delta.remote_log import TRIM_AGE_MS_MIN
from lithify.delta.torn_log import is_parquet
from lithify.errors import CommitUnknown, NotFound, Unavailable
from lithify.files.local import DOUBTED

logger = logging.getLogger(__name__)

CHECKPOINT_AGE_MS_MIN = 600_000
TORN = re.compile(r"\.torn-.*")
# What deltalake and the store leave of a write that was cut off.
TEMPORARY = re.compile(r"_commit_.*\.tmp|.*\.json#\d+|.*\.parquet#\d+|_last_checkpoint#\d+|.*\.tmp|\..+\.\d+\.\d+")


@dataclass(frozen=True)
class TrimReport:
    commits: int = 0
    checkpoints: int = 0
    leftovers: int = 0
    oldest_version: int | None = None
    archived: int = 0


def trim(commits: Commits, now_ms: int, limits: LogLimits, files_max: int | None = None) -> TrimReport:
    """Move and delete what may go, at most about `files_max` files each. Does nothing while another process trims or
    recovers this log.
    """
    if commits.store.remote:
        return _Trim(commits, now_ms, limits, is_oldest=True).run(files_max)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(commits.store.lock(commits.live / LOCK, 0, f"clean-up of {commits.live}"))
        except Unavailable as error:
            logger.info("%s is left as it is for now: %s", commits.live, error)
            return TrimReport()
        archived = Archiver(commits, now_ms, limits).move(files_max)
        archiver = Archiver(commits, now_ms, limits)
        expired = archiver.expire(files_max)
        report = _Trim(commits, now_ms, limits, is_oldest=archiver.is_empty()).run(files_max)
        return TrimReport(
            expired[0] + report.commits,
            expired[1] + report.checkpoints,
            report.leftovers,
            report.oldest_version,
            archived,
        )


class _Trim:
    """Of the log's own folder. `is_oldest`: nothing older lies in the archive."""

    def __init__(self, commits: Commits, now_ms: int, limits: LogLimits, *, is_oldest: bool) -> None:
        self._folder, self._store, self._now_ms = commits.live, commits.store, now_ms
        self._limits, self._is_oldest = limits, is_oldest
        self._listing = commits.listing()
        self._age_ms_min, self._modified_ms = HOUR_MS, dict[str, int]()
        if commits.store.remote:
            # Whoever asks less often whether its version is there relies on this (`remote_log`).
            self._age_ms_min = TRIM_AGE_MS_MIN
            self._modified_ms = {entry.path: entry.mtime_ms for entry in commits.store.entries(commits.live)}

    def run(self, files_max: int | None) -> TrimReport:
        start = self._start() if self._is_oldest else None
        old = self._older_than(start) if start is not None else []
        thin = self._spare_checkpoints(start)
        leftovers = self._leftovers()
        doomed = [*old, *thin, *leftovers][:files_max]
        hinted = hinted_checkpoint(self._folder, self._store)
        if hinted is not None and any(name.startswith(f"{hinted:020d}.checkpoint") for name in doomed):
            # Left by a process that was late. Readers do without a hint, but not with one that points at nothing.
            self._store.delete(self._folder / HINT)
        self._store.delete_all(self._folder / name for name in doomed)
        gone = set(doomed)
        return TrimReport(
            commits=sum(name.endswith(".json") for name in old if name in gone),
            checkpoints=sum(".checkpoint" in name for name in [*old, *thin] if name in gone),
            leftovers=sum(name in gone for name in leftovers),
            oldest_version=start if gone.issuperset(old) else None,
        )

    def _age_ms(self, name: str) -> float:
        try:
            if self._store.remote:
                return self._now_ms - self._modified_ms.get(name, self._now_ms)
            return self._now_ms - self._store.modified_ms(self._folder / name)
        except NotFound:
            return 0

    def _oldest_retained(self) -> int | None:
        """The oldest commit that must stay, whatever checkpoints there are."""
        run = self._listing.run()
        for position, version in enumerate(run[:-1]):
            age_ms = self._age_ms(commit_name(version))
            if age_ms <= self._age_ms_min or not self._limits.may_go(age_ms, len(run) - 1 - position):
                return version
        return run[-1] if run else None

    def _start(self) -> int | None:
        """The checkpoint that the log will begin with, proven to be readable and durable; None: nothing may go."""
        oldest, run = self._oldest_retained(), self._listing.run()
        if oldest is None:
            return None
        for version in reversed(self._listing.checkpoints[:-1]):
            path = self._folder / checkpoint_name(version)
            fits = version <= oldest and run[0] <= version
            if fits and not self._store.is_doubted(path) and is_parquet(path, self._store):
                self._store.sync_file(path)
                self._store.sync_folder(self._folder)
                return version
        return None

    def _older_than(self, start: int) -> list[str]:
        """Oldest first. A fresh commit among them is somebody's who is about to find out that it came too late."""
        found = [
            (int(match.group(1)), name) for name in self._listing.names if (match := VERSIONED_NAME.fullmatch(name))
        ]
        return [name for version, name in sorted(found) if version < start and self._age_ms(name) > self._age_ms_min]

    def _spare_checkpoints(self, start: int | None) -> list[str]:
        """Commits say everything; a checkpoint every so often keeps reading an old version from taking long."""
        spare = []
        spared = start
        distance = self._limits.checkpoint_distance
        if self._limits.live_commits_max is not None:
            distance = min(distance, self._limits.live_commits_min // 2)  # the log will soon begin with one of them
        for version in self._listing.checkpoints[:-2]:
            name = checkpoint_name(version)
            if start is not None and version <= start:
                continue
            close = spared is not None and version - spared < distance
            if close and name in self._listing.names and self._age_ms(name) > CHECKPOINT_AGE_MS_MIN:
                spare.append(name)
            else:
                spared = version
        return spare

    def _leftovers(self) -> list[str]:
        retain_ms = max((self._limits.retain_hours or 0) * HOUR_MS, HOUR_MS)
        torn = [n for n in self._listing.names if TORN.fullmatch(n) and self._age_ms(n) > retain_ms]
        cut_off = [n for n in self._listing.names if TEMPORARY.fullmatch(n) and self._age_ms(n) > HOUR_MS]
        marks = [n for n in self._listing.names if n.startswith(DOUBTED)]
        there = set(self._listing.names)
        return torn + cut_off + [mark for mark in marks if mark.removeprefix(DOUBTED) not in there]


def lost_to_trim(commits: Commits, version: int, write_id: str) -> bool:
    """Whether the commit just put at `version` stands where the log was trimmed, so that no reader will ever see it."""
    folder, store = commits.live, commits.store
    if commits.is_fresh():
        return False
    if commits.is_archived(version):
        return commits.record(version).info.get("write_id") != write_id
    newest = hinted_checkpoint(folder, store)
    if store.exists(commits.live_path(version - 1)) and (newest is None or newest <= version):
        return False
    listing = commits.listing()
    if not any(checkpoint > version for checkpoint in listing.checkpoints) or listing.can_read(version):
        return False
    if commits.tells(version):  # archived, or about to be, since we looked
        return commits.record(version).info.get("write_id") != write_id
    try:
        put_ms = store.modified_ms(commits.live_path(version))
    except NotFound:
        put_ms = None
    for name in listing.names:
        match = CHECKPOINT_NAME.fullmatch(name)
        if put_ms is None or not match or int(match.group(1)) <= version:
            continue
        if store.modified_ms(folder / name) <= put_ms:
            return True
    raise CommitUnknown(
        f"version {version} of {folder.parent} was committed long ago, and whether it counted cannot be determined any "
        "more: read the table before you retry"
    )
