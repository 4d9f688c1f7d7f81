"""Which files can hold a key. Leaving out one that does would show an old row again, so in doubt a file is in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.ops import Op
from lithify.core.schema import define
from lithify.core.snapshot import UNKNOWN, Bounds, DataFile
from lithify.index.key_ranges import Intervals, solid_prefix, split_by_keys

KEYED = define(pa.schema([("k", pa.int64())]), "k")
KEYLESS = define(pa.schema([("k", pa.int64())]))


def file(
    name: str, low: Any = None, high: Any = None, nulls: int | None = 0, seq: int = 0, op: Op = Op.UPSERT
) -> DataFile:
    return DataFile(name, name, 100, 10, bounds={"k": Bounds(low, high, nulls)}, seq=seq, op=op)


def names(files: list[DataFile]) -> list[str]:
    return [f.path for f in files]


def keys(*values: Any) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64())})


def test_files_are_split_by_their_bounds() -> None:
    files = [file("a", 0, 9), file("b", 10, 19), file("c", 30, 39)]
    touched, clean = split_by_keys(files, keys(9, 25, 30))
    assert (names(touched), names(clean)) == (["a", "c"], ["b"])


def test_a_file_without_statistics_can_hold_anything() -> None:
    unknown = DataFile("u", "u", 1, 1)
    assert unknown.bound("k") == UNKNOWN
    assert split_by_keys([unknown], keys(1)) == ([unknown], [])


def test_no_keys_touch_no_file() -> None:
    assert split_by_keys([file("a", 0, 9)], keys()) == ([], [file("a", 0, 9)])


def test_a_null_key_can_be_where_nulls_are_or_may_be() -> None:
    files = [file("none", 0, 9, nulls=0), file("some", 0, 9, nulls=1), file("unknown", 0, 9, nulls=None)]
    touched, _ = split_by_keys(files, keys(None))
    assert names(touched) == ["some", "unknown"]


def test_every_column_of_a_composite_key_has_to_fit() -> None:
    bounds = {"a": Bounds(0, 9, 0), "b": Bounds("m", "p", 0)}
    both = DataFile("f", "f", 1, 1, bounds=bounds)
    assert split_by_keys([both], pa.table({"a": [5], "b": ["n"]}))[0] == [both]
    assert split_by_keys([both], pa.table({"a": [5], "b": ["z"]}))[0] == []


@given(
    ranges=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8),
    wanted=st.lists(st.integers(0, 45), max_size=8),
)
def test_exactly_the_files_whose_range_holds_a_key_are_touched(
    ranges: list[tuple[int, int]], wanted: list[int]
) -> None:
    files = [file(str(n), low, low + width) for n, (low, width) in enumerate(ranges)]
    touched, clean = split_by_keys(files, keys(*wanted))
    expected = [f.path for f in files if any(f.bound("k").low <= key <= f.bound("k").high for key in wanted)]
    assert names(touched) == expected
    assert sorted(names(touched) + names(clean)) == sorted(names(files))


@given(
    ranges=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8),
    probe=st.tuples(st.integers(0, 40), st.integers(0, 5)),
)
def test_intervals_meet_what_they_overlap(ranges: list[tuple[int, int]], probe: tuple[int, int]) -> None:
    taken = Intervals(Bounds(low, low + width, 0) for low, width in ranges)
    low, high = probe[0], probe[0] + probe[1]
    assert taken.meets(Bounds(low, high, 0)) == any(a <= high and low <= a + width for a, width in ranges)


# -- what stands beside base as it is


def prefix(base: list[DataFile], changes: list[DataFile], **options: Any) -> list[str]:
    solid, rest = solid_prefix(options.get("schema", KEYED), base, changes, options.get("rows_min", 0))
    assert sorted(names(solid) + names(rest)) == sorted(names(changes))
    return names(solid)


def test_changes_with_keys_of_their_own_stand_beside_base() -> None:
    changes = [file("a", 10, 19, seq=1), file("b", 20, 29, seq=2)]
    assert prefix([file("base", 0, 9)], changes) == ["a", "b"]


@pytest.mark.parametrize(
    "second",
    [
        file("b", 19, 25, seq=2),
        file("b", 5, 5, seq=2),
        file("b", None, None, seq=2),
        file("b", 20, 29, seq=2, op=Op.DELETE),
    ],
    ids=["meets a change", "meets base", "bounds unknown", "deletes"],
)
def test_the_first_change_that_could_meet_an_older_key_ends_the_prefix(second: DataFile) -> None:
    changes = [file("a", 10, 19, seq=1), second, file("c", 90, 99, seq=3)]
    assert prefix([file("base", 0, 9)], changes) == ["a"]


def test_a_commit_is_linked_as_a_whole_or_not_at_all() -> None:
    changes = [file("a", 10, 19, seq=1), file("b", 20, 29, seq=1, op=Op.DELETE)]
    assert prefix([], changes) == []
    assert prefix([], [file("a", 0, 9, seq=1), file("b", 5, 14, seq=1)]) == ["a", "b"], "one row per key and commit"


def test_base_without_bounds_can_hold_any_key() -> None:
    assert prefix([DataFile("base", "base", 1, 1)], [file("a", 10, 19, seq=1)]) == []


def test_without_a_key_only_a_tombstone_ends_the_prefix() -> None:
    changes = [
        file("a", 1, 1, seq=1),
        file("b", 1, 1, seq=2),
        file("t", 1, 1, seq=3, op=Op.DELETE),
        file("c", 1, 1, seq=4),
    ]
    assert prefix([file("base", 0, 9)], changes, schema=KEYLESS) == ["a", "b"]


def test_a_file_that_is_too_small_ends_the_prefix() -> None:
    small = DataFile("3", "3", 1, 1, bounds={"k": Bounds(3, 3, 0)}, seq=3)
    changes = [file("1", 1, 1, seq=1), file("2", 2, 2, seq=2), small, file("4", 4, 4, seq=4)]
    assert prefix([], changes, rows_min=10) == ["1", "2"]


@given(
    first=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=5),
    then=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=5),
    probe=st.tuples(st.integers(0, 40), st.integers(0, 5)),
)
def test_intervals_grow(first: list[tuple[int, int]], then: list[tuple[int, int]], probe: tuple[int, int]) -> None:
    grown = Intervals(Bounds(low, low + width, 0) for low, width in first)
    grown.add([Bounds(low, low + width, 0) for low, width in then])
    whole = Intervals(Bounds(low, low + width, 0) for low, width in (*first, *then))
    bounds = Bounds(probe[0], probe[0] + probe[1], 0)
    assert grown.meets(bounds) == whole.meets(bounds)


@given(
    then=st.lists(st.tuples(st.integers(-5, 420), st.integers(0, 60)), max_size=6),
    probe=st.tuples(st.integers(-5, 480), st.integers(0, 5)),
)
def test_a_few_ranges_are_put_among_many(then: list[tuple[int, int]], probe: tuple[int, int]) -> None:
    many = [(low, 4) for low in range(0, 400, 10)]
    grown = Intervals(Bounds(low, low + width, 0) for low, width in many)
    for low, width in then:
        grown.add([Bounds(low, low + width, 0)])
    low, high = probe[0], probe[0] + probe[1]
    assert grown.meets(Bounds(low, high, 0)) == any(a <= high and low <= a + width for a, width in (*many, *then))
