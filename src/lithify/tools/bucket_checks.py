"""Is the bucket of a lake fit for work? What a disk's fsync is to a folder, a round trip is here, and everything that
decides between writers rests on the server's conditions.

What is put there for this lies beside the lake's control files, under a name of its own, and is taken away again.
"""

from __future__ import annotations

import statistics
import time
import uuid
from pathlib import PurePath

from lithify.core.names import CONTROL_FOLDER
from lithify.errors import LithifyError, Unavailable
from lithify.files.open_storage import storage_of
from lithify.files.storage import Storage
from lithify.settings import Settings
from lithify.tools.check import Check, Status

ROUNDS = RACES = 5
ROUND_TRIP_MS_SLOW = 100.0
# Beyond a quarter of an hour AWS takes no signed request.
OFFSET_S_MAX, OFFSET_S_LARGE = 900.0, 60.0
PROBE = "probe"


def check_bucket(settings: Settings, place: PurePath) -> list[Check]:
    """`place`: where a lake is, or could be made."""
    store = storage_of(place)
    store.path_guard.trust(place)
    probe = place / CONTROL_FOLDER / PROBE / uuid.uuid4().hex
    checks = [_round_trip(store, probe)]
    try:
        checks += [_conditions(store, place), _clock(store, probe)]
    finally:
        store.delete(probe)
    return checks


def _round_trip(store: Storage, probe: PurePath) -> Check:
    from lithify.files.bucket.client import server

    where = server() or "Amazon S3"
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        store.tag(probe)
        taken.append((time.perf_counter() - begun) * 1000)
    p50, worst = statistics.median(taken), max(taken)
    found = f"{where} answers in {p50:.1f} ms (worst of {ROUNDS}: {worst:.1f} ms)"
    values = {"endpoint": where, "p50_ms": round(p50, 3), "max_ms": round(worst, 3)}
    if p50 > ROUND_TRIP_MS_SLOW:
        why = "every write waits for two of these, every fresh read for one: work from a machine near the bucket"
        return Check("bucket", Status.warn, found, why, values)
    return Check("bucket", Status.ok, found, values=values)


def _conditions(store: Storage, place: PurePath) -> Check:
    """Whether the server refuses what must not be done twice, also when many ask at a time."""
    try:
        store.probe(place / CONTROL_FOLDER, RACES)
    except Unavailable as error:
        return Check("conditions", Status.fail, error.message)
    return Check("conditions", Status.ok, "of those who write one object, one wins and knows it")


def _clock(store: Storage, probe: PurePath) -> Check:
    """The server's clock beside this one's. No lake compares them; signatures of requests do."""
    before_s = time.time()
    offset_s = store.touch_ms(probe) / 1000 - (before_s + time.time()) / 2
    found = f"the server's is {abs(offset_s):.0f} s {'ahead' if offset_s > 0 else 'behind'}"
    if abs(offset_s) < 2:  # it tells whole seconds
        found = "as the server's"
    values = {"offset_s": round(offset_s, 1)}
    if abs(offset_s) > OFFSET_S_MAX:
        return Check("clock", Status.fail, found, "set this machine's clock (NTP): requests will be refused", values)
    if abs(offset_s) > OFFSET_S_LARGE:
        return Check("clock", Status.warn, found, "set this machine's clock (NTP), or the server's", values)
    return Check("clock", Status.ok, found, values=values)


def check_copies(settings: Settings) -> Check:
    """The local copies that engines read."""
    from lithify.files.local_files import copies, keep_copies_in

    keep_copies_in(settings.copies_folder, settings.copies_bytes_max)
    used_bytes, bytes_max = copies().used_bytes(), copies().limit_bytes()
    found = f"{used_bytes / 10**9:,.2f} of at most {bytes_max / 10**9:,.1f} GB in {settings.copies_folder}"
    values = {"folder": str(settings.copies_folder), "used_bytes": used_bytes, "max_bytes": int(bytes_max)}
    try:
        copies().draft()
    except LithifyError as error:
        return Check("copies", Status.warn, found, f"none can be kept: {error.message} (setting cache_folder)", values)
    return Check("copies", Status.ok, found, values=values)
