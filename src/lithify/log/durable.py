"""What of a log is known to be on disk. deltalake does not fsync; before a commit is acknowledged, or built on, it and
all earlier ones have to be.
"""

from __future__ import annotations

from collections.abc import Callable

from lithify.errors import NotFound
from lithify.log.commits import Commits
from lithify.log.listing import hinted_checkpoint


class Synced:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._version = -1

    def up_to(self, target: int, trust_checkpoints: Callable[[], bool]) -> None:
        """fsync every commit up to `target`. `trust_checkpoints`: what is in one was synced before it was written."""
        commits, start = self._commits, self._version + 1
        if start > target:
            return
        for version in range(start, target + 1) if start else self._tail(target, trust_checkpoints()):
            try:
                commits.store.sync_file(commits.live_path(version))
            except NotFound:
                # Whoever moved or deleted it had a newer checkpoint, and whoever wrote that had synced it.
                if version == target and not commits.listing().covers(target):
                    raise
        commits.store.sync_folder(commits.live)
        if start == 0:
            commits.store.sync_folder(commits.table)
        self._version = target

    def _tail(self, target: int, after_checkpoint: bool) -> list[int]:
        commits = self._commits
        hinted = hinted_checkpoint(commits.live, commits.store) if after_checkpoint else None
        if hinted is not None and hinted <= target:
            return list(range(hinted + 1, target + 1))
        return commits.listing().tail(target, after_checkpoint=after_checkpoint)
