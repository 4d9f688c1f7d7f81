"""The server of Flight SQL, with clients that do not behave."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from lithify import Lake
from lithify.errors import InvalidRequest, NotFound, Unavailable
from lithify.flight import messages
from lithify.flight.prepared import Prepared, PreparedStatements, prepared
from lithify.flight.server import FlightServer
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from support.waiting import eventually

LONG = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(v) WHERE a.v % 7 = 9"


@pytest.fixture
def client(server: FlightServer) -> Iterator[Any]:
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        yield client


@pytest.fixture
def options(secret: str) -> Any:
    return _options(secret)


def _options(secret: str, timeout_s: float = 60) -> Any:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {secret}".encode())], timeout=timeout_s)


def _query(sql: str) -> Any:
    return flight.FlightDescriptor.for_command(messages.enveloped("CommandStatementQuery", query=sql))


def test_two_steps(client: Any, options: Any) -> None:
    info = client.get_flight_info(_query("SELECT id FROM shop.orders ORDER BY id"), options)
    assert (info.schema.names, info.total_records) == (["id"], 12)
    assert client.do_get(info.endpoints[0].ticket, options).read_all().column("id").to_pylist() == list(range(1, 13))


def test_an_answer_is_that_of_its_token(client: Any, options: Any, tokens: Tokens) -> None:
    ticket = client.get_flight_info(_query("SELECT 1"), options).endpoints[0].ticket
    _, other = tokens.create("other", ("read",))
    with pytest.raises(flight.FlightServerError, match="there is no kept answer"):
        client.do_get(ticket, _options(other)).read_all()
    assert client.do_get(ticket, options).read_all().num_rows == 1


def test_an_answer_that_nobody_fetches_can_be_dropped(client: Any, options: Any, server: FlightServer) -> None:
    info = client.get_flight_info(_query("SELECT * FROM shop.orders"), options)
    assert server.kept_bytes > 0
    body = messages.plain("CancelFlightInfoRequest", info=info.serialize())
    (result,) = client.do_action(flight.Action("CancelFlightInfo", body), options)
    assert messages.read("CancelFlightInfoResult", result.body.to_pybytes()).status == 1
    assert server.kept_bytes == 0


def test_the_columns_are_told_without_running_the_query(client: Any, options: Any, server: FlightServer) -> None:
    assert client.get_schema(_query(f"SELECT id, ({LONG}) AS n FROM shop.orders"), options).schema.names == ["id", "n"]
    assert server.kept_bytes == 0


@contextlib.contextmanager
def _asking(client: Any, options: Any, sql: str = LONG) -> Iterator[list[BaseException]]:
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            client.get_flight_info(_query(sql), options)
        except BaseException as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield errors
    finally:
        asking.join(60)
    assert not asking.is_alive()


def test_a_client_that_goes_away_ends_its_query(client: Any, secret: str, lake: Lake, service: Service) -> None:
    with _asking(client, _options(secret, timeout_s=3)) as errors:
        eventually(lake.queries, "the query")
    assert isinstance(errors[0], flight.FlightTimedOutError)
    eventually(lambda: not lake.queries() and not service.asking, "the end of the query")


def test_a_revoked_token_is_refused_at_the_next_call(client: Any, tokens: Tokens) -> None:
    token, secret = tokens.create("brief", ("read",))
    client.get_flight_info(_query("SELECT 1"), _options(secret))
    tokens.revoke(token.id)
    eventually(lambda: tokens.find(secret) is None, "the revocation")
    with pytest.raises(flight.FlightUnauthenticatedError, match="the token is not valid"):
        client.get_flight_info(_query("SELECT 1"), _options(secret))


def test_a_revoked_token_ends_its_query(client: Any, tokens: Tokens, lake: Lake) -> None:
    token, secret = tokens.create("short", ("read",))
    with _asking(client, _options(secret)) as errors:
        eventually(lake.queries, "the query")
        tokens.revoke(token.id)
    assert isinstance(errors[0], flight.FlightUnauthenticatedError)
    eventually(lambda: not lake.queries(), "the end of the query")


def test_a_server_that_is_closed_ends_what_runs(start: Callable[..., FlightServer], secret: str, lake: Lake) -> None:
    server = start()
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client, _asking(client, _options(secret)) as errors:
        eventually(lake.queries, "the query")
        server.close(0.1)
    assert errors
    assert not lake.queries()


def test_a_service_that_stops_takes_no_new_call(
    client: Any, options: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "stopping", True)
    with pytest.raises(flight.FlightUnavailableError, match="the service is stopping"):
        client.get_flight_info(_query("SELECT 1"), options)


def test_a_port_in_use_is_told(start: Callable[..., FlightServer], server: FlightServer) -> None:
    with pytest.raises(Unavailable, match=f"port {server.port} .* in use: .*--flight-port"):
        start(port=server.port)


@pytest.mark.parametrize(
    "call",
    [
        lambda client, options: client.get_flight_info(flight.FlightDescriptor.for_command(b"\xff\xff"), options),
        lambda client, options: client.get_flight_info(flight.FlightDescriptor.for_command(b""), options),
        lambda client, options: client.get_flight_info(flight.FlightDescriptor.for_path("shop", "orders"), options),
        lambda client, options: client.do_get(flight.Ticket(b"\x00" * 100), options).read_all(),
        lambda client, options: list(client.do_action(flight.Action("Nonsense", b"x"), options)),
        lambda client, options: list(client.do_action(flight.Action("CreatePreparedStatement", b"\xff"), options)),
        lambda client, options: list(client.do_action(flight.Action("CancelFlightInfo", b"\x0a\x02\xff\xff"), options)),
    ],
)
def test_what_is_no_message_is_refused_and_the_next_call_answered(client: Any, options: Any, call: Any) -> None:
    with pytest.raises(flight.FlightServerError, match="invalid_request") as error:
        call(client, options)
    assert "Traceback" not in str(error.value)
    assert client.get_flight_info(_query("SELECT 1"), options).total_records == 1


def _send(writer: Any, reader: Any, values: list[int]) -> None:
    with writer:
        writer.write_batch(pa.record_batch({"x": values}))
        writer.done_writing()
        reader.read()


def test_rows_that_are_sent_are_refused(client: Any, options: Any) -> None:
    command = flight.FlightDescriptor.for_command(messages.enveloped("CommandStatementIngest"))
    writer, reader = client.do_put(command, pa.schema([("x", pa.int64())]), options)
    with pytest.raises(flight.FlightServerError, match="Flight SQL reads only"):
        _send(writer, reader, [1])


def test_several_rows_of_parameters_are_refused(client: Any, options: Any) -> None:
    body = messages.enveloped("ActionCreatePreparedStatementRequest", query="SELECT ?")
    (result,) = client.do_action(flight.Action("CreatePreparedStatement", body), options)
    _, made = messages.opened(result.body.to_pybytes())
    command = messages.enveloped(
        "CommandPreparedStatementQuery", prepared_statement_handle=made.prepared_statement_handle
    )
    writer, reader = client.do_put(
        flight.FlightDescriptor.for_command(command), pa.schema([("x", pa.int64())]), options
    )
    with pytest.raises(flight.FlightServerError, match="one row of parameters"):
        _send(writer, reader, [1, 2])


def test_calls_are_counted(client: Any, options: Any, service: Service) -> None:
    def counted() -> list[float]:
        labels = [{"method": "GetFlightInfo", "code": code} for code in ("ok", "not_found")]
        return [service.metrics.registry.get_sample_value("lithify_flight_calls_total", each) or 0 for each in labels]

    ok, not_found = counted()
    client.get_flight_info(_query("SELECT 1"), options)
    with contextlib.suppress(flight.FlightServerError):
        client.get_flight_info(_query("SELECT * FROM shop.nope"), options)
    assert counted() == [ok + 1, not_found + 1]
    assert "lithify_flight_calls_total" in service.metrics.text().decode()


@pytest.mark.parametrize(
    ("query", "text", "count"),
    [
        ("SELECT ?", "SELECT $1", 1),
        ("SELECT ?, '?', \"?\", ? -- ?", "SELECT $1, '?', \"?\", $2 -- ?", 2),
        ("SELECT $2, $1", "SELECT $2, $1", 2),
        ("SELECT 1", "SELECT 1", 0),
    ],
)
def test_marks_become_numbers(query: str, text: str, count: int) -> None:
    assert prepared(query) == Prepared(text, count)


@pytest.mark.parametrize("query", ["SELECT $1001", "SELECT $" + "9" * 5_000, "SELECT " + "?, " * 1_001])
def test_no_text_makes_parameters_without_end(query: str) -> None:
    with pytest.raises(InvalidRequest, match="at most 1,000 parameters"):
        prepared(query)


def test_prepared_statements_are_bounded_in_number_and_time() -> None:
    now = 0.0
    kept = PreparedStatements(count_max=2, seconds_max=10, clock=lambda: now)
    first, second = (kept.keep("me", Prepared(text, 0)) for text in ("1", "2"))
    kept.get("me", first)
    third = kept.keep("me", Prepared("3", 0))
    with pytest.raises(NotFound):
        kept.get("me", second)
    with pytest.raises(NotFound):
        kept.get("you", first)
    now = 11.0
    for handle in (first, third):
        with pytest.raises(NotFound):
            kept.get("me", handle)
