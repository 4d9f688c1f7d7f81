"""What a power cut leaves of a log, because deltalake does not fsync: the newest commit or checkpoint cut off.

Such a commit was never acknowledged, and a checkpoint only repeats what the commits say, so both can be set aside.
An unreadable commit anywhere else is corruption: newer ones build on it.
"""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.errors import Corruption, NotFound
from lithify.store.local import Store

logger = logging.getLogger(__name__)

COMMIT_NAME = re.compile(r"(\d{20})\.json")
CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint.*\.parquet")


def set_torn_commit_aside(folder: Path, store: Store) -> None:
    commits = sorted(name for name in store.names(folder) if COMMIT_NAME.fullmatch(name))
    newest_checkpoint = max((m.group(1) for m in map(CHECKPOINT_NAME.fullmatch, store.names(folder)) if m), default="")
    tail = [name for name in commits if name[:20] > newest_checkpoint]
    torn = [name for name in tail if not _parses(folder / name, store)]
    if not torn:
        return
    if torn != commits[-1:]:
        raise Corruption(
            f"commit {folder / torn[0]} is not readable, and it is not the newest: restore it from a copy "
            "(newer commits build on it, so it cannot be left out)"
        )
    # Serialised and checked again under the lock: a slower process must not set a good successor aside.
    with store.lock(folder / ".lithify-recovery", 30, f"recovery of {folder}"):
        path = folder / torn[0]
        if path.exists() and not _parses(path, store):
            logger.warning("setting aside %s: it was cut off before it was acknowledged", path)
            store.rename(path, path.with_name(f".torn-{path.name}-{time.time_ns()}"))


def _parses(path: Path, store: Store) -> bool:
    try:
        lines = store.read(path).splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except NotFound:
        return True
    except ValueError:
        return False


def set_torn_checkpoint_aside(folder: Path, store: Store) -> bool:
    """A checkpoint repeats what the commits say. One that cannot be read is dropped while its commits are all there."""
    dropped = False
    for name in store.names(folder):
        match = CHECKPOINT_NAME.fullmatch(name)
        if match and not _is_parquet(folder / name):
            commits = {n for n in store.names(folder) if COMMIT_NAME.fullmatch(n)}
            if all(f"{v:020d}.json" in commits for v in range(int(match.group(1)) + 1)):
                store.remove(folder / name)
                dropped = True
    # Only a hint, but one that points at nothing stops readers.
    if "_last_checkpoint" in store.names(folder):
        store.remove(folder / "_last_checkpoint")
        dropped = True
    return dropped


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True
