"""SQL over HTTP: formats, limits, pages, explain, what runs, cancel."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.errors import LimitExceeded, NotFound
from lithify.http.app import create_app
from lithify.http.documents import tables as documents
from lithify.http.formats.negotiate import ANSWERS, accepted
from lithify.http.paging import Paged, PagedAnswers
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from support.waiting import WAIT_S_MAX, eventually

ClientWith = Callable[..., TestClient]
NDJSON, CSV, ARROW = "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"
SQL, EXPLAIN = "/v1/query/sql", "/v1/query/explain"
SELECT = "select id, amount from shop.orders order by id"
# Joins of a thousand rows with themselves: far longer than any test waits, and stopped at the first sign.
LONG = "select count(*) from n a, n b, n c, n d where a.v + b.v + c.v + d.v = -1".replace(
    "from n", "from a.numbers"
).replace(", n ", ", a.numbers ")


def refused(answer: Any, status: int, code: str) -> str:
    document = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert document.keys() >= {"code", "message", "what_to_do", "id"}
    return str(document["message"])


def ask(client: TestClient, sql: str = SELECT, accept: str | None = None, **fields: Any) -> Any:
    headers = {"Accept": accept} if accept is not None else {}
    return client.post(SQL, json={"sql": sql, **fields}, headers=headers)


def test_a_query(client: TestClient) -> None:
    answer = ask(client, id="report-7")
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document.pop("seconds") >= 0
    assert document.pop("source") in ("answer", "hot", "files")
    assert document == {
        "id": "report-7",
        "columns": [{"name": "id", "type": "int64"}, {"name": "amount", "type": "decimal(10,2)"}],
        "rows": [[1, "1.50"], [2, "2.50"], [3, "3.50"]],
        "row_count": 3,
        "cut": False,
        "snapshots": {"shop.orders": 1},
    }


def test_answers_in_other_formats(client: TestClient) -> None:
    lines = ask(client, accept=NDJSON)
    assert lines.text == '{"id":1,"amount":"1.50"}\n{"id":2,"amount":"2.50"}\n{"id":3,"amount":"3.50"}\n'
    assert ask(client, accept=CSV).text == "id,amount\n1,1.50\n2,2.50\n3,3.50\n"
    arrow = ask(client, accept=ARROW, id="a1")
    assert pa.ipc.open_stream(arrow.content).read_all().column("id").to_pylist() == [1, 2, 3]
    assert arrow.headers["content-type"] == ARROW
    assert {name: arrow.headers[f"x-lithify-{name}"] for name in ("id", "cut", "row-count", "snapshots")} == {
        "id": "a1",
        "cut": "false",
        "row-count": "3",
        "snapshots": '{"shop.orders":1}',
    }
    assert float(arrow.headers["x-lithify-seconds"]) >= 0
    assert arrow.headers["x-lithify-source"] in ("answer", "hot", "files")
    assert "x-lithify-next" not in arrow.headers


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/*", CSV),
        ("text/html, */*;q=0.1", "application/json"),
        (f"{ARROW}, application/json;q=0.9", ARROW),
        (f"application/json;q=0.5, {NDJSON};q=0.8", NDJSON),
        ("application/json;q=0, */*", NDJSON),
        ("TEXT/CSV", CSV),
        ("text/csv;q=nonsense, application/json", "application/json"),
    ],
)
def test_the_format_is_the_one_that_is_liked_best(accept: str | None, kind: str) -> None:
    assert accepted(accept) == kind


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0"])
def test_formats_that_nobody_writes(client: TestClient, accept: str) -> None:
    said = refused(ask(client, accept=accept), 406, "not_acceptable")
    assert all(kind in said for kind in ANSWERS)


def test_an_answer_of_many_rows(client: TestClient, lake: Lake) -> None:
    lake.create_table("a.many", pa.schema({"v": pa.int64()})).append(pa.table({"v": range(5000)}))
    assert ask(client, "select v from a.many").json()["row_count"] == 5000
    first = ask(client, "select v from a.many order by v", page_rows=2000).json()
    second = client.get(first["next"]).json()
    third = client.get(second["next"]).json()
    assert [row[0] for page in (first, second, third) for row in page["rows"]] == list(range(5000))
    assert client.get("/v1/tables/a.many/rows").json()["row_count"] == 5000


def test_objects_need_names_of_their_own(client: TestClient) -> None:
    twice = "select a.id, b.id from shop.orders a join shop.orders b on a.id = b.id"
    assert ask(client, twice).json()["row_count"] == 3
    refused(ask(client, twice, NDJSON), 400, "invalid_request")


def test_an_earlier_state_is_asked_for(client: TestClient, lake: Lake) -> None:
    lake.table("shop.orders").upsert([{"id": 4}])
    assert ask(client).json()["row_count"] == 4
    assert ask(client, as_of=1).json()["row_count"] == 3
    assert ask(client, as_of="1").json()["snapshots"] == {"shop.orders": 1}
    refused(ask(client, as_of=99), 404, "not_found")


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("select", 400, "invalid_request"),
        ("drop table shop.orders", 400, "invalid_request"),
        ("select 1; select 2", 400, "invalid_request"),
        ("select nope from shop.orders", 400, "invalid_request"),
        ("select * from shop.nope", 404, "not_found"),
        ("select 1 / 0", 422, "compute_failed"),
    ],
)
def test_queries_that_are_refused(client: TestClient, sql: str, status: int, code: str) -> None:
    refused(ask(client, sql), status, code)


def test_a_failure_does_not_tell_values(client: TestClient, lake: Lake) -> None:
    lake.table("shop.orders").upsert([{"id": 4, "status": "5ecret"}])
    answer = ask(client, "select cast(status as bigint) from shop.orders")
    refused(answer, 422, "compute_failed")
    assert "5ecret" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sql": ""},
        {"sql": 7},
        {"sql": "select 1", "rows_max": 0},
        {"sql": "select 1", "rows_max": "5"},
        {"sql": "select 1", "timeout_s": 0},
        {"sql": "select 1", "page_rows": 0},
        {"sql": "select 1", "id": "a/b"},
        {"sql": "select 1", "as_of": True},
        {"sql": "select 1", "path": "/etc/passwd"},
        [],
    ],
)
def test_bodies_that_are_no_query(client: TestClient, body: Any) -> None:
    refused(client.post(SQL, json=body), 400, "invalid_request")


def test_queries_come_as_json(client: TestClient) -> None:
    for path in (SQL, EXPLAIN):
        answer = client.post(path, content=b'{"sql": "select 1"}', headers={"Content-Type": "text/plain"})
        refused(answer, 415, "unsupported_media_type")


def test_half_a_character_is_no_text(client: TestClient) -> None:
    body = b'{"sql": "select \'\\ud800\'"}'
    refused(client.post(SQL, content=body, headers={"Content-Type": "application/json"}), 400, "invalid_request")


# -- limits


@pytest.fixture
def narrow(lake: Lake, tokens: Tokens) -> Iterator[TestClient]:
    """A service that answers two rows at most."""
    _, secret = tokens.create("reader", ("read",))
    app = create_app(lake, Settings(query_rows_max=2), tokens)
    with TestClient(app, "http://127.0.0.1", headers={"Authorization": f"Bearer {secret}"}) as client:
        yield client


@pytest.fixture
def numbers(lake: Lake) -> None:
    lake.create_table("a.numbers", pa.schema({"v": pa.int64()})).append(pa.table({"v": range(1000)}))


def test_a_cut_answer_says_so(narrow: TestClient) -> None:
    answer = ask(narrow)
    assert (answer.json()["row_count"], answer.json()["cut"]) == (2, True)
    assert answer.headers["x-lithify-cut"] == "true"


def test_rows_max_can_only_lower_the_limit(narrow: TestClient, client: TestClient) -> None:
    assert ask(narrow, rows_max=100).json()["row_count"] == 2
    assert ask(narrow, rows_max=1).json()["row_count"] == 1
    assert ask(client, rows_max=1).json()["cut"] is True
    assert narrow.get("/v1/tables/shop.orders/rows", params={"limit": 100}).json()["row_count"] == 2


def test_a_query_out_of_time_is_stopped_and_says_why(client: TestClient, numbers: None) -> None:
    answer = ask(client, LONG, timeout_s=0.2)
    refused(answer, 422, "limit_exceeded")
    assert answer.json()["details"]["limit"] == "time"


# -- what a token may see


def test_a_token_for_one_table_cannot_query_another(client_with: ClientWith) -> None:
    mine = client_with("read", table="log.events")
    assert ask(mine, "select * from log.events").json()["row_count"] == 2
    join = "select * from log.events e join shop.orders o on o.id = e.user_id"
    for sql in (SELECT, join, "select * from log.events where user_id in (select id from shop.orders)"):
        refused(ask(mine, sql), 403, "forbidden")
        refused(mine.post(EXPLAIN, json={"sql": sql}), 403, "forbidden")


def test_what_is_forbidden_tells_nothing_of_the_table(client_with: ClientWith) -> None:
    mine = client_with("read", table="log.events")
    for path in (SQL, EXPLAIN):
        answer = mine.post(path, json={"sql": "select nope from shop.orders"})
        refused(answer, 403, "forbidden")
        assert "amount" not in answer.text


def test_a_kept_answer_is_not_given_to_those_who_may_not_read_it(client: TestClient, client_with: ClientWith) -> None:
    for _ in range(2):
        assert ask(client).status_code == 200
    refused(ask(client_with("read", table="log.events")), 403, "forbidden")


def test_queries_need_the_scope_read(client_with: ClientWith, stranger: TestClient) -> None:
    writer = client_with("write", "maintain")
    refused(ask(stranger), 401, "unauthenticated")
    refused(ask(client_with("write")), 403, "forbidden")
    refused(writer.get("/v1/query/results/x"), 403, "forbidden")
    refused(writer.post("/v1/query/x/cancel"), 403, "forbidden")


# -- pages


def test_an_answer_comes_in_pages(client: TestClient, lake: Lake) -> None:
    first = ask(client, page_rows=2, id="paged").json()
    assert first["rows"] == [[1, "1.50"], [2, "2.50"]]
    assert first["next"] == "/v1/query/results/paged?page=2"
    lake.table("shop.orders").delete([1, 2, 3])
    second = client.get(first["next"]).json()
    assert second["rows"] == [[3, "3.50"]]
    assert "next" not in second
    assert second["snapshots"] == first["snapshots"]
    assert client.get("/v1/query/results/paged").json()["rows"] == first["rows"]


def test_pages_come_in_every_format(client: TestClient) -> None:
    first = ask(client, accept=ARROW, page_rows=2)
    path = first.headers["x-lithify-next"]
    assert client.get(path, headers={"Accept": CSV}).text == "id,amount\n3,3.50\n"
    refused(client.get(path, headers={"Accept": "text/html"}), 406, "not_acceptable")


def test_an_answer_of_one_page_is_not_kept(client: TestClient, service: Service) -> None:
    assert "next" not in ask(client, page_rows=3, id="short").json()
    assert service.answers.bytes == 0
    refused(client.get("/v1/query/results/short"), 404, "not_found")


def test_pages_are_for_the_token_that_asked(client: TestClient, client_with: ClientWith) -> None:
    path = ask(client, page_rows=1, id="mine").json()["next"]
    refused(client_with("read").get(path), 404, "not_found")
    assert client.get(path).status_code == 200


def test_pages_that_are_not_there(client: TestClient) -> None:
    ask(client, page_rows=2, id="paged")
    assert "1 to 2" in refused(client.get("/v1/query/results/paged?page=3"), 404, "not_found")
    refused(client.get("/v1/query/results/paged?page=0"), 400, "invalid_request")
    assert "send the query again" in refused(client.get("/v1/query/results/other"), 404, "not_found")


def paged(id: str, count: int = 1000) -> Paged:
    return Paged(id, pa.table({"a": range(count)}), 10, {})


def test_kept_answers_take_bounded_memory_and_the_oldest_goes() -> None:
    cache = PagedAnswers(bytes_max=30_000)
    for id in ("a", "b", "c"):
        cache.keep("t", paged(id))
    cache.get("t", "a")
    cache.keep("t", paged("d"))
    assert cache.bytes <= 30_000
    assert cache.get("t", "a").pages == 100
    with pytest.raises(NotFound):
        cache.get("t", "b")
    with pytest.raises(LimitExceeded):
        cache.keep("t", paged("e", 10_000))


def test_kept_answers_go_after_a_while() -> None:
    now = [0.0]
    cache = PagedAnswers(clock=lambda: now[0])
    cache.keep("t", paged("a"))
    now[0] = 299
    assert cache.get("t", "a").page(2).column("a")[0].as_py() == 10
    now[0] = 300
    with pytest.raises(NotFound):
        cache.get("t", "a")
    assert cache.bytes == 0


def test_a_kept_answer_does_not_hold_on_to_the_table_it_came_from() -> None:
    large = pa.table({"a": range(1_000_000)})
    cache = PagedAnswers(bytes_max=2**20)
    cache.keep("t", Paged("a", large.slice(500, 20), 10, {}))
    assert cache.get("t", "a").rows.get_total_buffer_size() < 10_000


# -- explain, running, cancel


def test_explain(client: TestClient) -> None:
    document = client.post(EXPLAIN, json={"sql": "select * from shop.orders where id = 2"}).json()
    [table] = document["tables"]
    assert (table["table"], table["seq"], table["pending_rows"]) == ("shop.orders", 1, 3)
    refused(client.post(EXPLAIN, json={"sql": "select * from shop.nope"}), 404, "not_found")
    refused(client.post(EXPLAIN, json={"sql": "drop table shop.orders"}), 400, "invalid_request")
    refused(client.post(EXPLAIN, json={"sql": "select 1", "x": 1}), 400, "invalid_request")


class Background:
    """A query in a thread of its own, from the moment that it runs."""

    def __init__(self, client: TestClient, lake: Lake, id: str) -> None:
        self.answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self.answers.append(ask(client, LONG, id=id)), daemon=True)
        self._thread.start()
        eventually(
            lambda: any(query.id.endswith(id) and query.state == "running" for query in lake.queries()), "the query"
        )

    def answer(self) -> Any:
        self._thread.join(60)
        return self.answers[0]


def test_a_running_query_is_seen_and_cancelled(client: TestClient, lake: Lake, numbers: None) -> None:
    query = Background(client, lake, "long-1")
    [shown] = client.get("/v1/query/running").json()["queries"]
    assert (shown["id"], shown["sql"], shown["state"]) == ("long-1", LONG, "running")
    assert client.post("/v1/query/long-1/cancel").json() == {"id": "long-1", "cancelled": True}
    said = refused(query.answer(), 409, "cancelled")
    assert "query long-1 was cancelled" in said
    assert client.get("/v1/query/running").json() == {"queries": []}


def test_queries_of_others_are_neither_seen_nor_cancelled(
    client: TestClient, client_with: ClientWith, lake: Lake, numbers: None
) -> None:
    reader, other = client_with("read"), client_with("read", "write")
    query = Background(reader, lake, "long-2")
    assert other.get("/v1/query/running").json() == {"queries": []}
    refused(other.post("/v1/query/long-2/cancel"), 404, "not_found")
    # An admin sees it by its full id.
    [shown] = client.get("/v1/query/running").json()["queries"]
    assert shown["id"].endswith(":long-2")
    refused(other.post(f"/v1/query/{shown['id']}/cancel"), 404, "not_found")
    assert client.post(f"/v1/query/{shown['id']}/cancel").status_code == 200
    refused(query.answer(), 409, "cancelled")


def test_cancelling_what_does_not_run(client: TestClient) -> None:
    refused(client.post("/v1/query/nope/cancel"), 404, "not_found")


def test_an_id_is_for_one_query_at_a_time(client: TestClient, lake: Lake, numbers: None) -> None:
    query = Background(client, lake, "long-3")
    said = refused(ask(client, id="long-3"), 409, "conflict")
    assert ":" not in said.partition("long-3")[0][-2:]
    client.post("/v1/query/long-3/cancel")
    refused(query.answer(), 409, "cancelled")


def test_a_query_is_stopped_when_its_client_goes_away(served: Any, lake: Lake, numbers: None) -> None:
    body = orjson.dumps({"sql": LONG, "id": "gone"})
    head = (
        f"POST {SQL} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), WAIT_S_MAX) as connection:
        connection.sendall(head.encode() + body)
        assert eventually(lake.queries, "the query")
    assert eventually(lambda: not lake.queries(), "the end of the query")


def test_more_queries_than_may_wait_are_refused(client: TestClient, service: Service) -> None:
    service.asking["others"] = service.settings.queries_max + 60
    answer = ask(client)
    refused(answer, 503, "limit_exceeded")
    assert answer.headers["retry-after"]
    service.asking.clear()
    assert ask(client).status_code == 200


def test_one_token_cannot_fill_the_line(client: TestClient, client_with: ClientWith, service: Service) -> None:
    settings = service.settings
    reader = client_with("read")
    (token,) = [token.id for token in service.tokens.listed() if token.name == "read"]
    service.asking[token] = settings.token_queries + settings.token_waiting_max
    assert "token_waiting_max" in refused(ask(reader), 503, "limit_exceeded")
    assert ask(client).status_code == 200
    del service.asking[token]
    assert ask(reader).status_code == 200
    assert not service.asking


class TestClientsThatLeave:
    def leave(self, served: Any, method: str, path: str, body: bytes) -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", served.port), WAIT_S_MAX) as connection:
            connection.sendall(head.encode() + body)

    def test_one_that_leaves_at_once_stops_its_query(
        self, served: Any, service: Service, lake: Lake, numbers: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before the query has begun, too: there is nothing to cancel yet when its client goes."""
        asked, real = list[str](), lake._internals.queries.running

        def running(*arguments: Any) -> Any:
            asked.append(arguments[0])
            eventually(lambda: cancelled, "the client's going")
            return real(*arguments)

        cancelled, cancel = list[str](), lake.cancel
        monkeypatch.setattr(lake, "cancel", lambda id: (cancelled.append(id), cancel(id))[1])
        monkeypatch.setattr(lake._internals.queries, "running", running)
        self.leave(served, "POST", SQL, orjson.dumps({"sql": LONG}))
        assert eventually(lambda: asked == [LONG] and not service.asking and not lake.queries(), "the end of the query")
        assert lake._runtime.activity.totals().stopped == {"cancelled": 1}, "not by its time limit"

    def test_one_that_leaves_stops_the_search_for_what_it_would_delete(
        self, served: Any, service: Service, lake: Lake, numbers: None
    ) -> None:
        slow = "v = -1 or length(repeat(cast(v as varchar), 10000000)) < 0"
        self.leave(served, "POST", "/v1/tables/a.numbers/delete-where", orjson.dumps({"condition": slow}))
        assert eventually(lambda: not service.asking and not lake.queries(), "the end of the search")
        assert lake.table("a.numbers").snapshot().seq == 1


def test_a_revoked_token_ends_its_queries(
    client: TestClient, client_with: ClientWith, tokens: Tokens, lake: Lake, numbers: None
) -> None:
    reader = client_with("read")
    query, other = Background(reader, lake, "mine"), Background(client, lake, "others")
    tokens.revoke("read")
    refused(query.answer(), 401, "unauthenticated")
    assert [running.id.partition(":")[2] for running in lake.queries()] == ["others"]
    client.post("/v1/query/others/cancel")
    refused(other.answer(), 409, "cancelled")


OVERFLOW = "interval " * 1_900 + "'1'"


@pytest.mark.parametrize(
    "send",
    [
        lambda client: ask(client, f"select {OVERFLOW}"),
        lambda client: client.post(EXPLAIN, json={"sql": f"select {OVERFLOW}"}),
        lambda client: client.get("/v1/tables/shop.orders/rows", params={"where": f"{OVERFLOW} is null"}),
        lambda client: client.post("/v1/tables/shop.orders/delete-where", json={"condition": f"{OVERFLOW} is null"}),
    ],
    ids=["sql", "explain", "rows", "delete-where"],
)
def test_a_text_that_overflows_the_parser_is_refused_on_every_route(
    client: TestClient, send: Callable[[TestClient], Any]
) -> None:
    assert "too many parts" in refused(send(client), 400, "invalid_request")
    assert ask(client).json()["row_count"] == 3


# -- what the document says


def test_every_route_is_described(app: FastAPI) -> None:
    document = app.openapi()
    mine = [
        (path, method, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if operation.get("tags", [""])[0] in ("tables", "rows", "query")
    ]
    assert len(mine) >= 15
    for path, method, operation in mine:
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        assert all(parameter.get("description") for parameter in operation.get("parameters", ())), where
        assert {"400", "401", "403", "404"} <= set(operation["responses"]), where
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert content.get("schema"), where
    for name, schema in document["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items() if hasattr(documents, name) else ():
            assert described.get("description"), f"{name}.{field}"
