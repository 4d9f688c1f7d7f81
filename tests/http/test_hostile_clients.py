"""What a client can do to others by how it sends and reads, and what one with few rights can find out."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import pyarrow as pa
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify import Lake, LimitExceeded
from lithify.http import json_route, protocol
from lithify.http.app import ROUTERS
from lithify.http.auth import endpoints_of
from lithify.http.json_route import JsonRoute
from lithify.http.response_memory import ResponseMemory, release
from lithify.http.service import Service
from support.waiting import WAIT_S_MAX, eventually

from .conftest import ClientWith, Served

HOST = "Host: localhost\r\n"
SQL = b'{"sql": "select 1"}'


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX)


def received(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(65_536):
        answer += piece
    return answer


def sent_until_refused(connection: socket.socket) -> int:
    """Bytes that were sent before the other side closed; 64 MiB if it never did."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 64 * 2**20:
            connection.sendall(b"a" * 65_536)
            sent += 65_536
    return sent


class TestHeads:
    @pytest.mark.parametrize(
        "head",
        [
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /v1/query/sql HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        ],
        ids=["value", "name", "trailer"],
    )
    def test_a_header_without_end_is_cut_off(self, served: Served, head: bytes) -> None:
        with connected(served) as connection:
            connection.sendall(head)

            assert sent_until_refused(connection) < 16 * 2**20

    def test_a_trailer_is_no_header(self, served: Served) -> None:
        head = f"POST /v1/query/sql HTTP/1.1\r\n{HOST}Content-Type: application/json\r\nConnection: close\r\n"
        token = f"Authorization: Bearer {served.token}\r\n"
        body = f"{len(SQL):x}\r\n".encode() + SQL + b"\r\n0\r\n" + token.encode() + b"\r\n"
        with connected(served) as connection:
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + body)

            assert received(connection).startswith(b"HTTP/1.1 401 ")

    @pytest.mark.parametrize("hosts", [("localhost", "evil.example"), ("evil.example", "localhost")])
    def test_every_host_must_be_known(self, served: Served, hosts: tuple[str, str]) -> None:
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        with connected(served) as connection:
            connection.sendall(f"GET /health/live HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())

            assert received(connection).startswith(b"HTTP/1.1 421 ")

    @pytest.mark.parametrize(
        "second",
        [b"nonsense\r\n\r\n", b"GET /health/live HTTP/1.1\r\n" + b"X: y\r\n" * 300 + b"\r\n"],
        ids=["no-http", "many-headers"],
    )
    def test_no_refusal_is_sent_in_place_of_the_answer_that_is_due(
        self, served: Served, lake: Lake, second: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked, go_on = threading.Event(), threading.Event()

        def tables() -> list[str]:
            asked.set()
            go_on.wait(30)
            return []

        monkeypatch.setattr(lake, "tables", tables)
        token = f"Authorization: Bearer {served.token}\r\n"
        with connected(served) as connection:
            connection.sendall(f"GET /v1/tables HTTP/1.1\r\n{HOST}{token}\r\n".encode())
            assert asked.wait(30)
            connection.sendall(second)
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(30)
            go_on.set()
            answer = received(connection)

        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1


class TestJsonDocuments:
    def test_many_small_values_are_not_parsed(self, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_route, "VALUES_MAX", 100)

        answer = client.post(
            "/v1/query/sql", content=b"[" + b"[]," * 100 + b"[]]", headers={"Content-Type": "application/json"}
        )

        assert answer.status_code == 413
        assert answer.json()["details"] == {"limit": "size"}

    def test_a_deep_document_is_refused_as_deep(self, client: TestClient) -> None:
        answer = client.post(
            "/v1/query/sql", content=b"[" * 70 + b"]" * 70, headers={"Content-Type": "application/json"}
        )

        assert answer.status_code == 400
        assert "64 levels" in answer.json()["message"]

    def test_every_route_with_a_body_is_bounded(self, app: FastAPI) -> None:
        bodies = [
            (route.path, isinstance(route, JsonRoute))
            for router, _ in ROUTERS
            for route in router.routes
            if getattr(route, "body_field", None) is not None
        ]

        assert len(bodies) >= 8
        assert [path for path, bounded in bodies if not bounded] == []
        assert sum(1 for router, prefix in ROUTERS for _ in endpoints_of(router, prefix)) > len(bodies)


class TestAnswers:
    def test_an_answer_that_nobody_reads_is_given_up(
        self, served: Served, lake: Lake, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(protocol, "SENT_S_MAX", 0.2)
        texts = lake.create_table("log.texts", pa.schema([pa.field("text", pa.string())]))
        texts.append(pa.table({"text": ["x" * 2**20] * 32}))
        body = json.dumps({"sql": "select * from log.texts"}).encode()
        head = f"POST /v1/query/sql HTTP/1.1\r\n{HOST}Authorization: Bearer {served.token}\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with connected(served) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(f"{head}{kind}".encode() + body)
            assert connection.recv(4) == b"HTTP"
            eventually(lambda: not service.response_memory.bytes and not served.server.server_state.connections)

        assert not served.server.server_state.connections
        assert service.response_memory.bytes == 0

    def test_answers_on_their_way_out_are_bounded_together(self, client: TestClient, service: Service) -> None:
        service.response_memory.bytes = service.response_memory.bytes_max

        answer = client.post("/v1/query/sql", json={"sql": "select 1"})

        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        service.response_memory.bytes = 0
        assert client.post("/v1/query/sql", json={"sql": "select 1"}).status_code == 200

    @pytest.mark.parametrize("path", ["/v1/tables/shop.orders/rows", "/v1/tables/shop.orders/changes"])
    def test_what_was_sent_is_held_no_longer(self, client: TestClient, service: Service, path: str) -> None:
        assert client.get(path).status_code == 200
        assert service.response_memory.bytes == 0

    def test_one_answer_alone_may_be_larger(self) -> None:
        memory, first, second = ResponseMemory(100), dict[str, Any](), dict[str, Any]()
        rows = pa.table({"a": range(1_000)})

        memory.hold(first, rows)
        with pytest.raises(LimitExceeded):
            memory.hold(second, rows)
        release(first)
        release(second)

        assert memory.bytes == 0


class TestFindingOut:
    @pytest.mark.parametrize("path", ["stats", "candidates"])
    def test_a_namespace_of_others_is_as_one_that_is_not_there(self, client_with: ClientWith, path: str) -> None:
        client = client_with("read", "maintain", table="shop.orders")

        of_others, unknown = (
            client.get(f"/v1/maintenance/{path}", params={"namespace": name}) for name in ("log", "nix")
        )

        assert (of_others.status_code, unknown.status_code) == (404, 404)
        assert of_others.json()["message"] == unknown.json()["message"].replace("nix", "log")

    def test_a_quoted_path_asks_nothing_of_the_disk(self, client: TestClient, lake: Lake) -> None:
        # A table's folder, seen from a folder beside the lake.
        sibling = lake.path.parent / "beside"
        (sibling / "x").mkdir(parents=True)
        (sibling / "x" / "changes").symlink_to(lake.path / "shop" / "orders" / "changes")

        answers = [
            client.post("/v1/query/sql", json={"sql": f'select * from "{path}"."x"'})
            for path in ("../beside", "../nothing")
        ]

        assert [answer.status_code for answer in answers] == [404, 404]
