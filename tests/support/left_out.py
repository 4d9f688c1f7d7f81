"""Tests that were skipped for want of a server, of a broker, or of the connector that Spark reads buckets with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol


class Report(Protocol):
    @property
    def keywords(self) -> Any: ...

    @property
    def longrepr(self) -> Any: ...


def left_out(skipped: Iterable[Report]) -> list[str]:
    """A line for each reason, with how many."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in skipped
        if {"bucket", "broker"} & {*report.keywords}
    )
    return [f"{reason} ({count})" for reason, count in reasons.most_common()]
