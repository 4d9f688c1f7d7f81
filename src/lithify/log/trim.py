"""Keeping a log short, so that opening a table does not get slower with every write it has seen.

A commit may go when it is older than the retention, or when there are more than enough newer ones and it is older
than an hour. What stays begins with a checkpoint C, with all commits from C on, so that every version from C on can
be read, and C is never the newest checkpoint: a torn one always has a predecessor to fall back to. C is read and
fsynced before anything goes. Files go oldest first, so a log whose clean-up was cut off is a valid log.

Trimming frees version numbers that a process may still want: one that slept since it last looked could put its commit
where an old one was. Deleting oldest first makes that visible: its commit stands alone, cannot be read, and is older by
number but younger by time than a checkpoint. `came_too_late` finds that, and the commit is taken back unacknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from lithify.errors import CommitUnknown, NotFound, Unavailable
from lithify.log.listing import CHECKPOINT_NAME, HINT, LOCK, Listing, commit_name, hinted_checkpoint
from lithify.log.torn import is_parquet
from lithify.store.local import Store

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
CHECKPOINT_DISTANCE = 500
CHECKPOINT_AGE_MS_MIN = 600_000
_VERSIONED = re.compile(r"(\d{20})\.(?:json|crc|checkpoint.*\.parquet)")
_TORN = re.compile(r"\.torn-.*")
# What deltalake and the store leave of a write that was cut off.
_TEMPORARY = re.compile(r"_commit_.*\.tmp|.*\.json#\d+|.*\.parquet#\d+|_last_checkpoint#\d+|.*\.tmp")


@dataclass(frozen=True)
class LogLimits:
    """`retain_hours` None: the log is not ours to trim."""

    checkpoint_every: int = 20
    retain_hours: float | None = None
    commits_max: int = 10_000


@dataclass(frozen=True)
class TrimReport:
    commits: int = 0
    checkpoints: int = 0
    leftovers: int = 0
    oldest_version: int | None = None


def trim(
    folder: Path, store: Store, now_ms: int, retain_hours: float, commits_max: int, files_max: int | None = None
) -> TrimReport:
    """Delete what may go, at most `files_max` files. Does nothing while another process trims or recovers this log."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(store.lock(folder / LOCK, 0, f"clean-up of {folder}"))
        except Unavailable as error:
            logger.info("%s is left as it is for now: %s", folder, error)
            return TrimReport()
        return _Trim(folder, store, now_ms, retain_hours, commits_max).run(files_max)


class _Trim:
    def __init__(self, folder: Path, store: Store, now_ms: int, retain_hours: float, commits_max: int) -> None:
        self._folder, self._store, self._now_ms = folder, store, now_ms
        self._retain_ms, self._commits_max = max(retain_hours * HOUR_MS, HOUR_MS), commits_max
        self._listing = Listing.of(folder, store)

    def run(self, files_max: int | None) -> TrimReport:
        start = self._start()
        old = self._older_than(start) if start is not None else []
        thin = self._spare_checkpoints(start)
        leftovers = self._leftovers()
        doomed = [*old, *thin, *leftovers][:files_max]
        hinted = hinted_checkpoint(self._folder, self._store)
        if hinted is not None and any(name.startswith(f"{hinted:020d}.checkpoint") for name in doomed):
            # Left by a process that was late. Readers do without a hint, but not with one that points at nothing.
            self._store.remove(self._folder / HINT)
        for name in doomed:
            self._store.remove(self._folder / name)
        gone = set(doomed)
        return TrimReport(
            commits=sum(name.endswith(".json") for name in old if name in gone),
            checkpoints=sum(".checkpoint" in name for name in [*old, *thin] if name in gone),
            leftovers=sum(name in gone for name in leftovers),
            oldest_version=start if gone.issuperset(old) else None,
        )

    def _age_ms(self, name: str) -> float:
        try:
            return self._now_ms - self._store.modified_ms(self._folder / name)
        except NotFound:
            return 0

    def _oldest_kept(self) -> int | None:
        """The oldest commit that must stay, whatever checkpoints there are."""
        run = self._listing.run()
        for place, version in enumerate(run[:-1]):
            age_ms = self._age_ms(commit_name(version))
            crowded = len(run) - 1 - place > self._commits_max and age_ms > HOUR_MS
            if age_ms <= self._retain_ms and not crowded:
                return version
        return run[-1] if run else None

    def _start(self) -> int | None:
        """The checkpoint that the log will begin with, proven to be readable and durable; None: nothing may go."""
        oldest, run = self._oldest_kept(), self._listing.run()
        if oldest is None:
            return None
        for version in reversed(self._listing.checkpoints[:-1]):
            path = self._folder / f"{version:020d}.checkpoint.parquet"
            if version <= oldest and run[0] <= version and is_parquet(path):
                self._store.sync_file(path)
                self._store.sync_folder(self._folder)
                return version
        return None

    def _older_than(self, start: int) -> list[str]:
        """Oldest first. A fresh commit among them is somebody's who is about to find out that it came too late."""
        found = [(int(match.group(1)), name) for name in self._listing.names if (match := _VERSIONED.fullmatch(name))]
        return [name for version, name in sorted(found) if version < start and self._age_ms(name) > HOUR_MS]

    def _spare_checkpoints(self, start: int | None) -> list[str]:
        """Commits say everything; a checkpoint every so often keeps reading an old version from taking long."""
        spare = []
        kept = start
        for version in self._listing.checkpoints[:-2]:
            name = f"{version:020d}.checkpoint.parquet"
            if start is not None and version <= start:
                continue
            close = kept is not None and version - kept < min(CHECKPOINT_DISTANCE, self._commits_max // 4)
            if close and name in self._listing.names and self._age_ms(name) > CHECKPOINT_AGE_MS_MIN:
                spare.append(name)
            else:
                kept = version
        return spare

    def _leftovers(self) -> list[str]:
        torn = [n for n in self._listing.names if _TORN.fullmatch(n) and self._age_ms(n) > self._retain_ms]
        cut_off = [n for n in self._listing.names if _TEMPORARY.fullmatch(n) and self._age_ms(n) > HOUR_MS]
        return torn + cut_off


def came_too_late(folder: Path, store: Store, version: int) -> bool:
    """Whether the commit just put at `version` stands where the log was trimmed, so that no reader will ever see it."""
    newest = hinted_checkpoint(folder, store)
    if (folder / commit_name(version - 1)).exists() and (newest is None or newest <= version):
        return False
    listing = Listing.of(folder, store)
    newer = [c for c in listing.checkpoints if c > version]
    if not newer or listing.can_read(version):
        return False
    try:
        put_ms = store.modified_ms(folder / commit_name(version))
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
