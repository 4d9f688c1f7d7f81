"""Messages of Debezium become rows and what each does, or are told apart from them."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lithify.core.names import GIVEN, names_given
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest
from lithify.streams.messages import target_of
from lithify.text.debezium import OP, envelope_of, position
from lithify.text.json_lines import message_batch
from lithify.text.text_rows import TextBatch
from support.debezium import MYSQL_SOURCE, ORACLE_SOURCE, SQLSERVER_SOURCE, message, text, wrapped

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("lsn", pa.int64())])


def schema(columns: pa.Schema = COLUMNS, order_by: str | tuple[str, ...] | None = "lsn") -> TableSchema:
    return TableSchema(columns, ("id",), order_by)


def opened(*messages: Any, to: TableSchema | None = None, envelope: str = "debezium", keys: Any = None) -> TextBatch:
    texts = [None if each is None else text(each) for each in messages]
    return message_batch(texts, "messages", target_of(envelope, to or schema()), keys)


def rows(batch: TextBatch) -> list[dict[str, Any]]:
    assert not batch.bad, batch.bad
    return batch.rows.to_pylist()


def why(batch: TextBatch) -> str:
    (record,) = batch.bad
    return str(record)


ADA, BOB = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}


def test_each_operation_with_the_position_of_its_source() -> None:
    found = rows(
        opened(
            message("r", after=ADA, lsn=10),
            message("c", after=BOB, lsn=11),
            message("u", before=ADA, after={**ADA, "name": "Ada L."}, lsn=12),
            message("d", before=BOB, lsn=13),
        )
    )
    assert [(r["id"], r["name"], r["lsn"], r[OP]) for r in found] == [
        (1, "Ada", 10, "upsert"),
        (2, "Bob", 11, "upsert"),
        (1, "Ada L.", 12, "upsert"),
        (2, None, 13, "delete"),
    ]


def test_tombstones_and_messages_about_no_row_are_passed_over() -> None:
    assert rows(opened(None, message("m"), {"schema": None, "payload": None})) == []


def test_with_a_schema_around_it() -> None:
    fields = [{"type": "int64", "field": "id"}, {"type": "string", "field": "name"}]
    found = rows(opened(wrapped(message("c", after=ADA, lsn=7), fields)))
    assert found == [{**ADA, "lsn": 7, OP: "upsert"}]


def test_a_delete_without_the_row_before_takes_the_key_of_its_message() -> None:
    keys = [text({"schema": {}, "payload": {"id": 5}}), text({"id": 6}), None]
    batch = opened(message("d", lsn=1), message("d", lsn=2), message("d", lsn=3), keys=keys)
    assert [row["id"] for row in batch.rows.to_pylist()] == [5, 6]
    assert "no row before the change, and no key" in why(batch)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (message("x", after=ADA), "operation 'x' is not known"),
        ({"after": ADA}, "operation (op) is missing"),
        (message("t"), "a truncate"),
        (message("c"), "no row after the change"),
        ([1, 2], "no JSON object"),
        ({"payload": 3}, "payload is no JSON object"),
        (message("c", after={"id": 1, "other": 2}), "column 'other' is not in the table"),
        (message("c", after={"id": "x", "name": "y"}), "does not fit"),
        (message("u", after={"id": 1, "name": "__debezium_unavailable_value"}), "REPLICA IDENTITY FULL"),
        ({"op": "c", "after": ADA}, "neither this column nor a source position"),
    ],
)
def test_what_is_no_row_says_why(document: Any, said: str) -> None:
    batch = opened(message("c", after=BOB), document)
    assert [row["id"] for row in batch.rows.to_pylist()] == [2]
    assert said in why(batch)
    assert batch.bad[0].line == 2


def test_what_is_no_json_says_so() -> None:
    batch = message_batch([b"{", b"\xff"], "messages", target_of("debezium", schema()))
    assert [record.line for record in batch.bad] == [1, 2]


def test_a_value_that_was_left_out_comes_from_the_row_before() -> None:
    after = {"id": 1, "name": "__debezium_unavailable_value"}
    assert rows(opened(message("u", before=ADA, after=after)))[0]["name"] == "Ada"


UNAVAILABLE = "__debezium_unavailable_value"
KEPT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("texts", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.string())),
        ("other", pa.string()),
    ]
)
IN_BASE64 = base64.b64encode(UNAVAILABLE.encode()).decode()
LEFT_OUT = [
    ("text", UNAVAILABLE),
    ("text", '{"__debezium_unavailable_value":"__debezium_unavailable_value"}'),
    ("bytes", IN_BASE64),
    ("bytes", UNAVAILABLE.encode().hex()),
    ("text", IN_BASE64),
    ("texts", [UNAVAILABLE]),
    ("texts", [IN_BASE64]),
    ("texts", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    ("numbers", [95, 95, *b"debezium_unavailable_value"]),
    ("map", {UNAVAILABLE: UNAVAILABLE}),
    ("map", [[UNAVAILABLE, UNAVAILABLE]]),
]


@pytest.mark.parametrize(("column", "value"), LEFT_OUT)
def test_a_value_that_was_left_out_is_known_in_the_form_of_its_type(column: str, value: Any) -> None:
    said = message("u", before=None, after={"id": 1, column: value, "other": "new"})
    batch = opened(said, to=schema(KEPT, None))
    assert "REPLICA IDENTITY FULL" in why(batch)
    assert batch.bad[0].column == column
    (found,) = rows(message_batch([text(said)], "messages", target_of("debezium", schema(KEPT, None), whole=False)))
    assert (found[column], found["other"], names_given(found[GIVEN])) == (None, "new", ["id", "other"])


def test_values_like_those_that_were_left_out_are_values() -> None:
    given = {"id": 1, "text": UNAVAILABLE + "s", "texts": [UNAVAILABLE, "b"], "numbers": [95, 95], "map": {}}
    (found,) = rows(opened(message("u", after=given), to=schema(KEPT, None)))
    assert {name: found[name] for name in given} == {**given, "map": []}


def test_an_update_needs_the_key_its_order_and_whole_groups() -> None:
    columns = pa.schema([("id", pa.string()), ("at", pa.string()), ("a", pa.string()), ("b", pa.string())])
    to = TableSchema(columns, ("id",), order_groups={"at": ("a",)})
    for name, refused in (("id", True), ("at", True), ("a", True), ("b", False)):
        said = message("u", after={"id": "1", "at": "1", "a": "1", "b": "1", name: UNAVAILABLE})
        batch = message_batch([text(said)], "messages", target_of("debezium", to, whole=False))
        assert bool(batch.bad) is refused


TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("utc", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(20, 2)),
        ("n", pa.int64()),
    ]
)
VALUES = {
    "day": dt.date(2026, 11, 16),
    "at": dt.datetime(2026, 11, 16, 12, 0, 0, 5000),
    "utc": dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC),
    "price": Decimal("-12.30"),
    "n": 20_000,
}
DAY, MS = 20_773, 1_794_830_400_000


def test_values_are_read_as_their_schema_says() -> None:
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "int32", "name": "io.debezium.time.Date", "field": "day"},
        {"type": "int64", "name": "io.debezium.time.Timestamp", "field": "at"},
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "utc"},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
            "field": "price",
        },
        {"type": "int32", "name": "io.debezium.time.Date", "field": "n"},
    ]
    price = base64.b64encode((-1230).to_bytes(2, "big", signed=True)).decode()
    image = {"id": 1, "day": DAY, "at": MS + 5, "utc": MS * 1000, "price": price, "n": 20_000}
    (found,) = rows(opened(wrapped(message("c", after=image), fields), to=schema(TYPED, None)))
    assert {name: found[name] for name in VALUES} == VALUES


def test_without_a_schema_dates_are_days_and_the_unit_of_times_is_told() -> None:
    image = {"id": 1, "day": DAY, "at": MS + 5, "utc": MS, "price": "-12.30", "n": 20_000}
    (found,) = rows(opened(message("c", after=image), to=schema(TYPED, None), envelope="debezium:ms"))
    assert {name: found[name] for name in VALUES} == VALUES
    assert "no schema tells its unit" in why(opened(message("c", after=image), to=schema(TYPED, None)))
    (found,) = rows(opened(message("c", after={"id": 1, "utc": "2026-11-16T12:00:00Z"}), to=schema(TYPED, None)))
    assert found["utc"] == VALUES["utc"]


def test_all_digits_of_a_decimal_arrive() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("d", pa.decimal128(38, 10))])
    raw = b'{"op": "c", "before": null, "after": {"id": 1, "d": 1234567890123456789.0123456789}}'
    batch = message_batch([raw], "messages", target_of("debezium", schema(columns, None)))
    assert batch.rows.column("d").to_pylist() == [Decimal("1234567890123456789.0123456789")]


def test_a_number_with_too_many_digits_is_no_moment_where_all_digits_are_read() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("d", pa.decimal128(9, 2)), ("at", TYPED[2].type)])
    raw = b'{"op": "c", "after": {"id": 1, "d": 1.5, "at": 123456789012345678901234567890}}'
    batch = message_batch([raw], "messages", target_of("debezium:ms", schema(columns, None)))
    assert "column 'at'" in why(batch)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"schema": {"fields": [7]}, "payload": message("c", after=ADA)}, "none of Kafka Connect's"),
        ({"schema": {"fields": 7}, "payload": message("c", after=ADA)}, "none of Kafka Connect's"),
        (
            wrapped(message("c", after=ADA), [{"field": "id", "name": "x", "parameters": {"scale": "y"}}]),
            "Kafka Connect",
        ),
        (message("c", after=ADA, lsn=None, file="b.1", pos=1, row="y"), "position of its source cannot be read"),
        (message("c", after=ADA, lsn="9" * 5000), "position of its source cannot be read"),
    ],
)
def test_a_schema_or_a_source_that_cannot_be_read_is_told(document: Any, said: str) -> None:
    assert said in why(opened(document))


# -- order


def test_the_order_column_of_the_rows_themselves_goes_first() -> None:
    image = {"id": 1, "name": "Ada", "lsn": 3}
    assert [r["lsn"] for r in rows(opened(message("u", after=image, lsn=99), message("d", before=image, lsn=99)))] == [
        3,
        3,
    ]


def test_positions_grow_with_the_log() -> None:
    def at(file: int, pos: int, row: int = 0) -> Any:
        return position({**MYSQL_SOURCE, "file": f"mysql-bin.{file:06}", "pos": pos, "row": row})

    assert at(3, 484) < at(3, 484, 1) < at(3, 485) < at(4, 4) < at(999_999 >> 6, 2**32 - 1) < 2**63
    assert position(ORACLE_SOURCE) == 2122185
    assert position(SQLSERVER_SOURCE) == "00000027:00000758:0003"
    assert position({"connector": "mongodb", "ts_ms": 5}) == 5
    assert position({}) is None


@pytest.mark.parametrize(
    ("name", "kind", "source", "found"),
    [
        ("position", pa.int64(), {"lsn": 24023128}, 24023128),
        ("position", pa.string(), {"lsn": 24023128}, "00000000000024023128"),
        ("ts_ms", pa.timestamp("us", "UTC"), {"ts_ms": MS}, VALUES["utc"]),
        ("txId", pa.int64(), {"txId": 556}, 556),
        ("scn", pa.int64(), {**ORACLE_SOURCE, "lsn": None}, 2122185),
        ("position", pa.string(), {**SQLSERVER_SOURCE, "lsn": None}, "00000027:00000758:0003"),
    ],
)
def test_the_order_column_is_filled_from_the_source(name: str, kind: Any, source: Any, found: Any) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), (name, kind)])
    batch = opened(message("c", after={"id": 1}, **source), to=schema(columns, name))
    assert rows(batch)[0][name] == found


def test_every_order_column_is_filled_for_rows_and_for_deletes() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("ts_ms", pa.int64()), ("lsn", pa.int64())])
    both = schema(columns, ("ts_ms", "lsn"))
    messages = (message("c", after={"id": 1}, ts_ms=5, lsn=7), message("d", before={"id": 1, "lsn": 3}, ts_ms=6, lsn=9))
    assert [(row["ts_ms"], row["lsn"]) for row in rows(opened(*messages, to=both))] == [(5, 7), (6, 3)]


def test_a_position_that_is_a_text_does_not_fit_a_number() -> None:
    batch = opened(message("c", after=ADA, **{**SQLSERVER_SOURCE, "lsn": None}))
    assert "make the order_by column a text" in why(batch)


@pytest.mark.parametrize("envelope", ["avro", "debezium:", "debezium:s", "", 3])
def test_another_envelope_is_refused(envelope: Any) -> None:
    with pytest.raises(InvalidRequest, match="is not known"):
        envelope_of(envelope, COLUMNS, ("id",), ())


def test_a_table_with_no_key_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no key"):
        envelope_of("debezium", COLUMNS, (), ())
