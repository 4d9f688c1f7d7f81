"""Strings as views: they show what they were made of, and keep no more of it than that."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.cache.strings import VIEW, as_views, plain, plain_array

TEXTS = st.lists(st.none() | st.text(max_size=3) | st.text("ab", min_size=10, max_size=30), max_size=30)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from(["strings", "dictionary", "views"]), st.integers(0, 3), st.integers(0, 3))
def test_views_show_what_they_were_made_of(texts: list[Any], kept: str, before: int, behind: int) -> None:
    values = pa.array(texts, pa.string())
    values = values.dictionary_encode() if kept == "dictionary" else values.cast(VIEW) if kept == "views" else values
    piece = values.slice(before, max(len(values) - before - behind, 0))

    views = as_views(piece)

    views.validate(full=True)
    assert views.type == VIEW
    assert views.to_pylist() == piece.to_pylist() == plain_array(views).to_pylist()
    assert views.null_count == piece.null_count


def test_short_strings_lie_nowhere_but_in_their_views() -> None:
    views = as_views(pa.array(["exactly 12 b", None, ""]))

    assert [buffer.size for buffer in views.buffers()[1:]] == [48]


@pytest.mark.parametrize("kept", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_long_strings_that_repeat_lie_there_once(kept: pa.DataType) -> None:
    views = as_views(pa.array(["thirteen long"] * 1_000).dictionary_encode().cast(kept))

    assert sum(buffer.size for buffer in views.buffers()[2:]) < 100


def test_plain_rows_have_strings() -> None:
    table = pa.table({"v": as_views(pa.array(["a"])), "d": pa.array(["b"]).dictionary_encode(), "n": [1]})

    assert plain(table).schema.types == [pa.string(), pa.string(), pa.int64()]
