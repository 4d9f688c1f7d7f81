"""Ordinary messages are opened many at once: what comes of any batch is what a look at each message makes of it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lithify.core.json_rows import RowMisfit, columns_of
from lithify.core.names import GIVEN
from lithify.core.partial_rows import input_columns
from lithify.text.debezium import OP, UNAVAILABLE, Envelope
from lithify.text.json_lines import lines_as_they_are, message_batch, one_by_one
from lithify.text.one_schema import messages_of
from lithify.text.ordinary_messages import ordinary_rows
from lithify.text.text_rows import Target, TextBatch
from support.debezium import message, text, wrapped
from support.effort import SOAK

PLAIN = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.float64())])
TIMED = PLAIN.append(pa.field("at", pa.timestamp("us"))).append(pa.field("day", pa.date32()))
ZONED = PLAIN.append(pa.field("at", pa.timestamp("us", "UTC")))
DIGITS = PLAIN.set(2, pa.field("n", pa.decimal128(20, 4)))
NESTED = PLAIN.append(pa.field("list", pa.list_(pa.string())))
BYTES = PLAIN.set(1, pa.field("name", pa.binary()))
KEY = ("id",)


def target(columns: pa.Schema, order: tuple[str, ...] = (), unit: Any = None, **wishes: Any) -> Target:
    optional = frozenset[str](columns.names) - {*KEY, *order} if wishes.pop("partial", False) else frozenset[str]()
    envelope = Envelope(columns, KEY, order, unit, optional)
    columns = (input_columns(columns) if optional else columns).append(pa.field(OP, pa.string()))
    return Target(columns, op_column=OP, envelope=envelope, **wishes)


def carefully(texts: list[bytes | None], wanted: Target, keys: Any = None) -> TextBatch:
    lines = [(number, each) for number, each in enumerate(texts, 1) if each is not None]
    return one_by_one(lines_as_they_are(lines, "feed"), "feed", wanted, keys)[0]


def outcome(make: Any, *given: Any) -> Any:
    try:
        batch = make(*given)
    except Exception as error:
        return type(error), str(error)
    return batch.rows.schema, batch.rows.to_pylist(), list(batch.bad), sorted(batch.names)


def quickly(texts: list[bytes | None], wanted: Target, keys: Any = None) -> TextBatch:
    return message_batch(texts, "feed", wanted, keys)


def agree(texts: list[bytes | None], wanted: Target, keys: Any = None) -> None:
    found, expected = outcome(quickly, texts, wanted, keys), outcome(carefully, texts, wanted, keys)
    assert repr(found) == repr(expected)  # NaN is no NaN's equal


# -- random batches: mostly alike, as those of one table are, with others among them

SEMANTIC = [
    {"type": "int64", "field": "id"},
    {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
    {"type": "int32", "field": "day", "name": "io.debezium.time.Date"},
    {"field": "n", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
]
OTHER_SCHEMAS: list[list[Any]] = [
    [],
    [{"type": "int64", "field": "at", "name": "io.debezium.time.NanoTimestamp"}],
    [{"type": "string", "field": '"payload":'}],
    [{"field": "n", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "x"}}],
    [{"field": "at", "name": ["io.debezium.time.Timestamp"]}],
    [7],
]
numbers = st.sampled_from([0, 1, -1, 1000, 1_500_000, 2**31, 2**53 + 1, 2**62, -(2**63), 2**64 - 1, 253402300799999])
values: dict[str, st.SearchStrategy[Any]] = {
    "id": st.one_of(st.integers(0, 5), st.sampled_from([None, "4", 2**63, 1.5, True])),
    "name": st.sampled_from(["a", "b", "é", "", None, 7, UNAVAILABLE, base64.b64encode(UNAVAILABLE.encode()).decode()]),
    "n": st.one_of(st.floats(allow_nan=False, allow_infinity=False), numbers, st.sampled_from(["1.50", "AQ==", [1]])),
    "at": st.one_of(numbers, st.sampled_from(["2026-01-01T00:00:00", "2026-01-01T00:00:00Z", None, True])),
    "day": st.one_of(st.integers(-800_000, 3_000_000), st.sampled_from(["2026-01-01", None, 1.0])),
    "list": st.sampled_from([[], ["a"], [UNAVAILABLE], None]),
    "lsn": st.one_of(numbers, st.sampled_from([None, "7", "x", 1.0])),
    "more": st.just(1),
    OP: st.just("d"),
    GIVEN: st.just(",id,"),
}
likely: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(0, 5),
    "name": st.sampled_from(["a", "YWI=", UNAVAILABLE]),
    "n": st.sampled_from([1.5, 2.0, None]),
    "at": st.sampled_from([1000, 1_500_000, None]),
    "day": st.sampled_from([20_000, None]),
    "list": st.sampled_from([["a"], None]),
    "lsn": st.integers(0, 9),
}
sources = st.one_of(
    st.fixed_dictionaries({"lsn": st.integers(0, 9)}),
    st.fixed_dictionaries(
        {},
        optional={
            "lsn": values["lsn"],
            "ts_ms": numbers,
            "file": st.sampled_from(["b.000003", "b.x", 3]),
            "pos": st.integers(0, 9),
            "row": st.sampled_from([0, 3, "x", None]),
        },
    ),
    st.sampled_from([None, 5, []]),
)
odd = st.one_of(
    st.none(),
    st.sampled_from([[], 1, "x", {"op": "m"}, {"op": "t"}, {"op": ["c"], "after": {}}, {"payload": 3}, {"op": "u"}]),
    st.fixed_dictionaries(
        {"op": st.sampled_from(["c", "d", "U", "insert", "?", None, 1])},
        optional={
            "before": st.fixed_dictionaries({}, optional=values),
            "after": st.one_of(st.none(), st.just([]), st.fixed_dictionaries({}, optional=values)),
            "source": sources,
            "payload": st.none(),
        },
    ),
)
tables = st.sampled_from([PLAIN, TIMED, ZONED, DIGITS, NESTED, BYTES])


@st.composite
def batches(draw: Any, columns: pa.Schema, order: tuple[str, ...]) -> list[Any]:
    given = draw(st.sampled_from([columns.names, columns.names[::-1], columns.names[:2], [*columns.names, "more"]]))
    own = values if draw(st.integers(0, 3)) == 3 else likely
    image = st.fixed_dictionaries({name: own.get(name, values[name]) for name in given})
    origin = sources if draw(st.booleans()) else st.fixed_dictionaries({"lsn": st.integers(0, 9)})
    alike = st.builds(lambda row, source: {"op": "u", "before": row, "after": row, "source": source}, image, origin)
    deletes = st.builds(lambda row, source: {"op": "d", "before": row, "after": None, "source": source}, image, origin)
    others = st.one_of(deletes, odd) if draw(st.booleans()) else alike
    found = draw(st.lists(st.one_of(alike, alike, alike, others), max_size=6))
    if draw(st.booleans()):
        fields = draw(st.sampled_from([SEMANTIC, SEMANTIC, SEMANTIC, *OTHER_SCHEMAS]))
        found = [wrapped(each, fields) for each in found]
        if draw(st.integers(0, 4)) == 4 and found:
            found[-1] = draw(st.sampled_from([wrapped(found[-1]["payload"], []), found[-1]["payload"], None]))
    return found


def some_wishes(columns: pa.Schema) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "named": st.just(tuple(columns.names)),
            "required": st.just(("n",)),
            "others": st.just(True),
            "partial": st.booleans(),
            "defaults": st.just({"name": "some"}),
            "first_bad": st.booleans(),
        },
    )


@settings(deadline=None, max_examples=20_000 if SOAK else 600)
@given(st.data(), tables, st.sampled_from([(), (), ("lsn",), ("n", "lsn")]), st.sampled_from([None, "ms", "us", "ns"]))
def test_a_batch_is_what_its_messages_are(
    data: Any, columns: pa.Schema, order: tuple[str, ...], unit: str | None
) -> None:
    if "lsn" in order:
        columns = columns.append(pa.field("lsn", data.draw(st.sampled_from([pa.int64(), pa.string(), pa.int32()]))))
    wanted = target(columns, order, unit, **data.draw(some_wishes(columns)))
    agree([None if each is None else text(each) for each in data.draw(batches(columns, order))], wanted)


# -- batches of a kind


def upserted(*rows: dict[str, Any], **besides: Any) -> list[Any]:
    return [{"op": "u", "after": row, **besides} for row in rows]


def schemas(*rows: dict[str, Any], fields: Any = SEMANTIC) -> list[Any]:
    return [wrapped(each, fields) for each in upserted(*rows)]


ROW = {"id": 1, "name": "a", "n": 1.5}
MOMENT = {"id": 1, "at": 1000}
AT = {**ROW, "at": 1000, "day": 3}
BATCHES: dict[str, tuple[list[Any], Target]] = {
    "a moment beyond the calendar": (upserted(AT, {**AT, "at": 253402300800000}), target(TIMED, unit="ms")),
    "a day beyond the calendar": (upserted({**ROW, "day": 3_000_000}), target(TIMED)),
    "numbers and texts": (upserted(AT, {**AT, "at": "2026-01-01T00:00:00"}), target(TIMED, unit="ms")),
    "nanoseconds": (upserted(AT, {**AT, "at": 1001}), target(TIMED, unit="ns")),
    "two schemas": ([*schemas(MOMENT), *schemas(MOMENT, fields=OTHER_SCHEMAS[1])], target(TIMED)),
    "a payload and none": ([*schemas(MOMENT), *upserted(MOMENT)], target(TIMED, unit="ns")),
    "an operation beside a payload": (upserted(ROW, {**ROW, "id": 2}, payload={"op": "d"}), target(PLAIN)),
    "decimals as bytes": (schemas({**ROW, "n": "AQ=="}, {**ROW, "n": None}), target(DIGITS)),
    "decimals that are no bytes": (schemas({**ROW, "n": "AQ=="}, {**ROW, "n": "?"}), target(DIGITS)),
    "a date that is called a decimal": (
        schemas({"id": 1, "day": "2026-01-01"}, fields=[{**SEMANTIC[3], "field": "day"}]),
        target(TIMED),
    ),
    "another column": (upserted(ROW, {**ROW, "more": 1}), target(PLAIN)),
    "a column less": (upserted(ROW, {"id": 2}), target(PLAIN)),
    "a column less, of those that are named": (upserted(ROW, {"id": 2}), target(PLAIN, named=("id", "n"))),
    "another column, passed over": (upserted({**ROW, "more": 1}, {**ROW, "more": 2}), target(PLAIN, others=True)),
    "a name that is ours": (upserted({**ROW, GIVEN: ",id,"}), target(PLAIN, partial=True)),
    "an operation that is ours": (upserted({**ROW, OP: "delete"}), target(PLAIN)),
    "what is bad first": (upserted(ROW, {"id": "x"}, ROW), target(PLAIN, first_bad=True)),
    "names of all": (upserted({"id": 1}, {"id": 2, "name": "b"}), target(PLAIN)),
    "which columns each gives": (upserted(ROW, {"name": UNAVAILABLE, "id": 2}), target(PLAIN, partial=True)),
    "nothing in it": (upserted({}, {}), target(PLAIN)),
    "defaults": (upserted({"id": 1}, {"id": 2}), target(PLAIN, defaults={"name": "some", "n": 2})),
    "what is needed": (upserted({"id": 1, "n": None}), target(PLAIN, required=("n",))),
    "a list that was left out": (upserted({"id": 1, "list": ["a"]}, {"id": 2, "list": [UNAVAILABLE]}), target(NESTED)),
    "bytes that were left out": (
        upserted({"id": 1, "name": base64.b64encode(UNAVAILABLE.encode()).decode()}),
        target(BYTES),
    ),
    "a source that cannot be read": (
        [*upserted(ROW, source={"lsn": 3}), *upserted(ROW, source={"file": "b.3", "pos": 1, "row": "x"})],
        target(PLAIN.append(pa.field("lsn", pa.int64())), ("lsn",)),
    ),
    "a source of texts": (
        upserted(ROW, source={"scn": "12"}),
        target(PLAIN.append(pa.field("lsn", pa.int64())), ("lsn",)),
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_of_a_kind_is_what_its_messages_are(kind: str) -> None:
    given, wanted = BATCHES[kind]
    agree([text(each) for each in given], wanted)
    agree([text(each) for each in reversed(given)], wanted)


def test_records_that_are_none_are_told_in_their_order() -> None:
    twice = b'{"op":"u","after":{"id":1,"id":2}}'
    batch = message_batch([twice, text(FINE[0]), b"{"], "feed", target(PLAIN))
    assert [record.line for record in batch.bad] == [1, 3]
    assert batch.rows.num_rows == 1


# -- texts that only look like messages

ADA = {"id": 1, "name": "Ada", "n": 1.5}
FINE = [message("u", before=ADA, after={**ADA, "id": number}, lsn=number) for number in range(3)]
HOSTILE = [
    b"",
    b" ",
    b"null",
    b"{}",
    b'{"op":"u"',
    b'{"op":"u","after":{"id":1,"name":"a","n":1}}}',
    b'{"op":"u","after":{"id":1,"name":"a","n":1}}{"op":"u","after":{"id":1,"name":"a","n":1}}',
    b'{"op":"u","after":{"id":1,"name":"a","n":NaN}}',
    b'{"op":"u","after":{"id":1,"name":"a","n":1e400}}',
    b'{"op":"u","after":{"id":01,"name":"a","n":1}}',
    b'{"op":"u","after":{"id":-0,"name":"a","n":-0}}',
    b'{"op":"u","after":{"id":1e0,"name":"a","n":1}}',
    b'{"op":"u","after":{"id":1,"id":2,"name":"a","n":1}}',
    b'{"op":"u","op":"d","after":{"id":2,"name":"a","n":1}}',
    b'{"op":"u","source":{"a":{"x":1,"x":1}},"after":{"id":2,"name":"a","n":1}}',
    b'{"op":"u","after":{"id":2,"name":"a\\ud800","n":1}}',
    b'{"op":"u","after":{"id":2,"name":"\xff","n":1}}',
    b'{"op":"u","after":{"id":2,"name":"a\\u0000","n":1}}',
    b'{"op":"u","after":{"id":2,"name":"\\u005f_debezium_unavailable_value","n":1}}',
    b'\xef\xbb\xbf{"op":"u","after":{"id":2,"name":"a","n":1}}',
    b'  {"op" : "u", "after" : {"id" : 2, "name" : "a", "n" : 1 } }\n',
    b'{"op":"\\u0075","after":{"n":1,"name":"a","id":2}}',
    b'{"op":"u","after":{"id":123456789012345678901234567890,"name":"a","n":1}}',
    b"[" * 3000 + b"]" * 3000,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_text_that_is_none_changes_nothing_for_others(hostile: bytes, place: int) -> None:
    texts: list[bytes | None] = [text(each) for each in FINE]
    texts.insert(place, hostile)
    for wanted in (target(PLAIN), target(PLAIN.append(pa.field("lsn", pa.int64())), ("lsn",))):
        agree(texts, wanted)
        agree([hostile], wanted)


FIELDS = [{"type": "int64", "field": "id"}, {"type": "string", "field": 'a"payload":'}]
WRAPPED = [json.dumps(wrapped(each, FIELDS), separators=(",", ":")).encode() for each in FINE]
BEGIN = WRAPPED[0][: WRAPPED[0].index(b'"payload":{') + len(b'"payload":')]
TAILS = [
    b"",
    b"}",
    b'{"op":"u","after":{"id":7,"name":"a","n":1}}',
    b'{"op":"u","after":{"id":7,"name":"a","n":1}}]',
    b'{"op":"u","after":{"id":7,"name":"a","n":1}} ',
    b"null}",
    b" null }\n",
    b"3}",
    b'{"op":"u","after":{"id":7,"name":"a","n":1}}',
    b'{"op":"u","after":{"id":7,"name":"a","n":1}},"payload":null}',
    b'{"op":"u","after":{"id":7,"name":"a","n":1}},"op":"d"}',
    b'{"op":"u","after":{"id":7,"name":"a","n":1}} }',
    b'{"op":"u","after":{"id":7,"name":"a","n":1}}}}',
    b'{"op":"u","after":{"id":7,"name":"a","n":1},"x":{"y":1,"y":2}}}',
    b'{"op":"u","after":{"id":7,"name":"a","n":"\xff"}}}',
    b'{"op":"d","before":null}}',
    b'{"op":"u","payload":1,"after":{"id":7,"name":"a","n":1}}}',
]


@pytest.mark.parametrize("tail", TAILS, ids=range(len(TAILS)))
def test_what_follows_one_schema_is_one_value_and_nothing_else(tail: bytes) -> None:
    texts: list[bytes | None] = [*WRAPPED, BEGIN + tail]
    keys = [None, None, None, text({"id": 9})]
    agree(texts, target(PLAIN), keys)
    agree(texts[::-1], target(PLAIN), keys)
    agree([BEGIN + tail], target(PLAIN))


@pytest.mark.parametrize(
    "first",
    [
        b'{"schema":{"a":1,"a":2},"payload":{"op":"u","after":{"id":7,"name":"a","n":1}}}',
        b'{"schema":{},"schema":{},"payload":{"op":"u","after":{"id":7,"name":"a","n":1}}}',
        b'{"schema":{},"payload":{"op":"m"},"payload":{"op":"u","after":{"id":7,"name":"a","n":1}}}',
        b'{"schema":{"payload":{"op":"u"}},"payload":{"op":"u","after":{"id":7,"name":"a","n":1}}}',
        b'{"schema":"\\"payload\\":","payload":{"op":"u","after":{"id":7,"name":"a","n":1}}}',
        b'{"schema":{},"x":1,"payload":{"op":"u","after":{"id":7,"name":"a","n":1}}}',
        b'{"schema":[{"op":"u","payload":{"op":"u"}}]}',
    ],
    ids=range(7),
)
def test_a_beginning_that_only_looks_like_that_of_a_message(first: bytes) -> None:
    agree([first, first], target(PLAIN))
    agree([first, *WRAPPED], target(PLAIN))


@settings(deadline=None, max_examples=20_000 if SOAK else 300)
@given(st.lists(st.sampled_from(WRAPPED), min_size=1, max_size=4), st.integers(0, 900), st.binary(max_size=3))
@example(WRAPPED[:2], len(BEGIN), b"")
def test_any_bytes_in_any_place(texts: list[bytes], place: int, put: bytes) -> None:
    last = texts[-1]
    broken = last[:place] + put + last[place + len(put) :]
    agree([*texts[:-1], broken], target(PLAIN))
    agree([broken, *texts[:-1]], target(PLAIN))


# -- which they are


def loaded(*documents: Any) -> list[Any]:
    return [json.loads(json.dumps(each)) for each in documents]


def test_the_schema_of_messages_is_read_once() -> None:
    found = messages_of(WRAPPED)
    assert found == [json.loads(each) for each in WRAPPED]
    assert found is not None
    assert len({id(each["schema"]) for each in found}) == 1
    assert messages_of([*WRAPPED, text(FINE[0])]) is None


@pytest.mark.parametrize("op", ["c", "u", "r", "insert", "upsert"])
def test_upserts_of_the_same_columns_are_ordinary_and_nothing_else(op: str) -> None:
    rows = [{"id": 1, "name": "a"}, {"name": "b", "id": 2}, {"id": 3}, {"id": 4, "name": UNAVAILABLE}]
    upserts = [{"op": op, "after": row} for row in rows]
    given = loaded(*upserts, {"op": "d", "before": rows[0]}, {"op": op, "after": None}, None, 3)
    found = ordinary_rows(given, target(PLAIN))
    assert found is not None
    assert (list(found.at), found.names) == ([0, 1], {"id", "name", OP})
    assert found.rows.to_pylist() == [
        {"id": n, "name": name, "n": None, OP: "upsert"} for n, name in ((1, "a"), (2, "b"))
    ]
    assert ordinary_rows(given, replace(target(PLAIN), named=("n",))) is None


def test_numbers_that_all_count_the_same_are_ordinary() -> None:
    rows = [{"id": n, "at": 1_794_830_400_000 + n if n else None, "day": 20_773 + n} for n in range(3)]
    given = loaded(*({"op": "u", "after": row, "source": {"lsn": row["id"]}} for row in rows))
    columns = TIMED.append(pa.field("lsn", pa.int64()))
    found = ordinary_rows(given, target(columns, ("lsn",), "ms"))
    assert found is not None
    assert [str(row["at"]) for row in found.rows.to_pylist()] == [
        "None",
        "2026-11-16 12:00:00.001000",
        "2026-11-16 12:00:00.002000",
    ]
    assert found.rows.column("lsn").to_pylist() == [0, 1, 2]
    assert ordinary_rows(given, target(columns, ("lsn",))) is None, "nobody says what the numbers count"


# -- rows


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({"id": st.integers(0, 9)}, optional={"name": st.just("a"), "x": st.just(1)}), min_size=1
    )
)
def test_rows_that_name_the_same_columns_are_as_any_others(rows: list[dict[str, Any]]) -> None:
    """Behind a last row that names none, no two are alike, and each is looked at."""
    try:
        expected: Any = columns_of([*rows, {}], PLAIN).slice(0, len(rows))
    except RowMisfit as misfit:
        expected = misfit.index, misfit.why
    try:
        found: Any = columns_of(rows, PLAIN)
    except RowMisfit as misfit:
        found = misfit.index, misfit.why
    assert found == expected


@pytest.mark.parametrize("order", [("id", "name"), ("name", "id")])
def test_values_stay_in_their_columns_whatever_the_order(order: tuple[str, str]) -> None:
    rows = [{name: {"id": n, "name": f"row {n}"}[name] for name in order} for n in range(3)]
    assert columns_of(rows, PLAIN).select(["id", "name"]).to_pylist() == [
        {"id": n, "name": f"row {n}"} for n in range(3)
    ]
