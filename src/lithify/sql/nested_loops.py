"""Joins with no equality in their condition: the engine compares every row with every other one, in a nested loop.

Where one side does not fit the memory, DataFusion 55 goes on from disk, and loses rows: it reads that side a second
time, of which a scan of files gives only what it has not given yet, and forgets which rows have met none on the other
side. So a query with such a join may not use the disk at first. If it is something else in it that needs room, it may
after all, and the answer counts only if no nested loop has gone to disk.
"""

from __future__ import annotations

import re

from datafusion import DataFrame

from lithify.sql.errors import out_of_memory

_LOOP = re.compile(r"^\s*(?!Cross )(?:\w+ )?Join:\s*(?:Filter:|$)", re.M)
_OPERATOR, _LOADED = "NestedLoopJoin", "NestedLoopJoinLoad"


def has_nested_loops(plan_text: str) -> bool:
    """By the optimised plan."""
    return _LOOP.search(plan_text) is not None


def is_of_nested_loop(error: Exception) -> bool:
    """Whether it was a nested loop that did not find room."""
    return _LOADED in str(error)


def check_nested_loops(frame: DataFrame) -> None:
    """Raises if a nested loop of a query that has ended has gone to disk."""
    for operator, metrics in frame.execution_plan().collect_metrics():
        if operator.startswith(_OPERATOR) and any(m.name == "spill_count" and m.value for m in metrics.metrics()):
            raise out_of_memory()
