"""A small lake with Flight SQL on a free port of 127.0.0.1, one for the tests of a module."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from lithify import Lake, Settings
from lithify.flight.server import FlightServer
from lithify.http.app import create_app
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from support.folders import memory_folder

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("note", pa.string()),
    ]
)
ROWS = [
    {"id": n, "day": dt.date(2026, 1, n), "amount": Decimal(f"{n}.50"), "note": "it's" if n % 2 else None}
    for n in range(1, 13)
]


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings(port=0, shutdown_s=5, cache_bytes_max=0, flight_rows_max=1_000)


@pytest.fixture(scope="module")
def lake(settings: Settings) -> Iterator[Lake]:
    with memory_folder() as folder, Lake(folder / "lake", settings=settings) as lake:
        lake.create_table("shop.orders", ORDERS, key="id").upsert(ROWS)
        lake.create_table("log.events", pa.schema([("what", pa.string())])).append([{"what": "a"}])
        yield lake


@pytest.fixture(scope="module")
def tokens(lake: Lake) -> Tokens:
    return Tokens(lake.path)


@pytest.fixture(scope="module")
def service(lake: Lake, settings: Settings, tokens: Tokens) -> Service:
    found = create_app(lake, settings, tokens).state.service
    assert isinstance(found, Service)
    return found


_numbers = itertools.count()
Start = Callable[..., FlightServer]


@pytest.fixture(scope="module")
def start(service: Service) -> Iterator[Start]:
    servers: list[FlightServer] = []

    def start(port: int = 0, tls: tuple[bytes, bytes] | None = None) -> FlightServer:
        servers.append(FlightServer(service, "127.0.0.1", port, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close(5)


@pytest.fixture(scope="module")
def server(start: Start) -> FlightServer:
    return start()


@pytest.fixture(scope="module")
def secret(tokens: Tokens) -> str:
    return tokens.create(f"reader-{next(_numbers)}", ("read",))[1]
