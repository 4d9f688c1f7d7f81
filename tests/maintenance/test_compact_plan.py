"""Which base files are merged with which: each rule at its boundary, and what holds for any list of files."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify import InvalidRequest
from lithify.core.schema import TableSchema, define
from lithify.core.snapshot import Bounds, DataFile
from lithify.maintenance.compact_plan import batches, compactions
from lithify.maintenance.plans import CompactPlan
from lithify.options.policy import MaintenancePolicy
from lithify.options.tiers import declared
from support.file_lists import (
    DATED,
    DAY,
    DAY_MS,
    GB,
    HOUR_MS,
    KB,
    KEYED,
    KEYLESS,
    MB,
    MIDNIGHT_MS,
    NOW,
    POLICY,
    TIMED,
    base,
    hour_of_files,
    snapshot,
    timed,
)


def plans_of(schema: TableSchema, files: list[DataFile], now_ms: int = NOW, **more: Any) -> list[CompactPlan]:
    return compactions(snapshot(schema, files), more.pop("policy", POLICY), now_ms, **more)


def paths(plan: CompactPlan) -> list[str]:
    return [file.path for file in plan.files]


# -- tiers


@pytest.mark.parametrize(("count", "due"), [(9, False), (10, True), (14, True)])
def test_a_window_is_compacted_at_its_minimum_of_files(count: int, due: bool) -> None:
    found = plans_of(TIMED, hour_of_files(count), tier="hourly")
    assert bool(found) == due
    if count == 14:
        (plan,) = found
        assert (plan.table, plan.origin, plan.partition) == ("shop.orders", "hourly", {"_day": "2026-11-15"})
        assert (plan.target_bytes, plan.window_us) == (512 * MB, 3_600_000_000)
        assert plan.why == "hourly: 14 files in 2026-11-15 09:00, at least 10"
        assert plan.gain == "14 files → 1"
        assert plan.bytes_in == plan.bytes_out == 14 * MB


@pytest.mark.parametrize(("after_ms", "due"), [(-DAY_MS, 0), (0, 0), (HOUR_MS - 1, 0), (HOUR_MS, 1), (DAY_MS, 1)])
def test_a_window_is_compacted_at_its_minimum_age(after_ms: int, due: int) -> None:
    window_end = MIDNIGHT_MS + 10 * HOUR_MS
    assert len(plans_of(TIMED, hour_of_files(10), window_end + after_ms, tier="hourly")) == due


@pytest.mark.parametrize(("after_ms", "due"), [(DAY_MS - 1, 0), (DAY_MS, 1)])
def test_a_day_is_compacted_a_day_after_its_end(after_ms: int, due: int) -> None:
    files = [timed(n, n, origin="hourly") for n in range(12)]
    found = plans_of(TIMED, files, MIDNIGHT_MS + DAY_MS + after_ms, tier="daily")
    assert len(found) == due
    if found:
        assert (found[0].origin, found[0].window_us, found[0].target_bytes) == ("daily", None, 2048 * MB)
        assert found[0].why == "daily: 12 files in 2026-11-15, at least 12"


def test_the_newest_window_is_left_alone() -> None:
    older, newest = hour_of_files(20, 9), hour_of_files(20, 10, start=100)
    (plan,) = plans_of(TIMED, [*older, *newest], MIDNIGHT_MS + 11 * HOUR_MS)
    assert set(paths(plan)) == {file.path for file in older}


def test_late_data_is_compacted_in_its_own_window() -> None:
    """Files are told apart by the times of their rows, whenever they were written, and are split where they mix."""
    early, late = hour_of_files(10, 3), hour_of_files(10, 9, start=100)
    mixed = [timed(200 + n, 7.5, 9.5) for n in range(10)]
    found = plans_of(TIMED, [*late, *mixed, *early], tier="hourly")
    assert [plan.why for plan in found] == [
        "hourly: 10 files in 2026-11-15 03:00, at least 10",
        "hourly: 20 files in 2026-11-15 09:00, at least 10",
    ]
    assert {plan.window_us for plan in found} == {3_600_000_000}
    assert [plan.gain for plan in found] == ["10 files → 1", "20 files → up to 3"]


def test_files_that_span_many_windows_belong_to_the_whole_day() -> None:
    wide = [timed(n, 0, 23) for n in range(10)]
    assert plans_of(TIMED, wide, MIDNIGHT_MS + DAY_MS + HOUR_MS - 1, tier="hourly") == []
    (plan,) = plans_of(TIMED, wide, MIDNIGHT_MS + DAY_MS + HOUR_MS, tier="hourly")
    assert (plan.window_us, plan.gain) == (None, "10 files → 1")
    assert plan.why == "hourly: 10 files in 2026-11-15, at least 10"


def test_a_file_of_unknown_times_belongs_to_its_day() -> None:
    files = [replace(timed(n), bounds={}) for n in range(10)]
    assert plans_of(TIMED, files, MIDNIGHT_MS + DAY_MS + HOUR_MS - 1) == []
    (plan,) = plans_of(TIMED, files, MIDNIGHT_MS + DAY_MS + HOUR_MS)
    assert (plan.origin, plan.window_us) == ("hourly", None)


def test_no_plan_makes_more_files_than_it_takes() -> None:
    """Three files with rows in three windows would stay three."""
    policy = replace(POLICY, tiers=declared([{"name": "hourly", "files_min": 6}]), batch_files_max=3)
    mixed, narrow = [timed(n, 7.5, 9.5) for n in range(3)], hour_of_files(3, start=10)
    (plan,) = plans_of(TIMED, [*mixed, *narrow], tier="hourly", policy=policy)
    assert (paths(plan), plan.gain) == ([file.path for file in narrow], "3 files → 1")


def test_a_time_column_of_dates_is_compacted_by_whole_days() -> None:
    files = [base(n, bounds={"at": Bounds(DAY, DAY, 0)}, partition={"_day": DAY}) for n in range(12)]
    assert plans_of(DATED, files, MIDNIGHT_MS + 12 * HOUR_MS) == []
    (plan,) = plans_of(DATED, files, MIDNIGHT_MS + DAY_MS + HOUR_MS)
    assert (plan.origin, plan.window_us, len(plan.files)) == ("hourly", None, 12)


def test_times_without_a_zone_are_utc() -> None:
    schema = define(pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))]), "k", time="at")
    naive = [
        replace(file, bounds={"at": Bounds(*(b.replace(tzinfo=None) for b in file.bound("at")[:2]), 0)})
        for file in hour_of_files(10)
    ]
    assert [plan.why for plan in plans_of(schema, naive)] == [plan.why for plan in plans_of(TIMED, hour_of_files(10))]


def test_a_bound_rounded_past_midnight_stays_in_its_day() -> None:
    """Statistics of other writers are cut to milliseconds, and their maxima raised by one."""
    files = [timed(n, 23.5, 24.0) for n in range(10)]
    (plan,) = plans_of(TIMED, files, tier="hourly")
    assert plan.why == "hourly: 10 files in 2026-11-15 23:00, at least 10"


def test_rows_without_a_time_are_packed() -> None:
    files = [base(n, n, n, partition={"_day": None}) for n in range(10)]
    assert plans_of(TIMED, files, tier="hourly") == []
    (plan,) = plans_of(TIMED, files)
    assert (plan.origin, plan.partition, plan.window_us) == ("pack", {"_day": None}, None)
    assert plan.why == "pack: 10 small files without a time, at least 10"


def test_days_and_partitions_are_never_mixed() -> None:
    schema = define(
        pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("region", pa.string())]),
        "k",
        time="at",
        partition_by="region",
    )
    files = [
        replace(file, path=f"{region}{file.path}", partition={"_day": day, "region": region})
        for region in ("eu", None)
        for day in (DAY, DAY + dt.timedelta(days=1))
        for file in hour_of_files(10, day=day, start=(day - DAY).days * 100)
    ]
    found = plans_of(schema, files, tier="hourly")
    assert [plan.partition for plan in found] == [
        {"_day": "2026-11-15", "region": None},
        {"_day": "2026-11-15", "region": "eu"},
        {"_day": "2026-11-16", "region": None},
        {"_day": "2026-11-16", "region": "eu"},
    ]
    assert found[1].why == "hourly: 10 files in 2026-11-15 09:00 of region=eu, at least 10"
    for plan in found:
        assert {(f.partition["_day"].isoformat(), f.partition["region"]) for f in plan.files} == {
            (plan.partition["_day"], plan.partition["region"])
        }


@pytest.mark.parametrize(
    ("origin", "size", "hourly", "daily"),
    [
        ("fold", MB, True, True),
        ("bulk", MB, True, True),
        ("adopt", MB, True, True),
        ("pack", MB, True, True),
        ("fold", 512 * MB - 1, True, True),
        ("fold", 512 * MB, False, True),
        ("fold", 2048 * MB, False, False),
        ("hourly", MB, True, True),
        ("hourly", 256 * MB - 1, True, True),
        ("hourly", 256 * MB, False, True),
        ("daily", MB, False, True),
        ("daily", 1024 * MB, False, False),
        ("weekly", MB, False, False),
        ("cluster", 16 * MB - 1, True, True),
        ("cluster", 16 * MB, False, False),
        ("gone", MB, True, True),
    ],
)
def test_which_files_a_tier_takes(origin: str, size: int, hourly: bool, daily: bool) -> None:
    files = [*hour_of_files(12), timed(99, 9.5, origin=origin, size=size)]
    for tier, taken in (("hourly", hourly), ("daily", daily)):
        (plan,) = plans_of(TIMED, files, tier=tier)
        assert f"{13 if taken else 12} files" in plan.why


def test_files_without_a_job_folder_are_taken_too() -> None:
    foreign = [replace(file, path=f"x{n}.parquet") for n, file in enumerate(hour_of_files(10))]
    assert foreign[0].origin == "foreign"
    assert len(plans_of(TIMED, foreign)) == 1


def test_several_small_outputs_of_one_window_are_merged_again() -> None:
    (plan,) = plans_of(TIMED, hour_of_files(10, origin="hourly"), tier="hourly")
    assert len(plan.files) == 10


def test_the_daily_tier_does_not_starve() -> None:
    """Late files keep the hourly tier busy in an old day, and daily goes on with what is there."""
    done = [timed(1000 + n, n, origin="hourly", size=20 * MB) for n in range(24)]
    late = hour_of_files(10)
    found = plans_of(TIMED, [*done, *late])
    assert [(plan.origin, len(plan.files)) for plan in found] == [("hourly", 10), ("daily", 24)]
    fewer = [*done[:3], *hour_of_files(9)]
    assert [plan.origin for plan in plans_of(TIMED, fewer)] == ["daily"]


def test_longer_tiers_merge_within_each_day_once_their_window_is_old() -> None:
    policy = replace(POLICY, tiers=declared([{"name": "weekly", "enabled": True}]))
    days = [DAY, DAY - dt.timedelta(days=1)]
    files = [timed(n + 10 * i, n, day=day, origin="daily") for i, day in enumerate(days) for n in range(4)]
    week_end = MIDNIGHT_MS + DAY_MS
    assert plans_of(TIMED, files, week_end + 7 * DAY_MS - 1, policy=policy) == []
    found = plans_of(TIMED, files, week_end + 7 * DAY_MS, policy=policy)
    assert [(plan.origin, plan.partition["_day"]) for plan in found] == [
        ("weekly", "2026-11-14"),
        ("weekly", "2026-11-15"),
    ]
    assert found[0].why == "weekly: 4 files in 2026-11-09, at least 4"


def test_a_tier_that_is_off_plans_nothing_and_an_unknown_one_is_refused() -> None:
    assert plans_of(TIMED, hour_of_files(20), tier="weekly") == []
    assert plans_of(KEYED, [base(n) for n in range(20)], tier="hourly") == []
    with pytest.raises(InvalidRequest, match="no tier 'yearly': there are hourly, daily, weekly, monthly, pack"):
        plans_of(TIMED, [], tier="yearly")


def test_busy_files_are_no_candidates() -> None:
    files = hour_of_files(11)
    (plan,) = plans_of(TIMED, files, busy=frozenset({files[3].path}))
    assert paths(plan) == [file.path for file in files if file is not files[3]]
    assert plans_of(TIMED, files, busy=frozenset(file.path for file in files[:2])) == []


# -- packing


@pytest.mark.parametrize(("count", "due"), [(9, 0), (10, 1)])
def test_small_files_are_packed_at_their_minimum(count: int, due: int) -> None:
    assert len(plans_of(KEYED, [base(n, n, n) for n in range(count)])) == due


def test_packing_goes_in_key_order() -> None:
    files = [base(n, low=(n * 37) % 60, high=100, size=20 * MB) for n in range(60)]
    found = plans_of(KEYED, files)
    lows = [file.bound("k").low for plan in found for file in plan.files]
    assert lows == sorted(lows)
    assert found[0].origin == "pack"
    assert found[0].why == "pack: 60 small files, at least 10"


def test_files_of_unknown_key_ranges_come_last_and_keyless_ones_by_age() -> None:
    files = [base(0, bounds={}), *(base(n, n, n) for n in range(1, 10))]
    (plan,) = plans_of(KEYED, files)
    assert plan.files[-1] is files[0]
    aged = [base(n, time_ms=100 - n) for n in range(10)]
    (plan,) = plans_of(KEYLESS, aged)
    assert list(plan.files) == aged[::-1]


@pytest.mark.parametrize(("size", "found"), [(384 * MB, 0), (250 * MB, 5)])
def test_files_near_the_target_are_left_alone(size: int, found: int) -> None:
    assert len(plans_of(KEYED, [base(n, n, n, size=size) for n in range(10)])) == found


def test_a_large_file_is_not_rewritten_for_a_few_small_ones() -> None:
    large = base(99, 5, 5, size=300 * MB)
    (plan,) = plans_of(KEYED, [large, *(base(n, n, n) for n in range(20))])
    assert large.path not in paths(plan)
    assert len(plan.files) == 20


def test_large_files_apart_in_the_order_meet_after_all() -> None:
    files = [base(n, n, n, size=200 * MB if n % 30 == 0 else MB) for n in range(60)]
    found = plans_of(KEYED, files)
    assert sorted(len(plan.files) for plan in found) == [2, 29, 29]


@pytest.mark.parametrize("large", [300 * MB, 383 * MB])
@pytest.mark.parametrize("small", [MB, 130 * MB])
def test_small_files_between_large_ones_are_packed(large: int, small: int) -> None:
    files = [base(n, n, n, size=small if n % 2 else large) for n in range(120)]
    packed = {path for plan in plans_of(KEYED, files) for path in paths(plan)}
    assert {file.path for file in files[1::2]} <= packed


def test_target_sizes_are_obeyed() -> None:
    files = [base(n, n, n, size=(n % 7 + 1) * 10 * MB) for n in range(200)]
    found = plans_of(KEYED, files)
    assert all(plan.bytes_in <= 1.1 * 512 * MB for plan in found)
    assert all(plan.bytes_in > 0.75 * 512 * MB for plan in found[:-1]), "each ends near the target"


# -- batches


def equal_files(count: int, size: int = KB) -> list[DataFile]:
    return [base(n, n, n, size=size) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "files_max", "sizes"),
    [
        (1, 30, []),
        (2, 30, [2]),
        (30, 30, [30]),
        (31, 30, [31]),
        (32, 30, [30, 2]),
        (61, 30, [30, 31]),
        (5, 2, [2, 3]),
        (5, 0, [2, 3]),
        (500, 10_000, [500]),
        (501, 500, [499, 2]),
        (501, 10_000, [499, 2]),
        (502, 500, [500, 2]),
    ],
)
def test_batches_are_clamped_and_a_remainder_of_one_joins_the_last(
    count: int, files_max: int, sizes: list[int]
) -> None:
    assert [len(batch) for batch in batches(equal_files(count), files_max, GB)] == sizes


def test_batches_of_one_window_come_in_order_and_share_no_file() -> None:
    files = hour_of_files(75)
    found = plans_of(TIMED, files[::-1], tier="hourly")
    assert [path for plan in found for path in paths(plan)] == [file.path for file in files]
    assert [len(plan.files) for plan in found] == [30, 30, 15]


@given(sizes=st.lists(st.integers(0, 2_000), max_size=80), files_max=st.integers(-5, 600), target=st.integers(1, 3_000))
def test_batches_never_alias_and_are_all_compactable(sizes: list[int], files_max: int, target: int) -> None:
    files = [base(n, size=size) for n, size in enumerate(sizes)]
    found = batches(files, files_max, target)
    used = [file.path for batch in found for file in batch]
    assert len(used) == len(set(used))
    for batch in found:
        assert 2 <= len(batch) <= min(max(files_max, 2) + 1, 500)
        assert sum(file.size_bytes for file in batch) <= 1.1 * target
        assert 2 * max(file.size_bytes for file in batch) <= sum(file.size_bytes for file in batch)
        assert [file for file in files if file in batch] == batch


# -- any list of files, at any time

origins = st.sampled_from(["fold", "bulk", "adopt", "hourly", "daily", "weekly", "pack", "cluster", "gone"])
sizes = st.sampled_from([0, KB, MB, 3 * MB, 40 * MB, 200 * MB, 500 * MB, 1500 * MB, 3 * GB])
days = st.sampled_from([None, DAY, DAY + dt.timedelta(days=1)])
hours = st.tuples(st.sampled_from([0, 8.5, 9, 9.5, 23.9]), st.sampled_from([0, 0.1, 2, 30]))
some_files = st.lists(st.tuples(sizes, origins, days, hours, st.booleans()), max_size=80)
policies = st.builds(
    lambda hourly, daily, weekly, batch, pack: replace(
        POLICY,
        batch_files_max=batch,
        pack_files_min=pack,
        tiers=declared(
            [
                {"name": "hourly", "files_min": hourly},
                {"name": "daily", "files_min": daily},
                {"name": "weekly", "enabled": weekly},
            ]
        ),
    ),
    st.integers(2, 10),
    st.integers(2, 12),
    st.booleans(),
    st.integers(2, 30),
    st.integers(2, 10),
)
moments = st.sampled_from([-DAY_MS, 0, MIDNIGHT_MS + 11 * HOUR_MS, MIDNIGHT_MS + 2 * DAY_MS, NOW, NOW * 100])

Drawn = list[tuple[int, str, dt.date | None, tuple[float, float], bool]]


def files_of(drawn: Drawn) -> list[DataFile]:
    return [
        replace(
            timed(number, first, min(first + length, 23.99), size, origin, day),
            **({} if known and day else {"bounds": {}}),
        )
        for number, (size, origin, day, (first, length), known) in enumerate(drawn)
    ]


@given(drawn=some_files, policy=policies, now_ms=moments, busy_numbers=st.sets(st.integers(0, 79), max_size=5))
def test_plans_share_no_file_and_each_is_worth_it(
    drawn: Drawn, policy: MaintenancePolicy, now_ms: int, busy_numbers: set[int]
) -> None:
    files = files_of(drawn)
    busy = frozenset(files[number].path for number in busy_numbers if number < len(files))
    found = plans_of(TIMED, files, now_ms, policy=policy, busy=busy)
    used = [path for plan in found for path in paths(plan)]
    assert len(used) == len(set(used))
    assert not busy & set(used)
    for plan in found:
        assert len(plan.files) >= 2
        assert len({file.partition["_day"] for file in plan.files}) == 1
        assert plan.bytes_in <= 1.1 * plan.target_bytes
    assert found == plans_of(TIMED, files[::-1], now_ms, policy=policy, busy=busy), "the order of the list is nothing"


@given(drawn=some_files, policy=policies)
def test_planning_comes_to_an_end(drawn: Drawn, policy: MaintenancePolicy) -> None:
    files = files_of(drawn)
    rewritten = 0
    for round_number in range(12):
        found = plans_of(TIMED, files, policy=policy)
        if not found:
            break
        gone = {path for plan in found for path in paths(plan)}
        rewritten += sum(plan.bytes_in for plan in found)
        files = [file for file in files if file.path not in gone] + [
            output for n, plan in enumerate(found) for output in outputs_of(plan, 1000 * (round_number + 1) + 10 * n)
        ]
    else:
        pytest.fail("still planning after 12 rounds")
    assert rewritten <= 12 * sum(size for size, *_ in drawn)


def outputs_of(plan: CompactPlan, number: int) -> list[DataFile]:
    """What a compaction writes: one file, or one for each window of rows."""
    times = [file.bound("at") for file in plan.files]
    if plan.window_us is None:
        known = all(bounds.known for bounds in times)
        merged = Bounds(min(b.low for b in times), max(b.high for b in times), 0) if known else Bounds(None, None, None)
        parts = [merged]
    else:
        hour = dt.timedelta(hours=1)
        low, high = min(b.low for b in times), max(b.high for b in times)
        first = low.replace(minute=0, second=0, microsecond=0)
        count = int((high - first) / hour) + 1
        starts = [max(low, first + n * hour) for n in range(count)]
        parts = [Bounds(s, min(high, s.replace(minute=59, second=59)), 0) for s in starts]
    return [
        base(
            number + n,
            size=plan.bytes_in // len(parts),
            origin=plan.origin,
            bounds={"at": part},
            partition=plan.files[0].partition,
        )
        for n, part in enumerate(parts)
    ]


@given(drawn=some_files, policy=policies, now_ms=moments)
def test_a_jump_forward_makes_nothing_undue(drawn: Drawn, policy: MaintenancePolicy, now_ms: int) -> None:
    files = files_of(drawn)
    assert bool(plans_of(TIMED, files, now_ms, policy=policy)) <= bool(
        plans_of(TIMED, files, now_ms + DAY_MS, policy=policy)
    )


def test_several_tiers_are_planned_together_and_share_no_file() -> None:
    # A file a quarter of an hour, all day: the newest hours are the hourly tier's, an older day is the daily one's.
    policy = replace(POLICY, tiers=tuple(replace(tier, files_min=2) for tier in POLICY.tiers))
    files = hour_of_files(14)
    later = MIDNIGHT_MS + 3 * DAY_MS

    one = {name: plans_of(TIMED, files, later, tier=name, policy=policy) for name in ("hourly", "daily")}
    assert all(one.values())
    for tiers in (["hourly"], ("daily",)):
        assert plans_of(TIMED, files, later, tier=tiers, policy=policy) == one[tiers[0]]
    both = plans_of(TIMED, files, later, tier=["daily", "hourly", "daily"], policy=policy)
    everything = plans_of(TIMED, files, later, policy=policy)
    assert both == everything
    taken = [path for plan in both for path in paths(plan)]
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("tier", ["yearly", ["hourly", "yearly"], [], [7], 7, {"hourly": 1}, b"hourly", [""]])
def test_what_names_no_tier_is_refused(tier: Any) -> None:
    with pytest.raises(InvalidRequest, match="tier"):
        plans_of(TIMED, hour_of_files(10), tier=tier)
