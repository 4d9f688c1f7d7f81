"""Bounds of other writers count only where they are in the order of their type."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.files.open_parquet import column_orders, footer_of, read_footer
from lithify.files.statistics import believed, doubtful, ranges_of, stats_json
from support.parquet_footers import (
    BINARY,
    COLUMN_ORDERS,
    CREATED_BY,
    LIST,
    STRUCT,
    Fields,
    as_old_writers_did,
    edited,
)

DECIMAL = pa.decimal128(25, 2)
TABLE = pa.table(
    {
        "n": [1, 2, 3],
        "d": pa.array([Decimal("-5.00"), Decimal("3.00"), Decimal("200.00")], DECIMAL),
        "s": ["az", "aé", "b"],
        "b": [b"az", b"a\xc3", b"b"],
        "u": pa.array([1, 2, 2**31 + 5], pa.uint32()),
        "f": [1.5, 2.5, 3.5],
        "t": pa.array([True, False, True]),
        "small": pa.array([Decimal("1.00")] * 3, pa.decimal128(9, 2)),
    }
)
NUMBERS = {"n": True, "d": False, "s": False, "b": False, "u": False, "f": True, "t": True, "small": False}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def written_by(path: Path, created_by: str) -> None:
    def change(footer: Fields) -> None:
        footer[CREATED_BY] = BINARY, created_by.encode()

    edited(path, change)


def named(path: Path) -> dict[str, bool]:
    footer = footer_of(read_footer(path), path)
    return dict(zip(TABLE.column_names, believed(footer), strict=True))


def test_our_own_writer_is_believed(path: Path) -> None:
    assert all(named(path).values())
    assert not doubtful(str(path), path.stat().st_size)


@pytest.mark.parametrize(
    "writer", ["parquet-mr version 1.8.1 (build 4aba)", "parquet-mr version 1.9.0", "impala version 2.0", "", None]
)
def test_without_a_stated_order_only_signed_numbers_are_believed(path: Path, writer: str | None) -> None:
    as_old_writers_did(path, {}, writer)

    assert named(path) == NUMBERS
    assert doubtful(str(path), path.stat().st_size)


@pytest.mark.parametrize(
    ("writer", "right"),
    [
        ("parquet-mr version 1.10.0 (build 031a)", True),
        ("parquet-mr version 1.17.0", True),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("parquet-cpp-arrow version 3.0.0", False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False),
        ("parquet-rs version 58.0.0", True),
        ("parquet-rs version 12.0.0", False),
        ("Polars", False),
        ("ClickHouse v25.1", False),
        ("github.com/parquet-go/parquet-go version 0.32.0(build )", False),
        ("DuckDB version v2.0.0 (build abc)", False),
    ],
)
def test_decimals_in_bytes_are_believed_of_writers_that_compare_them_as_numbers(
    path: Path, writer: str, right: bool
) -> None:
    written_by(path, writer)

    found = named(path)
    assert found["d"] is found["small"] is right
    assert found["n"]
    assert found["f"]
    assert doubtful(str(path), path.stat().st_size) is not right


@pytest.mark.parametrize("writer", ["parquet-rs version 4.2.0", "parquet-rs version 58.0.0", "Polars"])
def test_a_stated_order_is_believed_of_texts_unless_the_writer_is_known_to_be_wrong(path: Path, writer: str) -> None:
    written_by(path, writer)

    assert {named(path)[name] for name in ("s", "b", "u")} == {not writer.endswith("4.2.0")}


def test_int96_is_never_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("us"))}), path, use_deprecated_int96_timestamps=True)

    assert believed(footer_of(read_footer(path), path)) == (False,)
    assert not doubtful(str(path), path.stat().st_size)


@pytest.mark.parametrize("columns", [1, 14, 15, 16, 127, 128, 300])
def test_column_orders_are_found_whatever_their_number(tmp_path: Path, columns: int) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({f"c{i}": [i] for i in range(columns)}), path)

    orders, before = column_orders(read_footer(path))

    assert orders == b"\1" * columns
    assert before.endswith(pq.read_metadata(path).created_by.encode())


def test_an_order_that_is_not_the_type_s_own_is_not_taken_for_it(path: Path) -> None:
    def change(footer: Fields) -> None:
        ours, other = {1: (STRUCT, {})}, {2: (STRUCT, {})}
        footer[COLUMN_ORDERS] = LIST, (STRUCT, [ours, ours, other, ours, ours, ours, ours, ours])

    edited(path, change)

    assert named(path) == {**dict.fromkeys(TABLE.column_names, True), "s": False}


def test_a_footer_that_goes_on_after_its_orders_states_none(path: Path) -> None:
    edited(path, lambda footer: footer.update({9: (BINARY, b"a key's name")}))

    assert named(path) == NUMBERS


def test_the_log_is_told_only_what_is_believed(path: Path) -> None:
    encoded = [(300).to_bytes(11, "big"), (-500).to_bytes(11, "big", signed=True)]
    as_old_writers_did(path, {1: (encoded[1], encoded[0]), 2: ("aé".encode(), b"b")})

    told = json.loads(stats_json(footer_of(read_footer(path), path), TABLE.schema, ["n", "d", "s"]))

    assert told["minValues"] == {"n": 1}
    assert told["maxValues"] == {"n": 3}
    assert told["nullCount"]["d"] == 0


def test_the_order_of_row_groups_is_not_taken_from_bounds_in_another_order(path: Path) -> None:
    assert ranges_of(path, "s") == [("az", "b", 0)]
    as_old_writers_did(path, {2: ("aé".encode(), b"b")}, created_by=None)

    assert ranges_of(path, "s") is None
    assert ranges_of(path, "n") == [(1, 3, 0)]
