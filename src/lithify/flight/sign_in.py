"""Who calls: a token of the lake, as `Bearer` or as the password of any user name, looked up at every call.

Drivers that are given a user name and a password send them once, and go on with the header that they are answered.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import flight

from lithify.errors import LithifyError
from lithify.http.auth import BAD_TOKEN, NO_TOKEN, Caller
from lithify.http.tokens import Tokens

CALLER = "caller"
HEADER = "authorization"


class SignedIn(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, caller: Caller, secret: str, told: bool) -> None:
        self.caller, self._secret, self._told = caller, secret, told

    def sending_headers(self) -> dict[str, str]:
        return {HEADER: f"Bearer {self._secret}"} if self._told else {}


class SignIn(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> SignedIn:
        given = next((values for name, values in headers.items() if name.lower() == HEADER and values), [""])[0]
        scheme, secret = _secret(given.decode("latin-1") if isinstance(given, bytes) else given)
        try:
            token = self._tokens.find(secret) if secret else None
        except LithifyError as error:
            raise flight.FlightUnavailableError(error.public) from error
        if token is None:
            raise flight.FlightUnauthenticatedError(BAD_TOKEN if secret else NO_TOKEN)
        return SignedIn(Caller(token), secret, told=scheme == "basic")


class SignedInByHeader(flight.ServerAuthHandler):  # type: ignore[misc]
    """The middleware has looked at the header already; the handshake itself has nothing to add."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:
        return b""


def _secret(given: str) -> tuple[str, str]:
    scheme, _, rest = given.strip().partition(" ")
    scheme, rest = scheme.lower(), rest.strip()
    if scheme == "basic":
        try:
            padded = rest + "=" * (-len(rest) % 4)  # not every driver does
            rest = base64.b64decode(padded, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            rest = ""
    elif scheme != "bearer":
        rest = ""
    return scheme, rest
