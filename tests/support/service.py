"""A lake behind a service on a real socket of 127.0.0.1, in a thread of this process."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from lithify import Lake, Settings
from lithify.http.app import create_app
from lithify.http.server import Server, listen
from lithify.http.tokens import Tokens
from support.waiting import WAIT_S_MAX


@dataclass(frozen=True)
class Served:
    """`token` may do everything; `tokens` makes others."""

    url: str
    token: str
    tokens: Tokens


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with contextlib.closing(listen("127.0.0.1", 0)) as socket:
        return int(socket.getsockname()[1])


@contextlib.contextmanager
def serving(lake: Lake, settings: Settings, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    tokens = Tokens(lake.path)
    _, secret = tokens.create("tester", ("admin",))
    socket = listen("127.0.0.1", port)
    server = Server(create_app(lake, settings, tokens), settings, tls=tls)
    thread = threading.Thread(target=server.run, args=([socket],), name="served", daemon=True)
    thread.start()
    try:
        assert server.ready.wait(WAIT_S_MAX)
        yield Served(f"http{'s' if tls else ''}://127.0.0.1:{socket.getsockname()[1]}", secret, tokens)
    finally:
        server.should_exit = True
        thread.join(WAIT_S_MAX)
    assert not thread.is_alive()
