"""Random programs, and the feed between two of their commits: the exact effect of each, whatever became of the files.
Applied to the rows at its beginning, it gives the rows at its end.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lithify import Table
from support.feed_oracle import FeedDriver, feed_programs
from support.folders import memory_folder
from support.program import Row


def served(table: Table, where: str | None, as_of: int | None) -> list[Row]:
    return table.to_arrow(where=where, as_of=as_of).to_pylist()


def by_arrow(table: Table, since: Any, until: Any) -> pa.Table:
    return table.feed(since, until)


def with_before(table: Table, since: Any, until: Any) -> pa.Table:
    return table.feed(since, until, before=True)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=feed_programs(), resolve_rows_max=st.sampled_from([20_000_000, 3]))
def test_the_feed_is_what_the_commits_did(program: tuple[str, list[tuple[Any, ...]]], resolve_rows_max: int) -> None:
    name, steps = program
    with memory_folder() as folder:
        driver = FeedDriver(folder / "lake", served, [name], resolve_rows_max)
        try:
            for kind, *arguments in steps:
                getattr(driver, kind)(*arguments)
            newest = driver.oracles[name].seq
            for since in range(newest + 1):
                until = (since + newest + 1) // 2
                driver.check_feed(name, 1, since, newest, by_arrow)
                driver.check_feed(name, 1, since, until, by_arrow)
                driver.check_feed_with_before(name, 1, since, until, with_before)
                driver.check_net(name, 1, since, until)
        finally:
            driver.close()
