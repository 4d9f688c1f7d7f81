"""Rows to JSON, NDJSON, CSV and Arrow, and back: nothing is lost; what does not fit is refused without its value."""

from __future__ import annotations

import contextlib
import csv as python_csv
import datetime as dt
import gzip
import io
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core import json_rows
from lithify.core.json_rows import rows_of_document, table_of
from lithify.errors import InvalidRequest, LimitExceeded
from lithify.http.formats import arrow_in
from lithify.http.formats.arrow_in import check_expanded, read_stream
from lithify.http.formats.negotiate import CSV, NDJSON, read_rows
from lithify.text import rows_out

UTC, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")
MIB = 2**20

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda digits: Decimal(f"{digits}E-{scale}"))


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), whole(8)),
    (pa.int16(), whole(16)),
    (pa.int32(), whole(32)),
    (pa.int64(), whole(64)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), TEXT),
    (pa.binary(), st.binary(max_size=12)),
    (pa.date32(), st.dates()),
    (UTC, MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    (NAIVE, MOMENTS),
    (pa.decimal128(10, 2), decimals(10, 2)),
    (pa.decimal128(38, 0), decimals(38, 0)),
    (pa.decimal128(38, 20), decimals(38, 20)),
]


def with_nulls(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def nested(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A type with a strategy for its values."""
    flat = st.sampled_from(PLAIN)
    if not depth:
        return flat
    inner = nested(depth - 1)

    def lists(of: tuple[pa.DataType, st.SearchStrategy[Any]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        return pa.list_(pa.field("element", of[0])), st.lists(with_nulls(of[1]), max_size=3)

    def structs(parts: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> Any:
        fields = {f"f{number}": part for number, part in enumerate(parts)}
        kind = pa.struct([pa.field(name, part[0]) for name, part in fields.items()])
        return kind, st.fixed_dictionaries({name: with_nulls(part[1]) for name, part in fields.items()})

    def maps(both: tuple[Any, Any]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        key, item = both
        pairs = st.lists(st.tuples(key[1], with_nulls(item[1])), max_size=3, unique_by=lambda pair: repr(pair[0]))
        return pa.map_(key[0], pa.field("value", item[0])), pairs

    return (
        flat
        | inner.map(lists)
        | st.lists(inner, min_size=1, max_size=3).map(structs)
        | st.tuples(flat, inner).map(maps)
    )


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(nested(2), min_size=1, max_size=4))
    count = draw(st.integers(1, 6))
    arrays = [
        pa.array(draw(st.lists(with_nulls(values), min_size=count, max_size=count)), kind) for kind, values in kinds
    ]
    table = pa.table(arrays, names=[f"c{number}" for number in range(len(arrays))])
    # Also as a slice, whose buffers start somewhere else.
    start = draw(st.integers(0, count - 1))
    return table.slice(start) if draw(st.booleans()) else table


def same(left: pa.Table, right: pa.Table) -> bool:
    return left.schema == right.schema and repr(left.to_pylist()) == repr(right.to_pylist())


@given(tables())
@settings(max_examples=200, deadline=None)
def test_json_gives_back_every_value(table: pa.Table) -> None:
    document = orjson.loads(b"".join(rows_out.json_document({"id": "x"}, table)))
    rows = [dict(zip(table.column_names, row, strict=True)) for row in document["rows"]]
    data = orjson.dumps({"rows": rows})
    assert same(table_of(rows_of_document(orjson.loads(data), data), table.schema), table)


@given(tables())
@settings(max_examples=100, deadline=None)
def test_ndjson_gives_back_every_value(table: pa.Table) -> None:
    assert same(lines_of(b"".join(rows_out.ndjson(table)), table.schema), table)


@given(tables())
@settings(max_examples=100, deadline=None)
def test_an_arrow_stream_gives_back_every_value(table: pa.Table) -> None:
    assert same(read_stream(b"".join(rows_out.arrow_stream(table)), table.schema, 64 * MIB), table)


@given(st.lists(st.tuples(with_nulls(TEXT), with_nulls(whole(64))), min_size=1, max_size=8))
@settings(deadline=None)
def test_csv_is_read_by_others(rows: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.int64())}
    )
    text = b"".join(rows_out.csv(table)).decode()
    read = list(python_csv.reader(io.StringIO(text, newline="")))
    assert read[0] == ["a", "b"]
    assert read[1:] == [[a or "", "" if b is None else str(b)] for a, b in rows]


def text_of(array: pa.Array, format: Callable[[pa.Table], Any] = rows_out.csv) -> str:
    return b"".join(format(pa.table({"a": array}))).decode()


def test_csv_tells_null_from_empty_text() -> None:
    assert text_of(pa.array([None, "", 'say "hi"', "a,b", "plain"])) == 'a\n\n""\n"say ""hi"""\n"a,b"\nplain\n'


@pytest.mark.parametrize(
    ("array", "spelled"),
    [
        (pa.array([2**53, 2**53 + 1, -(2**63)]), [2**53, str(2**53 + 1), str(-(2**63))]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([math.nan, math.inf, -math.inf, 0.5]), ["NaN", "Infinity", "-Infinity", 0.5]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), ["1.50", None]),
        (pa.array([Decimal("0.0000000001")], pa.decimal128(12, 10)), ["0.0000000001"]),
        (pa.array([dt.date(2026, 11, 15)]), ["2026-11-15"]),
        (pa.array([dt.datetime(2026, 11, 15, 12)], UTC), ["2026-11-15T12:00:00Z"]),
        (pa.array([dt.datetime(2026, 11, 15, 12, 0, 0, 500_000)], NAIVE), ["2026-11-15T12:00:00.500000"]),
        (pa.array([dt.datetime(2026, 11, 15, 12)], pa.timestamp("ns", "Europe/Berlin")), ["2026-11-15T12:00:00Z"]),
        (pa.array([dt.time(12, 30)], pa.time64("us")), ["12:30:00.000000"]),
        (pa.array([b"\x00\xff"]), ["AP8="]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array(["a", None], pa.string_view()), ["a", None]),
        (pa.array([None, None], pa.null()), [None, None]),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), ["[1,2]", None]),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), [{"a": 1}]),
        (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8())), [[["a", 1], ["a", 2]]]),
        (pa.array([dt.timedelta(hours=1)]), ["1:00:00"]),
    ],
)  # fmt: skip
def test_how_answers_spell_values(array: pa.Array, spelled: list[Any]) -> None:
    document = orjson.loads(b"".join(rows_out.json_document({}, pa.table({"a": array}))))
    assert [row[0] for row in document["rows"]] == spelled


def test_large_answers_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_out, "PIECE_ROWS", 3)
    table = pa.table({"a": range(10)})
    assert len(list(rows_out.ndjson(table))) == 4
    assert orjson.loads(b"".join(rows_out.json_document({}, table)))["rows"] == [[n] for n in range(10)]
    assert pa.ipc.open_stream(b"".join(rows_out.arrow_stream(table))).read_all() == table


def test_an_answer_without_rows() -> None:
    table = pa.table({"a": pa.array([], pa.int64())})
    assert orjson.loads(b"".join(rows_out.json_document({"x": 1}, table))) == {"x": 1, "rows": []}
    assert b"".join(rows_out.csv(table)) == b"a\n"
    assert pa.ipc.open_stream(b"".join(rows_out.arrow_stream(table))).read_all() == table


def test_objects_need_names_of_their_own() -> None:
    with pytest.raises(InvalidRequest, match="two columns of the answer are called 'a'"):
        rows_out.check_names(pa.table([[1], [2]], names=["a", "a"]))


# -- JSON that does not fit


def decoded(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bytes):
        value, data = orjson.loads(value), b'[{"c": ' + value + b"}]"
    else:
        data = b""
    return table_of(rows_of_document([{"c": value}], data), pa.schema({"c": kind})).column("c")[0].as_py()


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        ("9007199254740993", pa.int64(), 2**53 + 1),
        (b"9007199254740993", pa.int64(), 2**53 + 1),
        (b"9.90", pa.decimal128(10, 2), Decimal("9.90")),
        (b"0.12345678901234567890", pa.decimal128(38, 20), Decimal("0.12345678901234567890")),
        (b"123456789012345678901234567890", pa.decimal128(38, 0), Decimal("123456789012345678901234567890")),
        (b"12345678901234567890123.5", pa.float64(), 1.2345678901234568e22),
        (3, pa.float64(), 3.0),
        ("2026-11-15T12:00:00+02:00", UTC, dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)),
        ([["a", 1]], pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ({"7": 1}, pa.map_(pa.int64(), pa.int64()), [(7, 1)]),
    ],
)
def test_how_json_values_are_read(value: Any, kind: pa.DataType, read: Any) -> None:
    assert decoded(value, kind) == read


SECRET = "5ecret"


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (1.0, pa.int64(), "whole numbers"),
        (1.5, pa.int64(), "whole numbers"),
        (b"1e3", pa.int64(), "whole numbers"),
        (True, pa.int64(), "whole numbers"),
        (SECRET, pa.int64(), "whole numbers"),
        ("1e3", pa.int64(), "whole numbers"),
        (300, pa.int8(), "from -128 to 127"),
        (b"9223372036854775808", pa.int64(), "whole numbers"),
        (b"123456789012345678901234567890", pa.int64(), "whole numbers"),
        (SECRET, pa.float64(), "numbers"),
        (True, pa.float64(), "numbers"),
        (1e300, pa.float32(), "within its range"),
        (SECRET, pa.bool_(), "true or false"),
        (1, pa.bool_(), "true or false"),
        (777123, pa.string(), "text"),
        ({"a": SECRET}, pa.string(), "text"),
        ("\ud800" + SECRET, pa.string(), "whole characters"),
        ("\ud800" + SECRET, pa.date32(), "a date as text"),
        ("\ud800" + SECRET, pa.binary(), "base64"),
        (SECRET + "!", pa.binary(), "base64"),
        (SECRET, pa.date32(), "a date as text"),
        (20000, pa.date32(), "a date as text"),
        ("2026-02-30", pa.date32(), "a date as text"),
        ("2026-11-15T12:00:00", UTC, "with its zone"),
        ("2026-11-15T12:00:00Z", NAIVE, "without a zone"),
        (1_700_000_000, UTC, "with its zone"),
        (SECRET, pa.decimal128(10, 2), "numbers or text"),
        ("1.239", pa.decimal128(10, 2), "at most 8 digits before and 2 after"),
        (b"1.239", pa.decimal128(10, 2), "at most 8 digits before and 2 after"),
        ("1e999999999", pa.decimal128(10, 2), "numbers or text"),
        (b"1e300", pa.decimal128(10, 2), "numbers or text"),
        (SECRET, pa.list_(pa.int64()), "a list"),
        ([1, SECRET], pa.list_(pa.int64()), "whole numbers"),
        ([None], pa.list_(pa.field("element", pa.int64(), nullable=False)), "no null"),
        ({"x": SECRET}, pa.struct({"x": pa.int64()}), "whole numbers"),
        ({"y": SECRET}, pa.struct({"x": pa.int64()}), "no other fields than x"),
        ({}, pa.struct([pa.field("x", pa.int64(), nullable=False)]), "no null"),
        ([[SECRET]], pa.map_(pa.string(), pa.int64()), "pairs"),
        ({SECRET: 1}, pa.map_(pa.int64(), pa.int64()), "whole numbers"),
        ([[None, 1]], pa.map_(pa.string(), pa.int64()), "no null"),
    ],
)
def test_what_does_not_fit_is_refused_without_its_value(value: Any, kind: pa.DataType, wanted: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decoded(value, kind)
    said = refused.value.public
    assert "row 0, column 'c" in said
    assert wanted in said
    assert SECRET not in said
    assert "777123" not in said


def test_refusals_name_the_row_the_line_and_the_place_inside() -> None:
    kind = pa.list_(pa.struct({"x": pa.int64()}))
    data = b'{"c": [{"x": 1}]}\n\n{"c": [{"x": 2}, {"x": "no"}]}\n'
    with pytest.raises(InvalidRequest, match=r"^the body, line 3, column 'c\[\].x'"):
        lines_of(data, pa.schema({"c": kind}))
    with pytest.raises(InvalidRequest, match=r"^the body, line 2: no JSON: [^:]*$") as refused:
        lines_of(b'{"c": [{"x": 1}]}\n{"c": secret}\n', pa.schema({"c": kind}))
    assert "secret" not in str(refused.value)


def lines_of(data: bytes, columns: pa.Schema) -> pa.Table:
    return read_rows(data, NDJSON, columns, 64 * MIB)


def test_csv_bodies_are_rows_or_refused_without_their_values() -> None:
    columns = pa.schema({"id": pa.int64(), "name": pa.string()})
    body = 'id,name\n1,"a\n""Größe"""\n2,\n'

    assert read_rows(body.encode("latin-1"), "text/csv; charset=latin-1", columns, MIB).to_pylist() == [
        {"id": 1, "name": 'a\n"Größe"'},
        {"id": 2, "name": None},
    ]
    for data, said in (
        (b"id,name\n1,a\nsecret,b\n", "the body, line 3, column 'id': the value does not fit int64"),
        (b"id,name\n1,a\nsecret\n", "the body, line 3: it has 1 field, the header 2"),
        (b"id,name\n1,\xff\n", "the body, line 2: bytes that are no text"),
        (b"id,name\n", "the batch is empty"),
        (gzip.compress(b"id\n1\n"), "the body is packed with gzip"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            read_rows(data, CSV, columns, MIB)
        assert said in str(refused.value)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[]", "the batch is empty"),
        (b'{"rows": []}', "the batch is empty"),
        (b"[1]", "row 0: no JSON object"),
        (b'"text"', "row 0: no JSON object"),
        (b"[{}]", "have no column"),
        (b'[{"c": 1}, {"d": 1}]', "row 1: column 'd' is not in the table"),
    ],
)
def test_bodies_that_are_no_rows(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        table_of(rows_of_document(orjson.loads(data), data), pa.schema({"c": pa.int64()}))


def test_many_small_values_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "VALUES_MAX", 1000)
    with pytest.raises(LimitExceeded) as refused:
        lines_of(b"{}\n" * 600, pa.schema({"c": pa.int64()}))
    assert refused.value.details["limit"] == "size"


# -- Arrow streams that are damaged, or larger than they look


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


TEXTS = pa.schema({"a": pa.string()})


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_streams_are_read(codec: str) -> None:
    batch = batch_of(a=["x" * 1000] * 100)
    assert read_stream(stream(batch, batch, compression=codec), TEXTS, MIB).num_rows == 200


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compression_bomb_is_refused_by_what_it_declares(codec: str) -> None:
    bomb = stream(batch_of(a=["x" * 50 * MIB]), compression=codec)
    assert len(bomb) < MIB
    before = pa.total_allocated_bytes()
    with pytest.raises(LimitExceeded, match="unpacked, it says to take more than") as refused:
        read_stream(bomb, TEXTS, 8 * MIB)
    assert refused.value.details["limit"] == "size"
    assert pa.total_allocated_bytes() - before < MIB


def test_a_stream_that_declares_less_than_it_unpacks_to_is_refused() -> None:
    real = 4 * MIB
    bomb = stream(batch_of(a=["x" * real]), compression="zstd")
    declared = struct.pack("<q", real)
    assert bomb.count(declared) >= 1
    lying = bomb.replace(declared, struct.pack("<q", 100))
    with pytest.raises(InvalidRequest):
        read_stream(lying, TEXTS, MIB)


def test_a_dictionary_bomb_is_refused_before_it_is_written_out() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * MIB]))
    before = pa.total_allocated_bytes()
    with pytest.raises(LimitExceeded, match="its values take more than"):
        read_stream(stream(pa.RecordBatch.from_arrays([words], ["a"])), TEXTS, 64 * MIB)
    assert pa.total_allocated_bytes() - before < 4 * MIB


def test_a_view_bomb_is_refused_before_it_is_written_out() -> None:
    one = pa.array(["x" * MIB], pa.string_view())
    _, view, data = one.buffers()
    thousand = pa.py_buffer(view.to_pybytes()[:16] * 1000)
    views = pa.Array.from_buffers(pa.string_view(), 1000, [None, thousand, data])
    with pytest.raises(LimitExceeded):
        read_stream(stream(pa.RecordBatch.from_arrays([views], ["a"])), TEXTS, 64 * MIB)


def test_the_view_of_a_null_is_not_followed() -> None:
    """It may point anywhere, and would end the process."""
    anywhere = struct.pack("<iiii", 1000, 0, 2**30, 2**30)
    views = pa.py_buffer(anywhere + struct.pack("<i12s", 2, b"ok"))
    column = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x02"), views, pa.py_buffer(b"x" * 16)])
    read = read_stream(stream(pa.RecordBatch.from_arrays([column], ["a"])), TEXTS, MIB)
    assert read.column("a").to_pylist() == [None, "ok"]


def test_dictionaries_and_views_of_honest_size_are_read() -> None:
    words = pa.array(["a", "b", None, "a"])
    batch = pa.RecordBatch.from_arrays([words.dictionary_encode(), words.cast(pa.string_view())], ["a", "b"])
    read = read_stream(stream(batch), pa.schema({"a": pa.string(), "b": pa.string()}), MIB)
    assert read.to_pydict() == {"a": words.to_pylist(), "b": words.to_pylist()}


def test_rows_without_bytes_are_counted() -> None:
    nothing = pa.RecordBatch.from_arrays([pa.nulls(arrow_in.ROWS_MAX + 1)], ["a"])
    with pytest.raises(LimitExceeded, match="more than 10,000,000 rows"):
        read_stream(stream(nothing), TEXTS, MIB)


def test_columns_that_are_left_out_count_too() -> None:
    columns = pa.schema([pa.field(f"c{n}", pa.int64()) for n in range(100)])
    with pytest.raises(LimitExceeded, match="with all 100 columns"):
        check_expanded(pa.table({"c0": range(10_000)}), columns, MIB)


def test_every_truncation_is_noticed() -> None:
    whole_stream = stream(batch_of(a=["x", "y"]), batch_of(a=["z", "w"]), compression="zstd")
    for length in range(len(whole_stream)):
        with pytest.raises(InvalidRequest):
            read_stream(whole_stream[:length], TEXTS, MIB)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_streams_never_do_more_than_fail(data: st.DataObject) -> None:
    words = pa.array(["some", "words", None] * 5)
    columns = [words, words.dictionary_encode(), pa.array(range(15)), words.cast(pa.string_view())]
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b", "n", "v"])
    broken = bytearray(stream(batch, compression=data.draw(st.sampled_from([None, "zstd"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 9))] = data.draw(st.integers(0, 255))
    schema = pa.schema({"a": pa.string(), "b": pa.string(), "n": pa.int64(), "v": pa.string()})
    with contextlib.suppress(InvalidRequest, LimitExceeded):
        read_stream(bytes(broken), schema, MIB).validate(full=True)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array([["a"]], pa.list_view(pa.string())),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.RunEndEncodedArray.from_arrays([5], ["a"]),
        pa.array([dt.timedelta(1)]),
    ],
    ids=lambda array: str(array.type),
)
def test_types_that_could_hide_their_size_are_refused(array: pa.Array) -> None:
    with pytest.raises(InvalidRequest, match="column 'a'"):
        read_stream(stream(pa.RecordBatch.from_arrays([array], ["a"])), TEXTS, MIB)


def test_types_may_not_nest_without_end() -> None:
    kind: pa.DataType = pa.int8()
    for _ in range(arrow_in.DEPTH_MAX + 2):
        kind = pa.list_(kind)
    with pytest.raises(InvalidRequest, match="nests more than"):
        read_stream(stream(pa.RecordBatch.from_arrays([pa.array([None], kind)], ["a"])), TEXTS, MIB)


@pytest.mark.parametrize("data", [b"", b"nonsense", arrow_in.END_MARK, b"x" * 64 + arrow_in.END_MARK])
def test_bodies_that_are_no_stream(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_stream(data, TEXTS, MIB)


def test_a_column_that_the_table_lacks_is_named() -> None:
    with pytest.raises(InvalidRequest, match="column 'b' is not in the table: it has a"):
        read_stream(stream(batch_of(b=[1])), TEXTS, MIB)
