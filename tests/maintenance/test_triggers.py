"""When changes are folded and merged, each rule at its boundary, and what a table owes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify import Settings
from lithify.core.ops import Op
from lithify.core.schema import TableSchema
from lithify.core.snapshot import Bounds, DataFile, Snapshot
from lithify.maintenance.plans import FileCount
from lithify.maintenance.read_cost import STANDING_ROWS_MIN, read_cost, read_overhead
from lithify.maintenance.triggers import (
    AGE_WINS,
    FILES_WIN,
    FREE_BYTES,
    debt,
    fold_amplification,
    fold_due,
    minor_due,
)
from lithify.options.policy import MaintenancePolicy, policy_of
from lithify.options.table_options import stored
from support.file_lists import (
    DAY_MS,
    GB,
    HOUR_MS,
    KB,
    KEYED,
    KEYLESS,
    MB,
    NOW,
    POLICY,
    TIMED,
    base,
    change,
    folder,
    hour_of_files,
    snapshot,
    timed,
)

# -- the policy


def test_settings_and_the_policy_have_the_same_defaults() -> None:
    assert policy_of(Settings()) == MaintenancePolicy()


def test_a_table_option_wins_over_the_setting() -> None:
    settings = Settings(fold_files_max=7, pack_files_min=4)
    policy = policy_of(settings, stored({"fold_files_max": 9, "read_overhead_max": 2.5}))
    assert (policy.fold_files_max, policy.pack_files_min, policy.read_overhead_max) == (9, 4, 2.5)


@pytest.mark.parametrize("name", [field.name for field in fields(MaintenancePolicy)])
def test_every_value_of_a_policy_is_a_setting(name: str) -> None:
    assert name in Settings.model_fields


# -- read overhead


def test_a_table_without_changes_has_no_overhead() -> None:
    assert read_overhead(snapshot(KEYED)) == 1
    assert read_overhead(snapshot(KEYED, [base(1, 0, 100)])) == 1


@pytest.mark.parametrize(("files", "least", "most"), [(30, 1.25, 1.4), (100, 1.35, 1.5)])
def test_the_formula_agrees_with_what_was_measured(files: int, least: float, most: float) -> None:
    ten_million = [base(n, n * 10, n * 10 + 9) for n in range(10)]
    random_changes = [change(seq, 0, 99) for seq in range(1, files + 1)]
    assert least <= read_overhead(snapshot(KEYED, ten_million, random_changes)) <= most


def test_only_files_that_a_change_can_meet_are_touched() -> None:
    files = [base(n, n * 10, n * 10 + 9) for n in range(10)]
    narrow, wide = (read_overhead(snapshot(KEYED, files, [change(1, 20, high)])) for high in (25, 99))
    assert 1 < narrow < wide
    assert wide - narrow == pytest.approx(0.3 * 0.7)


def test_unknown_bounds_can_meet_anything() -> None:
    files = [base(n, n * 10, n * 10 + 9) for n in range(10)]
    unknown = change(1, bounds={})
    assert read_overhead(snapshot(KEYED, files, [unknown])) == read_overhead(snapshot(KEYED, files, [change(1, 0, 99)]))


def test_changes_that_merely_stand_beside_base_cost_nothing() -> None:
    load = change(1, 100, 199, rows=STANDING_ROWS_MIN)
    assert read_overhead(snapshot(KEYED, [base(1, 0, 99)], [load])) == 1
    assert read_overhead(snapshot(KEYED, [], [load])) == 1
    small = change(1, 100, 199, rows=STANDING_ROWS_MIN - 1)
    assert read_overhead(snapshot(KEYED, [base(1, 0, 99)], [small])) > 1


def test_on_a_table_with_no_key_only_tombstones_touch_base() -> None:
    files = [base(n, rows=1_000_000) for n in range(10)]
    appended = read_overhead(snapshot(KEYLESS, files, [change(1)]))
    deleted = read_overhead(snapshot(KEYLESS, files, [change(1, op=Op.DELETE, columns=("v",))]))
    assert 1 < appended < 1.01
    assert deleted == pytest.approx(appended + 0.3)


def test_unknown_row_counts_are_estimated_from_sizes() -> None:
    told = [base(1, 0, 9, size=100 * MB), base(2, 0, 9, size=100 * MB)]
    untold = [told[0], replace(told[1], rows=-1)]
    pending = [change(1, 0, 9)]
    assert read_overhead(snapshot(KEYED, untold, pending)) == pytest.approx(
        read_overhead(snapshot(KEYED, told, pending)), rel=0.01
    )
    assert read_overhead(snapshot(KEYED, [replace(told[0], rows=-1)], pending)) > 1


spans = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted)
known_bounds = spans.map(lambda span: Bounds(span[0], span[1], 0))
any_bounds = st.one_of(known_bounds, st.just(Bounds(None, None, None)))
any_changes = st.lists(
    st.tuples(any_bounds, st.sampled_from([0, 1, 5_000, 50_000, 3_000_000]), st.sampled_from(list(Op))), max_size=8
)


def pending_of(drawn: list[tuple[Bounds, int, Op]]) -> list[DataFile]:
    return [
        change(seq, rows=rows, bounds={"k": bounds}, op=op, columns=("k",) if op is Op.DELETE else ())
        for seq, (bounds, rows, op) in enumerate(drawn, 1)
    ]


@given(
    schema=st.sampled_from([KEYED, KEYLESS]),
    standing=st.lists(st.tuples(any_bounds, st.sampled_from([-1, 0, 100, 1_000_000])), max_size=6),
    drawn=any_changes,
)
def test_more_pending_never_lowers_the_overhead(
    schema: TableSchema, standing: list[tuple[Bounds, int]], drawn: list[tuple[Bounds, int, Op]]
) -> None:
    files = [base(n, bounds={"k": bounds}, rows=rows) for n, (bounds, rows) in enumerate(standing)]
    pending = pending_of(drawn)
    costs = [read_overhead(snapshot(schema, files, pending[:count])) for count in range(len(pending) + 1)]
    assert costs[0] == 1
    assert costs == sorted(costs)


# -- fold

CALM = replace(
    POLICY,
    fold_share_max=100,
    fold_files_max=100_000,
    fold_age_s_max=31_536_000,
    read_overhead_max=1_000,
    write_amplification_max=1_000_000,
)


def test_nothing_pending_is_never_due() -> None:
    assert fold_due(snapshot(KEYED, [base(1)]), POLICY, NOW) is None


@pytest.mark.parametrize(("rows", "due"), [(100_000, False), (100_001, True), (120_000, True)])
def test_a_fold_is_due_above_a_share_of_changed_rows(rows: int, due: bool) -> None:
    found = fold_due(
        snapshot(KEYED, [base(1, 0, 9)], [change(1, 0, 9, rows=rows)]), replace(CALM, fold_share_max=0.1), NOW
    )
    assert (found is not None) == due
    if rows == 120_000:
        assert found is not None
        assert found.why == "12 % of rows changed, above 10 %"


@pytest.mark.parametrize(("rows", "due"), [(9_999, False), (10_000, True)])
def test_the_share_of_a_small_table_is_no_reason(rows: int, due: bool) -> None:
    tiny = snapshot(KEYED, [base(1, 0, 9, rows=500)], [change(1, 0, 9, rows=rows)])
    assert (fold_due(tiny, replace(CALM, fold_share_max=0.1), NOW) is not None) == due


@pytest.mark.parametrize(("files", "due"), [(99, False), (100, True)])
def test_a_fold_is_due_at_a_number_of_change_files(files: int, due: bool) -> None:
    pending = [change(seq, rows=1) for seq in range(1, files + 1)]
    found = fold_due(snapshot(KEYED, [base(1)], pending), replace(CALM, fold_files_max=100), NOW)
    assert (found is not None) == due
    if found is not None:
        assert found.why == "100 change files, limit 100"
        assert found.files == tuple(pending)


@pytest.mark.parametrize(("age_s", "due"), [(3_599, False), (3_600, True), (90_000, True), (-90_000, False)])
def test_a_fold_is_due_at_the_age_of_the_oldest_change(age_s: int, due: bool) -> None:
    pending = [change(1, time_ms=NOW - age_s * 1000), change(2, time_ms=NOW)]
    found = fold_due(snapshot(KEYED, [base(1)], pending), replace(CALM, fold_age_s_max=3_600), NOW)
    assert (found is not None) == due
    if age_s == 3_600:
        assert found is not None
        assert found.why == "the oldest change is 3,600 s old, limit 3,600 s"


def test_a_commit_time_that_the_log_does_not_tell_is_no_age() -> None:
    pending = [change(1, time_ms=0)]
    assert fold_due(snapshot(KEYED, [base(1)], pending), replace(CALM, fold_age_s_max=1), NOW) is None


def test_a_fold_is_due_above_the_expected_read_overhead() -> None:
    ten_million = [base(n, n * 10, n * 10 + 9, size=50 * MB) for n in range(10)]

    def pending(files: int) -> Snapshot:
        return snapshot(KEYED, ten_million, [change(seq, 0, 99) for seq in range(1, files + 1)])

    policy = replace(CALM, read_overhead_max=1.5)
    assert fold_due(pending(120), policy, NOW) is None
    found = fold_due(pending(320), policy, NOW)
    assert found is not None
    assert found.why == "reads take 1.82× of a folded table's time, above 1.5×"
    assert found.gain == "reads 1.8× → 1.0×, 320 change files → 0"
    assert found.bytes_in == found.bytes_out == 500 * MB + 320 * 10 * KB


def test_every_limit_that_was_passed_is_named() -> None:
    pending = [change(1, rows=200_000, time_ms=NOW - 7_200_000)]
    found = fold_due(snapshot(KEYED, [base(1)], pending), replace(POLICY, fold_files_max=1), NOW)
    assert found is not None
    assert [part.split()[0] for part in found.why.split("; ")] == ["reads", "20", "1", "the"]


def test_changes_of_an_empty_base_are_folded_by_number_and_age() -> None:
    load = [change(1, rows=1_000_000)]
    assert fold_due(snapshot(KEYED, [], load), POLICY, NOW) is None
    assert fold_due(snapshot(KEYED, [], load), POLICY, NOW + HOUR_MS) is not None
    assert fold_due(snapshot(KEYED, [], load), replace(POLICY, fold_files_max=1), NOW) is not None


def test_linking_what_stands_beside_base_reads_nothing() -> None:
    load = [change(1, 100, 199, rows=1_000_000, size=GB)]
    found = fold_due(snapshot(KEYED, [base(1, 0, 99)], load), POLICY, NOW)
    assert found is not None
    assert (found.bytes_in, found.bytes_out) == (0, 0)


# -- write amplification


def random_changes(rows: int, files: int = 1, age_s: int = 0) -> Snapshot:
    """Changes all over a table of 10,000,000 rows and 500 MB."""
    base_files = [base(n, n * 10, n * 10 + 9, size=50 * MB) for n in range(10)]
    each = {"rows": rows // files, "time_ms": NOW - age_s * 1_000}
    return snapshot(KEYED, base_files, [change(seq, 0, 99, **each) for seq in range(1, files + 1)])


EAGER = replace(CALM, fold_files_max=1, write_amplification_max=12)


@pytest.mark.parametrize(("rows", "due"), [(1_000, False), (900_000, False), (920_000, True)])
def test_a_fold_waits_until_its_changes_are_worth_what_it_writes(rows: int, due: bool) -> None:
    assert (fold_due(random_changes(rows), EAGER, NOW) is not None) == due


def test_what_writes_little_is_never_put_off() -> None:
    small = snapshot(KEYED, [base(1, 0, 9, size=FREE_BYTES - 10 * KB)], [change(1, 0, 9, rows=1)])
    assert fold_due(small, EAGER, NOW) is not None


def test_a_fold_that_meets_no_file_of_base_is_never_put_off() -> None:
    appended = snapshot(KEYED, [base(1, 0, 9, size=GB)], [change(1, 10, 19, rows=30_000)])
    assert fold_due(appended, EAGER, NOW) is not None
    keyless = snapshot(KEYLESS, [base(1, 0, 9, size=GB)], [change(1, 0, 9, rows=10)])
    assert fold_due(keyless, EAGER, NOW) is not None


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        (replace(EAGER, fold_files_max=5, minor_files_min=500), random_changes(1_000, files=5 * FILES_WIN)),
        (replace(EAGER, fold_age_s_max=60), random_changes(1_000, age_s=60 * AGE_WINS)),
        (replace(EAGER, read_overhead_max=1.01), random_changes(800_000, files=8)),
    ],
    ids=["files", "age", "reads"],
)
def test_what_readers_feel_wins_in_the_end(policy: MaintenancePolicy, seen: Snapshot) -> None:
    assert fold_due(seen, policy, NOW) is not None
    twice = {name: 2.1 * getattr(policy, name) for name in ("fold_files_max", "fold_age_s_max", "read_overhead_max")}
    assert fold_due(seen, replace(policy, **twice), NOW) is None


def test_where_files_can_be_merged_that_comes_before_a_costly_fold() -> None:
    seen = random_changes(1_000, files=5 * FILES_WIN)
    policy = replace(EAGER, fold_files_max=5)
    assert fold_due(seen, policy, NOW) is None
    assert minor_due(seen, policy) is not None


@given(rows=st.integers(1, 5_000_000), files=st.integers(1, 50), bound=st.floats(1, 100))
def test_a_fold_writes_no_more_than_the_bound_unless_something_weighs_more(rows: int, files: int, bound: float) -> None:
    seen = random_changes(max(rows, files), files)
    policy = replace(EAGER, write_amplification_max=bound)
    if fold_due(seen, policy, NOW) is not None and files < FILES_WIN:
        assert fold_amplification(read_cost(seen)) <= bound


# -- minor


def minor_of(pending: list[DataFile], schema: TableSchema = KEYED, **more: Any) -> list[int] | None:
    plan = minor_due(snapshot(schema, [base(1)], pending), more.pop("policy", POLICY), **more)
    return None if plan is None else [file.seq for file in plan.files]


def seqs(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def small(first: int, last: int, **more: Any) -> list[DataFile]:
    return [change(seq, **more) for seq in seqs(first, last)]


@pytest.mark.parametrize(("files", "due"), [(19, False), (20, True)])
def test_small_change_files_in_a_row_are_merged(files: int, due: bool) -> None:
    assert minor_of(small(1, files)) == (seqs(1, files) if due else None)


def test_a_minor_plan_says_what_and_why() -> None:
    plan = minor_due(snapshot(KEYED, [], [*small(1, 20), change(21, op=Op.DELETE)]), POLICY)
    assert plan is not None
    assert plan.why == "minor: 21 small change files in a row (seq 1 to 21), at least 20"
    assert plan.gain == "21 files → up to 2"
    assert plan.bytes_in == plan.bytes_out == 21 * 10 * KB


def test_rows_of_a_table_with_no_key_are_not_merged() -> None:
    assert minor_of(small(1, 50), KEYLESS) is None


def test_a_bulk_file_ends_a_run_and_the_longest_run_wins() -> None:
    bulk = change(26, path=f"{folder('bulk', 1)}/part-0.parquet")
    assert minor_of([*small(1, 25), bulk, *small(27, 56)]) == seqs(27, 56)
    assert minor_of([*small(1, 25), bulk, *small(27, 51)]) == seqs(1, 25), "the oldest of equals"
    assert minor_of([*small(1, 15), replace(bulk, seq=16), *small(17, 30)]) is None


def test_a_busy_file_ends_a_run() -> None:
    pending = small(1, 45)
    assert minor_of(pending, busy=frozenset({pending[20].path})) == seqs(22, 45)


def test_a_commit_is_never_split() -> None:
    pairs = [
        file for seq in seqs(1, 12) for file in (change(seq), change(seq, op=Op.DELETE, path=f"write-d{seq}.parquet"))
    ]
    assert minor_of(pairs) == [seq for seq in seqs(1, 12) for _ in range(2)]
    bulk_beside = change(12, path=f"{folder('bulk', 1)}/part-0.parquet")
    assert minor_of([*pairs, bulk_beside]) == [seq for seq in seqs(1, 11) for _ in range(2)]


def test_large_files_are_left_to_the_fold() -> None:
    large = small(1, 30, size=POLICY.minor_bytes_max + 1)
    assert minor_of(large) is None
    assert minor_of(small(1, 30, size=POLICY.minor_bytes_max)) == seqs(1, 30)


def test_a_run_fits_in_memory() -> None:
    run = minor_of(small(1, 100, rows=50_000))
    assert run == seqs(1, 40)
    assert minor_of(small(1, 100, rows=POLICY.minor_rows_max)) is None


def test_files_of_unknown_length_are_left_alone() -> None:
    assert minor_of(small(1, 30, rows=-1)) is None


def test_what_a_merge_wrote_is_merged_again_only_among_its_like() -> None:
    merged = change(20, size=200 * KB, path=f"{folder('minor', 1)}/part-0.parquet")
    assert minor_of([merged, *small(21, 39)]) is None
    assert minor_of([merged, *small(21, 40)]) == seqs(21, 40)
    like = [replace(merged, seq=seq, path=f"{folder('minor', seq)}/part-0.parquet") for seq in range(20, 420, 20)]
    assert minor_of(like) == [file.seq for file in like]


def test_a_stream_of_writes_is_rewritten_few_times() -> None:
    pending: list[DataFile] = []
    written = incoming = most = 0
    for seq in range(1, 3_000):
        pending.append(change(seq, rows=100))
        incoming += pending[-1].size_bytes
        while plan := minor_due(snapshot(KEYED, [], pending), POLICY):
            written += plan.bytes_out
            gone = {file.path for file in plan.files}
            output = change(
                plan.files[-1].seq,
                rows=sum(f.rows for f in plan.files),
                size=plan.bytes_out,
                path=f"{folder('minor', seq)}/part-0.parquet",
            )
            pending = sorted([*(f for f in pending if f.path not in gone), output], key=lambda f: f.seq)
        most = max(most, len(pending))
    assert written < 3 * incoming
    assert most < 60


@given(
    drawn=st.lists(
        st.tuples(st.sampled_from([KB, 10 * KB, 500 * KB, 5 * MB]), st.sampled_from(["write", "minor", "bulk"])),
        max_size=60,
    ),
    files_min=st.integers(2, 20),
    busy_numbers=st.sets(st.integers(0, 59), max_size=4),
)
def test_a_minor_run_has_no_gap(drawn: list[tuple[int, str]], files_min: int, busy_numbers: set[int]) -> None:
    pending = [
        change(seq, size=size, path=f"{folder(origin, seq)}/p" if origin != "write" else f"write-{seq}")
        for seq, (size, origin) in enumerate(drawn, 1)
    ]
    busy = frozenset(pending[number].path for number in busy_numbers if number < len(pending))
    plan = minor_due(snapshot(KEYED, [], pending), replace(POLICY, minor_files_min=files_min), busy)
    if plan is not None:
        run = [file.seq for file in plan.files]
        assert run == seqs(run[0], run[-1])
        assert len(run) >= files_min
        assert not busy & {file.path for file in plan.files}
        assert {file.origin for file in plan.files} <= {"write", "minor"}
        assert plan.bytes_in >= 2 * max(file.size_bytes for file in plan.files)


# -- clocks

moments = st.sampled_from([-DAY_MS, 0, NOW - DAY_MS, NOW, NOW + DAY_MS, NOW * 100])


@given(drawn=any_changes, times=st.lists(st.integers(0, 4 * 10**12), min_size=8, max_size=8), now_ms=moments)
def test_a_clock_that_jumps_breaks_nothing(drawn: list[tuple[Bounds, int, Op]], times: list[int], now_ms: int) -> None:
    pending = [replace(file, time_ms=time) for file, time in zip(pending_of(drawn), times, strict=False)]
    view = snapshot(KEYED, [base(1, 0, 9)], pending)
    due, a_day_on = fold_due(view, POLICY, now_ms), fold_due(view, POLICY, now_ms + DAY_MS)
    assert due is None or a_day_on is not None, "a jump forward only makes work due earlier"
    debt(view, POLICY, now_ms)


# -- debt


def test_debt_counts_what_is_there_and_what_is_due() -> None:
    files = [
        *hour_of_files(12),
        timed(50, 3, origin="daily", size=5 * MB),
        timed(51, 3, origin="hourly", size=600 * MB),
    ]
    pending = [change(seq, bounds={}, time_ms=NOW - 2 * HOUR_MS) for seq in range(1, 31)]
    found = debt(snapshot(TIMED, files, pending), replace(POLICY, write_amplification_max=1_000_000), NOW)
    assert found.origins == {
        "daily": FileCount(1, 5 * MB),
        "fold": FileCount(12, 12 * MB),
        "hourly": FileCount(1, 600 * MB),
    }
    assert (found.pending_files, found.pending_rows, found.pending_bytes) == (30, 30_000, 300 * KB)
    assert found.read_overhead == read_overhead(snapshot(TIMED, files, pending))
    assert found.waiting == FileCount(12, 12 * MB)
    assert [reason.split(":")[0] for reason in found.due] == [
        "the oldest change is 7,200 s old, limit 3,600 s",
        "minor",
        "hourly",
    ]


def test_a_table_in_order_owes_nothing() -> None:
    found = debt(snapshot(KEYED, [base(1, origin="pack", size=500 * MB)]), POLICY, NOW)
    assert (found.due, found.waiting, found.read_overhead, found.pending_rows) == ((), FileCount(), 1, 0)
