"""Encodings and statistics of a file, its footer, and values that other writers put into one."""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Corruption, InvalidRequest, NotFound
from lithify.files.open_parquet import FOOTER_GUESS_BYTES, footer_in, footer_of, read_footer
from lithify.files.parquet import DICTIONARY_BYTES_MAX, NAN_FREE, Layout, PartWriter, encode, read

BEYOND_US = 253_402_300_800_000_005
BEYOND_DAYS = 4_000_000


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "UTC"), [0, BEYOND_US]),
        (pa.timestamp("us"), [-BEYOND_US, 0]),
        (pa.date32(), [0, BEYOND_DAYS]),
        (pa.date32(), [-BEYOND_DAYS, 0]),
    ],
    ids=str,
)
def test_a_moment_beyond_the_calendar_has_no_bounds(tmp_path: Path, kind: pa.DataType, values: list[int]) -> None:
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array(values, plain).cast(kind)})

    data, stats = encode(table, Layout(table.schema, stats_columns=("id", "at")))

    told = json.loads(stats)
    assert (told["minValues"], told["maxValues"]) == ({"id": 1}, {"id": 2})
    assert told["nullCount"] == {"id": 0, "at": 0}
    (tmp_path / "a.parquet").write_bytes(data)
    assert read(tmp_path / "a.parquet", table.schema).equals(table)


def test_a_file_is_completed_to_the_columns_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ms", "UTC")), "gone": [1], "day": ["old"]}), path)
    columns = pa.schema([("day", pa.string()), ("new", pa.int64()), ("at", pa.timestamp("us", "UTC"))])

    found = read(path, columns, {"day": "1970-01-01"})

    moment = dt.datetime(1970, 1, 1, 0, 0, 0, 1_000, dt.UTC)
    assert found.schema == columns
    assert found.to_pylist() == [{"day": "1970-01-01", "new": None, "at": moment}]


def test_a_dictionary_that_grows_large_is_given_up() -> None:
    count = 30_000
    columns = {
        "id": range(count),
        "often": [f"value {i % 1_000}" for i in range(count)],
        "once": [f"value number {i}" for i in range(count)],
    }
    table = pa.table({name: list(values) for name, values in columns.items()})

    data, _ = encode(table, Layout(table.schema, compact_columns=("id",)))

    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    often, once = group.column(1), group.column(2)
    assert often.data_page_offset - often.dictionary_page_offset > 0
    assert once.data_page_offset - once.dictionary_page_offset < DICTIONARY_BYTES_MAX
    assert once.total_uncompressed_size > 400_000, "the rest stands there plainly"
    assert pq.read_table(pa.BufferReader(data)).equals(table)


def test_a_writer_hands_on_the_footer_it_wrote(tmp_path: Path) -> None:
    table = pa.table({f"column {number}": [float(number)] for number in range(400)})
    writer = PartWriter(tmp_path / "a.parquet", table.schema, Layout(table.schema))
    writer.write(table)

    written = writer.close(tmp_path)

    data = (tmp_path / "a.parquet").read_bytes()
    assert len(written.footer) > FOOTER_GUESS_BYTES
    assert written.footer == footer_in(data) == read_footer(tmp_path / "a.parquet", len(data))
    assert footer_of(written.footer, "a").metadata.equals(pq.read_metadata(tmp_path / "a.parquet"))


def test_a_nan_in_any_row_group_is_noted(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.float64()), ("y", pa.float64())])
    writer = PartWriter(tmp_path / "a.parquet", schema, Layout(schema, row_group_rows=1024))
    for x in (1.0, float("nan"), None):
        writer.write(pa.table({"x": [x] * 10_000, "y": [1.0] * 10_000}, schema=schema))

    metadata = footer_of(writer.close(tmp_path).footer, "a").metadata

    assert metadata.num_row_groups > 20
    assert metadata.metadata[NAN_FREE.encode()] == b'["y"]'


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\xff" * 20 + b"PAR1", b"PAR1\x00\x00\x00\x00PARX"], ids=len)
def test_what_does_not_end_like_parquet_has_no_footer(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(data)

    with pytest.raises(Corruption, match=r"a\.parquet"):
        read_footer(tmp_path / "a.parquet")


def test_a_footer_of_a_file_that_is_gone_or_has_another_size(tmp_path: Path) -> None:
    data, _ = encode(pa.table({"x": [1]}), Layout(pa.schema([("x", pa.int64())])))
    (tmp_path / "a.parquet").write_bytes(data)

    with pytest.raises(Corruption, match=f"{len(data)} bytes instead of 5"):
        read_footer(tmp_path / "a.parquet", 5)
    with pytest.raises(NotFound):
        read_footer(tmp_path / "b.parquet")


def test_a_file_that_cannot_be_removed_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    schema = pa.schema([("x", pa.int64())])
    writer = PartWriter(tmp_path / "a.parquet", schema, Layout(schema))
    monkeypatch.setattr(os, "unlink", refuse)

    def give_up() -> None:
        try:
            raise InvalidRequest("why it was given up")
        finally:
            writer.abandon()

    with pytest.raises(InvalidRequest, match="why"):
        give_up()
