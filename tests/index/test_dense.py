"""Keys that stand in a row group for sure, by its statistics: what a look at the keys themselves says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.index.dense import DenseRanges
from lithify.index.stats import ABSENT, EXACT, HAS_MAX, HAS_MIN, MAX_EXACT, MIN_EXACT, NULLS_KNOWN, ColumnStats, Kind

LEAST, MOST = -(2**63), 2**63 - 1
TOLD = EXACT | NULLS_KNOWN
Group = tuple[int, int, int]  # rows, and the bounds


def stats(groups: Sequence[Group], *, kind: Kind = Kind.SIGNED, flags: int = TOLD, nulls: int = 0) -> ColumnStats:
    rows, low, high = (np.array([group[part] for group in groups], np.int64) for part in range(3))
    count = len(groups)
    return ColumnStats(
        kind,
        0,
        rows,
        np.full(count, nulls, np.int64),
        np.full(count, flags, np.uint8),
        low,
        high,
        lambda group: b"",
        lambda group: b"",
    )


def held(found: ColumnStats | None, keys: Sequence[int], inside: Sequence[bool] | None = None) -> list[bool]:
    count = 1 if found is None else len(found.rows)
    flags = np.ones(count, np.bool_) if inside is None else np.array(inside, np.bool_)
    return DenseRanges([(flags, found)]).hold(np.array(keys, np.int64)).tolist()


@given(st.lists(st.integers(0, 60), unique=True, max_size=40), st.integers(1, 7), st.booleans())
def test_a_key_is_there_for_sure_only_where_it_is_there(keys: list[int], per_group: int, ascends: bool) -> None:
    there = sorted(keys) if ascends else keys
    groups = [there[at : at + per_group] for at in range(0, len(there), per_group)]
    told = held(stats([(len(group), min(group), max(group)) for group in groups]), range(-1, 62))

    full = {key for group in groups if max(group) - min(group) + 1 == len(group) for key in group}
    assert {key for key, sure in zip(range(-1, 62), told, strict=True) if sure} == full


def test_ranges_at_the_ends_of_what_a_number_can_be() -> None:
    groups = [(2, LEAST, LEAST + 1), (1, MOST, MOST), (3, -1, 1), (2**32, LEAST, MOST)]
    keys = [LEAST, LEAST + 1, LEAST + 2, -2, -1, 0, 1, 2, MOST - 1, MOST]
    assert held(stats(groups), keys) == [True, True, False, False, True, True, True, False, False, True]


@pytest.mark.parametrize(
    "flags",
    [0, EXACT, NULLS_KNOWN, TOLD | ABSENT, HAS_MIN | HAS_MAX | NULLS_KNOWN, TOLD - MIN_EXACT, TOLD - MAX_EXACT],
)
def test_what_is_not_told_for_sure_counts_for_nothing(flags: int) -> None:
    assert held(stats([(3, 1, 3)]), [1, 2, 3]) == [True] * 3
    assert held(stats([(3, 1, 3)], flags=flags), [1, 2, 3]) == [False] * 3


def test_of_nulls_other_kinds_and_files_that_are_gone_nothing_is_sure() -> None:
    assert held(stats([(3, 1, 3)], nulls=1), [1, 2, 3]) == [False] * 3
    assert held(stats([(3, 1, 3)], kind=Kind.TIMESTAMP), [1, 2, 3]) == [False] * 3
    assert held(stats([(3, 1, 3)], kind=Kind.DATE), [1, 2, 3]) == [True] * 3
    assert held(stats([(3, 1, 3), (2, 7, 8)]), [2, 7], [False, True]) == [False, True]
    assert held(None, [1]) == [False]
    assert held(stats([]), [1]) == [False]


def test_of_several_blocks_every_range_counts() -> None:
    parts = [(np.array([True]), stats([(2, 10, 11)])), (np.array([True, True]), stats([(1, 5, 5), (3, 20, 22)]))]
    assert DenseRanges(parts).hold(np.array([5, 6, 10, 11, 12, 21, 23])).tolist() == [1, 0, 1, 1, 0, 1, 0]
