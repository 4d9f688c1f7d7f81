"""Is this server fit to hold a lake? Some take conditional puts and ignore the condition, and with them everything that
keeps writers from overwriting each other: that is found out before the first table is made, and again by `doctor`.

It is tried with objects of a name that nobody else gives out, which are gone afterwards.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import TYPE_CHECKING

import obstore

from lithify.errors import Unavailable
from lithify.files.addresses import BucketPath
from lithify.files.bucket.client import client_of, server
from lithify.files.bucket.errors import Moved, again, remote
from lithify.files.bucket.marks import marks_of, nonce_bytes
from lithify.files.os_errors import Exists, InDoubt

if TYPE_CHECKING:
    from lithify.files.storage import Storage

WAIT_S_MAX, SWAP_S_MAX, LATE_MAX = 60.0, 5.0, 5


def probe(storage: Storage, folder: PurePath, rounds: int) -> None:
    """Raise what the server cannot do. `rounds`: how often many try to create one object at a time."""
    with _scratch(storage, folder) as scratch:
        storage.create(scratch / "one", b"first")
        if _creates(storage, scratch / "one", b"second") or storage.read(scratch / "one") != b"first":
            raise _unfit("of two who create one object, both are told that they did: it ignores If-None-Match")
        for number in range(rounds):
            _check_race(storage, scratch / f"race-{number}")
        _check_swap(storage, scratch / "swapped")
        if "one" not in storage.below(scratch):
            raise _unfit("an object that was written is missing from the list of its folder")


@contextlib.contextmanager
def _scratch(storage: Storage, folder: PurePath) -> Iterator[PurePath]:
    scratch = folder / f"probe-{uuid.uuid4().hex}"
    try:
        yield scratch
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong before is what has to be told
            storage.delete_folder(scratch)
        raise
    storage.delete_folder(scratch)
    if any(storage.below(scratch)):
        raise _unfit("objects that were deleted are still there")


def _creates(storage: Storage, path: PurePath, data: bytes) -> bool:
    try:
        storage.create(path, data)
    except Exists:
        return False
    return True


def _check_race(storage: Storage, path: PurePath, racers: int = 4) -> None:
    barrier = threading.Barrier(racers)

    def attempt(number: int) -> bool:
        barrier.wait(WAIT_S_MAX)
        return _creates(storage, path, b"%d" % number)

    with ThreadPoolExecutor(racers) as pool:
        won = list(pool.map(attempt, range(racers)))
    if won.count(True) != 1 or storage.read(path) != b"%d" % won.index(True):
        raise _unfit(f"of {racers} who create one object at a time, {won.count(True)} are told that they did")


def _check_swap(storage: Storage, path: PurePath) -> None:
    address = BucketPath(path)
    storage.swap(path, lambda before: b"first", SWAP_S_MAX, "an object of a probe")
    found = again(path, lambda: obstore.get(client_of(address), address.key, options={"head": True}))
    if not marks_of(found) or not nonce_bytes(found):
        raise _unfit("the metadata of an object does not come back as it was written")
    if (old := found.meta["e_tag"]) is None:
        raise _unfit("its objects have no ETag")
    storage.swap(path, lambda before: b"second", SWAP_S_MAX, "an object of a probe")
    for left in reversed(range(LATE_MAX)):
        try:
            with contextlib.suppress(Moved, Exists), remote(path):
                obstore.put(client_of(address), address.key, b"late", mode={"e_tag": old})
            break
        except InDoubt:
            if not left:
                raise
    if storage.read(path) != b"second":
        raise _unfit("an object is replaced though it has changed since it was read: it ignores If-Match")


def _unfit(why: str) -> Unavailable:
    return Unavailable(
        f"the object store at {server() or 'AWS'} cannot hold a lake: {why}. "
        "Use a server that keeps to conditional writes, or a newer version of this one (docs/object-stores.md)"
    )
