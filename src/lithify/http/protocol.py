"""The connection under the requests, with the bounds that uvicorn leaves to others.

The size of a request's line and headers, the time they may take to come, the time that an answer waits for somebody to
read it, and the number of connections are bounded; what is no HTTP is answered in the one shape of failures. Where
there are too many connections, the one that has been without a request for longest makes room: whoever holds
connections and asks nothing keeps nobody out.

The parser hands over a header when it is complete and copies what it has so far with every piece that comes: bytes that
bring no part of a request to its end are counted here. Headers after a body (trailers) are not taken.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lithify.http.errors import Failure, refused
from lithify.http.logs import request_id

HEAD_BYTES_MAX = 64 * 2**10
HEADERS_MAX = 200
HEAD_S_MAX = 20.0
# An answer that is not read at least so fast is given up, and its rows with it.
SENT_BYTES_MIN, SENT_S_MAX = 64 * 2**10, 30.0
CONNECTIONS_MAX = 1_000
_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Unavailable"}


def connections_max() -> int:
    """Half of the descriptors that this process may have are for everything else."""
    return min(CONNECTIONS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class Protocol(HttpToolsProtocol):
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _in_head = _moved = _deaf = False
    _stuck_bytes = 0
    _unsent_bytes = 0
    _send_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        if len(self.connections) > connections_max() and not self._make_room():
            self._refuse(refused(503, "the service has too many connections", {"Retry-After": "1"}))
        else:
            self._expect_head()

    def _make_room(self) -> bool:
        others = (other for other in self.connections if other is not self and isinstance(other, Protocol))
        idle = [other for other in others if other._is_idle()]
        if not idle:
            return False
        min(idle, key=lambda other: other._idle_since).transport.abort()
        return True

    def _is_idle(self) -> bool:
        """No request is being answered here; one that has not come as a whole is none."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        self._sent()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # After a refusal, what was still on its way is not looked at.
        if self._deaf or self.transport.is_closing():
            return
        self._moved = False
        super().data_received(data)
        self._stuck_bytes = 0 if self._moved else self._stuck_bytes + len(data)
        if self._stuck_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._moved = True
        self._head_bytes = 0
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        self._moved = True
        if self._fits(len(url)):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._moved = True
        if self._fits(len(name) + len(value)) and self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_has_come()
        if not self._deaf and not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if self.cycle is not None and not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = True
        if self.cycle is not None and not self._deaf:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(refused(400, "this is no HTTP/1.1 request"))

    def _fits(self, size: int) -> bool:
        self._head_bytes += size
        fits = self._head_bytes <= HEAD_BYTES_MAX and len(self.headers) < HEADERS_MAX
        if not fits and not self.transport.is_closing():
            self._refuse_head()
        return fits

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        self._sent()
        super().resume_writing()

    def _watch_sending(self) -> None:
        self._sent()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(SENT_S_MAX, self._check_sending)

    def _check_sending(self) -> None:
        if self._unsent_bytes - self.transport.get_write_buffer_size() < SENT_BYTES_MIN:
            self.transport.abort()
        else:
            self._watch_sending()

    def _sent(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _expect_head(self) -> None:
        self._head_has_come()
        self._head_timer = self.loop.call_later(HEAD_S_MAX, self._too_slow)

    def _head_has_come(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self._refuse(refused(408, "no complete request has come"))

    def _refuse_head(self) -> None:
        self._refuse(refused(431, f"the address and headers have more than {HEAD_BYTES_MAX:,} bytes together"))

    def _others_answer_is_due(self) -> bool:
        """A request before this one is being answered on this connection: what is sent now would be taken for that."""
        if self.cycle is None or self.cycle.response_complete:
            return False
        in_own_body = self.cycle.more_body and not self._in_head and not self.pipeline
        return not in_own_body or self.cycle.response_started

    def _end_after_that(self) -> None:
        self._head_has_come()
        self._deaf = True
        self.cycle.keep_alive = False
        if self.pipeline:
            self.transport.close()

    def _refuse(self, failure: Failure) -> None:
        if self._others_answer_is_due():
            self._end_after_that()
            return
        id = request_id("")
        body = orjson.dumps(failure.document(id))
        headers: dict[str, Any] = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
            "X-Request-Id": id,
            **failure.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {failure.status} {_REASONS[failure.status]}\r\n{lines}\r\n".encode() + body)
        self.transport.close()
