"""Which rows are those that are there already: told value by value, and compared with what Python says."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core.same_rows import same_rows, same_values

NAN = float("nan")
OTHER_NAN = np.frombuffer(np.uint64(0x7FF8000000000001).tobytes(), np.float64)[0]
PAIRS: list[tuple[pa.DataType, Any, Any, bool]] = [
    (pa.int64(), 1, 1, True),
    (pa.int64(), 1, 2, False),
    (pa.int64(), None, None, True),
    (pa.int64(), None, 0, False),
    (pa.float64(), NAN, OTHER_NAN, True),
    (pa.float64(), NAN, None, False),
    (pa.float64(), 0.0, -0.0, False),
    (pa.float64(), None, 0.0, False),
    (pa.float32(), 0.5, 0.5, True),
    (pa.bool_(), True, True, True),
    (pa.bool_(), True, False, False),
    (pa.string(), "", None, False),
    (pa.string(), "é", "é", True),
    (pa.binary(), b"\0", b"\0", True),
    (pa.decimal128(9, 2), Decimal("1.10"), Decimal("1.10"), True),
    (pa.date32(), dt.date(2026, 11, 16), dt.date(2026, 11, 17), False),
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), True),
    (pa.list_(pa.int64()), [], [], True),
    (pa.list_(pa.int64()), [], None, False),
    (pa.list_(pa.int64()), [1, None], [1, None], True),
    (pa.list_(pa.int64()), [1, 2], [2, 1], False),
    (pa.list_(pa.int64()), [1], [1, 1], False),
    (pa.list_(pa.float64()), [NAN], [NAN], True),
    (pa.list_(pa.list_(pa.int64())), [[1], []], [[1], []], True),
    (pa.list_(pa.list_(pa.int64())), [[1], []], [[], [1]], False),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1, "b": None}, {"a": 1, "b": None}, True),
    (pa.struct([("a", pa.int64())]), {"a": None}, None, False),
    (pa.struct([("a", pa.int64())]), {"a": 1}, {"a": 2}, False),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 1)], True),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 2)], False),
    (pa.map_(pa.string(), pa.int64()), [("a", None)], [], False),
]


@pytest.mark.parametrize(("kind", "a", "b", "same"), PAIRS)
def test_two_values(kind: pa.DataType, a: Any, b: Any, same: bool) -> None:
    # Others stand around them, and a slice begins in the middle.
    left, right = (pa.array([None, value, value, None], kind).slice(1, 2) for value in (a, b))
    assert same_values(left, right).tolist() == [same, same]
    assert same_values(right, left).tolist() == [same, same]


lists = st.none() | st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.5, NAN]), max_size=3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(lists, lists), max_size=8))
def test_lists_as_python_compares_them(pairs: list[tuple[Any, Any]]) -> None:
    def exact(value: Any) -> Any:
        return "nan" if value is not None and math.isnan(value) else str(value)

    def told(value: Any) -> Any:
        return None if value is None else list(map(exact, value))

    a, b = (pa.array([pair[side] for pair in pairs], pa.list_(pa.float64())) for side in (0, 1))
    assert same_values(a, b).tolist() == [told(x) == told(y) for x, y in pairs]


def test_rows_are_found_by_their_key_and_compared_in_all_other_columns() -> None:
    rows = pa.table({"id": [3, 1, 2, 9], "v": ["c", "a", None, "x"], "w": [1.0, NAN, 2.0, None]})
    there = pa.table({"id": [1, 2, 3, 4], "v": ["a", None, "C", "d"], "w": [NAN, 2.0, 1.0, None]})
    assert same_rows(rows, there, ["id"]).tolist() == [False, True, True, False]
    assert same_rows(rows, there.slice(0, 0), ["id"]).tolist() == [False] * 4
    assert same_rows(rows.select(["id"]), there.select(["id"]), ["id"]).tolist() == [True, True, True, False]
