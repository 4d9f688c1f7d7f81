"""A small lake with a service on it: in this process for most tests, on a real socket for those that need one."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.http.app import create_app
from lithify.http.server import Server, listen
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from support.folders import copied, memory_folder

BASE_URL = "http://127.0.0.1"
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("status", pa.string()),
    ]
)
EVENTS = pa.schema([pa.field("user_id", pa.int64()), pa.field("what", pa.string())])


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where possible: what is tested here is not the disk."""
    with memory_folder() as path:
        yield path


@functools.cache
def _settings() -> Settings:
    return Settings(port=0, shutdown_s=5, cache_bytes_max=64 * 2**20)


@pytest.fixture
def settings() -> Settings:
    return _settings()


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """shop.orders, keyed by id, with three rows; log.events, without a key, with two."""
    with memory_folder() as folder:
        with Lake(folder / "lake", settings=_settings()) as lake:
            # What is written here names what a test is about, and nothing else.
            orders = lake.create_table("shop.orders", ORDERS, key="id", options={"missing_columns": "null"})
            orders.upsert([{"id": n, "amount": f"{n}.50", "status": "paid"} for n in (1, 2, 3)])
            events = lake.create_table("log.events", EVENTS)
            events.append([{"user_id": 1, "what": "a"}, {"user_id": 2, "what": "b"}])
        yield folder / "lake"


@pytest.fixture
def lake(template: Path, tmp_path: Path, settings: Settings) -> Iterator[Lake]:
    """A copy of the template."""
    with Lake(copied(template, tmp_path / "lake"), settings=settings) as lake:
        yield lake


@pytest.fixture
def tokens(lake: Lake) -> Tokens:
    return Tokens(lake.path)


@pytest.fixture
def app(lake: Lake, settings: Settings, tokens: Tokens) -> FastAPI:
    return create_app(lake, settings, tokens)


@pytest.fixture
def service(app: FastAPI) -> Service:
    found = app.state.service
    assert isinstance(found, Service)
    return found


ClientWith = Callable[..., TestClient]


@pytest.fixture
def client_with(app: FastAPI, tokens: Tokens) -> Iterator[ClientWith]:
    """`client_with("read", table="shop.orders")`: a client whose token may do no more than that."""
    clients: list[TestClient] = []

    def make(*scopes: str, table: str | None = None) -> TestClient:
        name = "-".join(scopes) or "nobody"
        headers = {}
        if scopes:
            _, secret = tokens.create(name, scopes, (table,) if table else ())
            headers["Authorization"] = f"Bearer {secret}"
        client = TestClient(app, BASE_URL, headers=headers)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__()


@pytest.fixture
def client(client_with: ClientWith) -> TestClient:
    """May do everything."""
    return client_with("read", "write", "maintain", "admin")


@pytest.fixture
def stranger(client_with: ClientWith) -> TestClient:
    """Has no token."""
    return client_with()


@dataclass(frozen=True)
class Served:
    """A service on a real socket of 127.0.0.1, and the secret of a token that may do everything."""

    url: str
    port: int
    token: str
    server: Server

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@pytest.fixture
def served(app: FastAPI, settings: Settings, tokens: Tokens) -> Iterator[Served]:
    """uvicorn in a thread of this process, until the test ends."""
    _, secret = tokens.create("all", ("admin",))
    socket = listen("127.0.0.1", 0)
    server = Server(app, settings)
    thread = threading.Thread(target=server.run, args=([socket],), name="served", daemon=True)
    thread.start()
    assert server.ready.wait(30)
    port = socket.getsockname()[1]
    yield Served(f"http://127.0.0.1:{port}", port, secret, server)
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()
