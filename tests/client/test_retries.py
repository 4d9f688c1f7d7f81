"""What is sent again, how often and after how long, and that a lost answer writes once."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from lithify import CommitUnknown, Conflict, InvalidRequest, Lake, Settings, Table, Unavailable
from lithify.client.lake import RemoteLake
from lithify.client.transport import Call, Retries, Transport, asked_wait_s
from lithify.http.tokens import Tokens

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.service import Served, free_port, serving

ADDRESS = "http://lake.test:8080"
READ, ONCE = Call("GET", "/tables", again=True), Call("POST", "/tables/a.b/fold")
WRITE = Call("POST", "/tables/a.b/rows", content=b"rows", key="batch-1", again=True)
NOW = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)


class Server:
    """Answers with what it is told to, in this order, and remembers what it was sent."""

    def __init__(self, *answers: int | type[httpx.TransportError], headers: dict[str, str] | None = None) -> None:
        self.answers, self.headers = list(answers), headers or {}
        self.requests: list[httpx.Request] = []
        self.waits_s: list[float] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            return httpx.Response(
                answer, json={"code": "unavailable", "message": "busy", "id": "r1"}, headers=self.headers
            )
        raise answer("told to")

    def transport(self, **options: object) -> Transport:
        client = httpx.Client(transport=httpx.MockTransport(self._answer))
        return Transport(ADDRESS, "lith_x", client=client, sleep=self.waits_s.append, draw=lambda: 1.0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("call", [READ, WRITE], ids=["read", "write"])
def test_a_busy_server_is_asked_again(call: Call, status: int) -> None:
    server = Server(status, status, 200)
    assert server.transport().send(call).status_code == 200
    assert len(server.requests) == 3


@pytest.mark.parametrize("lost", [httpx.ConnectError, httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError])
@pytest.mark.parametrize("call", [READ, WRITE], ids=["read", "write"])
def test_a_lost_connection_is_made_again(call: Call, lost: type[httpx.TransportError]) -> None:
    server = Server(lost, 200)
    assert server.transport().send(call).status_code == 200


def test_every_attempt_of_a_write_has_the_same_key() -> None:
    server = Server(httpx.ReadError, 503, 200)
    server.transport().send(WRITE)
    assert [request.headers["idempotency-key"] for request in server.requests] == ["batch-1"] * 3


def test_work_is_asked_for_again_only_if_it_never_arrived() -> None:
    assert Server(httpx.ConnectError, httpx.ConnectTimeout, 200).transport().send(ONCE).is_success
    for answer in (httpx.ReadError, httpx.ReadTimeout, 503, 502):
        server = Server(answer, 200)
        with pytest.raises(Unavailable):
            server.transport().send(ONCE)
        assert len(server.requests) == 1


def test_work_that_may_have_arrived_is_not_asked_for_again_after_a_refused_connection() -> None:
    server = Server(httpx.ReadError, httpx.ConnectError, 200)
    with pytest.raises(Unavailable, match="may be done, under way or not begun"):
        server.transport().send(ONCE)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 424, 500, 507])
def test_an_answer_that_would_be_the_same_again_is_final(status: int) -> None:
    server = Server(status)
    with pytest.raises(Unavailable):
        server.transport().send(READ)
    assert (len(server.requests), server.waits_s) == (1, [])


def test_waits_grow_and_end() -> None:
    server = Server(503)
    with pytest.raises(Unavailable, match="busy"):
        server.transport().send(READ)
    assert server.waits_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


def test_a_server_that_answered_before_is_waited_for_longer() -> None:
    server = Server(200, httpx.ConnectError)
    transport = server.transport()
    transport.send(READ)
    with pytest.raises(Unavailable):
        transport.send(READ)
    assert len(server.requests) == 1 + 10


def test_the_server_says_how_long_to_wait() -> None:
    server = Server(503, 200, headers={"retry-after": "3"})
    server.transport().send(READ)
    assert server.waits_s == [3.1]


def test_a_wait_beyond_all_patience_is_not_begun() -> None:
    server = Server(503, headers={"retry-after": "3600"})
    with pytest.raises(Unavailable):
        server.transport().send(READ)
    assert server.waits_s == []


def test_all_attempts_together_are_bounded_in_time() -> None:
    assert Retries(total_s_max=10).wait_s(1, elapsed_s=9.95, asked_s=None, draw=1.0) is None
    assert Retries(total_s_max=10).wait_s(1, elapsed_s=9.0, asked_s=None, draw=1.0) == 0.1


def test_waits_are_drawn_at_random_from_the_upper_half() -> None:
    waits = [Retries(first_wait_s=1).wait_s(1, 0, None, draw) for draw in (0.0, 0.5, 1.0)]
    assert waits == [0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("5", 5.0),
        ("-5", 0.0),
        ("Sun, 15 Nov 2026 12:00:07 GMT", 7.0),
        ("Sun, 15 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert asked_wait_s(header, NOW) == seconds


def test_nobody_there_is_unavailable_with_the_address() -> None:
    server = Server(httpx.ConnectError)
    with pytest.raises(Unavailable, match=r"http://lake.test:8080 cannot be reached .* is `lithify serve` running"):
        server.transport().send(WRITE)
    assert len(server.requests) == 4


def test_a_write_whose_answers_are_all_lost_says_how_to_go_on() -> None:
    with pytest.raises(CommitUnknown, match="batch_id='batch-1'") as caught:
        Server(httpx.ReadError).transport().send(WRITE)
    assert caught.value.details["batch_id"] == "batch-1"


@pytest.mark.parametrize("last", [503, 401, 400])
def test_a_write_of_which_one_answer_was_lost_is_not_said_to_have_failed(last: int) -> None:
    with pytest.raises(CommitUnknown, match=r"batch_id='batch-1'.*busy"):
        Server(httpx.ReadError, last).transport().send(WRITE)


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_write_that_a_gateway_or_a_crash_answers_may_be_done(status: int) -> None:
    with pytest.raises(CommitUnknown):
        Server(status).transport().send(WRITE)


@pytest.mark.parametrize("status", [400, 401, 413, 503, 507])
def test_a_write_that_was_refused_was_not_done(status: int) -> None:
    with pytest.raises(Unavailable):
        Server(status).transport().send(WRITE)


def test_a_conflict_is_not_retried() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(409, json={"code": "conflict", "message": "a cycle runs", "details": {"cycle": "c1"}})

    transport = Transport(ADDRESS, client=httpx.Client(transport=httpx.MockTransport(answer)))
    with pytest.raises(Conflict) as caught:
        transport.send(READ)
    assert caught.value.details["cycle"] == "c1"


def test_a_closed_connection_says_so() -> None:
    transport = Server(200).transport()
    transport.close()
    with pytest.raises(InvalidRequest, match="connect again"):
        transport.send(READ)


class Lossy(httpx.BaseTransport):
    """Lets the server do its work, and loses as many answers as it is told to."""

    def __init__(self, losses: int) -> None:
        self.losses, self._inner = losses, httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        response.read()
        if self.losses > 0 and request.method == "POST":
            self.losses -= 1
            raise httpx.ReadError("the connection was lost")
        return response

    def close(self) -> None:
        self._inner.close()


class TestLostAnswers:
    """The server has committed, and the client does not know."""

    @pytest.fixture
    def lossy(self, served: Served) -> Iterator[Callable[[int], RemoteLake]]:
        with contextlib.ExitStack() as opened:

            def make(losses: int) -> RemoteLake:
                client = opened.enter_context(httpx.Client(transport=Lossy(losses)))
                return RemoteLake(Transport(served.url, served.token, client=client, sleep=lambda _: None))

            yield make

    @pytest.fixture
    def table(self, lake: Lake, name: str) -> Table:
        table = lake.create_table(name, pa.schema([("user_id", pa.int64())]))
        table.append([{"user_id": 1}, {"user_id": 2}])
        return table

    def test_rows_are_written_once(self, lossy: Callable[[int], RemoteLake], table: Table) -> None:
        commit = lossy(2).table(table.name).append([{"user_id": 7}])
        assert table.to_arrow(where="user_id = 7").num_rows == 1
        assert (commit.seq, commit.rows, commit.batch_id, commit.replayed) == (table.snapshot().seq, 1, None, False)

    def test_a_batch_id_is_written_once(self, lossy: Callable[[int], RemoteLake], table: Table) -> None:
        commit = lossy(1).table(table.name).append([{"user_id": 7}], batch_id="b")
        assert table.to_arrow(where="user_id = 7").num_rows == 1
        assert (commit.batch_id, commit.replayed) == ("b", True)

    def test_rows_written_after_a_delete_whose_answer_was_lost_stay(self, served: Served, table: Table) -> None:
        """Deleted, answer lost, somebody writes the same rows again: the second attempt must not delete those."""

        class Between(Lossy):
            def handle_request(self, request: httpx.Request) -> httpx.Response:
                try:
                    return super().handle_request(request)
                except httpx.ReadError:
                    table.append([{"user_id": 2}])
                    raise

        with httpx.Client(transport=Between(1)) as client:
            remote = RemoteLake(Transport(served.url, served.token, client=client, sleep=lambda _: None))
            assert remote.table(table.name).delete_where("user_id = 2").rows == 1
        assert table.to_arrow().sort_by("user_id").to_pylist() == [{"user_id": 1}, {"user_id": 2}]

    def test_giving_up_tells_how_to_find_out(self, lossy: Callable[[int], RemoteLake], table: Table) -> None:
        with pytest.raises(CommitUnknown) as caught:
            lossy(99).table(table.name).append([{"user_id": 7}])
        again = lossy(0).table(table.name).append([{"user_id": 7}], batch_id=caught.value.details["batch_id"])
        assert again.replayed
        assert table.to_arrow(where="user_id = 7").num_rows == 1

    def test_a_fold_is_not_asked_for_twice(self, lossy: Callable[[int], RemoteLake], table: Table) -> None:
        with pytest.raises(Unavailable, match="look before you ask for it again"):
            lossy(1).table(table.name).fold()
        assert table.stats().pending_rows == 0

    def test_a_query_is_asked_again(self, lossy: Callable[[int], RemoteLake], table: Table) -> None:
        assert lossy(3).sql(f"select count(*) as n from {table.name}").to_pylist() == [{"n": 2}]


def test_a_server_that_comes_up_late_is_waited_for(lake: Lake, settings: Settings, name: str) -> None:
    """Refused first; then it listens, and the same call works."""
    port = free_port()
    lake.create_table(name, pa.schema([("user_id", pa.int64())]))
    with contextlib.ExitStack() as opened:
        waits: list[float] = []

        def come_up(_: float) -> None:
            waits.append(_)
            if len(waits) == 2:
                opened.enter_context(serving(lake, settings, port))

        _, secret = Tokens(lake.path).create("late", ("admin",))
        with RemoteLake(Transport(f"http://127.0.0.1:{port}", secret, sleep=come_up)) as remote:
            assert remote.table(name).append([{"user_id": 7}]).rows == 1
        assert len(waits) == 2
