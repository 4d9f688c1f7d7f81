"""The Host header: a service on this machine must not answer to a name that somebody else points at it.

A web page can make a browser call 127.0.0.1 under a name of its own (DNS rebinding); such a call carries that name. The
bound address, this machine's own names and `allowed_hosts` are answered. Bound to all addresses, any address in
numbers is, too: it is where the client sent the request, no name that was looked up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lithify.http.errors import refused

LOCAL = ("127.0.0.1", "localhost", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::", "")


class Hosts:
    def __init__(self, app: ASGIApp, host: str, allowed: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower().rstrip(".") for name in (*LOCAL, host, *allowed))
        self._any_address = host in EVERY_ADDRESS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not all(map(self.allows, Headers(scope=scope).getlist("host") or [""])):
            state = scope["state"]
            failure = refused(421, "the service is not known by the name in the Host header")
            state["code"] = failure.code
            await failure.response(state["id"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def allows(self, header: str) -> bool:
        name = name_in(header)
        return name is not None and (name in self._names or (self._any_address and _is_address(name)))


_HEADER = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:@/?#]*))(?::[0-9]{0,5})?")


def name_in(header: str) -> str | None:
    """Without the port: `localhost:8080`, `[::1]:8080`. None: it is neither a name nor an address, as a whole."""
    found = _HEADER.fullmatch(header.strip().lower())
    return None if found is None else found[1] or found[2].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
