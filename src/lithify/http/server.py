"""uvicorn around the app: one process, bounded, and a way to stop that loses nothing.

Told to stop (`should_exit`, SIGTERM, Ctrl-C), it accepts no further connection and says that it is not ready; requests
under way have `shutdown_s` to end, then their queries are cancelled, which they answer. For work that even then goes
on, on Spark for one, the answer is 503; it ends when the lake is closed. A second signal ends the process at once, as a
power cut would: nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import cast

import anyio.to_thread
import uvicorn
from fastapi import FastAPI

from lithify.errors import InvalidRequest, Unavailable
from lithify.http.protocol import Protocol
from lithify.http.series import INTERVAL_S
from lithify.http.service import Service
from lithify.settings import Settings

KEEP_ALIVE_S = 30
BACKLOG = 512
# Requests that are being worked on at the same time; each holds a thread, also while it waits for its turn.
THREADS_MAX = 64
# After their queries are cancelled, requests have this long to say so.
CANCELLED_S = 3.0
logger = logging.getLogger("lithify.http.server")


class Server(uvicorn.Server):
    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        *,
        tls: ssl.SSLContext | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        on_second_signal: Callable[[], None] = lambda: os._exit(130),
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=settings.shutdown_s + CANCELLED_S,  # type: ignore[arg-type]
                backlog=BACKLOG,
            )
        )
        if tls is not None:
            self.config.load()
            self.config.ssl = tls
        self.ready = threading.Event()
        self._sampler: asyncio.Task[None] | None = None
        self._service, self._shutdown_s = cast("Service", app.state.service), settings.shutdown_s
        self._on_ready, self._on_stop, self._on_second_signal = on_ready, on_stop, on_second_signal

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with _uvicorn_says_it_here():
            super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS_MAX
        self._sampler = asyncio.create_task(self._sample())
        self._on_ready()
        self.ready.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self._on_second_signal()
        self._service.stopping = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping = True
        self._on_stop()
        canceller = asyncio.create_task(self._cancel_queries())
        try:
            await super().shutdown(sockets)
        finally:
            canceller.cancel()
            if self._sampler is not None:
                self._sampler.cancel()

    async def _sample(self) -> None:
        """Remember every few seconds what was done."""
        while True:
            try:
                await asyncio.to_thread(self._service.series.take, self._service.lake)
            except Exception as error:
                logger.warning("a sample of what was done could not be taken: %s", type(error).__name__)
            await asyncio.sleep(INTERVAL_S)

    async def _cancel_queries(self) -> None:
        await asyncio.sleep(self._shutdown_s)
        lake = self._service.lake
        for query in await asyncio.to_thread(lake.queries):
            await asyncio.to_thread(lake.cancel, query.id)


def check_address(settings: Settings, *, insecure: bool) -> None:
    """Without TLS, tokens and rows travel as plain text: not beyond this machine, unless that is asked for."""
    tls = [path is not None for path in (settings.tls_cert, settings.tls_key)]
    if any(tls) and not all(tls):
        raise InvalidRequest("TLS takes a certificate and its key: pass both --tls-cert and --tls-key")
    if not any(tls) and not insecure and not _is_local(settings.host):
        raise InvalidRequest(
            f"{settings.host or 'every address'} can be reached from other machines, and tokens and rows would travel "
            "as plain text: pass --tls-cert and --tls-key, or --insecure if something in front speaks TLS"
        )


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket that is bound and listens; the address in use, and others, as one clear error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InvalidRequest(f"{host!r} is no address of this machine: {error.strerror}") from error
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        match error.errno:
            case errno.EADDRINUSE:
                raise Unavailable(
                    f"port {port} of {host} is in use: end what listens there, or pass another {option} (0: any "
                    "free one)"
                ) from error
            case errno.EADDRNOTAVAIL:
                raise InvalidRequest(f"{host} is no address of this machine: pass one that is as --host") from error
            case errno.EACCES | errno.EPERM:
                raise Unavailable(f"no permission to listen on port {port}: pass one above 1023 as {option}") from error
            case _:
                raise Unavailable(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return found


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for what, path in (("certificate", cert), ("key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise Unavailable(f"the {what} {path} cannot be read: {error.strerror}") from error
    try:
        # A key with a passphrase would be asked for on the terminal.
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(
            f"{cert} and {key} are no certificate with its key: both in PEM, the key without a passphrase"
        ) from error
    return context


class _Relay(logging.Handler):
    """What uvicorn says, without tracebacks, whose texts may quote values."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.log(record.levelno, "%s", record.getMessage().splitlines()[0])


@contextlib.contextmanager
def _uvicorn_says_it_here() -> Iterator[None]:
    theirs = logging.getLogger("uvicorn")
    before = theirs.handlers, theirs.propagate, theirs.level
    theirs.handlers, theirs.propagate = [_Relay()], False
    theirs.setLevel(logging.WARNING)
    try:
        yield
    finally:
        theirs.handlers, theirs.propagate = before[0], before[1]
        theirs.setLevel(before[2])
