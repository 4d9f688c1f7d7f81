"""A proxy before an S3 server that counts requests, takes its time, and breaks what it is told to break.

It stands where the network does: the client is real, the server is real, and what was applied before the answer got
lost is applied. It lives in a thread of the test's process; other processes reach it by its url.

    with FaultProxy(server) as proxy:
        proxy.fail("drop after", on="PUT")          # the next PUT lands, and nobody is told
        with proxy.counted() as requests:
            table.upsert(rows)
        assert requests == {"PUT": 2}
        proxy.leave_out("/_delta_log/")             # lists lag: they do not show these objects yet
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import unquote

from support.s3_servers import S3Server

Fault = Literal[
    "403",  # refused: these keys may not do that
    "skewed",  # refused: the clocks are too far apart
    "409",  # refused: somebody else is at it, and nothing was done
    "503",  # refused: too much to do
    "500 after",  # done, and answered with an error
    "drop before",  # the connection ends, nothing was done
    "drop after",  # done, and the connection ends without an answer
    "hang before",  # nothing is done, and no answer comes until the client gives up
    "hang after",  # done, and no answer comes until the client gives up
    "truncate",  # done, and the answer ends in its middle
    "stale",  # answered as the same list was before, whatever has come since
]
_ERRORS = {
    "403": (403, "AccessDenied", "Access Denied."),
    "skewed": (
        403,
        "RequestTimeTooSkewed",
        "The request time and the server's time differ too much.",
    ),
    "409": (409, "ConditionalRequestConflict", "A conflicting operation is under way against this resource."),
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "500 after": (500, "InternalError", "We encountered an internal error. Please try again."),
}
_LINE_BYTES_MAX = 1 << 20


@dataclass
class Rule:
    """`on`: "PUT", "GET", "HEAD", "DELETE", "LIST", "COPY", "POST", or "" for all. `times`: how often; None: always."""

    fault: Fault
    on: str
    at: re.Pattern[str]
    conditional: bool
    times: int | None
    chance: float
    meanwhile: Callable[[], object] | None = None
    hits: int = 0


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    head: bytes
    body: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """The method, or what it is used for."""
        if self.method == "GET" and "list-type=" in self.target:
            return "LIST"
        if self.method == "POST" and self.target.endswith(("?delete", "?delete=")):
            return "DELETE"
        if self.method == "PUT" and "x-amz-copy-source" in self.headers:
            return "COPY"
        return self.method

    @property
    def is_conditional(self) -> bool:
        return "if-match" in self.headers or "if-none-match" in self.headers


class FaultProxy:
    def __init__(self, server: S3Server, *, seed: int = 0) -> None:
        self.delay_s = 0.0
        self.requests: list[Request] = []
        self._rules: list[Rule] = []
        self._unlisted: re.Pattern[str] | None = None
        self._counters: list[Counter[str]] = []
        self._lists: dict[str, bytes] = {}
        self._random = random.Random(seed)
        self._server = server
        self._upstream = server.url.removeprefix("http://").split(":")
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def server(self) -> S3Server:
        """The server as it is seen through here."""
        return self._server.behind(f"http://127.0.0.1:{self._port}")

    def fail(
        self,
        fault: Fault,
        on: str = "PUT",
        at: str = "",
        *,
        conditional: bool = False,
        times: int | None = 1,
        chance: float = 1.0,
        meanwhile: Callable[[], object] | None = None,
    ) -> Rule:
        """From now on, for requests whose path and query match `at`. The first rule that fits counts. `conditional`:
        only those that hang on what is there. `meanwhile`: what happens before the client learns of the fault.
        """
        assert fault in get_args(Fault), fault
        self._rules.append(Rule(fault, on, re.compile(at), conditional, times, chance, meanwhile))
        return self._rules[-1]

    def leave_out(self, keys: str) -> None:
        """From now on, lists do not show objects whose keys match, as a server's that list later than they store."""
        self._unlisted = re.compile(keys)

    def heal(self) -> None:
        self._rules.clear()
        self._unlisted = None

    @contextlib.contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """How many requests of each kind have arrived since."""
        counter: Counter[str] = Counter()
        self._counters.append(counter)
        try:
            yield counter
        finally:
            self._counters.remove(counter)

    # -- in the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        listening = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_LINE_BYTES_MAX)
        self._port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        listening.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader, writer)) is not None:
                self.requests.append(request)
                for counter in self._counters:
                    counter[request.kind] += 1
                rule = self._rule_for(request)
                await asyncio.sleep(self.delay_s)
                if not await self._answer(request, rule, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # either side hung up: so does this one
        finally:
            writer.transport.abort()

    def _rule_for(self, request: Request) -> Rule | None:
        for rule in list(self._rules):
            fits = rule.on in ("", request.kind) and rule.at.search(request.target)
            if not fits or rule.times == 0 or (rule.conditional and not request.is_conditional):
                continue
            if self._random.random() < rule.chance:
                rule.hits += 1
                rule.times = None if rule.times is None else rule.times - 1
                return rule
        return None

    async def _answer(
        self, request: Request, rule: Rule | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the client may ask again on this connection."""
        fault, answer = rule.fault if rule else None, b""
        if fault not in ("403", "skewed", "409", "503", "drop before", "hang before"):
            answer = await self._forward(request)
        if request.kind == "LIST":
            answer = self._lists.get(request.target, answer) if fault == "stale" else answer
            self._lists[request.target] = answer
        if rule is not None and rule.meanwhile is not None:
            await asyncio.to_thread(rule.meanwhile)
        if fault in ("drop before", "drop after"):
            return False
        if fault in ("hang before", "hang after"):
            await reader.read(1)  # which ends when the client hangs up
            return False
        if fault == "truncate":
            writer.write(answer[: len(answer) - max(1, (len(answer) - answer.index(b"\r\n\r\n")) // 2)])
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            return False
        writer.write(_error(*_ERRORS[fault], request.method) if fault in _ERRORS else answer)
        await writer.drain()
        return b"\r\nconnection: close\r\n" not in answer.partition(b"\r\n\r\n")[0].lower() + b"\r\n"

    async def _forward(self, request: Request) -> bytes:
        """The whole answer of the server. Each request has its own connection: none is stale."""
        reader, writer = await asyncio.open_connection(*self._upstream, limit=_LINE_BYTES_MAX)
        try:
            writer.write(request.head + request.body)
            await writer.drain()
            status = 100
            while status == 100:
                head = await reader.readuntil(b"\r\n\r\n")
                status = int(head.split(b" ", 2)[1])
            empty = request.method == "HEAD" or status in (204, 304)
            answer = head + (b"" if empty else await _read_body(reader, _headers(head)))
            lags = request.kind == "LIST" and status == 200
            return _without(answer, self._unlisted) if lags and self._unlisted is not None else answer
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head.decode("latin-1").split(" ", 2)
    headers = _headers(head)
    if headers.pop("expect", "").lower() == "100-continue":
        head = re.sub(rb"(?im)^expect:.*\r\n", b"", head)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    return Request(method, target, headers, head, await _read_body(reader, headers))


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """As it came."""
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return await reader.readexactly(int(headers.get("content-length", 0)))
    parts, size = [], 1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)]
    return b"".join(parts)


def _without(answer: bytes, keys: re.Pattern[str]) -> bytes:
    """A list without the objects whose keys match."""

    def shown(entry: re.Match[bytes]) -> bytes:
        key = unquote(entry[1].decode())
        return b"" if keys.search(key) else entry[0]

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    body = re.sub(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", shown, body, flags=re.DOTALL)
    head = re.sub(rb"(?im)^content-length:.*$", b"Content-Length: %d" % len(body), head)
    return head + b"\r\n\r\n" + body


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _error(status: int, code: str, message: str, method: str) -> bytes:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()
    )
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + (b"" if method == "HEAD" else body)
