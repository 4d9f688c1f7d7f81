"""When an entry's next run is due. Pure: all times are given.

A run that failed is tried again after 10 s, then 20, 40, … up to an hour, whatever its schedule, so that what a cron
expression or a change called for is still owed; one that asks less often than that is tried at its own pace. A moment
of a cron expression that passed while nobody ran it is made up for once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from lithify.maintenance.scheduler import cron_trigger
from lithify.pipelines.reports import PipelineReport
from lithify.pipelines.schedule import Schedule

RETRY_MS, RETRY_MS_MAX = 10_000, 3_600_000
_DOUBLINGS_MAX = 20


def failures_in_a_row(newest_first: Sequence[PipelineReport]) -> int:
    """Runs that were stopped say nothing either way."""
    failures = 0
    for report in newest_first:
        if report.outcome in ("done", "idle"):
            break
        failures += report.outcome == "failed"
    return failures


def ended_ms(report: PipelineReport) -> int:
    return report.started_ms + int(report.seconds * 1000)


@dataclass(frozen=True)
class Last:
    """The last run, whatever came of it."""

    began_ms: int
    ended_ms: int


def due_ms(schedule: Schedule | None, last: Last | None, failures: int, now_ms: int, since_ms: int) -> int | None:
    """None: it has no time; it runs when it is asked for, or when its table changes. `since_ms`: from when on somebody
    looks, for what has never run.
    """
    if schedule is None:
        return None
    # A clock that was set back must not keep it from running for as long as that.
    ended = now_ms if last is None else min(last.ended_ms, now_ms)
    wait_ms = 0 if schedule.every_s is None else int(schedule.every_s * 1000)
    if failures:
        retry_ms = min(RETRY_MS << min(failures - 1, _DOUBLINGS_MAX), RETRY_MS_MAX)
        return ended + max(retry_ms, wait_ms)
    if schedule.every_s is not None:
        return now_ms if last is None else ended + wait_ms
    if schedule.cron is not None:
        began = dt.datetime.fromtimestamp(min(since_ms if last is None else last.began_ms, now_ms) / 1000, dt.UTC)
        following = cron_trigger(schedule.cron, "cron").get_next_fire_time(began, began)
        return None if following is None else int(following.timestamp() * 1000)
    return None
