"""Making a log begin with a version: nothing older can be read afterwards, nor is any of it left.

Trimming keeps an hour and two checkpoints, so that whoever reads or writes now is not disturbed. An erasure may not
wait for that: the version gets a checkpoint of its own, which is read and fsynced before anything goes, and then all
that is older goes at once, the archive first, oldest first. Cut off at any file, what is left is a log that was trimmed
so far. A process that knows an older version finds the gap and opens the log anew, and a commit that came too late is
found as after any trim (`lost_to_trim`). What a write has left that was cut off goes too, unless it may be under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from lithify.delta.archive import LOCK_WAIT_S_MAX, VERSIONED_NAME
from lithify.delta.commit_files import Commits
from lithify.delta.folder import HINT, LOCK, checkpoint_name, hinted_checkpoint
from lithify.delta.forget import checkpoint_without
from lithify.delta.fsync import sync_checkpoint
from lithify.delta.torn_log import is_parquet
from lithify.delta.trim import TEMPORARY, TORN
from lithify.errors import Unavailable

UNDER_WAY_MS = 60_000


@dataclass(frozen=True)
class Cut:
    """What went."""

    commits: int = 0
    checkpoints: int = 0
    leftovers: int = 0

    def __add__(self, other: Cut) -> Cut:
        return Cut(self.commits + other.commits, self.checkpoints + other.checkpoints, self.leftovers + other.leftovers)


def cut(commits: Commits, version: int, now_ms: int) -> Cut:
    """Again is safe: what is gone already is not counted."""
    store = commits.store
    with store.lock(commits.live / LOCK, LOCK_WAIT_S_MAX, f"cutting {commits.live}"):
        _anchor(commits, version)
        store.step("cut.anchored")
        gone = _gone_from_archive(commits) + _gone_from_log(commits, version, now_ms)
        store.sync_folder(commits.live)
    return gone


def _anchor(commits: Commits, version: int) -> None:
    path, store = commits.live / checkpoint_name(version), commits.store
    if store.exists(path) and not is_parquet(path, store):
        store.delete(path)
    if not store.exists(path):
        checkpoint_without(commits, version, frozenset())
    if not is_parquet(path, store) or store.is_doubted(path):
        raise Unavailable(f"the checkpoint {path} cannot be read back: check the disk, then resume")
    hinted = hinted_checkpoint(commits.live, store)
    if hinted is None or hinted < version:
        store.delete(commits.live / HINT)  # readers do without one, but not with one that points at nothing
    if store.exists(commits.live / HINT):
        sync_checkpoint(commits, version)
    else:
        store.sync_file(path)
        store.sync_folder(commits.live)


def _gone_from_archive(commits: Commits) -> Cut:
    gone, store = Cut(), commits.store
    for name in store.names(commits.archive):
        store.delete(commits.archive / name)
        gone += _counted(name)
    store.delete_empty_folder(commits.archive)
    return gone


def _gone_from_log(commits: Commits, version: int, now_ms: int) -> Cut:
    gone, store = Cut(), commits.store
    for name in store.names(commits.live):
        found = VERSIONED_NAME.fullmatch(name)
        if found is not None:
            goes = int(found.group(1)) < version
        elif TORN.fullmatch(name):
            goes = True
        else:
            goes = bool(TEMPORARY.fullmatch(name)) and _age_ms(commits, name, now_ms) > UNDER_WAY_MS
        if goes:
            store.delete(commits.live / name)
            gone += _counted(name)
    return gone


def _age_ms(commits: Commits, name: str, now_ms: int) -> float:
    path = commits.live / name
    return now_ms - commits.store.modified_ms(path) if commits.store.exists(path) else 0


def _counted(name: str) -> Cut:
    if VERSIONED_NAME.fullmatch(name) is None:
        return Cut(leftovers=1)
    return Cut(commits=1) if name.endswith(".json") else Cut(checkpoints=1)
