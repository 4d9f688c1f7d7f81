"""Flight SQL by a driver that is not ours: what people and tools connect with."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest
import trustme
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager import DatabaseError

from lithify import Lake
from lithify.flight.server import FlightServer
from lithify.http.service import Service
from lithify.http.tokens import Tokens

Connect = Callable[..., Any]


@pytest.fixture
def connect(server: FlightServer, secret: str) -> Iterator[Connect]:
    opened: list[Any] = []

    def connect(secret: str = secret, **options: str) -> Any:
        address = options.pop("address", f"grpc://127.0.0.1:{server.port}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has no transactions
            options = options or {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {secret}"}
            opened.append(adbc.connect(address, db_kwargs=options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def ask(connect: Connect) -> Callable[..., list[tuple[Any, ...]]]:
    connection = connect()

    def ask(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters=parameters or None)
            return list(cursor.fetchall())

    return ask


Ask = Callable[..., list[tuple[Any, ...]]]


def test_rows_arrive_with_their_types(connect: Connect, lake: Lake) -> None:
    with connect().cursor() as cursor:
        cursor.execute("SELECT * FROM shop.orders ORDER BY id")
        found = cursor.fetch_arrow_table()
    assert found == lake.sql("SELECT * FROM shop.orders ORDER BY id")


def test_a_change_is_seen_by_the_next_query(ask: Ask, lake: Lake) -> None:
    assert ask("SELECT note FROM shop.orders WHERE id = 2") == [(None,)]
    lake.table("shop.orders").upsert([{"id": 2, "day": None, "amount": None, "note": "new"}])
    assert ask("SELECT note FROM shop.orders WHERE id = 2") == [("new",)]


@pytest.mark.parametrize("name", ["shop.orders", "lake.shop.orders", '"lake"."shop"."orders"'])
def test_tables_have_the_names_that_tools_make_of_the_metadata(ask: Ask, name: str) -> None:
    assert ask(f"SELECT count(*) FROM {name}") == [(12,)]


def test_an_answer_without_rows_has_its_columns(connect: Connect) -> None:
    with connect().cursor() as cursor:
        cursor.execute("SELECT id, amount FROM shop.orders WHERE id < 0")
        assert cursor.fetch_arrow_table().schema.names == ["id", "amount"]


def test_two_columns_of_one_name_are_prepared_too(ask: Ask) -> None:
    assert ask("SELECT a.id, b.id FROM shop.orders a JOIN shop.orders b ON a.id = b.id WHERE a.id = ?", 3) == [(3, 3)]


@pytest.mark.parametrize("sql", ["SHOW TABLES", "show tables;", "SELECT namespace FROM (VALUES (1)) v(namespace);"])
def test_questions_and_semicolons_are_no_trouble(ask: Ask, sql: str) -> None:
    assert ask(sql)


@pytest.mark.parametrize(
    ("condition", "values", "count"),
    [
        ("id > ?", (10,), 2),
        ("id > ? AND note = ?", (3, "it's"), 4),
        ("id BETWEEN $1 AND $2", (2, 4), 3),
        ("day = ?", (dt.date(2026, 1, 5),), 1),
        ("amount = ?", (Decimal("7.50"),), 1),
        ("note = '?' OR id = ?", (1,), 1),
        ("note = ?", ("x' OR '1' = '1",), 0),
        ("id = ? -- what about ?\n", (1,), 1),
    ],
)
def test_parameters(ask: Ask, condition: str, values: tuple[Any, ...], count: int) -> None:
    assert ask(f"SELECT count(*) FROM shop.orders WHERE {condition}", *values) == [(count,)]


def test_parameters_that_are_missing_or_too_many_are_told(ask: Ask) -> None:
    with pytest.raises(DatabaseError, match="the query has 2 parameters, and 1 values were sent"):
        ask("SELECT * FROM shop.orders WHERE id = ? OR id = ?", 1)


def test_what_a_tool_asks_about_the_lake(connect: Connect) -> None:
    connection = connect()
    catalogs = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    told = {
        (schema["db_schema_name"], table["table_name"], table["table_type"])
        for catalog in catalogs
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    assert [catalog["catalog_name"] for catalog in catalogs] == ["lake"]
    assert told == {("shop", "orders", "TABLE"), ("log", "events", "TABLE")}
    assert connection.adbc_get_table_schema("orders", db_schema_filter="shop").names == ["id", "day", "amount", "note"]
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_get_info()["vendor_name"] == "Lithify"


def test_a_token_of_one_table_sees_and_reads_that_alone(connect: Connect, tokens: Tokens) -> None:
    _, secret = tokens.create("one", ("read",), ("log.events",))
    connection = connect(secret)
    objects = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    assert [schema["db_schema_name"] for schema in objects[0]["catalog_db_schemas"]] == ["log"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM log.events")
        assert cursor.fetchall() == [(1,)]
        with pytest.raises(DatabaseError, match=r"shop\.orders"):
            cursor.execute("SELECT * FROM shop.orders")


def test_a_user_name_with_the_token_as_its_password(connect: Connect, secret: str) -> None:
    with connect(username="anybody", password=secret).cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize(
    "options",
    [
        {"username": "anybody", "password": "lith_wrong"},
        {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer lith_wrong"},
        {DatabaseOptions.AUTHORIZATION_HEADER.value: "Basic ???"},
        {DatabaseOptions.AUTHORIZATION_HEADER.value: "Digest x"},
    ],
)
def test_without_a_valid_token_nothing_is_answered(connect: Connect, options: dict[str, str]) -> None:
    with pytest.raises(DatabaseError, match="token"), connect(**options).cursor() as cursor:
        cursor.execute("SELECT 1")


def test_a_token_that_may_only_write_reads_nothing(connect: Connect, tokens: Tokens) -> None:
    _, secret = tokens.create("writer", ("write",))
    with pytest.raises(DatabaseError, match="does not have the scope read"), connect(secret).cursor() as cursor:
        cursor.execute("SELECT 1")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM shop.orders",
        "INSERT INTO log.events VALUES ('b')",
        "DROP TABLE shop.orders",
        "-- x\nUPDATE shop.orders SET note = 'x'",
    ],
)
def test_statements_that_write_are_refused(connect: Connect, lake: Lake, sql: str) -> None:
    before = lake.stats()
    with connect().cursor() as cursor:
        with pytest.raises(DatabaseError, match="Flight SQL reads only"):
            cursor.execute(sql)
        cursor.adbc_statement.set_sql_query(sql)
        with pytest.raises(DatabaseError, match="Flight SQL reads only"):
            cursor.adbc_statement.execute_update()
    assert lake.stats() == before


def test_an_answer_is_whole_or_refused(connect: Connect, service: Service) -> None:
    most = service.settings.flight_rows_max
    with connect().cursor() as cursor:
        with pytest.raises(DatabaseError, match=f"more than {most:,} rows"):
            cursor.execute(f"SELECT * FROM generate_series(1, {most + 1})")
        cursor.execute(f"SELECT * FROM generate_series(1, {most})")
        assert cursor.fetch_arrow_table().num_rows == most


@pytest.mark.parametrize("sql", ["SELECT * FROM shop.nope", "SELECT nope FROM shop.orders", "SELEC 1", "SELECT 1/0"])
def test_errors_say_what_is_wrong_and_nothing_of_this_machine(connect: Connect, lake: Lake, sql: str) -> None:
    with connect().cursor() as cursor, pytest.raises(DatabaseError) as error:
        cursor.execute(sql)
    said = str(error.value)
    assert "Traceback" not in said
    assert ".py" not in said
    assert str(lake.path) not in said


def test_nothing_stays_behind_what_was_fetched(ask: Ask, server: FlightServer, service: Service) -> None:
    for _ in range(3):
        ask("SELECT * FROM shop.orders WHERE id > ?", 1)
    assert server.kept_bytes == 0
    assert not service.asking
    assert service.response_memory.bytes == 0


def test_over_tls(start: Callable[..., FlightServer], connect: Connect, secret: str) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    tls = chain, issued.private_key_pem.bytes()
    options = {
        "address": f"grpc+tls://127.0.0.1:{start(tls=tls).port}",
        DatabaseOptions.TLS_ROOT_CERTS.value: authority.cert_pem.bytes().decode(),
        DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {secret}",
    }
    with connect(**options).cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_the_page_about_it(
    connect: Connect, server: FlightServer, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "bi-tools.md").read_text()
    code = page.split("```py\n")[1].split("```")[0]
    here = code.replace("8816", str(server.port)).replace("lith_…", secret).replace("status", "note")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(here, {})
    assert "it's" in capsys.readouterr().out
