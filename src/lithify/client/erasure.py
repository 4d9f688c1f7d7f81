"""An erasure on a lake behind a service: what `RemoteLake.erase` and `erasure` answer."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

from lithify.client.documents import field_of, rebuilt
from lithify.client.transport import Call, Transport
from lithify.core.arguments import check_seconds
from lithify.core.json_out import jsonable
from lithify.core.results import Verified
from lithify.errors import Conflict, InvalidRequest

LOOK_S, ASK_EVERY = 0.5, 10


def keys_listed(keys: Any) -> list[Any]:
    """As JSON has them. The table's columns need not be known here: a token may erase and read nothing."""
    if hasattr(keys, "to_pylist"):
        keys = keys.to_pylist()
    elif isinstance(keys, str | bytes | int | Mapping) or not hasattr(keys, "__iter__"):
        keys = [keys]
    found = list(keys)
    if any(isinstance(key, tuple | list) for key in found):
        raise InvalidRequest("a key of several columns names them: give [{'order': 42, 'line': 1}]")
    return [jsonable(key) for key in found]


class RemoteErasure:
    """Its methods are those of `Erasure`; the work is done by the service's maintenance. `salt` is there for whoever
    asked for it, once.
    """

    def __init__(self, transport: Transport, document: Mapping[str, Any]) -> None:
        self._transport = transport
        self.id, self.table = str(field_of(document, "id")), str(field_of(document, "table"))
        self.salt: str | None = document.get("salt")
        self._path = f"/erasures/{self.id}"

    def __repr__(self) -> str:
        return f"RemoteErasure({self.id!r}, table={self.table!r})"

    def _now(self) -> dict[str, Any]:
        return dict(self._transport.ask(Call("GET", self._path, again=True)))

    @property
    def state(self) -> str:
        """As it is now, whoever works on it: open, blocked, leftover, done or cancelled."""
        return str(field_of(self._now(), "state"))

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """Pins and tags that keep the past readable."""
        return tuple(field_of(self._now(), "blocked_by"))

    @property
    def places(self) -> tuple[dict[str, str], ...]:
        """Where the last scan found something, by file, method and column."""
        return tuple(field_of(self._now(), "places"))

    @property
    def problems(self) -> tuple[str, ...]:
        """What the last scan could not look at."""
        return tuple(field_of(self._now(), "problems"))

    @property
    def receipt(self) -> dict[str, Any] | None:
        """None: it is not done."""
        if self.state != "done":
            return None
        found: dict[str, Any] = json.loads(self.receipt_bytes())
        return found

    def receipt_bytes(self) -> bytes:
        """The receipt as it was signed: keep a copy elsewhere."""
        return self._transport.send(Call("GET", f"{self._path}/receipt", again=True)).content

    def describe(self) -> dict[str, Any]:
        """What is known of it, without values."""
        found = self._now()
        return {**found, "requested": dt.datetime.fromisoformat(str(field_of(found, "requested")))}

    def wait(self, timeout_s: float | None = None) -> RemoteErasure:
        """Until the service's maintenance has done it. Ends also where it is blocked, or where something was left:
        `state` tells. Called again it goes on.
        """
        check_seconds("timeout_s", timeout_s)
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        if self.state in ("blocked", "leftover"):
            self.reopen()
        for look in itertools.count(1):
            if self.state != "open":
                return self
            if until_s is not None and time.monotonic() > until_s:
                break
            time.sleep(LOOK_S)
            if look % ASK_EVERY == 0:
                # The cycle that ran when it was asked for may have passed it by; by now it may be done.
                with contextlib.suppress(Conflict):
                    self.reopen()
        raise Conflict(f"erasure {self.id} is still under way at the service: wait for longer")

    resume = wait

    def reopen(self) -> RemoteErasure:
        """Have a cycle of maintenance go on with it, also where the last scan has found something."""
        self._transport.ask(Call("POST", f"{self._path}/resume", again=True))
        return self

    def cancel(self) -> RemoteErasure:
        """Give it up, as long as nothing of the past is gone. What it has hidden stays deleted."""
        self._transport.ask(Call("POST", f"{self._path}/cancel"))
        return self

    def verify(self, *, key: Any = None, salt: str | None = None) -> Verified:
        """Whether its receipt is as it was signed by that lake, in the lake's chain, and about a key."""
        order = {"key": jsonable(key), "salt": salt}
        return rebuilt(Verified, self._transport.ask(Call("POST", f"{self._path}/verify", json=order, again=True)))
