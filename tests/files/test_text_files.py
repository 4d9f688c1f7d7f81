"""Text files as rows: whatever Python's csv module writes comes out as it went in, however it is encoded, packed,
quoted and cut into pieces; what is no row is named with its line and column.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lithify.errors import InvalidRequest
from lithify.files import text_files, text_input
from lithify.files.text_files import look, plan, read_text, text_batches
from lithify.text.text_rows import BadRecord, Target

TEXTS = pa.schema([("a", pa.string()), ("b", pa.string()), ("c", pa.string())])
VALUES = [
    "",
    "x",
    "Größe",
    "日本",
    "😀",
    "a,b",
    'say "hi"',
    '"',
    '""',
    "line\nline",
    "\r\n",
    "\r",
    " x ",
    "\t",
    "NULL",
    "'",
    ",",
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "gb18030"]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "two gzip members": lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:]),
    "bz2": bz2.compress,
    "zstd": lambda data: pa.compress(data, "zstd", asbytes=True),
}
# Marked by themselves, or by their zeros.
TOLD = {"utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"}


def written(rows: list[tuple[str, ...]], **dialect: Any) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, **dialect).writerows([("a", "b", "c"), *rows])
    return out.getvalue()


def random_rows(seed: int, count: int = 40, letters: str | None = None) -> list[tuple[str, ...]]:
    draw = random.Random(seed)
    values = [v for v in VALUES if letters is None or _encodable(v, letters)]
    return [tuple(draw.choice(values) for _ in range(3)) for _ in range(count)]


def without_foreign_breaks(rows: list[tuple[str, ...]], ending: str) -> list[tuple[str, ...]]:
    """Python 3.11 does not quote line breaks that are not its own, and cannot read them back either."""
    foreign = {"\n": "\r", "\r": "\n", "\r\n": ""}[ending]
    return [row for row in rows if not foreign or foreign not in "".join(row)]


def _encodable(value: str, encoding: str) -> bool:
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def read(
    data: bytes, kind: str = "csv", columns: pa.Schema = TEXTS, **options: Any
) -> tuple[pa.Table, list[BadRecord]]:
    return read_text(data, "in", kind, Target(columns), **options)


def values(table: pa.Table) -> list[tuple[str, ...]]:
    """Null and empty text look the same to Python's reader."""
    return [tuple(value or "" for value in row.values()) for row in table.to_pylist()]


@pytest.fixture(params=[64, 2**20], ids=["small blocks", "large blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_input, "BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("quoting", "ending"),
    itertools.product([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC], ["\n", "\r\n", "\r"]),
)
def test_what_python_writes_comes_out_as_it_went_in(quoting: int, ending: str) -> None:
    for seed in range(20):
        rows = random_rows(seed)
        if quoting == csv.QUOTE_MINIMAL:
            rows = without_foreign_breaks(rows, ending)
        text = written(rows, quoting=quoting, lineterminator=ending)

        table, bad = read(text.encode())

        assert (values(table), bad) == (rows, [])


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_and_packing(encoding: str, packer: str) -> None:
    rows = random_rows(7, letters=encoding)
    data = PACKERS[packer](written(rows).encode(encoding))

    table, bad = read(data, encoding=None if encoding in TOLD else encoding)

    assert (values(table), bad) == (rows, [])


def test_duckdb_says_the_same(tmp_path: Path) -> None:
    rows = [row for row in random_rows(3, 200) if "\r" not in "".join(row)]
    (tmp_path / "x.csv").write_text(written(rows, lineterminator="\n"), newline="")

    found = (
        duckdb.connect()
        .execute(
            f"from read_csv('{tmp_path}/x.csv', header=true, all_varchar=true, quote='\"', escape='\"', delim=',')"
        )
        .fetchall()
    )

    table, _ = read((tmp_path / "x.csv").read_bytes())
    assert values(table) == [tuple(value or "" for value in row) for row in found]


def test_null_empty_and_blank_are_told_apart() -> None:
    table, _ = read(b'a,b,c\n,"", \n\n\r\n"","",""\n')

    assert table.to_pylist() == [{"a": None, "b": "", "c": " "}, {"a": "", "b": "", "c": ""}]


TYPED = pa.schema(
    [
        ("id", pa.int16()),
        ("price", pa.decimal128(6, 2)),
        ("ratio", pa.float64()),
        ("small", pa.float32()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
    ]
)
FITTING = {
    "id": ["1", " -2 ", "+3", "32767", ""],
    "price": ["1.25", "-0.5", "1.2500", "1e2", "9999.99", ""],
    "ratio": ["1.5", "-2e10", "NaN", "Infinity", "-inf", ".5", ""],
    "small": ["1.5", "3e38"],
    "yes": ["true", "FALSE", "t", "n", "1", "0", "yes"],
    "day": ["2026-11-15", "0001-01-01", "9999-12-31"],
    "at": ["2026-11-15T12:00:00Z", "2026-11-15 12:00:00", "2026-11-15T12:00:00.123456+01:00", "9999-12-31", ""],
    "local": ["2026-11-15T12:00:00", "2026-11-15 12:00:00.1000000"],
    "raw": ["AP8=", ""],
}
UNFIT = {
    "id": ["x", "1.0", "32768", "0x10", "1_0", "１", "--1"],
    "price": ["1.239", "10000.00", "x", "1e9", "NaN", "1,5"],
    "ratio": ["x", "1e999", "1.2.3"],
    "small": ["4e38", "1e999"],
    "yes": ["2", "maybe"],
    "day": ["2026-02-30", "2026-1-5", "0000-01-01", "yesterday", "2026-11-15T00:00:00"],
    "at": ["noon", "2026-11-15T25:00:00Z", "2026-11-15T12:00:00.1234567Z", "0000-12-31T00:00:00Z"],
    "local": ["2026-11-15T12:00:00Z"],
    "raw": ["A", "*"],
}


@pytest.mark.parametrize("column", TYPED.names)
def test_values_fit_their_type_or_are_named(column: str) -> None:
    fitting, unfit = FITTING[column], UNFIT[column]
    lines = [value for pair in itertools.zip_longest(fitting, unfit) for value in pair if value is not None]
    text = f"{column},other\n" + "".join(f'"{value}",x\n' for value in lines)

    table, bad = read(text.encode(), columns=pa.schema([TYPED.field(column), ("other", pa.string())]))

    assert table.num_rows == len(fitting)
    assert [(record.column, record.line) for record in bad] == [
        (column, number) for number, value in enumerate(lines, 2) if value in unfit
    ]


def test_each_type_reads_what_it_says() -> None:
    text = (
        "id,price,ratio,yes,at,local,raw\n+3,1.2500,-inf,n,2026-11-15T12:00:00+01:00,2026-11-15 12:00:00.1000000,AP8=\n"
    )
    (row,) = read(text.encode(), columns=TYPED)[0].to_pylist()
    assert [str(value) for value in row.values()] == [
        "3", "1.25", "-inf", "False", "2026-11-15 11:00:00+00:00", "2026-11-15 12:00:00.100000", "b'\\x00\\xff'",
    ]  # fmt: skip


def test_bad_records_are_named_with_line_column_and_text() -> None:
    data = (
        b'id,name\n1,"two\nlines"\n2\n3,a,b\nx,c\n'
        b'4,"d"e\n5,Gr\xf6\xdfe\n\n6,"also\r\ntwo"\n7,good\n8,"never closed\n9,gone\n'
    )
    table, bad = read(data, columns=pa.schema([("id", pa.int64()), ("name", pa.string())]))

    assert table.column("id").to_pylist() == [1, 6, 7]
    assert [(record.line, record.column, record.record) for record in bad] == [
        (4, None, "2"),
        (5, None, "3,a,b"),
        (6, "id", "x,c"),
        (7, None, '4,"d"e'),
        (8, None, "5,Gr\\xf6\\xdfe"),
        (13, None, '8,"never closed\n9,gone\n'),
    ]
    assert "it has 1 field, the header 2" in str(bad[0])
    assert str(bad[2]).startswith("in, line 6, column 'id': 'x' does not fit int64")
    assert "'x'" not in bad[2].public


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("encoding", "tear", "shown"),
    [
        ("utf-8", b"\xff", "\\xff"),
        ("utf-16-le", b"\x00\xd8", "\\x00\\xd8"),
        ("cp1252", b"\x81", "\\x81"),
        ("ascii", b"\xe4", "\\xe4"),
    ],
)
def test_what_does_not_decode_spoils_its_record_only_wherever_it_stands(encoding: str, tear: bytes, shown: str) -> None:
    lines = ["a,b,c\n", *(f"{number},x,y\n" for number in range(300))]
    data = b"".join(
        line.encode(encoding) if at != 250 else "249,".encode(encoding) + tear + ",y\n".encode(encoding)
        for at, line in enumerate(lines)
    )

    table, bad = read(data, encoding=encoding)

    assert table.num_rows == 299
    assert [(record.line, record.record) for record in bad] == [(251, f"249,{shown},y")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty: a CSV file starts"),
        (b"\n\r\n", "is empty: a CSV file starts"),
        (b"a,a,b\n1,2,3\n", "the column 'a' twice"),
        (b"a,z\n1,2\n", "a column 'z' that the table does not have"),
        (b"a,\xff\n1,2\n", "line 1: bytes that are no text"),
        (b'"a,b\n1,2\n', "line 1: a quote is opened and never closed"),
        (b"PK\x03\x04rest", "is a ZIP archive"),
        (b"PAR1rest", "is a Parquet file"),
        (b"\xfd7zXZ\x00rest", "packed with xz"),
        (gzip.compress(b"a\n" + bytes(range(256)) * 100)[:-40], "is no complete gzip data"),
        (bz2.compress(b"a\n1\n")[:-9], "is no complete bz2 data"),
    ],
)
def test_files_that_cannot_be_read_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(data)
    assert said in str(refused.value)


def test_a_declared_encoding_that_the_file_contradicts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="byte order mark of utf-8, and iso8859-1 was declared"):
        read(b"\xef\xbb\xbfa\n1\n", encoding="latin-1")
    with pytest.raises(InvalidRequest, match="encoding 'hex' is not known"):
        read(b"a\n1\n", encoding="hex")


def test_packed_data_is_only_unpacked_where_that_is_wanted() -> None:
    with pytest.raises(InvalidRequest, match="is packed with gzip"):
        read(gzip.compress(b"a\n1\n"), unpack=False)


def test_a_record_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_input, "BLOCK_BYTES", 1000)
    monkeypatch.setattr("lithify.text.csv_rows.RECORD_BYTES_MAX", 10_000)
    with pytest.raises(InvalidRequest, match=r"line 3: a record of more than .* is a quote not closed"):
        read(b'a,b,c\n1,2,3\n4,"' + b"x\n" * 20_000)


# -- pieces


def in_pieces(path: Path, kind: str, columns: pa.Schema) -> tuple[pa.Table, list[BadRecord], int]:
    target = Target(columns)
    pieces = plan([str(path)], kind, target, None, lambda ranges: [look(part) for part in ranges])
    found = [batch for piece in pieces for batch in text_batches(piece, target)]
    return (
        pa.concat_tables([batch.rows for batch in found]),
        [record for batch in found for record in batch.bad],
        len(pieces),
    )


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_a_file_in_pieces_is_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, mark: bytes) -> None:
    monkeypatch.setattr(text_files, "RANGE_BYTES", 17 + 3 * seed)
    ending, quoting = ["\n", "\r\n", "\r"][seed % 3], [csv.QUOTE_ALL, csv.QUOTE_MINIMAL][seed % 2]
    rows = without_foreign_breaks(random_rows(seed, 60), ending)
    text = written(rows, quoting=quoting, lineterminator=ending)
    lines = text.encode()
    if seed % 5 == 0:
        lines += b"only one\n"
    (tmp_path / "x.csv").write_bytes(mark + lines)

    table, bad, count = in_pieces(tmp_path / "x.csv", "csv", TEXTS)

    whole, as_bad = read_text(tmp_path / "x.csv", str(tmp_path / "x.csv"), "csv", Target(TEXTS))
    assert count > 5
    assert (values(table), bad) == (values(whole), as_bad)
    assert values(table) == rows


def test_stray_quotes_keep_a_file_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "RANGE_BYTES", 50)
    (tmp_path / "x.csv").write_text('a,b,c\n1,5" disk,x\n' + '2,"y\nz",x\n' * 50)

    table, bad, count = in_pieces(tmp_path / "x.csv", "csv", TEXTS)

    assert (table.num_rows, bad, count) == (51, [], 1)


def test_json_lines_in_pieces_have_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "RANGE_BYTES", 50)
    lines = [f'{{"a": "{number}"}}' for number in range(100)]
    lines[77] = '{"a": 1}'
    (tmp_path / "x.json").write_text("\n".join(lines))

    table, bad, count = in_pieces(tmp_path / "x.json", "json", TEXTS)

    assert (table.num_rows, [(record.line, record.column) for record in bad]) == (99, [(78, "a")])
    assert count > 5


# -- JSON

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(6, 2)),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))])),
    ]
)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"id": 1, "s": {"a": 1, "z": 2}}', "s"),
        ('{"id": 1, "z": 2}', None),
        ('{"id": 1, "price": 1.999}', "price"),
        ('{"id": 1, "price": 12345.0}', "price"),
        ('{"id": 9223372036854775808}', "id"),
        ('{"id": 1.5}', "id"),
        ('{"id": true}', "id"),
        ('{"id": 1, "s": {"b": [1, 2147483648]}}', "s.b[]"),
        ('{"id": 1', None),
        ("[1]", None),
        ('"text"', None),
        ('{"id": 1, "id": 2}', "id"),
        (r'{"id": 3, "s": {"a": 1, "b": [], "\u0061": 1}}', "a"),
        ('{"id" : 1, "": ":", "" : "::"}', ""),
    ],
)
def test_json_that_is_no_row_is_named(line: str, column: str | None) -> None:
    table, bad = read(f'{{"id": 1}}\n\n{line}\n{{"id": 2, "price": 1.5}}\n'.encode(), "json", NESTED)

    assert table.column("id").to_pylist() == [1, 2]
    assert [(record.line, record.column, record.record) for record in bad] == [(3, column, line)]


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name in TOLD])
def test_json_in_every_encoding_and_packing(encoding: str, packer: str) -> None:
    text = "".join(f'{{"a": "{value}"}}\n' for value in ("Größe", "日本", "x" * 100))
    for document in (text, "[" + ",".join(text.splitlines()) + "]"):
        table, bad = read(PACKERS[packer](document.encode(encoding)), "json")
        assert (table.to_pylist(), bad) == ([{"a": "Größe"}, {"a": "日本"}, {"a": "x" * 100}], [])


def test_a_row_of_an_array_is_named_by_its_number() -> None:
    table, bad = read(b'[{"id": 1}, {"id": "x"}]', "json", NESTED)
    assert table.num_rows == 1
    assert str(bad[0]).startswith("in, row 2, column 'id': \"x\" does not fit int64")


def test_a_row_of_an_array_that_gives_a_field_twice_is_named_by_its_number() -> None:
    table, bad = read(b'[{"id": 1, "price": 1.25}, {"id": 1, "id": 2}, {"id": 3, "price": 0.1}]', "json", NESTED)
    assert table.select(["id", "price"]).to_pylist() == [
        {"id": 1, "price": Decimal("1.25")},
        {"id": 3, "price": Decimal("0.10")},
    ]
    assert [record.public for record in bad] == ["in, row 2, column 'id': the field comes twice in one object"]
