"""Bodies of requests, bounded in size as sent, in size when unpacked, in time, and in depth.

`Bodies` stands around the whole app: whoever reads a body reads it through here. Bytes are counted as they come,
whatever Content-Length said; a packed body (Content-Encoding: gzip or zstd) is unpacked piece by piece, and given up at
the limit, whatever size it declares. All bodies that are being read together have a limit too, so that many at once
cannot take the memory that one may not.

A client that is refused while it still sends would not see the answer if the connection were closed at once: a bounded
rest of the body is read and thrown away first.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import numpy as np
import orjson
import pyarrow as pa
from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lithify.errors import InvalidRequest, LimitExceeded
from lithify.http.errors import Refusal, RefusedBody
from lithify.text.json_fields import TWICE, repeated_field, repeated_in_rows, repeats

JSON_DEPTH_MAX = 64
ENCODINGS = ("gzip", "zstd")
SILENCE_S_MAX = 20.0
BODY_S_MAX = 300.0
LINGER_S_MAX = 2.0
# All bodies under way together, in multiples of the largest that one may be.
BODIES_AT_ONCE = 16
_PIECE_BYTES = 2**20


async def body_of(request: Request) -> bytes:
    """The whole body, unpacked."""
    return await request.body()


BodyDep = Annotated[bytes, Depends(body_of)]


def json_of(body: bytes) -> Any:
    """Parse, up to a depth of 64, every field once."""
    if depth_of(body) > JSON_DEPTH_MAX:
        raise InvalidRequest(f"the JSON is nested deeper than {JSON_DEPTH_MAX} levels: flatten it")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is no JSON: {error.msg} at byte {error.pos}") from None
    check_fields(body, document)
    return document


def check_fields(body: bytes, document: Any) -> None:
    """Refuse a document with an object that names a field twice: which of the values was meant is not known."""
    if repeats(body, document):
        rows, field = repeated_in_rows(body), repeated_field(body)
        where = f"row {min(rows)}" if rows else "the body"
        raise InvalidRequest(f"{where}, field {rows[min(rows)] if rows else field!r}: {TWICE}; send it once")


def depth_of(body: bytes) -> int:
    """How deep lists and objects are nested; brackets inside of texts do not count.

    Of a few marks only their number is told: they cannot be too deep.
    """
    # Nothing but brackets and quotes matters, and taking out the rest is what costs the time.
    marks = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_MARKS)
    if len(marks) <= JSON_DEPTH_MAX:
        return len(marks)
    depth = deepest = quotes = 0
    for start in range(0, len(marks), _PIECE_BYTES):
        piece = np.frombuffer(marks, np.uint8, min(_PIECE_BYTES, len(marks) - start), start)
        quotes_before = quotes + np.cumsum(piece == _QUOTE)
        depths = depth + np.cumsum(_STEPS[piece] * (quotes_before % 2 == 0), dtype=np.int64)
        deepest, depth, quotes = max(deepest, int(depths.max())), int(depths[-1]), int(quotes_before[-1])
        if deepest > JSON_DEPTH_MAX:
            break
    return deepest


_QUOTE = ord('"')
_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


class Bodies:
    def __init__(
        self,
        app: ASGIApp,
        bytes_max: int,
        silence_s_max: float = SILENCE_S_MAX,
        body_s_max: float = BODY_S_MAX,
        linger_s_max: float = LINGER_S_MAX,
    ) -> None:
        self._app, self.bytes_max = app, bytes_max
        self.silence_s_max, self.body_s_max, self.linger_s_max = silence_s_max, body_s_max, linger_s_max
        self.buffered_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "content-length" not in headers and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        body = _Body(self, headers, receive, send)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            self.buffered_bytes -= body.buffered_bytes


class _Body:
    """The body of one request."""

    def __init__(self, bodies: Bodies, headers: Headers, receive: Receive, send: Send) -> None:
        self._bodies, self._receive, self._send = bodies, receive, send
        self._encoding = headers.get("content-encoding", "identity").strip().lower()
        declared = headers.get("content-length", "")
        self._declared = int(declared) if declared.isdecimal() else 0
        self._deadline: float | None = None
        self._seen_bytes = self.buffered_bytes = 0
        self._ended = self._silent = False
        # Whoever asks first has sent no body yet, and sends none if the answer comes at once.
        self._waits_to_be_asked = headers.get("expect", "").lower() == "100-continue"

    async def receive(self) -> Message:
        if self._ended:
            return await self._receive()
        if self._encoding in ("identity", ""):
            return await self._next()
        return await self._unpacked()

    async def _next(self) -> Message:
        if self._declared > self._bodies.bytes_max:
            raise RefusedBody(self._too_large())
        self._waits_to_be_asked = False
        loop = asyncio.get_running_loop()
        self._deadline = self._deadline or loop.time() + self._bodies.body_s_max
        try:
            async with asyncio.timeout_at(min(self._deadline, loop.time() + self._bodies.silence_s_max)):
                message = await self._receive()
        except TimeoutError:
            self._silent = True
            raise Refusal(408, "the body of the request does not come to an end", {"Connection": "close"}) from None
        if message["type"] != "http.request":
            self._ended = True
            return message
        self._ended = not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message

    def _count(self, size: int) -> None:
        self._seen_bytes += size
        if self._seen_bytes > self._bodies.bytes_max:
            raise RefusedBody(self._too_large())
        self._hold(size)

    def _hold(self, size: int) -> None:
        if self._bodies.buffered_bytes + size > BODIES_AT_ONCE * self._bodies.bytes_max:
            raise RefusedBody(
                LimitExceeded("too many large bodies are being read at once: send it again later", limit="queue")
            )
        self.buffered_bytes += size
        self._bodies.buffered_bytes += size

    def _too_large(self, when: str = "") -> LimitExceeded:
        return LimitExceeded(
            f"the body has more than {self._bodies.bytes_max:,} bytes{when}, the limit of the setting body_bytes_max",
            limit="size",
        )

    async def _unpacked(self) -> Message:
        if self._encoding not in ENCODINGS:
            accepted = {"Accept-Encoding": ", ".join(ENCODINGS)}
            raise Refusal(415, f"this Content-Encoding is not known: use {' or '.join(ENCODINGS)}, or none", accepted)
        packed = bytearray()
        while True:
            message = await self._next()
            if message["type"] != "http.request":
                return message
            packed += message.get("body", b"")
            if self._ended:
                break
        body = await asyncio.to_thread(unpack, bytes(packed), self._encoding, self._bodies.bytes_max)
        if body is None:
            raise RefusedBody(self._too_large(" when it is unpacked"))
        self._hold(len(body))
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self._ended and not await self._rest_is_read():
            MutableHeaders(scope=message)["connection"] = "close"
        await self._send(message)

    async def _rest_is_read(self) -> bool:
        """Throw away what still comes, up to once the limit."""
        if self._waits_to_be_asked or self._silent:
            return False
        left = self._bodies.bytes_max
        try:
            async with asyncio.timeout(self._bodies.linger_s_max):
                while left > 0:
                    message = await self._receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        self._ended = True
                        return True
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass
        return False


def unpack(packed: bytes, encoding: str, bytes_max: int) -> bytes | None:
    """The real content, or None if it is more than `bytes_max`; never more than a piece beyond that is unpacked."""
    pieces, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), encoding) as stream:
            while piece := stream.read(_PIECE_BYTES):
                size += len(piece)
                if size > bytes_max:
                    return None
                pieces.append(piece)
    except (OSError, pa.ArrowException):
        raise RefusedBody(InvalidRequest(f"the body is no complete {encoding} data: pack it again")) from None
    return b"".join(pieces)
