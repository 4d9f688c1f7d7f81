"""The fingerprint of rows: blind to their order, and to nothing else."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.files.key_checksum import added, columns_to_check, fingerprint

texts = st.one_of(st.none(), st.text(max_size=20))
rows = st.lists(st.tuples(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), texts), max_size=20)


def table_of(lines: list[tuple[Any, Any]]) -> pa.Table:
    return pa.table(
        {"i": pa.array([i for i, _ in lines], pa.int64()), "s": pa.array([s for _, s in lines], pa.string())}
    )


@given(rows, st.randoms(use_true_random=False))
def test_order_and_grouping_do_not_matter(lines: list[tuple[Any, Any]], random: Any) -> None:
    whole = fingerprint(table_of(lines), ["i", "s"])
    shuffled = list(lines)
    random.shuffle(shuffled)
    cut = random.randint(0, len(lines))

    assert fingerprint(table_of(shuffled), ["i", "s"]) == whole
    assert (
        added(
            [
                fingerprint(table_of(lines).slice(0, cut), ["i", "s"]),
                fingerprint(table_of(lines).slice(cut), ["i", "s"]),
            ]
        )
        == whole
    )


@given(rows.filter(bool), st.tuples(st.integers(0, 100), st.text(max_size=20)), st.data())
def test_a_lost_doubled_or_changed_row_shows(
    lines: list[tuple[Any, Any]], other: tuple[Any, Any], data: st.DataObject
) -> None:
    line = data.draw(st.integers(0, len(lines) - 1))
    whole = fingerprint(table_of(lines), ["i", "s"])

    assert fingerprint(table_of(lines[:line] + lines[line + 1 :]), ["i", "s"]) != whole
    assert fingerprint(table_of([*lines, lines[line]]), ["i", "s"]) != whole
    if lines[line] != other:
        assert fingerprint(table_of([*lines[:line], other, *lines[line + 1 :]]), ["i", "s"]) != whole


def test_values_swapped_between_rows_show() -> None:
    assert fingerprint(table_of([(1, "a"), (2, "b")]), ["i", "s"]) != fingerprint(
        table_of([(1, "b"), (2, "a")]), ["i", "s"]
    )


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["", "abcdefgh", "abcdefghi", None, "é", "\0", "\0\0"]),
        pa.array([b"x", None, b"", b"\0", b"\0\0"]),
        pa.array([Decimal("1.10"), None, Decimal("-5"), Decimal(0)], pa.decimal128(20, 2)),
        pa.array([dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)]),
        pa.array([dt.datetime(2020, 1, 1), None, dt.datetime(2020, 1, 2)], pa.timestamp("us", "UTC")),
        pa.array([1, 2, None, -1], pa.int16()),
        pa.array([True, False, None]),
    ],
    ids=lambda values: str(values.type),
)
def test_every_type_tells_its_values_apart(values: pa.Array) -> None:
    assert len({fingerprint(pa.table({"c": values.slice(i, 1)}), ["c"]) for i in range(len(values))}) == len(values)


def test_a_table_with_no_key_is_checked_by_its_first_plain_columns() -> None:
    schema = pa.schema([("f", pa.float64()), ("l", pa.list_(pa.int64())), ("a", pa.int64()), ("b", pa.string())])

    assert columns_to_check(schema, ()) == ["a", "b"]
    assert columns_to_check(schema, ("b",)) == ["b"]
