"""What of a log is known to be on disk. deltalake does not fsync; before a commit is acknowledged, or built on, it and
all earlier ones have to be. A commit whose fsync failed, here or in another process, is written anew if it is whole:
syncing it again would prove nothing (`files/local.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lithify.delta.commit_files import Commits
from lithify.delta.folder import HINT, hinted_checkpoint
from lithify.delta.torn_log import is_whole
from lithify.errors import Corruption, NotFound

logger = logging.getLogger(__name__)


class Synced:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._version = -1
        self._written = set[int]()

    def up_to(self, target: int, trust_checkpoints: Callable[[], bool]) -> None:
        """fsync every commit up to `target`. `trust_checkpoints`: what is in one was synced before it was written."""
        commits, start = self._commits, self._version + 1
        if start > target or commits.store.remote:  # where what has its name lasts
            return
        for version in range(start, target + 1) if start else self._tail(target, trust_checkpoints()):
            try:
                if version not in self._written:
                    self._sync(version)
            except NotFound:
                # Whoever moved or deleted it had a newer checkpoint, and whoever wrote that had synced it.
                if version == target and not commits.listing().covers(target):
                    raise
        commits.store.sync_folder(commits.live)
        if start == 0:
            commits.store.sync_folder(commits.table)
        self._version = target
        self._written = {version for version in self._written if version > target}

    def written(self, version: int) -> None:
        """The content of this commit lasts, since it got its name after that; the name does not yet."""
        if version > self._version:
            self._written.add(version)

    def _sync(self, version: int) -> None:
        store, path = self._commits.store, self._commits.live_path(version)
        if not store.is_doubted(path):
            store.sync_file(path)
            return
        data = store.read(path)
        if not is_whole(data):
            raise Corruption(
                f"commit {path} could not be written to disk, and is not readable any more: check the disk"
            )
        logger.warning("writing %s anew: it could not be written to disk before", path)
        store.write_anew(path, data)

    def _tail(self, target: int, after_checkpoint: bool) -> list[int]:
        commits = self._commits
        hinted = hinted_checkpoint(commits.live, commits.store) if after_checkpoint else None
        if hinted is not None and hinted <= target:
            return list(range(hinted + 1, target + 1))
        return commits.listing().tail(target, after_checkpoint=after_checkpoint)


def sync_checkpoint(commits: Commits, version: int) -> None:
    """A checkpoint in doubt stays where it is while the log has the commits; nothing is trimmed by it (`trim`)."""
    store, folder = commits.store, commits.live
    if store.remote:
        return
    for name in store.names(folder):
        if name.startswith(f"{version:020d}.checkpoint"):
            store.sync_file(folder / name)
    hint = folder / HINT
    if store.is_doubted(hint):
        store.write_anew(hint, store.read(hint))
    else:
        store.sync_file(hint)
    store.sync_folder(folder)
