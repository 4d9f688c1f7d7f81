"""A query under way: what it may still take, and how its rows are collected."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
from datafusion import DataFrame

from lithify.sql.analysis import plain_schema
from lithify.sql.isolated.cage import MayRead
from lithify.sql.limits import Limits, out_of_time
from lithify.sql.query_queue import Run


class QueryRun:
    """A query under way: its limits, and what has been used of them. Without a run, nobody can cancel it. `may_read`:
    the tables that its caller may read at all; None: every one.
    """

    def __init__(self, limits: Limits | None = None, run: Run | None = None, may_read: MayRead | None = None) -> None:
        self.limits, self.run, self.may_read = limits or Limits(), run, may_read
        self.started_at = time.monotonic()
        self.cut = False
        self.hot = self.repeatable = False

    @property
    def id(self) -> str:
        return self.run.id if self.run is not None else ""

    @property
    def owner(self) -> str | None:
        return self.run.owner if self.run is not None else None

    def left_s(self) -> float | None:
        timeout_s = self.limits.timeout_s
        return None if timeout_s is None else self.started_at + timeout_s - time.monotonic()

    def check(self) -> None:
        """Raises if the query was cancelled or its time is over."""
        if self.run is not None:
            self.run.check()
        left_s = self.left_s()
        if left_s is not None and left_s <= 0:
            assert self.limits.timeout_s is not None
            raise out_of_time(self.limits.timeout_s)


def collect(frame: DataFrame, course: QueryRun, check: Callable[[DataFrame], None] | None = None) -> pa.Table:
    """All rows, or as many as the limit allows, with string views as plain strings: the spelling that every Arrow
    consumer reads. Without empty batches too: PySpark takes one in the middle for the end. `check`: looks at what has
    run, and raises if its rows must not be believed.
    """
    rows_max = course.limits.rows_max
    if rows_max is not None:
        frame = frame.limit(rows_max + 1)
    table = frame.to_arrow_table()
    if check is not None:
        check(frame)
    filled = pa.Table.from_batches([batch for batch in table.to_batches() if batch.num_rows], table.schema)
    return cut(filled.cast(plain_schema(table.schema)), course)


def cut(table: pa.Table, course: QueryRun) -> pa.Table:
    """No more rows than the limit allows."""
    rows_max = course.limits.rows_max
    if rows_max is None or table.num_rows <= rows_max:
        return table
    course.cut = True
    return table.slice(0, rows_max)
