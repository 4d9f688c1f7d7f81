"""How long removed files are kept: the least of hours, versions and size, but never less than the floor."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lithify.maintenance.disk_use import MINUTE_MS, DiskTally
from lithify.maintenance.retention_limits import HOUR_MS, RetentionLimits
from lithify.options.table_options import DEFAULTS

NOW = 1_000 * HOUR_MS
LIMITS = RetentionLimits(hours=24, versions=10, size_multiple=2, bytes_min=100, hours_min=1)


def hours(limits: RetentionLimits, times: list[int], removed: list[tuple[int, int]], live_bytes: int = 0) -> float:
    return (NOW - limits.cutoff(NOW, times, removed, live_bytes).time_ms) / HOUR_MS


def ago(hours: float) -> int:
    return NOW - int(hours * HOUR_MS)


def test_hours_decide_where_there_is_little() -> None:
    assert hours(LIMITS, [ago(30)], [(ago(20), 50)]) == 24


def test_versions_decide_where_there_are_many() -> None:
    times = [ago(20 - n) for n in range(15)]
    assert hours(LIMITS, times, []) == 20 - 5
    assert hours(replace(LIMITS, versions=15), times, []) == 24


def test_size_decides_where_there_is_much() -> None:
    removed = [(ago(n), 60) for n in range(1, 20)]
    assert hours(LIMITS, [], removed) < 2
    assert 3 < hours(LIMITS, [], removed, live_bytes=120) < 5
    assert hours(LIMITS, [], removed, live_bytes=10_000) == 24


def test_nothing_is_less_than_the_floor() -> None:
    assert hours(LIMITS, [ago(0.1)] * 100, [(ago(0.1), 10**9)]) == 1
    assert hours(replace(LIMITS, hours_min=48), [ago(0.1)] * 100, [(ago(0.1), 10**9)]) == 48


def test_the_options_of_a_table_have_the_same_defaults() -> None:
    assert RetentionLimits.of(DEFAULTS) == RetentionLimits()


sizes = st.lists(st.tuples(st.integers(0, 200 * HOUR_MS), st.integers(0, 500)), max_size=20)


@given(times=st.lists(st.integers(0, 200 * HOUR_MS), max_size=30), sizes=sizes, live_bytes=st.integers(0, 1_000))
def test_what_is_kept_is_within_every_limit_or_younger_than_the_floor(
    times: list[int], sizes: list[tuple[int, int]], live_bytes: int
) -> None:
    writes, removed = sorted(NOW - age for age in times), [(NOW - age, size) for age, size in sizes]
    cutoff_ms = LIMITS.cutoff(NOW, writes, removed, live_bytes).time_ms
    assert cutoff_ms <= NOW - HOUR_MS
    if cutoff_ms < NOW - HOUR_MS:
        assert sum(size for time_ms, size in removed if time_ms >= cutoff_ms) <= max(100, 2 * live_bytes)
        assert cutoff_ms >= NOW - 24 * HOUR_MS
        assert sum(time_ms > cutoff_ms for time_ms in writes) <= 10


def test_what_commits_removed_is_counted_until_a_vacuum_takes_it() -> None:
    tally = DiskTally()
    for hour in range(10, 0, -1):
        tally.removed(ago(hour), 30)
        tally.wrote(ago(hour), rows=3)
    tally.rewrote(600)
    use = tally.use(LIMITS, NOW, live_bytes=0, row_bytes=10)
    assert (use.removed_files, use.removed_bytes, use.write_amplification) == (10, 300, 2.0)
    assert use.reclaimable_bytes == 210  # of 300, of which 100 may stay
    tally.vacuumed(ago(5) + MINUTE_MS)
    assert tally.use(LIMITS, NOW, 0, 10).removed_bytes == 120
    tally.measured([(ago(2), 7)])
    assert tally.use(LIMITS, NOW, 0, 10).removed_bytes == 7


def test_a_table_without_changes_has_no_amplification() -> None:
    assert DiskTally().use(LIMITS, NOW, 0, 10).write_amplification is None
