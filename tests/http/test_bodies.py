"""Bodies are bounded: as sent, unpacked, in depth and in time, whatever they say about themselves."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import tracemalloc
from collections import deque
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from lithify import InvalidRequest, Settings
from lithify.http import bodies
from lithify.http.bodies import JSON_DEPTH_MAX, depth_of, json_of, unpack
from support.probes import add_probes
from support.waiting import WAIT_S_MAX

LIMIT = 2**20
PACKED = {"gzip": gzip.compress, "zstd": lambda data: pa.compress(data, codec="zstd", asbytes=True)}


@pytest.fixture
def settings() -> Settings:
    return Settings(port=0, shutdown_s=5, body_bytes_max=LIMIT, cache_bytes_max=2**20)


@pytest.fixture(autouse=True)
def _probes(app: FastAPI) -> None:
    add_probes(app)


def refusal(answer: Any, status: int = 413, code: str = "limit_exceeded") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.json()["code"] == code
    return dict(answer.json())


def test_as_large_as_allowed(client: TestClient) -> None:
    assert client.post("/probe/size", content=bytes(LIMIT)).json() == LIMIT


def test_one_byte_more(client: TestClient) -> None:
    document = refusal(client.post("/probe/size", content=bytes(LIMIT + 1)))

    assert document["details"] == {"limit": "size"}
    assert f"{LIMIT:,}" in document["message"]


def test_a_body_that_does_not_say_its_size_is_counted(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield bytes(LIMIT // 10)

    refusal(client.post("/probe/size", content=pieces()))


def test_it_holds_for_what_the_framework_reads_too(client: TestClient) -> None:
    refusal(client.post("/probe/order", content=b" " * (LIMIT + 1), headers={"Content-Type": "application/json"}))


@pytest.mark.parametrize("encoding", PACKED)
def test_packed_bodies(client: TestClient, encoding: str) -> None:
    packed = PACKED[encoding](b'{"id": 7}')
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}

    assert client.post("/probe/order", content=packed, headers=headers).json() == 7


@pytest.mark.parametrize("encoding", PACKED)
def test_a_bomb_is_refused_by_its_real_size(client: TestClient, encoding: str) -> None:
    bomb = PACKED[encoding](bytes(200 * LIMIT))
    assert len(bomb) < LIMIT

    document = refusal(client.post("/probe/size", content=bomb, headers={"Content-Encoding": encoding}))

    assert "unpacked" in document["message"]


@pytest.mark.parametrize("encoding", PACKED)
def test_a_bomb_takes_no_memory(encoding: str) -> None:
    bomb = PACKED[encoding](bytes(200 * LIMIT))
    before = pa.total_allocated_bytes()
    pa.default_memory_pool().release_unused()
    tracemalloc.start()
    try:
        assert unpack(bomb, encoding, LIMIT) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 * LIMIT
    assert pa.total_allocated_bytes() - before < 8 * LIMIT


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("damage", ["cut", "garbage", "other"])
def test_packed_bodies_that_are_damaged(client: TestClient, encoding: str, damage: str) -> None:
    packed = PACKED[encoding](b"x" * 10_000)
    content = {"cut": packed[:-5], "garbage": b"garbage", "other": packed[:4] + b"\0" * 50}[damage]

    refusal(client.post("/probe/size", content=content, headers={"Content-Encoding": encoding}), 400, "invalid_request")


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd,gzip", "nonsense"])
def test_encodings_that_are_not_known(client: TestClient, encoding: str) -> None:
    answer = client.post("/probe/size", content=b"x", headers={"Content-Encoding": encoding})

    refusal(answer, 415, "unsupported_media_type")
    assert answer.headers["Accept-Encoding"] == "gzip, zstd"


def test_packed_members_one_after_the_other(client: TestClient) -> None:
    packed = gzip.compress(b"a" * 10) + gzip.compress(b"b" * 10)

    assert client.post("/probe/size", content=packed, headers={"Content-Encoding": "gzip"}).json() == 20


def test_all_bodies_together_are_bounded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODIES_AT_ONCE", 0)

    answer = client.post("/probe/size", content=b"x")

    assert refusal(answer, 503)["details"] == {"limit": "queue"}
    assert "Retry-After" in answer.headers


def test_what_a_body_held_is_given_back(client: TestClient, app: FastAPI) -> None:
    client.post("/probe/size", content=bytes(1000))
    client.post("/probe/size", content=bytes(LIMIT + 1))
    client.post("/probe/size", content=gzip.compress(bytes(LIMIT * 2)), headers={"Content-Encoding": "gzip"})

    layer: Any = app.middleware_stack
    while not isinstance(layer, bodies.Bodies):
        layer = getattr(layer, "_app", None) or layer.app
    assert layer.buffered_bytes == 0


class TestOnASocket:
    """What a client sees that says one thing and sends another."""

    def talk(self, port: int, *sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX) as connection:
            for part in sent:
                connection.sendall(part)
            answer = b""
            while received := connection.recv(65_536):
                answer += received
            return answer

    def head(self, token: str, *headers: str) -> bytes:
        lines = ("POST /probe/size HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *headers)
        return "\r\n".join((*lines, "", "")).encode()

    def test_a_client_that_is_refused_while_it_sends_gets_the_answer(self, served: Any) -> None:
        def pieces() -> Iterator[bytes]:
            for _ in range(15):
                yield bytes(LIMIT // 10)

        answer = httpx.post(f"{served.url}/probe/size", content=pieces(), headers=served.headers, timeout=WAIT_S_MAX)

        refusal(answer)
        # All it sent was taken, so that nothing on the way could be reset.
        assert "connection" not in answer.headers

    def test_a_client_without_a_token_too(self, served: Any) -> None:
        answer = httpx.post(f"{served.url}/probe/size", content=bytes(LIMIT), timeout=WAIT_S_MAX)

        refusal(answer, 401, "unauthenticated")

    def test_an_endless_body_ends(self, served: Any) -> None:
        chunk = b"%x\r\n%s\r\n" % (LIMIT // 4, bytes(LIMIT // 4))
        with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as connection:
            connection.sendall(self.head(served.token, "Transfer-Encoding: chunked"))
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                deque(map(connection.sendall, itertools.repeat(chunk, 4_000)), maxlen=0)

    def test_who_asks_before_sending_is_not_told_to_go_on(self, served: Any) -> None:
        answer = self.talk(served.port, self.head(served.token, f"Content-Length: {LIMIT + 1}", "Expect: 100-continue"))

        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer.lower()

    def test_a_body_that_is_shorter_than_it_said(self, served: Any) -> None:
        with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as connection:
            connection.sendall(self.head(served.token, "Content-Length: 100") + b"only this")
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65_536)

        assert httpx.get(f"{served.url}/health/live").status_code == 200

    def test_a_body_that_is_longer_than_it_said(self, served: Any) -> None:
        """The rest is no second request."""
        answer = self.talk(served.port, self.head(served.token, "Content-Length: 4") + b"1234" + b"garbage\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1 200 ") == 1

    def test_two_lengths(self, served: Any) -> None:
        answer = self.talk(served.port, self.head(served.token, "Content-Length: 4", "Content-Length: 5") + b"12345")

        assert answer.startswith(b"HTTP/1.1 400 ")

    def test_a_length_beside_chunks(self, served: Any) -> None:
        sent = self.head(served.token, "Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n"

        assert self.talk(served.port, sent).startswith(b"HTTP/1.1 400 ")


class TestSlow:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(port=0, shutdown_s=5, body_bytes_max=LIMIT, cache_bytes_max=2**20)

    @pytest.mark.parametrize("which", ["SILENCE_S_MAX", "BODY_S_MAX"])
    def test_a_body_that_does_not_come_to_an_end(
        self, request: pytest.FixtureRequest, app: FastAPI, which: str
    ) -> None:
        for middleware in app.user_middleware:
            if middleware.cls is bodies.Bodies:  # type: ignore[comparison-overlap]
                middleware.kwargs[which.lower()] = 0.2
        served = request.getfixturevalue("served")
        head = f"POST /probe/size HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n"

        with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as connection:
            connection.sendall(f"{head}Content-Length: 100\r\n\r\nthe start".encode())
            answer = connection.recv(65_536)

        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"too_slow"' in answer


@pytest.mark.parametrize("depth", [1, JSON_DEPTH_MAX])
def test_json_as_deep_as_allowed(depth: int) -> None:
    assert json_of(b"[" * depth + b"]" * depth) == json.loads("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 65 + b"]" * 65,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b"[" * 3_000_000,
        b"[]" * 1_000_000 + b'"' + b"[" * 65 + b'"' + b"[" * 65,
        b'[{"a":' * 40 + b"1" + b"}]" * 40,
    ],
)
def test_json_that_is_too_deep(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="64 levels"):
        json_of(body)


def test_wide_is_not_deep() -> None:
    rows = [{"text": '[[{{"', "n": [1, 2], "back\\": "\\\\"} for _ in range(1000)]

    assert json_of(json.dumps(rows).encode()) == rows


@given(
    st.recursive(
        st.text('[]{}"\\a') | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\'), inner, max_size=3),
        max_leaves=30,
    )
)
def test_the_depth_is_what_a_parser_finds(value: Any) -> None:
    def depth(of: Any) -> int:
        inside = of if isinstance(of, list) else of.values() if isinstance(of, dict) else None
        return 0 if inside is None else 1 + max(map(depth, inside), default=0)

    # Few marks are not looked at closely: they cannot be too deep.
    wide = [value, *(["[" for _ in range(JSON_DEPTH_MAX)])]
    assert depth_of(json.dumps(wide).encode()) == depth(wide)


@pytest.mark.parametrize("body", [b"", b"{", b"nan", b"\xff", b"'a'", b"[1,]"])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no JSON"):
        json_of(body)
