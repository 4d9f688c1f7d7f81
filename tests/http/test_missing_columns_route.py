"""Rows over HTTP that lack a column of the table are refused, whatever they come as, unless null is wanted."""

from __future__ import annotations

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import Lake, Table

ROWS = "/v1/tables/shop.notes/rows"
FULL = {"id": 1, "note": "gift", "price": 5}


@pytest.fixture
def notes(lake: Lake) -> Table:
    table = lake.create_table(
        "shop.notes", pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.int64())]), key="id"
    )
    table.upsert([FULL])
    return table


def stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


BODIES = [
    (b'[{"id": 1, "note": "n", "price": 6}, {"id": 1, "price": 6}]', "application/json"),
    (b'{"id": 1, "note": "n", "price": 6}\n{"id": 1, "price": 6}\n', "application/x-ndjson"),
    (b"id,price\n1,6\n", "text/csv"),
    (stream(pa.table({"id": [1], "price": [6]})), "application/vnd.apache.arrow.stream"),
]


@pytest.mark.parametrize("mode", ["upsert", "append", "replace"])
@pytest.mark.parametrize(("body", "kind"), BODIES)
def test_they_are_refused_or_become_null(client: TestClient, notes: Table, body: bytes, kind: str, mode: str) -> None:
    headers = {"Content-Type": kind}

    refused = client.post(ROWS, params={"mode": mode}, content=body, headers=headers)

    assert refused.status_code == 400
    assert "lack the column 'note'" in refused.json()["message"]
    assert "missing='null'" in refused.json()["message"]
    assert notes.get(1) == FULL

    answer = client.post(ROWS, params={"mode": mode, "missing": "null"}, content=body, headers=headers)
    assert answer.status_code == 200
    assert notes.get(1) == {"id": 1, "note": None, "price": 6}


@pytest.mark.parametrize(
    ("mode", "missing"), [("upsert", "skip"), ("replace", "insert"), ("update", "null"), ("retract", "null")]
)
def test_a_word_of_another_mode_is_refused(client: TestClient, notes: Table, mode: str, missing: str) -> None:
    answer = client.post(ROWS, params={"mode": mode, "missing": missing}, json=[FULL])

    assert answer.status_code == 400
    assert f"missing={missing} does not go with mode {mode}" in answer.json()["message"]


def test_whole_rows_and_a_table_that_says_null_are_written(client: TestClient, notes: Table) -> None:
    assert client.post(ROWS, json=[{**FULL, "note": None}]).status_code == 200
    notes.set_options({"missing_columns": "null"})
    assert client.post(ROWS, json=[{"id": 1}]).status_code == 200
    assert notes.get(1) == {"id": 1, "note": None, "price": None}


@pytest.mark.parametrize("key", [["id"], []])
@pytest.mark.parametrize(("body", "kind"), BODIES)
def test_a_column_with_a_default_is_not_lacking(
    client: TestClient, lake: Lake, body: bytes, kind: str, key: list[str]
) -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "note", "type": "string"}, {"name": "price", "type": "int64"}]
    order = {"name": "shop.notes", "columns": columns, "key": key, "defaults": {"note": "none"}}
    created = client.post("/v1/tables", json=order)
    assert (created.status_code, created.json()["defaults"]) == (201, {"note": "none"})

    answer = client.post(ROWS, content=body, headers={"Content-Type": kind})

    assert answer.status_code == 200, answer.text
    assert {"id": 1, "note": "none", "price": 6} in lake.table("shop.notes").to_arrow().to_pylist()
    wrong = client.post("/v1/tables", json={**order, "name": "shop.bad", "defaults": {"price": "many"}})
    assert wrong.status_code == 400
    assert "'price'" in wrong.json()["message"]
