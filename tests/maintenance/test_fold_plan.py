"""Where a fold puts each row: every shown row exactly once, every hidden key in every file that can hold it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.ops import Op, Overlay
from lithify.core.partitioning import day_of, partition_rows, partition_string
from lithify.core.schema import define
from lithify.core.snapshot import Bounds, DataFile
from lithify.maintenance.fold_plan import LINK_FILES_MAX, distribute, linkable, next_step, partition_of_file
from support.file_lists import KEYED, change, snapshot

SCHEMA = define(pa.schema([("k", pa.int64()), ("region", pa.string())]), "k", partition_by="region")


def base_file(number: int, low: int, high: int, region: str | None) -> DataFile:
    return DataFile(
        f"f{number}", f"f{number}", 100, 10, bounds={"k": Bounds(low, high, 0)}, partition={"region": region}
    )


regions = st.sampled_from(["eu", "us", None])
files = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), regions), max_size=5)
rows = st.dictionaries(st.integers(0, 35), regions, max_size=12)


@given(given_files=files, shown=rows, deleted=st.sets(st.integers(0, 35), max_size=5))
def test_every_row_gets_one_home_in_its_own_partition(
    given_files: list[tuple[int, int, str | None]], shown: dict[int, str | None], deleted: set[int]
) -> None:
    base = [base_file(n, low, low + width, region) for n, (low, width, region) in enumerate(given_files)]
    new = [{"k": k, "region": region} for k, region in shown.items()]
    hidden = sorted(set(shown) | deleted)
    overlay = Overlay(pa.table({"k": pa.array(hidden, pa.int64())}), pa.Table.from_pylist(new, schema=SCHEMA.columns))

    plan = distribute(SCHEMA, base, overlay, ("k",))

    distributed = []
    for share in plan.shares:
        start, length = share.rows
        part = plan.rows.slice(start, length).to_pylist()
        distributed += part
        assert all((row["region"] or None) == share.partition["region"] for row in part)
        if share.file is not None:
            bounds = share.file.bound("k")
            assert all(bounds.low <= row["k"] <= bounds.high for row in part)
            begin, count = share.hidden
            here = plan.hidden.slice(begin, count).column("k").to_pylist()
            assert here == [k for k in hidden if bounds.low <= k <= bounds.high]
    assert sorted(distributed, key=lambda row: row["k"]) == sorted(new, key=lambda row: row["k"])
    touched = {share.file.path for share in plan.shares if share.file is not None}
    assert touched == {f.path for f in base if any(f.bound("k").low <= k <= f.bound("k").high for k in hidden)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("", None),
        ("eu", "eu"),
        (7, "7"),
        (True, "true"),
        (False, "false"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02 03:04:05.000006"),
        (Decimal("1E+2"), "100"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_partition_values_are_spelled_as_delta_does(value: Any, text: str | None) -> None:
    assert partition_string(value) == text


def test_a_day_is_a_day_in_utc() -> None:
    times = pa.chunked_array(
        [pa.array([dt.datetime(2026, 1, 1, 23, 59, 59, 999999), None, dt.datetime(1969, 12, 31, 23)])]
    )
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        assert day_of(times.cast(kind)).to_pylist() == [dt.date(2026, 1, 1), None, dt.date(1969, 12, 31)]


def test_rows_are_grouped_by_day_and_partition_columns() -> None:
    schema = define(
        pa.schema([("at", pa.timestamp("us", "UTC")), ("region", pa.string())]), time="at", partition_by="region"
    )
    moments = [dt.datetime(2026, 1, d, tzinfo=dt.UTC) for d in (1, 1, 2)]
    table = pa.table({"at": moments, "region": ["eu", "us", "eu"]}, schema=schema.columns)
    partitions, group_of = partition_rows(schema, table)
    assert [partitions[g] for g in group_of] == [
        {"_day": "2026-01-01", "region": "eu"},
        {"_day": "2026-01-01", "region": "us"},
        {"_day": "2026-01-02", "region": "eu"},
    ]


@pytest.mark.parametrize(
    ("bounds", "partition"),
    [
        (Bounds("eu", "eu", 0), {"region": "eu"}),
        (Bounds(None, None, 10), {"region": None}),
        (Bounds("eu", "us", 0), None),
        (Bounds("eu", "eu", 1), None),
        (Bounds("eu", "eu", None), None),
        (Bounds(None, None, None), None),
        (Bounds("x" * 64, "x" * 64, 0), None),
    ],
    ids=["one value", "all null", "two values", "some null", "nulls unknown", "nothing known", "cut-off text"],
)
def test_a_file_is_linked_only_into_a_partition_that_all_its_rows_share(
    bounds: Bounds, partition: dict[str, str | None] | None
) -> None:
    assert partition_of_file(SCHEMA, DataFile("f", "f", 1, 10, bounds={"region": bounds})) == partition


def test_a_crowd_of_small_files_is_merged_and_large_ones_are_linked() -> None:
    def files_of(*sizes: int) -> list[DataFile]:
        return [DataFile(f"f{n}", f"f{n}", size, 1, seq=n) for n, size in enumerate(sizes, 1)]

    few, crowd = files_of(*[1000] * LINK_FILES_MAX), files_of(*[1000] * (LINK_FILES_MAX + 1))
    large = files_of(*[50 * 2**20] * (LINK_FILES_MAX + 1))
    mixed = files_of(5 * 2**20, 5 * 2**20, *[1000] * 20, 5 * 2**20)
    assert linkable(few) == few
    assert linkable(crowd) == []
    assert linkable(large) == large
    assert linkable(mixed) == mixed[:2], "the large ones that come before the first small one"


def test_the_first_of_overlapping_files_takes_a_row_and_shares_are_in_key_order() -> None:
    base = [base_file(0, 10, 19, "eu"), base_file(1, 0, 30, "eu"), base_file(2, 5, 25, "eu"), base_file(3, 0, 50, "us")]
    new = [{"k": k, "region": "eu"} for k in (40, 31, 30, 25, 19, 12, 10, 3)] + [{"k": 45, "region": None}]
    rows = pa.Table.from_pylist(new, schema=SCHEMA.columns)

    plan = distribute(SCHEMA, base, Overlay(rows.select(["k"]), rows), ("k",))

    keys = [
        (share.file.path if share.file else share.partition["region"], plan.rows.slice(*share.rows)["k"].to_pylist())
        for share in plan.shares
    ]
    assert keys[:4] == [("f0", [10, 12, 19]), ("f1", [3, 25, 30]), ("f2", []), ("f3", [])]
    assert sorted(keys[4:], key=str) == [("eu", [31, 40]), (None, [45])]


@pytest.mark.parametrize(("rows_max", "seq"), [(1, 1), (199, 1), (200, 2), (299, 2), (1_000, 3)])
def test_as_many_commits_as_fit_are_rewritten_at_once(rows_max: int, seq: int) -> None:
    changes = [change(n, rows=100, op=Op.DELETE) for n in (3, 1, 2)]
    step = next_step(snapshot(KEYED, [], changes), rows_max)
    assert step.seq == seq
    assert [file.seq for file in step.change_files] == list(range(1, seq + 1))
