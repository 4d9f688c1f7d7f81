"""The kinds of storage that the contract is for, by name, so that another process can open one too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from lithify.files.addresses import path_of
from lithify.files.local import LocalStorage
from lithify.files.storage import Storage
from support.bucket import Bucket
from support.fault_proxy import Fault, FaultProxy

# How many of a hundred requests meet with which trouble, whatever they are for.
TROUBLE: dict[Fault, float] = {
    "drop after": 0.06,
    "500 after": 0.04,
    "drop before": 0.03,
    "503": 0.03,
    "truncate": 0.02,
}
COLLISIONS = 0.05


def _local(root: PurePath) -> Storage:
    storage = LocalStorage()
    storage.path_guard.trust(Path(root))
    return storage


def _imitation(root: PurePath) -> Storage:
    return Bucket(Path(root))


def _bucket(root: PurePath) -> Storage:
    from lithify.files.bucket.storage import BucketStorage

    storage = BucketStorage()
    storage.path_guard.trust(root)
    return storage


@dataclass(frozen=True)
class Kind:
    """`open`: as another process would, at the same root. `server`: what it has to have, "any" or one by name. `rounds`
    and `racers`: how much it can bear of what many do at a time.
    """

    open: Callable[[PurePath], Storage]
    server: str = ""
    troubled: bool = False
    rounds: int = 20
    racers: int = 8


KINDS = {
    "local": Kind(_local),
    "local without links": Kind(_local),
    "an imitation of a bucket": Kind(_imitation),
    "a bucket on versitygw": Kind(_bucket, "versitygw"),
    # It holds off those that meet for seconds.
    "a bucket on SeaweedFS": Kind(_bucket, "SeaweedFS", rounds=1, racers=3),
    "a bucket behind the fault proxy": Kind(_bucket, "any", troubled=True, rounds=6, racers=4),
}


def make_trouble(proxy: FaultProxy) -> None:
    """Any request may fail, and may have done what it was asked to do; S3 itself refuses some that meet."""
    proxy.fail("409", "PUT", conditional=True, times=None, chance=COLLISIONS)
    for fault, chance in TROUBLE.items():
        proxy.fail(fault, "", times=None, chance=chance)


def count_up(kind: str, root: str, times: int, wait_s: float) -> None:
    path = path_of(root)
    storage = KINDS[kind].open(path)
    for _ in range(times):
        storage.swap(path / "a/count", _plus_one, wait_s, "the count")


def _plus_one(before: bytes | None) -> bytes:
    return b"%d" % (int(before or b"0") + 1)
