"""Write, delete and read rows over HTTP."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from lithify import Lake, NotFound, Settings
from lithify.http.app import create_app
from lithify.http.formats import keys, negotiate
from lithify.http.tokens import Tokens
from lithify.read import change_feed, history
from support.looks import looks_counted

ClientWith = Callable[..., TestClient]
NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"
ROWS = "/v1/tables/shop.orders/rows"
DELETE = "/v1/tables/shop.orders/delete"
SECRET = "5ecret"


def refused(answer: Any, status: int, code: str) -> str:
    document = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert document.keys() >= {"code", "message", "what_to_do", "id"}
    assert SECRET not in answer.text
    return str(document["message"])


def stream(rows: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table("shop.orders").to_arrow(["id"]).column("id").to_pylist())


# -- writing


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'[{"id": 7, "amount": "9.90", "status": "new"}, {"id": 8}]', "application/json"),
        (b'{"rows": [{"id": 7, "amount": 9.90, "status": "new"}, {"id": 8}]}', "application/json; charset=utf-8"),
        (b'{"id": 7, "amount": "9.90", "status": "new"}\n{"id": 8}\n', NDJSON),
        (
            stream(pa.table({"id": [7, 8], "amount": pa.array([Decimal("9.90"), None]), "status": ["new", None]})),
            ARROW,
        ),
        (
            stream(pa.table({"id": [7, 8], "amount": ["9.90", None], "status": ["new", None]}), compression="zstd"),
            ARROW,
        ),
    ],
    ids=["array", "rows", "ndjson", "arrow", "packed arrow"],
)
def test_rows_are_written(client: TestClient, lake: Lake, body: bytes, kind: str) -> None:
    answer = client.post(ROWS, content=body, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    commit = answer.json()
    assert {**commit, "seq": 0} == {
        "table": "shop.orders",
        "seq": 0,
        "operation": "upsert",
        "rows": 2,
        "upserted": 2,
        "deleted": 0,
        "batch_id": None,
        "replayed": False,
        "skipped": 0,
    }
    assert lake.table("shop.orders").get(7) == {"id": 7, "amount": Decimal("9.90"), "status": "new"}
    assert ids(lake) == [1, 2, 3, 7, 8]
    assert lake.table("shop.orders").snapshot().seq == commit["seq"]


def test_one_object_is_one_row(client: TestClient, lake: Lake) -> None:
    assert client.post(ROWS, json={"id": 7}).json()["rows"] == 1
    assert ids(lake) == [1, 2, 3, 7]


def test_the_history_names_the_token(client_with: ClientWith, lake: Lake) -> None:
    client_with("write").post(ROWS, json={"id": 7})
    assert lake.table("shop.orders").history(1)[0].actor == "write"


@pytest.mark.parametrize("mode", ["upsert", "append", "replace"])
def test_modes(client: TestClient, lake: Lake, mode: str) -> None:
    answer = client.post(ROWS, params={"mode": mode}, json=[{"id": 1, "status": mode}])
    assert answer.json()["operation"] == mode
    row = lake.table("shop.orders").get(1)
    assert row is not None
    assert row["status"] == mode


def test_a_table_without_a_key_takes_appends(client: TestClient, lake: Lake) -> None:
    path = "/v1/tables/log.events/rows"
    assert client.post(path, json={"user_id": 3, "what": "c"}).json()["operation"] == "append"
    assert lake.table("log.events").to_arrow().num_rows == 3
    assert "no key" in refused(
        client.post(path, params={"mode": "upsert"}, json={"user_id": 1}), 400, "invalid_request"
    )
    assert client.post(path, params={"mode": "other"}, json={"user_id": 1}).status_code == 400


def test_every_type_survives_the_way_there_and_back(client: TestClient) -> None:
    types = ["bool", "int8", "int64", "float32", "float64", "string", "binary", "date", "timestamp", "timestamp_ntz"]
    types += [
        "decimal(38,10)",
        "list<int64>",
        "struct<a:int64,b:list<string>>",
        "map<string,float64>",
        "map<int64,date>",
    ]
    columns = [{"name": f"c{n}", "type": kind} for n, kind in enumerate(types)]
    client.post(
        "/v1/tables", json={"name": "a.b", "columns": [{"name": "id", "type": "int64"}, *columns], "key": ["id"]}
    )
    values = [True, -128, "9223372036854775807", 0.5, "NaN", "ü\n", "AP8=", "0001-01-01", "9999-12-31T23:59:59.999999Z"]
    values += ["2026-11-15T12:00:00", "1234567890123456789012345678.0000000001", [1, None], {"a": 1, "b": ["x"]}]
    values += [{"k": "Infinity"}, [[7, "2026-11-15"]]]
    row = {"id": 1, **{f"c{n}": value for n, value in enumerate(values)}}
    assert client.post("/v1/tables/a.b/rows", json=[row]).status_code == 200
    assert client.get("/v1/tables/a.b/row", params={"key": "1"}).json() == {"table": "a.b", "row": row}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no JSON"),
        (b"[", "no JSON"),
        (b"[]", "empty"),
        (b'{"id": "5ecret"}', "row 0, column 'id': the value does not fit int64"),
        (b'[{"id": 1}, {"id": 1.5}]', "row 1, column 'id'"),
        (b'{"id": 1, "amount": "5ecret"}', "column 'amount'"),
        (b'{"id": 1, "amount": 12345678901.00}', "column 'amount'"),
        (b'{"id": 1, "status": ["5ecret"]}', "column 'status'"),
        (b'{"id": 1, "nope": "5ecret"}', "column 'nope' is not in the table"),
        (b'{"status": "5ecret"}', "'id' is missing"),
        (b'[{"id": 4}, {"id": null, "status": "5ecret"}]', "'id' is null in row 1"),
        (b"[" * 100 + b"]" * 100, "nested deeper"),
        (b'{"id": "\\ud800"}', "no JSON"),
        (
            b'[{"id": 4}, {"id": 5, "status": "5ecret", "status": "5ecret"}]',
            "row 1, field 'status': the field comes twice",
        ),
        (b'{"rows": [{"id": 4, "i\\u0064": 5}]}', "row 0, field 'id': the field comes twice"),
        (b'{"rows": [{"id": 4}], "rows": [{"id": 5}]}', "field 'rows': the field comes twice"),
    ],
)
def test_rows_that_do_not_fit_are_refused_without_their_values(
    client: TestClient, lake: Lake, body: bytes, said: str
) -> None:
    answer = client.post(ROWS, content=body, headers={"Content-Type": "application/json"})
    assert said in refused(answer, 400, "invalid_request")
    assert ids(lake) == [1, 2, 3]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": [SECRET]}),
        pa.table({"id": [4.5]}),
        pa.table({"id": [4], "amount": [SECRET]}),
        pa.table({"id": [4], "amount": ["12345678901.5"]}),
        pa.table({"id": [4], "amount": [9.999]}),
        pa.table({"id": [4], "status": [b"5ecret\xff"]}),
        pa.table({"id": [4], "status": [7]}),
        pa.table({"id": pa.array([None], pa.int64())}),
        pa.table({"id": pa.array([2**63], pa.uint64())}),
        pa.table([[1], [2]], names=["id", "id"]),
        pa.table({"id": pa.array([], pa.int64())}),
    ],
    ids=lambda rows: str(rows.schema).replace("\n", " "),
)
def test_arrow_rows_that_do_not_fit_are_refused_without_their_values(
    client: TestClient, lake: Lake, rows: pa.Table
) -> None:
    refused(client.post(ROWS, content=stream(rows), headers={"Content-Type": ARROW}), 400, "invalid_request")
    assert ids(lake) == [1, 2, 3]


def test_a_bad_line_is_named(client: TestClient) -> None:
    answer = client.post(ROWS, content=b'{"id": 1}\n\n{"id": "5ecret"}\n', headers={"Content-Type": NDJSON})
    assert refused(answer, 400, "invalid_request").startswith("the body, line 3, column 'id'")
    answer = client.post(ROWS, content=b'{"id": 1}\n{"id": 5ecret}\n', headers={"Content-Type": NDJSON})
    assert refused(answer, 400, "invalid_request").startswith("the body, line 2: no JSON")
    answer = client.post(ROWS, content=b'{"id": 4}\n{"id": 5, "id": 6}\n', headers={"Content-Type": NDJSON})
    assert refused(answer, 400, "invalid_request").startswith("the body, line 2, column 'id': the field comes twice")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_document_that_gives_a_field_twice_is_refused(client: TestClient, lake: Lake, encoding: str) -> None:
    for body in ('{"keys": [1], "keys": [2]}', '{"keys": [{"id": 1, "id": 2}]}'):
        answer = client.post(DELETE, content=body.encode(encoding), headers={"Content-Type": "application/json"})
        assert "comes twice" in refused(answer, 400, "invalid_request")
    assert ids(lake) == [1, 2, 3]


def test_a_null_deep_inside_is_refused(client: TestClient, lake: Lake) -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    lake.create_table("a.b", pa.schema([("id", pa.int64()), ("s", inner)]), key="id")
    rows = pa.table({"id": pa.array([1]), "s": pa.array([{"x": None}], inner)})
    answer = client.post("/v1/tables/a.b/rows", content=stream(rows), headers={"Content-Type": ARROW})
    refused(answer, 400, "invalid_request")


def test_bodies_in_other_formats(client: TestClient) -> None:
    refused(client.post(ROWS, content=b"id\n1\n", headers={"Content-Type": "text/xml"}), 415, "unsupported_media_type")
    refused(client.post(ROWS, content=b'{"id": 1}'), 415, "unsupported_media_type")


def test_packed_bodies_are_unpacked(client: TestClient, lake: Lake) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert client.post(ROWS, content=gzip.compress(b'{"id": 7}'), headers=headers).status_code == 200
    assert ids(lake) == [1, 2, 3, 7]


@pytest.fixture
def small(lake: Lake, tokens: Tokens) -> FastAPI:
    """A service that takes bodies of 64 KiB."""
    return create_app(lake, Settings(body_bytes_max=2**16), tokens)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"id": 1, "status": "' + b"x" * 2**16 + b'"}', "application/json"),
        (stream(pa.table({"id": [1], "status": ["x" * 2**22]}), compression="zstd"), ARROW),
        (stream(pa.table({"id": range(1000), "status": pa.array(["x" * 1000] * 1000).dictionary_encode()})), ARROW),
        (stream(pa.table({"id": pa.nulls(2**20)})), ARROW),
    ],
    ids=["plain", "compressed", "dictionary", "nulls"],
)
def test_bodies_that_are_or_become_too_large(
    small: FastAPI, tokens: Tokens, lake: Lake, body: bytes, kind: str
) -> None:
    _, secret = tokens.create("w", ("write",))
    with TestClient(small, "http://127.0.0.1", headers={"Authorization": f"Bearer {secret}"}) as client:
        answer = client.post(ROWS, content=body, headers={"Content-Type": kind})
        refused(answer, 413, "limit_exceeded")
        assert answer.json()["details"] == {"limit": "size"}
    assert ids(lake) == [1, 2, 3]


def test_writing_needs_its_scope_and_its_table(client_with: ClientWith, stranger: TestClient) -> None:
    refused(stranger.post(ROWS, json={"id": 7}), 401, "unauthenticated")
    refused(client_with("read").post(ROWS, json={"id": 7}), 403, "forbidden")
    other = client_with("write", table="log.events")
    refused(other.post(ROWS, json={"id": 7}), 403, "forbidden")
    refused(other.post(DELETE, json={"keys": [1]}), 403, "forbidden")


@pytest.mark.parametrize(("name", "status"), [("shop.nope", 404), ("Shop.Orders", 400)])
def test_tables_that_are_not_there(client: TestClient, name: str, status: int) -> None:
    at = f"/v1/tables/{name}"
    answers = [
        client.post(f"{at}/rows", json={"id": 1}),
        client.post(f"{at}/delete", json={"keys": [1]}),
        client.post(f"{at}/delete-where", json={"condition": "id = 1"}),
        client.get(f"{at}/row", params={"key": "1"}),
        client.get(f"{at}/rows"),
        client.get(f"{at}/changes"),
    ]
    assert [answer.status_code for answer in answers] == [status] * 6


def test_a_table_that_was_created_anew_is_written_to(client: TestClient, lake: Lake) -> None:
    client.post(ROWS, json={"id": 7})
    lake.drop_table("shop.orders")
    assert "shop.orders" in refused(client.post(ROWS, json={"id": 7}), 404, "not_found")
    lake.create_table("shop.orders", pa.schema({"other": pa.int64()}), key="other")
    assert client.post(ROWS, json={"other": 1}).status_code == 200
    assert "'id' is not in the table" in refused(client.post(ROWS, json={"id": 7}), 400, "invalid_request")


def test_a_table_that_another_process_created_anew_is_written_to(client: TestClient, lake: Lake) -> None:
    client.post(ROWS, json={"id": 7})
    with Lake(lake.path) as other:
        other.drop_table("shop.orders")
        other.create_table("shop.orders", pa.schema({"other": pa.int64()}), key="other")

    assert client.post(ROWS, json={"other": 1}).status_code == 200

    assert lake.table("shop.orders").to_arrow().to_pylist() == [{"other": 1}]


def test_a_column_that_another_process_added_is_taken(client: TestClient, lake: Lake) -> None:
    client.post(ROWS, json={"id": 7})
    with Lake(lake.path) as other:
        other.table("shop.orders").add_column(pa.field("note", pa.string()))
    assert client.post(ROWS, json={"id": 8, "note": "new"}).status_code == 200
    row = lake.table("shop.orders").get(8)
    assert row is not None
    assert row["note"] == "new"


# -- the same write again


KEY = {"Idempotency-Key": "feed-1"}


def test_the_same_key_writes_once(client: TestClient, lake: Lake) -> None:
    first = client.post(ROWS, json={"id": 7}, headers=KEY).json()
    lake.table("shop.orders").delete([7])
    again = client.post(ROWS, json={"id": 7}, headers=KEY).json()
    assert again == {**first, "replayed": True}
    assert first["batch_id"] == "feed-1"
    assert ids(lake) == [1, 2, 3]


def test_the_same_key_deletes_once(client: TestClient, lake: Lake) -> None:
    first = client.post(DELETE, json={"keys": [1]}, headers=KEY).json()
    lake.table("shop.orders").upsert([{"id": 1}])
    assert client.post(DELETE, json={"keys": [1]}, headers=KEY).json() == {**first, "replayed": True}
    assert ids(lake) == [1, 2, 3]


def test_the_same_key_deletes_where_once(client: TestClient, lake: Lake) -> None:
    path = "/v1/tables/shop.orders/delete-where"
    first = client.post(path, json={"condition": "id < 3"}, headers=KEY).json()
    lake.table("shop.orders").upsert([{"id": 1}])
    assert client.post(path, json={"condition": "id < 3"}, headers=KEY).json() == {**first, "replayed": True}
    assert ids(lake) == [1, 3]


def test_a_key_is_for_one_operation(client: TestClient, lake: Lake) -> None:
    assert client.post(ROWS, json={"id": 7}, headers=KEY).status_code == 200
    said = refused(client.post(DELETE, json={"keys": [7]}, headers=KEY), 409, "conflict")
    assert "used for another write" in said
    refused(client.post(ROWS, params={"mode": "append"}, json={"id": 8}, headers=KEY), 409, "conflict")
    assert ids(lake) == [1, 2, 3, 7]


OTHERS = [
    (ROWS, {"id": 7}, {"id": 8}),
    (ROWS, [{"id": 7}], [{"id": 7}, {"id": 8}]),
    (DELETE, {"keys": [1]}, {"keys": [2]}),
    ("/v1/tables/shop.orders/delete-where", {"condition": "id = 1"}, {"condition": "id = 2"}),
]


@pytest.mark.parametrize(("path", "first", "other"), OTHERS)
def test_a_key_is_for_one_body(client: TestClient, lake: Lake, path: str, first: Any, other: Any) -> None:
    assert client.post(path, json=first, headers=KEY).status_code == 200
    before = ids(lake)

    assert "another write" in refused(client.post(path, json=other, headers=KEY), 409, "conflict")

    assert ids(lake) == before
    assert client.post(path, json=first, headers=KEY).json()["replayed"]


def test_a_key_is_for_one_token(client: TestClient, lake: Lake) -> None:
    _, secret = Tokens(lake.path).create("attacker", ["write"])
    theirs = {**KEY, "Authorization": f"Bearer {secret}"}
    assert client.post(ROWS, json={"id": 7}, headers=theirs).status_code == 200

    assert "another token" in refused(client.post(ROWS, json={"id": 7}, headers=KEY), 409, "conflict")
    assert client.post(ROWS, json={"id": 7}, headers=theirs).json()["replayed"]


def test_a_key_is_for_one_table(client: TestClient, lake: Lake) -> None:
    lake.create_table("shop.others", lake.table("shop.orders").schema, key="id", options={"missing_columns": "null"})
    assert client.post(ROWS, json={"id": 7}, headers=KEY).json()["replayed"] is False
    assert client.post("/v1/tables/shop.others/rows", json={"id": 8}, headers=KEY).json()["replayed"] is False


def test_what_a_key_was_for_is_known_as_long_as_the_key(client: TestClient, lake: Lake) -> None:
    """Also when the commit itself has left the log, and in another process."""
    assert client.post(ROWS, json={"id": 7}, headers=KEY).status_code == 200
    table = lake.table("shop.orders")
    table.set_options({"checkpoint_every": 2})
    for number in range(8):
        table.upsert([{"id": 100 + number}])
    log = table._internals.handles.changes.log
    for _ in range(2):
        log.trim(log.now_ms() + 10 * 86_400_000, retain_hours=1, commits_max=1)
    with Lake(lake.path) as anew:
        changes = anew.table("shop.orders")._internals.handles.changes
        with pytest.raises(NotFound):
            changes.record_of_seq(changes.log.txn("lithify.batch.feed-1") or 0)

    refused(client.post(ROWS, json={"id": 8}, headers=KEY), 409, "conflict")
    assert client.post(ROWS, json={"id": 7}, headers=KEY).json()["replayed"]


def test_of_two_bodies_under_one_key_at_the_same_time_one_is_written(client: TestClient, lake: Lake) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def send(id: int) -> int:
        return int(client.post(ROWS, json={"id": id}, headers=KEY).status_code)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(100, 108)))
    assert sorted(answers) == [200] + [409] * 7
    assert len([id for id in ids(lake) if id >= 100]) == 1


def test_the_ids_of_a_lane_are_bound_too(client: TestClient, lake: Lake) -> None:
    def send(number: int, id: int) -> Any:
        return client.post(ROWS, json={"id": id}, headers={"Idempotency-Key": f"lane-{'a' * 32}.{number}"})

    assert send(1, 100).json()["replayed"] is False
    assert send(1, 100).json()["replayed"] is True
    assert send(1, 101).status_code == 409
    assert send(2, 102).json()["replayed"] is False
    assert send(1, 100).status_code == 409


def test_keys_have_a_length(client: TestClient) -> None:
    refused(client.post(ROWS, json={"id": 7}, headers={"Idempotency-Key": "x" * 257}), 400, "invalid_request")
    refused(client.post(ROWS, json={"id": 7}, headers={"Idempotency-Key": ""}), 400, "invalid_request")


# -- deleting


def test_rows_are_deleted_by_their_keys(client: TestClient, lake: Lake) -> None:
    answer = client.post(DELETE, json={"keys": [1, {"id": 2}, ["3"], 99], "reason": "erasure request 118"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["deleted"] == 4
    assert ids(lake) == []
    entry = lake.table("shop.orders").history(1)[0]
    assert (entry.operation, entry.reason, entry.actor) == (
        "delete",
        "erasure request 118",
        "read-write-maintain-admin",
    )


def test_some_keys_are_refused_and_the_others_deleted(client: TestClient, lake: Lake) -> None:
    keys = [1, "5ecret", None, {"id": 2}, {"nope": 1}, [1, 2], 1.5, True, {}]
    seq = lake.table("shop.orders").snapshot().seq
    answer = client.post(DELETE, json={"keys": keys})
    assert answer.status_code == 207, answer.text
    document = answer.json()
    assert (document["deleted"], document["seq"]) == (2, seq + 1)
    assert [one["index"] for one in document["refused"]] == [1, 2, 4, 5, 6, 7, 8]
    assert {one["code"] for one in document["refused"]} == {"invalid_request"}
    assert all(one["message"].startswith(f"key {one['index']}") for one in document["refused"] if one["index"] != 2)
    assert SECRET not in answer.text
    assert ids(lake) == [3]


def test_if_all_keys_are_refused_nothing_is_deleted(client: TestClient, lake: Lake) -> None:
    assert "none of the 2 keys" in refused(client.post(DELETE, json={"keys": ["a", "b"]}), 400, "invalid_request")
    assert "key 0" in refused(client.post(DELETE, json={"keys": ["a"]}), 400, "invalid_request")
    assert ids(lake) == [1, 2, 3]


def test_too_many_refused_keys_are_not_listed(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "REFUSED_MAX", 3)
    assert "more than 3 keys" in refused(client.post(DELETE, json={"keys": [1, *"abcd"]}), 400, "invalid_request")


def test_decimal_keys_keep_all_their_digits(client: TestClient, lake: Lake) -> None:
    lake.create_table("a.b", pa.schema({"id": pa.decimal128(38, 20)}), key="id")
    lake.table("a.b").upsert([{"id": Decimal("0.12345678901234567890")}, {"id": Decimal("0.12345678901234567891")}])
    body = b'{"keys": [0.12345678901234567890, "x"]}'
    answer = client.post("/v1/tables/a.b/delete", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 207
    assert lake.table("a.b").to_arrow().to_pylist() == [{"id": Decimal("0.12345678901234567891")}]


def test_keys_of_several_columns(client: TestClient, lake: Lake) -> None:
    lake.create_table("a.b", pa.schema({"day": pa.date32(), "n": pa.int64()}), key=("day", "n"))
    days = [dt.date(2026, 11, day) for day in (14, 15, 16)]
    lake.table("a.b").upsert([{"day": day, "n": 1} for day in days])
    keys = [{"day": "2026-11-14", "n": 1}, ["2026-11-15", 1], ["2026-11-16"], {"n": 1}]
    answer = client.post("/v1/tables/a.b/delete", json={"keys": keys})
    assert (answer.status_code, answer.json()["deleted"]) == (207, 2)
    found = client.get("/v1/tables/a.b/row", params={"key": '{"day": "2026-11-16", "n": 1}'})
    assert found.json()["row"] == {"day": "2026-11-16", "n": 1}


def test_a_table_without_a_key_deletes_by_columns(client: TestClient, lake: Lake) -> None:
    path = "/v1/tables/log.events/delete"
    answer = client.post(path, json={"keys": [{"user_id": 1}, {"what": "b"}, 7]})
    assert answer.status_code == 207
    assert [one["index"] for one in answer.json()["refused"]] == [1, 2]
    assert lake.table("log.events").to_arrow().to_pylist() == [{"user_id": 2, "what": "b"}]


@pytest.mark.parametrize(
    "body", [{}, {"keys": []}, {"keys": 1}, {"keys": [1], "why": "x"}, {"keys": [1], "reason": 7}, [], {"keys": None}]
)
def test_deletes_that_are_none(client: TestClient, body: Any) -> None:
    refused(client.post(DELETE, json=body), 400, "invalid_request")


def test_deletes_take_json(client: TestClient) -> None:
    for path, body in ((DELETE, b'{"keys": [1]}'), (DELETE + "-where", b'{"condition": "id = 1"}')):
        answer = client.post(path, content=body, headers={"Content-Type": "text/plain"})
        refused(answer, 415, "unsupported_media_type")


def test_rows_are_deleted_by_a_condition(client: TestClient, lake: Lake) -> None:
    path = "/v1/tables/shop.orders/delete-where"
    answer = client.post(path, json={"condition": "amount > 2", "reason": "too dear"})
    assert (answer.status_code, answer.json()["deleted"]) == (200, 2)
    assert ids(lake) == [1]
    assert "nope" in refused(client.post(path, json={"condition": "nope = 1"}), 400, "invalid_request")
    refused(client.post(path, json={"condition": "id in (select user_id from log.events)"}), 400, "invalid_request")
    assert ids(lake) == [1]


# -- reading


def test_a_row_is_asked_for_with_one_look_at_each_log(client: TestClient) -> None:
    assert client.get("/v1/tables/shop.orders/row", params={"key": "2"}).status_code == 200
    with looks_counted() as looks:
        assert client.get("/v1/tables/shop.orders/row", params={"key": "2"}).status_code == 200
    assert looks == {"orders/changes": 1, "orders/base": 1}


def test_a_row_is_that_of_the_table_that_has_the_name_today(client: TestClient, lake: Lake) -> None:
    assert client.get("/v1/tables/shop.orders/row", params={"key": "2"}).status_code == 200
    with Lake(lake.path) as other:
        other.drop_table("shop.orders")
        other.create_table("shop.orders", pa.schema([("name", pa.string())]), key="name").upsert([{"name": "b"}])
    answer = client.get("/v1/tables/shop.orders/row", params={"key": "b"})
    assert answer.json() == {"table": "shop.orders", "row": {"name": "b"}}


def test_one_row(client: TestClient) -> None:
    answer = client.get("/v1/tables/shop.orders/row", params={"key": "2"})
    assert answer.json() == {"table": "shop.orders", "row": {"id": 2, "amount": "2.50", "status": "paid"}}
    assert "no row with this key" in refused(
        client.get("/v1/tables/shop.orders/row", params={"key": "99"}), 404, "not_found"
    )
    for key in ("5ecret", "", "1.5", '{"id": "5ecret"}', "{"):
        refused(client.get("/v1/tables/shop.orders/row", params={"key": key}), 400, "invalid_request")
    refused(client.get("/v1/tables/shop.orders/row"), 400, "invalid_request")
    refused(client.get("/v1/tables/log.events/row", params={"key": "1"}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.string(), "plain text", "plain text"),
        (pa.string(), '{"id": 1}', '{"id": 1}'),
        (pa.string(), "7", "7"),
        (pa.int64(), 2**53 + 1, str(2**53 + 1)),
        (pa.int64(), 7, '{"id": "7"}'),
        (pa.bool_(), True, "true"),
        (pa.date32(), dt.date(2026, 11, 15), "2026-11-15"),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC), "2026-11-15T12:00:00Z"),
        (pa.decimal128(10, 2), Decimal("1.50"), "1.5"),
        (pa.binary(), b"\x00\xff", "AP8="),
    ],
)
def test_keys_in_addresses(client: TestClient, lake: Lake, kind: pa.DataType, value: Any, text: str) -> None:
    lake.create_table("a.b", pa.schema({"id": kind, "x": pa.int64()}), key="id").upsert([{"id": value, "x": 5}])
    answer = client.get("/v1/tables/a.b/row", params={"key": text})
    assert answer.status_code == 200, answer.text
    assert answer.json()["row"]["x"] == 5


def test_rows_are_read(client: TestClient) -> None:
    document = client.get(ROWS, params={"columns": "id,amount", "where": "id > 1 -- not one"}).json()
    assert sorted(document["rows"]) == [[2, "2.50"], [3, "3.50"]]
    assert document["columns"] == [{"name": "id", "type": "int64"}, {"name": "amount", "type": "decimal(10,2)"}]
    assert (document["row_count"], document["cut"]) == (2, False)
    assert document["snapshots"] == {"shop.orders": 1}
    document = client.get(ROWS, params={"limit": 2}).json()
    assert (document["row_count"], document["cut"]) == (2, True)


def test_rows_are_read_as_of_an_earlier_state(client: TestClient) -> None:
    client.post(ROWS, json={"id": 7})
    assert client.get(ROWS).json()["row_count"] == 4
    assert client.get(ROWS, params={"as_of": "1"}).json()["row_count"] == 3
    refused(client.get(ROWS, params={"as_of": "99"}), 404, "not_found")
    refused(client.get(ROWS, params={"as_of": "yesterday"}), 404, "not_found")
    refused(client.get(ROWS, params={"as_of": "the day before"}), 400, "invalid_request")


def test_rows_come_as_arrow(client: TestClient) -> None:
    answer = client.get(ROWS, headers={"Accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    assert answer.headers["x-lithify-row-count"] == "3"
    assert pa.ipc.open_stream(answer.content).read_all().sort_by("id").column("id").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"columns": "nope"}, 400),
        ({"columns": ""}, 400),
        ({"where": "nope = 1"}, 400),
        ({"where": "1 = 1) UNION SELECT user_id, NULL, what FROM log.events --"}, 400),
        ({"limit": "0"}, 400),
    ],
)
def test_reads_that_are_refused(client: TestClient, params: dict[str, str], status: int) -> None:
    assert client.get(ROWS, params=params).status_code == status


def test_a_condition_cannot_reach_another_table(client_with: ClientWith) -> None:
    """Whatever its token may read: this route is about one table."""
    answer = client_with("read").get(ROWS, params={"where": "id in (select user_id from log.events)"})
    refused(answer, 403, "forbidden")


def test_changes_since(client: TestClient) -> None:
    path = "/v1/tables/shop.orders/changes"
    first = client.get(path).json()
    assert (first["row_count"], first["next"], first["more"]) == (3, 1, False)
    assert [column["name"] for column in first["columns"]] == ["id", "amount", "status", "_seq", "_op"]
    client.post(DELETE, json={"keys": [1]})
    client.post(ROWS, json={"id": 7})
    later = client.get(path, params={"since": first["next"]}).json()
    assert later["rows"] == [[1, None, None, 2, "delete"], [7, None, None, 3, "upsert"]]
    assert client.get(path, params={"since": later["next"]}).json()["rows"] == []
    refused(client.get(path, params={"since": 99}), 400, "invalid_request")
    refused(client.get(path, params={"since": -1}), 400, "invalid_request")


def test_changes_come_in_whole_commits(client: TestClient, lake: Lake) -> None:
    for n in range(10, 14):
        lake.table("shop.orders").upsert([{"id": n}])
    path, since, seen = "/v1/tables/shop.orders/changes", 0, []
    more = True
    while more:
        page = client.get(path, params={"since": since, "limit": 2}).json()
        assert page["row_count"] <= 3
        seen += [row[0] for row in page["rows"]]
        since, more = page["next"], page["more"]
    assert seen == [1, 2, 3, 10, 11, 12, 13]
    assert since == 5


def test_one_huge_write_is_no_page_of_changes(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PAGE_COMMIT_ROWS_MAX", 2)
    answer = client.get("/v1/tables/shop.orders/changes")
    assert "read the table as of seq 1" in refused(answer, 422, "limit_exceeded")


def test_changes_as_arrow_tell_the_token_in_a_header(client: TestClient) -> None:
    answer = client.get("/v1/tables/shop.orders/changes", headers={"Accept": ARROW})
    assert (answer.headers["x-lithify-next"], answer.headers["x-lithify-more"]) == ("1", "false")
    assert pa.ipc.open_stream(answer.content).read_all().num_rows == 3


def test_rows_that_are_there_already_are_not_written(client: TestClient) -> None:
    rows = [{"id": 1, "amount": "1.00", "status": "x"}, {"id": 9}]
    assert client.post(ROWS, json=rows).json()["skipped"] == 0
    again = client.post(ROWS, params={"if_changed": "true"}, json=[*rows, {"id": 10}]).json()
    assert (again["upserted"], again["skipped"], again["seq"]) == (1, 2, 3)
    answer = client.post(ROWS, params={"if_changed": "true", "mode": "replace"}, json=rows)
    assert "goes with mode upsert" in refused(answer, 400, "invalid_request")


def test_an_earlier_version_is_restored(client: TestClient, lake: Lake) -> None:
    path, before = "/v1/tables/shop.orders/restore", lake.table("shop.orders").to_arrow().to_pylist()
    client.post(ROWS, json=[{"id": 1, "status": "wrong"}, {"id": 9}])
    plan = client.post(path, json={"to": 1, "dry_run": True}).json()
    assert plan == {"table": "shop.orders", "to": 1, "seq": 2, "upserted": 1, "deleted": 1}
    key = {"Idempotency-Key": "undo-1"}
    done = client.post(path, json={"to": 1, "reason": "a bad import"}, headers=key).json()
    assert (done["operation"], done["seq"], done["upserted"], done["deleted"]) == ("restore", 3, 1, 1)
    assert client.post(path, json={"to": 1, "reason": "a bad import"}, headers=key).json()["replayed"] is True
    rows = lake.table("shop.orders").to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == sorted(before, key=lambda row: row["id"])
    assert lake.table("shop.orders").history()[0].reason == "a bad import"
    refused(client.post(path, json={"to": 99}), 404, "not_found")
    refused(client.post(path, json={}), 400, "invalid_request")


FEED = "/v1/tables/shop.orders/feed"


def test_the_feed_tells_what_commits_did(client: TestClient, lake: Lake) -> None:
    position = lake.table("shop.orders").position()
    client.post(ROWS, json=[{"id": 1, "status": "new"}, {"id": 9}])
    client.post(DELETE, json={"keys": [2, 77]})
    found = client.get(FEED, params={"since": position, "columns": "id,status"}).json()
    assert [column["name"] for column in found["columns"]] == ["id", "status", "_seq", "_kind"]
    assert [(row[0], row[2], row[3]) for row in found["rows"]] == [
        (1, 2, "update"),
        (9, 2, "insert"),
        (2, 3, "delete"),
    ]
    assert (found["since"], found["next"], found["more"]) == (1, 3, False)
    assert client.get(FEED, params={"since": 3}).json()["rows"] == []


def test_the_feed_shows_the_row_before_an_update(client: TestClient) -> None:
    [before] = client.get("/v1/tables/shop.orders/rows", params={"where": "id = 1"}).json()["rows"]
    client.post(ROWS, json=[{"id": 1, "status": "newer"}])
    found = client.get(FEED, params={"since": 1, "before": "true"}).json()["rows"]
    assert found == [[*before, 2, "update_before"], [1, None, "newer", 2, "update_after"]]


def test_the_feed_comes_in_whole_commits(client: TestClient, lake: Lake) -> None:
    for n in range(10, 14):
        lake.table("shop.orders").upsert([{"id": n}])
    since, seen, more = 0, [], True
    while more:
        page = client.get(FEED, params={"since": since, "limit": 2, "until": 4}).json()
        assert page["row_count"] <= 3
        seen += [row[0] for row in page["rows"]]
        since, more = page["next"], page["more"]
    assert (seen, since) == ([1, 2, 3, 10, 11, 12], 4)


@pytest.mark.parametrize(
    "params", [{"since": 99}, {"since": "x"}, {"until": 99}, {"since": 1, "until": 0}, {"columns": "nope"}]
)
def test_feeds_that_are_refused(client: TestClient, params: dict[str, Any]) -> None:
    refused(client.get(FEED, params=params), 400, "invalid_request")


def test_one_huge_write_is_no_page_of_the_feed(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "PAGE_COMMIT_ROWS_MAX", 2)
    answer = client.get(FEED, params={"limit": 1})
    assert "read the table as of seq 1" in refused(answer, 422, "limit_exceeded")


def test_reading_needs_its_scope(client_with: ClientWith) -> None:
    writer, other = client_with("write"), client_with("read", table="log.events")
    for path in ("rows", "changes", "feed", "row?key=1"):
        refused(writer.get(f"/v1/tables/shop.orders/{path}"), 403, "forbidden")
        refused(other.get(f"/v1/tables/shop.orders/{path}"), 403, "forbidden")


def test_a_large_answer_streams(client: TestClient, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negotiate, "WHOLE_BYTES_MAX", 0)
    lines = client.get(ROWS, headers={"Accept": NDJSON}).content.splitlines()
    assert sorted(orjson.loads(line)["id"] for line in lines) == [1, 2, 3]


# -- schema fingerprints and names of three parts


def test_rows_for_another_schema_are_refused_with_412(client: TestClient, lake: Lake) -> None:
    known = client.get("/v1/tables/shop.orders").json()["schema_fingerprint"]
    assert known == lake.table("shop.orders").definition.fingerprint
    right, wrong = {"Lithify-Schema": known}, {"Lithify-Schema": "0" * 32}
    assert client.post(ROWS, json=[{"id": 8}], headers=right).status_code == 200
    before = ids(lake)

    for answer in (
        client.post(ROWS, json=[{"id": 9}], headers=wrong),
        client.post(ROWS, json=[{"id": 9, "gone": 1}], headers=wrong),
        client.post(DELETE, json={"keys": [1]}, headers=wrong),
    ):
        message = refused(answer, 412, "conflict")
        assert known in message
        assert "0" * 32 in message
        assert answer.json()["details"]["schema_fingerprint"] == known
    assert ids(lake) == before


def test_names_of_three_parts_are_the_same_table(client_with: ClientWith, lake: Lake) -> None:
    lake.create_table("lake.orders", pa.schema([("id", pa.int64())]), key="id")
    mine, others = client_with("read", "write", table="shop.orders"), client_with("read", "write", table="lake.*")

    assert mine.post("/v1/tables/lake.shop.orders/rows", json=[{"id": 7}]).json()["table"] == "shop.orders"
    assert mine.get("/v1/tables/lake.shop.orders").json()["table"] == "shop.orders"
    assert mine.get("/v1/tables/lake.shop.orders/rows").status_code == 200
    refused(others.get("/v1/tables/lake.shop.orders"), 403, "forbidden")
    refused(others.post("/v1/tables/lake.shop.orders/rows", json=[{"id": 7}]), 403, "forbidden")
    assert others.get("/v1/tables/lake.orders").status_code == 200
    said = refused(client_with("read").get("/v1/tables/prod.shop.orders"), 400, "invalid_request")
    assert "there is no catalog 'prod'" in said
