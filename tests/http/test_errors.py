"""Every failure has one shape, and no value of a row is in it, nor in the log."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify import LimitExceeded, LithifyError, Unavailable, errors
from lithify.files.os_errors import os_error
from lithify.http import protocol
from lithify.http.errors import STATUS, WHAT_TO_DO, failure_of
from lithify.http.logs import request_id
from support.probes import SECRET, add_probes
from support.waiting import WAIT_S_MAX

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LithifyError)]


@pytest.fixture(autouse=True)
def _probes(app: FastAPI) -> None:
    add_probes(app)


def check_shape(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert set(document) - {"details"} == {"code", "message", "what_to_do", "id"}
    assert all(isinstance(document[name], str) and document[name] for name in ("code", "message", "what_to_do", "id"))
    assert document["code"] == code
    assert document["id"] == answer.headers["X-Request-Id"]
    assert SECRET not in answer.text
    return dict(document)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("InvalidRequest", 400),
        ("NotFound", 404),
        ("Conflict", 409),
        ("Cancelled", 409),
        ("Forbidden", 403),
        ("Corruption", 424),
        ("Unavailable", 503),
        ("CommitUnknown", 503),
        ("ComputeFailed", 422),
        ("OutOfResources", 503),
        ("LimitExceeded", 422),
        ("LithifyError", 500),
    ],
)
def test_errors_of_lithify(client: TestClient, kind: str, status: int) -> None:
    answer = client.get(f"/probe/raise/{kind}")

    document = check_shape(answer, status, getattr(errors, kind).code)
    assert document["message"] == "something stands in the way"
    assert ("Retry-After" in answer.headers) == (status == 503)


def test_every_kind_of_error_has_a_status_and_a_word_of_advice() -> None:
    for kind in KINDS:
        assert kind.code in STATUS
        assert kind.code in WHAT_TO_DO


@pytest.mark.parametrize(
    ("limit", "status"), [("time", 422), ("memory", 422), ("rows", 422), ("size", 413), ("queue", 503)]
)
def test_the_limit_is_named(client: TestClient, limit: str, status: int) -> None:
    document = check_shape(client.get(f"/probe/raise/LimitExceeded?limit={limit}"), status, "limit_exceeded")

    assert document["details"] == {"limit": limit}


@pytest.mark.parametrize("kind", ["ComputeFailed", "OutOfResources"])
def test_what_another_program_said_is_not_repeated(client: TestClient, kind: str) -> None:
    check_shape(
        client.get(f"/probe/raise-plain/{kind}"), STATUS[getattr(errors, kind).code], getattr(errors, kind).code
    )


def test_a_query_is_not_blamed_for_a_machine() -> None:
    assert failure_of(errors.ComputeFailed("x", unknown=True)).status == 503
    assert failure_of(errors.ComputeFailed("x")).status == 422


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_507(number: int) -> None:
    failure = failure_of(os_error(OSError(number, os.strerror(number)), "/lake/shop/orders/x.parquet"))

    assert failure.status == 507
    assert "disk space" in failure.what_to_do


def test_no_permission_is_503() -> None:
    assert failure_of(os_error(PermissionError(errno.EACCES, "no"), "/lake/x")).status == 503


def test_places_on_the_server_are_named_from_the_lake() -> None:
    failure = failure_of(Unavailable("no permission for /data/lake/shop/orders: check /data/lake"), Path("/data/lake"))

    assert failure.message == "no permission for shop/orders: check the lake"


def test_only_some_details_are_answered() -> None:
    failure = failure_of(LimitExceeded("x", limit="rows", key=SECRET, table="a.b", seq=4, row={"a": SECRET}))

    assert failure.details == {"limit": "rows", "table": "a.b", "seq": 4}


def test_a_route_that_is_not_there(client: TestClient) -> None:
    check_shape(client.get(f"/v1/{SECRET}"), 404, "no_such_route")


def test_a_method_that_a_route_does_not_take(client: TestClient) -> None:
    answer = client.put("/health/live")

    check_shape(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", {"id": SECRET}),
        (f"?limit={SECRET}", {"id": 1}),
        ("", {}),
        ("", [SECRET]),
        ("", SECRET),
        (f"?limit={SECRET}", {"id": SECRET}),
    ],
)
def test_parameters_that_do_not_fit(client: TestClient, query: str, body: Any) -> None:
    document = check_shape(client.post(f"/probe/order{query}", json=body), 400, "invalid_request")

    assert "id" in document["message"] or "limit" in document["message"] or "body" in document["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", f'{{"id": {SECRET}}}'.encode(), b"\xff\xfe", b"[" * 100_000, b'{"id": 1}x']
)
def test_a_body_that_is_no_json(client: TestClient, body: bytes) -> None:
    check_shape(
        client.post("/probe/order", content=body, headers={"Content-Type": "application/json"}), 400, "invalid_request"
    )


def test_a_crash_says_nothing_but_its_id(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lithify"):
        document = check_shape(client.get("/probe/crash"), 500, "internal")

    (bug,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    facts = bug.lithify_facts  # type: ignore[attr-defined]
    assert facts["id"] == document["id"]
    assert facts["error"] == "KeyError"
    assert "probes.py" in facts["where"]
    assert bug.exc_info is None


def test_the_service_goes_on_after_a_crash(client: TestClient) -> None:
    client.get("/probe/crash")

    assert client.get("/health/live").status_code == 200


def test_nothing_of_a_request_but_its_shape_is_logged(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lithify"):
        client.post(f"/probe/order?limit=1&q={SECRET}", json={"id": 7}, headers={"X-Anything": SECRET})
        client.post("/probe/order", json={"id": SECRET})
        client.get(f"/probe/tables/{SECRET}")
        client.get(f"/v1/{SECRET}")
        client.get("/probe/raise/InvalidRequest")

    lines = [record for record in caplog.records if record.name == "lithify.http"]
    assert len(lines) == 5
    assert not [record for record in lines if SECRET in repr(vars(record))]


def test_a_line_in_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lithify"):
        answer = client.get("/metrics")

    facts = caplog.records[-1].lithify_facts  # type: ignore[attr-defined]
    assert facts.pop("ms") >= 0
    assert len(facts.pop("token")) == 8
    assert facts == {
        "method": "GET",
        "route": "/metrics",
        "status": 200,
        "code": "",
        "id": answer.headers["X-Request-Id"],
    }


def test_whoever_asks_whether_it_lives_does_not_fill_the_log(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "lithify"):
        client.get("/health/live")

    assert not caplog.records


@pytest.mark.parametrize("given", ["abc-123", "a" * 64, "trace:1.2_3"])
def test_a_request_keeps_its_own_id(client: TestClient, given: str) -> None:
    assert client.get("/health/live", headers={"X-Request-Id": given}).headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", "a\x00", 'a"b', "ä", "a\r\nX: y"])
def test_an_id_that_is_long_or_not_plain_is_replaced(given: str) -> None:
    made = request_id(given)

    assert made != given
    assert len(made) == 16


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "invalid_request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400, "invalid_request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431, "limit_exceeded"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431, "limit_exceeded"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 300 + b"\r\n", 431, "limit_exceeded"),
    ],
    ids=["no-http", "bad-length", "large-header", "long-address", "many-headers"],
)
def test_below_the_requests_too(served: Any, sent: bytes, status: int, code: str) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(sent)
        answer = read_all(connection)

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert f'"code":"{code}"'.encode() in answer


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while received := connection.recv(65_536):
        answer += received
    return answer


@pytest.mark.parametrize("sent", [b"", b"GET /health/live HTTP/1.1\r\nHost:"], ids=["silent", "half"])
def test_a_connection_on_which_no_request_comes(served: Any, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S_MAX", 0.1)
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(sent)
        answer = read_all(connection)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too_slow"' in answer


def test_too_many_connections(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", 0)
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as connection:
        answer = read_all(connection)

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1" in answer
    monkeypatch.undo()
    assert httpx.get(f"{served.url}/health/live").status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /health/live HTTP/1.1\r\nHost:"], ids=["silent", "half"])
def test_connections_that_ask_nothing_keep_nobody_out(
    served: Any, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", 20)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX))
            for _ in range(60)
        ]
        for connection in silent:
            with contextlib.suppress(OSError):
                connection.sendall(sent)
        for _ in range(30):
            assert httpx.get(f"{served.url}/health/live", timeout=WAIT_S_MAX).status_code == 200


def test_a_connection_whose_request_is_under_way_makes_no_room(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", 1)
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as busy:
        # Its body is still to come: the request is being worked on.
        busy.sendall(
            b"POST /v1/query/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: 19\r\n\r\n" % served.token.encode()
        )
        with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S_MAX) as second:
            assert read_all(second).startswith(b"HTTP/1.1 503 ")
        busy.sendall(b'{"sql": "select 1"}')
        assert busy.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_the_methods_of_a_path_are_told_together(client: TestClient) -> None:
    for path, allowed in (
        ("/v1/tables", "GET, POST"),
        ("/v1/tables/shop.orders", "DELETE, GET"),
        ("/v1/tables/shop.orders/rows", "GET, POST"),
        ("/v1/query/sql", "POST"),
    ):
        answer = client.request("PATCH", path)
        check_shape(answer, 405, "method_not_allowed")
        assert answer.headers["Allow"] == allowed, path


def test_a_query_parameter_that_the_route_does_not_know(client: TestClient) -> None:
    document = check_shape(client.get("/v1/tables/shop.orders/rows?limt=2"), 400, "invalid_request")

    assert "'limt'" in document["message"]
    assert "as_of, columns, limit, where" in document["message"]


def test_every_field_of_a_body_that_does_not_fit_is_named(client: TestClient) -> None:
    document = check_shape(client.post("/v1/query/sql", json={"query": "select 1"}), 400, "invalid_request")

    assert document["message"] == "body 'sql': Field required (and 1 more: 'query')"
