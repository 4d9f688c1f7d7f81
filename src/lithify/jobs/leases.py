"""Leases: who does a kind of work for the lake now, so that several processes share it without a coordinator.

A lease is a small object that names its holder and when it ends; each change of it is one swap (`files/storage.py`). It
saves double work and is never what keeps rows safe: a holder that sleeps past its end
is overtaken, and whatever it commits afterwards is decided by the log. Each new holder gets the next token, so that
a job which notes its token can be told from those of the holder after it.

When it ends is told by the lake's clock, which all processes share. That may jump. Forward: leases end early, and
somebody takes over. Backward: an end that lies further ahead than twice the length the lease was granted for cannot be
true, and is not honoured, so that no lease lasts forever.

Where the storage has no locks, processes are on several machines, and no time in a lease is believed: it has ended when
an observer has seen it unchanged for its length (`tables/presence.py`). Each writing has a nonce, so that a lease that
was renewed is never the same again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from types import TracebackType
from typing import Any

from lithify.compute.processes import machine
from lithify.errors import Conflict, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.tables.presence import unchanged_s
from lithify.tables.runtime import Owner, Runtime

logger = logging.getLogger(__name__)

LEASE_S_MAX = 3600
PAUSE_S = 0.1
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class LeaseLost(Conflict):
    """Somebody else holds the lease now: start nothing new under it."""


@dataclass(frozen=True)
class Lease:
    """What the file says. `id` is the holder's own name for its turn, e.g. of the cycle it runs."""

    name: str
    id: str
    owner: Owner
    token: int
    started_ms: int
    expires_ms: int
    length_ms: int
    what: str = ""
    machine: str = ""
    nonce: str = ""

    def holds_at(self, now_ms: int) -> bool:
        """Whether to respect it. An owner that is surely gone holds nothing."""
        left_ms = self.expires_ms - now_ms
        return 0 < left_ms <= 2 * min(self.length_ms, LEASE_S_MAX * 1000) and self.owner.may_be_alive()

    def document(self) -> bytes:
        fields = asdict(self)
        for name in ("machine", "nonce"):
            if not fields[name]:
                del fields[name]
        return json.dumps(fields).encode()

    @property
    def holder(self) -> str:
        return f"{self.owner.label} since {shown_time(self.started_ms)}"


def shown_time(time_ms: int) -> str:
    try:
        return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def acquire(runtime: Runtime, name: str, lease_id: str, length_s: float, what: str = "") -> tuple[bool, Lease]:
    """True and our lease, or False and the lease that stands in the way."""
    if not 0 < length_s <= LEASE_S_MAX:
        raise InvalidRequest(f"a lease lasts more than 0 and at most {LEASE_S_MAX} s, not {length_s}")
    length_ms = int(length_s * 1000)

    def take(found: Lease | None, token: int) -> Lease | None:
        if found is not None and _holds(runtime, found):
            return None
        now_ms = runtime.now_ms()
        if found is not None and found.expires_ms > 0:
            logger.info("lease %s is taken over from %s, token %d", name, found.holder, found.token)
        return Lease(name, lease_id, runtime.owner, token + 1, now_ms, now_ms + length_ms, length_ms, what)

    before, after = _swap(runtime, name, take)
    if after is None:
        assert before is not None
        return False, before
    runtime.store.step("lease.acquired")
    return True, after


def renew(runtime: Runtime, lease: Lease) -> Lease:
    """Extend our lease. One that has ended but that nobody took is still ours."""

    def extend(found: Lease | None, token: int) -> Lease:
        _check_ours(lease, found)
        return replace(lease, expires_ms=runtime.now_ms() + lease.length_ms)

    _, renewed = _swap(runtime, lease.name, extend)
    assert renewed is not None
    runtime.store.step("lease.renewed")
    return renewed


def check(runtime: Runtime, lease: Lease) -> None:
    """Raise `LeaseLost` if somebody has taken the lease over."""
    _check_ours(lease, _look(runtime, lease.name)[0])


def _check_ours(lease: Lease, found: Lease | None) -> None:
    if found is not None and (found.token, found.id, found.owner) != (lease.token, lease.id, lease.owner):
        raise LeaseLost(
            f"lease {lease.name} was taken over by {found.holder}: this process slept past its end",
            lease=lease.name,
            token=found.token,
        )


def release(runtime: Runtime, lease: Lease) -> None:
    """Give our lease back; the file stays, because it knows the token. A lease that was taken over is left alone."""

    def end(found: Lease | None, token: int) -> Lease:
        _check_ours(lease, found)
        return replace(lease, expires_ms=0)

    with contextlib.suppress(LeaseLost):
        _swap(runtime, lease.name, end)
        runtime.store.step("lease.released")


def current(runtime: Runtime, name: str) -> Lease | None:
    """The lease that holds now, if any."""
    found, _ = _look(runtime, name)
    return found if found is not None and _holds(runtime, found) else None


def _holds(runtime: Runtime, lease: Lease) -> bool:
    if runtime.store.locks:
        return lease.holds_at(runtime.now_ms())
    if not lease.expires_ms or (lease.machine == machine() and not lease.owner.may_be_alive()):
        return False
    length_s = min(lease.length_ms / 1000, LEASE_S_MAX)
    return unchanged_s(runtime, _path(runtime, lease.name), lease) < length_s


def current_token(runtime: Runtime, name: str) -> int:
    """The token of the newest holder, also of one that has given the lease back; 0 if there never was one."""
    return _look(runtime, name)[1]


class RenewedLease:
    """A lease that a thread keeps renewing until the block ends. `lost` is set when somebody has taken it over."""

    def __init__(self, runtime: Runtime, lease: Lease) -> None:
        self._runtime, self.lease = runtime, lease
        self.lost = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{lease.name}", daemon=True)

    def __enter__(self) -> RenewedLease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        try:
            release(self._runtime, self.lease)
        except LithifyError as problem:
            logger.warning("lease %s is left to run out: %s", self.lease.name, problem)

    def still_ours(self) -> bool:
        """Looks at the file: a process that has just woken up does not know yet how long it slept."""
        if not self.lost.is_set():
            self._try(check, "checked")
        return not self.lost.is_set()

    def _beat(self) -> None:
        while not self._ended.wait(self.lease.length_ms / 3000) and not self.lost.is_set():
            self._try(renew, "renewed")

    def _try(self, act: Callable[[Runtime, Lease], object], done: str) -> None:
        try:
            act(self._runtime, self.lease)
        except LeaseLost as problem:
            if not self.lost.is_set():
                logger.warning("%s", problem)
                self.lost.set()
        except LithifyError as problem:
            # E.g. a full disk. If it lasts, others take over, which is right too.
            logger.warning("lease %s could not be %s: %s", self.lease.name, done, problem)


@contextlib.contextmanager
def waited_for(runtime: Runtime, name: str, length_s: float, wait_s_max: float, what: str) -> Iterator[None]:
    """In place of a lock, for short work that a second holder cannot spoil."""
    until_s, lease_id = runtime.monotonic_s() + wait_s_max, runtime.new_id()
    while True:
        ours, lease = acquire(runtime, name, lease_id, length_s, what)
        if ours:
            break
        if runtime.monotonic_s() > until_s:
            raise Unavailable(
                f"another process ({lease.holder}) has held the lease for {lease.what or what} for {wait_s_max:.0f} s: "
                "try again later"
            )
        runtime.pause(PAUSE_S)
    with RenewedLease(runtime, lease):
        yield


def _swap(
    runtime: Runtime, name: str, change: Callable[[Lease | None, int], Lease | None]
) -> tuple[Lease | None, Lease | None]:
    """What the lease was, and what it is now; None where it stays as it was. `change` gets what `_told` answers."""
    path, store = _path(runtime, name), runtime.store
    seen: tuple[Lease | None, Lease | None] = None, None

    def changed(content: bytes | None) -> bytes | None:
        nonlocal seen
        found, token = _told(runtime, name, content, set_aside=True)
        after = change(found, token)
        if after is not None and not store.locks:
            after = replace(after, machine=machine(), nonce=runtime.new_id())
        seen = found, after
        return None if after is None else after.document()

    store.make_folder(path.parent)
    store.swap(path, changed, runtime.settings.lock_wait_s_max, f"lease {name}")
    return seen


def _look(runtime: Runtime, name: str) -> tuple[Lease | None, int]:
    try:
        content = runtime.store.read(_path(runtime, name))
    except NotFound:
        content = None
    return _told(runtime, name, content)


def _told(runtime: Runtime, name: str, content: bytes | None, *, set_aside: bool = False) -> tuple[Lease | None, int]:
    """The lease, and the newest token given out. What cannot be read counts as ended; who is about to take its place
    keeps a copy.
    """
    if content is None:
        return None, 0
    try:
        lease = _parsed(json.loads(content))
        if lease.name != name:
            raise ValueError(f"it is of lease {lease.name!r}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if set_aside:
            path = _path(runtime, name)
            aside = path.with_suffix(".unreadable")
            logger.warning("setting aside unreadable lease %s as %s: %s", path, aside.name, error)
            runtime.store.put(aside, content)
        # How many holders there were is lost; the time in ms is more than that.
        return None, max(runtime.now_ms(), 0)
    return lease, lease.token


def _parsed(fields: dict[str, Any]) -> Lease:
    lease = Lease(**{**fields, "owner": Owner(**fields["owner"])})
    numbers = (lease.token, lease.started_ms, lease.expires_ms, lease.length_ms, lease.owner.pid)
    texts = (lease.name, lease.id, lease.what, lease.owner.host, lease.owner.started, lease.machine, lease.nonce)
    if not all(type(number) is int for number in numbers) or not all(isinstance(text, str) for text in texts):
        raise TypeError("a field has the wrong type")
    return lease


def _path(runtime: Runtime, name: str) -> PurePath:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is no name of a lease: lower-case letters, digits, _ and -")
    return runtime.control / "leases" / f"{name}.json"
