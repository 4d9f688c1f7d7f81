"""Errors of a service are the errors of a local lake, and say where they come from."""

from __future__ import annotations

import json
import pickle

import httpx
import pytest

import lithify
from lithify import (
    Cancelled,
    CommitUnknown,
    ComputeFailed,
    Conflict,
    Corruption,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    LithifyError,
    NotFound,
    OutOfResources,
    Unavailable,
)
from lithify.client.errors import error_of
from lithify.client.transport import Call, Transport, checked_address

ADDRESS = "http://lake.test"
KINDS = [
    InvalidRequest,
    NotFound,
    Conflict,
    CommitUnknown,
    Corruption,
    Unavailable,
    Forbidden,
    Cancelled,
    ComputeFailed,
    OutOfResources,
    LimitExceeded,
]


def answer(code: str, **more: object) -> bytes:
    return json.dumps(
        {"code": code, "message": "it went wrong", "what_to_do": "try less", "id": "r-1", **more}
    ).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_code_makes_the_class(kind: type[LithifyError]) -> None:
    error = error_of(418, answer(kind.code), ADDRESS)
    assert type(error) is kind
    assert error.message == "it went wrong"


def test_every_error_there_is_comes_back() -> None:
    exported = {getattr(lithify, name) for name in lithify.__all__}
    assert {kind for kind in exported if isinstance(kind, type) and issubclass(kind, LithifyError)} == {
        *KINDS,
        LithifyError,
    }


def test_the_request_id_and_the_details_are_kept() -> None:
    error = error_of(422, answer("limit_exceeded", details={"limit": "time"}), ADDRESS)
    assert error.details == {"limit": "time", "status": 422, "request_id": "r-1", "what_to_do": "try less"}
    assert pickle.loads(pickle.dumps(error)).details == error.details


@pytest.mark.parametrize(
    ("code", "kind"), [("unauthenticated", Forbidden), ("internal", Unavailable), ("no_such_route", Unavailable)]
)
def test_codes_that_only_a_service_has(code: str, kind: type[LithifyError]) -> None:
    assert type(error_of(500, answer(code), ADDRESS)) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (429, Unavailable),
        (502, Unavailable),
    ],
)
def test_an_answer_of_somebody_else_is_told_by_its_status(status: int, kind: type[LithifyError]) -> None:
    error = error_of(status, b"<html>\n<b>nginx</b>\x1b[31m</html>", ADDRESS)
    assert type(error) is kind
    assert f"{ADDRESS} answered {status}" in error.message
    assert "nginx" in error.message
    assert "\x1b" not in error.message


@pytest.mark.parametrize("body", [b"", b"[]", b'"text"', b'{"code": 7}', b'{"message": "no code"}', b"\xff\xfe"])
def test_an_answer_that_is_no_document_of_ours(body: bytes) -> None:
    assert type(error_of(500, body, ADDRESS)) is Unavailable


def test_details_cannot_take_the_place_of_the_message() -> None:
    error = error_of(400, answer("invalid_request", details={"message": "other", "public": "other"}), ADDRESS)
    assert error.message == error.public == "it went wrong"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://lake.example/v1", "https://lake.example"),
        ("https://example.org/lake/", "https://example.org/lake"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_addresses(given: str, address: str) -> None:
    assert checked_address(given) == address


@pytest.mark.parametrize(
    "given",
    ["", "127.0.0.1:8080", "lake", "ftp://host", "http://", "http://h:port", "http://user:pw@h", "http://h?a=1"],
)
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(InvalidRequest, match="address of a service"):
        checked_address(given)


@pytest.mark.parametrize("token", ["", "with space", "né", "a\nb"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(InvalidRequest, match="token"):
        lithify.connect(ADDRESS, token=token)


def test_a_port_that_hangs_up_may_be_one_of_tls() -> None:
    def hang_up(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    client = httpx.Client(transport=httpx.MockTransport(hang_up))
    transport = Transport("http://lake.test:8443", client=client, sleep=lambda seconds: None)
    with pytest.raises(Unavailable, match=r"if it serves TLS, write https://lake\.test:8443"):
        transport.send(Call("GET", "/v1/tables", again=True))


def test_what_is_no_certificate() -> None:
    with pytest.raises(InvalidRequest, match="certificates"):
        lithify.connect("https://lake.test", verify="/nowhere/ca.pem")


def test_what_is_no_time() -> None:
    with pytest.raises(InvalidRequest, match="timeout_s"):
        lithify.connect(ADDRESS, timeout_s=0)
