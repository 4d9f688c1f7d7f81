"""Bounds by type: what a predicate may rely on is true of every value, whatever the type and however odd the value."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.files.open_parquet import Footer, footer_of
from lithify.index import block_builder
from lithify.index.block import Block, ColumnInfo, parse
from lithify.index.footers import _BOUNDS, NAN_FREE_KEY, Entries, _NumberBounds
from lithify.index.stats import (
    ABSENT,
    DISTINCT_KNOWN,
    HAS_MAX,
    HAS_MIN,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    ColumnStats,
    Kind,
)
from support.sidecars import entries, entry, footer, raw_footer

BOTH = HAS_MIN | HAS_MAX
EXACT = BOTH | MIN_EXACT | MAX_EXACT
CODECS = ["UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"]
ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}


def stats_of(type_: pa.DataType, *groups: list[Any]) -> ColumnStats:
    """Statistics of a column with these row groups, of one size each."""
    column = pa.array([value for group in groups for value in group], type_)
    block = parse(entry("f", pa.table({"c": column}), row_group_size=len(groups[0])))
    found = block.stats("c")
    assert found is not None
    assert len(found.flags) == len(groups)
    return found


def bounds(stats: ColumnStats, group: int) -> tuple[Any, Any]:
    """(lower, upper) as something that orders as the values do; None where there is none."""
    if stats.kind.keyed_by_bytes:
        low, high = stats.full_low(group), stats.full_high(group)
    else:
        low, high = stats.low[group].item(), stats.high[group].item()
    flags = int(stats.flags[group])
    return low if flags & HAS_MIN else None, high if flags & HAS_MAX else None


def flags(stats: ColumnStats) -> list[int]:
    return [int(flag) for flag in stats.flags]


# -- one kind each


@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_negative_numbers_are_below_positive_ones(type_: pa.DataType) -> None:
    stats = stats_of(type_, [-5, -3], [-1, 1], [2, 100])

    assert [bounds(stats, group) for group in range(3)] == [(-5, -3), (-1, 1), (2, 100)]
    assert flags(stats) == [EXACT | NULLS_KNOWN] * 3


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_unsigned_numbers_use_all_their_bits(bits: int) -> None:
    most = 2**bits - 1

    stats = stats_of(getattr(pa, f"uint{bits}")(), [0, most // 2], [most // 2 + 1, most])

    assert [bounds(stats, group) for group in range(2)] == [(0, most // 2), (most // 2 + 1, most)]


@pytest.mark.parametrize(("precision", "kind"), [(1, Kind.DECIMAL), (18, Kind.DECIMAL), (19, Kind.WIDE_DECIMAL)])
def test_decimals_order_by_their_value_through_zero(precision: int, kind: Kind) -> None:
    most = Decimal(10**precision - 1)

    stats = stats_of(pa.decimal128(precision, 0), [-most, Decimal(-1)], [Decimal(-1), Decimal(1)], [Decimal(1), most])

    assert stats.kind is kind
    found = [bounds(stats, group) for group in range(3)]
    lows, highs = [low for low, _ in found], [high for _, high in found]
    assert lows == sorted(lows)
    assert highs == sorted(highs)
    assert (found[0][1], found[1][1]) == (found[1][0], found[2][0])


@pytest.mark.parametrize("as_integer", [False, True])
def test_decimals_read_alike_however_they_are_stored(as_integer: bool) -> None:
    values = pa.array([Decimal("-12.50"), Decimal("99.99")], pa.decimal128(9, 2))

    block = parse(entry("f", pa.table({"c": values}), store_decimal_as_integer=as_integer))

    stats = block.stats("c")
    assert stats is not None
    assert (stats.kind, stats.scale, bounds(stats, 0)) == (Kind.DECIMAL, 2, (-1250, 9999))


def test_decimals_beyond_38_digits_have_no_bounds() -> None:
    stats = stats_of(pa.decimal256(50, 0), [Decimal(1), Decimal(2)])

    assert (stats.kind, bounds(stats, 0)) == (Kind.OTHER, (None, None))


def test_dates_before_1970_are_negative() -> None:
    stats = stats_of(pa.date32(), [date.min, date(1969, 12, 31)], [date(1970, 1, 1), date.max])

    assert bounds(stats, 0) == ((date.min - date(1970, 1, 1)).days, -1)
    assert bounds(stats, 1) == (0, (date.max - date(1970, 1, 1)).days)


@pytest.mark.parametrize(
    ("zone", "kind"), [(None, Kind.TIMESTAMP), ("UTC", Kind.TIMESTAMP_UTC), ("Asia/Tokyo", Kind.TIMESTAMP_UTC)]
)
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_timestamps_of_every_unit_are_microseconds(unit: str, zone: str | None, kind: Kind) -> None:
    stats = stats_of(pa.timestamp(unit, zone), [datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 2)])

    first, last = bounds(stats, 0)
    assert stats.kind is kind
    assert flags(stats) == [EXACT | NULLS_KNOWN]
    assert last - first == 86_401_000_000
    assert zone not in (None, "UTC") or first == -1_000_000


def test_timestamps_of_nanoseconds_are_rounded_outward() -> None:
    stats = stats_of(pa.timestamp("ns"), [-1, 1], [-1000, 1000], [-1001, 1001])

    assert [bounds(stats, group) for group in range(3)] == [(-1, 1), (-1, 1), (-2, 2)]
    assert flags(stats) == [BOTH | NULLS_KNOWN] * 3


def test_milliseconds_beyond_64_bits_of_microseconds_have_no_bound() -> None:
    stats = stats_of(pa.timestamp("ms"), [0, 2**62], [-(2**62), 0])

    assert bounds(stats, 0) in ((0, None), (None, None))
    assert bounds(stats, 1) in ((None, 0), (None, None))


def test_timestamps_of_96_bits_have_no_bounds() -> None:
    table = pa.table({"c": pa.array([1, 2], pa.timestamp("ns"))})

    stats = parse(entry("f", table, use_deprecated_int96_timestamps=True)).stats("c")

    assert stats is not None
    assert (stats.kind, bounds(stats, 0)) == (Kind.OTHER, (None, None))


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_zeros_of_either_sign_are_within_both_bounds(type_: pa.DataType) -> None:
    stats = stats_of(type_, [0.0, 0.0], [-0.0, -0.0], [0.0, 1.0], [-1.0, -0.0])

    assert [str(bounds(stats, group)) for group in range(4)] == [
        "(-0.0, 0.0)",
        "(-0.0, 0.0)",
        "(-0.0, 1.0)",
        "(-1.0, 0.0)",
    ]
    assert [flag & EXACT for flag in flags(stats)] == [BOTH, BOTH, BOTH | MAX_EXACT, BOTH | MIN_EXACT]


def test_nan_is_no_bound_and_nothing_promises_that_there_is_none() -> None:
    stats = stats_of(pa.float64(), [math.nan, 1.0], [math.nan, math.nan], [2.0, 3.0])

    assert [bounds(stats, group) for group in range(3)] == [(1.0, 1.0), (None, None), (2.0, 3.0)]
    assert not any(flag & NAN_FREE for flag in flags(stats))


@pytest.mark.parametrize(
    ("said", "promised"),
    [
        (b'["c"]', True),
        (b'["d"]', False),
        (b"[]", False),
        (b"c", False),
        (b"7", False),
        (b"null", False),
        (b"\xff", False),
    ],
)
def test_only_the_writer_promises_that_no_value_is_nan(said: bytes, promised: bool) -> None:
    table = pa.table({"c": [1.0], "i": [1]}).replace_schema_metadata({NAN_FREE_KEY: said})
    block = parse(entry("f", table))

    assert [bool(flags(block.stats(name))[0] & NAN_FREE) for name in "ci"] == [promised, False]  # type: ignore[arg-type]


def test_infinities_are_bounds() -> None:
    assert bounds(stats_of(pa.float32(), [-math.inf, math.inf]), 0) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    "value", ["", "a", "a\0", "\0", "abcdefgh", "abcdefg\0", "abcdefghi", "é" * 32, "x" * 64, "\0" * 64]
)
def test_texts_of_up_to_64_bytes_are_kept_whole(value: str) -> None:
    stats = stats_of(pa.string(), [value])

    assert bounds(stats, 0) == (value.encode(), value.encode())
    assert flags(stats) == [EXACT | NULLS_KNOWN]


@pytest.mark.parametrize("value", ["x" * 65, "é" * 33, "é" * 1000, "\U0010ffff" * 20])
def test_long_texts_are_cut_to_bounds_that_are_not_exact(value: str) -> None:
    stats = stats_of(pa.string(), [value])

    low, high = bounds(stats, 0)
    assert low < value.encode() < high
    assert (len(low), len(high) <= 64, flags(stats)) == (64, True, [BOTH | NULLS_KNOWN])


def test_bytes_of_ff_alone_have_no_upper_bound_once_they_are_cut() -> None:
    stats = stats_of(pa.binary(), [b"\xff" * 65], [b"\xff" * 64])

    assert [bounds(stats, group) for group in range(2)] == [(b"\xff" * 64, None), (b"\xff" * 64, b"\xff" * 64)]
    assert [flag & EXACT for flag in flags(stats)] == [HAS_MIN, EXACT]


def test_trailing_zero_bytes_are_part_of_a_bound() -> None:
    stats = stats_of(pa.binary(), [b"a"], [b"a\0"], [b"a" + b"\0" * 7], [b"a" + b"\0" * 8], [b""], [b"\0"])

    expected = [b"a", b"a\0", b"a" + b"\0" * 7, b"a" + b"\0" * 8, b"", b"\0"]
    assert [bounds(stats, group) for group in range(6)] == [(value, value) for value in expected]


def test_binaries_of_one_length_have_bounds() -> None:
    assert bounds(stats_of(pa.binary(3), [b"\0\0\0", b"\xff\xff\xff"]), 0) == (b"\0\0\0", b"\xff\xff\xff")


@pytest.mark.parametrize("writer", [b"parquet-cpp-other", b"parquet-mr 1.17.0"])
def test_bounds_of_a_writer_that_may_cut_them_are_not_exact(writer: bytes) -> None:
    raw = raw_footer(pa.table({"s": ["a", "b"], "i": [1, 2]}))
    assert b"parquet-cpp-arrow" in raw
    other = footer_of(raw.replace(b"parquet-cpp-arrow", writer), "a footer")
    gathered = Entries()
    gathered.add(other, "other", 1)
    gathered.add(footer_of(raw, "a footer"), "ours", 1)
    block = parse(gathered.block())

    text, number = block.stats("s"), block.stats("i")
    assert text is not None
    assert number is not None
    assert [flag & EXACT for flag in flags(text)] == [BOTH, EXACT]
    assert [flag & EXACT for flag in flags(number)] == [EXACT, EXACT]


@pytest.mark.parametrize("type_", [pa.time64("us"), pa.float16(), pa.null(), pa.uuid(), pa.json_()], ids=str)
def test_types_whose_order_is_not_known_here_have_no_bounds(type_: pa.DataType) -> None:
    stats = stats_of(type_, [None, None])

    assert (stats.kind, bounds(stats, 0)) == (Kind.OTHER, (None, None))


def test_without_statistics_nothing_is_known() -> None:
    stats = parse(entry("f", pa.table({"c": [1, None]}), write_statistics=False)).stats("c")

    assert stats is not None
    assert flags(stats) == [0]


def test_a_column_that_one_file_lacks_is_absent_there() -> None:
    gathered = Entries()
    gathered.add(*_named(pa.table({"a": [1]}), "one"))
    gathered.add(*_named(pa.table({"a": [2], "b": ["a text longer than its key"]}), "two"))
    gathered.add(*_named(pa.table({"b": ["another text longer than its key"]}), "three"))
    block = parse(gathered.block())

    a, b = block.stats("a"), block.stats("b")
    assert a is not None
    assert b is not None
    assert [bool(flag & ABSENT) for flag in flags(a)] == [False, False, True]
    assert [bool(flag & ABSENT) for flag in flags(b)] == [True, False, False]
    assert [b.full_high(group) for group in (1, 2)] == [
        b"a text longer than its key",
        b"another text longer than its key",
    ]


def _named(table: pa.Table, path: str) -> tuple[Footer, str, int]:
    metadata, size = footer(table)
    return metadata, path, size


def test_a_name_of_two_types_says_nothing() -> None:
    gathered = Entries()
    gathered.add(*_named(pa.table({"a": [1], "b": [1]}), "one"))
    gathered.add(*_named(pa.table({"a": ["x"], "b": [2]}), "two"))
    block = parse(gathered.block())

    assert (block.stats("a"), block.chunks("a")) == (None, None)
    assert block.stats("b") is not None


def test_a_name_that_stands_twice_in_one_file_says_nothing_there_and_shifts_nothing_elsewhere() -> None:
    twice = pa.Table.from_arrays(
        [pa.array(["a text longer than its key"]), pa.array(["z"]), pa.array([7])], ["s", "s", "i"]
    )
    once = pa.table({"s": ["another text longer than its key"], "i": [8]})
    gathered = Entries()
    for number, table in enumerate((twice, once, twice, once)):
        gathered.add(*_named(table, str(number)))
    block = parse(gathered.block())

    stats = block.stats("s")
    assert stats is not None
    assert [bool(flag & ABSENT) for flag in flags(stats)] == [True, False, True, False]
    assert [stats.full_low(group) for group in (1, 3)] == [b"another text longer than its key"] * 2
    of_i = block.stats("i")
    assert of_i is not None
    assert of_i.low.tolist() == [7, 8, 7, 8]


# -- any values


def _timestamps(unit: int) -> st.SearchStrategy[int]:
    return st.integers(-(2**62) // unit, 2**62 // unit)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    # Not by arithmetic, which rounds to 28 digits.
    return st.integers(-most, most).map(lambda number: Decimal(f"{number}e-{scale}"))


def _same(value: Any) -> Any:
    return value


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(least, most) | st.sampled_from([least, most])


LONG = st.integers(0, 80).map(lambda count: "a" * count)
TEXTS = st.text(max_size=12) | LONG | st.tuples(LONG, st.text(max_size=3)).map("".join)
BYTES = (
    st.binary(max_size=12)
    | st.tuples(st.integers(0, 70).map(lambda count: b"\xff" * count), st.binary(max_size=3)).map(b"".join)
    | st.tuples(st.binary(max_size=9), st.integers(0, 70).map(bytes)).map(b"".join)
)
# Type to (values, what a bound of such a value orders by).
ANY: dict[pa.DataType, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    **{getattr(pa, f"int{bits}")(): (_integers(bits, True), _same) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): (_integers(bits, False), _same) for bits in (8, 16, 32, 64)},
    pa.float32(): (st.floats(width=32), _same),
    pa.float64(): (st.floats(), _same),
    pa.bool_(): (st.booleans(), int),
    pa.date32(): (st.dates(), lambda day: (day - date(1970, 1, 1)).days),
    pa.timestamp("ms"): (_timestamps(1000), lambda number: number * 1000),
    pa.timestamp("us"): (_timestamps(1), _same),
    pa.timestamp("us", "UTC"): (_timestamps(1), _same),
    pa.timestamp("ns"): (_timestamps(1), lambda number: number / Decimal(1000)),
    pa.string(): (TEXTS, str.encode),
    pa.large_string(): (TEXTS, str.encode),
    pa.binary(): (BYTES, _same),
    pa.binary(5): (st.binary(min_size=5, max_size=5), _same),
    pa.decimal128(9, 2): (_decimals(9, 2), lambda number: int(number.scaleb(2))),
    pa.decimal128(18, 6): (_decimals(18, 6), lambda number: int(number.scaleb(6))),
    pa.decimal128(38, 0): (_decimals(38, 0), lambda number: (int(number) + 2**127).to_bytes(16, "big")),
}


# A table, its values by column, rows per row group.
Drawn = tuple[pa.Table, dict[str, list[Any]], int]


@st.composite
def tables(draw: st.DrawFn) -> Drawn:
    rows, size = draw(st.integers(0, 8)), draw(st.integers(1, 4))
    chosen = draw(st.lists(st.sampled_from(list(ANY)), min_size=1, max_size=4))
    values = {
        f"c{number}": draw(st.lists(st.none() | ANY[type_][0], min_size=rows, max_size=rows))
        for number, type_ in enumerate(chosen)
    }
    arrays = {name: pa.array(column, type_) for (name, column), type_ in zip(values.items(), chosen, strict=True)}
    return pa.table(arrays), values, size


@settings(max_examples=150, deadline=None)
@given(tables())
def test_every_value_lies_within_its_bounds_and_exact_ones_occur(drawn: Drawn) -> None:
    table, values, size = drawn
    block = parse(entry("f", table, row_group_size=size))
    for name, column in values.items():
        order = ANY[table.schema.field(name).type][1]
        stats = block.stats(name)
        assert stats is not None
        for group in range(block.groups):
            of_group = column[group * size : (group + 1) * size]
            there = [order(v) for v in of_group if v is not None and v == v]
            low, high = bounds(stats, group)
            flag = int(stats.flags[group])
            assert flag & NULLS_KNOWN or not of_group
            assert stats.nulls[group] == of_group.count(None)
            assert low is None or all(low <= value for value in there)
            assert high is None or all(value <= high for value in there)
            assert not flag & MIN_EXACT or low == min(there)
            assert not flag & MAX_EXACT or high == max(there)
            assert low is not None or not there
            assert high is not None or not there or stats.kind is Kind.BINARY


@settings(max_examples=100, deadline=None)
@given(tables(), st.sampled_from(["NONE", "SNAPPY", "ZSTD", "GZIP"]), st.booleans(), st.data())
def test_a_block_says_what_the_footer_says(drawn: Drawn, codec: str, dictionary: bool, more: st.DataObject) -> None:
    table, _, row_group_size = drawn
    ordered = more.draw(st.lists(st.sampled_from(range(table.num_columns)), unique=True))
    metadata, size = footer(
        table,
        row_group_size=row_group_size,
        compression=codec,
        use_dictionary=dictionary,
        sorting_columns=[pq.SortingColumn(n, more.draw(st.booleans()), more.draw(st.booleans())) for n in ordered],
    )
    gathered = Entries()
    gathered.add(metadata, "first", size)
    gathered.add(metadata, "a path", size)
    whole = parse(gathered.block())
    for block in (whole, parse(block_builder.merge([(whole, np.array([False, True]))]))):
        assert_says(block, metadata.metadata, size)


def assert_says(block: Block, metadata: pq.FileMetaData, size: int) -> None:
    found_size, footer_bytes, rows, groups = entries(block)["a path"]
    assert (found_size, footer_bytes, rows) == (size, metadata.serialized_size, metadata.num_rows)
    assert len(groups) == metadata.num_row_groups
    for number, ((group_rows, group_bytes, group_raw_bytes), columns) in enumerate(groups):
        group = metadata.row_group(number)
        chunks = [group.column(column) for column in range(group.num_columns)]
        assert (group_rows, group_raw_bytes) == (group.num_rows, group.total_byte_size)
        assert group_bytes == sum(chunk.total_compressed_size for chunk in chunks)
        by_name = {info.name: figures for info, (figures, _, _) in columns.items()}
        sorts = {
            s.column_index: 4 * n + 2 * s.nulls_first + s.descending for n, s in enumerate(group.sorting_columns, 1)
        }
        for column, chunk in enumerate(chunks):
            flag, _, _, nulls, offset, packed, raw, values, distinct, codec, encodings, bloom, bloom_bytes, sort = (
                by_name[chunk.path_in_schema]
            )
            assert sort == sorts.get(column, 0)
            offsets = (chunk.data_page_offset, chunk.dictionary_page_offset)
            assert offset == min(column for column in offsets if column is not None)
            assert (packed, raw, values) == (
                chunk.total_compressed_size,
                chunk.total_uncompressed_size,
                chunk.num_values,
            )
            assert CODECS[codec] == chunk.compression
            assert encodings == sum(1 << ENCODINGS[name] for name in set(chunk.encodings))
            assert (bloom, bloom_bytes) == (chunk.bloom_filter_offset or 0, chunk.bloom_filter_length or 0)
            statistics = chunk.statistics
            assert bool(flag & NULLS_KNOWN) == (statistics is not None and statistics.has_null_count)
            assert nulls == (statistics.null_count if flag & NULLS_KNOWN else 0)
            assert bool(flag & DISTINCT_KNOWN) == (statistics is not None and statistics.has_distinct_count)
            assert distinct == (statistics.distinct_count if flag & DISTINCT_KNOWN else 0)


# -- statistics that cannot be trusted


@pytest.mark.parametrize("key", ["org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"])
def test_days_and_moments_of_another_calendar_have_no_bounds(key: str) -> None:
    rows = pa.table({"d": pa.array([date(1200, 1, 1)]), "t": pa.array([datetime(1200, 1, 1)]), "n": pa.array([7])})

    block = parse(entry("f", rows.replace_schema_metadata({key: ""})))

    found = {name: block.stats(name) for name in ("d", "t", "n")}
    assert [flags(stats)[0] & BOTH for stats in found.values() if stats is not None] == [0, 0, BOTH]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (Kind.SIGNED, 2, 1),
        (Kind.UNSIGNED, -1, 1),
        (Kind.FLOAT, 2.0, 1.0),
        (Kind.FLOAT, math.nan, 1.0),
        (Kind.TEXT, b"b", b"a"),
        (Kind.DECIMAL, 2, 1),
        (Kind.WIDE_DECIMAL, 2, 1),
        (Kind.TIMESTAMP, 2, 1),
    ],
)
def test_bounds_the_wrong_way_round_say_nothing(kind: Kind, low: Any, high: Any) -> None:
    gathered = _BOUNDS.get(kind, _NumberBounds)(ColumnInfo("c", kind, 2, scale=6))

    assert gathered is not None
    assert gathered.add(low, high, True) & BOTH == 0
