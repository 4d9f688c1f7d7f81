"""What a power cut leaves of a log, because deltalake does not fsync: the newest commit or checkpoint cut off.

Such a commit was never acknowledged, and a checkpoint only repeats what the commits say, so both can be set aside.
An unreadable commit anywhere else is corruption: newer ones build on it.
"""

from __future__ import annotations

import logging
import time
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.delta.actions import parse_objects
from lithify.delta.folder import CHECKPOINT_NAME, HINT, LOCK, Listing, commit_name, hinted_checkpoint
from lithify.delta.own_commits import OutOfOrder, check_whole, seq_after
from lithify.errors import Corruption, NotFound
from lithify.files.open_parquet import open_bytes, open_file, read_open
from lithify.files.storage import Storage

logger = logging.getLogger(__name__)


def set_torn_commit_aside(folder: PurePath, store: Storage) -> None:
    if not _tail_is_whole(folder, store):
        _set_aside(folder, store)


def _tail_is_whole(folder: PurePath, store: Storage) -> bool:
    """The usual case, found without listing the folder: every commit after the hinted checkpoint is as it should be."""
    version, seq = hinted_checkpoint(folder, store), None
    if version is None:
        return False
    while store.exists(path := folder / commit_name(version + 1)):
        try:
            seq = _seq_after(version + 1, store.read(path), seq)
        except NotFound:
            pass
        except ValueError:
            return False
        version += 1
    return True


def _seq_after(version: int, content: bytes, before: int | None) -> int | None:
    """Raises ValueError for what nobody has written so. What else others write is judged by deltalake."""
    actions = parse_objects(content)
    commit: dict[str, Any] = next((a["commitInfo"] for a in actions if isinstance(a.get("commitInfo"), dict)), {})
    check_whole(version, actions, commit)
    info = commit.get("lithify")
    if not isinstance(info, dict):
        return before
    txns = [a["txn"] for a in actions if isinstance(a.get("txn"), dict)]
    return seq_after(version, {txn.get("appId"): txn.get("version") for txn in txns}, info, before)


def _set_aside(folder: PurePath, store: Storage) -> None:
    listing = Listing.of(folder, store)
    newest_checkpoint = max(listing.checkpoints, default=-1)
    tail = [version for version in listing.commits if version > newest_checkpoint]
    torn, replaced, seq = list[PurePath](), list[PurePath](), None
    for version in tail:
        path = folder / commit_name(version)
        try:
            seq = _seq_after(version, store.read(path), seq)
        except NotFound:
            continue
        except OutOfOrder:
            replaced.append(path)
        except ValueError:
            torn.append(path)
    if torn and torn != [folder / commit_name(tail[-1])]:
        raise Corruption(
            f"commit {torn[0]} is not readable, and it is not the newest: restore it from a copy "
            "(newer commits build on it, so it cannot be left out)"
        )
    if replaced:
        raise Corruption(f"commit {replaced[0]} is not what was written: restore it from a copy")
    if not torn:
        return
    # Serialised and checked again under the lock: a slower process must not set a good successor aside.
    with store.lock(folder / LOCK, 30, f"recovery of {folder}"):
        (path,) = torn
        if store.exists(path) and not _parses(path, store):
            logger.warning("setting aside %s: it was cut off before it was acknowledged", path)
            store.move(path, path.with_name(f".torn-{path.name}-{time.time_ns()}"))


def _parses(path: PurePath, store: Storage) -> bool:
    try:
        return is_whole(store.read(path))
    except NotFound:
        return True


def is_whole(commit: bytes) -> bool:
    try:
        _seq_after(0, commit, None)
    except ValueError:
        return False
    return True


def set_torn_checkpoint_aside(folder: PurePath, store: Storage) -> bool:
    """A checkpoint repeats what the commits say. One that cannot be read is dropped while an older one, or the
    beginning of the log, and all commits since are there.
    """
    dropped = False
    listing = Listing.of(folder, store)
    torn = {
        name: int(match.group(1))
        for name in listing.names
        if (match := CHECKPOINT_NAME.fullmatch(name)) and not is_parquet(folder / name, store)
    }
    for name, version in torn.items():
        if listing.can_read(version, without=torn.values()):
            store.delete(folder / name)
            dropped = True
    # Only a hint, but one that points at nothing stops readers.
    if HINT in store.names(folder):
        store.delete(folder / HINT)
        dropped = True
    return dropped


def open_checkpoint(path: PurePath, store: Storage) -> pq.ParquetFile:
    """No copy of one is kept anywhere: another log at the same address would have names of its own like these."""
    return open_bytes(store.read(path), str(path)) if store.remote else open_file(path)


def checkpoint_column(path: PurePath, store: Storage, name: str) -> pa.ChunkedArray | None:
    """What its actions of one kind say. None: it is one of the files beside a checkpoint, which have none of them."""
    try:
        file = open_checkpoint(path, store)
        if name not in file.schema_arrow.names:
            return None
        return read_open(file, path, [name]).column(name).drop_null()
    except Corruption as error:
        raise Corruption(f"checkpoint {path} is not readable: restore it from a copy") from error


def is_parquet(path: PurePath, store: Storage) -> bool:
    """Raises what stops this process from reading it; Arrow's own errors, which have no number, are about the file."""
    try:
        open_checkpoint(path, store).close()
    except (Corruption, NotFound):
        return False
    return True
