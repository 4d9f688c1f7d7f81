"""Golden files: what was written once is read to the same values for ever, and the document shows one as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lithify.index.block import Block
from lithify.index.format import TAGGED, Array
from lithify.index.reader import Sidecar
from lithify.index.sort_orders import SortColumn, orders_of
from lithify.index.stats import (
    DISTINCT_KNOWN,
    HAS_MAX,
    HAS_MIN,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    Kind,
    wide_decimal_bytes,
)
from support import golden_sidecars
from support.golden_sidecars import FILE_ID, FORMAT, GOLDEN, NAMES
from support.sidecars import TABLE_ID, states

BOTH = HAS_MIN | HAS_MAX
EXACT = BOTH | MIN_EXACT | MAX_EXACT
DAY_MICROSECONDS = 86_400_000_000


def the_block(name: str) -> Block:
    (live,) = Sidecar.open(GOLDEN / f"{name}.pm", TABLE_ID).view().blocks
    return live.block


@pytest.mark.parametrize("name", NAMES)
def test_the_writer_still_writes_the_golden_file(name: str, folder: Path) -> None:
    golden_sidecars.build(folder)

    assert (folder / f"{name}.pm").read_bytes() == (GOLDEN / f"{name}.pm").read_bytes()


def test_the_document_shows_the_golden_file() -> None:
    assert FORMAT.read_text().endswith("\n\n" + golden_sidecars.example()), golden_sidecars.__doc__


def test_a_file_of_one_version_reads_as_it_was_written() -> None:
    sidecar = Sidecar.open(GOLDEN / "plain.pm", TABLE_ID)
    block = the_block("plain")

    assert (sidecar.version, sidecar.versions(), sidecar.file_id, sidecar.features) == (7, [7], FILE_ID, TAGGED)
    assert (sidecar.head.end, sidecar.view().dead_share) == ((GOLDEN / "plain.pm").stat().st_size, 0)
    assert (block.paths.to_pylist(), block.sizes.tolist(), block.footer_bytes.tolist()) == (
        ["part-0.parquet"],
        [4014],
        [(GOLDEN / "plain.footer").stat().st_size],
    )
    assert (block.rows.tolist(), block.first_group.tolist(), block.group_rows.tolist()) == ([4], [0, 2], [2, 2])
    assert (block.group_bytes.tolist(), block.group_raw_bytes.tolist()) == ([198, 167], [190, 159])


def test_chunks_read_as_they_were_written() -> None:
    chunks = the_block("plain").chunks("name")

    assert chunks is not None
    found = {name: array.tolist() for name, array in vars(chunks).items()}
    assert found == {
        "offset": [110, 308],
        "bytes": [92, 61],
        "raw_bytes": [88, 57],
        "values": [2, 2],
        "distinct": [0, 0],
        "codec": [1, 1],
        "encodings": [1 << 0 | 1 << 3 | 1 << 8] * 2,
        "bloom_offset": [369, 416],
        "bloom_bytes": [47, 47],
    }


def test_a_chain_reads_as_it_was_written() -> None:
    found = states(Sidecar.open(GOLDEN / "chain.pm", TABLE_ID))

    assert {version: sorted(files) for version, files in found.items()} == {
        5: ["a2.parquet", "b.parquet"],
        2: ["a2.parquet", "b.parquet", "c.parquet"],
        1: ["a.parquet", "b.parquet"],
    }
    assert found[1]["b.parquet"] == found[2]["b.parquet"] == found[5]["b.parquet"]


def test_an_order_reads_as_it_was_written() -> None:
    block = the_block("ordered")

    assert {c.name: block.chunk_array(n, Array.SORT).tolist() for n, c in enumerate(block.columns)} == {
        "at": [4 * 2 + 2 + 1] * 2,
        "city": [4 * 1] * 2,
    }
    assert orders_of(block, np.ones(1, np.bool_)) == {(SortColumn("city"), SortColumn("at", True, True)): 1}


def test_blocks_from_before_orders_were_recorded_know_none() -> None:
    assert [orders_of(the_block(name), np.ones(1, np.bool_)) for name in ("plain", "types")] == [{(): 1}] * 2


WIDE = {number: wide_decimal_bytes(number) for number in (-(10**37), 10**37, -5 * 10**9, 5 * 10**9)}
# Per row group: flags but for the number of nulls, which is always known; nulls; lower and upper bound.
EXPECTED: dict[str, tuple[Kind, list[tuple[int, int, Any, Any]]]] = {
    "i8": (Kind.SIGNED, [(EXACT, 0, -128, 5), (EXACT, 1, -7, -7)]),
    "i16": (Kind.SIGNED, [(EXACT, 0, -32768, -1), (EXACT, 0, -2, 3)]),
    "i32": (Kind.SIGNED, [(EXACT, 0, -(2**31), 2**31 - 1), (EXACT, 0, 0, 0)]),
    "i64": (Kind.SIGNED, [(EXACT, 0, -(2**63), 2**63 - 1), (EXACT, 0, -1, 1)]),
    "u8": (Kind.UNSIGNED, [(EXACT, 0, 200, 255), (EXACT, 0, 0, 1)]),
    "u16": (Kind.UNSIGNED, [(EXACT, 0, 40000, 65535), (EXACT, 0, 7, 7)]),
    "u32": (Kind.UNSIGNED, [(EXACT, 0, 1, 2**32 - 1), (EXACT, 0, 2**31, 2**31 + 1)]),
    "u64": (Kind.UNSIGNED, [(EXACT, 0, 1, 2**64 - 1), (EXACT, 0, 2**63, 2**63 + 1)]),
    "f32": (Kind.FLOAT, [(BOTH | MAX_EXACT, 0, "-0.0", "1.5"), (EXACT, 0, "-2.5", "-2.5")]),
    "f64": (Kind.FLOAT, [(BOTH | MIN_EXACT, 0, "-1.0", "0.0"), (0, 0, None, None)]),
    "flag": (Kind.BOOLEAN, [(EXACT, 0, 0, 0), (EXACT, 1, 1, 1)]),
    "day": (Kind.DATE, [(EXACT, 0, -1, 19782), (0, 2, None, None)]),
    "at_ms": (Kind.TIMESTAMP, [(EXACT, 0, -1_000_000, DAY_MICROSECONDS), (0, 2, None, None)]),
    "at_us": (Kind.TIMESTAMP, [(EXACT, 0, -62135596800_000_000, 253402214400_000_000), (EXACT, 1, 0, 0)]),
    "at_ns": (Kind.TIMESTAMP, [(BOTH, 0, -1, 1), (BOTH, 0, 1, 2)]),
    "at_utc": (
        Kind.TIMESTAMP_UTC,
        [(EXACT, 0, 1704067200_000_000, 1735689600_000_000), (EXACT, 1, -315619200_000_000, -315619200_000_000)],
    ),
    "dec9": (Kind.DECIMAL, [(EXACT, 0, -125, 350), (EXACT, 1, 0, 0)]),
    "dec18": (Kind.DECIMAL, [(EXACT, 0, -999_999_999_999_999_999, 1), (0, 2, None, None)]),
    "dec38": (
        Kind.WIDE_DECIMAL,
        [(EXACT, 0, WIDE[-(10**37)], WIDE[10**37]), (EXACT, 0, WIDE[-5 * 10**9], WIDE[5 * 10**9])],
    ),
    "text": (
        Kind.TEXT,
        [(EXACT, 0, b"", b"abcdefgh"), (BOTH | MIN_EXACT, 0, b"abcdefghi", (b"long " * 13)[:63] + b"h")],
    ),
    "bytes": (
        Kind.BINARY,
        [(HAS_MIN | MIN_EXACT, 0, b"a\0", None), (EXACT, 0, b"\0", b"\xff" * 64)],
    ),
    "fixed": (Kind.BINARY, [(EXACT, 0, b"\0\0\0\0", b"\xff" * 4), (EXACT, 0, b"abcd", b"abcd")]),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_bounds_of_every_type_read_as_they_were_written(name: str) -> None:
    stats = the_block("types").stats(name)

    assert stats is not None

    def shown(bounds: Any, full: Any, flag: int, group: int) -> Any:
        if not stats.flags[group] & flag:
            return None
        if stats.kind.keyed_by_bytes:
            return full(group)
        return repr(float(bounds[group])) if stats.kind is Kind.FLOAT else int(bounds[group])

    kind, expected = EXPECTED[name]
    assert stats.kind is kind
    assert all(flags & NULLS_KNOWN and not flags & (DISTINCT_KNOWN | NAN_FREE) for flags in stats.flags)
    assert [
        (
            int(stats.flags[group]) & EXACT,
            int(stats.nulls[group]),
            shown(stats.low, stats.full_low, HAS_MIN, group),
            shown(stats.high, stats.full_high, HAS_MAX, group),
        )
        for group in range(2)
    ] == expected


@pytest.mark.parametrize("name", ["part.of", "many.list.element"])
def test_nothing_is_known_of_parts_of_nested_columns(name: str) -> None:
    block = the_block("types")

    assert name in {column.name for column in block.columns}
    assert block.stats(name) is None


def test_a_type_without_an_order_of_ours_has_no_bounds() -> None:
    stats = the_block("types").stats("time")

    assert stats is not None
    assert stats.kind is Kind.OTHER
    assert [flags & BOTH for flags in stats.flags] == [0, 0]
    assert stats.nulls.tolist() == [0, 1]
