"""What a row holds, or was meant to hold, is in no error and in no line of the log."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import ComputeFailed, Lake
from lithify.http.logs import only_public

SECRET = "s3cr3t"
NUMBER = 987_654_321_987


def arrow(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


ORDERS = "/v1/tables/shop.orders"
STREAM = {"Content-Type": "application/vnd.apache.arrow.stream"}
LINES = {"Content-Type": "application/x-ndjson"}
REQUESTS: dict[str, Callable[[TestClient], Any]] = {
    "text for a number": lambda c: c.post(f"{ORDERS}/rows", json=[{"id": SECRET}]),
    "text for a decimal": lambda c: c.post(f"{ORDERS}/rows", json=[{"id": 1, "amount": SECRET}]),
    "too many digits": lambda c: c.post(f"{ORDERS}/rows", json=[{"id": 1, "amount": f"{NUMBER}.12"}]),
    "number for a text": lambda c: c.post(f"{ORDERS}/rows", json=[{"id": 1, "status": NUMBER}]),
    "object for a text": lambda c: c.post(f"{ORDERS}/rows", json=[{"id": 1, "status": {"a": SECRET}}]),
    "null for a key": lambda c: c.post(f"{ORDERS}/rows", json=[{"id": None, "status": SECRET}]),
    "cut-off line": lambda c: c.post(f"{ORDERS}/rows", content=f'{{"id": 1, "status": "{SECRET}', headers=LINES),
    "line of nonsense": lambda c: c.post(f"{ORDERS}/rows", content=SECRET, headers=LINES),
    "arrow of another type": lambda c: c.post(f"{ORDERS}/rows", content=arrow(id=[SECRET]), headers=STREAM),
    "arrow that does not fit": lambda c: c.post(
        f"{ORDERS}/rows", content=arrow(id=[1], amount=[float(NUMBER)]), headers=STREAM
    ),
    "arrow text for a decimal": lambda c: c.post(
        f"{ORDERS}/rows", content=arrow(id=[1], amount=[SECRET]), headers=STREAM
    ),
    "nonsense for arrow": lambda c: c.post(f"{ORDERS}/rows", content=SECRET * 100, headers=STREAM),
    "key of another type": lambda c: c.get(f"{ORDERS}/row", params={"key": SECRET}),
    "keys of another type": lambda c: c.post(f"{ORDERS}/delete", json={"keys": [SECRET, {"id": SECRET}]}),
    "key of two columns": lambda c: c.post(f"{ORDERS}/delete", json={"keys": [[SECRET, NUMBER]]}),
    "cast of a stored text": lambda c: c.post(
        "/v1/query/sql", json={"sql": "select cast(status as bigint) as n from shop.orders where id = 77"}
    ),
    "parse of a stored text": lambda c: c.post(
        "/v1/query/sql", json={"sql": "select to_timestamp(status) as t from shop.orders where id = 77"}
    ),
    "overflow of a stored number": lambda c: c.post(
        "/v1/query/sql", json={"sql": f"select cast(id * {NUMBER} as smallint) as n from shop.orders"}
    ),
    "condition over a stored text": lambda c: c.post(
        f"{ORDERS}/delete-where", json={"condition": "cast(status as bigint) = 1 and id = 77"}
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_errors_hold_no_value(client: TestClient, lake: Lake, name: str, caplog: pytest.LogCaptureFixture) -> None:
    lake.table("shop.orders").upsert([{"id": 77, "status": SECRET}])

    with caplog.at_level(logging.DEBUG, "lithify"):
        answer = REQUESTS[name](client)

    assert answer.status_code == 207 or 400 <= answer.status_code < 500, answer.text
    for value in (SECRET, str(NUMBER), f"{NUMBER:,}"):
        assert value not in answer.text
        assert not [record for record in caplog.records if value in repr(vars(record)) and record.name != "httpx"]


def test_what_the_engine_logs_of_errors_is_public() -> None:
    logger, said = logging.getLogger("lithify"), io.StringIO()
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    try:
        with only_public():
            logger.warning("table %s: %s", "a.b", ComputeFailed(f"cannot cast {SECRET}"))
            logger.warning("table %s: %s", "a.b", ValueError(SECRET))
            try:
                raise ValueError(SECRET)
            except ValueError:
                logger.exception("a listener failed")
        logger.warning("afterwards: %s", ValueError("told"))
    finally:
        logger.removeHandler(handler)

    assert SECRET not in said.getvalue()
    assert said.getvalue().splitlines() == [
        "table a.b: the computation failed",
        "table a.b: ValueError",
        "a listener failed",
        "afterwards: told",
    ]
