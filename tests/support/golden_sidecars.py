"""Sidecars whose every byte is known, kept in tests/index/golden, and what they were made of.

They are made of Parquet footers that lie there too, so that no other version of a Parquet writer changes them. After a
change of the format: `cd tests && python -m support.golden_sidecars` writes sidecars and the example in
docs/format.md anew (`--footers`: footers that are missing, or named behind it); then look at what differs.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from lithify.files.local import LocalStorage
from lithify.files.open_parquet import footer_of
from lithify.index import writer
from lithify.index.footers import entry_of
from support.folders import memory_folder
from support.sidecar_dump import annotated
from support.sidecars import TABLE_ID, raw_footer

GOLDEN = Path(__file__).parents[1] / "index" / "golden"
FORMAT = Path(__file__).parents[2] / "docs" / "format.md"
EXAMPLE_TITLE = "## Example\n"
NAMES = ("plain", "chain", "types", "ordered")
FILE_ID = 0x0123456789ABCDEF
_LONG = "long " * 20


def _utc(*at: int) -> dt.datetime:
    return dt.datetime(*at, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


# Two row groups of two rows.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, 5, -7, None]),
    "i16": (pa.int16(), [-32768, -1, -2, 3]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, 0, 0]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, -1, 1]),
    "u8": (pa.uint8(), [200, 255, 0, 1]),
    "u16": (pa.uint16(), [40000, 65535, 7, 7]),
    "u32": (pa.uint32(), [1, 2**32 - 1, 2**31, 2**31 + 1]),
    "u64": (pa.uint64(), [1, 2**64 - 1, 2**63, 2**63 + 1]),
    "f32": (pa.float32(), [0.0, 1.5, -2.5, math.nan]),
    "f64": (pa.float64(), [-1.0, -0.0, math.nan, math.nan]),
    "flag": (pa.bool_(), [False, False, True, None]),
    "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None, None]),
    "at_ms": (pa.timestamp("ms"), [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 2), None, None]),
    "at_us": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), dt.datetime(1970, 1, 1), None]),
    "at_ns": (pa.timestamp("ns"), [-1, 1, 1000, 1001]),
    "at_utc": (pa.timestamp("us", "UTC"), [_utc(2024, 1, 1), _utc(2025, 1, 1), None, _utc(1960, 1, 1)]),
    "dec9": (pa.decimal128(9, 2), [Decimal("-1.25"), Decimal("3.50"), Decimal(0), None]),
    "dec18": (pa.decimal128(18, 3), [Decimal("-999999999999999.999"), Decimal("0.001"), None, None]),
    "dec38": (pa.decimal128(38, 10), [Decimal(-(10**27)), Decimal(10**27), Decimal("-0.5"), Decimal("0.5")]),
    "text": (pa.string(), ["", "abcdefgh", "abcdefghi", _LONG]),
    "bytes": (pa.binary(), [b"a\0", b"\xff" * 70, b"\0", b"\xff" * 64]),
    "fixed": (pa.binary(4), [b"\0\0\0\0", b"\xff\xff\xff\xff", b"abcd", b"abcd"]),
    "part": (pa.struct([("of", pa.int64())]), [{"of": 1}, {"of": 2}, None, {"of": 3}]),
    "many": (pa.list_(pa.string()), [["a", "b"], [], None, ["c"]]),
    "time": (pa.time64("us"), [dt.time(1), dt.time(2), dt.time(3), None]),
}


def types_table() -> pa.Table:
    return pa.table({name: pa.array(values, type_) for name, (type_, values) in TYPES.items()})


def _tables() -> dict[str, tuple[pa.Table, dict[str, Any]]]:
    plain = {"id": [1, 2, 3, 10], "name": ["ada", "grace hopper", None, "x"]}
    return {
        "plain": (pa.table(plain), {"row_group_size": 2, "bloom_filter_options": {"name": {"ndv": 8}}}),
        "more": (pa.table({"id": [-5, 5], "extra": [True, None]}), {}),
        "types": (types_table(), {"row_group_size": 2}),
        "ordered": (
            pa.table({"at": [4, 2, 1, 3], "city": ["a", "b", "b", None]}),
            {"row_group_size": 2, "sorting_columns": [pq.SortingColumn(1), pq.SortingColumn(0, True, True)]},
        ),
    }


@functools.cache
def block(source: str, path: str) -> bytes:
    """The entry of a golden footer."""
    footer = footer_of((GOLDEN / f"{source}.footer").read_bytes(), "a footer")
    return entry_of(footer, path, 4_000 + len(path), tag=0xE7A6 if source == "more" else 0)


def build(folder: Path) -> None:
    """All golden sidecars, into a folder."""
    store = LocalStorage()
    with mock.patch("secrets.randbits", return_value=FILE_ID):
        writer.create(store, folder / "plain.pm", TABLE_ID, 7, [block("plain", "part-0.parquet")])
        writer.create(store, folder / "types.pm", TABLE_ID, 0, [block("types", "all types.parquet")])
        writer.create(store, folder / "ordered.pm", TABLE_ID, 3, [block("ordered", "o.parquet")])
        build_chain(folder / "chain.pm")


def build_chain(path: Path) -> None:
    """Three versions: two files; one of them replaced, one added; one removed. Between them what a dead writer left."""
    store = LocalStorage()
    with mock.patch("secrets.randbits", return_value=FILE_ID):
        both = writer.merge(
            [(writer.parse(block("plain", "a.parquet")), None), (writer.parse(block("more", "b.parquet")), None)]
        )
        writer.create(store, path, TABLE_ID, 1, [both])
        with path.open("ab") as file:
            file.write(b"PMFT died here")
        added = [block("plain", "a2.parquet"), block("more", "c.parquet")]
        writer.append(store, path, TABLE_ID, 2, added, ["a.parquet"])
        writer.append(store, path, TABLE_ID, 5, [], ["c.parquet"])


def example() -> str:
    """The last section of docs/format.md."""
    return (
        f"{EXAMPLE_TITLE}\n"
        "One Parquet file of two row groups and two columns, `id` (int64: 1 and 2, then 3 and 10) and `name` (text\n"
        "with a bloom filter: `ada` and `grace hopper`, then null and `x`): `tests/index/golden/plain.pm`, byte for\n"
        "byte.\n\n"
        f"```\n{annotated((GOLDEN / 'plain.pm').read_bytes())}```\n"
    )


def main() -> None:
    if "--footers" in sys.argv:
        for name, (table, options) in _tables().items():
            if (GOLDEN / f"{name}.footer").exists() and name not in sys.argv:
                continue
            (GOLDEN / f"{name}.footer").write_bytes(raw_footer(table, store_schema=False, **options))
    with memory_folder() as folder:
        build(folder)
        for name in NAMES:
            (GOLDEN / f"{name}.pm").write_bytes((folder / f"{name}.pm").read_bytes())
    text, _, _ = FORMAT.read_text().partition(EXAMPLE_TITLE)
    FORMAT.write_text(text.rstrip("\n") + "\n\n" + example())


if __name__ == "__main__":
    main()
