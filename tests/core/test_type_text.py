"""Column types as text, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lithify.core.type_text import parse_column, parse_type, type_name
from lithify.errors import InvalidRequest

PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0)": pa.decimal128(38, 0),
}
NESTED = {
    "list<int64>": pa.list_(pa.field("element", pa.int64())),
    "list<int64!>": pa.list_(pa.field("element", pa.int64(), nullable=False)),
    "map<string,float64>": pa.map_(pa.string(), pa.field("value", pa.float64())),
    "struct<a:int64,b:string!>": pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]),
    "list<struct<at:timestamp,tags:list<string>>>": pa.list_(
        pa.field(
            "element",
            pa.struct([("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.field("element", pa.string())))]),
        )
    ),
}


@pytest.mark.parametrize(("text", "kind"), [*PLAIN.items(), *NESTED.items()])
def test_reads_and_names_every_type(text: str, kind: pa.DataType) -> None:
    assert parse_type(text) == kind
    assert type_name(kind) == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("double", pa.float64()),
        ("bigint", pa.int64()),
        ("INT", pa.int32()),
        ("Boolean", pa.bool_()),
        ("numeric( 12 , 3 )", pa.decimal128(12, 3)),
        ("decimal(5)", pa.decimal128(5, 0)),
        (" list < string > ", pa.list_(pa.field("element", pa.string()))),
        ("array<date>", pa.list_(pa.field("element", pa.date32()))),
    ],
)
def test_other_spellings(text: str, kind: pa.DataType) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize("text", ["id:int64!", "id:int64 not null", "id : int64 NOT  NULL", "id:int64 !"])
def test_required_column(text: str) -> None:
    assert parse_column(text) == pa.field("id", pa.int64(), nullable=False)


def test_nullable_column() -> None:
    assert parse_column("amount:decimal(10,2)") == pa.field("amount", pa.decimal128(10, 2))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id", "name:type"),
        ("", "name:type"),
        (":int64", "name:type"),
        ("id:", "a type is missing"),
        ("id:foo", "'foo' is no type"),
        ("id:int64 extra", "too much"),
        ("id:int64!!", "too much"),
        ("id:decimal", "decimal(10,2)"),
        ("id:decimal(39,0)", "1 to 38"),
        ("id:decimal(4,5)", "does not exist"),
        ("id:list<int64", "'>' is missing"),
        ("id:list int64", "'<' is missing"),
        ("id:map<string>", "',' is missing"),
        ("id:struct<>", "name:type"),
        ("id:struct<a>", "name:type"),
        ("id:" + "list<" * 40 + "int8" + ">" * 40, "levels deep"),
    ],
)
def test_refuses_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match="character") as caught:
        parse_column(text)
    assert problem in caught.value.message
