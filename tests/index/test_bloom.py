"""Bloom filters in Parquet files: a value that is there is never denied, and what is not understood says perhaps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.errors import NotFound
from lithify.files.open_parquet import footer_of, read_footer
from lithify.index.block import Block, ColumnInfo, parse
from lithify.index.bloom import bloom_bytes, may_hold
from lithify.index.footers import entry_of
from lithify.index.stats import Kind
from support.folders import memory_folder


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(least, most) | st.sampled_from([least, most])


def _cents(digits: int) -> st.SearchStrategy[Decimal]:
    with localcontext(prec=digits):
        most = 10**digits - 1
        return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-2, Context(prec=digits)))


SUPPORTED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{getattr(pa, f"int{bits}")(): _integers(bits, True) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): _integers(bits, False) for bits in (8, 16, 32, 64)},
    pa.string(): st.text(max_size=40),
    pa.large_string(): st.text(max_size=40),
    pa.binary(): st.binary(max_size=40),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    **{pa.decimal128(digits, 2): _cents(digits) for digits in (3, 9, 10, 18, 19, 38)},
}


def written(path: Path, type_: pa.DataType, values: list[Any], ndv: int = 1000, **options: Any) -> Block:
    table = pa.table({"c": pa.array(values, type_)})
    pq.write_table(table, path, bloom_filter_options={"c": {"ndv": ndv, "fpp": 0.01}}, **options)
    return parse(entry_of(footer_of(read_footer(path), path), path.name, path.stat().st_size))


def answer(path: Path, block: Block, value: Any, group: int = 0) -> bool:
    chunks = block.chunks("c")
    assert chunks is not None
    spelled = bloom_bytes(block.columns[0], value)
    assert spelled is not None
    assert chunks.bloom_offset[group]
    return may_hold(path, int(chunks.bloom_offset[group]), spelled)


@pytest.mark.parametrize("type_", SUPPORTED, ids=str)
def test_a_value_that_is_there_is_never_denied(type_: pa.DataType) -> None:
    with memory_folder() as folder:

        @settings(max_examples=15, deadline=None)
        @given(st.lists(SUPPORTED[type_] | st.none(), min_size=1, max_size=60))
        def check(values: list[Any]) -> None:
            block = written(folder / "x.parquet", type_, values, row_group_size=20)
            for row, value in enumerate(values):
                if value is not None:
                    assert answer(folder / "x.parquet", block, value, row // 20)

        check()


_KINDS: list[tuple[pa.DataType, Callable[[int], Any]]] = [
    (pa.int64(), int),
    (pa.uint32(), int),
    (pa.string(), str),
    (pa.date32(), lambda number: date(2024, 1, 1) + timedelta(days=number)),
    (pa.timestamp("us"), lambda number: datetime(2024, 1, 1) + timedelta(seconds=number)),
    (pa.decimal128(30, 2), lambda number: Decimal(number).scaleb(-2)),
]


@pytest.mark.parametrize(("type_", "spell"), _KINDS, ids=[str(kind) for kind, _ in _KINDS])
def test_most_values_that_are_not_there_are_denied(
    folder: Path, type_: pa.DataType, spell: Callable[[int], Any]
) -> None:
    block = written(folder / "x.parquet", type_, [spell(number) for number in range(1000)])

    asked = [answer(folder / "x.parquet", block, spell(number)) for number in range(1000, 3000)]

    assert sum(asked) < 200


def test_one_value_of_several_is_enough(folder: Path) -> None:
    block = written(folder / "x.parquet", pa.string(), ["a"])
    chunks = block.chunks("c")
    assert chunks is not None
    offset = int(chunks.bloom_offset[0])

    assert not may_hold(folder / "x.parquet", offset, [b"b", b"c"])
    assert may_hold(folder / "x.parquet", offset, [b"b", b"a"])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.float64(), 1.0),
        (pa.timestamp("ms"), datetime(2024, 1, 1)),
        (pa.timestamp("ns"), datetime(2024, 1, 1)),
        (pa.binary(2), b"ab"),
        (pa.bool_(), True),
    ],
    ids=str,
)
def test_values_of_other_types_are_not_asked_for(type_: pa.DataType, value: Any) -> None:
    with memory_folder() as folder:
        pq.write_table(pa.table({"c": pa.array([value], type_)}), folder / "x.parquet")
        block = parse(entry_of(footer_of(read_footer(folder / "x.parquet"), "x"), "x.parquet", 1))

    assert bloom_bytes(block.columns[0], value) is None


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int64(), True),
        (pa.int64(), 1.0),
        (pa.int64(), "1"),
        (pa.int64(), 2**63),
        (pa.int32(), 2**31),
        (pa.uint64(), -1),
        (pa.uint32(), 2**32),
        (pa.string(), b"a"),
        (pa.binary(), "a"),
        (pa.string(), None),
        (pa.date32(), datetime(2024, 1, 1)),
        (pa.timestamp("us"), datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1)),
        (pa.decimal128(9, 2), 1.5),
    ],
    ids=str,
)
def test_literals_of_another_type_or_range_are_not_asked_for(type_: pa.DataType, value: Any) -> None:
    with memory_folder() as folder:
        block = written(folder / "x.parquet", type_, [None])

    assert bloom_bytes(block.columns[0], value) is None


def test_a_decimal_of_more_digits_than_the_column_is_not_there() -> None:
    with memory_folder() as folder:
        block = written(folder / "x.parquet", pa.decimal128(9, 2), [Decimal("1.00")])

    assert bloom_bytes(block.columns[0], Decimal("1.005")) == ()


@pytest.mark.parametrize("size", range(5, 17))
def test_decimals_of_any_length_in_bytes_are_found(size: int) -> None:
    """Other writers take more bytes than the digits need."""
    code = (12345).to_bytes(size, "big", signed=True)

    assert code in (bloom_bytes(ColumnInfo("c", Kind.DECIMAL, 7, 2, 9), Decimal("123.45")) or ())


HEADER_END = b"\x1c\x1c\x00\x00" * 3 + b"\x00"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x15",
        b"\x15\x40",
        b"\x15" + b"\xff" * 31,
        b"\x16\x40" + HEADER_END,
        b"\x15\x42" + HEADER_END,
        b"\x15\x41" + HEADER_END,
        b"\x15\x00" + HEADER_END,
        b"\x15\x40" + b"\x1c\x2c\x00\x00" + HEADER_END[4:],
        b"\x15\x40" + HEADER_END[:-1] + b"\x15",
        b"\x15\x80\x80\x80\x80\x80\x80\x01" + HEADER_END,
        b"PAR1" * 10,
    ],
)
def test_a_header_that_is_not_known_says_perhaps(folder: Path, header: bytes) -> None:
    (folder / "x").write_bytes(b"PAR1" + header + bytes(64))

    assert may_hold(folder / "x", 4, [b"value"])


def test_an_empty_filter_of_the_known_kind_holds_nothing(folder: Path) -> None:
    (folder / "x").write_bytes(b"PAR1" + b"\x15\x40" + HEADER_END + bytes(32))

    assert not may_hold(folder / "x", 4, [b"value"])


@pytest.mark.parametrize("offset", [10_000, 2**48, 2**63, 2**64 - 1])
def test_a_place_beyond_the_file_says_perhaps(folder: Path, offset: int) -> None:
    (folder / "x").write_bytes(b"PAR1")

    assert may_hold(folder / "x", offset, [b"value"])


def test_a_filter_that_is_cut_off_says_perhaps(folder: Path) -> None:
    (folder / "x").write_bytes(b"PAR1" + b"\x15\x40" + HEADER_END + bytes(31))

    assert may_hold(folder / "x", 4, [b"value"])


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(NotFound, match="gone"):
        may_hold(folder / "gone.parquet", 4, [b"value"])
