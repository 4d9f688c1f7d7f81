"""Signs of life: how processes on several machines tell which of them are gone, where a storage has no locks.

A process that has a job or a pin under way writes `_lithify/alive/<host>-<pid>-<hash>.json` anew twice in the time of a
lease, each time with other content. Whoever looks judges by its own monotonic clock: content that is still the same as
at an earlier look has been the same all the time between, and that is silence. Who looks for the first time, as a
command does that runs once and ends, goes by the storage's clock: the time of the object against now, which is the time
of an object just put, with as much to spare as signatures of requests may be off. No clock of another machine is
compared with this one's. A process of the same machine is looked up, which is exact.

It is a hint, and nothing is lost where it is wrong: a job that is taken for dead is fenced in the log before anything
of it is deleted, and its owner, back again, finds the fence. A pin needs hours of silence, and a reader that was silent
for so long is told that its files are gone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
from collections.abc import Hashable
from dataclasses import asdict
from pathlib import PurePath

from lithify.compute.processes import machine
from lithify.core.json_out import parsed
from lithify.errors import LithifyError, NotFound
from lithify.tables.runtime import Owner, Runtime

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 2
# A process that is cut off from the storage for a while is not gone.
SILENT_LEASES = 5
SKEW_S = 900.0
FORGOTTEN_HOURS = 7 * 24
LOOKS_MAX = 10_000


class Looks:
    """What this process saw of objects that others write again and again, and since when they have been the same."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, float]] = {}
        self._lock = threading.Lock()

    def unchanged_s(self, path: PurePath, content: Hashable, now_s: float) -> float:
        """`content` is never the same twice: each writing of it has a nonce."""
        with self._lock:
            if len(self._seen) >= LOOKS_MAX and str(path) not in self._seen:
                self._seen.clear()  # they begin anew, and somebody is taken for alive a little longer
            known = self._seen.get(str(path))
            if known is None or known[0] != content:
                self._seen[str(path)] = content, now_s
                return 0.0
            return now_s - known[1]


def unchanged_s(runtime: Runtime, path: PurePath, content: Hashable) -> float:
    """How long nobody has written the object, as far as can be told from here: at least so long."""
    seen_s = runtime.shared(Looks).unchanged_s(path, content, runtime.monotonic_s())
    try:
        written_ms = runtime.store.modified_ms(path)
    except NotFound:
        return math.inf
    return max(seen_s, (runtime.now_ms() - written_ms) / 1000 - SKEW_S)


# -- giving them


class Heartbeats:
    """Of this process, one for each owner that it acts for: beats while any of its jobs or pins is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beats: dict[tuple[PurePath, Owner], _Heartbeat] = {}

    def of(self, runtime: Runtime) -> _Heartbeat:
        with self._lock:
            return self._beats.setdefault((runtime.root, runtime.owner), _Heartbeat(runtime))


class _Heartbeat:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._interval_s = runtime, runtime.settings.lease_s / BEATS_PER_LEASE
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self._beaten_s = -math.inf
        self._idle = threading.Event()

    def begin(self, what: str) -> None:
        """Others can see that we live before they see what is under way."""
        with self._lock:
            if self._runtime.monotonic_s() - self._beaten_s >= self._interval_s:
                self._beat()
            if not self._under_way:
                self._idle = threading.Event()
                threading.Thread(target=self._go_on, args=(self._idle,), name="heartbeat", daemon=True).start()
            self._under_way.add(what)

    def end(self, what: str) -> None:
        with self._lock:
            self._under_way.discard(what)
            if not self._under_way:
                self._idle.set()

    def _go_on(self, idle: threading.Event) -> None:
        while not idle.wait(self._interval_s):
            try:
                self._beat()
            except LithifyError as error:
                logger.warning("no sign of life could be given, others may take over what runs here: %s", error)

    def _beat(self) -> None:
        runtime = self._runtime
        told = {"owner": asdict(runtime.owner), "machine": machine(), "nonce": runtime.new_id()}
        runtime.store.put(_path(runtime, runtime.owner), json.dumps(told).encode())
        self._beaten_s = runtime.monotonic_s()


def begin(runtime: Runtime, what: str) -> None:
    """From now until `end` others see that this process lives. Where there are locks, its processes are looked up."""
    if not runtime.store.locks:
        runtime.shared(Heartbeats).of(runtime).begin(what)


def end(runtime: Runtime, what: str) -> None:
    if not runtime.store.locks:
        runtime.shared(Heartbeats).of(runtime).end(what)


# -- looking for them


def may_be_alive(runtime: Runtime, owner: Owner, silent_s_max: float, since_ms: int, hours_max: float) -> bool:
    """Whether the owner of something from `since_ms`, by the storage's clock, may go on with it. One that never gave a
    sign of life (a Spark driver, say) has `hours_max` from then on.
    """
    path = _path(runtime, owner)
    try:
        content = runtime.store.read(path)
    except NotFound:
        return owner.may_be_alive() and runtime.now_ms() - since_ms <= hours_max * 3_600_000
    if _machine_of(content) == machine() and not owner.may_be_alive():
        return False
    return unchanged_s(runtime, path, content) < silent_s_max


def job_silent_s_max(runtime: Runtime) -> float:
    return SILENT_LEASES * runtime.settings.lease_s


def forget_silent(runtime: Runtime) -> None:
    """Remove signs of life of processes that are gone for so long that nothing of them counts any more."""
    folder, store = _folder(runtime), runtime.store
    hours = max(FORGOTTEN_HOURS, 2 * runtime.settings.pin_hours_max)
    old = [found.path for found in store.entries(folder) if runtime.now_ms() - found.mtime_ms > hours * 3_600_000]
    store.delete_all(folder / name for name in old)


def _machine_of(content: bytes) -> object:
    told = parsed(content)
    return told.get("machine") if isinstance(told, dict) else None


def _folder(runtime: Runtime) -> PurePath:
    return runtime.control / "alive"


def _path(runtime: Runtime, owner: Owner) -> PurePath:
    name = f"{owner.label}-{owner.started}"
    plain = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in owner.label)
    return _folder(runtime) / f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
