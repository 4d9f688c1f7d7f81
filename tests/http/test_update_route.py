"""Updates over HTTP: what a record does not name stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import Lake

ROWS = "/v1/tables/shop.orders/rows"
UPDATE = {"mode": "update"}


@pytest.fixture
def row(lake: Lake) -> dict[str, Any]:
    row = lake.table("shop.orders").get(1)
    assert row is not None
    return row


def stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'[{"id": 1, "status": "sent"}, {"id": 70, "amount": "3.50"}]', "application/json"),
        (b'{"id": 1, "status": "sent"}\n{"id": 70, "amount": "3.50"}\n', "application/x-ndjson"),
    ],
)
def test_each_record_gives_the_columns_that_it_names(
    client: TestClient, lake: Lake, row: dict[str, Any], body: bytes, kind: str
) -> None:
    answer = client.post(ROWS, params=UPDATE, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["operation"]) == (200, "update")

    table = lake.table("shop.orders")
    assert table.get(1) == {**row, "status": "sent"}
    new = table.get(70)
    assert new is not None
    assert (new["status"], str(new["amount"])) == (None, "3.50")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"id,status\n1,sent\n", "text/csv"),
        (stream(pa.table({"id": [1], "status": ["sent"]})), "application/vnd.apache.arrow.stream"),
    ],
)
def test_every_line_of_a_frame_gives_every_column_of_it(
    client: TestClient, lake: Lake, row: dict[str, Any], body: bytes, kind: str
) -> None:
    assert client.post(ROWS, params=UPDATE, content=body, headers={"Content-Type": kind}).status_code == 200
    assert lake.table("shop.orders").get(1) == {**row, "status": "sent"}


def test_keys_that_are_not_there_are_refused_without_their_values(client: TestClient, lake: Lake) -> None:
    before = lake.table("shop.orders").snapshot().seq
    answer = client.post(ROWS, params={**UPDATE, "missing": "refuse"}, json=[{"id": 987654, "status": "x"}])
    assert answer.status_code == 400
    assert "1 key is not in table shop.orders; nothing was written" in answer.text
    assert "987654" not in answer.text
    assert client.post(ROWS, params={**UPDATE, "missing": "skip"}, json={"id": 70, "status": "x"}).json()["rows"] == 0
    assert client.post(ROWS, params={"missing": "skip"}, json={"id": 70}).status_code == 400
    assert client.post(ROWS, params={**UPDATE, "missing": "other"}, json={"id": 70}).status_code in (400, 422)
    assert lake.table("shop.orders").snapshot().seq == before


@pytest.mark.parametrize("given", [",nonsense,", ",_seq,", None])
def test_what_a_stream_says_that_it_gives_is_checked(client: TestClient, lake: Lake, given: str | None) -> None:
    rows = pa.table({"id": [1], "status": ["x"], "_lithify_given": pa.array([given], pa.string())})
    answer = client.post(
        ROWS, params=UPDATE, content=stream(rows), headers={"Content-Type": "application/vnd.apache.arrow.stream"}
    )
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'[{"id": 1, "status": "sent", "rank": 3}]', "application/json"),
        (b'{"id": 1, "status": "sent", "rank": 3}\n', "application/x-ndjson"),
        (b"id,status,rank\n1,sent,3\n", "text/csv"),
        (stream(pa.table({"id": [1], "status": ["sent"], "rank": [3]})), "application/vnd.apache.arrow.stream"),
    ],
)
@pytest.mark.parametrize("mode", ["upsert", "update"])
def test_columns_that_are_new_are_added_on_request(
    client: TestClient, lake: Lake, row: dict[str, Any], body: bytes, kind: str, mode: str
) -> None:
    asked = {"mode": mode}
    assert client.post(ROWS, params=asked, content=body, headers={"Content-Type": kind}).status_code == 400
    answer = client.post(ROWS, params={**asked, "evolve": "true"}, content=body, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    kept = row if mode == "update" else {**row, "amount": None}
    assert lake.table("shop.orders").get(1) == {**kept, "status": "sent", "rank": 3}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'[{"id": "x", "rank": 3}]', "application/json"),
        (b'[{"id": 1, "rank": null}]', "application/json"),
        (b'{"id": 1, "rank": null}\n', "application/x-ndjson"),
        (b"id,rank\n1,\n", "text/csv"),
        (b'[{"id": 1, "rank": 3}, 5]', "application/json"),
        (b"no stream", "application/vnd.apache.arrow.stream"),
    ],
)
def test_a_body_that_is_refused_adds_no_column(client: TestClient, lake: Lake, body: bytes, kind: str) -> None:
    before = lake.table("shop.orders").schema
    answer = client.post(ROWS, params={"evolve": "true"}, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert lake.table("shop.orders").schema == before


def test_adding_columns_needs_the_scope_for_it(client_with: Callable[..., TestClient], lake: Lake) -> None:
    writer = client_with("write")
    assert writer.post(ROWS, params={**UPDATE, "evolve": "true"}, json=[{"id": 1, "rank": 3}]).status_code == 403
    assert "rank" not in lake.table("shop.orders").schema.names


def test_updates_that_change_nothing_are_not_written(client: TestClient, row: dict[str, Any]) -> None:
    done = client.post(ROWS, params={**UPDATE, "if_changed": "true"}, json=[{"id": 1, "status": row["status"]}]).json()
    assert (done["rows"], done["skipped"]) == (0, 1)
    refused = client.post(ROWS, params={"mode": "replace", "evolve": "true"}, json=[{"id": 1}])
    assert "evolve goes with" in refused.json()["message"]
