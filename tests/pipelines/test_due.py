"""When the next run is due."""

from __future__ import annotations

import datetime as dt

import pytest

from lithify.pipelines.due import RETRY_MS, RETRY_MS_MAX, Last, due_ms, failures_in_a_row
from lithify.pipelines.reports import Outcome, PipelineReport
from lithify.pipelines.schedule import Schedule

MINUTE_MS = 60_000
NOON_MS = int(dt.datetime(2026, 11, 19, 12, tzinfo=dt.UTC).timestamp() * 1000)
RAN = Last(NOON_MS, NOON_MS + 1_000)


def report(outcome: Outcome) -> PipelineReport:
    return PipelineReport("p", "1", 0, outcome, [], 1.0)


def test_every_counts_from_the_end_of_the_last_run() -> None:
    schedule = Schedule(every_s=30)
    assert due_ms(schedule, None, 0, NOON_MS, NOON_MS) == NOON_MS
    assert due_ms(schedule, RAN, 0, NOON_MS + 2_000, 0) == NOON_MS + 31_000


def test_a_clock_that_was_set_back_keeps_nothing_waiting_for_longer_than_its_interval() -> None:
    assert due_ms(Schedule(every_s=30), RAN, 0, NOON_MS - 86_400_000, 0) == NOON_MS - 86_400_000 + 30_000


def test_a_cron_expression_goes_by_the_last_run_and_makes_up_for_one_moment() -> None:
    hourly = Schedule(cron="0 * * * *")
    assert due_ms(hourly, RAN, 0, NOON_MS + 2_000, 0) == NOON_MS + 60 * MINUTE_MS
    assert due_ms(hourly, RAN, 0, NOON_MS + 300 * MINUTE_MS, 0) == NOON_MS + 60 * MINUTE_MS
    assert due_ms(hourly, None, 0, NOON_MS + 5 * MINUTE_MS, NOON_MS + MINUTE_MS) == NOON_MS + 60 * MINUTE_MS


@pytest.mark.parametrize("schedule", [Schedule(cron="0 0 * * *"), Schedule(on="a.b"), Schedule(every_s=1)])
def test_failures_are_tried_again_less_and_less_often(schedule: Schedule) -> None:
    waits = [(due_ms(schedule, RAN, failures, NOON_MS, 0) or 0) - RAN.ended_ms + 1_000 for failures in (1, 2, 3, 30)]
    assert waits == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, RETRY_MS_MAX]


def test_a_slow_one_is_not_tried_more_often_for_failing() -> None:
    assert due_ms(Schedule(every_s=3_600), RAN, 1, RAN.ended_ms, 0) == RAN.ended_ms + 3_600_000


def test_on_request_and_on_changes_have_no_time() -> None:
    assert due_ms(None, RAN, 3, NOON_MS, 0) is None
    assert due_ms(Schedule(on="a.b"), RAN, 0, NOON_MS, 0) is None


def test_failures_in_a_row_end_with_a_success_and_runs_that_were_stopped_say_nothing() -> None:
    outcomes: list[Outcome] = ["failed", "stopped", "failed", "done", "failed"]
    assert failures_in_a_row([report(outcome) for outcome in outcomes]) == 2
    assert failures_in_a_row([]) == 0
