"""The same bytes become the same rows, whichever way they come in; what is no row is refused at every one of them."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lithify import InvalidRequest, Lake, LithifyError
from lithify.cli.main import app
from lithify.http.formats.negotiate import read_rows
from lithify.streams.folder import FileStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(8, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("far", pa.timestamp("us")),
        ("raw", pa.binary()),
    ]
)
CSV = (
    "id,name,price,at,far,raw\r\n"
    '1,"Größe, ""XL""\r\nund mehr",1.50,2026-11-15T12:00:00+01:00,9999-12-31T23:59:59.999999,AP8=\r\n'
    '2,"",,2026-11-15 12:00:00,,\r\n\r\n'
    "3,,-0.10,,0001-01-01,\r\n"
)
JSON = (
    '{"id": 1, "name": "Größe, \\"XL\\"\\r\\nund mehr", "price": 1.50, "at": "2026-11-15T12:00:00+01:00", '
    '"far": "9999-12-31T23:59:59.999999", "raw": "AP8="}\n'
    '{"id": 2, "name": "", "at": "2026-11-15T12:00:00Z"}\n\n{"id": 3, "price": "-0.10", "far": "0001-01-01"}\n'
)


def write(lake: Lake, path: Path, kind: str, encoding: str | None) -> None:
    answer = CliRunner().invoke(
        app,
        ["--lake", str(lake.path), "write", "s.t", str(path), "-f", kind]
        + (["--encoding", encoding] if encoding else []),
    )
    if answer.exit_code:
        raise InvalidRequest(answer.output)


def ingest(lake: Lake, path: Path, kind: str, encoding: str | None) -> None:
    lake.ingest("s.t", str(path), format=kind, encoding=encoding)


def stream(lake: Lake, path: Path, kind: str, encoding: str | None) -> None:
    FileStream(lake.table("s.t")._internals, str(path.parent), format=kind, encoding=encoding).run()


def stream_on_spark(lake: Lake, path: Path, kind: str, encoding: str | None) -> None:
    FileStream(lake.table("s.t")._internals, str(path.parent), format=kind, encoding=encoding, rows_max=0).run()


def pipeline(lake: Lake, path: Path, kind: str, encoding: str | None) -> None:
    schema = "id BIGINT, name STRING, price DECIMAL(8,2), at TIMESTAMP, far TIMESTAMP_NTZ, raw BINARY"
    step: dict[str, Any] = {"files": str(path), "format": kind, "schema": schema, "target": "s.t"}
    lake.pipeline("p", {"steps": [step | ({"encoding": encoding} if encoding else {})]}).run()


def request(lake: Lake, path: Path, kind: str, encoding: str | None) -> None:
    body = path.read_bytes()
    content_type = {"csv": "text/csv", "json": "application/x-ndjson"}[kind]
    content_type += f"; charset={encoding}" if encoding else ""
    lake.table("s.t").upsert(read_rows(body, content_type, SCHEMA, 2**20))


DOORS: list[Callable[[Lake, Path, str, str | None], None]] = [write, ingest, stream, stream_on_spark, pipeline, request]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize(
    ("kind", "encoding", "declared", "pack"),
    [
        ("csv", "utf-8", None, bytes),
        ("csv", "utf-16", None, gzip.compress),
        ("csv", "cp1252", "cp1252", bz2.compress),
        ("json", "utf-8-sig", None, bytes),
    ],
)
def test_the_same_bytes_are_the_same_rows(
    lake: Lake,
    spark: SparkSession,
    tmp_path: Path,
    door: Callable[[Lake, Path, str, str | None], None],
    kind: str,
    encoding: str,
    declared: str | None,
    pack: Callable[[bytes], bytes],
) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options={"missing_columns": "null"})
    (tmp_path / "in").mkdir()
    data = (CSV if kind == "csv" else JSON).encode(encoding)
    # Bodies say in a header how they are packed.
    (tmp_path / "in" / "x.data").write_bytes(data if door is request else pack(data))

    door(lake, tmp_path / "in" / "x.data", kind, declared)

    rows = lake.table("s.t").to_arrow().sort_by("id").to_pylist()
    assert [str(value) for value in rows[0].values()] == [
        "1", 'Größe, "XL"\r\nund mehr', "1.50", "2026-11-15 11:00:00+00:00", "9999-12-31 23:59:59.999999",
        "b'\\x00\\xff'",
    ]  # fmt: skip
    assert [str(value) for value in rows[1].values()] == ["2", "", "None", "2026-11-15 12:00:00+00:00", "None", "None"]
    assert [str(value) for value in rows[2].values()] == ["3", "None", "-0.10", "None", "0001-01-01 00:00:00", "None"]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_what_is_no_row_is_refused_with_its_line(
    lake: Lake, spark: SparkSession, tmp_path: Path, door: Callable[[Lake, Path, str, str | None], None]
) -> None:
    lake.create_table("s.t", SCHEMA, key="id", options={"missing_columns": "null"})
    for number, (kind, text, said) in enumerate(
        [
            ("csv", b'id,name\n1,"a\nb"\n2,Gr\xf6\xdfe\n', "line 4: bytes that are no text"),
            ("csv", b"id,name\n1,a\n2\n", "line 3: it has 1 field, the header 2"),
            ("csv", b"id,price\n1,1.0\n2,1.999\n", "line 3, column 'price'"),
            ("csv", b'id,name\n1,a\n2,"b\n', "line 3: a quote is opened and never closed"),
            ("json", b'{"id": 1}\n{"id": 9223372036854775808}\n', "line 2, column 'id'"),
            ("json", b'{"id": 1}\n{"id": 2, "name": "\xff"}\n', "line 2"),
        ]
    ):
        path = tmp_path / f"in{number}" / "x.data"
        path.parent.mkdir()
        path.write_bytes(text)
        with pytest.raises(LithifyError) as refused:
            door(lake, path, kind, None)
        assert said in str(refused.value), json.dumps(str(refused.value))
    assert lake.table("s.t").snapshot().seq == 0
