"""Which files may go, decided from what the log, the disk, the pins and the manifests say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.disk_files import DiskFile, lies_inside
from lithify.maintenance.vacuum_rules import (
    LogFacts,
    Protection,
    Verdict,
    freed_by_each,
    is_ours,
    job_id_of,
    judge,
    relative_path,
)

JOB = "0123456789abcdef" * 2
OTHER = "f" * 32
WRITE = f"write-{JOB}.parquet"
FOLDED = f"fold-{JOB}/part-00000.parquet"
CUTOFF_MS = 1_000


def file(path: str = WRITE, mtime_ms: int = 10, size_bytes: int = 100, inode: int = 1, links: int = 1) -> DiskFile:
    return DiskFile(path, size_bytes, mtime_ms, (0, inode), links)


def facts(*, complete: bool = True) -> LogFacts:
    return LogFacts("/lake/a/t/changes", complete)


def removed(path: str, at_ms: int, *, ours: bool = True) -> LogFacts:
    log = facts()
    log.note(0, 10, [path], [], ours=True)
    log.note(1, at_ms, [], [path], ours=ours)
    return log


def verdict(disk: DiskFile, log: LogFacts, protection: Protection | None = None) -> Verdict:
    return judge(disk, log, protection or Protection(), CUTOFF_MS)


def test_a_live_file_stays_whatever_its_age() -> None:
    log = removed(WRITE, 20)
    log.live = frozenset({WRITE})
    assert verdict(file(), log) is Verdict.LIVE


@pytest.mark.parametrize(
    ("at_ms", "expected"), [(999, Verdict.REMOVED), (1_000, Verdict.YOUNG), (2_000, Verdict.YOUNG)]
)
def test_a_file_stays_while_a_retained_version_has_it(at_ms: int, expected: Verdict) -> None:
    assert verdict(file(), removed(WRITE, at_ms)) is expected


@pytest.mark.parametrize(
    ("mtime_ms", "expected"), [(999, Verdict.ORPHAN), (1_000, Verdict.YOUNG), (9_000, Verdict.YOUNG)]
)
def test_a_file_that_no_commit_names_goes_by_its_age(mtime_ms: int, expected: Verdict) -> None:
    assert verdict(file(mtime_ms=mtime_ms), facts()) is expected


def test_a_file_of_a_pinned_snapshot_stays() -> None:
    assert verdict(file(), removed(WRITE, 20), Protection(pinned=frozenset({WRITE}))) is Verdict.PINNED


@pytest.mark.parametrize("path", [FOLDED, f"cluster-{JOB}/_day=2026-11-15/part-1.parquet", f"bulk-{JOB}/_scratch/rows"])
def test_what_lies_in_the_folder_of_an_unfinished_job_stays(path: str) -> None:
    assert verdict(file(path), facts(), Protection(job_ids=frozenset({JOB}))) is Verdict.IN_JOB
    assert verdict(file(path), facts(), Protection(job_ids=frozenset({OTHER}))) is Verdict.ORPHAN


def test_what_an_unfinished_job_reads_stays() -> None:
    assert verdict(file(), removed(WRITE, 20), Protection(inputs=frozenset({WRITE}))) is Verdict.IN_JOB


@pytest.mark.parametrize(
    "path", ["part-0.parquet", "x=1/part-0.parquet", "write-1.parquet", "notes.txt", "fold-1/part"]
)
def test_a_foreign_file_goes_only_if_we_removed_it(path: str) -> None:
    assert verdict(file(path), facts()) is Verdict.FOREIGN
    assert verdict(file(path), removed(path, 20, ours=False)) is Verdict.FOREIGN
    assert verdict(file(path), removed(path, 20)) is Verdict.REMOVED


def test_an_old_file_of_a_trimmed_log_was_not_left_by_a_dead_writer() -> None:
    log = facts(complete=False)
    log.note(70, 500, [], [], ours=True)
    assert verdict(file(mtime_ms=499), log) is Verdict.REMOVED
    assert verdict(file(mtime_ms=501), log) is Verdict.ORPHAN


def test_a_removal_after_a_clock_went_back_is_as_young_as_the_commit_before_it() -> None:
    log = facts()
    log.note(0, 5_000, [WRITE], [], ours=True)
    log.note(1, 20, [], [WRITE], ours=True)
    assert verdict(file(), log) is Verdict.YOUNG


@given(
    live=st.booleans(),
    pinned=st.booleans(),
    in_job=st.booleans(),
    removed_ms=st.none() | st.integers(0, 2_000),
    mtime_ms=st.integers(0, 2_000),
)
def test_nothing_that_is_needed_goes(
    live: bool, pinned: bool, in_job: bool, removed_ms: int | None, mtime_ms: int
) -> None:
    log = facts() if removed_ms is None else removed(FOLDED, removed_ms)
    log.live = frozenset({FOLDED}) if live else frozenset()
    protection = Protection(
        frozenset({FOLDED}) if pinned else frozenset(), frozenset({JOB}) if in_job else frozenset(), frozenset()
    )
    found = verdict(file(FOLDED, mtime_ms), log, protection)
    needed = live or pinned or in_job or mtime_ms >= CUTOFF_MS or (removed_ms or 0) >= CUTOFF_MS
    assert found.goes is not needed
    assert (found is Verdict.ORPHAN) is (not needed and removed_ms is None)


def test_bytes_come_free_with_the_last_name_of_an_inode() -> None:
    both = [file("a", inode=1, links=2), file("b", inode=1, links=2), file("c", inode=2)]
    assert list(freed_by_each(both)) == [0, 100, 100]
    assert list(freed_by_each([replace(both[0], links=3), both[2]])) == [0, 100]


@pytest.mark.parametrize(
    ("spelled", "path"),
    [
        ("part%20one.parquet", "part one.parquet"),
        ("./a/../b.parquet", "b.parquet"),
        ("file:///lake/base/x=1/b.parquet", "x=1/b.parquet"),
        ("/lake/base/b.parquet", "b.parquet"),
        ("/elsewhere/b.parquet", "/elsewhere/b.parquet"),
        ("../b.parquet", "../b.parquet"),
    ],
)
def test_a_log_may_spell_a_path_in_several_ways(spelled: str, path: str) -> None:
    assert relative_path(spelled, "/lake/base") == path


def test_only_what_stays_below_the_folder_lies_inside() -> None:
    assert [lies_inside(path) for path in ("a", "a/b", "../a", "/a", "a/../../b", "")] == [True, True, *[False] * 4]


def test_names_tell_whose_a_file_is() -> None:
    assert [is_ours(path) for path in (WRITE, FOLDED, f"x/{WRITE}", f"fold-{JOB}", "part.parquet")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [job_id_of(path) for path in (WRITE, FOLDED, f"hourly-{OTHER}")] == [None, JOB, OTHER]
