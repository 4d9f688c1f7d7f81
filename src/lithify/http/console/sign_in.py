"""The way from a terminal into the console: a code in the address that `lithify serve` prints, good once and for a
minute. It stands in the fragment, which a browser sends to nobody; the page exchanges it for a token.

There is at most one code at a time, in the memory of the process that printed it, as a hash.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable

from lithify.http.tokens import Scope, Token, Tokens

CODE_S = 60.0
SESSION_S = 8 * 3600.0
CODE_LENGTH_MAX = 256
NAME = "console"


class SignIn:
    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens, self._clock, self._lock = tokens, clock, threading.Lock()
        self._digest, self._until, self._scopes = b"", float("-inf"), tuple[Scope, ...]()

    def code(self, scopes: tuple[Scope, ...]) -> str:
        """A new code for a token with these scopes; one that was made before is good no longer."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._digest, self._until, self._scopes = _digest(made), self._clock() + CODE_S, scopes
        return made

    def exchange(self, code: str) -> tuple[Token, str] | None:
        """A token and its secret, if this is the code and nobody has had it before."""
        with self._lock:
            if self._clock() >= self._until or not hmac.compare_digest(self._digest, _digest(code)):
                return None
            self._until, scopes = float("-inf"), self._scopes
        return self._tokens.create(NAME, scopes, expires_s=SESSION_S)


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
