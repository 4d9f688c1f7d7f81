"""SQL that writes over HTTP: rights, counts, keys of idempotency, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from lithify import Lake

ClientWith = Callable[..., TestClient]
EXECUTE = "/v1/query/execute"


def run(client: TestClient, sql: str, key: str | None = None, **fields: Any) -> Any:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return client.post(EXECUTE, json={"sql": sql, **fields}, headers=headers)


def refused(answer: Any, status: int, code: str) -> str:
    document = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    return str(document["message"])


def statuses(lake: Lake) -> list[str]:
    return [row["status"] for row in lake.sql("select status from shop.orders order by id").to_pylist()]


def test_a_statement(client: TestClient, lake: Lake) -> None:
    answer = run(client, "update shop.orders set status = $1 where id <= $2", parameters=["it's", 2])

    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "statement": "update",
        "table": "shop.orders",
        "seq": 2,
        "inserted": 0,
        "updated": 2,
        "deleted": 0,
        "batch_id": None,
        "replayed": False,
        "dry_run": False,
    }
    assert statuses(lake) == ["it's", "it's", "paid"]
    assert lake.table("shop.orders").history(1)[0].actor == "read-write-maintain-admin"


def test_a_merge_with_rows_of_its_own(client: TestClient, lake: Lake) -> None:
    text = (
        "merge into shop.orders t using (values (1, 'x'), (9, 'y')) s(id, status) on t.id = s.id "
        "when matched then update set status = s.status || t.status when not matched then insert *"
    )
    assert run(client, text).json()["updated"] == 1
    assert statuses(lake) == ["xpaid", "paid", "paid", "y"]
    again = (
        "insert into shop.orders (id, status) values (9, 'z') on conflict (id) do update set status = excluded.status"
    )
    assert run(client, again).json()["updated"] == 1
    assert statuses(lake)[3] == "z"


def test_many_rows_of_constants(client: TestClient, lake: Lake) -> None:
    rows = ", ".join(f"({number}, 'it''s {number}')" for number in range(2, 40))
    text = f"insert into shop.orders (id, status) values {rows} on conflict (id) do nothing"

    assert run(client, text).json()["inserted"] == 36
    assert statuses(lake)[2:5] == ["paid", "it's 4", "it's 5"]
    assert refused(run(client, text.replace("do nothing", "do update set status = nothing")), 400, "invalid_request")


def test_default_and_subqueries_in_values(client: TestClient, lake: Lake) -> None:
    lake.table("shop.orders").alter_column("status", default="new")

    text = "insert into shop.orders values ((select max(id) + 1 from shop.orders), 1, default), (8, null, $1)"
    first = run(client, text, parameters=["x"], dry_run=True)
    assert first.status_code == 200, first.text
    assert first.json()["inserted"] == 2
    assert run(client, text, parameters=["x"]).json()["inserted"] == 2
    assert run(client, "update shop.orders set status = default where id = 1").json()["updated"] == 1
    assert statuses(lake) == ["new", "paid", "paid", "new", "x"]
    text = "update shop.orders set amount.status = 'x'"
    assert "calls its table orders" in refused(run(client, text), 400, "invalid_request")


def test_a_dry_run_writes_nothing(client: TestClient, lake: Lake) -> None:
    found = run(client, "delete from shop.orders", dry_run=True).json()

    assert (found["deleted"], found["dry_run"]) == (3, True)
    assert len(statuses(lake)) == 3


def test_sent_again_it_is_executed_once(client: TestClient, lake: Lake) -> None:
    text = "update shop.orders set status = status || '!'"
    first, second = run(client, text, key="k1").json(), run(client, text, key="k1").json()

    assert (second["replayed"], second["seq"], second["updated"]) == (True, first["seq"], 3)
    assert statuses(lake) == ["paid!"] * 3
    assert "another write" in refused(run(client, "delete from shop.orders", key="k1"), 409, "conflict")


def test_who_only_writes_may_insert_and_nothing_that_tells_what_is_there(client_with: ClientWith, lake: Lake) -> None:
    writer = client_with("write", table="shop.orders")

    assert run(writer, "insert into shop.orders (id, status) values (4, 'new')").json()["inserted"] == 1
    for text in (
        "update shop.orders set status = 'x' where status = 'paid'",
        "delete from shop.orders where id = 1",
        "insert into shop.orders select id + 10, amount, status from shop.orders",
        "insert into shop.orders (id) values (1) on conflict (id) do update set status = orders.status",
        "merge into shop.orders t using (values (1)) s(id) on t.id = s.id when matched then delete",
    ):
        assert "may not read table shop.orders" in refused(run(writer, text), 403, "forbidden"), text
    assert statuses(lake) == ["paid", "paid", "paid", "new"]


def test_every_table_that_is_read_needs_the_right_to_read_it(client_with: ClientWith, lake: Lake) -> None:
    both = client_with("read", "write", table="shop.orders")

    for text in (
        "insert into shop.orders (id) select user_id + 20 from log.events",
        "delete from shop.orders where id in (select user_id from log.events)",
        "update shop.orders o set status = e.what from log.events e where e.user_id = o.id",
        "merge into shop.orders t using log.events s on t.id = s.user_id when matched then delete",
        "update shop.orders set status = (select max(what) from log.events)",
    ):
        assert "log.events" in refused(run(both, text), 403, "forbidden"), text
    assert "log.events" in refused(run(both, "insert into log.events values (1, 'x')"), 403, "forbidden")
    assert statuses(lake) == ["paid"] * 3
    assert run(both, "update shop.orders set status = 'x' where id = 1").json()["updated"] == 1


def test_who_only_reads_is_refused(client_with: ClientWith) -> None:
    refused(run(client_with("read"), "delete from shop.orders"), 403, "forbidden")


@pytest.mark.parametrize(
    ("text", "status", "code", "message"),
    [
        ("select 1", 400, "invalid_request", "ask it with sql"),
        ("insert into shop.orders (id) values (1)", 409, "conflict", r"(not shown)"),
        ("update shop.orders set id = 5", 400, "invalid_request", "part of the key"),
        ("update shop.orders set status = 1; drop table shop.orders", 400, "invalid_request", "one statement"),
        ("update shop.nothing set x = 1", 404, "not_found", "shop.nothing"),
        ("update shop.orders set status = " + "(" * 60 + "1" + ")" * 60, 400, "invalid_request", "levels deep"),
        ("update shop.orders set status = " + "not " * 20_000 + "x", 400, "invalid_request", "levels deep"),
        ("update shop.orders set status = repeat('x', 2000000000)", 422, "limit_exceeded", "MiB"),
        ("merge into shop.orders", 400, "invalid_request", "USING should stand"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_changes_nothing(
    client: TestClient, lake: Lake, text: str, status: int, code: str, message: str
) -> None:
    assert message in refused(run(client, text), status, code)
    assert statuses(lake) == ["paid"] * 3


def test_tables_are_created_altered_and_dropped_with_the_scopes_of_that(client_with: ClientWith, lake: Lake) -> None:
    writer, admin = client_with("read", "write"), client_with("admin")

    assert run(writer, "create table shop.copy as select id from shop.orders").json()["inserted"] == 3
    for text in ("drop table shop.copy", "alter table shop.copy add column n int"):
        assert "scope admin" in refused(run(writer, text), 403, "forbidden")
    assert run(admin, "alter table shop.copy add column n int").status_code == 200
    assert run(writer, "truncate shop.copy").json()["deleted"] == 3
    assert run(admin, "drop table shop.copy").json()["statement"] == "drop table"
    assert lake.tables() == ["log.events", "shop.orders"]


def test_a_table_is_made_only_of_rows_that_may_be_read(client_with: ClientWith, lake: Lake) -> None:
    both = client_with("read", "write", table="shop.orders")

    assert "shop.new" in refused(run(both, "create table shop.new (id bigint)"), 403, "forbidden")
    lake.drop_table("shop.orders")
    refused(run(both, "create table shop.orders as select * from log.events"), 403, "forbidden")
    assert lake.tables() == ["log.events"]


def test_questions_about_tables_are_answered_for_those_that_may_be_read(client_with: ClientWith) -> None:
    reader = client_with("read", table="shop.orders")

    def ask(sql: str) -> Any:
        return reader.post("/v1/query/sql", json={"sql": sql})

    assert ask("show tables").json()["rows"] == [["shop", "orders"]]
    assert ask("describe shop.orders").json()["rows"][0] == ["id", "int64", False, "key"]
    assert ask("select count(*) from shop.orders version as of 0").json()["rows"] == [[0]]
    for text in ("describe log.events", "show history from log.events", "select * from log.events version as of 1"):
        refused(ask(text), 403, "forbidden")
