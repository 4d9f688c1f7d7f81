"""Requests to one service: sent, sent again where that is safe, and answered or raised as a `LithifyError`.

A request is one of two kinds. `again=True`: asked twice, it does the same once (reads, and writes, which carry an
Idempotency-Key that is the same in every attempt), so it is repeated after whatever may pass: a lost connection, an
answer that does not come, a server that is busy. Any other is repeated only if it surely never arrived, because no
connection came about.

Waits grow from one attempt to the next and are drawn at random below their bound, so that many clients of one server
that came back do not all arrive at once. A server that says how long to wait (Retry-After) is heard, unless that is
longer than all attempts may take together (`Retries`).
"""

from __future__ import annotations

import datetime as dt
import random
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from lithify.client.errors import error_of
from lithify.delta.batch_txns import InLane
from lithify.errors import Cancelled, CommitUnknown, InvalidRequest, LithifyError, Unavailable

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 32
# Folds and compactions answer when they are done.
WORK_TIMEOUT_S = 3600.0
# A gateway that lost the answer, or a crash: what was asked for may have been done.
UNKNOWN_OUTCOME = frozenset({500, 502, 504})
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_NEVER_ARRIVED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Call:
    """One request. `key`: its Idempotency-Key; `schema`: the fingerprint of the schema that it was made for; `work`: it
    may take long; `query` leaves out what is None.
    """

    method: str
    path: str
    query: Mapping[str, Any] | None = None
    json: Any = None
    content: bytes | None = None
    accept: str = JSON
    key: str | None = None
    schema: str | None = None
    again: bool = False
    work: bool = False


@dataclass(frozen=True)
class Retries:
    """`stranger_attempts_max`: to a server that has never answered, which is rather a wrong address than a restart."""

    attempts_max: int = 10
    stranger_attempts_max: int = 4
    total_s_max: float = 30.0
    first_wait_s: float = 0.1
    wait_s_max: float = 5.0

    def wait_s(
        self, attempt: int, elapsed_s: float, asked_s: float | None, draw: float, *, known: bool = True
    ) -> float | None:
        """Seconds to wait after `attempt` (the first is 1) has failed; None: give up. `draw` is from 0 to 1; `known`:
        this server has answered before.
        """
        if attempt >= (self.attempts_max if known else self.stranger_attempts_max):
            return None
        bound_s = min(self.wait_s_max, self.first_wait_s * 2 ** (attempt - 1))
        wait_s = bound_s * (0.5 + draw / 2)
        if asked_s is not None:
            wait_s += asked_s
        return wait_s if elapsed_s + wait_s <= self.total_s_max else None


def asked_wait_s(header: str | None, now: dt.datetime) -> float | None:
    """What a Retry-After header asks for, in seconds: a number, or a date. None if it says nothing readable."""
    if header is None:
        return None
    try:
        return max(0.0, float(int(header)))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or dt.UTC) - now).total_seconds())


class Transport:
    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        verify: bool | str | Path | ssl.SSLContext = True,
        retries: Retries | None = None,
        client: httpx.Client | None = None,
        sleep: Sleep = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.address = checked_address(address)
        if not timeout_s > 0:
            raise InvalidRequest(f"timeout_s must be more than 0, not {timeout_s!r}")
        self._timeout_s, self._retries, self._sleep, self._draw = timeout_s, retries or Retries(), sleep, draw
        self._headers = {} if token is None else {"authorization": f"Bearer {_checked_token(token)}"}
        self._own = client is None
        # Certificates take a while to load, and plain HTTP has no use for them.
        trusted = _trusted(verify) if self.address.startswith("https") else False
        self._client = client or httpx.Client(verify=trusted, limits=httpx.Limits(max_connections=CONNECTIONS_MAX))
        self.lanes = Lanes()
        self._closed = self._known = False

    def close(self) -> None:
        self._closed = True
        if self._own:
            self._client.close()

    def send(self, call: Call) -> httpx.Response:
        """The answer, which is a success. Everything else is raised."""
        if self._closed:
            raise InvalidRequest(f"this connection to {self.address} is closed: connect again with lithify.connect")
        started, attempt, arrived = time.monotonic(), 0, False
        while True:
            attempt += 1
            asked_s = None
            try:
                response = self._client.request(
                    call.method,
                    f"{self.address}/v1{call.path}",
                    params={name: value for name, value in (call.query or {}).items() if value is not None},
                    json=call.json,
                    content=call.content,
                    headers=self._headers_of(call),
                    timeout=self._timeout(call),
                )
            except httpx.HTTPError as error:
                arrived = arrived or not isinstance(error, _NEVER_ARRIVED)
                failure: LithifyError = self._unanswered(call, error, arrived)
                cause: Exception | None = error
                repeat = (call.again or not arrived) and not _is_distrust(error)
            else:
                self._known = True
                if response.is_success:
                    return response
                failure, cause = error_of(response.status_code, response.content, self.address), None
                arrived = arrived or response.status_code in UNKNOWN_OUTCOME or isinstance(failure, CommitUnknown)
                repeat = call.again and response.status_code in RETRIED_STATUSES and not isinstance(failure, Cancelled)
                asked_s = asked_wait_s(response.headers.get("retry-after"), dt.datetime.now(dt.UTC))
            elapsed_s = time.monotonic() - started
            wait_s = None
            if repeat:
                wait_s = self._retries.wait_s(attempt, elapsed_s, asked_s, self._draw(), known=self._known)
            if wait_s is None:
                raise (_perhaps_written(failure, call.key) if call.key and arrived else failure) from cause
            self._sleep(wait_s)

    def ask(self, call: Call) -> Any:
        """The JSON document that a request is answered with, or None for an empty answer."""
        response = self.send(call)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise Unavailable(
                f"{self.address} answered with something that is no JSON: is there a Lithify service at this address?",
                address=self.address,
            ) from error

    def _headers_of(self, call: Call) -> dict[str, str]:
        headers = {**self._headers, "accept": call.accept}
        if call.content is not None:
            headers["content-type"] = ARROW
        if call.key is not None:
            headers["idempotency-key"] = call.key
        if call.schema is not None:
            headers["lithify-schema"] = call.schema
        return headers

    def _timeout(self, call: Call) -> httpx.Timeout:
        wait_s = max(self._timeout_s, WORK_TIMEOUT_S) if call.work else self._timeout_s
        return httpx.Timeout(wait_s, connect=min(wait_s, CONNECT_TIMEOUT_S))

    def _unanswered(self, call: Call, error: httpx.HTTPError, arrived: bool) -> LithifyError:
        what = f"{self.address} did not answer ({_reason(error)})"
        if not self._known and self.address.startswith("http:") and isinstance(error, httpx.RemoteProtocolError):
            # A port of TLS hangs up on whoever talks plainly.
            what += f"; if it serves TLS, write https://{self.address.removeprefix('http://')}"
        if _is_distrust(error):
            return Unavailable(
                f"the certificate of {self.address} is not trusted ({_reason(error)}): pass verify=FILE with the "
                "certificates to trust, or name that file in SSL_CERT_FILE",
                address=self.address,
            )
        if not arrived:
            return Unavailable(
                f"{self.address} cannot be reached ({_reason(error)}): is `lithify serve` running there?",
                address=self.address,
            )
        if call.again:
            return Unavailable(f"{what}: try again", address=self.address)
        return Unavailable(
            f"{what}, so it may be done, under way or not begun: look before you ask for it again", address=self.address
        )


def _perhaps_written(failure: LithifyError, key: str) -> CommitUnknown:
    """An attempt has arrived, and nobody said what became of it: whatever the last one was told is not all of it."""
    return CommitUnknown(
        f"the write may be done or not: send it again with batch_id={key!r}, which writes it only if it is not there "
        f"yet ({failure.message})",
        **{**failure.details, "batch_id": key},
    )


def checked_address(address: str) -> str:
    """`http://host:port` without anything after it, or an error that says so."""
    try:
        parts = urlsplit(str(address))
        _ = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{address!r} is no address of a service: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{address!r} is no address of a service: write it as http://host:port or https://host")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidRequest("an address of a service is http://host:port only: give the token as token=…")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _checked_token(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequest("the token is empty or holds characters that no token has: pass it as it was printed")
    return token


def _trusted(verify: bool | str | Path | ssl.SSLContext) -> bool | ssl.SSLContext:
    """A path is that of the certificates (PEM) to trust."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    try:
        return ssl.create_default_context(cafile=str(Path(verify).expanduser()))
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(f"verify={str(verify)!r} is no readable file of certificates (PEM): {error}") from error


def _is_distrust(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no connection in time" if isinstance(error, httpx.ConnectTimeout) else "no answer in time"
    return " ".join(str(error).split())[:200] or type(error).__name__


class Lanes:
    """Keys for writes that were given none, in as many lanes as writes are under way (`delta/batch_txns.py`)."""

    def __init__(self) -> None:
        self._free: list[InLane] = []
        self._lock = threading.Lock()

    @contextmanager
    def key(self) -> Iterator[str]:
        """The key of one write, to be used for all its attempts."""
        with self._lock:
            here = self._free.pop() if self._free else InLane(f"lane-{uuid.uuid4().hex}", 1)
        known = False
        try:
            yield str(here)
            known = True
        except Exception as error:
            known = not isinstance(error, CommitUnknown)
            raise
        finally:
            # Whoever is told that a write may have been done can still ask by its key: nobody else uses the lane.
            if known:
                with self._lock:
                    self._free.append(here._replace(number=here.number + 1))
