"""Values to JSON and back."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lithify.cli.decode import decode
from lithify.cli.values import cell, human_bytes, human_seconds
from lithify.core.json_out import dumps, jsonable
from lithify.errors import InvalidRequest

TIME = dt.datetime(2026, 11, 15, 12, 0, 0, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "spelled", "kind"),
    [
        (None, None, pa.int64()),
        (True, True, pa.bool_()),
        (2**53, 2**53, pa.int64()),
        (2**53 + 1, "9007199254740993", pa.int64()),
        (-(2**63), "-9223372036854775808", pa.int64()),
        (1.5, 1.5, pa.float64()),
        (float("inf"), "Infinity", pa.float64()),
        (float("-inf"), "-Infinity", pa.float64()),
        (b"\x00\xff", "AP8=", pa.binary()),
        ("ü", "ü", pa.string()),
        ([b"\x01", None], ["AQ==", None], pa.list_(pa.binary())),
        ({"a": Decimal("1.50")}, {"a": "1.50"}, pa.struct([("a", pa.decimal128(5, 2))])),
        ([TIME], ["2026-11-15T12:00:00.000005+00:00"], pa.list_(pa.timestamp("us", "UTC"))),
        ([dt.date(2026, 1, 2)], ["2026-01-02"], pa.list_(pa.date32())),
        ([("k", 2**60)], [["k", str(2**60)]], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_round_trip(value: Any, spelled: Any, kind: pa.DataType) -> None:
    assert jsonable(value) == spelled
    assert decode(json.loads(dumps(value)), kind, "here") == value


def test_nan_is_text_and_comes_back() -> None:
    assert jsonable(float("nan")) == "NaN"
    assert str(decode("NaN", pa.float64(), "here")) == "nan"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal("1.5"), pa.int64()),
        (Decimal("1e999999999"), pa.int64()),
        (Decimal("1e999999999"), pa.decimal128(10, 2)),
        (Decimal("1e400"), pa.float64()),
        ("not base64!", pa.binary()),
        ({"other": 1}, pa.struct([("a", pa.int64())])),
        ([["only key"]], pa.map_(pa.string(), pa.int64())),
        (["2026-99-99"], pa.list_(pa.date32())),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match=r"^here"):
        decode(value, kind, "here")


def test_a_whole_number_with_a_point_is_an_integer() -> None:
    assert decode(Decimal("3.0"), pa.int64(), "here") == 3


def test_a_map_takes_an_object_with_text_keys() -> None:
    assert decode({"1": "a"}, pa.map_(pa.int64(), pa.string()), "here") == [(1, "a")]


def test_a_cell_is_one_harmless_line() -> None:
    assert cell("a\nb\x1b[31m") == r"a\nb\x1b[31m"
    assert cell("x" * 100).endswith("…")
    assert len(cell("x" * 100)) == 60
    assert cell(None) == ""


def test_human_units() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 5 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [human_seconds(s) for s in (0.0012, 0.25, 3.14, 300)] == ["1.2 ms", "250 ms", "3.1 s", "5.0 min"]
