"""What happened a moment ago: pages of events, a stream of them, and what a token is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from lithify import Lake
from lithify.core.names import TableName
from lithify.http import events
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from lithify.lake.internals import internals
from lithify.metrics.recent_events import RecentEvents
from support.service import serving

ClientWith = Callable[..., TestClient]
WAIT_S = 60


def notice(lake: Lake, *names: str) -> None:
    """What the thread that refreshes tables does every second."""
    for name in names:
        internals(lake).open_tables.notify(TableName(*name.split(".")))


def page(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.get("/v1/events", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def write(lake: Lake, name: str = "shop.orders") -> None:
    row = {"id": 9, "status": "new"} if name == "shop.orders" else {"user_id": 9, "what": "c"}
    table = lake.table(name)
    notice(lake, name)
    table.append([row]) if name != "shop.orders" else table.upsert([row])
    notice(lake, name)


class TestPages:
    def test_writes_folds_and_jobs_in_their_order(self, client: TestClient, lake: Lake) -> None:
        write(lake)
        lake.table("shop.orders").fold()
        notice(lake, "shop.orders")
        found = page(client)
        told = [(each["event"], each["table"]) for each in found["events"]]
        assert ("written", "shop.orders") in told
        begins, ends = told.index(("job started", "shop.orders")), told.index(("job ended", "shop.orders"))
        assert told.index(("written", "shop.orders")) < begins < ends < told.index(("folded", "shop.orders"))
        job, ended = found["events"][begins]["facts"], found["events"][ends]["facts"]
        assert (job["kind"], ended["outcome"], job["job"]) == ("fold", "done", ended["job"])
        assert found["last"] == found["events"][-1]["id"]

    def test_going_on_after_an_id(self, client: TestClient, lake: Lake) -> None:
        write(lake)
        first = page(client)
        assert page(client, after=first["last"]) == {"events": [], "last": first["last"], "gap": False, "more": False}
        write(lake)
        page(client)  # of writes between two looks, the newest is told
        write(lake)
        second = page(client, after=first["last"], limit=1)
        rest = page(client, after=second["last"])
        assert (len(second["events"]), second["more"], rest["more"]) == (1, True, False)
        assert not {each["id"] for each in first["events"]} & {each["id"] for each in second["events"] + rest["events"]}
        assert [each["facts"]["seq"] for each in second["events"] + rest["events"]] == sorted(
            each["facts"]["seq"] for each in second["events"] + rest["events"]
        )

    def test_an_id_that_has_left_the_ring_is_a_gap(self, client: TestClient, lake: Lake) -> None:
        write(lake)
        found = page(client, after="0" * 32)
        assert found["gap"] is True
        assert found["events"]

    def test_an_id_that_is_none_is_refused(self, client: TestClient) -> None:
        answer = client.get("/v1/events", params={"after": "../etc"})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")

    def test_a_token_for_some_tables_learns_nothing_of_others(self, client_with: ClientWith, lake: Lake) -> None:
        limited = client_with("read", table="shop.*")
        write(lake)
        seen = page(limited)
        write(lake, "log.events")
        lake.table("log.events").fold()
        lake.maintain(tables=["log.events"])
        after = page(limited, after=seen["last"])

        assert {each["table"] for each in seen["events"]} == {"shop.orders"}
        assert {each["table"] for each in after["events"]} <= {None, "shop.orders"}
        assert "log" not in json.dumps([each for each in after["events"] if each["table"] is None])
        assert all(set(each["facts"]) == {"cycle", "what"} for each in after["events"] if each["table"] is None)

    def test_a_token_for_all_tables_is_told_what_a_cycle_did(self, client: TestClient, lake: Lake) -> None:
        lake.maintain()
        done = next(each for each in page(client)["events"] if each["event"] == "cycle done")
        assert {"done", "failed", "seconds"} <= done["facts"].keys()


def test_the_ring_is_bounded() -> None:
    log = RecentEvents(events_max=3, now_s=lambda: 1.0)
    for number in range(5):
        log.tell("written", "a.b", seq=number)
    found, gap = log.after(None)
    assert ([event.facts["seq"] for event in found], gap) == ([2, 3, 4], False)


def test_of_many_writes_between_two_looks_one_is_told(client: TestClient, lake: Lake) -> None:
    seqs = [lake.table("shop.orders").upsert([{"id": 9, "status": "new"}]).seq for _ in range(5)]
    found = [each for each in page(client)["events"] if each["event"] == "written"]
    assert [each["facts"] for each in found] == [{"seq": seqs[-1], "rows": 5}]
    notice(lake, "shop.orders")
    assert [each for each in page(client)["events"] if each["event"] == "written"] == found


def test_a_write_of_another_process_is_told_when_it_is_noticed(client: TestClient, lake: Lake) -> None:
    notice(lake, "shop.orders")
    lake.table("shop.orders").count()
    with Lake(lake.path) as other:
        seq = other.table("shop.orders").upsert([{"id": 9, "status": "new"}]).seq
    assert page(client)["events"] == []
    notice(lake, "shop.orders")
    (found,) = page(client)["events"]
    assert (found["event"], found["table"], found["facts"]["seq"]) == ("written", "shop.orders", seq)


class TestStream:
    @pytest.fixture
    def ask(self, lake: Lake) -> Iterator[Callable[..., Any]]:
        with serving(lake, internals(lake).runtime.settings) as served:
            client = httpx.Client(base_url=served.url, timeout=WAIT_S)

            def stream(**headers: str) -> Any:
                return client.stream(
                    "GET",
                    "/v1/events",
                    headers={"Authorization": f"Bearer {served.token}", "Accept": "text/event-stream", **headers},
                )

            with client:
                yield stream

    def test_events_come_as_they_happen_and_it_goes_on_where_it_stopped(
        self, ask: Callable[..., Any], lake: Lake
    ) -> None:
        with ask() as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            next(lines)  # it is open
            write(lake)
            first = next_event(lines)
        write(lake)
        with ask(**{"Last-Event-ID": first["id"]}) as answer:
            second = next_event(answer.iter_lines())
        assert (first["event"], first["table"], second["table"]) == ("written", "shop.orders", "shop.orders")
        assert second["facts"]["seq"] == first["facts"]["seq"] + 1

    def test_an_id_that_is_not_known_is_told_as_a_gap(self, ask: Callable[..., Any], lake: Lake) -> None:
        write(lake)
        with ask(**{"Last-Event-ID": "0" * 32}) as answer:
            assert "event: gap" in [line for _, line in zip(range(4), answer.iter_lines(), strict=False)]

    def test_it_ends_with_its_token(self, ask: Callable[..., Any], lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(events, "SIGN_S", 0.1)
        token, secret = Tokens(lake.path).create("short", ("read",))
        with ask(Authorization=f"Bearer {secret}") as answer:
            lines = answer.iter_lines()
            next(lines)
            Tokens(lake.path).revoke(token.id)
            assert set(lines) <= {"", ": still here"}


def test_streams_are_bounded(client: TestClient, service: Service) -> None:
    service.streams["somebody"] = events.STREAMS_MAX
    answer = client.get("/v1/events", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, answer.json()["code"]) == (503, "limit_exceeded")
    assert "streams of events" in answer.json()["message"]


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    return dict(json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")))
