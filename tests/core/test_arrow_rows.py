"""Rows taken in pieces are the rows that Arrow would take at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.arrow_rows import order_of, sort_by, take

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string()), ("words", pa.list_(pa.string()))])
texts = st.none() | st.text("aé𝛼", max_size=9)
rows = st.lists(st.tuples(st.integers(0, 5), texts, st.none() | st.lists(texts, max_size=3)), max_size=8)


def table_of(chunks: list[list[tuple[Any, ...]]]) -> pa.Table:
    tables = [pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in c], SCHEMA) for c in chunks]
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


@given(chunks=st.lists(rows, max_size=5), bytes_max=st.sampled_from([1, 20, 60, 200, 10**9]), data=st.data())
def test_any_rows_are_taken_in_the_order_asked_for(
    chunks: list[list[tuple[Any, ...]]], bytes_max: int, data: st.DataObject
) -> None:
    table = table_of(chunks)
    numbers = st.integers(0, max(table.num_rows - 1, 0))
    drawn = st.lists(numbers, max_size=20) | st.permutations(range(table.num_rows))
    lines = np.array(data.draw(drawn) if table.num_rows else [], np.int64)

    taken = take(table, lines, bytes_max)

    taken.validate(full=True)
    assert taken.schema == SCHEMA
    assert taken.to_pylist() == [table.slice(line, 1).to_pylist()[0] for line in lines]


@pytest.mark.parametrize("sizes", [[100] * 40, [1] * 30 + [1_000] * 10], ids=["even", "a few large rows"])
def test_no_piece_is_much_larger_than_allowed(sizes: list[int]) -> None:
    table = pa.table({"k": range(40), "text": ["x" * size for size in sizes]})
    backwards = np.arange(40)[::-1]

    taken = take(table, backwards, piece_bytes_max=1_500)

    assert taken.equals(table.take(pa.array(backwards)))
    assert max(chunk.nbytes for chunk in taken.column("text").chunks) <= 3_000
    assert taken.column("text").num_chunks > 1


def test_sorting_puts_nothing_larger_than_a_piece_together() -> None:
    table = pa.table({"a": [2, 1, 2, 1], "b": ["y", "x", "w", "z"], "text": ["t" * 100] * 4})

    ordered = sort_by(table, ["a", "b"], piece_bytes_max=150)

    assert order_of(table, ["a", "b"]).tolist() == [1, 3, 2, 0]
    assert ordered.to_pylist() == table.take([1, 3, 2, 0]).to_pylist()
    assert ordered.column("text").num_chunks > 1


def test_rows_that_stay_where_they_are_are_not_copied() -> None:
    table = pa.table({"text": pa.chunked_array([["a", "b"], ["c"]])})
    assert take(table, np.arange(3), piece_bytes_max=1) is table
